// SPDX-License-Identifier: GPL-2.0-only
//! A VM without a cgroup of its own is known by its process, and a process by its start too (`identity.bpf.h`).
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use support::{Cast, Peek};

#[allow(
    dead_code,
    reason = "what looks into policies' maps is for other tests"
)]
mod support;

const MS: u64 = 1_000_000;
const PROCESS: u64 = 1 << 63;
const NUMBERS: u64 = 1 << 22;

/// What the first of two hogs gets of one CPU whose VM has three times the weight, known by its process instead of its
/// cgroup. `start`: of the process it is told as, in ticks.
fn share(name: &str, start: u64) -> f64 {
    let vm = |i: u32, weight| VmSpec {
        name: format!("v{i}"),
        group: i,
        class: Class::Batch,
        weight,
        cap_milli: None,
        vcpus: 1,
    };
    let vms = [vm(0, 300), vm(1, 100)];
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 0, &[Action::ComputeForever]);
    cast.vcpu(1, 0, 0, &[Action::ComputeForever]);
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &vms, cast);
    let policy = support::policy(name);
    load_policy(&mut m, &policy, &BTreeMap::new(), &vms, &Options::default()).unwrap();
    m.start();
    m.run_until(100 * MS).unwrap();
    let k = m.kernel();
    let task = m.workload.ids[0];
    let (process, _) = k.population.pids.iter().find(|(_, t)| **t == task).unwrap();
    let process = u64::from(process.unsigned_abs());
    let peek = Peek(k.policy.instance().unwrap());
    let map = peek.0.map("berth_vms").unwrap();
    let cgroup = (u64::from(k.cgroups.of_vm(0)) + 1).to_ne_bytes();
    let record = map.lookup(&cgroup).unwrap();
    map.delete(&cgroup).unwrap();
    let key = (PROCESS | (start * NUMBERS + process)).to_ne_bytes();
    map.update(&key, &record, 0).unwrap();
    peek.set_var("berth_generation", peek.var("berth_generation") + 1);
    m.run_until(1_000 * MS).unwrap();
    let ran = |m: &Simulation<Cast>| m.kernel().tasks.hot[task as usize].runtime;
    let before = ran(&m);
    m.run_until(21_000 * MS).unwrap();
    m.check().unwrap();
    (ran(&m) - before) as f64 / (20_000 * MS) as f64
}

#[test]
fn a_process_stands_for_its_vm() {
    for name in ["vmfair", "credit", "flms"] {
        let share = share(name, 0);
        assert!((share - 0.75).abs() < 0.02, "{name}: {share}");
    }
}

/// Its threads are the host's, as if nobody had told of the VM.
#[test]
fn another_process_with_its_number_does_not() {
    for name in ["vmfair", "credit", "flms"] {
        let share = share(name, 1);
        assert!((share - 0.75).abs() > 0.1, "{name}: {share}");
    }
}
