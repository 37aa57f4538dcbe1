// SPDX-License-Identifier: GPL-2.0-only
//! `rr` against what round robin is: turns of a slice in the order of arrival, whatever the weights.
use berth_policy::policy::Policy;
use proptest::prelude::*;
use std::sync::OnceLock;

#[path = "support/shipped.rs"]
mod shipped;
#[path = "support/threads.rs"]
mod threads;
use threads::{MS, Run, Setting, Thread, hog, latencies, longest_gap, sleeper, some_end, turns};

fn rr() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| shipped::policy("rr"))
}

const EXACT: Setting<'static> = Setting {
    cpus: 1,
    hz: 0,
    params: &[("slice_us", "7000")],
};

fn run(setting: &Setting, threads: &[Thread], ms: u64) -> Run {
    threads::run(rr(), setting, threads, ms)
}

/// Everybody in turn, a slice each, nice or not; at ticks, the slice rounded up.
#[test]
fn hogs_take_turns_of_a_slice() {
    for (hz, ms) in [(0, 7), (1000, 7), (250, 8)] {
        let run = run(&Setting { hz, ..EXACT }, &[-20, 0, 19].map(hog), 2_000);
        // The first turn begins between ticks.
        let all = &turns(&run)[3..];
        assert!(all.len() > 200, "{hz} Hz: {}", all.len());
        for (i, t) in all.iter().enumerate() {
            assert_eq!(t.1, ms * MS, "{hz} Hz, turn {i}");
            assert_eq!(t.0, all[i % 3].0, "{hz} Hz, turn {i}");
        }
    }
}

/// Who wakes takes nobody's CPU: it waits for the rest of one slice and the whole ones of the others.
#[test]
fn who_wakes_waits_for_everybody() {
    for hogs in 1..=5 {
        let mut threads = vec![sleeper(200_000, 23 * MS)];
        threads.extend((0..hogs).map(|_| hog(0)));
        let times = latencies(&run(&EXACT, &threads, 10_000), 0, MS);
        let longest = *times.last().unwrap();
        assert!(longest <= hogs * 7 * MS, "{hogs} hogs: {longest}");
        assert!(longest > (hogs - 1) * 7 * MS, "{hogs} hogs: {longest}");
    }
}

/// Threads are moved when others end: to an idle CPU at once, to a busy one if it has clearly less to do. (New threads
/// go to two CPUs in turn.)
#[test]
fn whoever_waits_is_moved_to_where_others_have_ended() {
    let setting = Setting { cpus: 2, ..EXACT };
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

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// On several CPUs nobody waits for longer than all others have their slices, every CPU is busy once balance has
    /// been found, and nobody has less than on the fullest CPU.
    #[test]
    fn nobody_starves_and_work_is_conserved(hogs in 2usize..=12, cpus in 1u32..=4) {
        let threads: Vec<_> = (0..hogs).map(|_| hog(0)).collect();
        let run = run(&Setting { cpus, ..EXACT }, &threads, 4_000);
        let busy = u64::from(cpus).min(hogs as u64);
        let all: u64 = run.ran.iter().sum();
        prop_assert!(all + busy * 20 * MS >= busy * 4_000 * MS, "{all}");
        for i in 0..hogs {
            prop_assert!(longest_gap(&run, i, 0) <= hogs as u64 * 7 * MS, "{}", longest_gap(&run, i, 0));
            let fullest = (hogs as u64).div_ceil(u64::from(cpus));
            prop_assert!(run.ran[i] >= 3_900 * MS / (fullest + 1), "{:?}", run.ran);
        }
    }
}
