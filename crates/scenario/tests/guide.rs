// SPDX-License-Identifier: GPL-2.0-only
//! The example of the guide, word for word. (The other one is `papers/flms/ef6-ping.toml`.)
use berth_scenario::model::*;
use berth_scenario::support::{self, Place};
use berth_scenario::{Input, read};

const NOISY_NEIGHBOUR: &str = r#"
title = "Noisy neighbour"

[host]
cores = 4                        # 12 vCPUs on 4 CPUs: three of them want each CPU

[vm.web]
count = 2                        # web-1 and web-2
vcpus = 2
class = "latency"
tasks = ["worker"]

[vm.build]
count = 4
vcpus = 2
class = "batch"
tasks = ["compile"]

[task.worker]                    # a small pool of threads in each web VM
threads = 4
loop    = ["receive users", "compute exp(300us)", "reply"]

[task.compile]                   # one thread per vCPU that never sleeps
model = "busy"

[client.users]                   # outside the host; sends on without waiting for answers
to      = "web"
sends   = "poisson(400/s)"       # to each web VM
request = "1KiB"
reply   = "8KiB"

[compare]
policies = ["linux", "vmfair", "flms"]
baseline = "linux"

[[expect]]                       # exit status 1 when it does not hold
metric  = "web.response.p99"
arm     = "flms"
at_most = "0.2 x baseline"

[[expect]]
metric   = "build.work"
arm      = "flms"
at_least = "0.95 x baseline"
"#;

#[test]
fn noisy_neighbour_runs_in_both_places() {
    let input = Input {
        name: "guide".into(),
        shown: "guide.toml".into(),
        text: NOISY_NEIGHBOUR.into(),
        folder: None,
    };
    let loaded = read(&input, &[]).unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let s = &loaded.scenario;
    assert_eq!(s.vms[0].guest, Guest::default());
    assert_eq!(s.expects[1].at_least, Some(Bound::TimesBaseline(0.95)));
    for place in [Place::Sim, Place::Lab] {
        support::check(s, place, &|address| loaded.at(address)).unwrap();
    }
}
