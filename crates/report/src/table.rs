// SPDX-License-Identifier: GPL-2.0-only
//! The table of one experiment: arms down, what matters across.
use crate::text::{Scale, decimals, fixed, left, number, right, time_scale, width};
use crate::{Style, answers, effort};
use berth_results::experiment::{Experiment, Group};

/// A column: heading in two lines, one cell per arm, and how much it matters (0 = first to stay).
struct Column {
    group: String,
    name: String,
    cells: Vec<String>,
    importance: u32,
}

impl Column {
    fn width(&self) -> usize {
        self.cells
            .iter()
            .map(|c| width(c))
            .chain([width(&self.name)])
            .max()
            .unwrap_or(0)
    }
}

const ABSENT: &str = "-";
const MARGIN: usize = 2;
const GAP: usize = 3;

/// The metric by which arms are judged: the first of these that was measured, of the first latency-sensitive group.
pub fn leading_metric(experiment: &Experiment) -> Option<String> {
    let measured = experiment.metrics();
    let groups = experiment
        .setup
        .groups
        .iter()
        .filter(|g| g.class != "batch")
        .chain(&experiment.setup.groups);
    for group in groups {
        for quantity in ["response.p99", "wakeup.p99"] {
            let metric = format!("{}.{quantity}", group.name);
            let busy = quantity == "wakeup.p99" && group.class == "batch";
            if measured.contains(metric.as_str()) && !busy {
                return Some(metric);
            }
        }
    }
    None
}

/// The group's work matters more than its latency: it never answers anybody.
pub(crate) fn does_work(experiment: &Experiment, group: &Group) -> bool {
    let measured = experiment.metrics();
    let has = |quantity: &str| measured.contains(format!("{}.{quantity}", group.name).as_str());
    has("work") && !has("response.p99") && group.class != "latency"
}

/// The table, one line each; every line ends without blanks.
pub fn table(experiment: &Experiment, style: &Style) -> String {
    let mut columns = columns(experiment);
    let names: Vec<String> = experiment.arms.iter().map(|a| a.label()).collect();
    let first = names
        .iter()
        .map(|n| width(n))
        .chain([width("policy")])
        .max()
        .unwrap_or(0);
    let has_baseline = experiment
        .baseline
        .as_ref()
        .is_some_and(|b| names.contains(b));
    let baseline_mark = if has_baseline { "   baseline" } else { "" };

    // What does not fit goes, the least important first.
    let total = |columns: &[Column]| {
        MARGIN
            + first
            + columns.iter().map(|c| GAP + c.width()).sum::<usize>()
            + width(baseline_mark)
    };
    let mut dropped = 0;
    while total(&columns) > style.width && columns.len() > 1 {
        let least = columns.iter().map(|c| c.importance).max().unwrap_or(0);
        if least == 0 {
            break;
        }
        if let Some(i) = columns.iter().rposition(|c| c.importance == least) {
            columns.remove(i);
            dropped += 1;
        }
    }

    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(heading(&columns, MARGIN + first));
    let names_row = columns
        .iter()
        .map(|c| format!("{}{}", " ".repeat(GAP), right(&c.name, c.width())));
    line(format!(
        "{}{}{}",
        " ".repeat(MARGIN),
        left("policy", first),
        names_row.collect::<String>()
    ));
    let best = leading_metric(experiment).and_then(|m| answers::best(experiment, &m));
    for (i, name) in names.iter().enumerate() {
        // Names of arms that stand in for the kernel's scheduler say so; the mark goes by the arm.
        let is_best = best == Some(&experiment.arms[i].name);
        let mark = if is_best { "▸ " } else { "  " };
        let cells = columns
            .iter()
            .map(|c| format!("{}{}", " ".repeat(GAP), right(&c.cells[i], c.width())));
        let text = format!("{mark}{}{}", left(name, first), cells.collect::<String>());
        let text = if is_best { style.bold(&text) } else { text };
        let tail = if experiment.baseline.as_deref() == Some(name) {
            baseline_mark
        } else {
            ""
        };
        line(format!("{text}{tail}"));
    }
    if dropped > 0 {
        let columns = if dropped == 1 { "column" } else { "columns" };
        line(format!(
            "  ({dropped} more {columns} on a wider terminal, and in the results file)"
        ));
    }
    out
}

/// Group names over the columns they span.
fn heading(columns: &[Column], first: usize) -> String {
    let mut out = " ".repeat(first);
    let mut i = 0;
    while i < columns.len() {
        let group = &columns[i].group;
        let span = columns[i..]
            .iter()
            .take_while(|c| c.group == *group)
            .count();
        let mut columns_wide: usize = columns[i..i + span].iter().map(|c| GAP + c.width()).sum();
        if i + span == columns.len() {
            columns_wide = columns_wide.max(GAP + width(group));
        }
        let text = if width(group) + 1 > columns_wide {
            let mut cut = group.clone();
            while width(&cut) + 2 > columns_wide && cut.pop().is_some() {}
            format!("{cut}…")
        } else {
            group.clone()
        };
        // Over one column as its cells stand, over several centred.
        let blank = columns_wide - width(&text);
        let before = if span == 1 {
            blank
        } else {
            GAP + (blank - GAP.min(blank)) / 2
        };
        out.push_str(&" ".repeat(before.min(blank)));
        out.push_str(&text);
        out.push_str(&" ".repeat(blank - before.min(blank)));
        i += span;
    }
    out
}

fn columns(experiment: &Experiment) -> Vec<Column> {
    let mut columns = Vec::new();
    let measured = experiment.metrics();
    let lead = leading_metric(experiment);
    for group in &experiment.setup.groups {
        let has = |quantity: &str| measured.contains(format!("{}.{quantity}", group.name).as_str());
        let latency = if has("response.p99") {
            Some(("response", "response time"))
        } else if has("wakeup.p99") && group.class != "batch" {
            Some(("wakeup", "wake-up latency"))
        } else {
            None
        };
        if let Some((quantity, words)) = latency {
            let leads = lead.as_deref() == Some(&format!("{}.{quantity}.p99", group.name));
            let more = u32::from(!leads);
            let heading = format!("{}: {words}", group.name);
            let stat = |stat: &str| format!("{}.{quantity}.{stat}", group.name);
            columns.push(time_column(
                experiment,
                &heading,
                "p50",
                &stat("p50"),
                Show::Mean,
                3 + more,
            ));
            // One seed has no interval.
            let p99 = match experiment.setup.seeds.len() {
                0 | 1 => "p99",
                _ => "p99 ± 95 % CI",
            };
            columns.push(time_column(
                experiment,
                &heading,
                p99,
                &stat("p99"),
                Show::Interval,
                more,
            ));
            columns.push(time_column(
                experiment,
                &heading,
                "max",
                &stat("max"),
                Show::Largest,
                4 + more,
            ));
            columns.extend(answered_column(experiment, group, &heading, more));
        }
        if lead.is_none() && has("cpu") {
            // Nobody waits for answers: what counts is who gets the CPUs.
            columns.push(cpu_column(experiment, group));
        } else if does_work(experiment, group) {
            columns.push(work_column(experiment, group));
        }
    }
    if measured.contains("host.switches_per_cpu") {
        let cells = experiment.arms.iter().map(|arm| {
            experiment
                .estimate(&arm.name, "host.switches_per_cpu")
                .map_or(ABSENT.into(), |e| format!("{} /s", number(e.mean)))
        });
        let cells = cells.collect();
        columns.push(Column {
            group: "switches".into(),
            name: "per CPU".into(),
            cells,
            importance: 2,
        });
    }
    columns
}

enum Show {
    Mean,
    Interval,
    Largest,
}

fn time_column(
    experiment: &Experiment,
    group: &str,
    name: &str,
    metric: &str,
    show: Show,
    importance: u32,
) -> Column {
    let values: Vec<Option<(f64, Option<f64>)>> = experiment
        .arms
        .iter()
        .map(|arm| match show {
            Show::Largest => experiment.largest(&arm.name, metric).map(|v| (v, None)),
            Show::Mean => experiment
                .estimate(&arm.name, metric)
                .map(|e| (e.mean, None)),
            Show::Interval => experiment
                .estimate(&arm.name, metric)
                .map(|e| (e.mean, e.half)),
        })
        .collect();
    // One unit per column, so that a glance compares; what nothing would be left of has its own.
    let scale = time_scale(values.iter().flatten().map(|v| v.0));
    let unit = |value: f64| match value < scale.factor / 100.0 {
        true => time_scale([value]),
        false => scale,
    };
    let cells = values
        .iter()
        .map(|v| match v {
            None => ABSENT.into(),
            Some((value, half)) => cell(*value, *half, unit(*value)),
        })
        .collect();
    Column {
        group: group.into(),
        name: name.into(),
        cells,
        importance,
    }
}

/// Beside the percentiles: without it a policy that answers nobody looks best.
fn answered_column(
    experiment: &Experiment,
    group: &Group,
    heading: &str,
    importance: u32,
) -> Option<Column> {
    let of = |arm: &str| experiment.requests(arm, &group.name).map(answers::cell);
    let cells: Vec<Option<String>> = experiment.arms.iter().map(|a| of(&a.name)).collect();
    cells.iter().any(Option::is_some).then(|| Column {
        group: heading.into(),
        name: "answered".into(),
        cells: cells
            .into_iter()
            .map(|c| c.unwrap_or_else(|| ABSENT.into()))
            .collect(),
        importance,
    })
}

fn cell(value: f64, half: Option<f64>, scale: Scale) -> String {
    let value = value / scale.factor;
    match half {
        None => format!("{} {}", number(value), scale.name),
        Some(half) => {
            let digits = decimals(value).min(3);
            format!(
                "{} ± {} {}",
                fixed(value, digits),
                fixed(half / scale.factor, digits),
                scale.name
            )
        }
    }
}

fn cpu_column(experiment: &Experiment, group: &Group) -> Column {
    let metric = format!("{}.cpu", group.name);
    let cells = experiment
        .arms
        .iter()
        .map(|arm| match experiment.estimate(&arm.name, &metric) {
            None => ABSENT.into(),
            Some(e) => match e.half {
                None => format!("{:.3}", e.mean),
                Some(half) => format!("{:.3} ± {half:.3}", e.mean),
            },
        })
        .collect();
    Column {
        group: group.name.clone(),
        name: "CPUs".into(),
        cells,
        importance: 1,
    }
}

fn work_column(experiment: &Experiment, group: &Group) -> Column {
    let effort = effort::of(experiment);
    let metric = effort.metric(group);
    let cells = experiment
        .arms
        .iter()
        .map(|arm| match &experiment.baseline {
            Some(base)
                if *base == arm.name && experiment.estimate(&arm.name, &metric).is_some() =>
            {
                "100 %".into()
            }
            Some(base) => match experiment.ratio(&arm.name, base, &metric) {
                None => ABSENT.into(),
                Some(r) => {
                    let percent = r.ratio * 100.0;
                    match r.interval {
                        None => format!("{percent:.1} %"),
                        Some((low, high)) => format!("{percent:.1} ± {:.1} %", (high - low) * 50.0),
                    }
                }
            },
            None => experiment
                .estimate(&arm.name, &metric)
                .map_or(ABSENT.into(), |e| {
                    // As CPUs: work per measured time.
                    let time = match effort.quantity {
                        "cpu" => 1,
                        _ => experiment.setup.measure_ns.max(1),
                    };
                    format!("{} CPUs", number(e.mean / time as f64))
                }),
        })
        .collect();
    // As wide as what stands over it.
    let name = match (experiment.baseline.is_some(), effort.quantity) {
        (true, "cpu") => "of baseline's",
        (true, _) => "of baseline",
        (false, "cpu") => "had",
        (false, _) => "done",
    };
    Column {
        group: format!("{}: {}", group.name, effort.word),
        name: name.into(),
        cells,
        importance: 1,
    }
}
