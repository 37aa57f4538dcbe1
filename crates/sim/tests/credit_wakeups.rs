// SPDX-License-Identifier: GPL-2.0-only
//! Wake-ups under `credit` and `flms` where the kernel behaves as no hypervisor does: other classes take the CPU, and
//! the mask of idle CPUs begins with all of them. Found by comparing with real kernels (docs/fidelity.md).
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::{Action, SchedClass};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use std::path::Path;
use support::{Cast, Peek};

mod support;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Of policies/include/berth/credit.bpf.h.
const OVER: u64 = 2;
const PARKED: u64 = 1;
const QUEUED: u64 = 64;

fn vms(n: u32) -> Vec<VmSpec> {
    let vm = |i: u32| VmSpec {
        name: format!("v{i}"),
        group: i,
        class: Class::Batch,
        weight: 100,
        cap_milli: None,
        vcpus: 1,
    };
    (0..n).map(vm).collect()
}

fn both(check: impl Fn(&str, &Policy)) {
    for name in ["credit", "flms"] {
        check(name, &support::policy(name));
    }
}

/// A copy that does not ask for threads that exit.
fn unasked(name: &str) -> Policy {
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    let source = std::fs::read_to_string(policies.join(format!("{name}.bpf.c"))).unwrap();
    assert!(source.contains(" | SCX_OPS_ENQ_EXITING"));
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join(format!("{name}.bpf.c"));
    std::fs::write(&copy, source.replace(" | SCX_OPS_ENQ_EXITING", "")).unwrap();
    let mut options = LoadOptions::default();
    options.compile.include.push(policies.join("include"));
    Policy::from_source(&copy, &options).unwrap()
}

fn load(m: &mut Simulation<Cast>, policy: &Policy, vms: &[VmSpec]) {
    load_policy(m, policy, &BTreeMap::new(), vms, &Options::default()).unwrap();
}

/// CPU time of a thread so far, ns.
fn ran(m: &Simulation<Cast>, thread: usize) -> u64 {
    let task = m.workload.ids[thread] as usize;
    m.kernel().tasks.hot[task].runtime
}

/// A sleeper beside a hog, while a real-time thread takes the CPU half of the time. Whoever wakes while it runs
/// finds nobody to preempt, and the kernel gives the CPU back to the hog without a question.
#[test]
fn who_wakes_under_a_real_time_thread_need_not_wait_for_the_slice() {
    both(|name, policy| {
        let mut cast = Cast::default();
        let nap = [
            Action::Compute { ns: 200 * US },
            Action::SleepUntil { at: 2_300 * US },
        ];
        cast.vcpu(0, 0, 0, &[Action::ComputeForever]);
        cast.vcpu(1, 0, 0, &nap);
        let real_time = [
            Action::SetClass(SchedClass::Rt),
            Action::Compute { ns: 2 * MS },
            Action::SleepUntil { at: 2 * MS },
        ];
        cast.vcpu(0, 0, 0, &real_time);
        cast.scripts[2].spec.vm = None;
        let vms = vms(2);
        let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &vms, cast);
        load(&mut m, policy, &vms);
        m.start();
        m.run_until(10_000 * MS).unwrap();
        m.check().unwrap();
        // A cycle is 2.5 ms of its own, the real-time thread's 2 ms twice at most, and the rate limit of 1 ms.
        let least = 10_000 * MS / (7_500 * US) * (200 * US);
        assert!(ran(&m, 1) > least, "{name}: {} of {least} ns", ran(&m, 1));
    });
}

/// Threads that have work to do while they exit wait where the policy puts them. A kernel keeps them from a policy that
/// does not ask for them; on real vCPUs two of them then took turns without end on the CPU's own queue, before a thread
/// of the host. That itself does not happen here: the simulator's threads get on a little in each turn.
#[test]
fn exiting_threads_are_left_to_the_policy() {
    both(|_, policy| {
        let mut cast = Cast::default();
        let ends = [
            Action::Compute { ns: 40 * MS },
            Action::Compute { ns: 30 * MS },
            Action::Exit,
        ];
        cast.vcpu(0, 0, 0, &ends);
        cast.vcpu(1, 0, 0, &ends);
        let nap = [
            Action::Compute { ns: 100 * US },
            Action::SleepUntil { at: 1_900 * US },
        ];
        cast.vcpu(0, 0, 0, &nap);
        cast.scripts[2].spec.vm = None;
        cast.exiting = vec![0, 1];
        let vms = vms(2);
        let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &vms, cast);
        load(&mut m, policy, &vms);
        m.start();
        m.run_until(140 * MS).unwrap();
        m.check().unwrap();
        // Both are in the middle of it, and a thread of the host has come between.
        assert!(ran(&m, 0) > 40 * MS && ran(&m, 1) > 40 * MS && ran(&m, 2) > 0);
        assert_eq!(m.kernel().events.enq_skip_exiting, 0);
    });
}

/// A kernel keeps threads from a policy that may not migrate for a moment, and those that exit from one that does not
/// ask for them: on the CPU's own queue. Two whose slices have ended there, while a third thread waits for both, took
/// turns of 1 us.
#[test]
fn threads_that_are_kept_from_the_policy_take_turns_no_faster_than_the_rate_limit() {
    for name in ["credit", "flms"] {
        let mut cast = Cast::default();
        let ends = [
            Action::Compute { ns: 40 * MS },
            Action::Compute { ns: 60 * MS },
            Action::Exit,
        ];
        cast.vcpu(0, 0, 0, &ends);
        cast.vcpu(1, 0, 0, &ends);
        cast.vcpu(2, 0, 0, &[Action::ComputeForever]);
        cast.exiting = vec![0, 1];
        let vms = vms(3);
        let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &vms, cast);
        load(&mut m, &unasked(name), &vms);
        m.start();
        m.run_until(300 * MS).unwrap();
        m.check().unwrap();
        assert!(m.kernel().events.enq_skip_exiting > 0, "{name}");
        let switches = m.kernel().cpus[0].switches;
        assert!(switches < 300, "{name}: {switches} switches in 300 ms");
    }
}

/// A light sleeper is found by no tick for a while, earns nothing and owes what it has burned, still UNDER and boosted.
/// Then a tick finds it. If the next accounting does not cover the debt it is OVER, and waits for its turn behind all
/// others, as in Xen. It never waits otherwise.
#[test]
fn a_sleeper_with_debts_waits_its_turn_once_a_tick_has_found_it() {
    const INACTIVE_AND_UNDER: i32 = -75; // a quarter of a period
    both(|name, policy| {
        let mut cast = Cast::default();
        for vm in 0..3 {
            cast.vcpu(vm, 0, 0, &[Action::ComputeForever]);
        }
        let nap = [
            Action::Compute { ns: 60 * US },
            Action::SleepUntil { at: 2_437 * US },
        ];
        // The hogs have lost their first BOOST by then.
        cast.vcpu(3, 0, 100 * MS, &nap);
        let vms = vms(4);
        let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &vms, cast);
        load(&mut m, policy, &vms);
        m.start();
        let (mut long, mut since, mut before) = (0, None, (0, 0, 0));
        let mut deepest = 0;
        for step in 2_000..80_000 {
            let now = step * 50 * US;
            m.run_until(now).unwrap();
            let k = m.kernel();
            let peek = Peek(k.policy.instance().unwrap());
            let (credit, pri) = (peek.vcpu(4, "credit") as u32 as i32, peek.vcpu(4, "pri"));
            let active = peek.vcpu(4, "active");
            if active == 0 {
                assert_ne!(
                    pri, OVER,
                    "{name}: only an accounting of active ones says so"
                );
                deepest = deepest.min(credit);
            }
            if peek.vcpu(4, "flags") & QUEUED != 0 {
                let from = *since.get_or_insert(now);
                if from == now {
                    before = (pri, credit, active);
                }
                let (pri, credit, active) = before;
                // Boosted, it waits no longer than the rate limit.
                let owes = pri == OVER && credit < 0 && active == 1;
                assert!(owes || now - from <= MS, "{name}: {before:?} at {now}");
                long += u32::from(now - from == 20 * MS);
            } else {
                since = None;
            }
        }
        m.check().unwrap();
        assert!(long > 0, "{name}: it never waited");
        assert!(deepest < INACTIVE_AND_UNDER, "{name}: {deepest}");
    });
}

/// The policy is loaded on a machine that has been busy and stays so: no CPU ever passes through idle.
#[test]
fn a_cpu_that_never_went_idle_is_not_taken_for_idle() {
    both(|name, policy| {
        let mut cast = Cast::default();
        let nap = [
            Action::Compute { ns: 200 * US },
            Action::SleepUntil { at: 2_300 * US },
        ];
        cast.vcpu(0, 0, 0, &[Action::ComputeForever]);
        cast.vcpu(1, 0, 0, &nap);
        let vms = vms(2);
        let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &vms, cast);
        m.start();
        m.run_until(50 * MS).unwrap();
        let before = ran(&m, 1);
        load(&mut m, policy, &vms);
        m.run_until(10_050 * MS).unwrap();
        m.check().unwrap();
        let least = 10_000 * MS / (3_500 * US) * (200 * US);
        let got = ran(&m, 1) - before;
        assert!(got > least, "{name}: {got} of {least} ns");
    });
}

/// What a thread burned before it joined its VM is not held against it there.
#[test]
fn a_thread_that_joins_a_vm_starts_afresh() {
    both(|name, policy| {
        let mut cast = Cast::default();
        cast.vcpu(0, 0, 0, &[Action::ComputeForever]);
        cast.vcpu(1, 0, 0, &[Action::ComputeForever]);
        // The third VM has no threads yet.
        let vms = vms(3);
        let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &vms, cast);
        load(&mut m, policy, &vms);
        m.start();
        let mut now = 90 * MS;
        m.run_until(now).unwrap();
        while Peek(m.kernel().policy.instance().unwrap()).curr(0) != 1 {
            now += 5 * MS;
            m.run_until(now).unwrap();
        }
        let k = m.kernel();
        let peek = Peek(k.policy.instance().unwrap());
        peek.set("vcpus", 1, "credit", u64::from(-250i32 as u32));
        peek.set("vcpus", 1, "pri", OVER);
        peek.set("vcpus", 1, "flags", peek.vcpu(1, "flags") | PARKED);
        // Its cgroup becomes the third VM's: its next stop reads the labels anew.
        let map = peek.0.map("berth_vms").unwrap();
        let key = (u64::from(k.cgroups.of_vm(0)) + 1).to_ne_bytes();
        let mut record = map.lookup(&key).unwrap();
        record[4..8].copy_from_slice(&3u32.to_ne_bytes());
        map.update(&key, &record, 0).unwrap();
        peek.set_var("berth_generation", peek.var("berth_generation") + 1);
        while peek.vcpu(1, "slot") != 3 {
            now += MS;
            m.run_until(now).unwrap();
            assert!(now < 1_000 * MS, "{name}: no new labels");
        }
        let credit = peek.vcpu(1, "credit") as u32 as i32;
        assert!(credit >= 0, "{name}: {credit} credits of another domain");
        assert_eq!(peek.vcpu(1, "flags") & PARKED, 0, "{name}: parked for ever");
        m.run_until(now + 300 * MS).unwrap();
        let before = ran(&m, 0);
        m.run_until(now + 2_300 * MS).unwrap();
        m.check().unwrap();
        let share = (ran(&m, 0) - before) as f64 / (2_000 * MS) as f64;
        assert!((share - 0.5).abs() < 0.03, "{name}: {share}");
    });
}
