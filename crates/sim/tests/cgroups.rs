// SPDX-License-Identifier: GPL-2.0-only
//! What shipped policies make of changes of cgroups while threads run: a new weight shows in the shares, a thread that
//! moves to another VM is charged to that one.
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::{Action, Bandwidth};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use support::Cast;

#[allow(
    dead_code,
    reason = "what looks into policies' maps is for other tests"
)]
mod support;

const S: u64 = 1_000_000_000;
const POLICIES: [&str; 4] = ["vmfair", "eevdf", "credit", "flms"];

/// Xen's rules since 4.1: a VM's weight is divided by its vCPUs, and counts for those that are active.
fn per_vcpu(policy: &str) -> bool {
    matches!(policy, "credit" | "flms")
}

/// One CPU; VMs with these numbers of threads that always compute, all of weight 100.
fn machine(policy: &str, threads: &[u32]) -> Simulation<Cast> {
    machine_of(1, policy, threads)
}

/// The same on so many CPUs.
fn machine_of(cpus: u32, policy: &str, threads: &[u32]) -> Simulation<Cast> {
    let vm = |(i, n): (usize, &u32)| VmSpec {
        name: format!("vm{i}"),
        group: i as u32,
        class: Class::Batch,
        weight: 100,
        cap_milli: None,
        vcpus: *n,
    };
    let vms: Vec<VmSpec> = threads.iter().enumerate().map(vm).collect();
    let mut cast = Cast::default();
    for (vm, n) in (0..).zip(threads) {
        for vcpu in 0..*n {
            cast.vcpu(vm, vcpu, 0, &[Action::ComputeForever]);
        }
    }
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(cpus)), &vms, cast);
    let loaded = support::policy(policy);
    let options = Options::default();
    load_policy(&mut m, &loaded, &BTreeMap::new(), &vms, &options).unwrap();
    m.start();
    m
}

/// What part of the CPU each thread gets from now to `until`, after a second in which things settle.
fn parts(m: &mut Simulation<Cast>, until: u64) -> Vec<f64> {
    let ran = |m: &Simulation<Cast>| -> Vec<u64> {
        let k = m.kernel();
        berth_sim::run::settle(k);
        let of = |id: &u32| k.tasks.hot[*id as usize].runtime;
        m.workload.ids.iter().map(of).collect()
    };
    let from = m.kernel().now + S;
    m.run_until(from).unwrap();
    let before = ran(m);
    m.run_until(until).unwrap();
    let after = ran(m);
    let share = |(a, b): (&u64, &u64)| (a - b) as f64 / (until - from) as f64;
    after.iter().zip(&before).map(share).collect()
}

fn assert_parts(got: &[f64], want: &[f64], what: &str) {
    let near = |(g, w): (&f64, &f64)| (g - w).abs() <= 0.03;
    assert!(
        got.len() == want.len() && got.iter().zip(want).all(near),
        "{what}: {got:.3?}, expected {want:.3?} within 0.03"
    );
}

#[test]
fn shares_follow_a_change_of_weight() {
    for policy in POLICIES {
        let mut m = machine(policy, &[1, 1]);
        assert_parts(&parts(&mut m, 10 * S), &[0.5, 0.5], policy);
        m.with(0, |_, ctx| ctx.set_vm_weight(0, 300)).unwrap();
        let what = format!("{policy}, 300 to 100");
        assert_parts(&parts(&mut m, 20 * S), &[0.75, 0.25], &what);
        m.with(0, |_, ctx| ctx.set_vm_weight(0, 25)).unwrap();
        let what = format!("{policy}, 25 to 100");
        assert_parts(&parts(&mut m, 40 * S), &[0.2, 0.8], &what);
        m.check().unwrap();
    }
}

#[test]
fn a_thread_that_moves_is_charged_to_its_new_vm() {
    for policy in POLICIES {
        // The thread that runs as well as one that waits.
        for thread in 0..2 {
            let mut m = machine(policy, &[2, 1]);
            assert_parts(&parts(&mut m, 10 * S), &[0.25, 0.25, 0.5], policy);
            m.with(0, |cast, ctx| ctx.move_to_vm(&[cast.ids[thread]], Some(1)))
                .unwrap();
            let mut want = [0.5, 0.5, 0.25];
            want[thread] = 0.25;
            if per_vcpu(policy) {
                // One of two vCPUs of one VM, and never more than the one that the other VM's weight is for.
                want = [1.0 / 3.0; 3];
            }
            let what = format!("{policy}, thread {thread} moved");
            assert_parts(&parts(&mut m, 20 * S), &want, &what);
            m.check().unwrap();
        }
    }
}

/// The weight that counts after a move is the present one, not the one the VM began with.
#[test]
fn a_move_does_not_bring_back_an_old_weight() {
    for policy in POLICIES {
        let mut m = machine(policy, &[2, 1]);
        m.with(0, |_, ctx| ctx.set_vm_weight(1, 300)).unwrap();
        m.run_until(S).unwrap();
        m.with(0, |cast, ctx| ctx.move_to_vm(&cast.ids[..1], Some(1)))
            .unwrap();
        let what = format!("{policy}, one of two threads moved to weight 300");
        // 100 to 300; where it is the vCPUs' weight, of one of two vCPUs to one of one.
        let other = if per_vcpu(policy) { 1.0 / 7.0 } else { 0.25 };
        let moved = (1.0 - other) / 2.0;
        assert_parts(&parts(&mut m, 20 * S), &[moved, other, moved], &what);
        m.check().unwrap();
    }
}

#[test]
fn a_limit_holds_from_when_it_is_set_until_it_is_lifted() {
    let mut m = machine("eevdf", &[1, 1]);
    assert_parts(&parts(&mut m, 5 * S), &[0.5, 0.5], "no limit");
    let limit = Bandwidth {
        quota_us: Some(20_000),
        ..Bandwidth::default()
    };
    m.with(0, |_, ctx| ctx.set_vm_bandwidth(0, limit)).unwrap();
    assert_parts(&parts(&mut m, 15 * S), &[0.2, 0.8], "a limit of 0.2 CPUs");
    m.with(0, |_, ctx| ctx.set_vm_bandwidth(0, Bandwidth::default()))
        .unwrap();
    assert_parts(&parts(&mut m, 30 * S), &[0.5, 0.5], "no limit again");
    m.check().unwrap();
}

/// Each on a CPU of its own, with periods that hardly ever end together: the end of one does not make the other's
/// forgotten.
#[test]
fn limits_of_two_periods_hold_side_by_side() {
    let mut m = machine_of(2, "eevdf", &[1, 1]);
    for (vm, period_us) in [(0, 100_000), (1, 130_000)] {
        let limit = Bandwidth {
            quota_us: Some(period_us / 2),
            period_us,
            ..Bandwidth::default()
        };
        m.with(0, |_, ctx| ctx.set_vm_bandwidth(vm, limit)).unwrap();
    }
    // Halves of a CPU each: a whole number of both periods.
    assert_parts(&parts(&mut m, 14 * S), &[0.5, 0.5], "two limits");
    m.check().unwrap();
}
