// SPDX-License-Identifier: GPL-2.0-only
//! A CPU asks its policy at most 32 times in one pass for something to run. If each answer was for other CPUs, it
//! passes its scheduler again (the kernel kicks the CPU that runs the pass): else what waits for it would stay where it
//! is.
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
fn a_cpu_that_serves_others_for_32_rounds_comes_to_its_own_thread() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/hand_out.bpf.c");
    let policy = Policy::from_path(&path, &LoadOptions::default()).unwrap();
    for others in [1, 31, 32, 33, 64, 200] {
        // All but the last are bound to CPU 1; when the last one comes, CPU 0 hands them out.
        let mut cast = Cast::default();
        for i in 0..=others {
            cast.vcpu(0, i, 0, &[Action::ComputeForever]);
            cast.scripts[i as usize].spec.vm = None;
            cast.masks.push(vec![1]);
        }
        cast.scripts[others as usize].start_ns = MS;
        cast.masks[others as usize] = vec![0];
        let mut m = Simulation::new(&MachineSpec::new(Shape::flat(2)), &[], cast);
        let params = BTreeMap::from([("gate".to_string(), (others + 1).to_string())]);
        load_policy(&mut m, &policy, &params, &[], &Options::default()).unwrap();
        m.start();
        m.run_until(10 * MS).unwrap();
        m.check().unwrap();
        let busy = |cpu: u32| m.kernel().cpus[cpu as usize].since;
        assert_eq!([busy(0), busy(1)], [MS, MS], "{others} others");
        let first = [m.workload.ids[others as usize], m.workload.ids[0]];
        let runs = [0, 1].map(|cpu: u32| m.kernel().cpus[cpu as usize].curr);
        assert_eq!(runs, first, "{others} others");
    }
}
