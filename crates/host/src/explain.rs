// SPDX-License-Identifier: GPL-2.0-only
//! Everything that is known of one VM: the facts behind `berth explain`.
use crate::cgroup::{self, Share};
use crate::model::{Role, Snapshot, TaskId, Vm};
use crate::name;
use crate::network::{self, Network};
use crate::procfile::{cpu_list, cpu_text, status_value};
use crate::root::Root;
use crate::view::{View, VmView};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    /// Where its vCPUs may not run on all of them.
    pub bound: Option<Bound>,
    /// What of its network path is not looked into, a sentence each: by [`network()`], if somebody asks.
    pub network: Vec<String>,
}

/// CPUs that a VM's vCPUs are bound to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// As the kernel writes them, and how many.
    pub to: String,
    pub cpus: usize,
    /// What the VMs that may run nowhere else wanted of them, this one among them, in CPUs.
    pub wanted_cpus: f64,
    /// The others of these, who want most first.
    pub with: Vec<String>,
}

/// Collects what is known of a VM of `view`.
pub fn explain(root: &Root, view: &View, vm: &VmView) -> Explanation {
    let scope = name::scope(&vm.vm.cgroup).unwrap_or(&vm.vm.cgroup);
    Explanation {
        share: cgroup::share(root, scope),
        allowed: allowed(root, &vm.vm),
        wanted_cpus: view.vms.iter().map(wants).sum::<f64>() + view.host.cpus.unwrap_or(0.0),
        cpus: view.machine.cpus.len(),
        bound: bound(root, view, vm),
        network: Vec::new(),
        vm: vm.clone(),
    }
}

/// What of a VM's network path is not looked into.
pub fn network(root: &Root, vm: &Vm) -> Vec<String> {
    let one = Snapshot {
        vms: vec![Arc::new(vm.clone())],
        ..Snapshot::default()
    };
    let networks = network::of(root, &one);
    networks.network(vm).map_or(Vec::new(), Network::not_seen)
}

fn bound(root: &Root, view: &View, vm: &VmView) -> Option<Bound> {
    let online: BTreeSet<u32> = view.machine.cpus.iter().copied().collect();
    let to: BTreeSet<u32> = vcpus_may(root, &vm.vm)?
        .intersection(&online)
        .copied()
        .collect();
    if to.is_empty() || to.len() == online.len() {
        return None;
    }
    let nowhere_else = |v: &&VmView| {
        let may = vcpus_may(root, &v.vm);
        may.is_some_and(|may| may.intersection(&online).all(|cpu| to.contains(cpu)))
    };
    let mut there: Vec<&VmView> = view.vms.iter().filter(nowhere_else).collect();
    there.sort_by(|a, b| wants(b).total_cmp(&wants(a)));
    let others = there.iter().filter(|v| v.vm.pid != vm.vm.pid);
    Some(Bound {
        to: cpu_text(&to.iter().copied().collect::<Vec<_>>()),
        cpus: to.len(),
        wanted_cpus: there.iter().map(|v| wants(v)).sum(),
        with: others.map(|v| v.vm.name.clone()).collect(),
    })
}

/// What a VM wanted, in CPUs: used, and waited for.
fn wants(vm: &VmView) -> f64 {
    vm.rates.map_or(0.0, |r| r.cpus + r.waiting)
}

/// The CPUs that any of its vCPUs may run on; none: they are not known.
fn vcpus_may(root: &Root, vm: &Vm) -> Option<BTreeSet<u32>> {
    let vcpus = vm
        .threads
        .iter()
        .filter(|t| matches!(t.role, Role::Vcpu(_)));
    let mut all = BTreeSet::new();
    for thread in vcpus {
        all.extend(may(root, thread.id)?);
    }
    (!all.is_empty()).then_some(all)
}

/// CPUs that a thread may run on, by its affinity and its cgroup; none: it cannot be seen.
pub fn may(root: &Root, thread: TaskId) -> Option<Vec<u32>> {
    let mut buf = [0; 4096];
    let path = format!("{}/task/{}/status", thread.pid, thread.tid);
    let text = root.proc().ok()?;
    let text = text.read_record(&path, &mut buf).ok()?;
    cpu_list(status_value(text, "Cpus_allowed_list")?)
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
    for thread in &vm.threads {
        if let Some(cpus) = may(root, thread.id) {
            groups
                .entry(cpu_text(&cpus))
                .or_default()
                .push(thread.id.tid);
        }
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Rates;
    use crate::fixture::Fixture;
    use std::time::Duration;

    #[test]
    fn a_vm_that_is_bound_and_who_is_bound_with_it() {
        // Each with its one vCPU on these CPUs.
        let vm = |pid: i32, name: &str, cpus: &str| {
            let tid = pid + 1;
            format!(
                "process {pid} lkvm\nargs lkvm run --name {name}\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n\
                 thread {tid} kvm-vcpu-0 run=4\n\
                 file proc/{pid}/task/{tid}/status \"Tgid:\\x09{pid}\\nCpus_allowed_list:\\x09{cpus}\\n\"\n"
            )
        };
        let host = [
            vm(10, "web", "1-2"),
            vm(20, "small", "2"),
            vm(30, "large", "1,2"),
            vm(40, "wide", "0-2"),
            vm(50, "all", "0-7"),
            "file sys/devices/system/cpu/online 0-3\n".into(),
        ]
        .concat();
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(&host)
            .unwrap()
            .unpack(folder.path())
            .unwrap();
        let root = Root::at(folder.path());
        let mut view = crate::view::look(&root, Duration::from_millis(1)).unwrap();
        for (vm, cpus) in view.vms.iter_mut().zip([0.5, 0.25, 0.75, 1.0, 1.0]) {
            vm.rates = Some(Rates {
                cpus,
                waiting: 0.25,
                stays_per_s: 1.0,
            });
        }
        let bound = |name: &str| explain(&root, &view, find(&view, name).unwrap()).bound;
        let wants = |name: &str| super::wants(find(&view, name).unwrap());
        assert_eq!(
            bound("web"),
            Some(Bound {
                to: "1-2".into(),
                cpus: 2,
                wanted_cpus: wants("web") + wants("small") + wants("large"),
                with: match wants("small") > wants("large") {
                    true => vec!["small".into(), "large".into()],
                    false => vec!["large".into(), "small".into()],
                },
            })
        );
        assert_eq!(bound("small").unwrap().with, Vec::<String>::new());
        assert_eq!(bound("wide").unwrap().to, "0-2");
        assert_eq!(bound("all"), None, "it may run on all that are online");
    }
}
