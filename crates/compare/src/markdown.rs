// SPDX-License-Identifier: GPL-2.0-only
//! Comparisons as a page: what was judged in all, then every scenario.
use crate::bounds::Bounds;
use crate::judge::{Comparison, Quantity, Row, Verdict};
use crate::ranking::Ranking;
use crate::table::value;
use std::fmt::Write;

/// Why a row is known to be broken.
pub type Reasons<'a> = dyn Fn(&str, &Row) -> Option<String> + 'a;

/// How many rows of a quantity were judged and held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub judged: u32,
    pub within: u32,
    /// Broken, but the intervals of the seeds have values within the bound ([`Row::open`]).
    pub open: u32,
}

/// Of one quantity, over all scenarios.
pub fn tally(all: &[Comparison], quantity: Quantity) -> Tally {
    let mut t = Tally::default();
    for row in all.iter().flat_map(|c| &c.rows) {
        if row.quantity == quantity && !matches!(row.verdict, Verdict::NotJudged(_)) {
            t.judged += 1;
            t.within += u32::from(row.verdict == Verdict::Within);
            t.open += u32::from(row.open);
        }
    }
    t
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

/// The summary: one line per quantity, and the order of the policies.
pub fn summary(all: &[Comparison], bounds: &Bounds) -> String {
    let mut out = String::from(
        "| quantity | bound | judged | within | | broken, but open |\n|---|---|---:|---:|---:|---:|\n",
    );
    for quantity in Quantity::ALL {
        let t = tally(all, quantity);
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
    let r = Ranking::all(all.iter().map(|c| &c.ranking), bounds);
    let _ = writeln!(
        out,
        "| order of the policies | tau at least {} | {} pairs | {} | tau {} | |",
        bounds.ranking.tau,
        r.alike + r.otherwise,
        r.alike,
        r.tau.map_or("-".into(), |t| format!("{t:.2}"))
    );
    out
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
            "### {} (`{}`)\n\n{cpus}, {} seeds simulated, {} on the kernel; tau {tau}\n",
            c.title, c.scenario, c.seeds.0, c.seeds.1
        );
        let used: Vec<Quantity> = Quantity::ALL
            .into_iter()
            .filter(|q| c.rows.iter().any(|r| r.quantity == *q))
            .collect();
        let head: String = used.iter().map(|q| format!(" {q} |")).collect();
        let _ = writeln!(
            out,
            "| policy | VM |{head}\n|---|---|{}",
            "---:|".repeat(used.len())
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
        let t = tally(&all, Quantity::Switches);
        assert_eq!((t.judged, t.within), (2, 1));
        let page = summary(&all, &bounds);
        assert!(
            page.contains("| switches | within 1.15 x | 2 | 1 | 50 % | 0 |"),
            "{page}"
        );
        let because = |_: &str, r: &Row| (r.quantity == Quantity::Switches).then(|| "known".into());
        let page = scenarios(&all, &because);
        assert!(page.contains("**1200 /s / 1000 /s**"), "{page}");
        assert!(page.contains("\n- known"), "{page}");
        assert!(page.contains("\n- reason not known"), "{page}");
    }
}
