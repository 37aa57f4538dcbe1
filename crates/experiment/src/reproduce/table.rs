// SPDX-License-Identifier: GPL-2.0-only
//! A run's table in Markdown: a row for each metric and variant, with the means of the arms, and what each changes
//! against the first one on the same arrivals.
use super::measure::{Measured, MeasuredRun};
use super::over_time;
use berth_report::text::significant;
use berth_results::experiment::Experiment;
use berth_results::stats::{Estimate, estimate};
use berth_scenario::paper::Row;

/// A change whose interval is wider than this many per cent says nothing: the first arm has nearly nothing in some
/// runs.
const WIDEST_PERCENT: f64 = 100.0;

/// All tables of an experiment, each below its command.
pub fn tables(measured: &Measured<'_>) -> String {
    let tables = measured.runs.iter().map(|run| {
        let note = run.run.note.as_ref();
        let note = note.map_or(String::new(), |note| format!("{note}\n\n"));
        let each = match (run.run.each.is_empty(), run.run.parts.is_empty()) {
            (true, true) => "",
            (false, true) => ", once for each setting of the table",
            (true, false) => ", once for each part of the index",
            (false, false) => ", once for each setting of the table and each part of the index",
        };
        format!("{note}`{}`{each}\n\n{}", run.command, table(run))
    });
    let traces = measured.traced.iter().map(over_time::table);
    tables.chain(traces).collect::<Vec<_>>().join("\n")
}

/// The table of one run.
pub fn table(run: &MeasuredRun<'_>) -> String {
    let arms = &run.run.arms;
    // Speed-ups are changes already.
    let compared = match run.run.speedup {
        Some(_) => &[][..],
        None => &arms[1..],
    };
    let against = compared
        .iter()
        .map(|arm| format!("{arm} against {}", arms[0]));
    let head: Vec<String> = std::iter::once(run.run.head.clone())
        .chain(arms.iter().cloned())
        .chain(against)
        .collect();
    let mut lines = vec![
        format!("| {} |", head.join(" | ")),
        format!("|{}", "---|".repeat(head.len())),
    ];
    for row in &run.run.rows {
        for variant in &run.variants {
            let mut cells = vec![label(row, &variant.label)];
            let outcome = &variant.outcome;
            cells.extend(
                arms.iter()
                    .map(|arm| mean(outcome, arm, &row.metric, row.per)),
            );
            cells.extend(
                compared
                    .iter()
                    .map(|arm| changed(outcome, arm, &arms[0], &row.metric)),
            );
            lines.push(format!("| {} |", cells.join(" | ")));
        }
    }
    lines.join("\n") + "\n"
}

/// Of a row with a variant.
pub fn label(row: &Row, variant: &str) -> String {
    let parts = [row.label.as_str(), variant];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

pub fn mean(outcome: &Experiment, arm: &str, metric: &str, per: f64) -> String {
    let Some(e) = outcome.estimate(arm, metric) else {
        return "-".into();
    };
    let half = e.half.unwrap_or(0.0);
    format!(
        "{} ± {}",
        significant(e.mean / per, 4),
        significant(half / per, 2)
    )
}

fn changed(outcome: &Experiment, arm: &str, base: &str, metric: &str) -> String {
    match change(outcome, arm, base, metric) {
        Some(Estimate { mean, half, .. }) => format!("{mean:+.1} ± {:.1} %", half.unwrap_or(0.0)),
        None => "-".into(),
    }
}

/// By how many per cent an arm differs from another, seed by seed; none if that says nothing.
fn change(outcome: &Experiment, arm: &str, base: &str, metric: &str) -> Option<Estimate> {
    let (ours, theirs) = (outcome.values(arm, metric), outcome.values(base, metric));
    let changes: Vec<f64> = ours
        .iter()
        .filter_map(|(seed, ours)| Some((ours, theirs.get(seed)?)))
        .filter(|(_, theirs)| **theirs > 0.0)
        .map(|(ours, theirs)| (ours / theirs - 1.0) * 100.0)
        .collect();
    estimate(&changes).filter(|e| e.half.unwrap_or(0.0) <= WIDEST_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_results::experiment::Setup;
    use berth_results::schema::{Place, RunRecord};
    use std::collections::BTreeMap;

    /// Arms with one metric, a value per seed, in nanoseconds.
    fn outcome(arms: &[(&str, &[f64])]) -> Experiment {
        let runs = arms.iter().flat_map(|(arm, values)| {
            values.iter().enumerate().map(|(seed, value)| {
                let metrics = BTreeMap::from([("web.response.mean".to_string(), *value)]);
                RunRecord::new(Place::Sim, arm, seed as u64, metrics)
            })
        });
        Experiment {
            setup: Setup {
                name: "t".into(),
                title: "T".into(),
                cpus: 1,
                groups: Vec::new(),
                warmup_ns: 0,
                measure_ns: 1,
                seeds: Vec::new(),
            },
            variant: Vec::new(),
            arms: Vec::new(),
            baseline: None,
            runs: runs.collect(),
            expects: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
        }
    }

    const METRIC: &str = "web.response.mean";

    #[test]
    fn means_are_in_the_row_s_unit_with_student_s_t() {
        let row = Row {
            metric: METRIC.into(),
            label: "mean, ms".into(),
            per: 1e6,
        };
        // Mean 5, deviation sqrt(2.5), n 5: 2.776445 * 0.707107 = 1.963.
        let e = outcome(&[("a", &[3e6, 4e6, 5e6, 6e6, 7e6])]);
        assert_eq!(mean(&e, "a", METRIC, row.per), "5 ± 2");
        assert_eq!(mean(&e, "b", METRIC, row.per), "-");
        assert_eq!(label(&row, "x=1"), "mean, ms, x=1");
        assert_eq!(label(&row, ""), "mean, ms");
    }

    #[test]
    fn changes_are_paired_by_seed_and_say_nothing_where_they_vary_much() {
        let e = outcome(&[
            ("a", &[10.0, 20.0, 40.0]),
            ("b", &[5.0, 10.0, 20.0]),
            ("c", &[5.0, 60.0, 20.0]),
        ]);
        assert_eq!(changed(&e, "b", "a", METRIC), "-50.0 ± 0.0 %");
        assert_eq!(changed(&e, "a", "b", METRIC), "+100.0 ± 0.0 %");
        assert_eq!(changed(&e, "c", "a", METRIC), "-");
        // Seeds in which the first arm has nothing are left out.
        let e = outcome(&[("a", &[0.0, 20.0, 40.0]), ("b", &[5.0, 10.0, 20.0])]);
        assert_eq!(changed(&e, "b", "a", METRIC), "-50.0 ± 0.0 %");
    }
}
