// SPDX-License-Identifier: GPL-2.0-only
//! The measured window: what happens in the warm-up is in no metric.
use berth_policy::policy::LoadOptions;
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;

const SCENARIO: &str = r#"
title = "window"
[run]
warmup = "3s"
measure = "1s"
[host]
cores = 1
[vm.web]
tasks = ["worker"]
[task.worker]
threads = 1
loop = ["receive users", "compute 100us", "reply"]
[client.users]
to = "web"
sends = "every 10ms"
[compare]
policies = ["gfifo"]
"#;

#[test]
fn the_warm_up_is_not_measured() {
    let input = Input {
        name: "window".into(),
        shown: "window".into(),
        text: SCENARIO.into(),
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap().scenario;
    let policy = berth_builtin::find("gfifo").unwrap();
    let policy = policy.load(&LoadOptions::default()).unwrap();
    let options = Options::default();
    let run = run_one(&scenario, "gfifo", &policy, &BTreeMap::new(), 1, &options).unwrap();
    // One request every 10 ms for 1 s; each wakes the worker once and switches it in once.
    for metric in ["web.response.count", "web.wakeup.count", "web.switches"] {
        let n = run.metrics[metric];
        assert!((99.0..=101.0).contains(&n), "{metric}: {n}");
    }
    assert!(run.metrics["web.work"] <= 10.1e6, "{:?}", run.metrics);
}
