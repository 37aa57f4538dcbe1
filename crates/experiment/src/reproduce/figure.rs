// SPDX-License-Identifier: GPL-2.0-only
//! An experiment's figure: the means of its tables in the form of the paper's.
use super::measure::{Measured, MeasuredRun, Variant};
use berth_report::plot::{Plot, Point, Series, bars, lines};
use berth_scenario::paper::{Figure, Form, Over, Row};

/// A figure as a file.
pub struct Drawn {
    /// SVG.
    pub picture: String,
    /// The text alternative.
    pub words: String,
}

/// The figure of an experiment, if it has one.
pub fn figure(measured: &Measured<'_>) -> Option<Drawn> {
    let figure = measured.experiment.figure.as_ref()?;
    let plot = plot(figure, measured);
    Some(Drawn {
        picture: match figure.form {
            Form::Bars => bars(&plot),
            Form::Lines => lines(&plot),
        },
        words: plot.in_words(),
    })
}

fn plot(figure: &Figure, measured: &Measured<'_>) -> Plot {
    let runs = measured.runs.iter();
    let runs: Vec<&MeasuredRun<'_>> = runs
        .filter(|run| figure.runs.contains(&run.run.name))
        .collect();
    let mut plot = Plot {
        title: format!("{}: {}", measured.experiment.id, measured.experiment.title),
        x: figure.x.clone(),
        y: figure.y.clone(),
        ..Plot::default()
    };
    for run in &runs {
        for arm in run.run.arms.iter().filter(|arm| wanted(&figure.arms, arm)) {
            let rows = run
                .run
                .rows
                .iter()
                .filter(|row| wanted(&figure.rows, &row.label));
            let variants = run
                .variants
                .iter()
                .filter(|v| figure.variant.as_ref().is_none_or(|only| v.label == *only));
            let (rows, variants): (Vec<_>, Vec<_>) = (rows.collect(), variants.collect());
            // What does not stand along the axis tells series apart, where there is more than one of it.
            let (across, along) = match figure.over {
                Over::Rows => (
                    named(&variants, |v| &v.label),
                    named(&rows, |row| &row.label),
                ),
                Over::Variants => (
                    named(&rows, |row| &row.label),
                    named(&variants, |v| value(&v.label)),
                ),
            };
            if plot.categories.is_empty() {
                plot.categories.clone_from(&along);
            }
            for (i, other) in across.iter().enumerate() {
                let one_of_many = [
                    (runs.len() > 1).then_some(run.run.name.as_str()),
                    (figure.arms.len() != 1).then_some(arm.as_str()),
                    (across.len() > 1).then_some(other.as_str()),
                ];
                let name: Vec<&str> = one_of_many.into_iter().flatten().collect();
                let points = (0..along.len()).map(|j| match figure.over {
                    Over::Rows => point(variants[i], arm, rows[j]),
                    Over::Variants => point(variants[j], arm, rows[i]),
                });
                plot.series.push(Series {
                    name: name.join(", "),
                    points: points.collect(),
                });
            }
        }
    }
    plot
}

/// A list of names that is empty means all.
fn wanted(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|n| n == name)
}

fn named<T>(things: &[&T], name: impl Fn(&T) -> &str) -> Vec<String> {
    things.iter().map(|thing| name(thing).to_string()).collect()
}

/// What a variant sets, without the address, where that is one thing.
fn value(label: &str) -> &str {
    match label.split_once('=') {
        Some((_, value)) if !value.contains('=') => value,
        _ => label,
    }
}

fn point(variant: &Variant, arm: &str, row: &Row) -> Option<Point> {
    let e = variant.outcome.estimate(arm, &row.metric)?;
    Some(Point {
        mean: e.mean / row.per,
        half: e.half.unwrap_or(0.0) / row.per,
    })
}
