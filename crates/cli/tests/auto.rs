// SPDX-License-Identifier: GPL-2.0-only
//! `berth pin --policy auto` on the figures of paper K's experiment A6, as the simulator has them: one, two and four
//! VMs with a stream each, all bound to one CPU. What the simulator measures under each stage is what `auto` is told;
//! where it stays, it is to be no more than 5 % worse than nothing bound.
use berth_affinity::Policy;
use berth_affinity::auto::{Auto, Seen};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Figures of each arm, by metric.
fn figures(vms: u32) -> BTreeMap<String, Value> {
    let folder = tempfile::tempdir().unwrap();
    let scenario = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../papers/affinity/stream.toml"
    );
    let out = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["sim", scenario, "--json", "--seeds", "1"])
        .args(["--arm", "unbound", "--arm", "taskset", "--arm", "l2"])
        .args(["--set", &format!("vm.vm1.count={vms}")])
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .output()
        .unwrap();
    let results: Value = serde_json::from_slice(&out.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)));
    let runs = results["experiments"][0]["runs"].as_array().unwrap();
    let one = |run: &Value| {
        (
            run["arm"].as_str().unwrap().to_string(),
            run["metrics"].clone(),
        )
    };
    runs.iter().map(one).collect()
}

/// What the first of so many VMs is seen to do in a second under an arm.
fn seen(metrics: &Value, vms: u32) -> Seen {
    let of = |metric: &str| {
        metrics[metric]
            .as_f64()
            .unwrap_or_else(|| panic!("no {metric}"))
    };
    let vm = if vms == 1 { "vm1" } else { "vm1-1" };
    let (cpus, share) = (
        of(&format!("{vm}.cpu")),
        of(&format!("{vm}.run_delay.share")),
    );
    let others = of("vm1.cpu") - cpus;
    // Guest and emulator apart are not in the results: at most, all of the busiest CPU is one of them.
    let most = of("vm1.path_cpu.max").min(cpus);
    Seen {
        span_s: 1.0,
        vcpus: vec![most],
        path: cpus - most,
        // `share` is of the time that it wants to run. All of it is for the busiest CPU, at most.
        waits: cpus * share / (1.0 - share),
        asked: of("vm1.path_cpu.max") + cpus * share / (1.0 - share),
        busy: of("vm1.path_cpu.max"),
        others,
        paths: 1,
    }
}

#[test]
fn a_stream_loses_no_more_than_a_twentieth_under_auto() {
    for vms in [1, 2, 4] {
        let figures = figures(vms);
        let through = |arm: &str| figures[arm]["vm1.throughput"].as_f64().unwrap();
        let arm = |stage| match stage {
            Policy::Full => "taskset",
            Policy::L2 => "l2",
            _ => "unbound",
        };
        // The test is one only where one CPU is not enough.
        assert!(through("taskset") < 0.95 * through("unbound"), "{vms} VMs");
        let mut auto = Auto::default();
        let mut stages = Vec::new();
        // After these it stays where it is, or comes back to it again and again.
        for _ in 0..300 {
            let stage = auto.stage();
            // Unbound, nobody else is pinned.
            let mut seen = seen(&figures[arm(stage)], vms);
            if stage == Policy::None {
                seen.others = 0.0;
            }
            stages.push(stage);
            auto.observe(&seen);
        }
        let sum: f64 = stages.iter().map(|stage| through(arm(*stage))).sum();
        let mean = sum / stages.len() as f64;
        assert!(
            mean >= 0.95 * through("unbound"),
            "{vms} VMs: {mean:.3e} of {:.3e}, in {stages:?}",
            through("unbound")
        );
        assert_ne!(auto.stage(), Policy::Full, "{vms} VMs");
    }
}
