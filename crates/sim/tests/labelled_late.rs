// SPDX-License-Identifier: GPL-2.0-only
//! On a host a vCPU's thread is born as any thread and told of later, when it has run: `credit` and `flms` place it
//! first then. `flms` moves nobody between CPUs that are equally busy, so that weights hold only where each CPU has its
//! part of every VM.
use berth_identity::{Class, Role, ThreadRecord};
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
const CPUS: u32 = 4;
/// Number and weight of each VM's vCPUs, and the CPU on which they are born.
const VMS: [(u32, u32, u32); 3] = [(8, 100, 0), (4, 200, 2), (4, 400, 3)];

fn machine(name: &str) -> Simulation<Cast> {
    let vms: Vec<VmSpec> = (0..)
        .zip(VMS)
        .map(|(i, (vcpus, weight, _))| VmSpec {
            name: format!("v{i}"),
            group: i,
            class: Class::Batch,
            weight,
            cap_milli: None,
            vcpus,
        })
        .collect();
    let mut cast = Cast::default();
    for (i, (vcpus, _, on)) in (0..).zip(VMS) {
        for vcpu in 0..vcpus {
            cast.vcpu(i, vcpu, 0, &[Action::ComputeForever]);
            let script = cast.scripts.last_mut().unwrap();
            script.spec.role = Role::Other;
            // The first VM's on two CPUs: where Linux may have put them.
            script.on = on + if i == 0 { vcpu % 2 } else { 0 };
        }
    }
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(CPUS)), &vms, cast);
    let policy = support::policy(name);
    load_policy(&mut m, &policy, &BTreeMap::new(), &vms, &Options::default()).unwrap();
    m.start();
    m
}

/// The agent tells the policy which threads are vCPUs.
fn announce(m: &Simulation<Cast>) {
    let k = m.kernel();
    let peek = Peek(k.policy.instance().unwrap());
    let threads = peek.0.map("berth_threads").unwrap();
    for (tid, task) in &k.population.pids {
        let Some(script) = m.workload.ids.iter().position(|id| id == task) else {
            continue;
        };
        let mut vcpus = VMS.iter().flat_map(|(vcpus, ..)| 0..*vcpus);
        let record = ThreadRecord {
            role: Role::Vcpu(vcpus.nth(script).unwrap()),
            io: false,
            score_milli: None,
        };
        threads
            .update(&tid.to_ne_bytes(), &record.bytes(), 0)
            .unwrap();
    }
    peek.set_var("berth_generation", peek.var("berth_generation") + 1);
}

/// CPUs that each VM has.
fn shares(name: &str) -> Vec<f64> {
    let mut m = machine(name);
    m.run_until(200 * MS).unwrap();
    announce(&m);
    m.run_until(1_200 * MS).unwrap();
    let ran = |m: &Simulation<Cast>, vm: u32| -> u64 {
        let scripts = m.workload.scripts.iter().zip(&m.workload.ids);
        let own = scripts.filter(|(s, _)| s.spec.vm == Some(vm));
        own.map(|(_, id)| m.kernel().tasks.hot[*id as usize].runtime)
            .sum()
    };
    let before: Vec<u64> = (0..3).map(|vm| ran(&m, vm)).collect();
    m.run_until(21_200 * MS).unwrap();
    m.check().unwrap();
    let since = before
        .iter()
        .zip(0..)
        .map(|(before, vm)| ran(&m, vm) - before);
    since.map(|ns| ns as f64 / (20_000 * MS) as f64).collect()
}

#[test]
fn weights_hold_although_threads_are_told_of_when_they_run() {
    for name in ["credit", "flms"] {
        let shares = shares(name);
        // 4 CPUs of which 1, 2 and 4 parts of 7 are due.
        let due = [4.0 / 7.0, 8.0 / 7.0, 16.0 / 7.0];
        let off = shares.iter().zip(due).map(|(is, due)| (is - due).abs());
        assert!(
            off.fold(0.0, f64::max) < 0.25,
            "{name}: {shares:?} of {due:?}"
        );
    }
}
