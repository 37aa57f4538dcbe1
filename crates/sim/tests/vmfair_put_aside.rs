// SPDX-License-Identifier: GPL-2.0-only
//! `vmfair` where threads of a higher class take the CPU: whom they interrupt goes first on the CPU's own queue, and
//! the kernel asks no policy before it goes on. Found by comparing with real kernels (docs/fidelity.md).
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::{Action, SchedClass};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use support::Cast;

#[allow(
    dead_code,
    reason = "what looks into policies' maps is for other tests"
)]
mod support;

const US: u64 = 1_000;
/// How long the real-time thread has the CPU, and leaves it.
const BUSY: u64 = 471 * US;
const FREE: u64 = 533 * US;
const LONG: u64 = 10_000_000 * US;

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

/// Adds a real-time thread of the host that takes the CPU nearly half of the time, and runs; the CPU time of each
/// thread but that one in ten seconds, ns.
fn interrupted(mut cast: Cast, vms: &[VmSpec]) -> Vec<u64> {
    let threads = cast.scripts.len();
    let takes = [
        Action::SetClass(SchedClass::Rt),
        Action::Compute { ns: BUSY },
        Action::SleepUntil { at: FREE },
    ];
    cast.vcpu(0, 0, 0, &takes);
    cast.scripts[threads].spec.vm = None;
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), vms, cast);
    let policy = support::policy("vmfair");
    load_policy(&mut m, &policy, &BTreeMap::new(), vms, &Options::default()).unwrap();
    m.start();
    m.run_until(LONG).unwrap();
    m.check().unwrap();
    let ids = &m.workload.ids[..threads];
    let runtime = |id: &u32| m.kernel().tasks.hot[*id as usize].runtime;
    ids.iter().map(runtime).collect()
}

/// A latency VM that needs one and a half of its slices. When its slice had ended, the interrupted hog was first, with
/// most of its own left.
#[test]
fn a_latency_vm_goes_on_before_an_interrupted_hog() {
    let (computes, sleeps) = (1_500 * US, 8_377 * US);
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 0, &[Action::ComputeForever]);
    let turn = [
        Action::Compute { ns: computes },
        Action::SleepUntil { at: sleeps },
    ];
    cast.vcpu(1, 0, 0, &turn);
    let ran = interrupted(cast, &[vm(0, Class::Batch), vm(1, Class::Latency)]);
    // A cycle: it sleeps, and has half of the CPU until it is done, the other half first at worst.
    let least = LONG / (sleeps + 2 * computes + BUSY) * computes;
    assert!(ran[1] > least, "{ran:?}, {least} ns at least");
}

/// A hog that is interrupted all the time has its share of what is left beside another one.
#[test]
fn an_interrupted_hog_keeps_its_share() {
    let mut cast = Cast::default();
    for i in 0..2 {
        cast.vcpu(i, 0, 0, &[Action::ComputeForever]);
    }
    let ran = interrupted(cast, &[vm(0, Class::Batch), vm(1, Class::Latency)]);
    let half = LONG / (BUSY + FREE) * FREE / 2;
    assert!(ran[0].abs_diff(half) < half / 50, "{ran:?} of {half} ns");
}
