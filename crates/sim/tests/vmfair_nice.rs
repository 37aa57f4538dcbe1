// SPDX-License-Identifier: GPL-2.0-only
//! `vmfair`: nice values divide a VM's time among its threads.
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::machine::task::nice_to_weight;
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

const S: u64 = 1_000_000_000;

/// Parts of one CPU that the threads of two VMs have over 20 s, in order.
fn shares(vms: [&[i32]; 2]) -> Vec<f64> {
    let mut cast = Cast::default();
    let mut specs = Vec::new();
    for (vm, threads) in vms.iter().enumerate() {
        for (i, nice) in threads.iter().enumerate() {
            cast.vcpu(vm as u32, i as u32, 0, &[Action::ComputeForever]);
            cast.scripts.last_mut().unwrap().spec.nice = *nice;
        }
        specs.push(VmSpec {
            name: format!("v{vm}"),
            group: vm as u32,
            class: Class::Batch,
            weight: 100,
            cap_milli: None,
            vcpus: threads.len() as u32,
        });
    }
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &specs, cast);
    let policy = support::policy("vmfair");
    load_policy(
        &mut m,
        &policy,
        &BTreeMap::new(),
        &specs,
        &Options::default(),
    )
    .unwrap();
    m.start();
    m.run_until(20 * S).unwrap();
    m.check().unwrap();
    let k = m.kernel();
    settle(k);
    let ids = m.workload.ids.iter();
    ids.map(|id| k.tasks.hot[*id as usize].runtime as f64 / (20 * S) as f64)
        .collect()
}

/// It did not: threads' clocks ran faster or slower than their VM's by the nice value alone, came to the bounds there
/// are for them, and took turns.
#[test]
fn nice_divides_a_vms_time() {
    let mut wrong = Vec::new();
    for nice in [[0, 5], [0, -5], [-3, 2], [5, 10], [-5, -5]] {
        for other in [&[][..], &[0]] {
            let got = shares([&nice, other]);
            let of_vm = got[0] + got[1];
            let weights = nice.map(|n| f64::from(nice_to_weight(n)));
            let want = weights[0] / (weights[0] + weights[1]);
            let told = format!(
                "nice {nice:?} beside {other:?}: {got:.3?}, wanted {want:.3} of {of_vm:.3}"
            );
            if (got[0] / of_vm - want).abs() > 0.03 {
                wrong.push(told);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
