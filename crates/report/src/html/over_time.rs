// SPDX-License-Identifier: GPL-2.0-only
//! CPU use of each group over the measured window, one line per arm: mean over seeds.
use super::axis::{Axis, time};
use super::escape::{csv_row, escape};
use super::figure::{Figure, key, legend};
use berth_results::experiment::Experiment;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 28.0;

/// The mean over seeds of a series of an arm.
fn mean(e: &Experiment, arm: &str, name: &str) -> Vec<f64> {
    let runs: Vec<&Vec<f64>> = e
        .runs
        .iter()
        .filter(|r| r.arm == arm)
        .filter_map(|r| r.series.get(name))
        .collect();
    let parts = runs.iter().map(|r| r.len()).min().unwrap_or(0);
    (0..parts)
        .map(|i| runs.iter().map(|r| r[i]).sum::<f64>() / runs.len() as f64)
        .collect()
}

pub fn figure(e: &Experiment) -> Option<Figure> {
    let mut body = String::new();
    let mut csv = csv_row(&["group", "arm", "from_ns", "cpus"]);
    let mut entries = Vec::new();
    for group in &e.setup.groups {
        let name = format!("{}.cpu", group.name);
        let lines: Vec<(usize, Vec<f64>)> = (0..e.arms.len())
            .map(|i| (i, mean(e, &e.arms[i].name, &name)))
            .filter(|(_, l)| l.len() > 1)
            .collect();
        if lines.is_empty() {
            continue;
        }
        let most = lines
            .iter()
            .flat_map(|(_, l)| l)
            .fold(0.0, |a: f64, b| a.max(*b));
        let measure = e.setup.measure_ns as f64;
        let x = Axis::fixed(0.0, measure, LEFT, WIDTH - RIGHT);
        let y = Axis::fixed(0.0, most * 1.08, HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<text class=\"label\" x=\"{LEFT}\" y=\"15\">{}</text>",
            escape(&group.name)
        );
        for v in y.ticks(4) {
            let py = y.px(v);
            svg.push_str(&format!(
                "<path class=\"grid\" d=\"M{LEFT} {py:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                py + 4.0,
                (v * 100.0).round() / 100.0
            ));
        }
        for t in x.ticks(5) {
            svg.push_str(&format!(
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x.px(t),
                HEIGHT - BOTTOM + 17.0,
                if t == 0.0 { "0".into() } else { time(t) }
            ));
        }
        for (arm, line) in &lines {
            let class = key(e, *arm);
            let arm = &e.arms[*arm].name;
            if !entries.iter().any(|(_, n)| n == arm) {
                entries.push((class.clone(), arm.clone()));
            }
            let part = measure / line.len() as f64;
            let mut path = String::new();
            for (i, v) in line.iter().enumerate() {
                let at = part * (i as f64 + 0.5);
                path.push_str(&format!(
                    "{}{:.1} {:.1}",
                    if i == 0 { "M" } else { "L" },
                    x.px(at),
                    y.px(*v)
                ));
                csv.push_str(&csv_row(&[
                    group.name.clone(),
                    arm.clone(),
                    format!("{:.0}", part * i as f64),
                    format!("{v:.4}"),
                ]));
            }
            svg.push_str(&format!(
                "<path class=\"curve {class}\" d=\"{path}\"><title>{}</title></path>",
                escape(arm)
            ));
        }
        body.push_str(&format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"CPUs over time\">{svg}</svg>"
        ));
    }
    (!body.is_empty()).then(|| Figure {
        title: "Share over time".into(),
        caption:
            "CPUs used by each group in the measured window (after the warm-up), mean over seeds."
                .into(),
        body: format!("{}<div class=\"small\">{body}</div>", legend(&entries)),
        csv,
    })
}
