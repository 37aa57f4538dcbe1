// SPDX-License-Identifier: GPL-2.0-only
//! The agents of mixed VMs that have one ([`berth_mixed`]): what each remembers of the tasks of its guest. A task of
//! the scenario is a process there, with all its threads.
use super::api::{CpuId, MaskId, Nanos, VmId};
use super::threads::Threads;
use berth_mixed::{Side, Sorter};
use std::collections::BTreeMap;

/// By VM.
pub(super) struct Agents(Vec<Option<Agent>>);

/// The agent of a VM that runs.
pub(super) struct Agent {
    pub sorter: Sorter,
    /// The vCPUs that compute, and the reserved ones.
    pub compute: MaskId,
    pub reserved: MaskId,
    /// Where its timer fires.
    pub cpu: CpuId,
    /// Where threads of a program are born; not in here: where the scenario says.
    pub born: BTreeMap<u32, MaskId>,
    /// CPU time of threads that have ended, by program.
    pub ended_ns: BTreeMap<u32, Nanos>,
    /// Changes of side so far.
    pub moved: u64,
}

impl Agent {
    pub fn mask(&self, side: Side) -> MaskId {
        match side {
            Side::Compute => self.compute,
            Side::Reserved => self.reserved,
        }
    }
}

impl Agents {
    /// None has started.
    pub fn new(vms: usize) -> Agents {
        let mut none = Vec::new();
        none.resize_with(vms, || None);
        Agents(none)
    }

    pub fn start(&mut self, vm: VmId, agent: Agent) {
        self.0[vm as usize] = Some(agent);
    }

    pub fn stop(&mut self, vm: VmId) {
        self.0[vm as usize] = None;
    }

    pub fn get(&mut self, vm: VmId) -> Option<&mut Agent> {
        self.0.get_mut(vm as usize)?.as_mut()
    }

    /// Where a thread of a program is born, if the VM's agent has a say in it.
    pub fn mask(&self, home: u32, program: u32) -> Option<MaskId> {
        let agent = self.0.get(home as usize)?.as_ref()?;
        agent.born.get(&program).copied()
    }

    /// A thread, started as `host`, has ended and has had so much CPU time.
    pub fn ends(&mut self, home: u32, host: u32, threads: &Threads, ran_ns: Nanos) {
        if let Some(agent) = self.get(home) {
            let program = threads.hosts[host as usize].program;
            *agent.ended_ns.entry(program).or_default() += ran_ns;
        }
    }

    /// Changes of side so far, by VM; none: it has no agent now.
    pub fn moved(&self) -> Vec<Option<u64>> {
        self.0.iter().map(|a| Some(a.as_ref()?.moved)).collect()
    }
}
