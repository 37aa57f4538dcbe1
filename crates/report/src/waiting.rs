// SPDX-License-Identifier: GPL-2.0-only
//! Who the leading group waited for, and its worst wait: two lines.
use crate::Style;
use crate::html::strip::{group, thread_name, worst};
use crate::html::{group_of, table_of_waits};
use crate::text::duration;
use berth_results::detail::{COSTS, FROZEN, HOST, IDLE, OTHERS, WorstWait};
use berth_results::experiment::Experiment;
use berth_results::schema::RunRecord;

/// The arm whose waits are told: the baseline, else the first that kept some.
fn arm(e: &Experiment) -> Option<&str> {
    let kept = |arm: &str| e.runs.iter().any(|r| r.arm == arm && !r.waits.is_empty());
    let base = e.baseline.as_deref().filter(|b| kept(b));
    base.or_else(|| e.arms.iter().map(|a| a.name.as_str()).find(|a| kept(a)))
}

/// Both lines, as far as they are known.
pub fn lines(e: &Experiment, style: &Style) -> String {
    let (Some(arm), Some(group)) = (arm(e), group(e)) else {
        return String::new();
    };
    let mut out = String::new();
    if let Some(text) = whom(e, arm, &group) {
        out.push_str(&format!("  {text}\n"));
    }
    if let Some((arm, run, w)) = worst_of_all(e, &group) {
        let text = format!("Worst wait: {}", words(arm, run, w));
        for (i, line) in crate::sentences::wrap(&text, style.width.saturating_sub(6))
            .iter()
            .enumerate()
        {
            out.push_str(&format!("  {}{line}\n", if i == 0 { "" } else { "  " }));
        }
    }
    out
}

/// The worst wait of all arms.
fn worst_of_all<'a>(
    e: &'a Experiment,
    group: &str,
) -> Option<(&'a str, &'a RunRecord, &'a WorstWait)> {
    let all = e.arms.iter().filter_map(|a| {
        let (run, w) = worst(e, &a.name, group)?;
        Some((a.name.as_str(), run, w))
    });
    all.max_by_key(|(_, _, w)| w.ns())
}

/// Options of `berth sim` that show the worst wait of all these experiments in a trace, and of which of them it is:
/// `--arm linux --seed 7 --trace 8.1s..8.3s`.
pub fn look(all: &[Experiment]) -> Option<(usize, String)> {
    let of = |e| worst_of_all(e, &group(e)?);
    let each = all
        .iter()
        .enumerate()
        .filter_map(|(i, e)| Some((i, of(e)?)));
    let (which, (arm, run, w)) = each.max_by_key(|(_, (_, _, w))| w.ns())?;
    // Tenths of a second around it.
    let tenth = 100_000_000;
    let from = (w.from_ns / tenth) as f64 / 10.0;
    let to = (w.to_ns / tenth + 1) as f64 / 10.0;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    arm.chars().all(plain).then(|| {
        (
            which,
            format!("--arm {arm} --seed {} --trace {from}s..{to}s", run.seed),
        )
    })
}

/// The sentence of a worst wait.
pub fn words(arm: &str, run: &RunRecord, w: &WorstWait) -> String {
    let behind = match w.behind.first() {
        Some((thread, _)) => format!("behind {}", thread_name(thread)),
        None => "for an idle CPU".into(),
    };
    let more = match w.behind.len() {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let verb = if w.unfinished { "stands" } else { "stood" };
    format!(
        "{} {verb} {} {behind}{more} on CPU {} ({arm}, seed {}, at {:.3} s)",
        thread_name(&w.thread),
        duration(w.ns() as f64),
        w.cpu,
        run.seed,
        w.from_ns as f64 / 1e9
    )
}

/// `Who web waited for, under linux: build 91 % · the other web VM 6 % · host threads 3 %`.
fn whom(e: &Experiment, arm: &str, group: &str) -> Option<String> {
    // A VM's own threads and those of the other VMs of its group are told apart where VMs are.
    let many = e.setup.groups.iter().find(|g| g.name == group)?.vms;
    let mut parts = std::collections::BTreeMap::<String, f64>::new();
    for ((waiter, cause), ns) in table_of_waits(e, arm) {
        if group_of(e, &waiter) != group {
            continue;
        }
        let name = if cause == waiter && many > 1 {
            "its own VM".into()
        } else if group_of(e, &cause) == group {
            match many {
                1 => "its own VM".into(),
                2 => format!("the other {group} VM"),
                _ => format!("other {group} VMs"),
            }
        } else {
            match cause.as_str() {
                HOST => "host threads".into(),
                IDLE => "an idle CPU".into(),
                COSTS => "switching".into(),
                OTHERS => "other VMs".into(),
                FROZEN => "its VM's being frozen".into(),
                vm => group_of(e, vm),
            }
        };
        *parts.entry(name).or_default() += ns;
    }
    let total: f64 = parts.values().sum();
    if total <= 0.0 {
        return None;
    }
    let mut parts: Vec<(String, f64)> = parts.into_iter().collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown = parts.iter().map(|(name, ns)| (name, ns / total * 100.0));
    let shown: Vec<String> = shown
        .filter(|(_, p)| *p >= 0.5)
        .take(4)
        .map(|(name, percent)| format!("{name} {percent:.0} %"))
        .collect();
    Some(format!(
        "Who {group} waited for, under {arm}: {}",
        shown.join(" · ")
    ))
}
