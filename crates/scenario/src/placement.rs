// SPDX-License-Identifier: GPL-2.0-only
//! Which host threads a scenario has: the one rule that the simulator and the load generator share.
//!
//! Where there is no guest level (a vCPU is not the CPU of a guest machine with a scheduler of its own: a place that
//! has none, or a VM with `guest = "none"`), a VM's task threads are folded onto its vCPU threads:
//!
//! 1. A task that waits for messages (its first step is `receive`) is a *pool*. Its threads serve one
//!    FIFO queue per VM and queue name; each vCPU thread that serves pools takes the message that has
//!    waited longest in any of its queues and runs that task's other steps to completion before it
//!    takes the next.
//! 2. Any other task has one vCPU thread for each of its threads (`threads`, or one per vCPU), dealt in
//!    the order of the VM's task list; the last, reserved vCPUs of a mixed VM (those do the I/O) come last. Two
//!    such threads on one vCPU would need a guest scheduler, and are refused.
//! 3. Pools are served by the vCPUs that rule 2 left, each pool by the first `threads` of them
//!    (by all, if it has more threads); in a mixed VM its reserved vCPUs come first.
//! 4. vCPUs with nothing to do have no thread.
//!
//! Host tasks (`host.tasks`) have `threads` threads of their own (default 1), outside any VM.
use crate::model::{Class, Scenario, Step, Task, Vm};
use crate::step::{Folds, Named};
use berth_identity::Role;
use std::collections::BTreeMap;

/// One VM of a group (`web-2` of `[vm.web]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmInstance {
    /// Position of the group in [`Scenario::vms`].
    pub group: usize,
    /// 0-based number inside the group.
    pub index: u32,
    /// 0-based number over all VM instances of the scenario, in file order.
    pub ordinal: u32,
    /// `web` if the group has one VM, else `web-1`, `web-2`, ...
    pub name: String,
}

/// What a host thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// The steps of this task, over and over.
    Task(String),
    /// Serves the queues of these tasks, whichever message is oldest (ties: the task named first).
    Pools(Vec<String>),
}

/// One thread of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostThread {
    /// `web-1/0` (VM and vCPU), `logger/0` (host task and thread number).
    pub name: String,
    /// `None` for host tasks.
    pub vm: Option<VmInstance>,
    pub role: Role,
    pub work: Work,
    /// Host CPUs it may use; empty = all.
    pub affinity: Vec<u32>,
    pub nice: i32,
    /// cgroup `cpu.weight` of its whole VM (100 for host tasks, which have no cgroup of their own).
    pub weight: u32,
    /// cgroup below the run's root, `web-1` or the one it shares; empty = the root itself.
    pub cgroup: String,
    /// When its VM starts and, if it does, stops, in nanoseconds after the start of the run.
    pub start_ns: u64,
    pub stop_ns: Option<u64>,
}

/// Why a scenario cannot be folded onto vCPU threads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("{place} names the task `{task}`, which the scenario does not have: add [task.{task}]")]
    UnknownTask { place: String, task: String },
    #[error(
        "task `{task}` of vm.{vm}: its {threads} threads find {free} of {vcpus} vCPUs free; several \
         threads on one vCPU need a scheduler inside the VM"
    )]
    TooManyThreads {
        vm: String,
        task: String,
        threads: u32,
        free: u32,
        vcpus: u32,
    },
    #[error(
        "task `{task}` of vm.{vm} receives requests, but the VM's other tasks hold all of its {vcpus} \
         vCPUs; sharing one needs a scheduler inside the VM"
    )]
    NoVcpuForPool {
        vm: String,
        task: String,
        vcpus: u32,
    },
    #[error(
        "task `{task}`: `receive` must be its first step and occur once, a second wait inside a request needs a \
         scheduler inside the VM"
    )]
    ReceiveInside { task: String },
    #[error(
        "task `{task}` of vm.{vm} sleeps while it serves a request and has more threads ({threads}) than \
         the VM has vCPUs for it ({free}); that needs a scheduler inside the VM"
    )]
    SleepingPool {
        vm: String,
        task: String,
        threads: u32,
        free: u32,
    },
    #[error(
        "tasks `{first}` and `{second}` of vm.{vm} serve requests on the same vCPUs with different nice or affinity; \
         that needs a scheduler inside the VM"
    )]
    MixedPools {
        vm: String,
        first: String,
        second: String,
    },
    #[error(
        "task `{from}` sends to `{to}`, which no task receives: name a task or queue that some task receives on"
    )]
    NobodyReceives { from: String, to: String },
    #[error(
        "task `{task}` begins with `first` steps and then serves requests with other tasks' vCPUs; that needs the \
         guest level: leave `guest = \"none\"` out"
    )]
    FirstOfPool { task: String },
    #[error("task `{task}` uses disk `{disk}`, which the scenario does not have")]
    NoSuchDisk { task: String, disk: String },
    #[error("{0}")]
    Disk(String),
    #[error("{what}")]
    Sync { task: String, what: String },
    #[error("{0}")]
    Network(String),
    #[error("client `{client}` sends to vm.{vm}, where no task has the step `receive {client}`")]
    ClientUnheard { client: String, vm: String },
}

/// The queue a pool task serves; `None` for other tasks.
pub fn pool_queue(task: &Task) -> Option<&str> {
    task.steps.first().and_then(Step::takes)
}

/// All VM instances, in file order.
pub fn instances(scenario: &Scenario) -> Vec<VmInstance> {
    let mut all = Vec::new();
    for (group, vm) in scenario.vms.iter().enumerate() {
        for index in 0..vm.count {
            let name = if vm.count == 1 {
                vm.name.clone()
            } else {
                format!("{}-{}", vm.name, index + 1)
            };
            all.push(VmInstance {
                group,
                index,
                ordinal: all.len() as u32,
                name,
            });
        }
    }
    all
}

/// Who reads or writes a disk, itself or by threads that it starts: ordinals of VMs, and the number of VMs for the
/// host's own tasks. In this order their files lie on the disk.
pub fn users_of_disk(scenario: &Scenario, disk: &str) -> Vec<u32> {
    let uses = |tasks: &[String]| {
        let mut open: Vec<&String> = tasks.iter().collect();
        let mut seen: Vec<&String> = Vec::new();
        while let Some(name) = open.pop() {
            let Some((name, task)) = scenario.tasks.get_key_value(name) else {
                continue;
            };
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            for step in task.first.iter().chain(&task.steps) {
                if step.named() == Named::Disk(disk) {
                    return true;
                }
                if let Named::Starts(child) = step.named() {
                    open.extend(scenario.tasks.get_key_value(child).map(|(name, _)| name));
                }
            }
        }
        false
    };
    let groups: Vec<bool> = scenario.vms.iter().map(|vm| uses(&vm.tasks)).collect();
    let vms = instances(scenario);
    let host = uses(&scenario.host.tasks).then_some(vms.len() as u32);
    let vms = vms
        .iter()
        .filter(|vm| groups[vm.group])
        .map(|vm| vm.ordinal);
    vms.chain(host).collect()
}

/// By VM instance: the one (by ordinal) whose locks, barriers, events and pools of work its threads share. VMs without
/// a guest that share a cgroup are threads of one process: the first of them has all of that; else each has its own.
pub fn meeting_places(scenario: &Scenario) -> Vec<u32> {
    let mut first: BTreeMap<&str, u32> = BTreeMap::new();
    let of = |instance: VmInstance| match shared(&scenario.vms[instance.group]) {
        Some(cgroup) => *first.entry(cgroup).or_insert(instance.ordinal),
        None => instance.ordinal,
    };
    instances(scenario).into_iter().map(of).collect()
}

/// The cgroup that a VM without a guest shares with others.
pub fn shared(vm: &Vm) -> Option<&str> {
    vm.cgroup.as_deref().filter(|_| vm.guest.is_none())
}

/// What is said of results where a policy is told of VMs, and of some it is not.
pub const SHARED_NOTE: &str = "threads that stand in for VMs and share a cgroup are not told to the policy: they \
                               count as the host's";

/// cgroup of a VM below the run's root.
pub fn cgroup_of(vm: &Vm, instance: &VmInstance) -> String {
    vm.cgroup.clone().unwrap_or_else(|| instance.name.clone())
}

/// Checks everything that names something, and that every VM without a guest (`guest = "none"`) can be folded.
///
/// # Errors
/// What does not fit together.
pub fn check(scenario: &Scenario) -> Result<(), PlacementError> {
    names(scenario)?;
    for vm in scenario.vms.iter().filter(|vm| vm.guest.is_none()) {
        for name in &vm.tasks {
            foldable(find(scenario, &format!("vm.{}", vm.name), name)?)?;
        }
        fold(scenario, vm)?;
    }
    for name in &scenario.host.tasks {
        foldable(find(scenario, "host.tasks", name)?)?;
    }
    Ok(())
}

/// Forks, messages and clients lead somewhere.
fn names(scenario: &Scenario) -> Result<(), PlacementError> {
    crate::sync::check(scenario).map_err(|(task, what)| PlacementError::Sync { task, what })?;
    for task in scenario.tasks.values() {
        for step in task.first.iter().chain(&task.steps) {
            if let Some(name) = step.starts() {
                find(scenario, &format!("`fork` in task.{}", task.name), name)?;
            }
            if let Named::Disk(disk) = step.named()
                && !scenario.disks.iter().any(|d| d.name == disk)
            {
                let (task, disk) = (task.name.clone(), disk.to_string());
                return Err(PlacementError::NoSuchDisk { task, disk });
            }
            if let Some(to) = step
                .sends_to()
                .filter(|to| queue_of(scenario, to).is_none())
            {
                return Err(PlacementError::NobodyReceives {
                    from: task.name.clone(),
                    to: to.to_string(),
                });
            }
        }
    }
    for client in &scenario.clients {
        let vm = scenario.vms.iter().find(|vm| vm.name == client.to);
        let hears = |name: &String| {
            scenario
                .tasks
                .get(name)
                .is_some_and(|task| receives(task, &client.name))
        };
        if !vm.is_some_and(|vm| vm.tasks.iter().any(hears)) {
            let (client, vm) = (client.name.clone(), client.to.clone());
            return Err(PlacementError::ClientUnheard { client, vm });
        }
    }
    Ok(())
}

/// What no folded task may have: a second wait for messages, or steps before those of a pool.
fn foldable(task: &Task) -> Result<(), PlacementError> {
    let waits = (task.steps.iter()).filter(|s| s.folds() == Folds::AtTheFront);
    let pool = pool_queue(task).is_some();
    if waits.count() > usize::from(pool) {
        return Err(PlacementError::ReceiveInside {
            task: task.name.clone(),
        });
    }
    if pool && !task.first.is_empty() {
        return Err(PlacementError::FirstOfPool {
            task: task.name.clone(),
        });
    }
    Ok(())
}

/// The task waits for messages on this queue, at whichever of its steps.
pub fn receives(task: &Task, queue: &str) -> bool {
    task.steps.iter().any(|step| step.takes() == Some(queue))
}

/// The host threads of a scenario, all VMs folded: VMs in file order, vCPUs ascending, then the host's own tasks.
/// The position in this list is the thread's ordinal (see [`crate::dist::Stream`]).
pub fn threads(scenario: &Scenario) -> Result<Vec<HostThread>, PlacementError> {
    for task in scenario.tasks.values() {
        foldable(task)?;
    }
    threads_where(scenario, &|_| false)
}

/// As [`threads`], where VMs of these groups (by position) have the guest level: their threads are the tasks inside,
/// in the order of the VM's list, each with its `threads` (or one per vCPU). They have no vCPU of their own; their
/// affinity is to CPUs of the guest. In a mixed VM, tasks whose affinity is not said run on the reserved vCPUs if they
/// wait for messages, and on the others if they do not (FLMS section 3.1; specification, decision D14). Where an agent
/// moves light tasks of users, those start on the others all the same.
///
/// # Errors
/// What cannot be folded, and what leads nowhere.
pub fn threads_where(
    scenario: &Scenario,
    inside: &dyn Fn(usize) -> bool,
) -> Result<Vec<HostThread>, PlacementError> {
    let mut all = Vec::new();
    names(scenario)?;
    for instance in instances(scenario) {
        let vm = &scenario.vms[instance.group];
        if inside(instance.group) {
            for name in &vm.tasks {
                let task = find(scenario, &format!("vm.{}", vm.name), name)?;
                if task.per_request {
                    continue;
                }
                for i in 0..task.threads.unwrap_or(vm.vcpus) {
                    let work = match pool_queue(task) {
                        Some(_) => Work::Pools(vec![name.clone()]),
                        None => Work::Task(name.clone()),
                    };
                    all.push(HostThread {
                        name: format!("{name}/{i}"),
                        vm: Some(instance.clone()),
                        role: Role::Other,
                        work,
                        affinity: affinity_inside(vm, task),
                        nice: task.nice,
                        weight: vm.weight,
                        cgroup: cgroup_of(vm, &instance),
                        start_ns: vm.start_ns,
                        stop_ns: vm.stop_ns,
                    });
                }
            }
            continue;
        }
        for name in &vm.tasks {
            foldable(find(scenario, &format!("vm.{}", vm.name), name)?)?;
        }
        for (vcpu, work) in fold(scenario, vm)? {
            let first = match &work {
                Work::Task(name) => name,
                Work::Pools(names) => &names[0],
            };
            let task = &scenario.tasks[first];
            all.push(HostThread {
                name: format!("{}/{vcpu}", instance.name),
                vm: Some(instance.clone()),
                role: Role::Vcpu(vcpu),
                affinity: own_or(&task.affinity, affinity_of(scenario, vm, vcpu)),
                nice: (vm.nice + task.nice).clamp(-20, 19),
                work,
                weight: vm.weight,
                cgroup: cgroup_of(vm, &instance),
                start_ns: vm.start_ns,
                stop_ns: vm.stop_ns,
            });
        }
    }
    for name in &scenario.host.tasks {
        let task = find(scenario, "host.tasks", name)?;
        if task.per_request {
            continue;
        }
        for i in 0..task.threads.unwrap_or(1) {
            let work = match pool_queue(task) {
                Some(_) => Work::Pools(vec![name.clone()]),
                None => Work::Task(name.clone()),
            };
            all.push(HostThread {
                name: format!("{name}/{i}"),
                vm: None,
                role: Role::Other,
                work,
                affinity: task.affinity.clone(),
                nice: task.nice,
                weight: 100,
                cgroup: String::new(),
                start_ns: 0,
                stop_ns: None,
            });
        }
    }
    Ok(all)
}

/// The VM that a forked task's thread belongs to, where it is not the parent's: both have no guest and share a cgroup,
/// and only the other one has the task in its list.
fn home_of_child(scenario: &Scenario, parent: &VmInstance, task: &str) -> Option<VmInstance> {
    let has = |vm: &Vm| vm.tasks.iter().any(|name| name == task);
    let own = &scenario.vms[parent.group];
    let cgroup = shared(own).filter(|_| !has(own))?;
    let with_it = |vm: &Vm| shared(vm) == Some(cgroup) && has(vm);
    let mut all = instances(scenario).into_iter();
    all.find(|instance| with_it(&scenario.vms[instance.group]))
}

/// The thread that `Fork(task)` starts: one more thread of the parent's VM, with the parent's role and
/// vCPU index (identity is inherited), the child task's nice and affinity. Among VMs without a guest that share a
/// cgroup it is one of the VM that has the task in its list.
pub fn forked(
    scenario: &Scenario,
    parent: &HostThread,
    task: &str,
) -> Result<HostThread, PlacementError> {
    let child = find(scenario, &format!("`fork` in {}", parent.name), task)?;
    let own = parent.vm.as_ref();
    let other = own.and_then(|own| home_of_child(scenario, own, task));
    let role = match &other {
        Some(_) => Role::Vcpu(0),
        None => parent.role,
    };
    let home = other.or_else(|| parent.vm.clone());
    // Inside a guest, the VM's own nice and affinity are not the task's.
    let folded = home.as_ref().filter(|_| parent.role.vcpu().is_some());
    let vm = folded.map(|v| &scenario.vms[v.group]);
    let affinity = match (&home, vm) {
        (Some(inside), None) => affinity_inside(&scenario.vms[inside.group], child),
        _ => {
            let vcpu = parent.role.vcpu().unwrap_or(0);
            own_or(
                &child.affinity,
                vm.map_or(&[], |v| affinity_of(scenario, v, vcpu)),
            )
        }
    };
    let work = match pool_queue(child) {
        Some(_) => Work::Pools(vec![task.to_string()]),
        None => Work::Task(task.to_string()),
    };
    Ok(HostThread {
        name: format!("{}+{task}", parent.name),
        work,
        affinity,
        nice: (vm.map_or(0, |v| v.nice) + child.nice).clamp(-20, 19),
        vm: home,
        role,
        ..parent.clone()
    })
}

/// The threads that requests start: per VM instance, in order, and per task of it that has one for each request, what
/// such a thread is. Without a guest (`inside` is false of its group) it is a thread of the host that is no vCPU's.
/// Then the same of the host's own tasks, which are in no VM.
pub fn per_request(scenario: &Scenario, inside: &dyn Fn(usize) -> bool) -> Vec<HostThread> {
    let of = |name: &String| scenario.tasks.get(name).filter(|task| task.per_request);
    let mut all = Vec::new();
    for instance in instances(scenario) {
        let vm = &scenario.vms[instance.group];
        let inside = inside(instance.group);
        for task in vm.tasks.iter().filter_map(of) {
            all.push(HostThread {
                name: task.name.clone(),
                vm: Some(instance.clone()),
                role: Role::Other,
                work: Work::Pools(vec![task.name.clone()]),
                affinity: match inside {
                    true => affinity_inside(vm, task),
                    false => own_or(&task.affinity, &vm.affinity),
                },
                nice: (task.nice + if inside { 0 } else { vm.nice }).clamp(-20, 19),
                weight: vm.weight,
                cgroup: cgroup_of(vm, &instance),
                start_ns: vm.start_ns,
                stop_ns: vm.stop_ns,
            });
        }
    }
    for task in scenario.host.tasks.iter().filter_map(of) {
        all.push(HostThread {
            name: task.name.clone(),
            vm: None,
            role: Role::Other,
            work: Work::Pools(vec![task.name.clone()]),
            affinity: task.affinity.clone(),
            nice: task.nice,
            weight: 100,
            cgroup: String::new(),
            start_ns: 0,
            stop_ns: None,
        });
    }
    all
}

/// The queue that `send TO` and a client named `TO` mean: of the task of that name, else the queue
/// itself. `None` if no task receives on it.
pub fn queue_of<'a>(scenario: &'a Scenario, to: &str) -> Option<&'a str> {
    let first = |task: &'a Task| task.steps.iter().find_map(Step::takes);
    let named = scenario.tasks.get(to).and_then(first);
    named.or_else(|| {
        let mut steps = scenario.tasks.values().flat_map(|task| &task.steps);
        steps.find_map(|step| step.takes().filter(|queue| *queue == to))
    })
}

/// Which VM instance (`None` = host) gets a message that a thread of `from` sends to `queue`: its own if
/// one of its tasks receives there; else the first VM group that does (instance number of the sender,
/// wrapped around), else the host. `None` outside if nobody receives.
pub fn receiver(
    scenario: &Scenario,
    from: Option<&VmInstance>,
    queue: &str,
) -> Option<Option<u32>> {
    let serves = |names: &[String]| {
        names
            .iter()
            .any(|n| scenario.tasks.get(n).is_some_and(|t| receives(t, queue)))
    };
    match from {
        Some(vm) if serves(&scenario.vms[vm.group].tasks) => return Some(Some(vm.ordinal)),
        None if serves(&scenario.host.tasks) => return Some(None),
        _ => (),
    }
    let mut first = 0;
    for vm in &scenario.vms {
        if vm.count > 0 && serves(&vm.tasks) {
            return Some(Some(first + from.map_or(0, |f| f.index % vm.count)));
        }
        first += vm.count;
    }
    serves(&scenario.host.tasks).then_some(None)
}

fn find<'a>(scenario: &'a Scenario, place: &str, task: &str) -> Result<&'a Task, PlacementError> {
    scenario
        .tasks
        .get(task)
        .ok_or_else(|| PlacementError::UnknownTask {
            place: place.into(),
            task: task.into(),
        })
}

/// Host CPUs of a vCPU's thread; empty = all.
fn affinity_of<'a>(scenario: &Scenario, vm: &'a Vm, vcpu: u32) -> &'a [u32] {
    let others = scenario.net.threads_per_vm();
    match others + vcpu < vm.bound(others + vm.vcpus) {
        true => &vm.affinity,
        false => &[],
    }
}

/// Host CPUs of the thread that moves a VM's packets; empty = all.
pub fn backend_affinity(vm: &Vm) -> &[u32] {
    match vm.backend_affinity.is_empty() {
        true if vm.bound(1 + vm.vcpus) == 0 => &[],
        true => &vm.affinity,
        false => &vm.backend_affinity,
    }
}

fn own_or(own: &[u32], other: &[u32]) -> Vec<u32> {
    if own.is_empty() {
        other.to_vec()
    } else {
        own.to_vec()
    }
}

/// CPUs of its guest that a task may use; empty = all.
fn affinity_inside(vm: &Vm, task: &Task) -> Vec<u32> {
    let waits = task.steps.iter().any(|s| s.takes().is_some());
    // A user's starts where tasks compute, and is moved if it is light.
    let moves = vm.guest_agent && task.uid >= berth_mixed::Settings::default().uid_from;
    match vm.class {
        // What takes requests is where their interrupts go.
        _ if vm.turbo_vcpus > 0 && waits && !moves => (vm.vcpus..vm.all_vcpus()).collect(),
        Class::Mixed if !task.affinity.is_empty() => task.affinity.clone(),
        Class::Mixed if waits && !moves => (vm.compute_vcpus()..vm.vcpus).collect(),
        Class::Mixed => (0..vm.compute_vcpus()).collect(),
        _ if vm.turbo_vcpus > 0 && task.affinity.is_empty() => (0..vm.vcpus).collect(),
        _ => task.affinity.clone(),
    }
}

/// Rules 1 to 4 for one VM: its busy vCPUs and their work.
fn fold(scenario: &Scenario, vm: &Vm) -> Result<Vec<(u32, Work)>, PlacementError> {
    let mut work: Vec<Option<Work>> = vec![None; vm.all_vcpus() as usize];
    let mut free: Vec<u32> = (0..vm.vcpus).collect();
    let mut pools = Vec::new();
    for name in &vm.tasks {
        let task = find(scenario, &format!("vm.{}", vm.name), name)?;
        if task.per_request {
            continue;
        }
        if pool_queue(task).is_some() {
            pools.push(task);
            continue;
        }
        let threads = task.threads.unwrap_or(vm.vcpus);
        if threads as usize > free.len() {
            return Err(PlacementError::TooManyThreads {
                vm: vm.name.clone(),
                task: name.clone(),
                threads,
                free: free.len() as u32,
                vcpus: vm.vcpus,
            });
        }
        for vcpu in free.drain(..threads as usize) {
            work[vcpu as usize] = Some(Work::Task(name.clone()));
        }
    }
    if vm.turbo_vcpus > 0 {
        free = (vm.vcpus..vm.all_vcpus()).collect();
    }
    // Reserved vCPUs serve first.
    free.sort_unstable_by_key(|&vcpu| (!vm.is_reserved(vcpu), vcpu));
    for pool in pools {
        let threads = pool.threads.unwrap_or(vm.vcpus);
        if free.is_empty() {
            let (vm, vcpus) = (vm.name.clone(), vm.vcpus);
            return Err(PlacementError::NoVcpuForPool {
                vm,
                task: pool.name.clone(),
                vcpus,
            });
        }
        let sleeps = pool.steps.iter().any(|s| s.folds() == Folds::Asleep);
        if sleeps && threads as usize > free.len() {
            let (vm, free) = (vm.name.clone(), free.len() as u32);
            return Err(PlacementError::SleepingPool {
                vm,
                task: pool.name.clone(),
                threads,
                free,
            });
        }
        for vcpu in free.iter().take(threads as usize) {
            match &mut work[*vcpu as usize] {
                Some(Work::Pools(names)) => {
                    let first = &scenario.tasks[&names[0]];
                    if (first.nice, &first.affinity) != (pool.nice, &pool.affinity) {
                        let (vm, first, second) =
                            (vm.name.clone(), names[0].clone(), pool.name.clone());
                        return Err(PlacementError::MixedPools { vm, first, second });
                    }
                    names.push(pool.name.clone());
                }
                slot => *slot = Some(Work::Pools(vec![pool.name.clone()])),
            }
        }
    }
    Ok(work
        .into_iter()
        .enumerate()
        .filter_map(|(i, w)| w.map(|w| (i as u32, w)))
        .collect())
}

#[cfg(test)]
mod tests;
