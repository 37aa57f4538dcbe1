// SPDX-License-Identifier: GPL-2.0-only
//! The worst wait: all CPUs for the 50 ms around it, the waiting thread marked.
use super::axis::{Axis, time};
use super::escape::{csv_row, escape};
use super::figure::{COLOURS, Figure, legend};
use crate::table::leading_metric;
use crate::text::duration;
use crate::waiting::words;
use berth_results::detail::{HOST, WorstWait};
use berth_results::experiment::Experiment;
use berth_results::schema::RunRecord;

const ROW: f64 = 22.0;
const TOP: f64 = 26.0;

/// The group whose waits matter most.
pub fn group(e: &Experiment) -> Option<String> {
    let lead = leading_metric(e).and_then(|m| m.split('.').next().map(str::to_string));
    lead.or_else(|| e.setup.groups.first().map(|g| g.name.clone()))
}

/// The worst wait of a group under an arm, and the run it happened in.
pub fn worst<'a>(
    e: &'a Experiment,
    arm: &str,
    group: &str,
) -> Option<(&'a RunRecord, &'a WorstWait)> {
    let runs = e.runs.iter().filter(|r| r.arm == arm);
    runs.filter_map(|r| Some((r, r.worst.iter().find(|w| w.group == group)?)))
        .fold(
            None,
            |best: Option<(&RunRecord, &WorstWait)>, (r, w)| match best {
                Some((_, b)) if b.ns() >= w.ns() => best,
                _ => Some((r, w)),
            },
        )
}

/// `web-2/0` as people say it: `web-2/vcpu0`.
pub fn thread_name(name: &str) -> String {
    match name.rsplit_once('/') {
        Some((vm, n)) if !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()) => {
            format!("{vm}/vcpu{n}")
        }
        _ => name.to_string(),
    }
}

/// A name that has room above a strip.
fn short(name: &str) -> String {
    const MOST: usize = 24;
    match name.chars().count() {
        n if n > MOST => name.chars().take(MOST - 1).chain(['…']).collect(),
        _ => name.to_string(),
    }
}

/// One figure per arm that kept one.
pub fn figures(e: &Experiment) -> Vec<Figure> {
    let Some(group) = group(e) else {
        return Vec::new();
    };
    let arms = e.arms.iter().map(|a| a.name.as_str());
    arms.filter_map(|arm| {
        let (run, w) = worst(e, arm, &group)?;
        figure(e, arm, run, w)
    })
    .collect()
}

fn class_of(e: &Experiment, group: &str) -> String {
    match e.setup.groups.iter().position(|g| g.name == group) {
        Some(i) => format!("g{}", i % COLOURS),
        None => "base".into(),
    }
}

fn figure(e: &Experiment, arm: &str, run: &RunRecord, w: &WorstWait) -> Option<Figure> {
    let s = w.strip.as_ref().filter(|s| s.to_ns > s.from_ns)?;
    let span = (s.to_ns - s.from_ns) as f64;
    // Across in per cent of the width, down in pixels: it fits every window, and its text stays as large as it is.
    let x = Axis::fixed(0.0, span, 0.0, 100.0);
    // Many CPUs: thin rows.
    let row = if s.cpus.len() > 24 { 9.0 } else { ROW };
    let bottom = TOP + row * s.cpus.len() as f64;
    let height = bottom + 24.0;
    let mut svg = String::new();
    for t in x.ticks(4) {
        let px = x.px(t);
        svg.push_str(&format!(
            "<line class=\"grid\" x1=\"{px:.2}%\" y1=\"{TOP}\" x2=\"{px:.2}%\" y2=\"{bottom:.1}\"/>\
             <text class=\"tick\" x=\"{px:.2}%\" y=\"{:.1}\" text-anchor=\"{}\">{}</text>",
            bottom + 17.0,
            if px > 97.0 { "end" } else { "middle" },
            if t == 0.0 { "0".into() } else { time(t) }
        ));
    }
    let y_of = |cpu: u64| {
        let at = s.cpus.iter().position(|c| u64::from(*c) == cpu)?;
        Some(TOP + row * at as f64)
    };
    for (i, cpu) in s.cpus.iter().enumerate() {
        if row > 12.0 || i % 4 == 0 || *cpu == w.cpu {
            svg.push_str(&format!(
                "<text class=\"tick{}\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">CPU {cpu}</text>",
                if *cpu == w.cpu { " here" } else { "" },
                TOP + row * (i as f64 + 0.5) + 4.0
            ));
        }
    }
    let mut csv = csv_row(&["cpu", "thread", "group", "from_ns", "length_ns"]);
    let mut used = Vec::<String>::new();
    for [cpu, thread, at, ns] in &s.ran {
        let Some((name, group)) = s.threads.get(*thread as usize) else {
            continue;
        };
        let Some(y) = y_of(*cpu) else { continue };
        if !used.contains(group) {
            used.push(group.clone());
        }
        let (a, b) = (x.px(*at as f64), x.px((at + ns) as f64));
        let mine = if *name == w.thread { " mine" } else { "" };
        svg.push_str(&format!(
            "<rect class=\"ran {}{mine}\" x=\"{a:.3}%\" y=\"{:.1}\" width=\"{:.3}%\" height=\"{:.1}\"><title>{} on CPU \
             {cpu}: {} from {}</title></rect>",
            class_of(e, group),
            y + 2.0,
            (b - a).max(0.05),
            row - 4.0,
            escape(&thread_name(name)),
            time(*ns as f64),
            time(*at as f64)
        ));
        csv.push_str(&csv_row(&[
            cpu.to_string(),
            name.clone(),
            group.clone(),
            (s.from_ns + at).to_string(),
            ns.to_string(),
        ]));
    }
    let from = x.px(w.from_ns.saturating_sub(s.from_ns) as f64);
    let to = x.px((w.to_ns - s.from_ns) as f64);
    if let Some(y) = y_of(w.cpu.into()) {
        let (under, below) = (y + row - 1.0, y + row);
        svg.push_str(&format!(
            "<line class=\"wait\" x1=\"{from:.3}%\" y1=\"{under:.1}\" x2=\"{to:.3}%\" y2=\"{under:.1}\"/>\
             <line class=\"wait\" x1=\"{from:.3}%\" y1=\"{y:.1}\" x2=\"{from:.3}%\" y2=\"{below:.1}\"/>\
             <line class=\"wait\" x1=\"{to:.3}%\" y1=\"{y:.1}\" x2=\"{to:.3}%\" y2=\"{below:.1}\"/>\
             <rect class=\"waited\" x=\"{from:.3}%\" y=\"{y:.1}\" width=\"{:.3}%\" height=\"{row:.1}\"/>",
            (to - from).max(0.1)
        ));
    }
    let earlier = if w.from_ns < s.from_ns {
        " (from before the left edge)"
    } else {
        ""
    };
    // On the side where there is room.
    let middle = (from + to) / 2.0;
    let (at, anchor) = match middle {
        m if m < 35.0 => (0.0, "start"),
        m if m > 65.0 => (100.0, "end"),
        m => (m, "middle"),
    };
    svg.push_str(&format!(
        "<text class=\"mark\" x=\"{at:.2}%\" y=\"16\" text-anchor=\"{anchor}\">{} waits {}{earlier}</text>",
        escape(&short(&thread_name(&w.thread))),
        duration(w.ns() as f64)
    ));
    let mut order: Vec<String> = e.setup.groups.iter().map(|g| g.name.clone()).collect();
    order.push(HOST.into());
    order.retain(|g| used.contains(g));
    let entries: Vec<_> = order.iter().map(|g| (class_of(e, g), g.clone())).collect();
    Some(Figure {
        title: arm.to_string(),
        caption: format!(
            "{}. The strip begins at {:.4} s; blank is idle. Its wait is framed and shaded, and what the thread ran \
             itself is outlined in the same colour.",
            words(arm, run, w),
            s.from_ns as f64 / 1e9
        ),
        body: format!(
            "{}<div class=\"beside\"><svg class=\"strip\" style=\"height:{height:.0}px\" role=\"img\" \
             aria-label=\"what ran on each CPU\">{svg}</svg></div>",
            legend(&entries)
        ),
        csv,
    })
}
