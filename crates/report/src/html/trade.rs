// SPDX-License-Identifier: GPL-2.0-only
//! Gain against price: one point per arm, latency up, work across, the baseline as cross-hair.
use super::axis::{Axis, time};
use super::escape::{csv_row, escape};
use super::figure::{Figure, key};
use crate::effort;
use crate::table::{does_work, leading_metric};
use berth_results::experiment::Experiment;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 52.0;

struct Point {
    arm: String,
    index: usize,
    x: (f64, f64, f64),
    y: (f64, f64, f64),
}

/// The figure; none without a latency or a price.
pub fn figure(e: &Experiment) -> Option<Figure> {
    let latency = leading_metric(e)?;
    let base = e.baseline.as_deref()?;
    let effort = effort::of(e);
    let worker = e.setup.groups.iter().find(|g| does_work(e, g));
    let (price, what) = match worker {
        Some(g) => (
            effort.metric(g),
            format!("{} of {}, % of {base}", effort.word, g.name),
        ),
        None => (
            "host.switches_per_cpu".to_string(),
            "switches per CPU and second".to_string(),
        ),
    };
    let points: Vec<Point> = e
        .arms
        .iter()
        .enumerate()
        .filter_map(|(index, arm)| {
            let y = e.estimate(&arm.name, &latency)?;
            let half = y.half.unwrap_or(0.0);
            let x = if worker.is_some() {
                let r = e.ratio(&arm.name, base, &price)?;
                let (low, high) = r.interval.unwrap_or((r.ratio, r.ratio));
                (r.ratio * 100.0, low * 100.0, high * 100.0)
            } else {
                let x = e.estimate(&arm.name, &price)?;
                let half = x.half.unwrap_or(0.0);
                (x.mean, x.mean - half, x.mean + half)
            };
            Some(Point {
                arm: arm.name.clone(),
                index,
                x,
                y: (y.mean, y.mean - half, y.mean + half),
            })
        })
        .collect();
    if points.len() < 2 {
        return None;
    }
    // At least 4 % wide, so that next to nothing does not look like much.
    let scale = points.iter().map(|p| p.x.0).fold(0.0, f64::max);
    let middle = points.iter().map(|p| p.x.0).sum::<f64>() / points.len() as f64;
    let least = [middle - scale * 0.02, middle + scale * 0.02];
    let x = Axis::linear(
        points
            .iter()
            .flat_map(|p| [p.x.0, p.x.1, p.x.2])
            .chain(least),
        0.14,
        LEFT,
        WIDTH - RIGHT,
    );
    let y = Axis::log(
        points.iter().flat_map(|p| [p.y.0, p.y.1, p.y.2]),
        0.12,
        HEIGHT - BOTTOM,
        TOP,
    );
    let mut svg = frame(&x, &y, &what, &latency);
    if let Some(b) = points.iter().find(|p| p.arm == base) {
        svg.push_str(&format!(
            "<path class=\"cross\" d=\"M{:.1} {TOP}V{:.1}M{LEFT} {:.1}H{:.1}\"/>",
            x.px(b.x.0),
            HEIGHT - BOTTOM,
            y.px(b.y.0),
            WIDTH - RIGHT
        ));
    }
    let mut csv = csv_row(&[
        "arm",
        "price",
        "price_low",
        "price_high",
        "p99_ns",
        "p99_low_ns",
        "p99_high_ns",
    ]);
    let mut labels: Vec<(f64, f64)> = Vec::new();
    for p in &points {
        let (cx, cy) = (x.px(p.x.0), y.px(p.y.0));
        let class = key(e, p.index);
        svg.push_str(&format!(
            "<g class=\"{class}\"><path class=\"bar\" d=\"M{:.1} {cy:.1}H{:.1}M{cx:.1} {:.1}V{:.1}\"/>\
             <circle class=\"dot\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"6\"><title>{}: p99 {} ({} to {}), {:.1} ({:.1} to \
             {:.1})</title></circle>",
            x.px(p.x.1),
            x.px(p.x.2),
            y.px(p.y.1),
            y.px(p.y.2),
            escape(&p.arm),
            time(p.y.0),
            if p.y.1 > 0.0 { time(p.y.1) } else { "0 or less".into() },
            time(p.y.2),
            p.x.0,
            p.x.1,
            p.x.2
        ));
        // Beside the point, on the side where there is room; below what is there already.
        let right = cx < WIDTH * 0.72;
        let mut at = cy - 10.0;
        while labels
            .iter()
            .any(|(lx, ly)| (lx - cx).abs() < 130.0 && (ly - at).abs() < 15.0)
        {
            at += 16.0;
        }
        labels.push((cx, at));
        svg.push_str(&format!(
            "<text class=\"name\" x=\"{:.1}\" y=\"{at:.1}\" text-anchor=\"{}\">{}</text></g>",
            if right { cx + 10.0 } else { cx - 10.0 },
            if right { "start" } else { "end" },
            escape(&p.arm)
        ));
        csv.push_str(&csv_row(&[
            p.arm.clone(),
            p.x.0.to_string(),
            p.x.1.to_string(),
            p.x.2.to_string(),
            p.y.0.to_string(),
            p.y.1.to_string(),
            p.y.2.to_string(),
        ]));
    }
    let better = if worker.is_some() {
        "better: lower and further right"
    } else {
        "better: lower and further left"
    };
    svg.push_str(&format!(
        "<text class=\"hint\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\">{better}</text>",
        if worker.is_some() {
            WIDTH - RIGHT - 6.0
        } else {
            LEFT + 8.0
        },
        HEIGHT - BOTTOM - 8.0,
        if worker.is_some() { "end" } else { "start" }
    ));
    // A logarithmic axis has no place for what is not above zero.
    let out = if points.iter().any(|p| p.y.1 <= 0.0) {
        " A bar that leaves the picture below goes to 0 or beyond."
    } else {
        ""
    };
    Some(Figure {
        title: "Gain against price".into(),
        caption: format!(
            "Each arm once: {latency} (logarithmic) against {what}. Bars are 95 % intervals over seeds; the cross-hair \
             is the baseline, {base}.{out}"
        ),
        body: format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"gain against price\">{svg}</svg>"
        ),
        csv,
    })
}

fn frame(x: &Axis, y: &Axis, what: &str, latency: &str) -> String {
    let mut svg = String::new();
    for v in x.ticks(7) {
        let px = x.px(v);
        svg.push_str(&format!(
            "<path class=\"grid\" d=\"M{px:.1} {TOP}V{:.1}\"/><text class=\"tick\" x=\"{px:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 17.0,
            plain(v)
        ));
    }
    for v in y.ticks(6) {
        let py = y.px(v);
        svg.push_str(&format!(
            "<path class=\"grid\" d=\"M{LEFT} {py:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            py + 4.0,
            time(v)
        ));
    }
    svg.push_str(&format!(
        "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text class=\"label turned\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0,
        escape(what),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(latency)
    ));
    svg
}

/// A number without needless digits.
fn plain(v: f64) -> String {
    let text = format!("{v:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}
