// SPDX-License-Identifier: GPL-2.0-only
//! `amp` where threads of a higher class take CPUs from vCPUs: an interrupt, as in Xen. Slots begin although whose they
//! are cannot run at that instant, and the turn of whoever was interrupted goes on: it is charged, and ticks meet it.
use super::support::{Cast, kind};
use super::{FAST, MS, ROUND, Stay, busy, machine_with, stays, vm};
use berth_sim::Simulation;
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::{Action, SchedClass};

/// A real-time thread of the host takes `cpu` for so long of each millisecond, the same time before and after its
/// beginning: that is when slots begin and ticks come.
fn brake(cast: &mut Cast, cpu: u32, busy_ns: u64) {
    let thread = cast.scripts.len();
    // Work is said in time of a slow core.
    let speed = if cpu == 0 { u64::from(FAST) } else { 1_000_000 };
    let takes = [
        Action::SetClass(SchedClass::Rt),
        Action::Compute {
            ns: busy_ns * speed / 1_000_000,
        },
        Action::SleepUntil { at: MS - busy_ns },
    ];
    cast.vcpu(0, 0, MS - busy_ns / 2, &takes);
    cast.scripts[thread].spec.vm = None;
    cast.scripts[thread].on = cpu;
    cast.masks.resize(thread + 1, Vec::new());
    cast.masks[thread] = vec![cpu];
}

/// A fast core and two slow ones, of which these are braked; so many threads in VMs of these weights, in equal parts.
fn host(weights: &[u32], each: u32, brakes: &[(u32, u64)]) -> Simulation<Cast> {
    let (_, mut cast) = busy(weights.len() as u32, each);
    for (cpu, busy_ns) in brakes {
        brake(&mut cast, *cpu, *busy_ns);
    }
    let weigh = |(i, weight): (u32, &u32)| VmSpec {
        weight: *weight,
        ..vm(i, each)
    };
    let vms: Vec<VmSpec> = (0..).zip(weights).map(weigh).collect();
    let kinds = vec![kind("fast", 0..1, FAST), kind("slow", 1..3, 1_000_000)];
    machine_with(kinds, &vms, cast, &[("mode", "fair")])
}

/// CPU time of these threads on these CPUs, as part of one CPU.
fn part(
    all: &[Stay],
    threads: std::ops::Range<usize>,
    cpus: std::ops::Range<u32>,
    span: u64,
) -> f64 {
    let of = |s: &&Stay| threads.contains(&s.thread) && cpus.contains(&s.cpu);
    let ns: u64 = all.iter().filter(of).map(|s| s.to - s.from).sum();
    ns as f64 / span as f64
}

const FROM: u64 = 20 * ROUND;
const SPAN: u64 = 100 * ROUND;
/// Turns of different lengths meet anew each round: shares are those of many rounds.
const LONG: u64 = 1000 * ROUND;

/// Three vCPUs that always run have a third of the fast core each, however much of the slow ones is taken.
#[test]
fn a_slot_begins_for_whom_another_class_has_put_aside() {
    for busy_ns in [100_000, 578_947] {
        let mut m = host(&[100; 3], 1, &[(1, busy_ns), (2, busy_ns)]);
        let all = stays(&mut m, FROM, FROM + SPAN);
        let parts = [0, 1, 2].map(|t| part(&all, t..t + 1, 0..1, SPAN));
        // Whoever's slot begins comes half of the time later that is taken, a slot being 10 ms long.
        let late = busy_ns as f64 / 2.0 / 10e6;
        assert!(
            parts.iter().all(|p| (p * 3.0 - 1.0).abs() < late + 0.005)
                && parts.iter().sum::<f64>() > 0.999,
            "{busy_ns} ns: {parts:?}"
        );
    }
}

/// The fast core, too, may be taken: what is left of it is shared equally.
#[test]
fn what_is_left_of_a_fast_core_is_shared_equally() {
    let taken = 200_000;
    let mut m = host(&[100; 3], 1, &[(0, taken)]);
    let all = stays(&mut m, FROM, FROM + SPAN);
    let parts = [0, 1, 2].map(|t| part(&all, t..t + 1, 0..1, SPAN));
    let third = (1.0 - taken as f64 / MS as f64) / 3.0;
    assert!(
        parts.iter().all(|p| (p / third - 1.0).abs() < 0.015),
        "{parts:?} of {third} each"
    );
}

/// (W): a fast core does not wait for whose slot it is while that one has been put aside for long. Of each 15 ms one
/// vCPU leaves the fast core alone for five; a slow one is taken for 30 ms of each 77.
#[test]
fn a_fast_core_does_not_wait_for_whom_is_put_aside() {
    let (_, mut cast) = busy(3, 1);
    cast.scripts[0].actions = vec![
        Action::Compute { ns: 15 * MS },
        Action::SleepUntil { at: 5 * MS },
    ];
    let takes = [
        Action::SetClass(SchedClass::Rt),
        Action::Compute { ns: 30 * MS },
        Action::SleepUntil { at: 47 * MS },
    ];
    cast.vcpu(0, 0, 0, &takes);
    cast.scripts[3].spec.vm = None;
    cast.scripts[3].on = 1;
    cast.masks = vec![Vec::new(), Vec::new(), Vec::new(), vec![1]];
    let kinds = vec![kind("fast", 0..1, FAST), kind("slow", 1..3, 1_000_000)];
    let vms: Vec<VmSpec> = (0..3).map(|i| vm(i, 1)).collect();
    let mut m = machine_with(kinds, &vms, cast, &[("mode", "fair")]);
    let all = stays(&mut m, FROM, FROM + SPAN);
    let used = part(&all, 0..3, 0..1, SPAN);
    println!("{used} of the fast core is used");
    assert!(used > 0.995, "{used} of the fast core is used");
}

/// Weights hold where cores are braked as they do where they are slow: by the time of turns. Of a round each vCPU has
/// 5 ms of the fast core; the slow ones' turns are 5 ms for those of the lighter VM and 15 ms for the other's.
#[test]
fn weights_hold_by_turns_whatever_is_taken_of_them() {
    let taken = 578_947;
    let mut m = host(&[100, 200], 3, &[(1, taken), (2, taken)]);
    let all = stays(&mut m, FROM, FROM + LONG);
    for (vm, slow_ms) in [(0, 5.0), (1, 15.0)] {
        let got = part(&all, 3 * vm..3 * vm + 3, 0..3, LONG);
        let due = 3.0 * (5.0 + slow_ms * (1.0 - taken as f64 / 1e6)) / 30.0;
        assert!(
            (got / due - 1.0).abs() < 0.01,
            "VM {vm}: {got} CPUs of {due}"
        );
    }
}
