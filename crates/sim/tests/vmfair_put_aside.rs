// SPDX-License-Identifier: GPL-2.0-only
//! `vmfair` where threads of a higher class take the CPU: whom they interrupt goes first on the CPU's own queue, and the
//! kernel asks no policy before it goes on. Found by comparing with real kernels (docs/fidelity.md).
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::{Action, SchedClass};
use berth_sim::{Machine, MachineSpec};
use std::collections::BTreeMap;
use support::Cast;

#[allow(
    dead_code,
    reason = "what looks into policies' maps is for other tests"
)]
mod support;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn vm(group: u32, class: Class) -> VmSpec {
    VmSpec {
        name: format!("v{group}"),
        group,
        class,
        weight: 100,
        cap_milli: None,
        vcpus: 1,
    }
}

/// A real-time thread of the host that takes the CPU half of the time.
fn interrupts(cast: &mut Cast) {
    let thread = cast.scripts.len();
    cast.vcpu(
        0,
        0,
        0,
        &[
            Action::SetClass(SchedClass::Rt),
            Action::Compute { ns: 471 * US },
            Action::SleepUntil { at: 529 * US },
        ],
    );
    cast.scripts[thread].spec.vm = None;
}

/// CPU time of a thread in ten seconds, ns.
fn ran(cast: Cast, vms: &[VmSpec], thread: usize) -> u64 {
    let mut m = Machine::new(&MachineSpec::new(Shape::flat(1)), vms, cast);
    let policy = support::policy("vmfair");
    load_policy(&mut m, &policy, &BTreeMap::new(), vms, &Options::default()).unwrap();
    m.start();
    m.run_until(10_000 * MS).unwrap();
    m.check().unwrap();
    let task = m.workload.ids[thread] as usize;
    m.kernel().tasks.hot[task].runtime
}

/// A latency VM that needs one and a half of its slices beside a hog. When its slice has ended the interrupted hog, with most
/// of its own left, was first.
#[test]
fn a_latency_vm_goes_on_before_an_interrupted_hog() {
    let mut cast = Cast::default();
    let nap = [
        Action::Compute { ns: 1_500 * US },
        Action::SleepUntil { at: 8_377 * US },
    ];
    cast.vcpu(0, 0, 0, &[Action::ComputeForever]);
    cast.vcpu(1, 0, 0, &nap);
    interrupts(&mut cast);
    let ran = ran(cast, &[vm(0, Class::Batch), vm(1, Class::Latency)], 1);
    // A cycle: it sleeps, and has half of the CPU until it is done, the other half first at worst.
    let cycle = (8_377 + 2 * 1_500 + 500) * US;
    let least = 10_000 * MS / cycle * (1_500 * US);
    assert!(ran > least, "{ran} of {least} ns");
}

/// Two of them, which wake at about the same time, at most one of which can take the hog's CPU from it.
#[test]
fn the_second_latency_vm_to_wake_does_not_wait_for_an_interrupted_hog() {
    let mut cast = Cast::default();
    let nap = [
        Action::Compute { ns: 300 * US },
        Action::SleepUntil { at: 9_613 * US },
    ];
    cast.vcpu(0, 0, 0, &[Action::ComputeForever]);
    cast.vcpu(1, 0, 0, &nap);
    cast.vcpu(2, 0, 0, &nap);
    interrupts(&mut cast);
    let vms = [
        vm(0, Class::Batch),
        vm(1, Class::Latency),
        vm(2, Class::Latency),
    ];
    let ran = ran(cast, &vms, 2);
    // As above; the other one goes first at worst.
    let cycle = (9_613 + 4 * 300 + 500) * US;
    let least = 10_000 * MS / cycle * (300 * US);
    assert!(ran > least, "{ran} of {least} ns");
}

/// A hog that is interrupted all the time has its share of a CPU beside another hog.
#[test]
fn an_interrupted_hog_keeps_its_share() {
    let mut cast = Cast::default();
    for i in 0..2 {
        cast.vcpu(i, 0, 0, &[Action::ComputeForever]);
    }
    interrupts(&mut cast);
    let ran = ran(cast, &[vm(0, Class::Batch), vm(1, Class::Latency)], 0);
    let half = 10_000 * MS / 1_000 * 529 / 2;
    assert!(ran.abs_diff(half) < half / 50, "{ran} of {half} ns");
}
