// SPDX-License-Identifier: GPL-2.0-only
//! How far threads moved between CPUs: per arm, changes of CPU a second by distance. Far moves leave warm caches
//! behind.
use super::escape::{csv_row, escape};
use super::figure::{Figure, legend};
use crate::text::value;
use berth_results::experiment::Experiment;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 96.0;
const ROW: f64 = 34.0;
const BAR: f64 = 20.0;

/// A distance: its name, and the metrics whose sum, the second ones taken off, are its moves.
type Distance = (&'static str, &'static str, &'static str);
/// From near to far. `other_package` has all packages in it, also those of other nodes.
const DISTANCES: [Distance; 5] = [
    ("SMT sibling", "same_core", ""),
    ("same last-level cache", "same_llc", ""),
    ("another cache of the package", "other_llc", ""),
    ("another package of the node", "other_package", "other_node"),
    ("another node", "other_node", ""),
];

/// Moves a second of an arm to each distance, means over seeds; none if they were not counted.
fn moves(e: &Experiment, arm: &str) -> Option<[f64; 5]> {
    let of = |name: &str| match name {
        "" => Some(0.0),
        name => Some(e.estimate(arm, &format!("host.moves.{name}"))?.mean),
    };
    let mut all = [0.0; 5];
    for (sum, (_, whole, less)) in all.iter_mut().zip(DISTANCES) {
        *sum = (of(whole)? - of(less)?).max(0.0);
    }
    Some(all)
}

pub fn figure(e: &Experiment) -> Option<Figure> {
    let arms: Vec<(&str, [f64; 5])> = e
        .arms
        .iter()
        .filter_map(|a| Some((a.name.as_str(), moves(e, &a.name)?)))
        .collect();
    let total = |m: &[f64; 5]| m.iter().sum::<f64>();
    let most = arms.iter().map(|(_, m)| total(m)).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let mut csv = csv_row(&["arm", "distance", "moves_per_s"]);
    let mut svg = String::new();
    for (row, (arm, moves)) in arms.iter().enumerate() {
        let y = row as f64 * ROW + (ROW - BAR) / 2.0;
        let middle = y + BAR / 2.0 + 4.5;
        svg.push_str(&format!(
            "<text class=\"label\" x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            escape(arm)
        ));
        let mut x = LEFT;
        for (i, (n, (name, ..))) in moves.iter().zip(DISTANCES).enumerate() {
            let wide = n / most * (WIDTH - LEFT - RIGHT);
            let shown = value(*n, "1/s");
            csv.push_str(&csv_row(&[
                (*arm).to_string(),
                name.to_string(),
                format!("{n:.3}"),
            ]));
            if wide <= 0.0 {
                continue;
            }
            svg.push_str(&format!(
                "<g class=\"d{i}\"><rect class=\"ran\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" \
                 height=\"{BAR}\"><title>{}: to {name} {}</title></rect></g>",
                escape(arm),
                escape(&shown)
            ));
            x += wide;
        }
        svg.push_str(&format!(
            "<text class=\"tick\" x=\"{:.1}\" y=\"{middle:.1}\">{}</text>",
            x + 8.0,
            escape(&value(total(moves), "1/s"))
        ));
    }
    let there = |i: &usize| arms.iter().any(|(_, m)| m[*i] > 0.0);
    let entries: Vec<(String, String)> = (0..DISTANCES.len())
        .filter(there)
        .map(|i| (format!("d{i}"), DISTANCES[i].0.to_string()))
        .collect();
    let height = arms.len() as f64 * ROW;
    Some(Figure {
        title: "Moves by distance".into(),
        caption: "Changes of CPU of the host's threads a second, by how far the new CPU is from the old one; mean over \
                  seeds. The farther, the more of a working set must be brought again."
            .into(),
        body: format!(
            "{}<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Moves by distance\">{svg}</svg>",
            legend(&entries)
        ),
        csv,
    })
}
