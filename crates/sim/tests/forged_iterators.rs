// SPDX-License-Identifier: GPL-2.0-only
//! An iterator lies on the policy's stack, where the policy can write what it likes: nothing of it is believed.
use berth_policy::policy::{LoadOptions, Policy};
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use std::path::Path;
use support::Cast;

#[allow(
    dead_code,
    reason = "what looks into policies' maps is for other tests"
)]
mod support;

const MS: u64 = 1_000_000;

#[test]
fn forged_iterators_lead_nowhere() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/forger.bpf.c");
    let policy = Policy::from_path(&path, &LoadOptions::default()).unwrap();
    let mut cast = Cast::default();
    for i in 0..6 {
        cast.vcpu(0, i, 0, &[Action::ComputeForever]);
        cast.scripts[i as usize].spec.vm = None;
    }
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(2)), &[], cast);
    load_policy(&mut m, &policy, &BTreeMap::new(), &[], &Options::default()).unwrap();
    m.start();
    m.run_until(200 * MS).unwrap();
    m.check().unwrap();
    let switches: u64 = m.kernel().cpus.iter().map(|c| c.switches).sum();
    assert!(switches >= 10, "{switches} switches");
}
