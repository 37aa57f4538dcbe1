// SPDX-License-Identifier: GPL-2.0-only
//! Two results of the same scenario, metric by metric, and what differed in how they were made.
use crate::Style;
use crate::sentences::wrap;
use crate::text::{left, right, value, width, with_half};
use berth_results::experiment::{Experiment, Results};
use berth_results::schema::unit_of;
use berth_results::stats::Ratio;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A metric of an arm in both.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub variant: String,
    pub arm: String,
    pub metric: String,
    pub unit: &'static str,
    /// Mean over seeds, and the half of its 95 % interval.
    pub a: Option<(f64, Option<f64>)>,
    pub b: Option<(f64, Option<f64>)>,
    /// B / A, paired by seed.
    pub ratio: Option<Ratio>,
    /// The paired interval excludes "no difference", or, of values that can be 0 or below, all of A's lie on one side
    /// of all of B's; of one seed, the values are not equal.
    pub differs: bool,
}

/// Both results.
#[derive(Clone, Debug, Serialize)]
pub struct Versus {
    /// What differs in how they were made, in words.
    pub inputs: Vec<String>,
    pub rows: Vec<Row>,
    /// Variants and arms that only one has.
    pub only_in_a: Vec<String>,
    pub only_in_b: Vec<String>,
}

/// Puts them side by side: all metrics of all arms and variants that both have.
pub fn versus(a: &Results, b: &Results) -> Versus {
    // In the order of the sweep.
    let cells = |results: &Results| -> Vec<(String, String)> {
        let each = results.experiments.iter().flat_map(|e| {
            let variant = e.variant.join(" ");
            let arms = e.arms.iter().filter(|arm| arm.absent.is_none());
            arms.map(move |arm| (variant.clone(), arm.name.clone()))
        });
        each.collect()
    };
    let (in_a, in_b) = (cells(a), cells(b));
    let only = |one: &[(String, String)], other: &[(String, String)]| {
        let missing = one.iter().filter(|cell| !other.contains(cell));
        missing
            .map(|(v, arm)| format!("{arm} {v}").trim_end().to_string())
            .collect()
    };
    let mut rows = Vec::new();
    for x in &a.experiments {
        let Some(y) = b.experiments.iter().find(|y| y.variant == x.variant) else {
            continue;
        };
        let arms = x
            .arms
            .iter()
            .filter(|arm| in_b.contains(&(x.variant.join(" "), arm.name.clone())));
        for arm in arms {
            let metrics: BTreeSet<&str> = x.metrics().union(&y.metrics()).copied().collect();
            rows.extend(
                metrics
                    .into_iter()
                    .filter_map(|metric| row(x, y, &arm.name, metric)),
            );
        }
    }
    Versus {
        inputs: inputs(a, b),
        rows,
        only_in_a: only(&in_a, &in_b),
        only_in_b: only(&in_b, &in_a),
    }
}

fn row(x: &Experiment, y: &Experiment, arm: &str, metric: &str) -> Option<Row> {
    let (a, b) = (x.values(arm, metric), y.values(arm, metric));
    if a.is_empty() && b.is_empty() {
        return None;
    }
    let ratio = berth_results::stats::paired_ratio(&b, &a);
    let span = |values: &BTreeMap<u64, f64>| {
        let all = values.values().copied();
        (
            all.clone().fold(f64::INFINITY, f64::min),
            all.fold(f64::NEG_INFINITY, f64::max),
        )
    };
    let ((low_a, high_a), (low_b, high_b)) = (span(&a), span(&b));
    let apart = !a.is_empty() && !b.is_empty() && (low_a > high_b || low_b > high_a);
    let mean = |e: &Experiment| e.estimate(arm, metric).map(|e| (e.mean, e.half));
    Some(Row {
        variant: x.variant.join(" "),
        arm: arm.to_string(),
        metric: metric.to_string(),
        unit: unit_of(metric),
        a: mean(x),
        b: mean(y),
        differs: match ratio {
            Some(Ratio {
                interval: Some(_), ..
            }) => ratio.is_some_and(|r| r.differs()),
            _ => apart,
        },
        ratio,
    })
}

/// What differs in how they were made.
fn inputs(a: &Results, b: &Results) -> Vec<String> {
    let (p, q) = (&a.provenance, &b.provenance);
    let mut said = Vec::new();
    let mut differ = |what: &str, x: &str, y: &str| {
        if x != y {
            let or = |text: &str| {
                if text.is_empty() {
                    "-".to_string()
                } else {
                    text.to_string()
                }
            };
            said.push(format!("{what}: {} -> {}", or(x), or(y)));
        }
    };
    differ("Berth", &p.version, &q.version);
    differ("command", &p.command, &q.command);
    differ("kernel", &p.kernel, &q.kernel);
    differ("vCPUs", &p.vcpus, &q.vcpus);
    differ("machine", &p.machine, &q.machine);
    let place = |r: &Results| format!("{:?}", r.place).to_lowercase();
    differ("place", &place(a), &place(b));
    let seeds = |r: &Results| {
        let seeds = r.experiments.first().map_or(&[][..], |e| &e.setup.seeds);
        seeds
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    differ("seeds", &seeds(a), &seeds(b));
    let hashes = |r: &Results| -> BTreeMap<String, String> {
        let arms = r.experiments.iter().flat_map(|e| &e.arms);
        arms.map(|arm| {
            let hash = arm.hash.as_deref().unwrap_or("the place's own");
            (
                arm.name.clone(),
                format!("{} {}", arm.policy, hash.get(..16).unwrap_or(hash)),
            )
        })
        .collect()
    };
    let (x, y) = (hashes(a), hashes(b));
    for (arm, hash) in &x {
        if let Some(other) = y.get(arm) {
            differ(&format!("policy of arm {arm}"), hash, other);
        }
    }
    let (x, y) = (settings(&p.scenario), settings(&q.scenario));
    let keys: BTreeSet<&String> = x.keys().chain(y.keys()).collect();
    for key in keys {
        let of = |all: &BTreeMap<String, String>| all.get(key).cloned().unwrap_or_default();
        differ(key, &of(&x), &of(&y));
    }
    said
}

/// Address and value of each line of a scenario with all defaults.
fn settings(text: &str) -> BTreeMap<String, String> {
    let mut header = String::new();
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            header = line
                .split(']')
                .next()
                .unwrap_or("")
                .trim_matches('[')
                .to_string();
        } else if let Some((key, value)) = line.split_once(" = ") {
            let value = value.split("  #").next().unwrap_or(value).trim();
            let address = format!("{header}.{}", key.trim());
            all.insert(
                address.trim_start_matches('.').to_string(),
                value.to_string(),
            );
        }
    }
    all
}

impl Versus {
    /// What only one of them has.
    pub fn only(&self, style: &Style) -> String {
        let mut out = String::new();
        for (where_, only) in [("A", &self.only_in_a), ("B", &self.only_in_b)] {
            if only.is_empty() {
                continue;
            }
            out.push_str(&format!("  Only in {where_}:\n"));
            for line in wrap(&only.join(", "), style.width.saturating_sub(4)) {
                out.push_str(&format!("    {line}\n"));
            }
        }
        out
    }

    /// As tables. Without `all` only metrics that differ, and how many do not.
    pub fn text(&self, all: bool, style: &Style) -> String {
        let mut out = String::new();
        out.push_str(match self.inputs.is_empty() {
            true => "  Made in the same way.\n",
            false => "  What differs in how they were made (A -> B):\n",
        });
        for line in &self.inputs {
            out.push_str(&format!("    {line}\n"));
        }
        out.push_str(&self.only(style));
        let mut cells: Vec<(&str, &str)> = Vec::new();
        for row in &self.rows {
            let cell = (row.variant.as_str(), row.arm.as_str());
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        for (variant, arm) in cells {
            let of = |row: &&Row| row.variant == variant && row.arm == arm;
            let rows: Vec<&Row> = self.rows.iter().filter(of).collect();
            let shown: Vec<&Row> = rows.iter().copied().filter(|r| all || r.differs).collect();
            let same = rows.len() - rows.iter().filter(|r| r.differs).count();
            let title = format!("{arm} {variant}");
            out.push_str(&format!("\n  {}\n", style.bold(title.trim_end())));
            out.push_str(&table(&shown));
            if !all {
                out.push_str(&format!(
                    "    {same} of {} metrics not told apart\n",
                    rows.len()
                ));
            }
        }
        out
    }
}

fn table(rows: &[&Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mean = |of: Option<(f64, Option<f64>)>, unit: &str| match of {
        None => "-".to_string(),
        Some((mean, None)) => value(mean, unit),
        Some((mean, Some(half))) => {
            let (mean, half) = with_half(mean, half, unit);
            format!("{mean} ± {half}")
        }
    };
    let ratio = |row: &Row| match row.ratio {
        None => "-".to_string(),
        Some(Ratio {
            ratio,
            interval: None,
            ..
        }) => format!("{ratio:.3}"),
        Some(Ratio {
            ratio,
            interval: Some((low, high)),
            ..
        }) => {
            format!("{ratio:.3} ({low:.3} to {high:.3})")
        }
    };
    let mut lines = vec![["metric", "A", "B", "B / A"].map(String::from)];
    for row in rows {
        let mark = if row.differs { "" } else { "  =" };
        lines.push([
            format!("{}{mark}", row.metric),
            mean(row.a, row.unit),
            mean(row.b, row.unit),
            ratio(row),
        ]);
    }
    let wide: Vec<usize> = (0..4)
        .map(|i| lines.iter().map(|l| width(&l[i])).max().unwrap_or(0))
        .collect();
    let line = |cells: &[String; 4]| {
        let rest: String = (1..4)
            .map(|i| format!("   {}", right(&cells[i], wide[i])))
            .collect();
        format!("    {}{rest}\n", left(&cells[0], wide[0]))
    };
    lines.iter().map(line).collect()
}
