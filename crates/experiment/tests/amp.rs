// SPDX-License-Identifier: GPL-2.0-only
//! The paper `amp`: what its scenarios give in places where arithmetic says it.
use berth_experiment::Request;
use berth_experiment::simulator::{Running, simulated};
use std::path::Path;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

/// A metric of the first seed.
fn measured(scenario: &str, arm: &str, set: &[&str], metric: &str) -> f64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/amp");
    let request = Request {
        scenario: folder.join(scenario).display().to_string(),
        set: set.iter().map(|s| s.to_string()).collect(),
        arms: vec![arm.into()],
        seed: Some(1),
        ..Request::default()
    };
    let running = Running::new(1, &NEVER);
    let results = simulated(&request, &running).unwrap_or_else(|e| panic!("{e:?}"));
    let found = results.experiments[0].estimate(arm, metric);
    found.unwrap_or_else(|| panic!("{arm}: no {metric}")).mean
}

#[track_caller]
fn about(value: f64, expected: f64, within: f64) {
    let off = value / expected - 1.0;
    assert!(off.abs() <= within, "{value} is not {expected}: {off:+.3}");
}

const JOIN: [&str; 2] = ["task.*.loop=[\"compute 30s\"]", "task.*.rounds=1"];

/// Twelve threads that start together have a core each, whoever schedules twelve cores that are alike.
#[test]
fn on_equal_cores_threads_run_side_by_side() {
    let set = [JOIN[0], JOIN[1], "host.speed=100%"];
    for arm in ["credit", "amp-vm"] {
        about(
            measured("scale.toml", arm, &set, "app.completion"),
            30e9,
            1e-3,
        );
    }
}

/// Split for good and pinned, a program is as slow as its slowest thread; amp-fair gives each thread a third of a fast
/// core: (e + 2) / 3 of the speed, less two moves a round.
#[test]
fn a_program_that_is_split_needs_turns() {
    let took = |arm| measured("scale.toml", arm, &JOIN, "app.completion");
    about(took("fixed"), 30e9, 1e-3);
    about(took("amp-fair"), 30e9 * 3.0 / 4.0, 0.03);
}

/// Always fast by equal parts is 3 e / (e + 2), always slow 3 / (e + 2).
#[test]
fn who_gains_most_is_always_fast() {
    let work = |arm, metric| measured("single.toml", arm, &[], metric);
    for (metric, expected) in [("high.work", 1.5), ("low.work", 3.0 / 3.1)] {
        about(
            work("amp-vm", metric) / work("amp-fair", metric),
            expected,
            0.02,
        );
    }
}
