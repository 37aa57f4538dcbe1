// SPDX-License-Identifier: GPL-2.0-only
//! The paper `amp`: what its scenarios give in places where arithmetic says it.
use berth_experiment::Request;
use berth_experiment::simulator::{Running, simulated};
use berth_results::experiment::Results;
use std::path::Path;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

/// The first seed of some arms.
fn run(scenario: &str, arms: &[&str], set: &[&str]) -> Results {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/amp");
    let request = Request {
        scenario: folder.join(scenario).display().to_string(),
        set: set.iter().map(|s| s.to_string()).collect(),
        arms: arms.iter().map(|s| s.to_string()).collect(),
        seed: Some(1),
        ..Request::default()
    };
    let running = Running::new(1, &NEVER);
    simulated(&request, &running).unwrap_or_else(|e| panic!("{e:?}"))
}

fn of(results: &Results, arm: &str, metric: &str) -> f64 {
    let found = results.experiments[0].estimate(arm, metric);
    found.unwrap_or_else(|| panic!("{arm}: no {metric}")).mean
}

/// A metric of the first seed.
fn measured(scenario: &str, arm: &str, set: &[&str], metric: &str) -> f64 {
    of(&run(scenario, &[arm], set), arm, metric)
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

/// Pearson's coefficient.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(x, y)| f(x - mean_a, y - mean_b)).sum()
    };
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}

/// The same of ranks, which is Spearman's.
fn of_ranks(a: &[f64], b: &[f64]) -> f64 {
    let ranks = |x: &[f64]| -> Vec<f64> {
        let below = |v: &f64| x.iter().filter(|w| *w < v).count() as f64;
        let alike = |v: &f64| x.iter().filter(|w| *w == v).count() as f64;
        x.iter().map(|v| below(v) + alike(v) / 2.0).collect()
    };
    correlation(&ranks(a), &ranks(b))
}

/// Of twelve programs what each gains and what is predicted, by samples from either kind of core; the product of
/// instructions per cycle and utilisation says more than either alone. And the program that the paper names: what waits
/// for its own results has few instructions per cycle, and gains all the same.
#[test]
fn predictions_follow_what_programs_gain() {
    let arms = [
        "on-slow",
        "on-fast",
        "literal-slow",
        "literal-fast",
        "utilisation-slow",
        "utilisation-fast",
    ];
    let results = run("predict.toml", &arms, &[]);
    let all = |arm: &str, what: &str| -> Vec<f64> {
        let of_program = |i| of(&results, arm, &format!("p{i}.{what}"));
        (1..=12).map(of_program).collect()
    };
    let (slow, fast) = (all("on-slow", "work"), all("on-fast", "work"));
    let gains: Vec<f64> = fast.iter().zip(&slow).map(|(f, s)| f / s).collect();
    for side in ["slow", "fast"] {
        let literal = all(&format!("literal-{side}"), "score");
        let used = all(&format!("literal-{side}"), "cpu");
        let ipc: Vec<f64> = literal.iter().zip(&used).map(|(l, u)| l / u).collect();
        let r = [
            &all(&format!("on-{side}"), "score"),
            &literal,
            &ipc,
            &used,
            &all(&format!("utilisation-{side}"), "score"),
        ]
        .map(|predicted| correlation(predicted, &gains));
        println!(
            "{side}: estimate, IPC x utilisation, IPC, utilisation, by utilisation alone: {r:.3?}"
        );
        assert!(r[0] > 0.8, "{side}: {r:?}");
        assert!(r[1] > r[2] && r[1] > r[3], "{side}: {r:?}");
    }
    let sides = of_ranks(&all("on-slow", "score"), &all("on-fast", "score"));
    println!("between sides, of ranks: {sides:.3}");
    assert!(sides > 0.9, "{sides}");
    let gain = of(&results, "on-fast", "latency.work") / of(&results, "on-slow", "latency.work");
    about(gain, 2.375, 0.001);
    assert!(of(&results, "on-slow", "latency.score") < 1.4);
}
