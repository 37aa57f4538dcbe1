// SPDX-License-Identifier: GPL-2.0-only
//! What an arm gains and what that costs, in one sentence. Green and red only where the interval excludes "no
//! difference"; a loss stands in the same sentence, in the same size.
use super::escape::escape;
use crate::answers;
use crate::effort::{self, Effort};
use crate::sentences::{apart, barely, switches};
use crate::table::{does_work, leading_metric};
use crate::text::{duration, fixed, with_half};
use berth_results::experiment::Experiment;
use berth_results::stats::Ratio;

/// The arm whose sentence comes first: the one that is certainly best, else the first that is not the baseline.
pub fn leading_arm(e: &Experiment) -> Option<&str> {
    let base = e.baseline.as_deref()?;
    let best = leading_metric(e).and_then(|m| answers::best(e, &m));
    let has_runs = |name: &str| e.runs.iter().any(|r| r.arm == name);
    e.arms
        .iter()
        .map(|a| a.name.as_str())
        .filter(|a| *a != base && has_runs(a))
        .min_by_key(|a| best != Some(*a))
}

/// The sentences: the leading arm's large, the others' below.
pub fn sentences(e: &Experiment) -> String {
    let Some(base) = e.baseline.as_deref() else {
        return alone(e);
    };
    let lead = leading_arm(e);
    let mut out = String::new();
    if let Some(lead) = lead {
        out.push_str(&format!(
            "<p class=\"lead\">{}</p>",
            sentence(e, lead, base)
        ));
    }
    let others: Vec<String> = e
        .arms
        .iter()
        .map(|a| a.name.as_str())
        .filter(|a| Some(*a) != lead && *a != base && e.runs.iter().any(|r| r.arm == *a))
        .map(|a| format!("<p>{}</p>", sentence(e, a, base)))
        .collect();
    if !others.is_empty() {
        out.push_str(&format!("<div class=\"others\">{}</div>", others.concat()));
    }
    let seeds = e.setup.seeds.len();
    let how = match seeds {
        1 => "One seed: there are no intervals, and nothing can be said about chance.".to_string(),
        n => format!(
            "The same arrivals for all, paired over {n} seeds. A colour stands only where the 95 % interval excludes \
             “no difference”."
        ),
    };
    out.push_str(&format!("<p class=\"fine\">{how}</p>"));
    out
}

/// One arm, or none to compare with.
fn alone(e: &Experiment) -> String {
    let Some(arm) = e.runs.first().map(|r| r.arm.as_str()) else {
        return "<p class=\"lead\">There are no runs.</p>".into();
    };
    let text = match leading_metric(e).and_then(|m| Some((e.estimate(arm, &m)?, m))) {
        Some((estimate, metric)) => {
            let (who, what) = who_and_what(&metric);
            let shown = match estimate.half {
                None => duration(estimate.mean),
                Some(half) => {
                    let (mean, half) = with_half(estimate.mean, half, "ns");
                    format!("{mean} ± {half}")
                }
            };
            format!(
                "With <b>{}</b>, {} {what} {shown} at p99. There is nothing to compare it with.",
                escape(arm),
                escape(&who),
            )
        }
        None => format!(
            "Only <b>{}</b> has runs; there is nothing to compare it with.",
            escape(arm)
        ),
    };
    format!("<p class=\"lead\">{text}</p>")
}

/// `web`, `requests take`.
fn who_and_what(metric: &str) -> (String, &'static str) {
    let mut parts = metric.split('.');
    let who = parts.next().unwrap_or("").to_string();
    match parts.next() {
        Some("wakeup") => (who, "wake-ups take"),
        _ => (who, "requests take"),
    }
}

fn sentence(e: &Experiment, arm: &str, base: &str) -> String {
    let mut parts = Vec::new();
    // First of all: times of the few that were answered are no gain.
    let loss = |text: String| coloured(false, &escape(&text));
    parts.extend(answers::warning(e, arm).map(|w| format!("it {}", loss(w))));
    parts.extend(answers::warning(e, base).map(|w| format!("{} {}", escape(base), loss(w))));
    let served = parts.is_empty();
    if let Some(metric) = leading_metric(e)
        && let (Some(now), Some(before)) = (e.estimate(arm, &metric), e.estimate(base, &metric))
    {
        let (who, what) = who_and_what(&metric);
        let (now, before) = (duration(now.mean), duration(before.mean));
        let text = match e.ratio(arm, base, &metric) {
            Some(r) if r.differs() => format!(
                "{} {what} <b>{now}</b> at p99 instead of {before} ({})",
                escape(&who),
                if served {
                    coloured(r.ratio < 1.0, &times(&r))
                } else {
                    times(&r)
                }
            ),
            Some(Ratio {
                interval: Some((low, high)),
                ..
            }) => format!(
                "{} {what} <b>{now}</b> at p99, with {} {before}: {}",
                escape(&who),
                escape(base),
                apart(low, high)
            ),
            _ => format!(
                "{} {what} <b>{now}</b> at p99, with {} {before}",
                escape(&who),
                escape(base)
            ),
        };
        parts.push(text);
    }
    let mut work = Vec::new();
    let effort = effort::of(e);
    for group in e.setup.groups.iter().filter(|g| does_work(e, g)) {
        if let Some(r) = e.ratio(arm, base, &effort.metric(group)) {
            work.push(format!("{} {}", escape(&group.name), work_done(&r, effort)));
        }
    }
    if leading_metric(e).is_none() {
        work.clear();
        for group in &e.setup.groups {
            let metric = format!("{}.cpu", group.name);
            if let (Some(now), Some(before)) = (e.estimate(arm, &metric), e.estimate(base, &metric))
            {
                work.push(format!(
                    "{} gets <b>{:.2}</b> CPUs (with {} {:.2})",
                    escape(&group.name),
                    now.mean,
                    escape(base),
                    before.mean
                ));
            }
        }
    }
    if let Some(r) = e.ratio(arm, base, "host.switches_per_cpu") {
        work.push(switches(r.ratio));
    }
    let mut text = format!("With <b>{}</b>, {}", escape(arm), parts.join("; "));
    if parts.is_empty() {
        text.push_str(&work.join(", "));
    } else if !work.is_empty() {
        text.push_str(&format!("; {}", work.join(", ")));
    }
    text.push('.');
    text
}

fn coloured(good: bool, text: &str) -> String {
    let class = if good { "gain" } else { "loss" };
    format!("<span class=\"{class}\">{text}</span>")
}

fn factor(x: f64) -> String {
    fixed(
        x,
        match x {
            x if x >= 100.0 => 0,
            x if x >= 10.0 => 1,
            _ => 2,
        },
    )
}

fn times(r: &Ratio) -> String {
    let (shown, word) = if r.ratio <= 1.0 {
        (r.inverse(), "shorter")
    } else {
        (*r, "longer")
    };
    if let Some(words) = barely(&shown, word) {
        return words;
    }
    let interval = shown.interval.map_or(String::new(), |(low, high)| {
        format!(", 95 % CI {} to {}", factor(low), factor(high))
    });
    format!("{} × {word}{interval}", factor(shown.ratio))
}

fn work_done(r: &Ratio, effort: Effort) -> String {
    let (does, what) = (effort.verb(), effort.word);
    let percent = |r: f64| (r - 1.0) * 100.0;
    let size = |r: f64| percent(r).abs();
    let word = if r.ratio >= 1.0 { "more" } else { "less" };
    match r.interval {
        Some((low, high)) if size(low).max(size(high)) <= effort::AS_MUCH => {
            format!("{does} as much {what} ({})", effort::within(low, high))
        }
        Some((low, high)) if r.differs() => {
            let (a, b) = (size(low).min(size(high)), size(low).max(size(high)));
            // Enough digits that the ends of the interval differ from nothing.
            let digits = if b < 1.0 { 2 } else { 1 };
            let text = format!(
                "{:.digits$} % {word} {what}, 95 % CI {a:.digits$} to {b:.digits$}",
                size(r.ratio)
            );
            format!("{does} {}", coloured(r.ratio > 1.0, &text))
        }
        Some((low, high)) => format!(
            "{does} neither more nor less {what}, as far as can be told ({:+.1} to {:+.1} %)",
            percent(low),
            percent(high)
        ),
        None => effort.alone(r.ratio),
    }
}
