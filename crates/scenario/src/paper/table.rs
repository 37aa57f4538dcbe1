// SPDX-License-Identifier: GPL-2.0-only
//! `[[table]]`: one over several experiments.
use super::keys::{COLUMN, LINE};
use super::read::{list, one_of, words};
use super::{Column, Experiment, Line, Run, Shows, Table};
use crate::diag::{Error, Result};
use crate::section::Section;

pub fn table(section: &Section<'_>, experiments: &[Experiment]) -> Result<Table> {
    let columns = section.tables("columns", &COLUMN, |column| self::column(&column))?;
    let of_words = columns.iter().filter(|c| c.shows == Shows::Words).count();
    let lines = section.tables("lines", &LINE, |line| {
        let (line, run) = self::line(&line, experiments, of_words)?;
        for column in &columns {
            has(section, run, column)?;
        }
        Ok(line)
    })?;
    Ok(Table {
        id: words(section, "id")?,
        title: words(section, "title")?,
        note: section.string("note")?.map(|(text, _)| text),
        head: words(section, "head")?,
        columns,
        lines,
    })
}

fn column(section: &Section<'_>) -> Result<Column> {
    let arm = section.string("arm")?.map(|(arm, _)| arm);
    let metric = section.string("metric")?.map(|(metric, _)| metric);
    let shows = match (arm, metric) {
        (Some(arm), Some(metric)) => Shows::Metric {
            arm,
            metric,
            per: section.positive("per")?.unwrap_or(1.0),
        },
        (None, None) => Shows::Words,
        _ => {
            let why = "a column has both `arm` and `metric`, or, if it is of words, neither";
            return Err(Error::at(&section.at, why));
        }
    };
    Ok(Column {
        head: words(section, "head")?,
        shows,
    })
}

/// A line, and its run.
fn line<'e>(
    section: &Section<'_>,
    experiments: &'e [Experiment],
    of_words: usize,
) -> Result<(Line, &'e Run)> {
    let named = |key: &str| -> Result<_> {
        let found = section.string(key)?;
        Ok(found.unwrap_or_else(|| (String::new(), section.at.clone())))
    };
    let (experiment, at) = named("experiment")?;
    let known: Vec<&str> = experiments.iter().map(|e| e.id.as_str()).collect();
    let experiment = one_of(experiment, &at, &known, "the paper has no experiment")?;
    let runs = experiments.iter().filter(|e| e.id == experiment);
    let runs: Vec<&Run> = runs.flat_map(|e| &e.runs).collect();
    let (run, at) = named("run")?;
    let known: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let name = one_of(run, &at, &known, "the experiment has no run")?;
    let found = runs.into_iter().find(|run| run.name == name);
    let found = found.filter(|run| run.vary.is_empty() && run.each.is_empty());
    let Some(found) = found else {
        let why = format!("`{}` is several runs (vary, each)", name.escape_debug());
        return Err(Error::at(&at, why));
    };
    let words_here = list(section, "words")?;
    if words_here.len() != of_words {
        let why = format!(
            "{} `words` instead of {of_words}, one for each column of words",
            words_here.len()
        );
        return Err(Error::at(&section.at, why));
    }
    let line = Line {
        label: words(section, "label")?,
        experiment,
        run: name,
        words: words_here,
    };
    Ok((line, found))
}

/// The run shows what the column wants of it.
fn has(section: &Section<'_>, run: &Run, column: &Column) -> Result<()> {
    let Shows::Metric { arm, metric, .. } = &column.shows else {
        return Ok(());
    };
    let none = format!("run {}: it has no", run.name.escape_debug());
    let arms: Vec<&str> = run.arms.iter().map(String::as_str).collect();
    one_of(arm.clone(), &section.at, &arms, &format!("{none} arm"))?;
    let rows: Vec<&str> = run.rows.iter().map(|row| row.metric.as_str()).collect();
    one_of(metric.clone(), &section.at, &rows, &format!("{none} row"))?;
    Ok(())
}
