// SPDX-License-Identifier: GPL-2.0-only
//! A machine on paper that runs tasks by a [`Scheduler`] without any cost: what the scheduler is tested with, and what
//! the unikernel's figures are held against.
//!
//! At one instant arrivals come first, then what ends (by CPU), then idle CPUs are given something (by CPU).
use crate::{Config, Refused, Scheduler, Task};
use alloc::vec;
use alloc::vec::Vec;

/// Work for the machine.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// When it comes, ns.
    pub arrival_ns: u64,
    /// CPU time it takes, ns.
    pub size_ns: u64,
    /// What it is thought to take, ns.
    pub estimate_ns: u64,
}

impl Job {
    /// One that comes at 0 and takes as long as is thought.
    pub fn batch(size_ns: u64) -> Job {
        Job {
            arrival_ns: 0,
            size_ns,
            estimate_ns: size_ns,
        }
    }
}

/// Whose clock a CPU goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// CPUs run at the same time, as real ones do.
    Real,
    /// Of `b` busy CPUs each runs at `1 / b` of the speed: vCPUs that an emulator lets run in turn on one clock. Slices
    /// are of that clock. At most eight CPUs.
    Shared,
}

/// A stretch of time in which a CPU ran a job, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The CPU.
    pub cpu: usize,
    /// The job, by its place in the list.
    pub job: usize,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

/// What became of a job, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When it first ran.
    pub first_run_ns: u64,
    /// When it was done.
    pub completion_ns: u64,
    /// The level it was done on.
    pub level: usize,
    /// Times it was dispatched.
    pub pieces: u32,
}

/// All of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// By job.
    pub outcomes: Vec<Outcome>,
    /// By the time of their end.
    pub pieces: Vec<Piece>,
}

impl Run {
    /// Mean time from arrival to completion, ns.
    pub fn mean_turnaround_ns(&self, jobs: &[Job]) -> f64 {
        let each = self
            .outcomes
            .iter()
            .zip(jobs)
            .map(|(outcome, job)| (outcome.completion_ns - job.arrival_ns) as f64);
        each.sum::<f64>() / jobs.len().max(1) as f64
    }

    /// Mean of that less the jobs' sizes, ns.
    pub fn mean_wait_ns(&self, jobs: &[Job]) -> f64 {
        let size =
            jobs.iter().map(|job| job.size_ns as f64).sum::<f64>() / jobs.len().max(1) as f64;
        self.mean_turnaround_ns(jobs) - size
    }
}

/// Least common multiple of 1 to 8: of so many parts of work any number of CPUs has a whole number in a nanosecond.
const PARTS: u64 = 840;

struct Busy {
    task: Task<usize>,
    since_ns: u64,
}

/// Runs `jobs`, which are in order of arrival, as `config` says.
///
/// # Errors
/// `config` is refused.
///
/// # Panics
/// `clock` is shared by more than eight CPUs.
pub fn run(config: &Config, jobs: &[Job], clock: Clock) -> Result<Run, Refused> {
    assert!(
        clock == Clock::Real || config.cpus <= 8,
        "a clock is shared by at most eight CPUs"
    );
    let mut scheduler = Scheduler::new(config)?;
    let mut cpus: Vec<Option<Busy>> = (0..config.cpus).map(|_| None).collect();
    let mut left: Vec<u64> = jobs.iter().map(|job| job.size_ns * PARTS).collect();
    let mut done = Run {
        outcomes: vec![Outcome::default(); jobs.len()],
        pieces: Vec::new(),
    };
    let (mut now_ns, mut next) = (0, 0);
    loop {
        let came = jobs[next..]
            .iter()
            .take_while(|job| job.arrival_ns <= now_ns)
            .count();
        let batch = (next..next + came)
            .map(|id| Task::new(id as u64, now_ns, jobs[id].estimate_ns, id))
            .collect();
        scheduler.admit(batch, now_ns);
        next += came;
        for (cpu, slot) in cpus.iter_mut().enumerate() {
            let Some(busy) = slot
                .take_if(|busy| left[busy.task.payload] == 0 || busy.task.budget_ns() == Some(0))
            else {
                continue;
            };
            let job = busy.task.payload;
            done.pieces.push(Piece {
                cpu,
                job,
                start_ns: busy.since_ns,
                end_ns: now_ns,
            });
            if left[job] > 0 {
                scheduler.expire(busy.task, now_ns);
                continue;
            }
            scheduler.finish(&busy.task);
            done.outcomes[job] = Outcome {
                first_run_ns: busy.task.first_run_ns().unwrap_or(now_ns),
                completion_ns: now_ns,
                level: busy.task.level(),
                pieces: busy.task.pieces(),
            };
        }
        for (cpu, slot) in cpus.iter_mut().enumerate() {
            if slot.is_none() {
                *slot = scheduler.dispatch(cpu, now_ns).map(|task| Busy {
                    task,
                    since_ns: now_ns,
                });
            }
        }
        let running = cpus.iter().flatten().count() as u64;
        let rate = if clock == Clock::Shared {
            PARTS / running.max(1)
        } else {
            PARTS
        };
        let ends = cpus.iter().flatten().flat_map(|busy| {
            [
                Some(left[busy.task.payload].div_ceil(rate)),
                busy.task.budget_ns(),
            ]
            .into_iter()
            .flatten()
        });
        let arrival = jobs.get(next).map(|job| job.arrival_ns - now_ns);
        let Some(step_ns) = ends.chain(arrival).min() else {
            return Ok(done);
        };
        for busy in cpus.iter_mut().flatten() {
            busy.task.charge(step_ns);
            let job = busy.task.payload;
            left[job] = left[job].saturating_sub(step_ns * rate);
        }
        now_ns += step_ns;
    }
}
