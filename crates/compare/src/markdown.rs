// SPDX-License-Identifier: GPL-2.0-only
//! Comparisons as a page: what came out in all, the largest errors, then every scenario.
use crate::bounds::Bounds;
use crate::judge::{Comparison, Quantity, Row, Verdict};
use crate::score::{self, Arms};
use crate::table::{requests, value};
use std::fmt::Write;

/// Why a row is known to be broken.
pub type Reasons<'a> = dyn Fn(&str, &Row) -> Option<String> + 'a;

/// How many of the largest errors stand on top.
const LARGEST: usize = 10;

/// Tau and broken bounds, for one CPU and several apart.
pub fn headline(all: &[Comparison], bounds: &Bounds) -> String {
    let parts: [Vec<&Comparison>; 2] = [
        score::counted(all).filter(|c| c.cpus == 1).collect(),
        score::counted(all).filter(|c| c.cpus > 1).collect(),
    ];
    let both = || parts.iter().flatten().copied();
    if both().next().is_none() {
        return "No scenario of it is recorded yet.\n".into();
    }
    let mut out = String::from("| | one CPU | several CPUs | all |\n|---|---:|---:|---:|\n");
    let _ = writeln!(
        out,
        "| scenarios | {} | {} | {} |",
        parts[0].len(),
        parts[1].len(),
        both().count()
    );
    type Ranked = (&'static str, Arms, fn(Quantity) -> bool);
    let every: fn(Quantity) -> bool = |_| true;
    let ranked: [Ranked; 3] = [
        (
            "tau of `linux`, `credit`, `flms`, `vmfair`",
            Arms::Choice,
            every,
        ),
        (
            "the same, latencies only",
            Arms::Choice,
            Quantity::is_latency,
        ),
        ("tau of all policies", Arms::All, every),
    ];
    for (what, arms, quantities) in ranked {
        let cell = |part: &[&Comparison]| {
            let r = score::order(part.iter().copied(), arms, quantities, bounds);
            let pairs = r.alike + r.otherwise;
            let tau = r.tau.map_or("-".into(), |t| format!("{t:.3}"));
            match r.verdict {
                Verdict::Broken => format!("**{tau}** ({} of {pairs} pairs)", r.alike),
                _ => format!("{tau} ({} of {pairs} pairs)", r.alike),
            }
        };
        let _ = writeln!(
            out,
            "| {what} | {} | {} | |",
            cell(&parts[0]),
            cell(&parts[1])
        );
    }
    let tallies = [
        score::rows(parts[0].iter().copied()),
        score::rows(parts[1].iter().copied()),
        score::rows(both()),
    ];
    let line = |what: &str, cell: &dyn Fn(score::Tally) -> String| {
        let cells: Vec<String> = tallies.iter().map(|t| cell(*t)).collect();
        format!("| {what} | {} |\n", cells.join(" | "))
    };
    out += &line("rows judged, each scenario's order one of them", &|t| {
        t.judged.to_string()
    });
    out += &line("broken", &|t| {
        let percent = 100.0 * f64::from(t.broken()) / f64::from(t.judged.max(1));
        format!("{} ({percent:.1} %)", t.broken())
    });
    out += &line("of these open", &|t| t.open.to_string());
    let measured: Vec<String> = all
        .iter()
        .filter(|c| !c.measured.is_empty())
        .map(|c| format!("`{}`", c.scenario))
        .collect();
    if !measured.is_empty() {
        let _ = write!(
            out,
            "\nNot counted, because costs of the simulated machine were measured with the like of them: {}.\n",
            measured.join(", ")
        );
    }
    out
}

/// The errors that are furthest beyond their bounds, with what is known.
pub fn largest(all: &[Comparison], reasons: &Reasons<'_>) -> String {
    let mut out = String::from(
        "| | scenario | policy | VM | quantity | simulator | kernel | times its bound | what is known |\n\
         |---:|---|---|---|---|---:|---:|---:|---|\n",
    );
    for (i, (c, row)) in score::largest(all, LARGEST).into_iter().enumerate() {
        let mut known = reasons(&c.scenario, row).unwrap_or_else(|| "nothing yet".into());
        if row.open {
            known.push_str(" (open: the intervals have values within the bound)");
        }
        let times = score::excess(row);
        let _ = writeln!(
            out,
            "| {} | `{}` | {} | {} | {} | {} | {} | {} | {known} |",
            i + 1,
            c.scenario,
            row.arm,
            row.group,
            row.quantity,
            value(row.quantity, row.sim),
            value(row.quantity, row.lab),
            if times.is_finite() {
                format!("{times:.1}")
            } else {
                "no end".into()
            },
        );
    }
    out
}

fn bound(bounds: &Bounds, quantity: Quantity) -> String {
    match quantity {
        Quantity::Share => format!("± {} points", bounds.share.points),
        Quantity::Switches => format!("within {} x", bounds.switches.ratio),
        Quantity::Migrations => format!("within {} x", bounds.migrations.ratio),
        Quantity::RunDelayP50 => format!("within {} x", bounds.run_delay.p50),
        Quantity::RunDelayP99 => format!("within {} x", bounds.run_delay.p99),
        Quantity::WakeupP50 => format!("within {} x", bounds.wakeup.p50),
        Quantity::WakeupP99 => format!("within {} x", bounds.wakeup.p99),
    }
}

/// One line per quantity.
pub fn summary(all: &[Comparison], bounds: &Bounds) -> String {
    let mut out = String::from(
        "| quantity | bound | judged | within | | broken, but open |\n|---|---|---:|---:|---:|---:|\n",
    );
    for quantity in Quantity::ALL {
        let t = score::tally(score::counted(all), quantity);
        let share = match t.judged {
            0 => "-".to_string(),
            n => format!("{:.0} %", 100.0 * f64::from(t.within) / f64::from(n)),
        };
        let _ = writeln!(
            out,
            "| {quantity} | {} | {} | {} | {share} | {} |",
            bound(bounds, quantity),
            t.judged,
            t.within,
            t.open
        );
    }
    let orders = score::counted(all).map(|c| &c.ranking.verdict);
    let judged: Vec<bool> = orders
        .filter(|v| !matches!(v, Verdict::NotJudged(_)))
        .map(|v| *v == Verdict::Within)
        .collect();
    let within = judged.iter().filter(|w| **w).count();
    let _ = writeln!(
        out,
        "| order of all policies in a scenario | tau at least {} | {} | {within} | {:.0} % | |",
        bounds.ranking.tau,
        judged.len(),
        100.0 * within as f64 / judged.len().max(1) as f64
    );
    out
}

/// Who answered less than 99 % of the requests in one of the places.
fn unanswered(c: &Comparison) -> String {
    let few = c.answered.iter().filter(|a| a.too_few());
    let said: Vec<String> = few
        .map(|a| {
            let (sim, lab) = (requests(a.sim), requests(a.lab));
            format!("{} of {}: {sim} / {lab}", a.arm, a.group)
        })
        .collect();
    if said.is_empty() {
        return String::new();
    }
    format!(
        "Answered less than 99 % of the requests that were due: {}.\n\n",
        said.join("; ")
    )
}

/// How many starts of each arm are recorded.
fn starts(c: &Comparison) -> String {
    let (most, fewest) = c.recorded();
    if most == fewest {
        return format!("{} seeds simulated, {most} on the kernel", c.simulated);
    }
    let fewer = c.arms.iter().filter(|(_, n)| *n < most);
    let fewer: Vec<String> = fewer.map(|(arm, n)| format!("{arm} {n}")).collect();
    format!(
        "{} seeds simulated, {most} on the kernel ({})",
        c.simulated,
        fewer.join(", ")
    )
}

/// Every scenario: one line per policy and VM group, simulator / kernel; what breaks its bound is bold.
pub fn scenarios(all: &[Comparison], reasons: &Reasons<'_>) -> String {
    let mut out = String::new();
    for c in all {
        let cpus = match c.cpus {
            1 => "1 CPU".to_string(),
            n => format!("{n} CPUs"),
        };
        let tau = c.ranking.tau.map_or("-".into(), |t| format!("{t:.2}"));
        let _ = writeln!(
            out,
            "### {} (`{}`)\n\n{cpus}, {}; tau {tau}\n",
            c.title,
            c.scenario,
            starts(c)
        );
        if !c.measured.is_empty() {
            let _ = writeln!(
                out,
                "Not counted: {} were measured with the like of it.\n",
                c.measured.join(", ")
            );
        }
        out.push_str(&unanswered(c));
        let used: Vec<Quantity> = Quantity::ALL
            .into_iter()
            .filter(|q| c.rows.iter().any(|r| r.quantity == *q))
            .collect();
        let mut head: String = used.iter().map(|q| format!(" {q} |")).collect();
        if !c.answered.is_empty() {
            head.push_str(" answered |");
        }
        let _ = writeln!(
            out,
            "| policy | VM |{head}\n|---|---|{}",
            "---:|".repeat(head.matches('|').count())
        );
        let mut lines: Vec<(&str, &str)> = Vec::new();
        for row in &c.rows {
            if lines.last() != Some(&(&row.arm, &row.group)) {
                lines.push((&row.arm, &row.group));
            }
        }
        for (arm, group) in lines {
            let _ = write!(out, "| {arm} | {group} |");
            for quantity in &used {
                let row = c
                    .rows
                    .iter()
                    .find(|r| r.arm == arm && r.group == group && r.quantity == *quantity);
                let _ = write!(out, " {} |", row.map_or(String::new(), cell));
            }
            if !c.answered.is_empty() {
                let of = c.answered.iter().find(|a| a.arm == arm && a.group == group);
                let both = of.map(|a| format!("{} / {}", requests(a.sim), requests(a.lab)));
                let _ = write!(out, " {} |", both.unwrap_or_default());
            }
            out.push('\n');
        }
        let mut said: Vec<String> = Vec::new();
        for row in c.broken() {
            let why = reasons(&c.scenario, row).unwrap_or_else(|| "reason not known".into());
            if !said.contains(&why) {
                said.push(why);
            }
        }
        for why in said {
            let _ = write!(out, "\n- {why}");
        }
        out.push_str(if c.broken().next().is_some() {
            "\n\n"
        } else {
            "\n"
        });
    }
    out
}

fn cell(row: &Row) -> String {
    let text = format!(
        "{} / {}",
        value(row.quantity, row.sim),
        value(row.quantity, row.lab)
    );
    let text = match row.half {
        (_, Some(half)) if row.open => format!("{text} ± {}", value(row.quantity, Some(half))),
        _ => text,
    };
    match row.verdict {
        Verdict::Within => text,
        Verdict::Broken => format!("**{text}**"),
        Verdict::NotJudged(_) => format!("({text})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::compare;
    use crate::table::tests::experiment;

    #[test]
    fn the_page_counts_and_marks_what_is_broken() {
        let bounds = Bounds::built_in().unwrap();
        let lab = experiment(1, &[("a", 1.0), ("b", 0.5)]);
        let sim = experiment(1, &[("a", 1.2), ("b", 0.5)]);
        let all = [compare(&sim, &lab, &bounds)];
        let page = summary(&all, &bounds);
        assert!(
            page.contains("| switches | within 1.15 x | 2 | 1 | 50 % | 0 |"),
            "{page}"
        );
        let top = headline(&all, &bounds);
        assert!(top.contains("| scenarios | 1 | 0 | 1 |"), "{top}");
        // Two arms, six quantities each, and their order; share and switches of one are broken.
        assert!(
            top.contains("| broken | 2 (15.4 %) | 0 (0.0 %) | 2 (15.4 %) |"),
            "{top}"
        );
        let because = |_: &str, r: &Row| (r.quantity == Quantity::Switches).then(|| "known".into());
        let page = scenarios(&all, &because);
        assert!(page.contains("**1200 /s / 1000 /s**"), "{page}");
        assert!(page.contains("\n- known"), "{page}");
        assert!(page.contains("\n- reason not known"), "{page}");
        let page = largest(&all, &because);
        assert!(
            page.contains("| 1 | `t` | a | web | share | 60.0 % | 50.0 % | 5.0 | nothing yet |"),
            "{page}"
        );
        assert!(page.contains("| 2 | `t` | a | web | switches |"), "{page}");
    }

    #[test]
    fn unanswered_requests_and_missing_starts_are_said() {
        let bounds = Bounds::built_in().unwrap();
        let mut lab = experiment(1, &[("a", 1.0), ("b", 0.5)]);
        for run in &mut lab.runs {
            run.metrics.insert("web.response.offered".into(), 600.0);
            let answered = if run.arm == "a" { 597.0 } else { 15.0 };
            run.metrics.insert("web.response.count".into(), answered);
        }
        let sim = lab.clone();
        lab.runs.retain(|r| (&*r.arm, r.seed) != ("b", 2));
        let mut c = compare(&sim, &lab, &bounds);
        c.measured = vec!["wake_ns".into()];
        let page = scenarios(&[c], &|_, _| None);
        assert!(
            page.contains("than 99 % of the requests that were due: b of web: 30/1200 / 15/600."),
            "{page}"
        );
        assert!(
            page.contains("2 seeds simulated, 2 on the kernel (b 1)"),
            "{page}"
        );
        assert!(
            page.contains("Not counted: wake_ns were measured"),
            "{page}"
        );
    }
}
