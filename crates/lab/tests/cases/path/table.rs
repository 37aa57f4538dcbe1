// SPDX-License-Identifier: GPL-2.0-only
//! What several boots of the path came to, as Markdown: the median of the seeds, and the lowest to the highest where
//! they differ.
use super::{PARTS, Row};

/// Ways that stand in the table of the kernel's parts: none, the process as the paper does it, the whole path.
pub const PROFILED: [&str; 5] = ["linux", "paper, taskset", "paper, cgroup", "full", "l2"];

/// `median (lowest to highest)` of a value of each seed.
fn cell(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let shown = |value: f64| format!("{value:.digits$}");
    let median = match values.len() {
        0 => return "-".into(),
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    };
    let (least, most) = (shown(values[0]), shown(values[values.len() - 1]));
    match least == most {
        true => least,
        false => format!("{} ({least} to {most})", shown(median)),
    }
}

/// Times of all ways, in microseconds.
pub fn times(seeds: &[Vec<Row>]) -> String {
    let mut out = String::from(
        "| way | mean | p50 | p99 | CPUs of the six others | packets |\n|---|---|---|---|---|---|\n",
    );
    for first in seeds.first().into_iter().flatten() {
        let of =
            |value: &dyn Fn(&Row) -> f64, digits| cell(of_way(seeds, &first.name, value), digits);
        let us = |value: fn(&Row) -> f64| of(&|row| value(row) / 1e3, 0);
        out += &format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            first.name,
            us(|r| r.mean),
            us(|r| r.p50),
            us(|r| r.p99),
            of(&|r| r.hogs, 2),
            of(&|r| r.answered as f64, 0),
        );
    }
    out
}

/// Samples and calls of the kernel's parts, where both were taken.
pub fn parts(seeds: &[Vec<Row>]) -> String {
    let ways: Vec<&str> = PROFILED
        .into_iter()
        .filter(|way| !of_way(seeds, way, &|r| r.packets as f64).contains(&0.0))
        .collect();
    if ways.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "| | {} |\n|---{}|\n",
        ways.join(" | "),
        "|---".repeat(ways.len())
    );
    let mut line = |head: String, value: &dyn Fn(&Row) -> f64, digits| {
        let cells = ways
            .iter()
            .map(|way| cell(of_way(seeds, way, value), digits));
        out += &format!("| {head} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
    };
    for part in PARTS {
        line(
            format!("samples of 1,000 packets: {part}"),
            &|r| count(&r.samples, part) * 1e3 / r.packets as f64,
            0,
        );
    }
    for part in PARTS.into_iter().filter(|part| *part != "kvm") {
        line(
            format!("calls of a packet: {part}"),
            &|r| count(&r.calls, part) / r.counted as f64,
            2,
        );
    }
    out
}

fn count(counts: &std::collections::BTreeMap<String, u64>, part: &str) -> f64 {
    counts.get(part).copied().unwrap_or(0) as f64
}

fn of_way(seeds: &[Vec<Row>], way: &str, value: &dyn Fn(&Row) -> f64) -> Vec<f64> {
    let rows = seeds.iter().flatten().filter(|r| r.name == way);
    rows.map(value).collect()
}
