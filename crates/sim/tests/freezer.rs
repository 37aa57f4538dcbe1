// SPDX-License-Identifier: GPL-2.0-only
//! VMs that are frozen: to the nanosecond, by arithmetic. Threads stop and go on where they were, what falls due
//! meanwhile is there afterwards, and the time is on account.
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::machine::cgroup::CgroupError;
use berth_sim::machine::task::Life;
use berth_sim::run::{Options, load_policy, settle};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use support::Cast;

#[allow(
    dead_code,
    reason = "what looks into policies' maps is for other tests"
)]
mod support;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const POLICIES: [&str; 8] = [
    "gfifo", "vtime", "eevdf", "vmfair", "credit", "cfs", "o1", "rr",
];

/// One CPU; VMs of one thread each that does this, over and over.
fn machine(policy: &str, threads: &[&[Action]]) -> Simulation<Cast> {
    let vm = |i: usize| VmSpec {
        name: format!("vm{i}"),
        group: i as u32,
        class: Class::Batch,
        weight: 100,
        cap_milli: None,
        vcpus: 1,
    };
    let vms: Vec<VmSpec> = (0..threads.len()).map(vm).collect();
    let mut cast = Cast::default();
    for (vm, actions) in (0..).zip(threads) {
        cast.vcpu(vm, 0, 0, actions);
    }
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &vms, cast);
    let options = Options::default();
    let loaded = support::policy(policy);
    load_policy(&mut m, &loaded, &BTreeMap::new(), &vms, &options).unwrap();
    m.start();
    m
}

fn freeze(m: &mut Simulation<Cast>, at: u64, vm: u32, frozen: bool) {
    m.run_until(at).unwrap();
    m.with(0, |_, ctx| ctx.freeze_vm(vm, frozen)).unwrap();
}

/// Of the only thread of a VM: time on CPUs, in run queues, and stopped by the freezer, ns.
fn times(m: &Simulation<Cast>, vm: usize) -> (u64, u64, u64) {
    settle(m.kernel());
    let c = &m.kernel().stats.vms[vm];
    (c.ran_ns, c.waited_ns, c.frozen_ns)
}

/// Two that compute, by turns of 30 and 70 ms: each has its turns, and nobody ever waits for the other one.
#[test]
fn turns_are_exact_and_nobody_waits() {
    for policy in POLICIES {
        let hog = [Action::ComputeForever];
        let mut m = machine(policy, &[&hog, &hog]);
        let turns = |m: &mut Simulation<Cast>, seconds: std::ops::Range<u64>| {
            for period in 10 * seconds.start..10 * seconds.end {
                for (from, vm) in [(0, 0), (30 * MS, 1)] {
                    freeze(m, period * 100 * MS + from, 1 - vm, true);
                    m.with(0, |_, ctx| ctx.freeze_vm(vm, false)).unwrap();
                }
            }
            m.run_until(seconds.end * 1_000 * MS).unwrap();
        };
        // In the first period one waits behind the other, frozen as it is: until it would run.
        turns(&mut m, 0..1);
        let before = [times(&m, 0), times(&m, 1)];
        turns(&mut m, 1..11);
        for (vm, runs) in [(0, 3_000 * MS), (1, 7_000 * MS)] {
            let (ran, waited, frozen) = times(&m, vm);
            let (ran_before, waited_before, frozen_before) = before[vm];
            let since = (
                ran - ran_before,
                waited - waited_before,
                frozen - frozen_before,
            );
            assert_eq!(since, (runs, 0, 10_000 * MS - runs), "{policy}, {vm}");
        }
        m.check().unwrap();
    }
}

/// 1 ms of work, then 10 ms of sleep. A timer that falls due while the VM is frozen wakes the thread when it is thawed;
/// work that was cut goes on with what is left of it.
#[test]
fn timers_and_work_outlast_it() {
    for policy in POLICIES {
        let acts = [
            Action::Compute { ns: MS },
            Action::SleepUntil { at: 10 * MS },
        ];
        let mut m = machine(policy, &[&acts]);
        // Due at 11 ms.
        freeze(&mut m, 5 * MS, 0, true);
        m.run_until(20 * MS).unwrap();
        assert_eq!(times(&m, 0), (MS, 0, 9 * MS), "{policy}");
        freeze(&mut m, 40 * MS, 0, false);
        // Half of its work is done.
        freeze(&mut m, 40 * MS + 500 * US, 0, true);
        freeze(&mut m, 60 * MS, 0, false);
        m.run_until(61 * MS).unwrap();
        let stopped = 29 * MS + 19_500 * US;
        assert_eq!(times(&m, 0), (2 * MS, 0, stopped), "{policy}");
        // It sleeps since 60.5 ms: frozen and thawed before it is due, it wakes in time, and nothing was lost.
        freeze(&mut m, 62 * MS, 0, true);
        freeze(&mut m, 70 * MS, 0, false);
        m.run_until(71 * MS).unwrap();
        assert_eq!(times(&m, 0), (2_500 * US, 0, stopped), "{policy}");
        m.check().unwrap();
    }
}

/// Who waits in a run queue when its VM is frozen stops when it would run: the queue's other threads lose nothing.
#[test]
fn who_waits_stops_when_it_would_run() {
    for policy in POLICIES {
        let hog = [Action::ComputeForever];
        let mut m = machine(policy, &[&hog, &hog]);
        m.run_until(500 * MS).unwrap();
        let curr = m.kernel().cpus[0].curr;
        let waits = (0..2).find(|i| m.workload.ids[*i] != curr).unwrap();
        freeze(&mut m, 501 * MS, waits as u32, true);
        let before = times(&m, 1 - waits);
        m.run_until(2_000 * MS).unwrap();
        let (ran, ..) = times(&m, 1 - waits);
        assert_eq!(ran - before.0, 1_499 * MS, "{policy}");
        freeze(&mut m, 2_000 * MS, waits as u32, false);
        let before = times(&m, waits);
        m.run_until(4_000 * MS).unwrap();
        let (ran, ..) = times(&m, waits);
        assert!(ran - before.0 > 800 * MS, "{policy}: {ran}");
        m.check().unwrap();
    }
}

/// A wake-up of a frozen VM's thread counts, once; whoever is killed in there is gone; threads follow their cgroup.
#[test]
fn wake_ups_deaths_and_moves() {
    let acts: [&[Action]; 2] = [
        &[Action::Block, Action::Compute { ns: MS }],
        &[Action::ComputeForever],
    ];
    let mut m = machine("vmfair", &acts);
    freeze(&mut m, MS, 0, true);
    let woken = m.with(0, |cast, ctx| {
        (ctx.wake(cast.ids[0]), ctx.wake(cast.ids[0]))
    });
    assert_eq!(woken, (true, false));
    freeze(&mut m, 3 * MS, 0, true); // as it is already
    freeze(&mut m, 5 * MS, 0, false);
    m.run_until(100 * MS).unwrap();
    let (ran, _, frozen) = times(&m, 0);
    assert_eq!((ran, frozen), (MS, 4 * MS));

    // Into a frozen VM, and back out of it.
    freeze(&mut m, 100 * MS, 0, true);
    let hog = m.workload.ids[1];
    m.with(0, |_, ctx| ctx.move_to_vm(&[hog], Some(0))).unwrap();
    let ran = times(&m, 1).0;
    m.run_until(110 * MS).unwrap();
    assert_eq!(times(&m, 1), (ran, times(&m, 1).1, 10 * MS));
    m.with(0, |_, ctx| ctx.move_to_vm(&[hog], Some(1))).unwrap();
    m.run_until(120 * MS).unwrap();
    assert_eq!(times(&m, 1).0, ran + 10 * MS);

    freeze(&mut m, 120 * MS, 1, true);
    m.run_until(130 * MS).unwrap();
    m.with(0, |_, ctx| ctx.kill(hog));
    m.run_until(131 * MS).unwrap();
    let life = m.kernel().tasks.hot[hog as usize].life;
    assert!(matches!(life, Life::Dead | Life::Free), "{life:?}");
    let none = m.with(0, |_, ctx| ctx.freeze_vm(7, true));
    assert_eq!(none, Err(CgroupError::NoSuchVm(7)));
    m.check().unwrap();
}
