// SPDX-License-Identifier: GPL-2.0-only
//! The paper `schedulers`: what its scenario gives in places where arithmetic says it.
use berth_experiment::Request;
use berth_experiment::simulator::{Running, simulated};
use std::path::Path;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

/// Useful work of the target by the second, alone on a CPU 1, where its task is `task`, beside 16 dummies.
fn target(task: &str, arm: &str, set: &[&str]) -> f64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/schedulers");
    let task = format!("vm.target.tasks=[\"{task}\"]");
    let request = Request {
        scenario: folder.join("unixbench.toml").display().to_string(),
        set: set.iter().map(|s| s.to_string()).chain([task]).collect(),
        arms: vec![arm.into()],
        seed: Some(1),
        ..Request::default()
    };
    let running = Running::new(1, &NEVER);
    let results = simulated(&request, &running).unwrap_or_else(|e| panic!("{e:?}"));
    let experiment = &results.experiments[0];
    let work = experiment.estimate(arm, "target.work").unwrap().mean;
    work / experiment.setup.measure_ns as f64
}

#[track_caller]
fn about(value: f64, expected: f64, within: f64) {
    let off = value / expected - 1.0;
    assert!(off.abs() <= within, "{value} is not {expected}: {off:+.3}");
}

const SPIN: &str = "vm.dummy.tasks=[\"spin\"]";

/// Seventeen hogs in queues of nine and eight, by thread or by weight; a switch takes 20 us of some milliseconds.
#[test]
fn hogs_have_their_parts() {
    about(target("computing", "cfs", &[SPIN]), 1.0 / 9.0, 0.02);
    about(target("computing", "rr", &[SPIN]), 1.0 / 9.0, 0.02);
    let weighted = 3121.0 / (3121.0 + 7.0 * 1024.0);
    about(target("computing", "cfs-nice", &[SPIN]), weighted, 0.02);
    // In whole slices of 100 ms: 22 of them in 20 s.
    about(target("computing", "o1", &[SPIN]), 0.11, 0.001);
}

/// A guest that sleeps is interactive to O(1): hogs have its sleeps, and it pays a switch a round.
#[test]
fn o1_favours_a_guest_that_copies_files_over_hogs() {
    about(target("files", "o1", &[SPIN]), 2.0 / 2.52, 0.002);
    assert!(target("files", "cfs", &[SPIN]) < 0.12);
}

/// Dummies that wake are interactive: a guest that computes has a slice of 100 ms in about 1 s for each of some ten
/// runnable threads. Sleep that counts for nothing takes that away.
#[test]
fn o1_favours_dummies_that_wake_over_a_guest_that_computes() {
    let had = target("computing", "o1", &[]);
    assert!((0.004..0.02).contains(&had), "{had}");
    let without = target("computing", "o1", &["policy.interactivity=0"]);
    assert!(without > 0.1, "{without}");
}
