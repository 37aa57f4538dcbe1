// SPDX-License-Identifier: GPL-2.0-only
//! Truths of two levels over random cases, each with a solver of its own that shares nothing with the simulator.
use crate::play::{Act, Part, Room, Stage};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const US: u64 = 1_000;

/// One thing a spinner or holder does, as the solver knows it.
#[derive(Clone, Copy, Debug)]
enum Do {
    Compute(u64),
    Lock,
    Unlock,
    Mark,
}

/// A vCPU of the solver: its one task.
#[derive(Clone, Debug, Default)]
struct Turn {
    acts: Vec<Do>,
    at: usize,
    left: u64,
    spins: bool,
    marks: Vec<u64>,
}

/// Round robin over vCPUs on one CPU: each runs for `q`; a spinning one for at most `window` at a time, if there
/// is one. The lock is passed to who has spun longest. vCPUs without acts only burn.
fn round_robin(mut turns: Vec<Turn>, q: u64, window: Option<u64>, until: u64) -> Vec<Vec<u64>> {
    let (mut now, mut who) = (0, 0);
    let mut queue: std::collections::VecDeque<usize> = (0..turns.len()).collect();
    let mut waiting: Vec<usize> = Vec::new();
    let mut held = false;
    while now < until {
        if let Some(next) = queue.pop_front() {
            who = next;
        }
        let end = now + q;
        loop {
            if turns[who].acts.is_empty() {
                now = end;
                break;
            }
            if turns[who].spins {
                // Nobody else runs, so it spins until it has to go.
                now = window.map_or(end, |w| (now + w).min(end));
                break;
            }
            let run = turns[who].left.min(end - now);
            now += run;
            turns[who].left -= run;
            if turns[who].left > 0 {
                break;
            }
            let t = &mut turns[who];
            let act = t.acts[t.at];
            t.at = (t.at + 1) % t.acts.len();
            match act {
                Do::Compute(ns) => t.left = ns,
                Do::Mark => t.marks.push(now),
                Do::Lock if held => {
                    t.spins = true;
                    waiting.push(who);
                }
                Do::Lock => held = true,
                Do::Unlock if waiting.is_empty() => held = false,
                Do::Unlock => turns[waiting.remove(0)].spins = false,
            }
        }
        queue.push_back(who);
    }
    turns.into_iter().map(|t| t.marks).collect()
}

/// Marks of holder and waiter in the simulator: vCPUs 0 and 1 of a VM, and `others` VMs that burn, on one CPU.
fn simulated(
    plays: &[Vec<Do>],
    others: usize,
    q: u64,
    window: Option<u64>,
    until: u64,
) -> Vec<Vec<u64>> {
    let acts = |list: &[Do]| -> Vec<Act> {
        let act = |d: &Do| match d {
            Do::Compute(ns) => Act::Compute(*ns),
            Do::Lock => Act::Lock(0),
            Do::Unlock => Act::Unlock(0),
            Do::Mark => Act::Mark,
        };
        list.iter().map(act).collect()
    };
    let mut rooms = vec![Room::new(plays.len() as u32)];
    rooms.extend(vec![Room::new(1); others]);
    let mut stage = Stage::new(1, rooms);
    (stage.host, stage.guest) = ("gfifo", "gfifo");
    stage.host_params = vec![("slice_us", (q / US).to_string())];
    stage.ple_window_ns = window.unwrap_or(0);
    let mut parts: Vec<Part> = plays
        .iter()
        .enumerate()
        .map(|(i, list)| Part::new(Some(0), &acts(list)).on(&[i as u32]))
        .collect();
    parts.extend((0..others).map(|i| Part::new(Some(i as u32 + 1), &[Act::Busy])));
    let mut m = stage.open(parts);
    m.run_until(until).unwrap();
    m.check().unwrap();
    (0..plays.len())
        .map(|i| m.workload.marks(i).to_vec())
        .collect()
}

/// The waiter of a preempted lock holder burns its own slice: the holder is back after the slices of all others,
/// (k-1)q; with pause-loop exiting the waiter gives its slice back after one window.
#[test]
fn a_preempted_lock_holder_delays_its_waiters() {
    let case = (1u64..5, 1u64..8, 1u64..9, 1u64..9, 1u64..9, any::<bool>());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    runner
        .run(&case, |(others, q, a, b, c, ple)| {
            // No two instants coincide: odd lengths, a round slice.
            let (q, a, b, c) = (q * 500 * US, a * 270_011, b * 330_017, c * 190_027);
            let window = ple.then_some(50_021);
            let holder = vec![
                Do::Lock,
                Do::Compute(a),
                Do::Mark,
                Do::Unlock,
                Do::Compute(b),
            ];
            let waiter = vec![
                Do::Compute(c),
                Do::Lock,
                Do::Mark,
                Do::Compute(a),
                Do::Unlock,
            ];
            let turn = |acts: &Vec<Do>| Turn {
                acts: acts.clone(),
                ..Turn::default()
            };
            let mut turns = vec![turn(&holder), turn(&waiter)];
            turns.extend(vec![Turn::default(); others as usize]);
            let until = 400_000_000;
            let truth = round_robin(turns, q, window, until);
            let ours = simulated(&[holder, waiter], others as usize, q, window, until);
            for (truth, ours) in truth.iter().zip(&ours) {
                let n = truth.len().min(ours.len());
                prop_assert!(n > 5);
                prop_assert_eq!(&truth[..n], &ours[..n]);
            }
            Ok(())
        })
        .unwrap();
}

/// The closed form itself: a holder preempted inside its critical section is back after (k-1)q; with PLE after
/// (k-2)q and the window.
#[test]
fn the_delay_is_k_minus_one_slices_and_ple_moves_it_by_what_was_yielded() {
    let q = 2_000 * US;
    for k in 2..6u64 {
        // Longer than a slice: every critical section is cut once.
        let holder = vec![
            Do::Mark,
            Do::Lock,
            Do::Compute(q + q / 2),
            Do::Mark,
            Do::Unlock,
        ];
        let waiter = vec![Do::Lock, Do::Unlock];
        let others = k as usize - 2;
        let plays = [holder, waiter];
        let off = simulated(&plays, others, q, None, 200_000_000);
        let window = 30_000;
        let on = simulated(&plays, others, q, Some(window), 200_000_000);
        let took = |marks: &[u64]| marks[1] - marks[0];
        assert_eq!(took(&off[0]), q + q / 2 + (k - 1) * q, "k = {k}");
        assert_eq!(took(&on[0]), q + q / 2 + (k - 2) * q + window, "k = {k}");
    }
}

/// n tasks meet at a barrier after w of work each, on c CPUs: a round takes ceil(n / c) w. The CPUs are those of
/// a guest that has enough physical ones, or physical ones under a guest with a vCPU per task.
#[test]
fn a_barrier_on_fewer_cpus_takes_rounds() {
    let case = (1u32..9, 1u32..9, 1u64..2_000_000, any::<bool>());
    let mut runner = TestRunner::new(ProptestConfig::with_cases(40));
    runner
        .run(&case, |(n, c, w, in_guest)| {
            let (physical, virtual_) = if in_guest { (c, c) } else { (c, n) };
            let mut stage = Stage::new(physical, vec![Room::new(virtual_)]);
            (stage.host, stage.guest) = ("gfifo", "gfifo");
            let part = Part::new(Some(0), &[Act::Compute(w), Act::Barrier(n)]);
            let mut m = stage.open(vec![part; n as usize]);
            m.run_until(40 * w).unwrap();
            m.check().unwrap();
            let opened = &m.workload.opened;
            let round = u64::from(n.div_ceil(c)) * w;
            for (i, at) in opened.iter().enumerate() {
                prop_assert_eq!(*at, (i as u64 + 1) * round);
            }
            prop_assert!(opened.len() as u64 >= 40 * w / round - 1);
            Ok(())
        })
        .unwrap();
}
