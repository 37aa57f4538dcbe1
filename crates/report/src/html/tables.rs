// SPDX-License-Identifier: GPL-2.0-only
//! Tables of the page: all metrics, expectations, simulator beside real kernel, notes.
use super::escape::{csv_row, escape};
use super::figure::data;
use crate::table::leading_metric;
use crate::text::{count, number, value, with_half};
use crate::{answers, effort};
use berth_results::expect::{Limit, Verdict};
use berth_results::experiment::Experiment;
use berth_results::schema::unit_of;

/// All metrics with intervals, by VM group, host and policy; folded away but for those of the group that arms are
/// judged by.
pub fn metrics(e: &Experiment) -> String {
    let arms: Vec<&str> = e
        .arms
        .iter()
        .map(|a| a.name.as_str())
        .filter(|a| e.runs.iter().any(|r| r.arm == *a))
        .collect();
    let whole = |metric: &str| {
        let object = metric.split('.').next().unwrap_or("");
        object == "host" || object == "policy" || e.setup.groups.iter().any(|g| g.name == object)
    };
    let all = e.metrics();
    let (first, rest): (Vec<&str>, Vec<&str>) = all.iter().copied().partition(|m| whole(m));
    let mut csv = csv_row(&["arm", "metric", "unit", "n", "mean", "half_95"]);
    for arm in &arms {
        for metric in &all {
            if let Some(x) = e.estimate(arm, metric) {
                csv.push_str(&csv_row(&[
                    (*arm).to_string(),
                    (*metric).to_string(),
                    unit_of(metric).to_string(),
                    x.n.to_string(),
                    x.mean.to_string(),
                    x.half.map_or(String::new(), |h| h.to_string()),
                ]));
            }
        }
    }
    let object = |metric: &str| metric.split('.').next().unwrap_or("").to_string();
    let mut objects: Vec<String> = e.setup.groups.iter().map(|g| g.name.clone()).collect();
    objects.extend(first.iter().map(|m| object(m)));
    let mut seen = std::collections::BTreeSet::new();
    objects.retain(|o| seen.insert(o.clone()));
    let judged = leading_metric(e).map(|m| object(&m));
    let judged = judged.or_else(|| objects.first().cloned());
    let mut out = "<section><h2>All metrics</h2>".to_string();
    for name in &objects {
        let own: Vec<&str> = first
            .iter()
            .copied()
            .filter(|m| object(m) == *name)
            .collect();
        if own.is_empty() {
            continue;
        }
        let open = if judged.as_ref() == Some(name) {
            " open"
        } else {
            ""
        };
        out.push_str(&format!(
            "<details{open}><summary>{} ({})</summary>{}</details>",
            escape(name),
            count(own.len() as u32, "metric"),
            table(e, &arms, &own)
        ));
    }
    if !rest.is_empty() {
        out.push_str(&format!(
            "<details><summary>Each VM by itself ({})</summary>{}</details>",
            count(rest.len() as u32, "metric"),
            table(e, &arms, &rest)
        ));
    }
    out + &data(&csv) + "</section>"
}

fn table(e: &Experiment, arms: &[&str], metrics: &[&str]) -> String {
    let lead = leading_metric(e);
    let head: String = arms
        .iter()
        .map(|a| {
            let base = if e.baseline.as_deref() == Some(*a) {
                " <small>baseline</small>"
            } else {
                ""
            };
            format!("<th scope=\"col\">{}{base}</th>", escape(a))
        })
        .collect();
    let mut rows = String::new();
    for metric in metrics {
        let unit = unit_of(metric);
        let best = answers::best(e, metric);
        let cells: String = arms
            .iter()
            .map(|arm| match e.estimate(arm, metric) {
                None => format!("<td class=\"none\" data-of=\"{}\">-</td>", escape(arm)),
                Some(x) => {
                    let (mean, half) = match x.half {
                        None => (value(x.mean, unit), String::new()),
                        Some(half) => {
                            let (mean, half) = with_half(x.mean, half, unit);
                            (mean, format!(" <small>± {}</small>", escape(&half)))
                        }
                    };
                    // Lower is better only for times.
                    let marked = best == Some(*arm) && is_time(metric);
                    let class = if marked { " class=\"best\"" } else { "" };
                    let mark = if marked { "▸ " } else { "" };
                    format!(
                        "<td{class} data-of=\"{}\">{mark}{}{half}{}</td>",
                        escape(arm),
                        escape(&mean),
                        of(e, arm, metric)
                    )
                }
            })
            .collect();
        let class = if lead.as_deref() == Some(*metric) {
            " class=\"leading\""
        } else {
            ""
        };
        rows.push_str(&format!(
            "<tr{class}><th scope=\"row\">{}</th>{cells}</tr>",
            escape(metric)
        ));
    }
    format!(
        "<div class=\"scroll\"><table \
         class=\"metrics\"><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table></div>\
         <p class=\"caption\">Mean over seeds ± 95 % interval. ▸: lower than every other arm, the paired interval \
         excludes “no difference”.</p>"
    )
}

/// The requests behind a percentile: answered, of those that were due.
fn of(e: &Experiment, arm: &str, metric: &str) -> String {
    answers::behind(e, arm, metric).map_or(String::new(), |r| {
        format!(" <small>of {} answered</small>", answers::cell(r))
    })
}

fn is_time(metric: &str) -> bool {
    let quantity = metric.split('.').nth(1).unwrap_or("");
    let number = metric.ends_with(".count") || metric.ends_with(".offered");
    ["response", "wakeup", "run_delay"].contains(&quantity) && !number
}

/// The scenario's expectations.
pub fn expects(e: &Experiment) -> String {
    if e.expects.is_empty() {
        return String::new();
    }
    let rows: String = e
        .expects
        .iter()
        .map(|v| {
            let unit = unit_of(&v.bound.metric);
            let shown = match v.bound.limit {
                Limit::Absolute(_) => v.value.map(|x| value(x, unit)),
                Limit::TimesBaseline(_) => v.value.map(number),
            };
            let (class, word) = holds(v);
            let shown = shown.or_else(|| v.why.clone()).unwrap_or_default();
            format!(
                "<tr><td><span class=\"{class}\">{word}</span></td><td>{} of {} {}</td><td>{}</td></tr>",
                escape(&v.bound.metric),
                escape(&v.bound.arm),
                escape(&limit(v)),
                escape(&shown)
            )
        })
        .collect();
    format!(
        "<section><h2>Expectations</h2><div class=\"scroll\"><table \
         class=\"plain\"><tbody>{rows}</tbody></table></div></section>"
    )
}

/// Class and words of a verdict.
fn holds(v: &Verdict) -> (&'static str, &'static str) {
    match v.holds {
        Some(true) => ("gain", "holds"),
        Some(false) => ("loss", "does not hold"),
        None => ("none", "cannot be said"),
    }
}

/// `at most 2 ms`.
fn limit(v: &Verdict) -> String {
    let relation = if v.bound.at_most {
        "at most"
    } else {
        "at least"
    };
    match v.bound.limit {
        Limit::Absolute(x) => format!("{relation} {}", value(x, unit_of(&v.bound.metric))),
        Limit::TimesBaseline(x) => format!("{relation} {x} × baseline"),
    }
}

/// What the scenario expects of a metric, and whether it holds in either place.
fn stated(metric: &str, sim: &Experiment, lab: &Experiment) -> String {
    let of_metric = |e: &Experiment| -> Vec<Verdict> {
        let all = e.expects.iter().filter(|v| v.bound.metric == metric);
        all.cloned().collect()
    };
    let real = of_metric(lab);
    let one = |v: &Verdict| {
        let there = real.iter().find(|r| r.bound == v.bound);
        let places = [("simulated", Some(v)), ("real kernel", there)];
        let words: String = places
            .iter()
            .filter_map(|(place, v)| Some((place, holds((*v)?))))
            .map(|(place, (class, word))| {
                format!(" <span class=\"{class}\">{place}: {word}</span>")
            })
            .collect();
        format!("{} {}{words}", escape(&v.bound.arm), escape(&limit(v)))
    };
    let all: Vec<String> = of_metric(sim).iter().map(one).collect();
    all.join("<br>")
}

/// A paper's claims: its value, ours, the verdict and why.
pub fn findings(e: &Experiment) -> String {
    if e.findings.is_empty() {
        return String::new();
    }
    let mut csv = csv_row(&[
        "claim",
        "metric",
        "paper",
        "ours",
        "low",
        "high",
        "accept_low",
        "accept_high",
        "holds",
    ]);
    let mut rows = String::new();
    for f in &e.findings {
        let c = &f.claim;
        let unit = unit_of(&c.metric);
        let shown = |x: f64| match c.comparison {
            None if unit != "1" => value(x, unit),
            _ => format!("{} %", number(x * 100.0)),
        };
        let range = |r: Option<(f64, f64)>| {
            r.map_or(String::new(), |(l, h)| {
                format!("{} to {}", shown(l), shown(h))
            })
        };
        let (class, word) = match f.holds {
            Some(true) => ("gain", "found"),
            Some(false) => ("loss", "not found"),
            None => ("none", "cannot be said"),
        };
        let fitted = if c.fitted {
            " (the arm was fitted to this value)"
        } else {
            ""
        };
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td>{} <small>{}{fitted}</small></td><td>{}</td><td>{} \
             <small>{}</small></td><td><span class=\"{class}\">{word}</span> <small>{}</small></td></tr>",
            escape(&c.id),
            escape(&c.says),
            escape(&c.source),
            escape(&c.value.map_or("-".into(), shown)),
            escape(&f.ours.map_or("-".into(), shown)),
            escape(&range(f.interval)),
            escape(&f.why.clone().unwrap_or_else(|| match c.accept {
                Some(_) => format!("accepted: {}", range(c.accept)),
                None => String::new(),
            }))
        ));
        let text = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
        csv.push_str(&csv_row(&[
            c.id.clone(),
            c.metric.clone(),
            text(c.value),
            text(f.ours),
            text(f.interval.map(|i| i.0)),
            text(f.interval.map(|i| i.1)),
            text(c.accept.map(|i| i.0)),
            text(c.accept.map(|i| i.1)),
            f.holds.map_or(String::new(), |h| h.to_string()),
        ]));
    }
    format!(
        "<section><h2>The paper's claims</h2><div class=\"scroll\"><table \
         class=\"plain\"><thead><tr><th></th><th>claim</th><th>paper</th><th>ours</th>\
         <th>verdict</th></tr></thead><tbody>{rows}</tbody></table></div>\
         <p class=\"caption\">What counts as found was written down before the runs.</p>{}</section>",
        data(&csv)
    )
}

/// What a reader must know: arms without runs, notes.
pub fn notes(e: &Experiment) -> String {
    let absent = e.arms.iter().filter_map(|a| {
        Some(format!(
            "<b>{}</b> has no runs: {}",
            escape(&a.name),
            escape(a.absent.as_ref()?)
        ))
    });
    let notes = effort::why(e).into_iter().chain(e.all_notes());
    let notes = notes.map(|n| escape(&n));
    let items: String = absent
        .chain(notes)
        .map(|n| format!("<li>{n}</li>"))
        .collect();
    if items.is_empty() {
        return String::new();
    }
    format!("<section><h2>Notes</h2><ul class=\"notes\">{items}</ul></section>")
}

/// The same arms in two places: values beside each other, never divided by each other.
pub fn side_by_side(sim: &Experiment, lab: &Experiment) -> String {
    let arms: Vec<&str> = sim
        .arms
        .iter()
        .map(|a| a.name.as_str())
        .filter(|a| {
            [sim, lab]
                .iter()
                .any(|e| e.runs.iter().any(|r| r.arm == *a))
        })
        .collect();
    let of_groups = |metric: &&str| {
        let object = metric.split('.').next().unwrap_or("");
        object == "host" || sim.setup.groups.iter().any(|g| g.name == object)
    };
    let both: Vec<&str> = sim
        .metrics()
        .intersection(&lab.metrics())
        .copied()
        .filter(of_groups)
        .collect();
    if both.is_empty() || arms.is_empty() {
        return String::new();
    }
    let mut csv = csv_row(&["metric", "unit", "arm", "sim", "lab"]);
    let head: String = arms
        .iter()
        .map(|a| format!("<th scope=\"colgroup\" colspan=\"2\">{}</th>", escape(a)))
        .collect();
    let places =
        "<th scope=\"col\">simulated</th><th scope=\"col\">real kernel</th>".repeat(arms.len());
    let bounds = !sim.expects.is_empty();
    let mut rows = String::new();
    for metric in both {
        let unit = unit_of(metric);
        let mut cells = String::new();
        for arm in &arms {
            let values = [sim, lab].map(|e| e.estimate(arm, metric).map(|x| x.mean));
            let places = [(sim, "simulated"), (lab, "real kernel")];
            for ((e, place), v) in places.into_iter().zip(values) {
                let text = v.map_or("-".into(), |v| value(v, unit));
                cells.push_str(&format!(
                    "<td data-of=\"{}, {place}\">{}{}</td>",
                    escape(arm),
                    escape(&text),
                    of(e, arm, metric)
                ));
            }
            let [s, l] = values.map(|v| v.map_or(String::new(), |v| v.to_string()));
            csv.push_str(&csv_row(&[
                metric.to_string(),
                unit.to_string(),
                arm.to_string(),
                s,
                l,
            ]));
        }
        if bounds {
            let stated = stated(metric, sim, lab);
            let of = if stated.is_empty() {
                ""
            } else {
                "stated beforehand"
            };
            cells.push_str(&format!("<td data-of=\"{of}\">{stated}</td>"));
        }
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{}</th>{cells}</tr>",
            escape(metric)
        ));
    }
    let (more, of_places) = if bounds {
        ("<th scope=\"col\">stated beforehand</th>", "<th></th>")
    } else {
        ("", "")
    };
    format!(
        "<section><h2>Simulator beside real kernel</h2><div class=\"scroll\"><table \
         class=\"metrics\"><thead><tr><th></th>{head}{more}</tr><tr><th></th>{places}{of_places}</tr></thead>\
         <tbody>{rows}</tbody></table></div>\
         <p class=\"caption\">Means over each place's seeds. Delays across CPUs of the lab's emulated machine are its \
         own; compare shares, ranking and ratios.</p>{}</section>",
        data(&csv)
    )
}
