// SPDX-License-Identifier: GPL-2.0-only
//! What only `ops.exit` writes has memory from then on, and the policy's record of the exit is in it.
use berth_policy::abi::Op;
use berth_policy::kview::ScxExitInfo;
use berth_policy::policy::LoadOptions;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::workload::api::{Action, Ctx, Nanos, TaskId, Who, Workload};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

struct Nothing;

impl Workload for Nothing {
    fn start(&mut self, _: &mut Ctx) {}
    fn born(&mut self, _: u32, _: TaskId) {}
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, _: Who, _: Nanos, _: &mut Ctx) -> Action {
        Action::ComputeForever
    }
    fn event(&mut self, _: u64, _: Nanos, _: &mut Ctx) {}
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}

#[test]
fn an_exit_is_recorded() {
    let builtin = berth_builtin::find("vtime").unwrap();
    let policy = builtin.load(&LoadOptions::default()).unwrap();
    let mut machine = Simulation::new(&MachineSpec::new(Shape::flat(2)), &[], Nothing);
    load_policy(
        &mut machine,
        &policy,
        &BTreeMap::new(),
        &[],
        &Options::default(),
    )
    .unwrap();
    let k = machine.kernel();
    let instance = k.policy.instance().unwrap();
    let info = ScxExitInfo {
        kind: 1024,
        ..ScxExitInfo::default()
    };
    // SAFETY: the operation's argument; no other code of the policy runs.
    unsafe { instance.call(Op::Exit, &[&raw const info as u64]) }.unwrap();
    let (uei, size) = instance.var("uei").unwrap();
    assert!(size > 1024);
    // SAFETY: the variable begins with the kind.
    assert_eq!(unsafe { uei.cast::<u32>().read_unaligned() }, 1024);
}
