// SPDX-License-Identifier: GPL-2.0-only
//! What came out of a paper's experiments as plain values, for programs.
use super::Reproduced;
use super::judge::Judged;
use super::measure::MeasuredRun;
use super::over_time::{Traced, TracedArm};
use serde::Serialize;

/// What came out of a paper's experiments.
#[derive(Serialize)]
pub struct Told<'a> {
    pub paper: &'a str,
    pub version: &'static str,
    pub quick: bool,
    pub experiments: Vec<ToldExperiment<'a>>,
    pub claims: &'a [Judged],
}

#[derive(Serialize)]
pub struct ToldExperiment<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub runs: Vec<ToldRun<'a>>,
    pub traces: Vec<ToldTrace<'a>>,
}

/// CPUs that VMs use, step by step.
#[derive(Serialize)]
pub struct ToldTrace<'a> {
    pub name: &'a str,
    pub command: &'a str,
    pub seed: u64,
    pub step_ns: u64,
    pub arms: Vec<ToldArm<'a>>,
}

#[derive(Serialize)]
pub struct ToldArm<'a> {
    pub arm: &'a str,
    /// The fastest first.
    pub kinds: &'a [String],
    pub vms: &'a [String],
    /// CPUs: by step, then kind, then VM.
    pub cpus: Vec<Vec<&'a [f64]>>,
}

#[derive(Serialize)]
pub struct ToldRun<'a> {
    pub name: &'a str,
    pub command: &'a str,
    pub values: Vec<Value<'a>>,
}

/// A cell of a table, in base units.
#[derive(Serialize)]
pub struct Value<'a> {
    pub variant: &'a str,
    pub arm: &'a str,
    pub metric: &'a str,
    pub mean: f64,
    /// Of the 95 % interval; none with one seed.
    pub half: Option<f64>,
    pub seeds: usize,
}

impl<'a> Told<'a> {
    pub fn of(all: &'a Reproduced<'_>) -> Told<'a> {
        let experiments = all.experiments.iter().map(|measured| ToldExperiment {
            id: &measured.experiment.id,
            title: &measured.experiment.title,
            runs: measured
                .runs
                .iter()
                .map(|run| ToldRun {
                    name: &run.run.name,
                    command: &run.command,
                    values: values(run),
                })
                .collect(),
            traces: measured.traced.iter().map(trace).collect(),
        });
        Told {
            paper: &all.paper.name,
            version: env!("CARGO_PKG_VERSION"),
            quick: all.quick,
            experiments: experiments.collect(),
            claims: &all.judged,
        }
    }
}

fn trace<'a>(traced: &'a Traced<'_>) -> ToldTrace<'a> {
    let arm = |arm: &'a TracedArm| ToldArm {
        arm: &arm.arm,
        kinds: &arm.kinds,
        vms: &arm.vms,
        cpus: arm
            .steps
            .iter()
            .map(|step| step.chunks(arm.vms.len().max(1)).collect())
            .collect(),
    };
    ToldTrace {
        name: &traced.trace.name,
        command: &traced.command,
        seed: traced.trace.seed,
        step_ns: traced.trace.step_ns,
        arms: traced.arms.iter().map(arm).collect(),
    }
}

fn values<'a>(run: &'a MeasuredRun<'_>) -> Vec<Value<'a>> {
    let mut values = Vec::new();
    for row in &run.run.rows {
        for variant in &run.variants {
            for arm in &run.run.arms {
                let Some(e) = variant.outcome.estimate(arm, &row.metric) else {
                    continue;
                };
                values.push(Value {
                    variant: &variant.label,
                    arm,
                    metric: &row.metric,
                    mean: e.mean,
                    half: e.half,
                    seeds: e.n,
                });
            }
        }
    }
    values
}
