// SPDX-License-Identifier: GPL-2.0-only
//! All runs of a plan in the simulator: many at once, with a bar, stopped by Ctrl-C, nothing finished is lost.
use crate::plan::Plan;
use crate::simulator::Running;
use berth_report::progress::Bar;
use berth_results::schema::RunRecord;
use berth_sim::replicate::{Replicate, jobs};

/// What came out.
pub struct Finished {
    /// Finished runs of each variant of the plan.
    pub records: Vec<Vec<RunRecord>>,
    /// One sentence per arm that failed, the first of its failures.
    pub failures: Vec<String>,
    pub cancelled: bool,
}

/// Runs every arm that can run, of every variant, with every seed. `run` gets positions of variant and arm, and the
/// seed; its result must not depend on anything else.
pub fn run(
    plan: &Plan,
    running: &Running,
    bar: &Bar,
    run: impl Fn(usize, usize, u64) -> Result<RunRecord, String> + Sync,
) -> Finished {
    let cells = cells(plan);
    let all = jobs(cells.len(), plan.seeds.iter().copied());
    let progress = |p: berth_sim::replicate::Progress| bar.at(p.done as u64);
    let replicate = Replicate {
        workers: running.workers,
        cancel: running.cancel,
        progress: &progress,
    };
    let outcome = replicate.run(&all, |job| {
        let (variant, arm) = cells[job.arm];
        run(variant, arm, job.seed)
    });

    let mut records: Vec<Vec<RunRecord>> = plan.variants.iter().map(|_| Vec::new()).collect();
    for (job, record) in outcome.results() {
        records[cells[job.arm].0].push(record.clone());
    }
    let mut failed: Vec<(usize, String)> = Vec::new();
    for (job, error) in outcome.errors() {
        if failed.iter().all(|(cell, _)| *cell != job.arm) {
            let (variant, arm) = cells[job.arm];
            let arm = &plan.variants[variant].arms[arm].arm.name;
            let with = &plan.variants[variant].set;
            let with = if with.is_empty() {
                String::new()
            } else {
                format!(", with {}", with.join(", "))
            };
            failed.push((
                job.arm,
                format!("arm {arm}, seed {}{with}: {error}", job.seed),
            ));
        }
    }
    Finished {
        records,
        failures: failed.into_iter().map(|f| f.1).collect(),
        cancelled: outcome.cancelled(),
    }
}

/// Every arm of every variant that is to be run, as positions.
fn cells(plan: &Plan) -> Vec<(usize, usize)> {
    let mut cells = Vec::new();
    for (v, variant) in plan.variants.iter().enumerate() {
        let can = (0..variant.arms.len()).filter(|a| variant.arms[*a].absent.is_none());
        cells.extend(can.map(|a| (v, a)));
    }
    cells
}
