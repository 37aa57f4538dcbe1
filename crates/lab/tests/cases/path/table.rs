// SPDX-License-Identifier: GPL-2.0-only
//! What several boots of the path came to, as Markdown: the median of the seeds, and the lowest to the highest where
//! they differ. With `BERTH_LAB_KEPT=FOLDER` what a boot came to is kept there, a file for each seed, and a seed that
//! is there is not run again: one boot takes up to an hour.
use super::{PARTS, Row, Ways};
use berth_sim::oracle::interval::Interval;
use std::path::PathBuf;

/// Ways that stand in the table of the kernel's parts: none, the process as the paper does it, the whole path.
pub const PROFILED: [&str; 5] = ["linux", "paper, taskset", "paper, cgroup", "full", "l2"];

fn file(ways: Ways, seed: u64) -> Option<PathBuf> {
    let folder = std::env::var_os("BERTH_LAB_KEPT")?;
    let of = match ways {
        Ways::Pairs => "pairs-",
        Ways::All | Ways::Short => "",
    };
    Some(PathBuf::from(folder).join(format!("{of}seed-{seed}.json")))
}

/// What an earlier boot with this seed came to.
pub fn kept(ways: Ways, seed: u64) -> Result<Option<Vec<Row>>, String> {
    let Some(file) = file(ways, seed).filter(|file| file.exists()) else {
        return Ok(None);
    };
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|e| failed(&e))?;
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|e| failed(&e))
}

/// Keeps what a boot came to, whole or not at all.
pub fn keep(ways: Ways, seed: u64, rows: &[Row]) -> Result<(), String> {
    let Some(file) = file(ways, seed) else {
        return Ok(());
    };
    let text = serde_json::to_string_pretty(rows).map_err(|e| e.to_string())? + "\n";
    let part = file.with_extension("part");
    let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, &file));
    written.map_err(|e| format!("{}: {e}", file.display()))
}

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
        .filter(|way| {
            let packets = of_way(seeds, way, &|r| r.packets as f64);
            !packets.is_empty() && !packets.contains(&0.0)
        })
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

/// How much longer answers take one way than another, in per cent: of the ratios of the seeds the geometric mean, with
/// its 95 % interval (Student's t, of their logarithms). The p99 of some 750 packets is the eighth longest.
pub fn compared(seeds: &[Vec<Row>], with: &str, way: &str) -> String {
    let of = |value: &dyn Fn(&Row) -> f64| {
        let ratio = |rows: &Vec<Row>| {
            let find = |name| rows.iter().find(|r| r.name == name).map(value);
            Some((find(way)? / find(with)?).ln())
        };
        let all: Vec<f64> = seeds.iter().filter_map(ratio).collect();
        let of_all = Interval::of(&all);
        let per_cent = |ln: f64| (ln.exp() - 1.0) * 100.0;
        format!(
            "{:+.1} % ({:+.1} to {:+.1}, {} boots)",
            per_cent(of_all.mean),
            per_cent(of_all.mean - of_all.half_width),
            per_cent(of_all.mean + of_all.half_width),
            all.len()
        )
    };
    let (mean, p99) = (of(&|r| r.mean), of(&|r| r.p99));
    format!("\n{way} against {with}: mean {mean}, p99 {p99}")
}

fn count(counts: &std::collections::BTreeMap<String, u64>, part: &str) -> f64 {
    counts.get(part).copied().unwrap_or(0) as f64
}

fn of_way(seeds: &[Vec<Row>], way: &str, value: &dyn Fn(&Row) -> f64) -> Vec<f64> {
    let rows = seeds.iter().flatten().filter(|r| r.name == way);
    rows.map(value).collect()
}
