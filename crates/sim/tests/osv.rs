// SPDX-License-Identifier: GPL-2.0-only
//! `osv` against what is known of OSv's scheduler: how long turns are, what a newcomer and a sleeper get, whom the
//! balancer moves. The figures were measured on an independent model of the same rules. Shares by weight, and long
//! uptimes: `job_queues.rs`.
use berth_policy::policy::Policy;
use berth_sim::trace::Kind;
use berth_sim::workload::api::Action;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

#[path = "support/shipped.rs"]
mod shipped;
#[path = "support/threads.rs"]
mod threads;
use threads::{MS, Run, Setting, Thread, hog, latencies, turns};

const HYSTERESIS_MS: f64 = 5.0;
const TAU_MS: f64 = 200.0;
/// What the running thread's lead of 5 ms is in decayed run time.
const LEAD: f64 = 0.0247;

fn run(cpus: u32, params: &[(&str, &str)], threads: &[Thread], ms: u64) -> Run {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    let setting = Setting {
        cpus,
        hz: 0,
        params,
    };
    let policy = LOADED.get_or_init(|| shipped::policy("osv"));
    threads::run(policy, &setting, threads, ms)
}

/// Turns on CPU 0 once all is as it stays, ms: thread, length.
fn settled(run: &Run) -> Vec<(usize, f64)> {
    let all = turns(run);
    let whose = |(who, ns): &(Option<usize>, u64)| who.map(|w| (w, *ns as f64 / MS as f64));
    all[all.len() / 2..].iter().filter_map(whose).collect()
}

#[test]
fn equal_hogs_have_turns_of_the_hysteresis_and_more() {
    for (hogs, least, most) in [(2, 10.0, 10.15), (5, 5.3, 8.2), (40, 5.0, 5.3)] {
        let run = run(1, &[], &vec![hog(0); hogs], 20_000);
        for ran in &run.ran {
            let share = *ran as f64 / (20_000 * MS) as f64 * hogs as f64;
            assert!((share - 1.0).abs() < 0.03, "{hogs}: {:?}", run.ran);
        }
        for (who, ms) in settled(&run) {
            assert!((least..most).contains(&ms), "{hogs}: {who} had {ms} ms");
            assert!(ms >= HYSTERESIS_MS, "{hogs}: {who} had {ms} ms");
        }
    }
}

/// Of weights 194 to 100, and 381 to 100: CPU time in that ratio, and turns by the formula.
#[test]
fn turns_of_unequal_hogs_are_by_formula() {
    for (nice, weight, off) in [(-3, 1.94, 0.03), (-6, 3.81, 0.05)] {
        let run = run(1, &[], &[hog(nice), hog(0)], 20_000);
        let ratio = run.ran[0] as f64 / run.ran[1] as f64;
        assert!((ratio / weight - 1.0).abs() < off, "{weight}: {ratio}");
        for (who, ms) in settled(&run) {
            let of_other = if who == 0 { weight } else { 1.0 / weight };
            let due = HYSTERESIS_MS + TAU_MS * (LEAD * of_other).ln_1p();
            assert!((ms / due - 1.0).abs() < 0.05, "{who}: {ms} for {due}");
        }
    }
}

/// A newcomer beside a hog that has long been alone: 1.01 (5 ms + 200 ms ln 2) at once, turns of some 10 ms then.
#[test]
fn a_newcomer_has_the_cpu_for_long_once() {
    let newcomer = Thread {
        actions: vec![
            Action::SleepUntil { at: 2_000 * MS },
            Action::ComputeForever,
        ],
        ..Thread::default()
    };
    let run = run(1, &[], &[hog(0), newcomer], 10_000);
    assert!(latencies(&run, 1, 1).iter().all(|ns| *ns == 0));
    let all = turns(&run);
    let mut own = all.iter().filter(|(who, ns)| *who == Some(1) && *ns > 0);
    let first = own.next().unwrap().1 as f64 / MS as f64;
    let due = 1.01 * (HYSTERESIS_MS + TAU_MS * 2_f64.ln());
    assert!((first - due).abs() < 1.0, "{first} for {due}");
    for (_, ns) in own.skip(20) {
        assert!((9 * MS..11 * MS).contains(ns), "{ns}");
    }
}

/// How long 0.2 ms after sleeps of 20 ms in the mean, exponential, wait beside hogs: the middle and one in a hundred,
/// ms.
fn delays_of_a_sleeper(hogs: usize) -> (f64, f64) {
    let sleeps = 400;
    let naps = (0..sleeps).map(|i| {
        // The quantiles, in an order that has no rhythm.
        let u = (f64::from(i * 149 % sleeps) + 0.5) / f64::from(sleeps);
        -(20.0 * u.ln() * MS as f64) as u64
    });
    let sleeper = Thread {
        actions: naps
            .flat_map(|at| [Action::Compute { ns: MS / 5 }, Action::SleepUntil { at }])
            .collect(),
        ..Thread::default()
    };
    let mut threads = vec![hog(0); hogs];
    threads.push(sleeper);
    let all = latencies(&run(1, &[], &threads, 60_000), hogs, 10_000 * MS);
    let part = |p: f64| all[(p * (all.len() - 1) as f64) as usize] as f64 / MS as f64;
    (part(0.5), part(0.99))
}

#[test]
fn a_sleeper_is_served_at_once_beside_ten_hogs() {
    assert_eq!(delays_of_a_sleeper(10), (0.0, 0.0));
}

/// Who wakes on the CPU makes the running hog look at its timer anew.
#[test]
fn a_sleeper_shortens_turns_beside_forty_hogs() {
    let (middle, most) = delays_of_a_sleeper(40);
    assert!((1.2..1.6).contains(&middle), "{middle} for 1.4");
    assert!((3.7..4.7).contains(&most), "{most} for 4.2");
}

/// Moves of threads from CPU to CPU, by when; and whose turns each CPU had after `from_ns`.
fn moves(run: &Run, from_ns: u64) -> (Vec<u64>, BTreeMap<u32, BTreeSet<Option<usize>>>) {
    let (mut at, mut moved, mut after) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    for (ns, kind, cpu, who) in &run.events {
        if *kind != Kind::Switch {
            continue;
        }
        if who.is_some() && at.insert(*who, *cpu).is_some_and(|old| old != *cpu) {
            moved.push(*ns);
        }
        if *ns >= from_ns {
            let of: &mut BTreeSet<_> = after.entry(*cpu).or_default();
            of.insert(*who);
        }
    }
    (moved, after)
}

/// Eight hogs on the first of four CPUs, where they were made. By the rule of its comment: two on each within 0.7 s,
/// and no move more than that takes. By the rule of its code: moves without end, though no CPU is ever idle again.
#[test]
fn the_balancer_spreads_hogs() {
    let hogs = vec![hog(0); 8];
    let sane = run(4, &[("balance_rule", "sane")], &hogs, 5_000);
    let (moved, after) = moves(&sane, 800 * MS);
    assert!(moved.len() >= 6, "{moved:?}");
    assert!(moved.iter().all(|ns| *ns <= 800 * MS), "{moved:?}");
    assert!(
        after.len() == 4 && after.values().all(|of| of.len() == 2),
        "{after:?}"
    );
    let exact = run(4, &[("balance_rule", "exact")], &hogs, 5_000);
    let (_, after) = moves(&exact, 800 * MS);
    assert!(after.values().all(|of| !of.contains(&None)), "{after:?}");
}
