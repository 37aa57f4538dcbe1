// SPDX-License-Identifier: GPL-2.0-only
//! Results in long format: one row per run and metric. The same rows go into CSV and Parquet.
use crate::experiment::Results;
use crate::schema::{Place, unit_of};
use std::borrow::Cow;

/// One value.
pub struct Row<'a> {
    pub place: &'static str,
    /// What `--vary` set, joined by blanks.
    pub variant: String,
    pub arm: &'a str,
    pub seed: u64,
    pub metric: Cow<'a, str>,
    pub unit: &'static str,
    pub value: f64,
}

pub fn place(place: Place) -> &'static str {
    match place {
        Place::Sim => "sim",
        Place::Lab => "lab",
        Place::Host => "host",
    }
}

/// All rows: each run's metrics, then who waited for whom (`WAITER.waits_for.CAUSE`, ns in the measured window).
pub fn all(results: &Results) -> impl Iterator<Item = Row<'_>> {
    results.experiments.iter().flat_map(|e| {
        let variant = e.variant.join(" ");
        e.runs.iter().flat_map(move |run| {
            let variant = variant.clone();
            let metrics = run
                .metrics
                .iter()
                .map(|(m, v)| (Cow::from(m), unit_of(m), *v));
            let waits = run.waits.iter().map(|w| {
                let metric = format!("{}.waits_for.{}", w.waiter, w.cause);
                (Cow::from(metric), "ns", w.ns as f64)
            });
            metrics.chain(waits).map(move |(metric, unit, value)| Row {
                place: place(run.place),
                variant: variant.clone(),
                arm: &run.arm,
                seed: run.seed,
                metric,
                unit,
                value,
            })
        })
    })
}

/// One line per arm: its policy and the hash of the policy's object.
pub fn policies(results: &Results) -> String {
    let Some(e) = results.experiments.first() else {
        return String::new();
    };
    let line = |arm: &crate::experiment::Arm| {
        let hash = arm.hash.as_deref().unwrap_or("the place's own scheduler");
        format!("arm {}: policy {}, {hash}", arm.name, arm.policy)
    };
    e.arms.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How it was made, as lines.
pub fn how_it_was_made(results: &Results) -> Vec<String> {
    let p = &results.provenance;
    let mut lines = vec![
        format!("made by: {}", p.command),
        format!("Berth {}, {}, kernel {}", p.version, p.machine, p.kernel),
    ];
    if let Some(e) = results.experiments.first() {
        let seeds: Vec<String> = e.setup.seeds.iter().map(u64::to_string).collect();
        lines.push(format!("seeds: {}", seeds.join(" ")));
    }
    lines.push(policies(results));
    if !results.complete {
        lines.push("not complete: interrupted, or a run failed".into());
    }
    lines.push("scenario with all defaults:".into());
    lines.extend(p.scenario.lines().map(|l| format!("  {l}")));
    lines
}
