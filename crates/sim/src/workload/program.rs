// SPDX-License-Identifier: GPL-2.0-only
//! A scenario's tasks, made ready to run: names resolved to numbers.
use super::sync::Counts;
use berth_scenario::dist::Rng;
use berth_scenario::model::{Dist, Estimate, Grid, Nanos, Scenario, Step};
use berth_scenario::placement::{self, PlacementError};
use berth_scenario::step::Stall;

/// One step, resolved.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Compute(Dist),
    Busy,
    Sleep(Dist),
    /// The thread begins: timers that count from its start do so from here, after this sleep if there is one.
    Begin(Option<Dist>),
    Timer {
        period_ns: Nanos,
        grid: Grid,
    },
    /// In the middle of a loop, or in one with several of them. Queue number, see [`Programs::queues`].
    Receive(u16),
    Reply,
    /// Queue number, see [`Programs::queues`].
    Send(u16),
    Yield,
    SetNice(i32),
    /// Without its working set.
    Stall(Stall),
    SetWorkingSet(u64),
    /// Position in [`Programs::masks`], see [`super::masks`].
    SetAffinity(u32),
    /// Program number of the child.
    Fork(u32),
    Exit,
    /// It involves other threads of the home.
    Shared(Shared),
    /// A record is read or written: which disk, whether it writes, bytes.
    Disk(u16, bool, u64),
}

/// What threads of a home do together, see [`super::share`]; numbers of names, see [`Programs::names`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shared {
    Lock(u32),
    Spin(u32),
    Unlock(u32),
    Barrier(u32),
    Wait(u32),
    Signal(u32),
    Broadcast(u32),
    Chunks { pool: u32, chunks: u32, each: Dist },
}

/// What one task does, over and over.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// The task's name in the scenario.
    pub task: String,
    /// What comes first, then the loop; for a pool, the steps after its `receive`.
    pub ops: Vec<Op>,
    /// Where the loop begins.
    pub again: u32,
    /// The queue a pool serves: its only `receive` is its first step.
    pub queue: Option<u16>,
    /// Periods and grids of its timers, in the order of the steps.
    pub timers: Vec<(Nanos, Grid)>,
    /// Barriers and work pools in its steps, each once.
    pub barriers: Vec<u32>,
    pub pools: Vec<u32>,
    /// The task ends after so many rounds; none: never.
    pub rounds: Option<u64>,
    /// Each request to it starts a thread.
    pub per_request: bool,
    /// What policies are told of how long its threads compute for a request, or in all.
    pub estimate: Option<Estimate>,
}

impl Program {
    /// Tells timers that count from a thread's start when that is. A pool's thread has started before any step.
    fn begins(&mut self) {
        if self.queue.is_some() || self.timers.iter().all(|(_, grid)| grid.is_random()) {
            return;
        }
        match self.ops.first() {
            Some(Op::Sleep(d)) if self.again > 0 => self.ops[0] = Op::Begin(Some(d.clone())),
            _ => {
                self.ops.insert(0, Op::Begin(None));
                self.again += 1;
            }
        }
    }

    /// The policy is told of each of its jobs: they are requests, or there is only one.
    pub fn is_told_of_each(&self) -> bool {
        let one = |op: &Op| matches!(op, Op::Receive(_) | Op::Exit);
        self.ops.iter().any(one)
    }

    /// How long a thread computes from a step on until it takes the next request, ends, or begins anew, ns: what it
    /// will draw. Steps that have no length of their own count nothing.
    pub fn ahead(&self, step: u32, rng: &Rng, round: u64) -> Nanos {
        let mut rng = rng.clone();
        let mut ns: Nanos = 0;
        for op in self.ops.iter().skip(step as usize) {
            match op {
                Op::Compute(d) => ns = ns.saturating_add(d.sample(&mut rng, round)),
                // It draws from the same numbers.
                Op::Sleep(d) | Op::Begin(Some(d)) => _ = d.sample(&mut rng, round),
                Op::Receive(_) | Op::Exit | Op::Busy => break,
                _ => (),
            }
        }
        ns
    }
}

/// Names of what threads share; a number is a position.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub locks: Vec<String>,
    pub barriers: Vec<String>,
    pub conditions: Vec<String>,
    pub pools: Vec<String>,
}

impl Names {
    pub fn counts(&self) -> Counts {
        Counts {
            locks: self.locks.len() as u32,
            barriers: self.barriers.len() as u32,
            conditions: self.conditions.len() as u32,
            pools: self.pools.len() as u32,
        }
    }
}

/// Position of a name in a list, where it is added if it is new.
fn number(names: &mut Vec<String>, name: &str) -> u32 {
    let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
        names.push(name.to_string());
        names.len() - 1
    });
    at as u32
}

fn add(list: &mut Vec<u32>, number: u32) -> u32 {
    if !list.contains(&number) {
        list.push(number);
    }
    number
}

/// Number of a disk.
fn disk(scenario: &Scenario, of: &Program, name: &str) -> Result<u16, PlacementError> {
    let at = scenario.disks.iter().position(|disk| disk.name == name);
    let at = at.and_then(|at| u16::try_from(at).ok());
    at.ok_or_else(|| PlacementError::NoSuchDisk {
        task: of.task.clone(),
        disk: name.to_string(),
    })
}

/// All tasks of a scenario, in the order of their names.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub all: Vec<Program>,
    /// Names of all queues that some task serves, sorted: a queue's number is its position.
    pub queues: Vec<String>,
    /// CPU lists of the affinity steps.
    pub masks: Vec<Vec<u32>>,
    pub names: Names,
}

impl Programs {
    /// Errors: a name that the scenario does not have (checked by [`placement::threads`] as well).
    pub fn new(scenario: &Scenario) -> Result<Programs, PlacementError> {
        let mut queues: Vec<String> = scenario
            .tasks
            .values()
            .flat_map(|task| &task.steps)
            .filter_map(|step| match step {
                Step::Receive(queue) => Some(queue.clone()),
                _ => None,
            })
            .collect();
        queues.sort();
        queues.dedup();
        let mut programs = Programs {
            all: Vec::new(),
            queues,
            masks: Vec::new(),
            names: Names::default(),
        };
        for task in scenario.tasks.values() {
            let receives = |s: &&Step| matches!(s, Step::Receive(_));
            let once = task.first.is_empty() && task.steps.iter().filter(receives).count() == 1;
            let queue = placement::pool_queue(task).filter(|_| once);
            let queue = queue.and_then(|q| programs.queue(q));
            let mut program = Program {
                task: task.name.clone(),
                ops: Vec::new(),
                again: 0,
                queue,
                timers: Vec::new(),
                barriers: Vec::new(),
                pools: Vec::new(),
                rounds: if task.per_request {
                    Some(1)
                } else {
                    task.rounds
                },
                per_request: task.per_request,
                estimate: task.estimate,
            };
            let looped = task.steps.iter().skip(usize::from(queue.is_some()));
            for (i, step) in task.first.iter().chain(looped).enumerate() {
                let op = programs.resolve(scenario, &mut program, step)?;
                program.ops.push(op);
                if let Step::Stall(stall) = step {
                    let set = stall.working_set.map(Op::SetWorkingSet);
                    program.ops.extend(set);
                }
                if i + 1 == task.first.len() {
                    program.again = program.ops.len() as u32;
                }
            }
            program.begins();
            programs.all.push(program);
        }
        Ok(programs)
    }

    /// Number of a queue.
    pub fn queue(&self, name: &str) -> Option<u16> {
        let at = self.queues.iter().position(|q| q == name)?;
        u16::try_from(at).ok()
    }

    /// Number of a task's program.
    pub fn number(&self, task: &str) -> u32 {
        let found = self.all.binary_search_by(|p| p.task.as_str().cmp(task));
        // Every name is known, says the placement.
        found.unwrap_or(0) as u32
    }

    fn resolve(
        &mut self,
        scenario: &Scenario,
        program: &mut Program,
        step: &Step,
    ) -> Result<Op, PlacementError> {
        Ok(match step {
            Step::Compute(d) => Op::Compute(d.clone()),
            Step::Busy => Op::Busy,
            Step::Sleep(d) => Op::Sleep(d.clone()),
            Step::Timer { period_ns, grid } => {
                let (period_ns, grid) = ((*period_ns).max(1), *grid);
                program.timers.push((period_ns, grid));
                Op::Timer { period_ns, grid }
            }
            // Every queue that somebody receives on has a number.
            Step::Receive(queue) => Op::Receive(self.queue(queue).unwrap_or(0)),
            Step::Reply => Op::Reply,
            Step::Send { to, .. } => {
                let queue = placement::queue_of(scenario, to).and_then(|q| self.queue(q));
                Op::Send(queue.ok_or_else(|| PlacementError::NobodyReceives {
                    from: program.task.clone(),
                    to: to.clone(),
                })?)
            }
            Step::Yield => Op::Yield,
            Step::SetNice(nice) => Op::SetNice(*nice),
            Step::SetAffinity(cpus) => {
                self.masks.push(cpus.clone());
                Op::SetAffinity(self.masks.len() as u32 - 1)
            }
            Step::Stall(stall) => Op::Stall(*stall),
            Step::Fork(task) => {
                let child = scenario.tasks.keys().position(|name| name == task);
                Op::Fork(child.ok_or_else(|| PlacementError::UnknownTask {
                    place: format!("`fork` in task.{}", program.task),
                    task: task.clone(),
                })? as u32)
            }
            Step::Exit => Op::Exit,
            Step::Lock { name } => Op::Shared(Shared::Lock(number(&mut self.names.locks, name))),
            Step::Spin { name } => Op::Shared(Shared::Spin(number(&mut self.names.locks, name))),
            Step::Unlock { name } => {
                Op::Shared(Shared::Unlock(number(&mut self.names.locks, name)))
            }
            Step::Barrier { name } => {
                let barrier = number(&mut self.names.barriers, name);
                Op::Shared(Shared::Barrier(add(&mut program.barriers, barrier)))
            }
            Step::Wait { name } => {
                Op::Shared(Shared::Wait(number(&mut self.names.conditions, name)))
            }
            Step::Signal { name } => {
                Op::Shared(Shared::Signal(number(&mut self.names.conditions, name)))
            }
            Step::Broadcast { name } => {
                Op::Shared(Shared::Broadcast(number(&mut self.names.conditions, name)))
            }
            Step::Chunks { name, chunks, each } => {
                let pool = number(&mut self.names.pools, name);
                Op::Shared(Shared::Chunks {
                    pool: add(&mut program.pools, pool),
                    chunks: *chunks,
                    each: each.clone(),
                })
            }
            Step::Read { name, bytes } => Op::Disk(disk(scenario, program, name)?, false, *bytes),
            Step::Write { name, bytes } => Op::Disk(disk(scenario, program, name)?, true, *bytes),
        })
    }
}
