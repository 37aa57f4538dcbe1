// SPDX-License-Identifier: GPL-2.0-only
//! `cfs` against the rules of Linux 2.6.33 (`docs/linux-schedulers.md`): shares by weight, periods and slices, what
//! sleep is worth, wake-up preemption, groups, balance; and the times of 6.1.
use berth_policy::policy::Policy;
use berth_policy::presets;
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use berth_sim::trace::Kind;
use berth_sim::workload::api::Action;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::OnceLock;

#[path = "support/shipped.rs"]
mod shipped;
#[path = "support/threads.rs"]
mod threads;
use threads::{MS, Run, Setting, Thread, hog, latencies, longest_gap, sleeper, some_end, turns};

fn cfs() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| shipped::policy("cfs"))
}

/// The constants of eight CPUs or more, on one.
const LARGE: Setting<'static> = Setting {
    cpus: 1,
    hz: 1000,
    params: &[
        ("latency_us", "20000"),
        ("min_granularity_us", "4000"),
        ("wakeup_granularity_us", "4000"),
    ],
};
const LATENCY: u64 = 20 * MS;
const LEAST: u64 = 4 * MS;

fn run(setting: &Setting, threads: &[Thread], ms: u64) -> Run {
    threads::run(cfs(), setting, threads, ms)
}

/// sched_prio_to_weight
const WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

fn weight(nice: i32) -> u64 {
    WEIGHTS[(nice + 20) as usize]
}

/// Time in which all of `n` threads run once.
fn period(n: u64) -> u64 {
    if n <= 5 { LATENCY } else { n * LEAST }
}

#[test]
fn weights_become_shares() {
    for nice in [
        vec![0, 5],
        vec![-5, 0, 5],
        vec![0, 0, 0, 1],
        vec![-20, -15],
        vec![10, 12],
    ] {
        let threads: Vec<_> = nice.iter().map(|n| hog(*n)).collect();
        for params in [LARGE.params, &[]] {
            let run = run(&Setting { params, ..LARGE }, &threads, 10_000);
            let total: u64 = nice.iter().map(|n| weight(*n)).sum();
            for (ran, n) in run.ran.iter().zip(&nice) {
                let want = weight(*n) as f64 / total as f64 * 1e10;
                assert!(
                    (*ran as f64 / want - 1.0).abs() < 0.01,
                    "{n} of {nice:?}: {ran}, {want}"
                );
            }
        }
    }
}

/// Slices end exactly: turns of equal threads are the period's parts, also where it has grown.
#[test]
fn a_slice_is_a_part_of_the_period() {
    for n in [2, 3, 5, 6, 10] {
        let threads: Vec<_> = (0..n).map(|_| hog(0)).collect();
        let run = run(&Setting { hz: 0, ..LARGE }, &threads, 2_000);
        let want = period(n) / n;
        for t in &turns(&run)[2 * n as usize..] {
            assert!(t.1.abs_diff(want) <= 10, "{n}: {} for {want}", t.1);
        }
    }
}

/// The three times grow by 1 + log2 of the number of CPUs: five hogs per CPU take turns of the minimum granularity.
#[test]
fn times_are_scaled_by_cpus() {
    for (cpus, factor) in [(1, 1), (2, 2), (3, 2), (4, 3), (8, 4), (16, 4)] {
        let threads: Vec<_> = (0..5 * cpus).map(|_| hog(0)).collect();
        let setting = Setting {
            cpus,
            hz: 0,
            params: &[],
        };
        let run = run(&setting, &threads, 1_000);
        let all = turns(&run);
        let mut lengths: Vec<u64> = all[all.len() / 2..].iter().map(|t| t.1).collect();
        lengths.sort_unstable();
        let usual = lengths[lengths.len() / 2];
        assert!(usual.abs_diff(factor * MS) <= 10, "{cpus} CPUs: {usual}");
    }
}

/// Linux 6.1 on two CPUs: 12 ms, 1.5 ms from nine threads on.
#[test]
fn the_preset_of_6_1_has_its_times() {
    let none = BTreeMap::new();
    let set = presets::resolve(cfs().presets(), Some("linux-6.1"), &none).unwrap();
    let set: Vec<(&str, &str)> = set.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    for (threads, ns) in [
        (2, 12 * MS / 2),
        (8, 12 * MS / 8),
        (9, 3 * MS / 2),
        (20, 3 * MS / 2),
    ] {
        let setting = Setting {
            cpus: 2,
            hz: 0,
            params: &set,
        };
        let hogs: Vec<_> = (0..2 * threads).map(|_| hog(0)).collect();
        let all = turns(&run(&setting, &hogs, 2_000));
        let mut lengths: Vec<u64> = all[all.len() / 2..].iter().map(|t| t.1).collect();
        lengths.sort_unstable();
        let usual = lengths[lengths.len() / 2];
        assert!(
            usual.abs_diff(ns) <= 10,
            "{threads} threads: {usual} for {ns}"
        );
    }
}

/// A light sleeper takes the CPU at once: it is half a latency behind, more than the wake-up granularity.
#[test]
fn a_light_sleeper_preempts_at_once() {
    for hogs in 1..=8 {
        let mut threads = vec![sleeper(200_000, 20 * MS)];
        threads.extend((0..hogs).map(|_| hog(0)));
        for hz in [1000, 0] {
            let times = latencies(
                &run(&Setting { hz, ..LARGE }, &threads, 20_000),
                0,
                500 * MS,
            );
            let late = times.iter().filter(|t| **t > 0).count();
            assert!(
                times.len() > 900 && late == 0,
                "{hogs} hogs, {hz} Hz: {late} of {}",
                times.len()
            );
        }
    }
}

/// Without wake-up preemption it waits for the others' slices.
#[test]
fn without_preemption_a_sleeper_waits() {
    let params: Vec<_> = [LARGE.params, &[("wakeup_preemption", "0")]].concat();
    let setting = Setting {
        params: &params,
        ..LARGE
    };
    let times = latencies(
        &run(&setting, &[sleeper(200_000, 20 * MS), hog(0)], 10_000),
        0,
        500 * MS,
    );
    assert!(
        times[times.len() / 2] > MS / 2,
        "{:?}",
        times[times.len() / 2]
    );
}

/// After any sleep, one wake-up is worth half a latency and what it may be ahead, no more.
#[test]
fn a_long_sleep_is_worth_half_a_latency() {
    for (gentle, worth) in [("1", LATENCY / 2), ("0", LATENCY)] {
        let params: Vec<_> = [LARGE.params, &[("gentle_sleepers", gentle)]].concat();
        let setting = Setting {
            params: &params,
            hz: 0,
            ..LARGE
        };
        let sleeps = Thread {
            actions: vec![
                Action::SleepUntil { at: 3_000 * MS },
                Action::Compute { ns: 3_000 * MS },
            ],
            ..Thread::default()
        };
        let run = run(&setting, &[sleeps, hog(0)], 4_000);
        let at = run
            .events
            .iter()
            .filter(|e| e.1 == Kind::Wake && e.3 == Some(0))
            .nth(1)
            .unwrap()
            .0;
        let since = at.saturating_sub(1);
        // What it has had more than the hog, at each switch after it woke.
        let (mut lead, mut most, mut last, mut who) = (0i64, 0, since, None);
        for e in run
            .events
            .iter()
            .filter(|e| e.0 > since && e.1 == Kind::Switch)
        {
            let ran = (e.0 - last) as i64;
            lead += match who {
                Some(0) => ran,
                Some(_) => -ran,
                None => 0,
            };
            most = most.max(lead);
            (last, who) = (e.0, e.3);
        }
        let most = most as u64;
        // It comes to be ahead of the hog by a slice at most, having begun that far behind.
        assert!(
            most >= worth - MS && most <= worth + LATENCY / 2 + 1_000,
            "{gentle}: {most}"
        );
    }
}

/// A new thread waits for the others' slices.
#[test]
fn a_new_thread_waits_a_slice() {
    let child = Thread {
        starts: false,
        vm: Some(0),
        ..Thread::default()
    };
    let parent = Thread {
        vm: Some(0),
        actions: vec![
            Action::Compute { ns: 100 * MS },
            Action::Fork(Box::new(threads::spec(1, &child))),
            Action::ComputeForever,
        ],
        ..Thread::default()
    };
    for (debit, waits) in [("1", 10 * MS), ("0", 5 * MS)] {
        let params: Vec<_> = [LARGE.params, &[("start_debit", debit)]].concat();
        let setting = Setting {
            params: &params,
            hz: 0,
            ..LARGE
        };
        let run = run(&setting, &[parent.clone(), child.clone()], 500);
        let first = run
            .events
            .iter()
            .find(|e| e.1 == Kind::Switch && e.3 == Some(1))
            .unwrap()
            .0;
        let waited = first - 100 * MS;
        assert!(
            if debit == "1" {
                waited >= waits
            } else {
                waited <= waits
            },
            "{debit}: {waited}"
        );
        assert!(waited <= 2 * LATENCY, "{waited}");
    }
}

/// Two virtual clocks of equal hogs are never further apart than a slice and a tick.
#[test]
fn equal_hogs_stay_close() {
    for (n, hz) in [(2u64, 1000), (3, 1000), (7, 1000), (4, 250)] {
        let threads: Vec<_> = (0..n).map(|_| hog(0)).collect();
        let run = run(&Setting { hz, ..LARGE }, &threads, 5_000);
        let (mut had, mut last, mut who) = (vec![0u64; n as usize], 0, None::<usize>);
        let tick = 1_000_000_000 / u64::from(hz);
        // New threads start a slice apart each.
        let bound = period(n) / n + tick + LATENCY;
        for e in run.events.iter().filter(|e| e.1 == Kind::Switch) {
            if let Some(w) = who {
                had[w] += e.0 - last;
            }
            (last, who) = (e.0, e.3);
            let spread = had.iter().max().unwrap() - had.iter().min().unwrap();
            assert!(spread <= bound, "{n} at {} ns: {spread} of {bound}", e.0);
        }
    }
}

/// Metrics of four seconds of a host with VMs, each a cgroup.
fn scenario(text: &str, set: &[(&str, &str)]) -> BTreeMap<String, f64> {
    let text = format!(
        "title = \"cfs\"\n[run]\nwarmup = \"1s\"\nmeasure = \"8s\"\n[compare]\npolicies = [\"cfs\"]\n\
         [task.hog]\nmodel = \"busy\"\n{text}"
    );
    let input = Input {
        name: "cfs".into(),
        shown: "cfs".into(),
        text,
        folder: None,
    };
    let read = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
    let set = set
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    run_one(&read.scenario, "cfs", cfs(), &set, 1, &Options::default())
        .unwrap_or_else(|e| panic!("{e}\n{}", input.text))
        .metrics
}

/// Fair per thread: of eight vCPUs and one, on one CPU, eight times as much; with groups the same.
#[test]
fn groups_make_vms_equal() {
    let vms = "[host]\ncores = 1\n[vm.wide]\nvcpus = 8\ntasks = [\"hog\"]\n[vm.narrow]\nvcpus = 1\ntasks = [\"hog\"]\n";
    for (groups, want) in [("0", 8.0), ("1", 1.0)] {
        let m = scenario(vms, &[("groups", groups)]);
        let ratio = m["wide.cpu"] / m["narrow.cpu"];
        assert!(
            (ratio / want - 1.0).abs() < 0.02,
            "groups {groups}: {ratio}"
        );
    }
}

/// With groups the weight of a VM is shared by its vCPUs over all CPUs; without, weights count for nothing.
#[test]
fn weights_of_vms_count_in_groups() {
    let vm = |name: &str, weight: u32| {
        format!("[vm.{name}]\nvcpus = 4\nweight = {weight}\ntasks = [\"hog\"]\n")
    };
    for (cores, within) in [(1, 0.02), (4, 0.06)] {
        let text = format!("[host]\ncores = {cores}\n{}{}", vm("a", 100), vm("b", 300));
        let ratio = |groups| {
            let m = scenario(&text, &[("groups", groups)]);
            m["b.cpu"] / m["a.cpu"]
        };
        assert!(
            (ratio("1") / 3.0 - 1.0).abs() < within,
            "{cores}: {}",
            ratio("1")
        );
        assert!((ratio("0") - 1.0).abs() < 0.05, "{cores}: {}", ratio("0"));
    }
}

/// Threads are moved when others end: to an idle CPU at once, to a busy one if it has clearly less to do. (New threads
/// go to two CPUs in turn.)
#[test]
fn whoever_waits_is_moved_to_where_others_have_ended() {
    let setting = Setting { cpus: 2, ..LARGE };
    let idle = run(&setting, &some_end(4, &[0, 2], 200 * MS), 3_000);
    // Four on two CPUs for 400 ms, then one on each.
    for i in [1, 3] {
        assert!(idle.ran[i] > 2_700 * MS, "{i}: {:?}", idle.ran);
    }
    let busy = run(&setting, &some_end(8, &[0, 2, 4], 100 * MS), 6_000);
    // At first 4 and 4; then 1 and 4, of which 2 and 3 is as good as it gets.
    for i in [1, 3, 5, 6, 7] {
        assert!(busy.ran[i] > 1_700 * MS, "{i}: {:?}", busy.ran);
    }
}

fn thread() -> impl Strategy<Value = Thread> {
    let busy = (-10..=10i32).prop_map(hog);
    let light = (-10..=10i32, 1u64..20_000, 1u64..60_000).prop_map(|(nice, run, sleep)| Thread {
        nice,
        ..sleeper(run * 1_000, sleep * 1_000)
    });
    prop_oneof![busy, light]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Of equal hogs on a CPU everyone runs once per period, to a tick for each, once those that were new have waited.
    #[test]
    fn everybody_runs_in_a_period(n in 2u64..=16, hz in prop_oneof![Just(250u32), Just(1000)]) {
        let threads: Vec<_> = (0..n).map(|_| hog(0)).collect();
        let run = run(&Setting { hz, ..LARGE }, &threads, 3_000);
        let tick = 1_000_000_000 / u64::from(hz);
        for i in 0..n as usize {
            let gap = longest_gap(&run, i, 500 * MS);
            prop_assert!(gap <= period(n) + n * tick, "{i} of {n} at {hz} Hz: {gap}");
        }
    }

    /// Random threads on random machines: everybody runs, hogs by their weight at least, up to what balance leaves.
    #[test]
    fn nobody_starves(threads in proptest::collection::vec(thread(), 2..=10), cpus in 1u32..=3) {
        let run = run(&Setting { cpus, ..LARGE }, &threads, 10_000);
        let total: u64 = threads.iter().map(|t| weight(t.nice)).sum();
        for (i, t) in threads.iter().enumerate() {
            prop_assert!(run.ran[i] > 0, "{i} has not run: {threads:?}");
            if t.actions.len() == 1 {
                // On one CPU with all others.
                let least = 10_000 * MS * weight(t.nice) / total;
                prop_assert!(run.ran[i] + 4 * LATENCY >= least, "{i}: {} of {least}: {threads:?}", run.ran[i]);
            }
        }
    }

    /// No CPU idles while two threads share one, for longer than it takes to look for balance.
    #[test]
    fn work_is_conserved(nice in proptest::collection::vec(-10..=10i32, 4..=10), cpus in 2u32..=4) {
        let threads: Vec<_> = nice.iter().map(|n| hog(*n)).collect();
        let run = run(&Setting { cpus, ..LARGE }, &threads, 2_000);
        let all: u64 = run.ran.iter().sum();
        prop_assert!(all + u64::from(cpus) * 60 * MS >= u64::from(cpus) * 2_000 * MS, "{all}");
    }
}
