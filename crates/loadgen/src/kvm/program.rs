// SPDX-License-Identifier: GPL-2.0-only
//! From a task's steps to the ops of a guest, and the locks, queues and tables that they name.
use super::KvmError;
use super::layout::op::Code;
use super::layout::{self, op, queue, task};
use super::memory::{Memory, Room};
use super::plan::names;
use berth_scenario::dist::Rng;
use berth_scenario::model::{Dist, Scenario, Step};
use berth_scenario::placement::{self, VmInstance, Work};
use berth_scenario::step::Named;
use std::collections::{BTreeMap, BTreeSet};

/// Values drawn beforehand for each step; then they come again.
const DRAWS: u64 = 1024;

/// A message's way out of the VM, or round inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// VM ordinal, or the host.
    pub home: Option<u32>,
    pub queue: String,
}

/// A pool of chunks that tasks of the VM share.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolStep {
    pub name: String,
    pub chunks: u32,
    pub each: Dist,
}

/// Ticks of the guest's clock.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    pub khz: u64,
}

impl Ticks {
    pub fn of_ns(self, ns: u64) -> u64 {
        let ticks = u128::from(ns) * u128::from(self.khz) / 1_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    pub fn to_ns(self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000 / u128::from(self.khz.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Writes the programs of one VM.
pub struct Programs<'a> {
    pub scenario: &'a Scenario,
    pub instance: &'a VmInstance,
    pub memory: &'a Memory,
    pub room: Room,
    pub ticks: Ticks,
    /// By name, the address of each queue, lock, spin lock, barrier and condition.
    pub queues: BTreeMap<String, u64>,
    /// The vCPUs that take from each queue.
    pub servers: BTreeMap<String, BTreeSet<u32>>,
    locks: BTreeMap<String, u64>,
    spins: BTreeMap<String, u64>,
    barriers: BTreeMap<String, u64>,
    conditions: BTreeMap<String, u64>,
    pub receivers: Vec<Receiver>,
    pub pools: Vec<PoolStep>,
    /// The vCPU and the task being written.
    vcpu: u32,
    task: String,
    /// What a reader of the results must know.
    pub notes: Vec<String>,
}

impl<'a> Programs<'a> {
    pub fn new(
        scenario: &'a Scenario,
        instance: &'a VmInstance,
        memory: &'a Memory,
        ticks: Ticks,
    ) -> Programs<'a> {
        Programs {
            scenario,
            instance,
            memory,
            room: Room::new(),
            ticks,
            queues: BTreeMap::new(),
            servers: BTreeMap::new(),
            locks: BTreeMap::new(),
            spins: BTreeMap::new(),
            barriers: BTreeMap::new(),
            conditions: BTreeMap::new(),
            receivers: Vec::new(),
            pools: Vec::new(),
            vcpu: 0,
            task: String::new(),
            notes: Vec::new(),
        }
    }

    /// Writes a vCPU's `struct task`s one after the other; each with where its random numbers come from. Gives the
    /// first one's address.
    ///
    /// # Errors
    /// No room.
    pub fn tasks(
        &mut self,
        vcpu: u32,
        works: &[Work],
        rngs: Vec<(Rng, Rng)>,
    ) -> Result<u64, KvmError> {
        self.vcpu = vcpu;
        let first = self.room.take(works.len() as u64 * task::BYTES)?;
        for ((i, work), (mut rng, mut phase)) in (0..).zip(works).zip(rngs) {
            let at = first + i * task::BYTES;
            let (pc, again) = match work {
                Work::Task(name) => {
                    self.task = name.clone();
                    let task = &self.scenario.tasks[name];
                    let (before, steps) = (task.first.clone(), task.steps.clone());
                    let again = self.ops(&steps, true, &mut rng)?;
                    if before.is_empty() {
                        (again, again)
                    } else {
                        (self.ops(&before, true, &mut rng)?, again)
                    }
                }
                Work::Pools(pools) => {
                    let mut routes = Vec::new();
                    for name in pools {
                        self.task = name.clone();
                        let task = &self.scenario.tasks[name];
                        let Some(queue) = placement::pool_queue(task) else {
                            continue;
                        };
                        let (queue, steps) = (queue.to_string(), task.steps[1..].to_vec());
                        routes.push((queue, self.ops(&steps, true, &mut rng)?));
                    }
                    let receive = self.receive(&routes)?;
                    (receive, receive)
                }
            };
            self.memory.set(at + task::PC, pc);
            self.memory.set(at + task::LOOP, again);
            self.memory.set(at + task::PHASE, phase.below(u64::MAX));
            // Everybody who has a barrier comes to it.
            for barrier in self.barriers_of(work) {
                let members = self.memory.get(barrier + layout::BARRIER_MEMBERS);
                self.memory
                    .set(barrier + layout::BARRIER_MEMBERS, members + 1);
            }
        }
        Ok(first)
    }

    fn barriers_of(&self, work: &Work) -> Vec<u64> {
        let mut all: Vec<u64> = names(work)
            .iter()
            .filter_map(|name| self.scenario.tasks.get(name))
            .flat_map(|task| task.first.iter().chain(&task.steps))
            .filter_map(|step| match step.named() {
                Named::MeetsAt(name) => self.barriers.get(name).copied(),
                _ => None,
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn op(&mut self, at: u64, code: Code, table: u64, n: u64, arg: u64) {
        self.memory.set(at, code as u64);
        self.memory.set(at + 8, table);
        self.memory.set(at + 16, n);
        self.memory.set(at + 32, arg);
    }

    /// A list of (queue, ops of who serves it), and the op that takes from them.
    fn receive(&mut self, routes: &[(String, u64)]) -> Result<u64, KvmError> {
        let at = self.room.take(op::BYTES)?;
        self.receive_at(at, routes)?;
        Ok(at)
    }

    fn receive_at(&mut self, at: u64, routes: &[(String, u64)]) -> Result<(), KvmError> {
        let table = self.room.take(routes.len() as u64 * 16)?;
        for (i, (name, body)) in (0..).zip(routes) {
            let queue = self.queue(name)?;
            let servers = self.servers.entry(name.clone()).or_default();
            servers.insert(self.vcpu);
            self.memory.set(table + 16 * i, queue);
            self.memory.set(table + 16 * i + 8, *body);
        }
        self.op(at, Code::Receive, table, routes.len() as u64, 0);
        Ok(())
    }

    /// The queue of this name, made when it is first asked for.
    fn queue(&mut self, name: &str) -> Result<u64, KvmError> {
        if let Some(at) = self.queues.get(name) {
            return Ok(*at);
        }
        let at = self.room.take(64)?;
        let slots = self.room.take(queue::LENGTH * queue::SLOT_BYTES)?;
        self.memory.set(at + queue::MASK, queue::LENGTH - 1);
        self.memory.set(at + queue::SLOTS, slots);
        for i in 0..queue::LENGTH {
            self.memory.set(slots + i * queue::SLOT_BYTES, i);
        }
        self.queues.insert(name.to_string(), at);
        Ok(at)
    }

    /// The steps as ops, one after the other; `around`: then from the task's loop again.
    fn ops(&mut self, steps: &[Step], around: bool, rng: &mut Rng) -> Result<u64, KvmError> {
        let count = steps.len() as u64 + u64::from(around);
        let first = self.room.take(count * op::BYTES)?;
        for (i, step) in (0..).zip(steps) {
            self.one(first + i * op::BYTES, step, rng)?;
        }
        if around {
            self.op(first + steps.len() as u64 * op::BYTES, Code::Loop, 0, 0, 0);
        }
        Ok(first)
    }

    fn one(&mut self, at: u64, step: &Step, rng: &mut Rng) -> Result<(), KvmError> {
        match step {
            Step::Compute(dist) => {
                let (table, n) = self.values(dist, rng, false)?;
                self.op(at, Code::Compute, table, n, 0);
            }
            Step::Busy => self.op(at, Code::Busy, 0, 0, 0),
            Step::Sleep(dist) => {
                let (table, n) = self.values(dist, rng, true)?;
                self.op(at, Code::Sleep, table, n, 0);
            }
            // Others are refused (`plan::unfit`).
            Step::Timer { period_ns, .. } => {
                let period = self.ticks.of_ns(*period_ns).max(1);
                self.op(at, Code::Timer, 0, 0, period);
            }
            Step::Receive(queue) => {
                let next = at + op::BYTES;
                self.receive_at(at, &[(queue.clone(), next)])?;
            }
            Step::Reply => self.op(at, Code::Reply, 0, 0, 0),
            Step::Send { to, .. } => {
                let receiver = placement::queue_of(self.scenario, to).and_then(|queue| {
                    let home = placement::receiver(self.scenario, Some(self.instance), queue)?;
                    Some(Receiver {
                        home,
                        queue: queue.to_string(),
                    })
                });
                match receiver {
                    Some(receiver) => {
                        self.receivers.push(receiver);
                        let number = self.receivers.len() as u64 - 1;
                        self.op(at, Code::Send, 0, 0, number);
                    }
                    None => self.op(at, Code::Nothing, 0, 0, 0),
                }
            }
            Step::Yield => self.op(at, Code::Yield, 0, 0, 0),
            Step::Lock { name } => {
                let lock = named(&mut self.locks, &mut self.room, name)?;
                self.op(at, Code::Lock, lock, 0, 0);
            }
            Step::Spin { name } => {
                let spin = named(&mut self.spins, &mut self.room, name)?;
                self.op(at, Code::Spin, spin, 0, 0);
            }
            Step::Unlock { name } => {
                if self.is_spin(name) {
                    let spin = named(&mut self.spins, &mut self.room, name)?;
                    self.op(at, Code::Unspin, spin, 0, 0);
                } else {
                    let lock = named(&mut self.locks, &mut self.room, name)?;
                    self.op(at, Code::Unlock, lock, 0, 0);
                }
            }
            Step::Barrier { name } => {
                let barrier = named(&mut self.barriers, &mut self.room, name)?;
                self.op(at, Code::Barrier, barrier, 0, 0);
            }
            Step::Wait { name } => self.condition(at, Code::Wait, name)?,
            Step::Signal { name } => self.condition(at, Code::Signal, name)?,
            Step::Broadcast { name } => self.condition(at, Code::Broadcast, name)?,
            Step::Chunks { name, chunks, each } => {
                self.pools.push(PoolStep {
                    name: name.clone(),
                    chunks: *chunks,
                    each: each.clone(),
                });
                self.op(at, Code::Chunks, 0, 0, self.pools.len() as u64 - 1);
            }
            Step::Exit => self.exit(at)?,
            // Its tasks compute.
            Step::Stall(_) => self.op(at, Code::Nothing, 0, 0, 0),
            Step::SetNice(_) | Step::SetAffinity(_) => {
                self.notes.push(format!(
                    "`{}` inside a micro-VM was ignored: the host does not see its tasks",
                    step.word()
                ));
                self.op(at, Code::Nothing, 0, 0, 0);
            }
            Step::Fork(_) | Step::Read { .. } | Step::Write { .. } => {
                return Err(KvmError::Unfit(format!("the step `{}`", step.word())));
            }
        }
        Ok(())
    }

    fn condition(&mut self, at: u64, code: Code, name: &str) -> Result<(), KvmError> {
        let condition = named(&mut self.conditions, &mut self.room, name)?;
        self.op(at, code, condition, 0, 0);
        Ok(())
    }

    /// The end of a task, which no barrier of the VM that it may have come to waits for any more.
    fn exit(&mut self, at: u64) -> Result<(), KvmError> {
        let mut list = Vec::new();
        let task = self.scenario.tasks.get(&self.task);
        for step in task
            .into_iter()
            .flat_map(|task| task.first.iter().chain(&task.steps))
        {
            if let Step::Barrier { name } = step {
                list.push(named(&mut self.barriers, &mut self.room, name)?);
            }
        }
        list.sort_unstable();
        list.dedup();
        let table = self.room.take(8 * list.len() as u64)?;
        for (i, barrier) in (0..).zip(&list) {
            self.memory.set(table + 8 * i, *barrier);
        }
        self.op(at, Code::Exit, table, list.len() as u64, 0);
        Ok(())
    }

    fn is_spin(&self, name: &str) -> bool {
        let steps = self.scenario.tasks.values().flat_map(|t| &t.steps);
        let mut first = self.scenario.tasks.values().flat_map(|t| &t.first);
        let spins = |s: &Step| matches!(s, Step::Spin { name: other } if other == name);
        first.any(spins) || steps.into_iter().any(spins)
    }

    /// The values that a step will read in turn: nanoseconds, or ticks of the clock.
    fn values(&mut self, dist: &Dist, rng: &mut Rng, clock: bool) -> Result<(u64, u64), KvmError> {
        let n = match dist {
            Dist::Const(_) => 1,
            Dist::Values(list) => (list.len() as u64).max(1),
            _ => DRAWS,
        };
        let table = self.room.take(8 * n)?;
        for i in 0..n {
            let ns = dist.sample(rng, i);
            let value = if clock { self.ticks.of_ns(ns) } else { ns };
            self.memory.set(table + 8 * i, value);
        }
        Ok((table, n))
    }
}

fn named(all: &mut BTreeMap<String, u64>, room: &mut Room, name: &str) -> Result<u64, KvmError> {
    if let Some(at) = all.get(name) {
        return Ok(*at);
    }
    let at = room.take(64)?;
    all.insert(name.to_string(), at);
    Ok(at)
}
