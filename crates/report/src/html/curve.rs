// SPDX-License-Identifier: GPL-2.0-only
//! Latency as a picture: which share of times is longer than t, both axes logarithmic, so that p99.9 can be seen.
use super::axis::{Axis, time};
use super::escape::{csv_row, escape};
use super::figure::{Figure, key, legend};
use crate::text::count;
use berth_results::detail::Distribution;
use berth_results::experiment::{Experiment, Group};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 50.0;

/// What a group is looked at by.
fn quantity(e: &Experiment, group: &Group) -> Option<(&'static str, &'static str)> {
    let has = |q: &str| {
        let name = format!("{}.{q}", group.name);
        e.runs.iter().any(|r| r.times.contains_key(&name))
    };
    if has("response") {
        Some(("response", "response time"))
    } else if group.class != "batch" && has("wakeup") {
        Some(("wakeup", "wake-up latency"))
    } else if has("run_delay") {
        Some(("run_delay", "stays in a run queue"))
    } else {
        None
    }
}

/// One figure per VM group.
pub fn figures(e: &Experiment) -> Vec<Figure> {
    let one = |group: &Group| {
        let (quantity, words) = quantity(e, group)?;
        let name = format!("{}.{quantity}", group.name);
        let arms: Vec<(usize, Distribution)> = (0..e.arms.len())
            .map(|i| {
                let runs = e.runs.iter().filter(|r| r.arm == e.arms[i].name);
                (
                    i,
                    Distribution::merged(runs.filter_map(|r| r.times.get(&name))),
                )
            })
            .filter(|(_, d)| d.total() > 0)
            .collect();
        (!arms.is_empty()).then(|| figure(e, group, words, &arms))
    };
    e.setup.groups.iter().filter_map(one).collect()
}

/// (t, share of times longer than t), from the first step on.
fn survivors(d: &Distribution) -> Vec<(f64, f64)> {
    let total = d.total() as f64;
    let mut left = d.total();
    d.upto_ns
        .iter()
        .zip(&d.count)
        .map(|(upto, n)| {
            left -= n;
            ((*upto).max(1) as f64, left as f64 / total)
        })
        .collect()
}

fn figure(e: &Experiment, group: &Group, words: &str, arms: &[(usize, Distribution)]) -> Figure {
    let curves: Vec<(usize, Vec<(f64, f64)>)> =
        arms.iter().map(|(i, d)| (*i, survivors(d))).collect();
    let most = arms.iter().map(|(_, d)| d.total()).max().unwrap_or(1) as f64;
    // Below one in so many there is nobody; what is below 1 us is no longer told apart.
    let times = curves
        .iter()
        .flat_map(|(_, c)| c.iter().map(|p| p.0.max(1e3)));
    let x = Axis::log(times, 0.02, LEFT, WIDTH - RIGHT);
    let least = (1.0 / most).clamp(1e-6, 0.05);
    let y = Axis::log([1.0, least], 0.0, HEIGHT - BOTTOM, TOP);

    let mut svg = String::new();
    for t in x.ticks(7) {
        let px = x.px(t);
        svg.push_str(&format!(
            "<path class=\"grid\" d=\"M{px:.1} {TOP}V{:.1}\"/><text class=\"tick\" x=\"{px:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 17.0,
            time(t)
        ));
    }
    for (share, name) in [
        (1.0, "all"),
        (0.5, "p50"),
        (0.1, "p90"),
        (0.01, "p99"),
        (0.001, "p99.9"),
        (0.0001, "p99.99"),
        (0.00001, "p99.999"),
    ] {
        if share < least {
            break;
        }
        let py = y.px(share);
        svg.push_str(&format!(
            "<path class=\"grid\" d=\"M{LEFT} {py:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{name}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            py + 4.0
        ));
    }
    svg.push_str(&format!(
        "<text class=\"label\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">longer than</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0
    ));
    let mut csv = csv_row(&["arm", "longer_than_ns", "share"]);
    let mut entries = Vec::new();
    for (arm, curve) in &curves {
        let name = &e.arms[*arm].name;
        let class = key(e, *arm);
        entries.push((class.clone(), name.clone()));
        let mut path = format!("M{LEFT:.1} {:.1}", y.px(1.0));
        let mut last = 1.0;
        let (mut ts, mut shares) = (String::new(), String::new());
        for (t, share) in curve {
            csv.push_str(&csv_row(&[
                name.clone(),
                t.to_string(),
                format!("{share:.7}"),
            ]));
            ts.push_str(&format!("{t:.0} "));
            shares.push_str(&format!("{share:.7} "));
            // Steps: until t, the share is the one before.
            path.push_str(&format!("H{:.1}", x.px(t.max(1e3))));
            let down = if *share > 0.0 {
                y.px(*share)
            } else {
                HEIGHT - BOTTOM
            };
            if *share < last {
                path.push_str(&format!("V{down:.1}"));
            }
            last = *share;
        }
        svg.push_str(&format!(
            "<path class=\"curve {class}\" data-arm=\"{}\" data-t=\"{}\" data-s=\"{}\" \
             d=\"{path}\"><title>{}</title></path>",
            escape(name),
            ts.trim_end(),
            shares.trim_end(),
            escape(name)
        ));
    }
    let (low, high) = x.ends();
    Figure {
        title: format!("{}: {words}", group.name),
        caption: format!(
            "Share of {words} of {} ({}, {}) that is longer than t; all seeds together. Lower and further left is \
             better. Steps of 4.5 %.",
            group.name,
            count(group.vms, "VM"),
            group.class
        ),
        body: format!(
            "{}<svg class=\"curves\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"survival curve\" \
             data-left=\"{LEFT}\" data-right=\"{}\" data-low=\"{low:.6}\" data-high=\"{high:.6}\" \
             data-bottom=\"{}\">{svg}\
             <path class=\"finger\" d=\"\"/></svg><div class=\"tip\" hidden></div>",
            legend(&entries),
            WIDTH - RIGHT,
            HEIGHT - BOTTOM
        ),
        csv,
    }
}
