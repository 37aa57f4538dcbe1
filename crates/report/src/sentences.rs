// SPDX-License-Identifier: GPL-2.0-only
//! What the numbers mean, in words: gain and price in one sentence, and whether expectations hold.
use crate::effort::{self, Effort};
use crate::table::leading_metric;
use crate::text::{count, fixed, left, number, significant, value, width};
use crate::{Style, answers};
use berth_results::expect::{Limit, Verdict};
use berth_results::experiment::Experiment;
use berth_results::schema::{Place, unit_of};
use berth_results::stats::Ratio;

/// First line: what and where.
pub fn title(experiment: &Experiment, place: Place) -> String {
    let setup = &experiment.setup;
    let vms: u32 = setup.groups.iter().map(|g| g.vms).sum();
    let vcpus: u32 = setup.groups.iter().map(|g| g.vms * g.vcpus).sum();
    let mut parts = vec![setup.title.clone(), count(setup.cpus, "CPU")];
    if vms > 0 {
        let density = fixed(f64::from(vcpus) / f64::from(setup.cpus.max(1)), 1);
        parts.push(format!(
            "{}, {} ({density} per CPU)",
            count(vms, "VM"),
            count(vcpus, "vCPU")
        ));
    }
    let time = crate::text::plain_duration(setup.measure_ns);
    parts.push(format!(
        "{time} × {}",
        count(setup.seeds.len() as u32, "seed")
    ));
    parts.push(
        match place {
            Place::Sim => "simulated",
            Place::Lab => "on a real kernel, in a throw-away VM",
            Place::Host => "on this host",
        }
        .into(),
    );
    let mut title = parts.join(" · ");
    if !experiment.variant.is_empty() {
        title.push_str(&format!("\n  with {}", experiment.variant.join(", ")));
    }
    title
}

/// For every arm but the baseline: what it gains and what that costs, with intervals.
pub fn gain_and_price(experiment: &Experiment, style: &Style) -> String {
    let Some(base) = experiment.baseline.as_deref() else {
        return String::new();
    };
    let mut out = String::new();
    for arm in experiment.arms.iter().filter(|a| a.name != base) {
        let parts = parts(experiment, &arm.name, base);
        if parts.is_empty() {
            continue;
        }
        let seeds = experiment.setup.seeds.len();
        let intervals = if seeds > 1 {
            ", 95 % CI over seeds"
        } else {
            ", one seed: no intervals"
        };
        out.push_str(&format!(
            "  {} against {base}, same arrivals in both{intervals}:\n",
            arm.name
        ));
        for line in lines(&parts, style.width) {
            out.push_str(&format!("    {line}\n"));
        }
    }
    out
}

/// Parts joined by dots, in lines that fit.
fn lines(parts: &[String], columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines
            .last_mut()
            .filter(|l| 4 + width(l) + 3 + width(part) <= columns)
        {
            Some(line) => line.push_str(&format!(" · {part}")),
            None => lines.push(part.clone()),
        }
    }
    lines
}

fn parts(experiment: &Experiment, arm: &str, base: &str) -> Vec<String> {
    let mut parts = Vec::new();
    // First of all: times of the few that were answered are no gain.
    parts.extend(answers::warning(experiment, arm));
    parts.extend(answers::warning(experiment, base).map(|w| format!("{base} {w}")));
    if let Some(metric) = leading_metric(experiment)
        && let Some(ratio) = experiment.ratio(arm, base, &metric)
    {
        let mut words = metric.split('.');
        let (group, quantity) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let what = if quantity == "wakeup" { " wake-up" } else { "" };
        parts.push(format!("{group}{what} p99 {}", longer_or_shorter(&ratio)));
    }
    let measured = experiment.metrics();
    let effort = effort::of(experiment);
    for group in &experiment.setup.groups {
        let metric = effort.metric(group);
        let answers = measured.contains(format!("{}.response.p99", group.name).as_str());
        if answers || group.class == "latency" {
            continue;
        }
        if let Some(ratio) = experiment.ratio(arm, base, &metric) {
            parts.push(format!("{} {}", group.name, more_or_less(&ratio, effort)));
        }
    }
    if let Some(ratio) = experiment.ratio(arm, base, "host.switches_per_cpu") {
        parts.push(switches(ratio.ratio));
    }
    parts
}

/// Beside another arm's.
pub(crate) fn switches(ratio: f64) -> String {
    match number(ratio).as_str() {
        "1.00" => "as many switches".into(),
        times => format!("{times} × the switches"),
    }
}

/// `0.21 % longer`, for what is not worth a factor.
pub(crate) fn barely(shown: &Ratio, word: &str) -> Option<String> {
    let percent = |r: f64| significant((r - 1.0) * 100.0, 2);
    let most = shown.interval.map_or(shown.ratio, |(_, high)| high);
    (most < 1.01).then(|| match shown.interval {
        None if shown.ratio < 1.005 => "as long".to_string(),
        None => format!("{} % {word}", percent(shown.ratio)),
        Some((low, high)) => format!(
            "{} % {word} ({} to {})",
            percent(shown.ratio),
            percent(low),
            percent(high)
        ),
    })
}

/// Not told apart: how far off it may be.
pub(crate) fn apart(low: f64, high: f64) -> String {
    let factor = |x: f64| fixed(x, digits(x));
    match (factor(low).as_str(), factor(high).as_str()) {
        ("1.00", "1.00") => format!("not told apart ({})", effort::within(low, high)),
        (low, high) => format!("not told apart ({low} to {high} ×)"),
    }
}

fn longer_or_shorter(ratio: &Ratio) -> String {
    let (shown, word) = if ratio.ratio <= 1.0 {
        (ratio.inverse(), "shorter")
    } else {
        (*ratio, "longer")
    };
    if let Some((low, high)) = ratio.interval.filter(|_| !ratio.differs()) {
        // The interval spans 1: there is no telling which way.
        return apart(low, high);
    }
    if let Some(words) = barely(&shown, word) {
        return words;
    }
    let factor = |x: f64| fixed(x, digits(shown.ratio));
    let interval = match shown.interval {
        None => String::new(),
        Some((low, high)) => format!(" ({} to {})", factor(low), factor(high)),
    };
    format!("{} × {word}{interval}", factor(shown.ratio))
}

/// Decimals for a factor and its interval.
fn digits(x: f64) -> usize {
    if x >= 100.0 {
        0
    } else if x >= 10.0 {
        1
    } else {
        2
    }
}

fn more_or_less(ratio: &Ratio, effort: Effort) -> String {
    let percent = |r: f64| ((r - 1.0) * 100.0).abs();
    let word = if ratio.ratio >= 1.0 { "more" } else { "less" };
    let (does, what) = (effort.verb(), effort.word);
    let difference = |ratio: f64| (ratio - 1.0) * 100.0;
    match ratio.interval {
        None => effort.alone(ratio.ratio),
        Some((low, high)) if percent(low).max(percent(high)) <= effort::AS_MUCH => {
            format!("{does} as much {what} ({})", effort::within(low, high))
        }
        Some((low, high)) if ratio.differs() => {
            let (a, b) = (percent(low), percent(high));
            // Enough digits that the ends of the interval differ from nothing.
            let digits = if a.min(b) < 0.1 { 2 } else { 1 };
            format!(
                "{does} {:.digits$} % {word} {what} ({:.digits$} to {:.digits$})",
                percent(ratio.ratio),
                a.min(b),
                a.max(b)
            )
        }
        Some((low, high)) => format!(
            "{what} not told apart ({:+.1} to {:+.1} %)",
            difference(low),
            difference(high)
        ),
    }
}

/// One line per expectation: `ok`, `FAIL`, or `-` with the reason.
pub fn expects(verdicts: &[Verdict], baseline: Option<&str>, style: &Style) -> String {
    let lines: Vec<(String, String, &Verdict)> = verdicts
        .iter()
        .map(|v| {
            let relation = if v.bound.at_most {
                "at most"
            } else {
                "at least"
            };
            let unit = unit_of(&v.bound.metric);
            let (limit, value) = match v.bound.limit {
                Limit::Absolute(x) => (value(x, unit), v.value.map(|x| value(x, unit))),
                Limit::TimesBaseline(x) => (
                    format!("{x} × {}", baseline.unwrap_or("baseline")),
                    v.value.map(number),
                ),
            };
            let text = format!("{} of {} {relation} {limit}", v.bound.metric, v.bound.arm);
            let value = value.or_else(|| v.why.clone()).unwrap_or_default();
            (text, value, v)
        })
        .collect();
    let wide = lines.iter().map(|l| width(&l.0)).max().unwrap_or(0);
    let rows = lines.iter().map(|(text, value, v)| {
        let mark = match v.holds {
            Some(true) => style.green("ok  "),
            Some(false) => style.red("FAIL"),
            None => "-   ".into(),
        };
        format!("  {mark} {}   {value}\n", left(text, wide))
    });
    rows.collect()
}

/// Footnotes: arms without runs, and what a reader must know.
pub fn footnotes(experiment: &Experiment, style: &Style) -> String {
    let mut out = String::new();
    let mut put = |head: &str, text: &str| {
        for (i, line) in wrap(text, style.width.saturating_sub(2 + width(head)))
            .iter()
            .enumerate()
        {
            let head = if i == 0 {
                head.to_string()
            } else {
                " ".repeat(width(head))
            };
            out.push_str(&format!("  {head}{line}\n"));
        }
    };
    for arm in &experiment.arms {
        if let Some(why) = &arm.absent {
            put(&format!("{} `-`: ", arm.name), why);
        }
    }
    let arms = experiment.arms.iter();
    for (arm, model) in arms.filter_map(|a| Some((&a.name, a.model.as_ref()?))) {
        put(
            &format!("{arm}: "),
            &format!(
                "here the policy {model}, a model of the kernel's own scheduler (berth policy show {model}); `berth \
                 lab` runs the real one"
            ),
        );
    }
    for note in effort::why(experiment)
        .into_iter()
        .chain(experiment.all_notes())
    {
        put("note: ", &note);
    }
    out
}

/// Words in lines of at most so many columns (a longer word stands alone).
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines
            .last_mut()
            .filter(|l| width(l) + 1 + width(word) <= columns)
        {
            Some(line) => line.push_str(&format!(" {word}")),
            None => lines.push(word.to_string()),
        }
    }
    lines
}
