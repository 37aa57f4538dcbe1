// SPDX-License-Identifier: GPL-2.0-only
//! Who the threads of a run are: their VMs and groups, by thread id.
use berth_scenario::model::Scenario;
use berth_scenario::placement::{self, HostThread};
use std::collections::BTreeMap;

/// One thread of the scenario.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// `web-2/0`.
    pub name: String,
    /// Position of its VM in [`Cast::vms`], or their number for a thread of the host.
    pub entry: u32,
}

/// All threads and VMs of a run.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    /// Names of the VMs, and the group of each.
    pub vms: Vec<(String, u32)>,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// By thread id.
    pub members: BTreeMap<u32, Member>,
    pub cpus: u32,
}

impl Cast {
    pub fn new(scenario: &Scenario, threads: &[(HostThread, i32)]) -> Cast {
        let vms: Vec<(String, u32)> = placement::instances(scenario)
            .into_iter()
            .map(|vm| (vm.name, vm.group as u32))
            .collect();
        let host = vms.len() as u32;
        let member = |(thread, tid): &(HostThread, i32)| {
            let entry = thread.vm.as_ref().map_or(host, |vm| vm.ordinal);
            let name = thread.name.clone();
            (tid.unsigned_abs(), Member { name, entry })
        };
        Cast {
            members: threads.iter().map(member).collect(),
            groups: scenario.vms.iter().map(|g| g.name.clone()).collect(),
            vms,
            cpus: scenario.host.nr_cpus(),
        }
    }

    /// Entry of the host's threads, and of everything outside the scenario.
    pub fn host(&self) -> u32 {
        self.vms.len() as u32
    }

    /// Group of an entry; the host's is the one after the last.
    pub fn group_of(&self, entry: u32) -> u32 {
        let vm = self.vms.get(entry as usize);
        vm.map_or(self.groups.len() as u32, |(_, group)| *group)
    }

    /// Name of a group, the host's included.
    pub fn group_name(&self, group: u32) -> &str {
        let name = self.groups.get(group as usize);
        name.map_or(berth_results::detail::HOST, String::as_str)
    }
}
