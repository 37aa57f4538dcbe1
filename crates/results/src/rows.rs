// SPDX-License-Identifier: GPL-2.0-only
//! Results in long format: one row per run and metric. The same rows go into CSV and Parquet.
use crate::experiment::Results;
use crate::schema::{Place, unit_of};
use std::borrow::Cow;

/// Version of the columns of CSV and Parquet files (`docs/results.md`). 1: until Berth 0.1, without `vm`, `quantity`,
/// `statistic` and what was varied.
pub const SCHEMA: u32 = 2;

/// The columns that every file has, in order; then come the addresses that were varied.
pub const COLUMNS: [&str; 10] = [
    "place",
    "variant",
    "arm",
    "seed",
    "vm",
    "quantity",
    "statistic",
    "metric",
    "unit",
    "value",
];

/// One value.
pub struct Row<'a> {
    pub place: &'static str,
    /// What `--vary` set.
    pub set: &'a [String],
    pub arm: &'a str,
    pub seed: u64,
    pub metric: Cow<'a, str>,
    pub unit: &'static str,
    pub value: f64,
}

impl Row<'_> {
    /// What `--vary` set, joined by blanks.
    pub fn variant(&self) -> String {
        self.set.join(" ")
    }

    /// What it set this address to; empty if this variant does not.
    pub fn set(&self, address: &str) -> &str {
        let mut pairs = self.set.iter().filter_map(|set| set.split_once('='));
        pairs
            .find(|(a, _)| *a == address)
            .map_or("", |(_, value)| value)
    }

    /// VM group (or `host`, `policy`, ...), quantity and statistic of a metric. One of two words has no statistic; the
    /// middle of one of several words is the quantity.
    pub fn parts(&self) -> (&str, &str, &str) {
        let metric = &*self.metric;
        let Some((vm, rest)) = metric.split_once('.') else {
            return ("", metric, "");
        };
        // Of a wait the cause may have a dot of its own.
        if let Some(cause) = rest.strip_prefix("waits_for.") {
            return (vm, "waits_for", cause);
        }
        match rest.rsplit_once('.') {
            Some((quantity, statistic)) => (vm, quantity, statistic),
            None => (vm, rest, ""),
        }
    }

    /// The cells of [`COLUMNS`] before the value.
    pub fn texts(&self) -> [Cow<'_, str>; 9] {
        let (vm, quantity, statistic) = self.parts();
        [
            self.place.into(),
            self.variant().into(),
            self.arm.into(),
            self.seed.to_string().into(),
            vm.into(),
            quantity.into(),
            statistic.into(),
            (&*self.metric).into(),
            self.unit.into(),
        ]
    }
}

/// The addresses that `--vary` set in any variant, in its order.
pub fn varied(results: &Results) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for set in results.experiments.iter().flat_map(|e| &e.variant) {
        let address = set
            .split_once('=')
            .map_or(set.as_str(), |(address, _)| address);
        if !all.iter().any(|a| a == address) {
            all.push(address.to_string());
        }
    }
    all
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
        e.runs.iter().flat_map(move |run| {
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
                set: &e.variant,
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
        format!("schema: {SCHEMA}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_metrics() {
        let parts = |metric: &'static str| {
            let row = Row {
                place: "sim",
                set: &[],
                arm: "a",
                seed: 1,
                metric: metric.into(),
                unit: "1",
                value: 0.0,
            };
            let (vm, quantity, statistic) = row.parts();
            format!("{vm}|{quantity}|{statistic}")
        };
        assert_eq!(parts("web.response.p99"), "web|response|p99");
        assert_eq!(parts("web.cpu"), "web|cpu|");
        assert_eq!(parts("web.waits_for.a.b"), "web|waits_for|a.b");
        assert_eq!(parts("web.net.rx.p50"), "web|net.rx|p50");
        assert_eq!(parts("odd"), "|odd|");
    }
}
