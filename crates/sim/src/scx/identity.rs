// SPDX-License-Identifier: GPL-2.0-only
//! What Berth's loader tells a policy: who belongs to which VM, and the machine's shape. A policy takes part
//! by having the maps and variables of `policies/include/berth/`; others are left alone.
use super::kernel::Handle;
use crate::machine::Topology;
use crate::words::{TaskId, TaskSpec};
use berth_identity::{Class, JobRecord, MemoryRecord, ThreadRecord, VmId, VmRecord, record};
use berth_policy::instance::{Const, Instance, InstanceConfig};
use berth_policy::policy::Policy;

/// A VM as a policy is told.
#[derive(Clone, Debug, PartialEq)]
pub struct VmSpec {
    /// `web-2`; also the name of its cgroup.
    pub name: String,
    /// Number of its group, for statistics.
    pub group: u32,
    pub class: Class,
    /// cpu.weight, 1..=10000.
    pub weight: u32,
    /// In milli-CPUs.
    pub cap_milli: Option<u64>,
    pub vcpus: u32,
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// What a policy is told of a machine besides its topology.
pub struct Facts {
    pub vms: u32,
    pub cgroups: u32,
    /// Ticks a second; 0: slices end exactly.
    pub hz: u32,
    /// Slices end by a timer besides.
    pub slice_timer: bool,
    /// A tick, by the clock that policies read.
    pub tick_phase_ns: u64,
}

/// Sizes and constants that depend on the machine, before the instance is made.
pub fn prepare(config: &mut InstanceConfig, policy: &Policy, topo: &Topology, facts: &Facts) {
    let (cpus, llcs, nodes) = (topo.nr_cpus(), topo.llcs.len() as u32, topo.nr_nodes());
    for map in &policy.program().maps {
        let entries = match &map.name {
            n if n.ends_with("_by_cpu") => cpus,
            n if n.ends_with("_by_llc") => llcs,
            n if n.ends_with("_by_node") => nodes,
            n if n.ends_with("_by_vm") => facts.vms + 1,
            n if n.ends_with("_by_cgroup") => facts.cgroups,
            _ => continue,
        };
        config.map_entries.insert(map.name.clone(), entries);
    }
    let has = |name: &str| {
        let sections = &policy.program().sections;
        sections
            .iter()
            .any(|s| s.vars.iter().any(|v| v.name == name))
    };
    for (name, value) in [
        ("berth_nr_cpus", u64::from(cpus)),
        // What the loaders of the kernel's example schedulers set.
        ("nr_cpu_ids", u64::from(cpus)),
        ("berth_nr_llcs", u64::from(llcs)),
        ("berth_nr_nodes", u64::from(nodes)),
        ("berth_hz", u64::from(facts.hz)),
        ("berth_slice_timer", u64::from(facts.slice_timer)),
        ("berth_tick_phase_ns", facts.tick_phase_ns),
    ] {
        if has(name) {
            config
                .consts
                .insert(name.to_string(), Const::Int(value as i128));
        }
    }
}

/// The next CPU of a group after this one, around.
fn ring(group: &crate::machine::CpuMask, cpu: u32) -> u32 {
    let after = group.iter().find(|c| *c > cpu);
    after.or_else(|| group.first()).unwrap_or(cpu)
}

/// Fill the maps about the machine and its VMs; `cgroup_id`: of those with a cgroup of their own, the others are not
/// told. Errors: a map refuses an element.
pub fn fill(
    instance: &Instance,
    topo: &Topology,
    capacity: impl Fn(u32) -> u32,
    vms: &[VmSpec],
    cgroup_id: impl Fn(u32) -> Option<u64>,
    memory: impl Fn(u32) -> Option<MemoryRecord>,
) -> Result<(), String> {
    if let Some(map) = instance.map("berth_topology_by_cpu") {
        for cpu in 0..topo.nr_cpus() {
            let llc = &topo.llcs[topo.llc_of(cpu) as usize];
            let core = topo.siblings(cpu);
            let record = bytes(&[
                topo.llc_of(cpu),
                topo.node_of(cpu),
                core.first().unwrap_or(cpu),
                ring(llc, cpu),
                ring(core, cpu),
                capacity(cpu),
            ]);
            map.update(&cpu.to_ne_bytes(), &record, 0)
                .map_err(|e| format!("berth_topology_by_cpu refuses CPU {cpu} (error {e})"))?;
        }
    }
    if let Some(map) = instance.map(record::VMS) {
        for (i, vm) in vms.iter().enumerate() {
            let Some(id) = cgroup_id(i as u32) else {
                continue;
            };
            let record = VmRecord {
                slot: i as u32 + 1,
                generation: 1,
                class: vm.class,
                weight: vm.weight,
                cap_milli: vm.cap_milli.map(|c| c as u32),
                node: match memory(i as u32) {
                    Some(memory) => memory.only_node(),
                    None => (topo.nr_nodes() == 1).then_some(0),
                },
                vcpus: vm.vcpus,
            };
            let key = VmId::Cgroup(id).key();
            map.update(&key.to_ne_bytes(), &record.bytes(), 0)
                .map_err(|e| format!("berth_vms refuses VM {} (error {e})", vm.name))?;
        }
    }
    if let Some(map) = instance.map(record::MEMORY) {
        for (i, vm) in (0..).zip(vms) {
            let Some(memory) = cgroup_id(i).and_then(|_| memory(i)) else {
                continue;
            };
            let slot = i + 1;
            map.update(&slot.to_ne_bytes(), &memory.bytes(), 0)
                .map_err(|e| format!("{} refuses VM {} (error {e})", record::MEMORY, vm.name))?;
        }
    }
    Ok(())
}

impl Handle {
    /// Tell the policy what a new thread is, before it meets it.
    pub fn identify(self, task: TaskId, spec: &TaskSpec) {
        if let Some(job) = spec.told {
            self.tell_job(task, job);
        }
        let Some(map) = self.policy.instance().and_then(|i| i.map(record::THREADS)) else {
            return;
        };
        // Of a VM that is not told its threads are not either.
        if spec.vm.is_some_and(|vm| self.cgroups.shares(vm)) {
            return;
        }
        let record = ThreadRecord {
            role: spec.role,
            io: spec.io,
            score_milli: spec.score_milli,
        };
        let pid = self.tasks.ts(task).pid as u32;
        let scores = self.policy.instance().and_then(|i| i.map(record::SCORES));
        if let (Some(scores), Some(milli)) = (scores, record.score_milli)
            && let Err(e) = scores.update(&pid.to_ne_bytes(), &milli.to_ne_bytes(), 0)
        {
            self.scx_error(format!("berth_scores refuses thread {pid} (error {e})"));
        }
        if let Err(e) = map.update(&pid.to_ne_bytes(), &record.bytes(), 0) {
            self.scx_error(format!("berth_threads refuses thread {pid} (error {e})"));
        }
    }

    /// A thread has ended: what the policy was told of it is taken back, as the agent does on a host.
    pub fn forget(self, pid: i32) {
        let Some(instance) = self.policy.instance() else {
            return;
        };
        for map in [record::THREADS, record::SCORES, record::JOBS] {
            if let Some(map) = instance.map(map) {
                // Most have no record.
                let _ = map.delete(&pid.to_ne_bytes());
            }
        }
    }

    /// Tell the policy how much CPU time the job takes that a thread begins with.
    pub fn tell_job(self, task: TaskId, job: JobRecord) {
        let Some(map) = self.policy.instance().and_then(|i| i.map(record::JOBS)) else {
            return;
        };
        let pid = self.tasks.ts(task).pid as u32;
        if let Err(e) = map.update(&pid.to_ne_bytes(), &job.bytes(), 0) {
            self.scx_error(format!("berth_jobs refuses thread {pid} (error {e})"));
        }
    }
}
