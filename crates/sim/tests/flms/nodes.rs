// SPDX-License-Identifier: GPL-2.0-only
//! Machines of two memory nodes, for the rivals that choose one.
use crate::support::{Cast, Peek};
use crate::world::{BUSY, index_of, on_machine, peek, vm};
use berth_scenario::model::{Class, HostCost, Hz};
use berth_sim::machine::Shape;
use berth_sim::{MachineSpec, Simulation};

pub const FULL: u32 = 1_000_000;

/// A VM of hogs: how many vCPUs, the part of their time that they wait for memory, and the part of it on node 0, both
/// in parts per million.
#[derive(Clone, Copy, Debug)]
pub struct Hogs {
    pub vcpus: u32,
    pub stalled: u32,
    pub on_first: u32,
}

/// Two nodes with so many CPUs each, on which another node's memory takes half as long again; with counters.
pub fn two_nodes(
    policy: &str,
    cpus: u32,
    vms: &[Hogs],
    seed: u64,
    params: &[(&str, &str)],
) -> Box<Simulation<Cast>> {
    let mut cast = Cast::default();
    let mut specs = Vec::new();
    let mut spec = MachineSpec {
        hz: Hz::Exact,
        seed,
        cost: HostCost {
            pmu_noise_ppm: Some(0),
            remote_ppm: 3 * FULL / 2,
            ..HostCost::default()
        },
        ..MachineSpec::new(Shape {
            nodes: 2,
            packages: 2,
            ..Shape::flat(cpus)
        })
    };
    for (i, hogs) in (0..).zip(vms) {
        for vcpu in 0..hogs.vcpus {
            cast.vcpu(i, vcpu, 0, &BUSY);
            let script = cast.scripts.last_mut().unwrap();
            script.spec.phase.stalled = hogs.stalled;
        }
        specs.push(vm(i, Class::Batch, 100, hogs.vcpus));
        let parts = vec![hogs.on_first, FULL - hogs.on_first];
        spec.memory.insert(i, parts);
    }
    on_machine(policy, spec, &specs, cast, params)
}

/// Numbers in the policy's table of the vCPUs of VM number `vm`.
pub fn vcpus_of(p: &Peek, vm: u32) -> Vec<u32> {
    let all = index_of(p, vm)..p.var("vcpus_used") as u32;
    all.filter(|v| p.vcpu(*v, "slot") == u64::from(vm) + 1)
        .collect()
}

/// The node of each VM's first vCPU.
pub fn homes(m: &mut Simulation<Cast>, vms: u32) -> Vec<u32> {
    peek(m, |p| {
        let home = |vm| p.vcpu(index_of(p, vm), "home") as u32 - 1;
        (0..vms).map(home).collect()
    })
}

/// vCPUs of VMs on each node.
pub fn counts(m: &mut Simulation<Cast>, vms: u32) -> [u32; 2] {
    peek(m, |p| {
        let mut counts = [0; 2];
        for v in (0..vms).flat_map(|vm| vcpus_of(p, vm)) {
            counts[p.vcpu(v, "home") as usize - 1] += 1;
        }
        counts
    })
}

/// A counter of the policy.
pub fn counter(m: &mut Simulation<Cast>, name: &str) -> u64 {
    let k = m.kernel();
    let all = k.policy.instance().unwrap().counters();
    let found = all.into_iter().find(|(n, _)| n == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}
