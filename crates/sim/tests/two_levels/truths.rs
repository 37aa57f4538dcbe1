// SPDX-License-Identifier: GPL-2.0-only
//! Truths of two levels over random cases, each with a solver of its own that shares nothing with the simulator.
use crate::play::{Act, Part, Room, Stage, had};
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::model::PleYield;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::path::Path;

const US: u64 = 1_000;

/// The same cases every time; little time to make a failing one smaller.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        max_shrink_iters: 10,
        ..ProptestConfig::default()
    }
}

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
    way: PleYield,
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
    stage.ple_yield = way;
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
    let mut runner = TestRunner::new(cases(24));
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
            let ours = simulated(
                &[holder, waiter],
                others as usize,
                q,
                window,
                until,
                PleYield::Xen,
            );
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
        let until = 200_000_000;
        let off = simulated(&plays, others, q, None, until, PleYield::Xen);
        let window = 30_000;
        let on = simulated(&plays, others, q, Some(window), until, PleYield::Xen);
        // KVM goes on where the host's policy knows no yield to a sibling.
        let kvm = simulated(&plays, others, q, Some(window), until, PleYield::Kvm);
        assert_eq!(kvm, off, "k = {k}");
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
    let mut runner = TestRunner::new(cases(40));
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

/// Weights that sched_ext shows for nice levels -2 to 2.
const WEIGHTS: [f64; 5] = [155.0, 125.0, 100.0, 80.0, 64.0];

/// Divides `capacity` among claims of (weight, limit): by raising the level until all is given away or nobody
/// wants more.
fn water(capacity: f64, claims: &[(f64, f64)]) -> Vec<f64> {
    let given = |level: f64| claims.iter().map(|(w, l)| (w * level).min(*l)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if given(middle) < capacity {
            low = middle;
        } else {
            high = middle;
        }
    }
    claims.iter().map(|(w, l)| (w * high).min(*l)).collect()
}

/// Long-run shares: VMs share the CPUs by weight, each as far as its tasks want, and tasks share what their VM got
/// in the same way. On both levels the smallest fair policy, with slices that end exactly.
#[test]
fn nested_shares_are_weighted_max_min() {
    let task = (0usize..5, proptest::option::weighted(0.3, 1u64..16));
    // Three tasks without end in each, so that no task's share is near 1/2 (see policies/vtime.bpf.c).
    let vm = (0usize..5, proptest::collection::vec(task, 1..5));
    let small = (0usize..5, 1u64..60);
    let case = (
        1u32..4,
        proptest::collection::vec(vm, 2..4),
        proptest::collection::vec(small, 0..3),
    );
    let mut runner = TestRunner::new(cases(12));
    runner
        .run(&case, |(cpus, vms, small)| {
            // As many VMs per CPU, so that no VM is near 1/2 either.
            let large: Vec<_> = vms
                .iter()
                .cycle()
                .take(vms.len().max(3) * cpus as usize + 1)
                .collect();
            let mut parts = Vec::new();
            let mut rooms = Vec::new();
            // By VM: its weight, and its tasks' weights and limits.
            let mut claims: Vec<(f64, Vec<(f64, f64)>)> = Vec::new();
            let mut add = |nice: usize, tasks: &[(usize, Option<u64>)]| {
                let vm = rooms.len() as u32;
                let mut room = Room::new(1);
                room.nice = nice as i32 - 2;
                rooms.push(room);
                let mut list = Vec::new();
                for (nice, demand) in tasks {
                    let (acts, limit) = match demand {
                        None => (vec![Act::Busy], 1.0),
                        Some(d) => {
                            let acts = vec![Act::Compute(d * 10_000), Act::Until(20_000_000)];
                            (acts, *d as f64 / 2000.0)
                        }
                    };
                    list.push((WEIGHTS[*nice], limit));
                    parts.push(Part::new(Some(vm), &acts).nice(*nice as i32 - 2));
                }
                claims.push((WEIGHTS[nice], list));
            };
            for (nice, tasks) in &large {
                let endless = [(1, None), (2, None), (3, None)];
                add(*nice, &[&endless, &tasks[..]].concat());
            }
            for (nice, demand) in &small {
                add(*nice, &[(*nice, Some(*demand))]);
            }
            let mut stage = Stage::new(cpus, rooms);
            stage.host_params = vec![("slice_us", "200".into())];
            stage.guest_params = stage.host_params.clone();
            let mut m = stage.open(parts);
            let end = 20_000_000_000;
            m.run_until(end).unwrap();
            m.check().unwrap();
            let outer: Vec<(f64, f64)> = claims
                .iter()
                .map(|(w, tasks)| (*w, tasks.iter().map(|t| t.1).sum::<f64>().min(1.0)))
                .collect();
            let mut part = 0;
            for (share, (_, tasks)) in water(f64::from(cpus), &outer).iter().zip(&claims) {
                for want in water(*share, tasks) {
                    let got = had(&m, part) as f64 / end as f64;
                    prop_assert!(
                        (got / want - 1.0).abs() < 1e-3,
                        "part {}: {} for {}",
                        part,
                        got,
                        want
                    );
                    part += 1;
                }
            }
            Ok(())
        })
        .unwrap();
}

/// A vCPU with quota Q in every period P is without a CPU for at most 2 (P - Q), and that long if it is served as
/// early as possible once and as late as possible then: a host thread that nobody limits takes the rest of every
/// second period. (Periodic resource model, Shin and Lee 2003.)
#[test]
fn the_longest_blackout_of_a_capped_vcpu() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/quota.bpf.c");
    let policy = Policy::from_path(&path, &LoadOptions::default()).unwrap();
    let case = (1u64..20, 1u64..100, any::<bool>());
    let mut runner = TestRunner::new(cases(32));
    runner
        .run(&case, |(p, percent, disturbed)| {
            let period = p * 1_000_000;
            let quota = (period * percent / 100) / 1000 * 1000;
            let step = 1000;
            let mut stage = Stage::new(1, vec![Room::new(1)]);
            stage.guest = "gfifo";
            stage.host_params = vec![
                ("period_ns", period.to_string()),
                ("quota_ns", quota.to_string()),
            ];
            let mut parts = vec![Part::new(Some(0), &[Act::Mark, Act::Compute(step)])];
            if disturbed {
                let rest = [Act::Until(2 * period), Act::Compute(period - quota)];
                parts.push(Part::new(None, &rest).nice(-10));
            }
            let mut m = stage.open_under(&policy, parts);
            m.run_until(12 * period).unwrap();
            m.check().unwrap();
            let marks = m.workload.marks(0);
            // A mark follows a step of work: what is more is blackout.
            let longest = marks.windows(2).map(|w| w[1] - w[0]).max().unwrap() - step;
            let times = if disturbed { 2 } else { 1 };
            prop_assert_eq!(longest, times * (period - quota));
            let (run, ..) = m.world().times(0);
            prop_assert_eq!(run, 12 * quota);
            Ok(())
        })
        .unwrap();
}
