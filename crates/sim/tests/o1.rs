// SPDX-License-Identifier: GPL-2.0-only
//! `o1` against the rules of Linux 2.6.21 (`docs/linux-schedulers.md`): slices, the bonus of sleep, expiry, starvation
//! limits, slices shared with children, preemption and balance, each by a closed form or by arithmetic of the test.
use berth_policy::policy::Policy;
use berth_sim::workload::api::Action;
use proptest::prelude::*;
use std::sync::OnceLock;

#[path = "support/shipped.rs"]
mod shipped;
#[path = "support/threads.rs"]
mod threads;
use threads::{
    MS, Run, Setting, Thread, hog, latencies, longest_gap, sleeper, some_end, spec, turns,
};

fn o1() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| shipped::policy("o1"))
}

const ONE: Setting<'static> = Setting {
    cpus: 1,
    hz: 1000,
    params: &[],
};

fn run(setting: &Setting, threads: &[Thread], ms: u64) -> Run {
    threads::run(o1(), setting, threads, ms)
}

/// Time slice of a nice value, ms, as the kernel's macros have it.
fn slice_ms(nice: i64) -> u64 {
    let base = if nice < 0 { 400 } else { 100 };
    u64::max(base * (20 - nice) as u64 / 20, 5)
}

/// Turns of two hogs after the first few, which begin between ticks: whole slices.
fn stints(setting: &Setting, nice: i32) -> Vec<u64> {
    let run = run(setting, &[hog(nice), hog(nice)], 8_000);
    turns(&run)[2..].iter().map(|t| t.1).collect()
}

#[test]
fn two_hogs_take_turns_of_whole_slices() {
    let table = [
        (-20, 800),
        (-10, 600),
        (-5, 500),
        (-1, 420),
        (0, 100),
        (5, 75),
        (10, 50),
        (15, 25),
        (19, 5),
    ];
    for (nice, ms) in table {
        assert_eq!(slice_ms(i64::from(nice)), ms);
        for hz in [1000, 0] {
            let all = stints(&Setting { hz, ..ONE }, nice);
            assert!(all.len() >= 7, "nice {nice}: {all:?}");
            assert!(
                all.iter().all(|t| *t == ms * MS),
                "nice {nice}, {hz} Hz: {all:?}"
            );
        }
    }
    // Slices are whole ticks: 25 x 15 / 20 of 4 ms, rounded down.
    assert!(
        stints(&Setting { hz: 250, ..ONE }, 5)
            .iter()
            .all(|t| *t == 72 * MS)
    );
}

/// Who wants to run all the time is off its CPU for the slices of all others, and no longer.
#[test]
fn a_rotation_is_the_sum_of_slices() {
    let nice = [0, 0, 5, 10, 19];
    let threads: Vec<_> = nice.iter().map(|n| hog(*n)).collect();
    let run = run(&ONE, &threads, 20_000);
    let all: u64 = nice.iter().map(|n| slice_ms(i64::from(*n))).sum();
    for (i, n) in nice.iter().enumerate() {
        let others = (all - slice_ms(i64::from(*n))) * MS;
        assert!(
            longest_gap(&run, i, 0) <= others + MS,
            "{i}: {}",
            longest_gap(&run, i, 0)
        );
    }
}

#[test]
fn slices_become_shares() {
    for (nice, ratio) in [
        ([0, 0], 1.0),
        ([0, 10], 2.0),
        ([-5, 0], 5.0),
        ([0, 19], 20.0),
    ] {
        let run = run(&ONE, &nice.map(hog), 30_000);
        let got = run.ran[0] as f64 / run.ran[1] as f64;
        // Where the run ends within a round counts for half a slice of 30 s.
        assert!((got / ratio - 1.0).abs() < 0.02, "{nice:?}: {got}");
    }
    let run = run(&ONE, &[hog(0), hog(10)], 30_000);
    assert!((run.ran[0] as f64 / run.ran[1] as f64 / 2.0 - 1.0).abs() < 0.01);
}

/// A light sleeper among hogs has earned its bonus after 4 s and then always takes the CPU at once.
#[test]
fn a_light_sleeper_comes_to_preempt_at_once() {
    for hogs in 1..=8 {
        let mut threads = vec![sleeper(200_000, 20 * MS)];
        threads.extend((0..hogs).map(|_| hog(0)));
        let run = run(&ONE, &threads, 20_000);
        let late = latencies(&run, 0, 4_000 * MS);
        assert!(
            late.len() > 700 && late.last() == Some(&0),
            "{hogs} hogs: {:?}",
            late.last()
        );
        let early = latencies(&run, 0, 0);
        assert!(*early.last().unwrap() <= hogs * 100 * MS, "{early:?}");
    }
}

/// Without the bonus it is one of the hogs' priority, and waits for their slices.
#[test]
fn without_interactivity_sleep_earns_nothing() {
    let setting = Setting {
        params: &[("interactivity", "0")],
        ..ONE
    };
    let run = run(&setting, &[sleeper(200_000, 20 * MS), hog(0)], 10_000);
    let times = latencies(&run, 0, 0);
    assert!(
        times[times.len() / 2] > 50 * MS,
        "{}",
        times[times.len() / 2]
    );
}

/// The best of nice 19 is 134, the worst of nice 0 is 125.
#[test]
fn nice_19_preempts_no_hog_of_nice_0() {
    let mut light = sleeper(200_000, 20 * MS);
    light.nice = 19;
    let run = run(&ONE, &[light, hog(0)], 20_000);
    let times = latencies(&run, 0, 5_000 * MS);
    assert!(times[times.len() / 2] > 20 * MS, "{times:?}");
    assert!(*times.last().unwrap() <= 100 * MS);
}

/// How long a thread of nice 0 that has slept for seconds is interactive while it burns the CPU, ms: whole slices, at
/// whose ends the bonus must be 7 as of the last time it was charged (at a rotation, or a slice's end).
fn monopoly_ms(sleep_avg_ms: f64) -> u64 {
    let (mut avg, mut total) = (sleep_avg_ms, 0);
    loop {
        let mut charged = 0;
        for used in 1..100 {
            let bonus = (avg / 100.0).floor().min(10.0);
            let granularity = 10u64 << ((10.0 - bonus).max(1.0) as u64 - 1);
            if used % granularity == 0 && 100 - used >= granularity {
                avg -= (used - charged) as f64 / bonus.max(1.0);
                charged = used;
            }
        }
        total += 100;
        if avg < 700.0 {
            return total;
        }
        avg -= (100 - charged) as f64 / (avg / 100.0).floor().clamp(1.0, 10.0);
    }
}

/// One long sleep is worth 799 ms of sleep_avg (nice 0): a bonus of 7, just interactive. It keeps the CPU from a hog
/// for as many slices as the bonus lasts.
#[test]
fn a_long_sleep_is_worth_its_ceiling() {
    assert_eq!(monopoly_ms(799.0), 800);
    let sleeps = Thread {
        actions: vec![
            Action::SleepUntil { at: 5_000 * MS },
            Action::Compute { ns: 5_000 * MS },
        ],
        ..Thread::default()
    };
    let run = run(&ONE, &[sleeps, hog(0)], 8_000);
    let first = turns(&run)
        .iter()
        .find(|t| t.0 == Some(0) && t.1 > MS)
        .unwrap()
        .1;
    // It wakes at a tick, or just after one.
    assert!(first.abs_diff(monopoly_ms(799.0) * MS) <= MS, "{first}");
    // And at once.
    assert_eq!(latencies(&run, 0, 1_000 * MS), [0]);
}

/// Interactive threads of a priority take turns within their slices: with a bonus of 7 after 40 ms, and not again
/// where less than that is left.
#[test]
fn interactive_equals_take_turns_within_their_slices() {
    let sleeps = Thread {
        actions: vec![
            Action::SleepUntil { at: 5_000 * MS },
            Action::Compute { ns: 5_000 * MS },
        ],
        ..Thread::default()
    };
    let run = run(&ONE, &[sleeps.clone(), sleeps], 6_000);
    let all = turns(&run);
    let long: Vec<u64> = all
        .iter()
        .filter(|t| t.0.is_some() && t.1 > MS)
        .map(|t| (t.1 + MS / 2) / MS)
        .collect();
    assert!(long[0] == 40 || long[0] == 39, "{long:?}");
    assert_eq!(long[1..6], [40, 60, 60, 40, 40]);
}

/// Many threads that sleep most of the time want more than the CPU. Who does not sleep waits among the expired for the
/// starvation limit, times the number of runnable threads, and a round of slices; and then, active again but behind
/// the interactive ones, for as long once more.
#[test]
fn who_has_expired_waits_for_the_starvation_limit_at_most() {
    let threads = |limit_ms: &'static str| {
        let mut all: Vec<_> = (0..12).map(|_| sleeper(8 * MS, 32 * MS)).collect();
        all.push(hog(0));
        let params: &[(&str, &str)] = Box::leak(Box::new([("starvation_ms", limit_ms)]));
        run(&Setting { params, ..ONE }, &all, 60_000)
    };
    let waits = |limit: &'static str| longest_gap(&threads(limit), 12, 0) / MS;
    let by_default = waits("1000");
    assert!(by_default > 1_000, "{by_default} ms");
    assert!(by_default <= 2 * 13 * (1_000 + 100), "{by_default} ms");
    let soon = waits("100");
    assert!(
        soon <= 2 * 13 * (100 + 100) && soon < by_default / 2,
        "{soon} ms"
    );
}

/// A child takes half of what its parent has left of its slice: between them they gain nothing.
#[test]
fn parent_and_child_share_a_slice() {
    let child = Thread {
        starts: false,
        vm: Some(0),
        ..Thread::default()
    };
    let parent = Thread {
        vm: Some(0),
        actions: vec![
            Action::Compute {
                ns: 10 * MS + MS / 2,
            },
            Action::Fork(Box::new(spec(1, &child))),
            Action::ComputeForever,
        ],
        ..Thread::default()
    };
    let run = run(&ONE, &[parent, child, hog(0)], 1_000);
    let all = turns(&run);
    let first = all.iter().position(|t| t.0 == Some(0)).unwrap();
    // 100 - 10 ticks, halved.
    let want = [(Some(0), 55), (Some(2), 100), (Some(1), 45), (Some(0), 100)];
    for (got, want) in all[first..].iter().zip(want) {
        assert_eq!((got.0, (got.1 + MS / 2) / MS), want, "{all:?}");
    }
}

/// What a child that exits has left of its first slice goes back: the parent, which slept meanwhile, has the 90 ticks
/// from before it forked, not 45.
#[test]
fn a_child_that_exits_gives_its_slice_back() {
    let child = Thread {
        starts: false,
        vm: Some(0),
        actions: vec![Action::Compute { ns: 100_000 }, Action::Exit],
        ..Thread::default()
    };
    let parent = Thread {
        vm: Some(0),
        actions: vec![
            Action::Compute {
                ns: 10 * MS + MS / 2,
            },
            Action::Fork(Box::new(spec(1, &child))),
            Action::SleepUntil { at: 20 * MS },
            Action::Compute { ns: 1_000 * MS },
        ],
        ..Thread::default()
    };
    let run = run(&ONE, &[parent, child, hog(0)], 1_000);
    let all = turns(&run);
    let ran: Vec<u64> = all.iter().filter(|t| t.0 == Some(0)).map(|t| t.1).collect();
    assert_eq!((ran[0] / MS, (ran[1] + MS / 2) / MS), (10, 90), "{all:?}");
}

/// An interactive thread expires with its slice if a better nice value waits among the expired, else it goes on.
#[test]
fn a_better_nice_value_that_has_expired_is_not_made_to_wait() {
    // It wakes while the second of two hogs has its turn: the first has expired.
    for (hogs, wakes_ms, longest_ms) in [(0, 5_150, 75), (5, 5_200, 10_000)] {
        let sleeps = Thread {
            nice: 5,
            actions: vec![
                Action::SleepUntil { at: wakes_ms * MS },
                Action::Compute { ns: 2_000 * MS },
            ],
            ..Thread::default()
        };
        let run = run(&ONE, &[sleeps, hog(hogs), hog(hogs)], 7_000);
        let turn = turns(&run)
            .iter()
            .find(|t| t.0 == Some(0) && t.1 > MS)
            .unwrap()
            .1
            / MS;
        assert!(
            turn >= 74 && turn <= longest_ms,
            "hogs of nice {hogs}: {turn} ms"
        );
        assert!(hogs == 0 || turn >= 150, "hogs of nice {hogs}: {turn} ms");
    }
}

/// Yielding is going to the end of the expired array: everybody else has a turn first.
#[test]
fn who_yields_waits_for_all_others() {
    let polite = Thread {
        actions: vec![Action::Compute { ns: MS }, Action::Yield],
        ..Thread::default()
    };
    let run = run(&ONE, &[polite, hog(0), hog(0)], 10_000);
    let all = turns(&run);
    let polite = all.iter().filter(|t| t.0 == Some(0)).map(|t| t.1);
    assert!(polite.clone().skip(1).all(|t| t == MS), "{all:?}");
    assert!((45..=52).contains(&polite.count()));
}

/// Seven hogs on four CPUs: nobody's share is below that of two on a CPU, and every CPU is busy.
#[test]
fn hogs_are_spread() {
    for hz in [1000, 250, 0] {
        let threads: Vec<_> = (0..7).map(|_| hog(0)).collect();
        let run = run(&Setting { cpus: 4, hz, ..ONE }, &threads, 20_000);
        let all: u64 = run.ran.iter().sum();
        assert!(all > 4 * 19_990 * MS, "{hz} Hz: {all}");
        assert!(
            run.ran.iter().all(|r| *r > 9_000 * MS),
            "{hz} Hz: {:?}",
            run.ran
        );
    }
}

/// Threads are moved when others end: to an idle CPU at once, to a busy one if it has clearly less to do. (New threads
/// go to two CPUs in turn.)
#[test]
fn whoever_waits_is_moved_to_where_others_have_ended() {
    let setting = Setting { cpus: 2, ..ONE };
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
    let busy = (-20..=19i32).prop_map(hog);
    let light = (-20..=19i32, 1u64..20_000, 1u64..60_000).prop_map(|(nice, run, sleep)| Thread {
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

    /// No runnable thread starves: the longest stay off the CPU is twice the starvation limit times the runnable
    /// threads, and a round of everybody's slice.
    #[test]
    fn nobody_starves(threads in proptest::collection::vec(thread(), 2..=10), cpus in 1u32..=3) {
        let run = run(&Setting { cpus, ..ONE }, &threads, 30_000);
        let round: u64 = threads.iter().map(|t| slice_ms(i64::from(t.nice))).sum();
        let bound = 2 * (threads.len() as u64 * 1_000 + round) * MS;
        for (i, t) in threads.iter().enumerate() {
            if t.actions.len() == 1 {
                prop_assert!(longest_gap(&run, i, 0) <= bound, "{i}: {} of {bound}", longest_gap(&run, i, 0));
            }
            prop_assert!(run.ran[i] > 0, "{i} has not run: {threads:?}");
        }
    }

    /// With at least as many hogs as CPUs no CPU idles for longer than it takes to look for balance.
    #[test]
    fn work_is_conserved(nice in proptest::collection::vec(-20..=19i32, 4..=10), cpus in 2u32..=4) {
        let threads: Vec<_> = nice.iter().map(|n| hog(*n)).collect();
        let run = run(&Setting { cpus, ..ONE }, &threads, 2_000);
        let all: u64 = run.ran.iter().sum();
        prop_assert!(all + u64::from(cpus) * 60 * MS >= u64::from(cpus) * 2_000 * MS, "{all}");
    }
}
