// SPDX-License-Identifier: GPL-2.0-only
//! Many independent runs (seeds x arms) at once, with results that do not depend on how many at once.
//!
//! Parallelism is across runs only, never inside one. Runs are started in the order given (seed by seed, all
//! arms of a seed together), so that an interrupted experiment has complete low seeds, which can be compared.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// One run to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Position of the arm in the scenario.
    pub arm: usize,
    pub seed: u64,
}

/// All arms with all seeds, seeds outermost.
pub fn jobs(arms: usize, seeds: impl IntoIterator<Item = u64>) -> Vec<Job> {
    seeds
        .into_iter()
        .flat_map(|seed| (0..arms).map(move |arm| Job { arm, seed }))
        .collect()
}

/// How far an experiment is. Runs may finish in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The run that has just finished.
    pub job: Job,
    /// Finished so far, this one included.
    pub done: usize,
    pub of: usize,
    pub failed: bool,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    #[error(transparent)]
    Failed(E),
    /// A defect of the simulator itself.
    #[error(
        "internal error with seed {seed}, arm {arm}: {message}; please report it with the scenario and the seed"
    )]
    Panicked {
        arm: usize,
        seed: u64,
        message: String,
    },
    #[error("cancelled")]
    Cancelled,
}

/// What came of each job, in the order of the jobs.
#[derive(Debug)]
pub struct Outcome<R, E> {
    pub runs: Vec<(Job, Result<R, RunError<E>>)>,
}

impl<R, E> Outcome<R, E> {
    /// Some run was not done because of a cancellation.
    pub fn cancelled(&self) -> bool {
        self.runs
            .iter()
            .any(|(_, r)| matches!(r, Err(RunError::Cancelled)))
    }

    /// Results there are, in the order of the jobs.
    pub fn results(&self) -> impl Iterator<Item = (&Job, &R)> {
        self.runs
            .iter()
            .filter_map(|(j, r)| Some((j, r.as_ref().ok()?)))
    }

    /// Errors other than cancellation, in the order of the jobs.
    pub fn errors(&self) -> impl Iterator<Item = (&Job, &RunError<E>)> {
        self.runs.iter().filter_map(|(j, r)| match r {
            Err(RunError::Cancelled) | Ok(_) => None,
            Err(e) => Some((j, e)),
        })
    }
}

/// Most threads of one experiment: as many as a large machine has CPUs.
const MOST_WORKERS: usize = 1024;

/// How an experiment is run.
pub struct Replicate<'a> {
    /// Runs at once; 0 = one per CPU of this machine.
    pub workers: usize,
    /// Set from outside (Ctrl-C) to stop: no further run is started, and a run that looks at the flag too may
    /// end early with any error; it counts as cancelled.
    pub cancel: &'a AtomicBool,
    /// Called after every run, by the thread that ran it, one call at a time.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

impl Replicate<'_> {
    /// Does all jobs. `run` must depend on its job only.
    pub fn run<R: Send, E: Send>(
        &self,
        jobs: &[Job],
        run: impl Fn(Job) -> Result<R, E> + Sync,
    ) -> Outcome<R, E> {
        let next = AtomicUsize::new(0);
        let finished = Mutex::new((0, Vec::with_capacity(jobs.len())));
        let work = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(&job) = jobs.get(i) else { return };
                if self.cancel.load(Ordering::Relaxed) {
                    return;
                }
                let result = self.one(job, &run);
                let failed = result.is_err();
                let mut finished = finished.lock().unwrap_or_else(|e| e.into_inner());
                finished.0 += 1;
                let (done, of) = (finished.0, jobs.len());
                finished.1.push((i, result));
                (self.progress)(Progress {
                    job,
                    done,
                    of,
                    failed,
                });
            }
        };
        let workers = match self.workers {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        // No thread without a run; and whatever was asked for, a number that a machine can bear.
        let workers = workers.min(jobs.len()).clamp(1, MOST_WORKERS);
        match rayon::ThreadPoolBuilder::new().num_threads(workers).build() {
            Ok(pool) => pool.broadcast(|_| work()),
            // No threads to be had: the calling one does it all.
            Err(_) => {
                work();
                Vec::new()
            }
        };
        let (_, mut done) = finished.into_inner().unwrap_or_else(|e| e.into_inner());
        done.sort_by_key(|(i, _)| *i);
        let mut done = done.into_iter().peekable();
        let runs = jobs
            .iter()
            .enumerate()
            .map(|(i, job)| match done.next_if(|(j, _)| *j == i) {
                Some((_, result)) => (*job, result),
                None => (*job, Err(RunError::Cancelled)),
            })
            .collect();
        Outcome { runs }
    }

    fn one<R, E>(
        &self,
        job: Job,
        run: &(impl Fn(Job) -> Result<R, E> + Sync),
    ) -> Result<R, RunError<E>> {
        match catch_unwind(AssertUnwindSafe(|| run(job))) {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) if self.cancel.load(Ordering::Relaxed) => Err(RunError::Cancelled),
            Ok(Err(error)) => Err(RunError::Failed(error)),
            Err(panic) => Err(RunError::Panicked {
                arm: job.arm,
                seed: job.seed,
                message: match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
                    (Some(s), _) => s.clone(),
                    (_, Some(s)) => (*s).to_string(),
                    _ => "panic without a message".to_string(),
                },
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(workers: usize, cancel: &AtomicBool) -> Replicate<'_> {
        Replicate {
            workers,
            cancel,
            progress: &|_| (),
        }
    }

    /// A result that takes unequal time to make.
    fn slow_square(job: Job) -> Result<u64, String> {
        let spin = (job.seed * 7919) % 1000;
        let x = (0..spin * 100).fold(0u64, |a, b| std::hint::black_box(a ^ b));
        std::hint::black_box(x);
        Ok(job.seed * job.seed + job.arm as u64)
    }

    #[test]
    fn order_and_results_do_not_depend_on_workers() {
        let jobs = jobs(3, 1..=40);
        assert_eq!(
            jobs[..4].iter().map(|j| j.arm).collect::<Vec<_>>(),
            [0, 1, 2, 0]
        );
        let cancel = AtomicBool::new(false);
        let all = |workers| {
            let outcome = quiet(workers, &cancel).run(&jobs, slow_square);
            assert!(!outcome.cancelled());
            outcome.results().map(|(j, r)| (*j, *r)).collect::<Vec<_>>()
        };
        let one = all(1);
        assert_eq!(one.len(), 120);
        for workers in [2, 3, 8] {
            assert_eq!(all(workers), one);
        }
    }

    #[test]
    fn cancellation_keeps_what_is_done() {
        let cancel = AtomicBool::new(false);
        let seen = AtomicUsize::new(0);
        let replicate = Replicate {
            workers: 2,
            cancel: &cancel,
            progress: &|p: Progress| {
                seen.fetch_add(1, Ordering::Relaxed);
                if p.done == 10 {
                    cancel.store(true, Ordering::Relaxed);
                }
            },
        };
        let outcome = replicate.run(&jobs(1, 1..=100), slow_square);
        assert!(outcome.cancelled());
        let done = outcome.results().count();
        // The other worker may have had a run in hand.
        assert!((10..=11).contains(&done), "{done}");
        assert_eq!(seen.load(Ordering::Relaxed), done);
        assert_eq!(outcome.runs.len(), 100);
        assert_eq!(outcome.errors().count(), 0);
    }

    #[test]
    fn errors_and_panics_belong_to_their_run() {
        let cancel = AtomicBool::new(false);
        let outcome = quiet(2, &cancel).run(&jobs(1, 1..=4), |job| match job.seed {
            2 => Err("starved"),
            3 => panic!("boom {}", job.seed),
            _ => Ok(job.seed),
        });
        assert_eq!(
            outcome.results().map(|(_, r)| *r).collect::<Vec<_>>(),
            [1, 4]
        );
        let errors: Vec<String> = outcome.errors().map(|(_, e)| e.to_string()).collect();
        assert_eq!(errors[0], "starved");
        assert!(
            errors[1].contains("seed 3") && errors[1].contains("boom 3"),
            "{}",
            errors[1]
        );
    }
}
