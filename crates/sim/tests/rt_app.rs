// SPDX-License-Identifier: GPL-2.0-only
//! rt-app files, run: their threads compete as threads of one process, and each task has its results.
use berth_policy::policy::{LoadOptions, Policy};
use berth_results::schema::RunRecord;
use berth_scenario::model::Scenario;
use berth_scenario::placement::SHARED_NOTE;
use berth_scenario::{Input, read, rtapp};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;

const MS: f64 = 1e6;

/// On one CPU that nothing costs time on, 20 s.
fn scenario(tasks: &str) -> Scenario {
    let input = |text: &str| Input {
        name: "load".into(),
        shown: "load.json".into(),
        text: text.into(),
        folder: None,
    };
    let json = format!("{{ \"tasks\" : {{ {tasks} }}, \"global\" : {{ \"duration\" : 20 }} }}");
    let toml = rtapp::import(&input(&json)).unwrap();
    let mut scenario = read(&input(&toml), &[])
        .unwrap_or_else(|e| panic!("{e}"))
        .scenario;
    scenario.host.cores = 1;
    scenario.host.cost = Default::default();
    scenario
}

fn policy(name: &str) -> Policy {
    let policy = berth_builtin::find(name).unwrap();
    policy.load(&LoadOptions::default()).unwrap()
}

fn run(tasks: &str, name: &str, seed: u64) -> RunRecord {
    let opts = Options::default();
    let none = BTreeMap::new();
    run_one(&scenario(tasks), name, &policy(name), &none, seed, &opts)
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn cpu(run: &RunRecord, task: &str) -> f64 {
    run.metrics[&format!("{task}.cpu")]
}

/// Linux's weights of nice 0 and 5: 1024 and 335.
#[test]
fn priority_counts_between_tasks() {
    let tasks = r#""a" : { "run" : 1000 }, "b" : { "priority" : 5, "run" : 1000 }"#;
    let run = run(tasks, "eevdf", 1);
    let share = cpu(&run, "a") / (cpu(&run, "a") + cpu(&run, "b"));
    let wanted = 1024.0 / (1024.0 + 335.0);
    assert!((share - wanted).abs() < 0.01, "{share} instead of {wanted}");
}

#[test]
fn every_thread_has_its_part() {
    let tasks = r#""a" : { "instance" : 3, "run" : 1000 }, "b" : { "run" : 1000 }"#;
    let run = run(tasks, "eevdf", 1);
    assert!((cpu(&run, "a") - 0.75).abs() < 0.01, "{}", cpu(&run, "a"));
}

/// Both wake at 110, 120, 130, ... ms, whatever the seed: one of them waits for the other each time.
#[test]
fn timers_count_from_the_start() {
    let tasks = r#"
        "a" : { "delay" : 50000, "run" : 2000, "timer" : { "ref" : "unique", "period" : 10000 } },
        "b" : { "delay" : 100000, "run" : 3000, "timer" : { "ref" : "unique", "period" : 10000 } }"#;
    for seed in 1..=8 {
        let run = run(tasks, "gfifo", seed);
        let waits: f64 = run.waits.iter().map(|w| w.ns as f64).sum();
        let each = waits / (19_900.0 / 10.0);
        assert!(
            (1.9 * MS..3.1 * MS).contains(&each),
            "seed {seed}: {each} ns"
        );
        assert!((cpu(&run, "b") - 0.3).abs() < 0.01, "{}", cpu(&run, "b"));
    }
}

/// The examples of rt-app's tutorial, whose third round takes longer than the period: in mode `relative` three rounds
/// take 70 ms of which 50 are work, in mode `absolute` 60 ms.
#[test]
fn who_is_late_goes_on_at_once() {
    let timer = |mode: &str| {
        format!(r#""timer" : {{ "ref" : "unique", "period" : 20000, "mode" : "{mode}" }}"#)
    };
    for (mode, wanted) in [("relative", 50.0 / 70.0), ("absolute", 50.0 / 60.0)] {
        let timer = timer(mode);
        let phases = format!(
            r#""t" : {{ "phases" : {{ "usual" : {{ "loop" : 2, "run" : 10000, {timer} }},
            "long" : {{ "run" : 30000, {timer} }} }} }}"#
        );
        let run = run(&phases, "gfifo", 1);
        let used = cpu(&run, "t");
        assert!(
            (used - wanted).abs() < 0.005,
            "{mode}: {used} instead of {wanted}"
        );
    }
}

/// `a` and `b` take turns at a condition, at which `b` waits first; `c` starts threads of `d`, each of which works for
/// 1 ms.
#[test]
fn tasks_that_meet_have_results_of_their_own() {
    let tasks = r#"
        "a" : { "delay" : 10000, "run" : 1000, "lock" : "m", "signal" : "c",
            "wait" : { "ref" : "c", "mutex" : "m" }, "unlock" : "m" },
        "b" : { "lock" : "m", "wait" : { "ref" : "c", "mutex" : "m" }, "unlock" : "m", "run" : 3000,
            "lock1" : "m", "signal" : "c", "unlock1" : "m" },
        "c" : { "fork" : "d", "sleep" : 50000 },
        "d" : { "instance" : 0, "loop" : 1, "run" : 1000 }"#;
    let run = run(tasks, "eevdf", 1);
    assert!((cpu(&run, "d") - 0.02).abs() < 0.002, "{}", cpu(&run, "d"));
    let (a, b) = (cpu(&run, "a"), cpu(&run, "b"));
    assert!((b / a - 3.0).abs() < 0.1 && a + b > 0.9, "{a} and {b}");
    assert!(
        run.metrics["d.run_delay.count"] > 300.0,
        "each is a thread of its own"
    );
    assert!(cpu(&run, "c") < 0.001);
}

/// Who knows VMs knows none here, as in the lab, and says so.
#[test]
fn policies_that_know_vms() {
    let tasks = r#""a" : { "run" : 1000, "sleep" : 1000 }, "b" : { "run" : 1000 }"#;
    for name in ["vmfair", "credit", "lottery", "flms"] {
        let run = run(tasks, name, 1);
        assert!(run.notes.iter().any(|n| n == SHARED_NOTE), "{name}");
        assert!(cpu(&run, "a") + cpu(&run, "b") > 0.99, "{name}");
    }
    assert!(run(tasks, "vtime", 1).notes.is_empty());
}
