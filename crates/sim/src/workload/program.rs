// SPDX-License-Identifier: GPL-2.0-only
//! A scenario's tasks, made ready to run: names resolved to numbers.
use berth_scenario::model::{Dist, Nanos, Scenario, Step};
use berth_scenario::placement::{self, PlacementError};

/// One step, resolved.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Compute(Dist),
    Busy,
    Sleep(Dist),
    Timer {
        period_ns: Nanos,
    },
    Reply,
    /// Queue number, see [`Programs::queues`].
    Send(u16),
    Yield,
    SetNice(i32),
    /// Position in [`Programs::masks`].
    SetAffinity(u32),
    /// Program number of the child.
    Fork(u32),
    Exit,
}

/// What one task does, over and over.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// The task's name in the scenario.
    pub task: String,
    /// For a pool, the steps after its `receive`.
    pub ops: Vec<Op>,
    /// The queue a pool serves.
    pub queue: Option<u16>,
    /// Periods of its timers, in the order of the steps.
    pub periods: Vec<Nanos>,
}

/// All tasks of a scenario, in the order of their names.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub all: Vec<Program>,
    /// Names of all queues that some task serves, sorted: a queue's number is its position.
    pub queues: Vec<String>,
    /// CPU lists of the affinity steps.
    pub masks: Vec<Vec<u32>>,
}

impl Programs {
    /// Errors: a name that the scenario does not have (checked by [`placement::threads`] as well).
    pub fn new(scenario: &Scenario) -> Result<Programs, PlacementError> {
        let mut queues: Vec<String> = scenario
            .tasks
            .values()
            .filter_map(placement::pool_queue)
            .map(str::to_string)
            .collect();
        queues.sort();
        queues.dedup();
        let mut programs = Programs {
            all: Vec::new(),
            queues,
            masks: Vec::new(),
        };
        for task in scenario.tasks.values() {
            let queue = placement::pool_queue(task).and_then(|q| programs.queue(q));
            let mut program = Program {
                task: task.name.clone(),
                ops: Vec::new(),
                queue,
                periods: Vec::new(),
            };
            for step in task.steps.iter().skip(usize::from(queue.is_some())) {
                let op = programs.resolve(scenario, &mut program, step)?;
                program.ops.push(op);
            }
            programs.all.push(program);
        }
        Ok(programs)
    }

    /// Number of a queue.
    pub fn queue(&self, name: &str) -> Option<u16> {
        let at = self.queues.iter().position(|q| q == name)?;
        u16::try_from(at).ok()
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
            Step::Timer { period_ns } => {
                program.periods.push((*period_ns).max(1));
                Op::Timer {
                    period_ns: (*period_ns).max(1),
                }
            }
            Step::Receive(_) => {
                return Err(PlacementError::ReceiveInside {
                    task: program.task.clone(),
                });
            }
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
            Step::Fork(task) => {
                let child = scenario.tasks.keys().position(|name| name == task);
                Op::Fork(child.ok_or_else(|| PlacementError::UnknownTask {
                    place: format!("`fork` in task.{}", program.task),
                    task: task.clone(),
                })? as u32)
            }
            Step::Exit => Op::Exit,
            Step::Lock { .. }
            | Step::Spin { .. }
            | Step::Unlock { .. }
            | Step::Barrier { .. }
            | Step::Wait { .. }
            | Step::Signal { .. }
            | Step::Broadcast { .. }
            | Step::Chunks { .. }
            | Step::Read { .. }
            | Step::Write { .. } => {
                return Err(PlacementError::NoSuchStep {
                    task: program.task.clone(),
                    step: step.word(),
                });
            }
        })
    }
}
