// SPDX-License-Identifier: GPL-2.0-only
//! A table over several experiments: what their runs have, a line for each run.
use super::measure::MeasuredRun;
use super::{Reproduced, table};
use crate::error::Failure;
use berth_scenario::diag::{At, Error};
use berth_scenario::paper::{Line, Shows, Table};

/// The table of this id, from its title to its last line; `at` is where the page names it.
///
/// # Errors
/// The paper has none of this id.
pub fn part(all: &Reproduced<'_>, id: &str, at: &At) -> Result<String, Failure> {
    let tables = &all.paper.tables;
    let Some(found) = tables.iter().find(|table| table.id == id) else {
        let message = format!("the paper has no table `{}`", id.escape_debug());
        let ids = tables.iter().map(|table| table.id.as_str());
        return Err(Error::at(at, message).nearest(id, ids).into());
    };
    let note = found.note.as_ref();
    let note = note.map_or(String::new(), |note| format!("{note}\n\n"));
    Ok(format!(
        "### {}\n\n{note}{}",
        found.title,
        lines(all, found)
    ))
}

fn lines(all: &Reproduced<'_>, wanted: &Table) -> String {
    let heads = wanted.columns.iter().map(|column| column.head.as_str());
    let heads: Vec<&str> = std::iter::once(wanted.head.as_str()).chain(heads).collect();
    let mut lines = vec![
        format!("| {} |", heads.join(" | ")),
        format!("|{}", "---|".repeat(heads.len())),
    ];
    for line in &wanted.lines {
        let run = run(all, line);
        let mut words = line.words.iter();
        let mut cells = vec![line.label.clone()];
        cells.extend(wanted.columns.iter().map(|column| {
            match &column.shows {
                Shows::Words => words.next().cloned().unwrap_or_default(),
                Shows::Metric { arm, metric, per } => run
                    .and_then(|run| run.variants.first())
                    .map_or("-".into(), |v| table::mean(&v.outcome, arm, metric, *per)),
            }
        }));
        lines.push(format!("| {} |", cells.join(" | ")));
    }
    lines.join("\n") + "\n"
}

/// What was measured for a line.
fn run<'r>(all: &'r Reproduced<'_>, line: &Line) -> Option<&'r MeasuredRun<'r>> {
    let mut experiments = all.experiments.iter();
    let found = experiments.find(|measured| measured.experiment.id == line.experiment)?;
    found.runs.iter().find(|run| run.run.name == line.run)
}
