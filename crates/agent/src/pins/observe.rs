// SPDX-License-Identifier: GPL-2.0-only
//! What the planner is told of this host and its VMs.
use berth_affinity::{Cpu, Host, Irq, Part, Queue, Thread, Vm};
use berth_host::model::{self, Evidence, Role};
use berth_host::network::Networks;
use berth_host::root::Root;
use berth_host::{cgroup, explain, topology};
use berth_optimiser::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// The host; `taken`: how many that are not asked about are bound to a CPU.
pub fn host(root: &Root, busy: &BTreeMap<u32, f64>, taken: BTreeMap<u32, u32>) -> Host {
    let list = |file: &str| -> Option<CpuSet> { root.sys_text(file)?.parse().ok() };
    let isolated = list("devices/system/cpu/isolated");
    let cpu = |c: topology::CpuPlace| Cpu {
        cpu: c.cpu,
        core: c.core,
        l2: c.l2,
        llc: c.llc,
        node: c.node,
        capacity: c.capacity,
        isolated: isolated.as_ref().is_some_and(|i| i.has(c.cpu)),
        busy: busy.get(&c.cpu).copied().unwrap_or(0.0),
    };
    Host {
        cpus: topology::cpus(root).into_iter().map(cpu).collect(),
        taken,
        possible: possible(root),
    }
}

/// All CPUs that the machine has, online or not; none: not known.
pub fn possible(root: &Root) -> Option<CpuSet> {
    let list = |what: &str| -> Option<CpuSet> {
        root.sys_text(&format!("devices/system/cpu/{what}"))?
            .parse()
            .ok()
    };
    list("present").or_else(|| list("possible"))
}

fn part(thread: &model::Thread) -> Part {
    let of_kernel = thread.evidence == Evidence::KernelThread;
    match thread.role {
        Role::Vcpu(n) => Part::Vcpu(n),
        Role::Vhost => Part::Vhost,
        // Workers of io_uring are the kernel's to place; it takes no wishes for them.
        _ if thread.name.starts_with("iou-") || thread.name.starts_with("kvm-") => Part::Helper,
        Role::Other if of_kernel => Part::Helper,
        Role::Iothread => Part::Iothread,
        Role::Emulator | Role::Other => Part::Emulator,
    }
}

/// CPUs that others' VMs are bound to by one vCPU or more, and how many VMs: who has bound them is not asked.
pub fn taken<'a>(root: &Root, vms: impl Iterator<Item = &'a model::Vm>) -> BTreeMap<u32, u32> {
    let mut taken = BTreeMap::new();
    for vm in vms {
        let vcpus = vm.threads.iter();
        let vcpus = vcpus.filter(|t| matches!(t.role, Role::Vcpu(_)));
        let bound = vcpus.filter_map(|t| {
            let cpus = explain::may(root, t.id)?;
            cpus.first().copied().filter(|_| cpus.len() == 1)
        });
        for cpu in bound.collect::<BTreeSet<u32>>() {
            *taken.entry(cpu).or_default() += 1;
        }
    }
    taken
}

/// One VM, with its network. `was`: CPU sets of groups before they were set here ([`cgroup::cpus`]).
pub fn vm(
    root: &Root,
    vm: &model::Vm,
    networks: &Networks,
    online: Option<&CpuSet>,
    was: &dyn Fn(&str) -> Option<String>,
) -> Vm {
    let mut sets: BTreeMap<(i32, i32), Option<CpuSet>> = BTreeMap::new();
    let mut allowed = |id: &model::TaskId| {
        let read = || {
            let set = CpuSet::of(cgroup::cpus(root, id.pid, id.tid, was)?)?;
            // One that has all of them is none.
            let whole = online.is_some_and(|o| o.iter().all(|cpu| set.has(cpu)));
            (!whole).then_some(set)
        };
        sets.entry((id.pid, id.tid)).or_insert_with(read).clone()
    };
    let threads = vm.threads.iter().map(|t| Thread {
        tid: t.id.tid,
        part: part(t),
        in_process: t.id.pid == vm.pid,
        allowed: allowed(&t.id),
    });
    let threads = threads.collect();
    let mut found = Vm {
        name: vm.name.clone(),
        threads,
        ..Vm::default()
    };
    let Some(network) = networks.network(vm) else {
        return found;
    };
    let mut nodes = BTreeSet::new();
    for device in networks.path(network) {
        let users = networks.users.get(&device.name).copied().unwrap_or(1);
        nodes.extend(device.node);
        found.irqs.extend(device.irqs.iter().map(|i| Irq {
            irq: i.irq,
            device: device.name.clone(),
            queue: i.queue,
            managed: i.managed == Some(true),
            users,
        }));
        let settable = device
            .queues
            .iter()
            .filter(|q| q.mask.is_some() && device.index.is_some());
        found.queues.extend(settable.map(|q| Queue {
            device: device.name.clone(),
            name: q.name.clone(),
            users,
        }));
    }
    // Cards on several nodes: it is near none of them.
    found.node = nodes.first().copied().filter(|_| nodes.len() == 1);
    found
}
