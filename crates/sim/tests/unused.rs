// SPDX-License-Identifier: GPL-2.0-only
//! `host.unused`: CPUs that idle while threads wait which could have them.
use berth_policy::policy::LoadOptions;
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;

const BUSY: &str = r#"model = "busy""#;

/// Idle and unused share of two CPUs (with more of [host]), on which three VMs of one vCPU run what `burns` says.
fn shares(policy: &str, host: &str, vm: &str, burns: &str) -> (f64, f64) {
    let text = format!(
        r#"
title = "unused"
[run]
warmup = "1s"
measure = "4s"
[host]
cores = 2
{host}
[vm.api]
class = "latency"
tasks = ["nap"]
[vm.hog]
count = 3
tasks = ["burn"]
{vm}
[task.nap]
loop = ["sleep 10s", "compute 10us"]
[task.burn]
{burns}
[compare]
policies = ["{policy}"]
"#
    );
    let input = Input {
        name: "unused".into(),
        shown: "unused".into(),
        text,
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap().scenario;
    let loaded = berth_builtin::find(policy).unwrap();
    let loaded = loaded.load(&LoadOptions::default()).unwrap();
    let options = Options::default();
    let run = run_one(&scenario, policy, &loaded, &BTreeMap::new(), 1, &options).unwrap();
    (run.metrics["host.idle"], run.metrics["host.unused"])
}

/// A CPU for latency VMs, which sleep, and one for the three that burn.
#[test]
fn flms_leaves_half_of_two_cpus_idle_beside_who_waits() {
    let (idle, unused) = shares("flms", "", "", BUSY);
    assert!((idle - 0.5).abs() < 1e-3, "{idle}");
    assert_eq!(idle, unused);
    for policy in ["vmfair", "eevdf", "credit"] {
        assert_eq!(shares(policy, "", "", BUSY), (0.0, 0.0), "{policy}");
    }
}

#[test]
fn who_is_bound_to_another_cpu_could_not_have_the_idle_one() {
    let (idle, unused) = shares("vmfair", "", "affinity = [0]", BUSY);
    assert!((idle - 0.5).abs() < 1e-3, "{idle}");
    assert_eq!(unused, 0.0);
}

/// A cap holds three VMs back to 0.25 CPUs each: they wait, and the rest of the CPUs idles.
#[test]
fn whom_a_cap_holds_back_waits() {
    let (idle, unused) = shares("vmfair", "", "cap = \"0.25 CPUs\"", BUSY);
    assert!((idle - 1.25 / 2.0).abs() < 0.02, "{idle}");
    assert!(unused > 0.5 && unused <= idle, "{unused}");
}

/// The second CPU goes off before the window and comes back in its middle: while it is busy, and while all sleep.
#[test]
fn a_cpu_that_is_off_is_not_there_to_be_used() {
    let at = |at: &str, online: bool| {
        format!("[[host.hotplug]]\nat = \"{at}\"\ncpu = 1\nonline = {online}\n")
    };
    let hotplug = at("500ms", false) + &at("3s", true);
    let (idle, unused) = shares("vmfair", &hotplug, "", BUSY);
    assert!((idle - 0.25).abs() < 1e-2, "{idle}");
    assert!(unused < 1e-3, "{unused}");
    // At 600 ms three want the one CPU that is left, and they do when the other one is there again.
    let later = r#"loop = ["sleep 600ms", "compute 1000s"]"#;
    let (_, unused) = shares("vmfair", &hotplug, "", later);
    assert!(unused < 1e-3, "{unused}");
}
