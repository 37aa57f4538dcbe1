// SPDX-License-Identifier: GPL-2.0-only
//! The same scenario in two places: does the simulator tell the truth?
use crate::table::leading_metric;
use crate::text::{fixed, left, right, time_scale, width};
use crate::{answers, effort};
use berth_results::experiment::Experiment;

/// Arms down; for each main metric the simulator's value beside the lab's. Values of different places are never
/// divided by each other; each place's work is relative to that place's baseline.
pub fn side_by_side(sim: &Experiment, lab: &Experiment) -> String {
    let mut arms: Vec<&str> = sim.arms.iter().map(|a| a.name.as_str()).collect();
    arms.extend(
        lab.arms
            .iter()
            .map(|a| a.name.as_str())
            .filter(|a| !sim.arms.iter().any(|s| s.name == *a)),
    );

    let mut pairs: Vec<(String, Vec<[String; 2]>)> = Vec::new();
    if let Some(metric) = leading_metric(sim).or_else(|| leading_metric(lab)) {
        let group = metric.split('.').next().unwrap_or("");
        let word = if metric.contains(".wakeup.") {
            "wake-up"
        } else {
            "response"
        };
        for stat in ["p50", "p99"] {
            let metric = metric.replace("p99", stat);
            pairs.push((
                format!("{group}: {word} {stat}"),
                times(&arms, sim, lab, &metric),
            ));
        }
        let answered = |e: &Experiment, arm: &str| {
            let requests = answers::behind(e, arm, &metric);
            requests.map_or("-".to_string(), answers::cell)
        };
        let rows: Vec<[String; 2]> = arms
            .iter()
            .map(|arm| [answered(sim, arm), answered(lab, arm)])
            .collect();
        if rows.iter().flatten().any(|cell| cell != "-") {
            pairs.push((format!("{group}: answered"), rows));
        }
    }
    // Work is compared with an arm that ran in both places.
    let ran = |e: &Experiment, arm: &str| e.runs.iter().any(|r| r.arm == arm);
    let common = lab
        .baseline
        .as_deref()
        .filter(|b| ran(sim, b) && ran(lab, b));
    let common = common.or_else(|| arms.iter().copied().find(|a| ran(sim, a) && ran(lab, a)));
    if let Some(common) = common {
        // Both places alike: what says nothing in the lab has nothing to be compared with.
        let effort = effort::of(lab);
        for group in sim.setup.groups.iter().filter(|g| g.class == "batch") {
            let metric = effort.metric(group);
            let cell = |e: &Experiment, arm: &str| {
                e.ratio(arm, common, &metric)
                    .map_or("-".into(), |r| format!("{} %", fixed(r.ratio * 100.0, 1)))
            };
            let rows = arms
                .iter()
                .map(|arm| [cell(sim, arm), cell(lab, arm)])
                .collect();
            let heading = format!("{}: {} of {common}'s", group.name, effort.word);
            pairs.push((heading, rows));
        }
    }
    draw(&arms, &pairs)
}

fn times(arms: &[&str], sim: &Experiment, lab: &Experiment, metric: &str) -> Vec<[String; 2]> {
    let mean = |e: &Experiment, arm: &str| e.estimate(arm, metric).map(|e| e.mean);
    let all = arms
        .iter()
        .flat_map(|arm| [mean(sim, arm), mean(lab, arm)])
        .flatten();
    let scale = time_scale(all);
    let cell = |value: Option<f64>| {
        value.map_or("-".into(), |v| {
            format!("{} {}", crate::text::number(v / scale.factor), scale.name)
        })
    };
    arms.iter()
        .map(|arm| [cell(mean(sim, arm)), cell(mean(lab, arm))])
        .collect()
}

fn draw(arms: &[&str], pairs: &[(String, Vec<[String; 2]>)]) -> String {
    let first = arms
        .iter()
        .map(|a| width(a))
        .chain([width("policy")])
        .max()
        .unwrap_or(0);
    let columns: Vec<(usize, usize)> = pairs
        .iter()
        .map(|(name, rows)| {
            let wide = |i: usize| {
                rows.iter()
                    .map(|r| width(&r[i]))
                    .chain([3])
                    .max()
                    .unwrap_or(3)
            };
            let (sim, lab) = (wide(0), wide(1));
            // The heading stands over both.
            (sim, lab.max(width(name).saturating_sub(sim + 2)))
        })
        .collect();
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    let head = pairs
        .iter()
        .zip(&columns)
        .map(|((name, _), (a, b))| format!("    {}", right(name, a + 2 + b)));
    line(format!("  {}{}", left("", first), head.collect::<String>()));
    let places = columns
        .iter()
        .map(|(a, b)| format!("    {}  {}", right("sim", *a), right("lab", *b)));
    line(format!(
        "  {}{}",
        left("policy", first),
        places.collect::<String>()
    ));
    for (i, arm) in arms.iter().enumerate() {
        let cells = pairs.iter().zip(&columns).map(|((_, rows), (a, b))| {
            format!("    {}  {}", right(&rows[i][0], *a), right(&rows[i][1], *b))
        });
        line(format!(
            "  {}{}",
            left(arm, first),
            cells.collect::<String>()
        ));
    }
    out
}
