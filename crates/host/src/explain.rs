// SPDX-License-Identifier: GPL-2.0-only
//! Everything that is known of one VM: the facts behind `berth explain`.
use crate::cgroup::{self, Share};
use crate::model::Vm;
use crate::name;
use crate::procfile::{cpu_list, cpu_text, status_value};
use crate::root::Root;
use crate::view::{View, VmView};
use serde::Serialize;
use std::collections::BTreeMap;

/// One VM, in depth.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    pub vm: VmView,
    pub share: Share,
    /// Threads by the CPUs they may run on: the CPUs as the kernel writes them, then the threads' ids.
    pub allowed: Vec<(String, Vec<i32>)>,
    /// What all VMs and the host together wanted, in CPUs: used, and waited for by VMs.
    pub wanted_cpus: f64,
    /// CPUs that are online.
    pub cpus: usize,
}

/// Collects what is known of a VM of `view`.
pub fn explain(root: &Root, view: &View, vm: &VmView) -> Explanation {
    let scope = name::scope(&vm.vm.cgroup).unwrap_or(&vm.vm.cgroup);
    let wants = |v: &VmView| v.rates.map_or(0.0, |r| r.cpus + r.waiting);
    Explanation {
        share: cgroup::share(root, scope),
        allowed: allowed(root, &vm.vm),
        wanted_cpus: view.vms.iter().map(wants).sum::<f64>() + view.host.cpus.unwrap_or(0.0),
        cpus: view.machine.cpus.len(),
        vm: vm.clone(),
    }
}

/// The VM of a name.
pub fn find<'a>(view: &'a View, name: &str) -> Option<&'a VmView> {
    let id = |v: &&VmView| v.vm.manager_id.as_deref() == Some(name) || v.vm.pid.to_string() == name;
    let exact = view.vms.iter().find(|v| v.vm.name == name);
    exact.or_else(|| view.vms.iter().find(id))
}

/// VMs that have this name in common, each told from the others by its process.
pub fn namesakes<'a>(view: &'a View, name: &str) -> Vec<&'a VmView> {
    let is = |v: &&VmView| v.vm.name.strip_suffix(&format!("@{}", v.vm.pid)) == Some(name);
    view.vms.iter().filter(is).collect()
}

fn allowed(root: &Root, vm: &Vm) -> Vec<(String, Vec<i32>)> {
    let mut groups: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    let Ok(proc) = root.proc() else {
        return Vec::new();
    };
    let mut buf = [0; 4096];
    for thread in &vm.threads {
        let path = format!("{}/task/{}/status", thread.id.pid, thread.id.tid);
        let cpus = proc.read_record(&path, &mut buf).ok();
        let cpus = cpus.and_then(|text| cpu_list(status_value(text, "Cpus_allowed_list")?));
        if let Some(cpus) = cpus {
            groups
                .entry(cpu_text(&cpus))
                .or_default()
                .push(thread.id.tid);
        }
    }
    groups.into_iter().collect()
}
