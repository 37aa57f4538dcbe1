// SPDX-License-Identifier: GPL-2.0-only
//! The simulator's side: the same object, the same cast, in virtual time.
use crate::log::{ENTRY_BYTES, Entry, Log};
use crate::recorder;
use crate::row::{Actor, Do, Group, GroupSpec, Label, PERIOD_US, Row, label_number};
use berth_policy::error::LoadError;
use berth_policy::instance::{Const, Instance, InstanceConfig};
use berth_policy::policy::Policy;
use berth_scenario::model::{Class, Hotplug, Hz};
use berth_sim::machine::MaskId;
use berth_sim::machine::topology::Shape;
use berth_sim::scx::Mutation;
use berth_sim::scx::identity::VmSpec;
use berth_sim::scx::kernel::Events;
use berth_sim::scx::kfunc::vtable;
use berth_sim::scx::ops::{Policy as SimPolicy, Port};
use berth_sim::workload::api::{
    Action, Bandwidth, CgroupError, Ctx, Nanos, SchedClass, TaskId, TaskSpec, Who, Workload,
};
use berth_sim::{MachineSpec, SimError, Simulation};
use std::collections::BTreeMap;

/// When the director begins: everybody is asleep by then. Not a multiple of the tick's period.
const CURTAIN_NS: Nanos = 21_370_000;
/// What a thread does to get ready: its first slice is no longer whole.
const GET_READY_NS: Nanos = 50_000;
/// What the director does after it has woken, before the row begins.
const DIRECTOR_NS: Nanos = 1000;
/// What is left of a thread's exit after it has told those who wait for it.
const EXIT_NS: Nanos = 10_000;
/// Error numbers of Linux.
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
/// Token of the director; members of the cast have their label's number.
const DIRECTOR: u32 = 0;

/// Why a row could not be played.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    #[error("{row}: {source}")]
    Load {
        row: &'static str,
        source: LoadError,
    },
    #[error("{row}: {source}")]
    Sim { row: &'static str, source: SimError },
    #[error("{row}: {why}")]
    Step { row: &'static str, why: String },
    #[error("{row}: the recorder's log has no `{what}`")]
    Log {
        row: &'static str,
        what: &'static str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Created,
    /// Does something before it joins its class.
    GettingReady,
    Joining,
    /// Asleep until it is posted for the first time.
    AtTheGate,
    Playing,
}

#[derive(Debug)]
struct Member {
    actor: Actor,
    task: Option<TaskId>,
    phase: Phase,
    next_step: usize,
    semaphore: u32,
    waits: bool,
    /// Whose end it waits for.
    joins: Option<Label>,
    /// It has begun to exit.
    leaving: bool,
}

struct Cast {
    members: BTreeMap<u32, Member>,
    run_ns: Nanos,
    masks: BTreeMap<Vec<u32>, MaskId>,
    director_cpu: u32,
    limits: BTreeMap<Group, Bandwidth>,
    /// The first step that was refused, or should have been.
    failed: Option<String>,
    /// Times of the director's first and last act.
    began: Option<Nanos>,
    ended: Option<Nanos>,
}

impl Cast {
    fn new(row: &Row) -> Cast {
        let member = |actor: Actor| {
            let phase = match (actor.forked, actor.ext) {
                (true, _) => Phase::Playing,
                (_, true) => Phase::Created,
                (_, false) => Phase::Joining,
            };
            Member {
                actor,
                task: None,
                phase,
                next_step: 0,
                semaphore: 0,
                waits: false,
                joins: None,
                leaving: false,
            }
        };
        let director = Actor {
            label: '-',
            ext: false,
            cpus: &[],
            nice: 0,
            forked: false,
            group: None,
            steps: row.director.clone(),
        };
        let mut members: BTreeMap<u32, Member> = row
            .cast
            .iter()
            .map(|a| (label_number(a.label).into(), member(a.clone())))
            .collect();
        members.insert(DIRECTOR, member(director));
        Cast {
            members,
            run_ns: row.run_us * 1000,
            masks: BTreeMap::new(),
            director_cpu: row.director_cpu,
            limits: (0..).zip(&row.groups).map(limit).collect(),
            failed: None,
            began: None,
            ended: None,
        }
    }

    fn spec(&self, token: u32, actor: &Actor, class: SchedClass) -> TaskSpec {
        TaskSpec {
            token,
            name: if token == DIRECTOR {
                "director".into()
            } else {
                format!("k:{}", actor.label)
            },
            affinity: self.masks[actor.cpus],
            nice: actor.nice,
            class,
            vm: actor.group,
            ..TaskSpec::default()
        }
    }

    fn post(&mut self, label: Label, ctx: &mut Ctx) {
        let Some(member) = self.members.get_mut(&label_number(label).into()) else {
            return;
        };
        member.semaphore += 1;
        if member.waits
            && let Some(task) = member.task
        {
            ctx.wake(task);
        }
    }

    fn leaves(&self, label: Label) -> bool {
        let member = self.members.get(&label_number(label).into());
        member.is_some_and(|m| m.leaving)
    }

    /// Wakes those who wait for this member's end; was there anybody?
    fn tell_joiners(&self, label: Label, ctx: &mut Ctx) -> bool {
        let mut any = false;
        for member in self.members.values().filter(|m| m.joins == Some(label)) {
            if let Some(task) = member.task {
                any |= ctx.wake(task);
            }
        }
        any
    }

    fn task(&self, label: Label) -> Option<TaskId> {
        self.members.get(&label_number(label).into())?.task
    }

    /// Everything that takes no time is done here; the first thing that does is returned.
    fn play(&mut self, token: u32, now: Nanos, ctx: &mut Ctx) -> Action {
        loop {
            let Some(member) = self.members.get_mut(&token) else {
                return Action::Block;
            };
            let Some(step) = member.actor.steps.get(member.next_step).cloned() else {
                return self.after_last(token, now);
            };
            let mut done = true;
            let action = match step {
                Do::Burn(us) => Some(Action::Compute { ns: us * 1000 }),
                Do::Wait => {
                    member.waits = member.semaphore == 0;
                    done = !member.waits;
                    member.semaphore -= u32::from(done);
                    (!done).then_some(Action::Block)
                }
                Do::Post(label) => {
                    member.next_step += 1;
                    self.post(label, ctx);
                    continue;
                }
                Do::Sleep(us) => Some(Action::SleepUntil {
                    at: now + us * 1000,
                }),
                Do::Yield => Some(Action::Yield),
                Do::NiceOf(label, n) => {
                    member.next_step += 1;
                    if let Some(task) = self.task(label) {
                        ctx.set_nice(task, n);
                    }
                    continue;
                }
                Do::AffinityOf(label, cpus) => {
                    member.next_step += 1;
                    let mask = self.masks[cpus];
                    if let Some(task) = self.task(label) {
                        ctx.set_affinity(task, mask);
                    }
                    continue;
                }
                Do::NiceDuring(label, n, us) => {
                    member.next_step += 1;
                    if let Some(task) = self.task(label) {
                        ctx.meanwhile(task, n);
                    }
                    return Action::Compute { ns: us * 1000 };
                }
                Do::Join(label) => {
                    let gone = self.leaves(label);
                    let Some(member) = self.members.get_mut(&token) else {
                        return Action::Block;
                    };
                    member.joins = (!gone).then_some(label);
                    done = gone;
                    (!gone).then_some(Action::Block)
                }
                Do::Nice(n) => Some(Action::SetNice(n)),
                Do::Affinity(cpus) => Some(Action::SetAffinity(self.masks[cpus])),
                Do::Ext(true) => Some(Action::SetClass(SchedClass::Ext)),
                Do::Ext(false) => Some(Action::SetClass(SchedClass::Fair)),
                Do::Fork(label) => {
                    member.next_step += 1;
                    let token = label_number(label).into();
                    let Some(child) = self.members.get(&token) else {
                        continue;
                    };
                    let spec = self.spec(token, &child.actor, SchedClass::Ext);
                    return Action::Fork(Box::new(spec));
                }
                Do::Exit if member.leaving => Some(Action::Exit),
                Do::Exit => {
                    member.leaving = true;
                    let label = member.actor.label;
                    ctx.exiting();
                    if self.tell_joiners(label, ctx) {
                        return Action::Compute { ns: EXIT_NS };
                    }
                    Some(Action::Exit)
                }
                // The machine was told beforehand.
                Do::Online(..) => None,
                step => {
                    member.next_step += 1;
                    if let Err(e) = self.cgroups(token, &step, ctx) {
                        self.failed.get_or_insert(e);
                    }
                    continue;
                }
            };
            if done && let Some(member) = self.members.get_mut(&token) {
                member.next_step += 1;
            }
            if let Some(action) = action {
                return action;
            }
        }
    }

    /// A step about cgroups; the error says what was refused, or was not although it should.
    fn cgroups(&mut self, token: u32, step: &Do, ctx: &mut Ctx) -> Result<(), String> {
        let (step, expected) = match step {
            Do::Refused(step, errno) => (&**step, *errno),
            step => (step, 0),
        };
        let got = match self.set(token, step, ctx) {
            Ok(()) => 0,
            Err(CgroupError::Weight(_)) => ERANGE,
            Err(CgroupError::Idle(_) | CgroupError::Bandwidth(_)) => EINVAL,
            Err(CgroupError::Refused { errno, .. }) => -errno,
            Err(e) => return Err(e.to_string()),
        };
        if got == expected {
            Ok(())
        } else {
            Err(format!("{step:?}: error {got}, {expected} is expected"))
        }
    }

    fn set(&mut self, token: u32, step: &Do, ctx: &mut Ctx) -> Result<(), CgroupError> {
        let limit = |cast: &Cast, g| cast.limits.get(g).copied().unwrap_or_default();
        match step {
            Do::Weight(g, weight) => ctx.set_vm_weight(*g, *weight),
            Do::Limit(g, quota_us, period_us) => {
                let to = Bandwidth {
                    quota_us: *quota_us,
                    period_us: *period_us,
                    ..limit(self, g)
                };
                ctx.set_vm_bandwidth(*g, to)?;
                self.limits.insert(*g, to);
                Ok(())
            }
            Do::Burst(g, burst_us) => {
                let to = Bandwidth {
                    burst_us: *burst_us,
                    ..limit(self, g)
                };
                ctx.set_vm_bandwidth(*g, to)?;
                self.limits.insert(*g, to);
                Ok(())
            }
            Do::Idle(g, idle) => ctx.set_vm_idle(*g, *idle),
            Do::Enter(g) => {
                let own = self.members.get(&token).and_then(|m| m.task);
                ctx.move_to_vm(own.as_slice(), Some(*g))
            }
            Do::Send(label, g) => ctx.move_to_vm(self.task(*label).as_slice(), Some(*g)),
            Do::SendAll(g) => {
                let all: Vec<TaskId> = self.members.values().filter_map(|m| m.task).collect();
                ctx.move_to_vm(&all, Some(*g))
            }
            _ => Ok(()),
        }
    }

    fn after_last(&mut self, token: u32, now: Nanos) -> Action {
        if token == DIRECTOR && self.ended.is_none() {
            let at = now + self.run_ns;
            self.ended = Some(at - 1);
            return Action::SleepUntil { at };
        }
        Action::Block
    }
}

impl Workload for Cast {
    fn start(&mut self, ctx: &mut Ctx) {
        let mut lists: Vec<Vec<u32>> = vec![vec![], vec![self.director_cpu]];
        for member in self.members.values() {
            lists.push(member.actor.cpus.to_vec());
            for step in &member.actor.steps {
                if let Do::Affinity(cpus) | Do::AffinityOf(_, cpus) = step {
                    lists.push(cpus.to_vec());
                }
            }
        }
        for list in lists {
            let mask = ctx.mask(&list);
            self.masks.insert(list, mask);
        }
        let tokens: Vec<u32> = self.members.keys().copied().collect();
        for token in tokens {
            let actor = self.members[&token].actor.clone();
            if actor.forked {
                continue;
            }
            let mut spec = self.spec(token, &actor, SchedClass::Fair);
            if token == DIRECTOR {
                spec.affinity = self.masks[&vec![self.director_cpu]];
            }
            ctx.spawn(&spec);
        }
    }

    fn born(&mut self, token: u32, task: TaskId) {
        if let Some(member) = self.members.get_mut(&token) {
            member.task = Some(task);
        }
    }

    fn died(&mut self, token: u32, _task: TaskId) {
        if let Some(member) = self.members.get_mut(&token) {
            member.task = None;
        }
    }

    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        if who.token == DIRECTOR {
            if now < CURTAIN_NS {
                return Action::SleepUntil { at: CURTAIN_NS };
            }
            if self.began.is_none() {
                // Its own wake-up is over when the row begins.
                self.began = Some(now + 1);
                return Action::Compute { ns: DIRECTOR_NS };
            }
            return self.play(DIRECTOR, now, ctx);
        }
        let Some(member) = self.members.get_mut(&who.token) else {
            return Action::Block;
        };
        match member.phase {
            Phase::Created => {
                member.phase = Phase::Joining;
                Action::SetClass(SchedClass::Ext)
            }
            Phase::Joining => {
                member.phase = Phase::GettingReady;
                Action::Compute { ns: GET_READY_NS }
            }
            Phase::GettingReady => {
                member.phase = Phase::AtTheGate;
                member.waits = true;
                Action::Block
            }
            // Woken by nobody: a model that is wrong on purpose may do that.
            Phase::AtTheGate if member.semaphore == 0 => Action::Block,
            Phase::AtTheGate => {
                member.phase = Phase::Playing;
                member.waits = false;
                member.semaphore -= 1;
                self.play(who.token, now, ctx)
            }
            Phase::Playing => self.play(who.token, now, ctx),
        }
    }

    fn event(&mut self, _token: u64, _now: Nanos, _ctx: &mut Ctx) {}

    fn measure_from(&mut self, _now: Nanos) {}

    fn metrics(&self, _now: Nanos, _out: &mut BTreeMap<String, f64>) {}
}

/// Plays a row and returns its log; with a mutation, on a model that is wrong on purpose.
///
/// # Errors
/// The recorder cannot be instantiated, or the simulator stops for another reason than an ejection.
pub fn play(row: &Row, recorder: &Policy, mutation: Option<Mutation>) -> Result<Log, PlayError> {
    let load = |source| PlayError::Load {
        row: row.name,
        source,
    };
    let cpus = row.machine.cpus();
    let mut spec = MachineSpec::new(Shape {
        nodes: row.machine.nodes,
        packages: row.machine.nodes,
        llcs: 1,
        cores: row.machine.cores / row.machine.nodes,
        threads: row.machine.threads,
    });
    spec.hz = Hz::Ticks(250);
    spec.mutation = mutation;
    spec.cost.wake_ipi_ns = row.ipi_ns;
    spec.hotplug = hotplug(row);
    let mut config = InstanceConfig::new(cpus);
    config
        .consts
        .insert("rules".into(), Const::Bytes(recorder::rules(row)));
    config
        .consts
        .insert("nr_rules".into(), Const::Int(row.rules.len() as i128));
    config
        .consts
        .insert("slice_ns".into(), Const::Int(row.slice_ns.into()));
    let instance =
        Instance::new(recorder, Some(row.ops), &config, vtable().map_err(load)?).map_err(load)?;
    let var = recorder.ops_var(Some(row.ops)).map_err(load)?;
    let ops: Vec<_> = var.ops.iter().map(|(op, _)| *op).collect();
    let port = Port::Instance(instance);
    let policy = SimPolicy::new(
        port,
        &var.name,
        &ops,
        var.flags,
        var.timeout_ms,
        var.dispatch_max_batch,
    );

    let vms: Vec<VmSpec> = (0..).zip(&row.groups).map(vm).collect();
    let mut machine = Simulation::new(&spec, &vms, Cast::new(row));
    machine.load(policy);
    // The recorder has ops.tick and changes slices, so every tick counts.
    machine.kernel().flags.real_ticks = true;
    machine.start();
    let end = CURTAIN_NS + 10_000_000_000;
    let mut exit = None;
    let mut now = CURTAIN_NS - 1;
    machine.run_until(now).map_err(|source| PlayError::Sim {
        row: row.name,
        source,
    })?;
    let before = machine.kernel().events;
    while now < end && machine.workload.ended.is_none_or(|at| now <= at) {
        now += 1_000_000;
        match machine.run_until(now) {
            Ok(()) => (),
            Err(SimError::PolicyExit { kind, .. }) => {
                exit = Some(kind as i32);
                break;
            }
            Err(source) => {
                return Err(PlayError::Sim {
                    row: row.name,
                    source,
                });
            }
        }
    }
    if let Some(why) = machine.workload.failed.take() {
        return Err(PlayError::Step { row: row.name, why });
    }
    let entries = entries(row, &machine)?;
    let from = machine.workload.began.unwrap_or(CURTAIN_NS);
    let to = machine.workload.ended.unwrap_or(end);
    let events = machine.kernel().events;
    let counts = row.counts.iter().map(|name| {
        (
            name.to_string(),
            count(&events, name) - count(&before, name),
        )
    });
    let counts = counts.collect();
    Ok(Log {
        exit,
        counts,
        ..Log::new(&entries, row, (from, to), false)
    })
}

/// A cgroup of the row as the simulator knows them: one for each VM.
fn vm((number, group): (Group, &GroupSpec)) -> VmSpec {
    VmSpec {
        name: format!("vm{number}"),
        group: 0,
        class: Class::Batch,
        weight: group.weight,
        cap_milli: group.quota_us.map(|us| us * 1000 / PERIOD_US),
        vcpus: 1,
    }
}

fn limit((number, group): (Group, &GroupSpec)) -> (Group, Bandwidth) {
    let limit = Bandwidth {
        quota_us: group.quota_us,
        ..Bandwidth::default()
    };
    (number, limit)
}

/// The director's changes of CPUs, as the machine wants to know them.
fn hotplug(row: &Row) -> Vec<Hotplug> {
    let mut at_ns = CURTAIN_NS + DIRECTOR_NS;
    let mut list = Vec::new();
    for step in &row.director {
        match step {
            Do::Sleep(us) => at_ns += us * 1000,
            Do::Online(cpu, online) => list.push(Hotplug {
                at_ns,
                cpu: *cpu,
                online: *online,
            }),
            _ => (),
        }
    }
    list
}

/// A counter by the name it has in the kernel's events file.
fn count(events: &Events, name: &str) -> u64 {
    match name {
        "SCX_EV_DISPATCH_KEEP_LAST" => events.dispatch_keep_last,
        "SCX_EV_REFILL_SLICE_DFL" => events.refill_slice_dfl,
        "SCX_EV_SELECT_CPU_FALLBACK" => events.select_cpu_fallback,
        _ => 0,
    }
}

fn entries(row: &Row, machine: &Simulation<Cast>) -> Result<Vec<Entry>, PlayError> {
    let missing = |what| PlayError::Log {
        row: row.name,
        what,
    };
    let kernel = machine.kernel();
    let instance = kernel.policy.instance().ok_or(missing("instance"))?;
    let (address, size) = instance.var("nr_entries").ok_or(missing("nr_entries"))?;
    if size != 4 {
        return Err(missing("nr_entries of 4 bytes"));
    }
    // SAFETY: a variable of the living instance, of the size just checked; nothing runs meanwhile.
    let written = unsafe { address.cast::<u32>().read_unaligned() };
    let map = instance.map("entries").ok_or(missing("entries"))?;
    let mut entries = Vec::new();
    for i in 0..written {
        let Some(bytes) = map.lookup(&i.to_ne_bytes()) else {
            break;
        };
        if let Some(entry) = Some(bytes)
            .filter(|b| b.len() == ENTRY_BYTES)
            .and_then(|b| Entry::parse(&b))
        {
            entries.push(entry);
        }
    }
    Ok(entries)
}
