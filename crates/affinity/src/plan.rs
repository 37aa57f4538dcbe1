// SPDX-License-Identifier: GPL-2.0-only
//! From what is asked for to a CPU for each thread, interrupt and queue.
use crate::model::{Cpu, Host, Part, Thread, Vm};
use crate::policy::{Ask, Policy};
use crate::seat::{Near, Room, Thread as Sibling, allowed};
use berth_optimiser::CpuSet;
use serde::{Deserialize, Serialize};

/// CPUs that a VM has been given: one for each vCPU, in their order, and those of its path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    pub vcpus: Vec<u32>,
    pub path: Vec<u32>,
}

/// One VM, and what is asked for of it.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub vm: &'a Vm,
    pub ask: &'a Ask,
    /// What `auto` does just now; for other policies that policy.
    pub acts: Policy,
    /// Where it is: it stays there if that is still as asked for.
    pub now: Option<&'a Seat>,
}

/// Where everything of one VM goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placed {
    pub vm: String,
    pub policy: Policy,
    /// What `auto` does just now.
    pub acts: Policy,
    pub seat: Seat,
    /// Thread and CPU.
    pub threads: Vec<(i32, u32)>,
    /// Interrupt and CPU.
    pub irqs: Vec<(u32, u32)>,
    /// Device, queue and CPU.
    pub queues: Vec<(String, String, u32)>,
    /// Why these CPUs, a sentence.
    pub why: String,
    /// What is left where it is.
    pub left: Vec<Left>,
    /// What the operator should know.
    pub warnings: Vec<String>,
}

/// Something on the path that is left where it is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Left {
    pub what: String,
    pub why: String,
}

/// Why a VM cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no CPU {cpu} on this machine; it has {possible}")]
    NoSuchCpu { cpu: u32, possible: String },
    #[error("CPU {cpu} is offline; online are {online}")]
    Offline { cpu: u32, online: String },
    #[error("CPU {cpu} is isolated (isolcpus=): --isolated takes it all the same")]
    Isolated { cpu: u32 },
    #[error(
        "CPU {cpu} is outside of the CPU set that its manager gave it, which is {allowed}: choose one of those, or \
         have \
         the manager change it (libvirt: virsh vcpupin and emulatorpin)"
    )]
    NotAllowed { cpu: u32, allowed: String },
    #[error(
        "no CPU that is online{} is in the CPU sets of all its threads: {policy} cannot be done; l2 gives each vCPU \
         one of \
         its own",
        if *.isolated { "" } else { " and not isolated" }
    )]
    Nowhere { policy: Policy, isolated: bool },
    #[error("none of its vCPUs' threads is known: it has not run yet, or as root more is seen")]
    NoVcpus,
}

/// A CPU that is busy for this part of the time has no room.
const FULL: f64 = 0.9;

/// Where everything of these VMs goes; those with a CPU of the operator's choice first, then those that stay where they
/// are, then the largest. In the order of `wanted`.
pub fn plan(host: &Host, wanted: &[Wanted<'_>]) -> Vec<Result<Placed, Refusal>> {
    let mut room = Room::new(host);
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    let rank = |i: &usize| {
        let w = &wanted[*i];
        let stays = w.now.is_some_and(|now| fits(host, w, now));
        let vcpus = w.vm.threads.iter();
        let vcpus = vcpus.filter(|t| matches!(t.part, Part::Vcpu(_))).count();
        (
            w.ask.cpu.is_none(),
            !stays,
            usize::MAX - vcpus,
            w.vm.name.clone(),
        )
    };
    order.sort_by_cached_key(rank);
    let mut placed: Vec<Option<Result<Placed, Refusal>>> = vec![None; wanted.len()];
    for i in order {
        let one = one(host, &mut room, &wanted[i]);
        placed[i] = Some(one);
    }
    placed.into_iter().flatten().collect()
}

/// Whether a thread is one that the policy places.
fn moves(policy: Policy, thread: &Thread) -> bool {
    let helper = thread.part == Part::Helper;
    !helper && (policy != Policy::Paper || thread.in_process)
}

fn set_of(cpus: impl IntoIterator<Item = u32>) -> String {
    CpuSet::of(cpus).map_or("none".into(), |set| set.to_string())
}

/// Whether the operator's CPU can be taken at all.
fn check(host: &Host, w: &Wanted<'_>) -> Result<(), Refusal> {
    let Some(cpu) = w.ask.cpu else { return Ok(()) };
    if host.possible.as_ref().is_some_and(|p| !p.has(cpu)) {
        let possible = host.possible.as_ref().map(ToString::to_string);
        return Err(Refusal::NoSuchCpu {
            cpu,
            possible: possible.unwrap_or_default(),
        });
    }
    let Some(there) = host.cpus.iter().find(|c| c.cpu == cpu) else {
        return Err(Refusal::Offline {
            cpu,
            online: set_of(host.cpus.iter().map(|c| c.cpu)),
        });
    };
    if there.isolated && !w.ask.isolated {
        return Err(Refusal::Isolated { cpu });
    }
    Ok(())
}

/// What a seat has to be for.
struct Shape {
    /// CPUs for vCPUs, and for the path.
    vcpus: usize,
    path: usize,
}

fn shape(w: &Wanted<'_>) -> Shape {
    let vcpus = w.vm.vcpus().len();
    let queues = |p: &dyn Fn(&Thread) -> bool| w.vm.threads.iter().filter(|t| p(t)).count();
    match w.acts {
        Policy::None | Policy::Auto => Shape { vcpus: 0, path: 0 },
        Policy::Paper => Shape { vcpus: 1, path: 0 },
        Policy::Full if vcpus == 1 => Shape { vcpus: 1, path: 0 },
        Policy::Full => Shape { vcpus, path: 1 },
        Policy::L2 => Shape {
            vcpus,
            // One for each pair of queues.
            path: queues(&|t| t.part == Part::Vhost).clamp(1, vcpus.max(1)),
        },
    }
}

/// Whether it may stay where it is.
fn fits(host: &Host, w: &Wanted<'_>, now: &Seat) -> bool {
    let shape = shape(w);
    let online = |cpu: &u32| {
        let there = host.cpus.iter().find(|c| c.cpu == *cpu);
        there.is_some_and(|c| !c.isolated || w.ask.isolated)
    };
    let chosen = w.ask.cpu.is_none_or(|c| now.vcpus.first() == Some(&c));
    // Two VMs on one CPU stay so only until there is room: that is looked at anew.
    now.vcpus.len() == shape.vcpus
        && now.path.len() == shape.path
        && now.vcpus.iter().chain(&now.path).all(online)
        && chosen
        && within(w, now)
}

/// Whether each thread may run where this seat puts it.
fn within(w: &Wanted<'_>, seat: &Seat) -> bool {
    let mut lines = Lines::default();
    let moved = w.vm.threads.iter().filter(|t| moves(w.acts, t));
    moved.into_iter().all(|t| {
        let cpu = lines.cpu_of(w.vm, t, seat);
        cpu.is_none_or(|cpu| t.allowed.as_ref().is_none_or(|a| a.has(cpu)))
    })
}

/// Numbers the threads that move packets, in the order in which they were made.
#[derive(Default)]
struct Lines {
    vhosts: u32,
}

impl Lines {
    /// The CPU of a thread. To be asked in the order of threads.
    fn cpu_of(&mut self, vm: &Vm, thread: &Thread, seat: &Seat) -> Option<u32> {
        match thread.part {
            Part::Vcpu(index) => {
                let at = vm.vcpus().iter().position(|n| *n == index)?;
                // All share what there is.
                seat.vcpus.get(at % seat.vcpus.len().max(1)).copied()
            }
            Part::Vhost => {
                let queue = self.vhosts;
                self.vhosts += 1;
                path_cpu(seat, queue)
            }
            Part::Iothread | Part::Emulator => path_cpu(seat, 0),
            Part::Helper => None,
        }
    }
}

/// The CPU of a queue of the path.
fn path_cpu(seat: &Seat, queue: u32) -> Option<u32> {
    match seat.path.len() {
        0 => seat.vcpus.first().copied(),
        n => seat.path.get(queue as usize % n).copied(),
    }
}

fn one(host: &Host, room: &mut Room<'_>, w: &Wanted<'_>) -> Result<Placed, Refusal> {
    let mut placed = Placed {
        vm: w.vm.name.clone(),
        policy: w.ask.policy,
        acts: w.acts,
        seat: Seat::default(),
        threads: Vec::new(),
        irqs: Vec::new(),
        queues: Vec::new(),
        why: "nothing is bound".into(),
        left: Vec::new(),
        warnings: Vec::new(),
    };
    check(host, w)?;
    if matches!(w.acts, Policy::None | Policy::Auto) {
        return Ok(placed);
    }
    if w.vm.vcpus().is_empty() {
        return Err(Refusal::NoVcpus);
    }
    let stays = w.now.filter(|now| {
        let mut both = now.vcpus.iter().chain(&now.path);
        let shared = both.any(|c| room.taken(*c) > 0);
        let may = |c: &Cpu| {
            let mut moved = w.vm.threads.iter().filter(|t| moves(w.acts, t));
            moved.all(|t| t.allowed.as_ref().is_none_or(|a| a.has(c.cpu)))
        };
        let idle = host
            .cpus
            .iter()
            .any(|c| room.taken(c.cpu) == 0 && (!c.isolated || w.ask.isolated) && may(c));
        fits(host, w, now) && !(shared && idle && w.ask.cpu.is_none())
    });
    let (seat, why) = match stays {
        Some(now) => (now.clone(), "it stays where it is".to_string()),
        None => {
            let new = seat(room, w, &mut placed.warnings)?;
            placed.warnings.extend(no_room(host, w.ask.isolated));
            new
        }
    };
    for cpu in seat.vcpus.iter().chain(&seat.path) {
        room.take(*cpu);
    }
    (placed.seat, placed.why) = (seat, why);
    threads(w, &mut placed);
    devices(w, &mut placed);
    warn(room, w, &mut placed);
    Ok(placed)
}

/// Chooses.
fn seat(
    room: &Room<'_>,
    w: &Wanted<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Seat, String), Refusal> {
    let Shape { vcpus, path } = shape(w);
    let mut room = room.clone();
    let usable = |c: &Cpu| !c.isolated || w.ask.isolated;
    let nowhere = || Refusal::Nowhere {
        policy: w.acts,
        isolated: w.ask.isolated,
    };
    let path_threads = |t: &&Thread| {
        moves(w.acts, t) && !matches!(t.part, Part::Vcpu(_)) && t.part != Part::Helper
    };
    let numbers = w.vm.vcpus();
    let together = path == 0;
    let mut seat = Seat::default();
    let mut why = String::new();
    for at in 0..vcpus {
        // Whose CPU this is going to be.
        let whose = |t: &&Thread| match t.part {
            Part::Vcpu(n) => vcpus == 1 || numbers.get(at) == Some(&n),
            _ => together && path_threads(t),
        };
        let sets = w.vm.threads.iter().filter(whose).map(|t| &t.allowed);
        let allowed = allowed(sets).map_err(|()| nowhere())?;
        let may = |c: &Cpu| usable(c) && allowed.as_ref().is_none_or(|a| a.has(c.cpu));
        let first = seat.vcpus.first().and_then(|c| room.cpu(*c));
        let cpu = match (w.ask.cpu, first) {
            (Some(cpu), None) => {
                let chosen = room.cpu(cpu).ok_or_else(nowhere)?;
                if !may(chosen) {
                    return Err(Refusal::NotAllowed {
                        cpu,
                        allowed: allowed.map_or(String::new(), |a| a.to_string()),
                    });
                }
                why = format!("CPU {cpu} as asked");
                chosen
            }
            (None, None) => {
                let cpu = room.choose(Near::Node(w.vm.node), path > 0, &may);
                let cpu = cpu.ok_or_else(nowhere)?;
                why = reason(cpu, w.vm.node);
                cpu
            }
            // Beside the first; the other thread of its core is better than none.
            (_, Some(first)) => {
                let near = Near::Cpu {
                    cpu: first,
                    thread: Sibling::Late,
                };
                let other = room.choose(near, false, &may);
                other
                    .or(Some(first).filter(|c| may(c)))
                    .ok_or_else(nowhere)?
            }
        };
        room.take(cpu.cpu);
        seat.vcpus.push(cpu.cpu);
    }
    for queue in 0..path {
        let sets = w.vm.threads.iter().filter(path_threads).map(|t| &t.allowed);
        let allowed = allowed(sets).map_err(|()| nowhere())?;
        let may = |c: &Cpu| usable(c) && allowed.as_ref().is_none_or(|a| a.has(c.cpu));
        let beside = seat.vcpus[queue % seat.vcpus.len().max(1)];
        let beside = room.cpu(beside).ok_or_else(nowhere)?;
        let near = |thread| Near::Cpu {
            cpu: beside,
            thread,
        };
        let sibling = match w.ask.smt {
            true => Sibling::Welcome,
            false => Sibling::Never,
        };
        let chosen = room.choose(near(sibling), false, &may);
        let cpu = match chosen {
            Some(cpu) => {
                if cpu.llc != beside.llc {
                    warnings.push(format!(
                        "no free core shares a cache with CPU {}: its path is on CPU {}, below another",
                        beside.cpu, cpu.cpu
                    ));
                }
                cpu
            }
            None => {
                let same = Some(beside).filter(|c| may(c));
                let other = same.or_else(|| room.choose(near(Sibling::Late), false, &may));
                let cpu = other.ok_or_else(nowhere)?;
                warnings.push(format!(
                    "there is no other core for its path: it is on CPU {}, beside CPU {} (--smt takes the core's other \
                     thread)",
                    cpu.cpu, beside.cpu
                ));
                cpu
            }
        };
        room.take(cpu.cpu);
        seat.path.push(cpu.cpu);
    }
    Ok((seat, why))
}

/// Where no CPU has anything idle. What the VM itself has used is not told apart.
fn no_room(host: &Host, isolated: bool) -> Option<String> {
    let mut usable = host.cpus.iter().filter(|c| !c.isolated || isolated);
    usable.all(|c| c.busy >= FULL).then(|| {
        "every CPU was busy, by this VM or by others: among others that compute a pin makes no room, a promise does \
         (berth optimise --dry-run)"
            .into()
    })
}

fn reason(cpu: &Cpu, node: Option<u32>) -> String {
    let mut why = format!("CPU {} ", cpu.cpu);
    match node {
        Some(node) if node == cpu.node => why += &format!("on node {node}, as its card is, "),
        Some(node) => {
            why += &format!(
                "on node {}, since all of its card's node {node} are taken, ",
                cpu.node
            )
        }
        None => {}
    }
    why + &format!("was {:.0} % busy", cpu.busy * 100.0)
}

fn threads(w: &Wanted<'_>, placed: &mut Placed) {
    let mut lines = Lines::default();
    let mut all: Vec<&Thread> = w.vm.threads.iter().collect();
    // Workers are in the order in which they were made.
    all.sort_by_key(|t| t.tid);
    for thread in all {
        if thread.part == Part::Helper {
            placed.left.push(Left {
                what: format!("thread {}", thread.tid),
                why: "a helper of KVM's, not on the path".into(),
            });
        } else if !moves(w.acts, thread) {
            placed.left.push(Left {
                what: format!("thread {}", thread.tid),
                why: "it works for the VM, and is no thread of its process: full and l2 move it"
                    .into(),
            });
        } else if let Some(cpu) = lines.cpu_of(w.vm, thread, &placed.seat) {
            match &thread.allowed {
                Some(set) if !set.has(cpu) => placed.left.push(Left {
                    what: format!("thread {}", thread.tid),
                    why: format!("its CPU set is {set}, without CPU {cpu}"),
                }),
                _ => placed.threads.push((thread.tid, cpu)),
            }
        }
    }
}

/// Interrupts and queues of devices that are this VM's alone.
fn devices(w: &Wanted<'_>, placed: &mut Placed) {
    if w.acts == Policy::Paper {
        return;
    }
    let shared = |device: &str, users: u32| {
        format!("{device} serves {users} VMs: what is best for one is not for the others")
    };
    for irq in &w.vm.irqs {
        let what = format!("interrupt {} of {}", irq.irq, irq.device);
        let why = match (irq.queue, path_cpu(&placed.seat, irq.queue.unwrap_or(0))) {
            _ if irq.users > 1 => shared(&irq.device, irq.users),
            _ if irq.managed => "the kernel manages it, and refuses".into(),
            (None, _) => "it is of no queue".into(),
            (Some(_), Some(cpu)) => {
                placed.irqs.push((irq.irq, cpu));
                continue;
            }
            (Some(_), None) => continue,
        };
        placed.left.push(Left { what, why });
    }
    for queue in &w.vm.queues {
        if queue.users > 1 {
            placed.left.push(Left {
                what: format!("queue {} of {}", queue.name, queue.device),
                why: shared(&queue.device, queue.users),
            });
        } else if let Some(cpu) = path_cpu(&placed.seat, queue.index()) {
            let name = (queue.device.clone(), queue.name.clone(), cpu);
            placed.queues.push(name);
        }
    }
}

fn warn(room: &Room<'_>, w: &Wanted<'_>, placed: &mut Placed) {
    let vcpus = w.vm.vcpus().len();
    if w.acts == Policy::Paper && vcpus > 1 {
        placed.warnings.push(format!(
            "{vcpus} vCPUs on one CPU: one that is preempted while it holds a lock of the guest keeps the others \
             waiting"
        ));
    }
    let mut shared: Vec<u32> = placed.seat.vcpus.clone();
    shared.retain(|c| room.taken(*c) > 1);
    shared.sort_unstable();
    shared.dedup();
    if !shared.is_empty() {
        placed.warnings.push(format!(
            "CPUs {} are shared with something else that is bound there",
            set_of(shared)
        ));
    }
}
