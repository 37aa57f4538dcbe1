// SPDX-License-Identifier: GPL-2.0-only
//! A CPU that is not there ejects the policy that names it, whichever function it tells, and does nothing else.
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
/// As many as the policy has cases.
const CALLS: u32 = 10;
/// `scx_bpf_cpuperf_set`, which refuses any CPU but the one whose queue is locked.
const PERF_SET: u32 = 6;

/// Why the policy was ejected, if it was.
fn ejected(policy: &Policy, call: u32, cpu: u32) -> Option<String> {
    let mut cast = Cast::default();
    // More than CPUs: whoever finds an idle one is not queued.
    for i in 0..4 {
        cast.vcpu(0, i, 0, &[Action::ComputeForever]);
        cast.scripts[i as usize].spec.vm = None;
    }
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(2)), &[], cast);
    let params = [("call", call), ("cpu", cpu)];
    let params: BTreeMap<String, String> = params
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into();
    load_policy(&mut m, policy, &params, &[], &Options::default()).unwrap();
    m.start();
    let ran = m.run_until(50 * MS);
    m.check().unwrap();
    ran.err().map(|e| e.to_string())
}

#[test]
fn a_cpu_that_is_not_there_ejects_the_policy() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/wrong_cpu.bpf.c");
    let policy = Policy::from_path(&path, &LoadOptions::default()).unwrap();
    for call in 0..CALLS {
        for cpu in [0, 1] {
            let said = ejected(&policy, call, cpu);
            assert!(
                said.is_none() || call == PERF_SET,
                "call {call}, CPU {cpu}: {said:?}"
            );
        }
        // Of a CPU's own queue the kernel reads 32 bits, too.
        for cpu in [2, 64, i32::MAX as u32, i32::MIN as u32, u32::MAX] {
            let said = ejected(&policy, call, cpu).unwrap_or_default();
            let named = format!("invalid CPU {}", cpu as i32);
            assert!(said.contains(&named), "call {call}, CPU {cpu}: {said}");
        }
    }
}
