// SPDX-License-Identifier: GPL-2.0-only
//! A comparison in the terminal.
use crate::judge::{Answered, Comparison, Quantity, Row, Verdict};
use berth_results::requests::Requests;
use std::fmt::Write;

/// A value as tables show it, with its unit.
pub fn value(quantity: Quantity, value: Option<f64>) -> String {
    let Some(v) = value else { return "-".into() };
    match quantity {
        Quantity::Share => format!("{v:.1} %"),
        Quantity::Switches | Quantity::Migrations => format!("{v:.0} /s"),
        _ => time(v),
    }
}

/// A time given in nanoseconds, with three digits.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "us"),
        ns => (ns, "ns"),
    };
    let decimals = match value {
        v if v >= 100.0 || unit == "ns" => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// Requests answered, of those that were due.
pub fn requests(r: Option<Requests>) -> String {
    r.map_or("-".into(), |r| {
        format!("{:.0}/{:.0}", r.answered, r.offered)
    })
}

/// How far off, and how far it may be.
fn distance(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Share => format!("{value:.1} pt"),
        _ if value.is_infinite() => "no end".into(),
        _ if value >= 100.0 => format!("{value:.0} x"),
        _ => format!("{value:.2} x"),
    }
}

/// A comparison as a table: per arm and group, the simulator's value, the kernel's, and whether the bound holds.
pub fn table(c: &Comparison) -> String {
    let mut out = String::new();
    let wide =
        |f: &dyn Fn(&Row) -> usize, least: usize| c.rows.iter().map(f).fold(least, usize::max);
    let arm = wide(&|r| r.arm.len(), 6);
    let group = wide(&|r| r.group.len(), 2);
    let _ = writeln!(
        out,
        "  {:<arm$}  {:<group$}  {:<14} {:>10}  {:>10}  {:>8}  {:>7}",
        "policy", "VM", "", "simulator", "kernel", "off", "bound"
    );
    let mut before = ("", "");
    for row in &c.rows {
        let same_arm = before.0 == row.arm;
        let mut same_group = same_arm && before.1 == row.group;
        let asked = |a: &&Answered| a.arm == row.arm && a.group == row.group;
        if let Some(a) = c.answered.iter().find(asked).filter(|_| !same_group) {
            let _ = writeln!(
                out,
                "  {:<arm$}  {:<group$}  {:<14} {:>10}  {:>10}  {:>8}  {:>7}  {}",
                if same_arm { "" } else { &row.arm },
                row.group,
                "answered",
                requests(a.sim),
                requests(a.lab),
                "",
                "",
                if a.too_few() {
                    "LESS THAN 99 % ANSWERED"
                } else {
                    ""
                }
            );
            same_group = true;
        }
        let same_arm = same_arm || same_group;
        let _ = write!(
            out,
            "  {:<arm$}  {:<group$}  {:<14} {:>10}  {:>10}  ",
            if same_arm { "" } else { &row.arm },
            if same_group { "" } else { &row.group },
            row.quantity.name(),
            value(row.quantity, row.sim),
            value(row.quantity, row.lab),
        );
        before = (&row.arm, &row.group);
        let off = row.off.map_or("-".into(), |o| distance(row.quantity, o));
        let bound = distance(row.quantity, row.bound);
        let words = match &row.verdict {
            Verdict::Within => "ok".into(),
            Verdict::Broken => "BROKEN".into(),
            Verdict::NotJudged(why) => format!("not judged: {why}"),
        };
        let _ = writeln!(out, "{off:>8}  {bound:>7}  {words}");
    }
    let r = &c.ranking;
    let tau = r.tau.map_or("-".into(), |t| format!("{t:.2}"));
    let words = match &r.verdict {
        Verdict::Within => "ok".to_string(),
        Verdict::Broken => "BROKEN".to_string(),
        Verdict::NotJudged(why) => format!("not judged: {why}"),
    };
    let _ = writeln!(
        out,
        "\n  Order of the policies: Kendall's tau {tau} ({} pairs alike, {} not)  {words}",
        r.alike, r.otherwise
    );
    let judged = |verdict: &Verdict| c.rows.iter().filter(|row| row.verdict == *verdict).count();
    let (within, broken) = (judged(&Verdict::Within), judged(&Verdict::Broken));
    if broken > 0 {
        let _ = writeln!(
            out,
            "  {within} of {} rows lie within their bounds; which do over all scenarios, and why others do not:\n  \
             docs/fidelity.md",
            within + broken
        );
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bounds::Bounds;
    use crate::judge::compare;
    use berth_results::experiment::{Arm, Experiment, Group, Setup};
    use berth_results::schema::{Place, RunRecord};
    use std::collections::BTreeMap;

    /// Two seeds; every value of an arm is the base value times its factor.
    pub fn experiment(cpus: u32, arms: &[(&str, f64)]) -> Experiment {
        let base = [
            ("web.cpu", 0.5 * f64::from(cpus)),
            ("web.switches", 1000.0),
            ("web.migrations", 100.0),
            ("web.run_delay.p50", 1e6),
            ("web.run_delay.p99", 5e6),
            ("web.wakeup.p50", 2e5),
            ("web.wakeup.p99", 4e6),
        ];
        let run = |(arm, factor): &(&str, f64), seed| {
            let mut metrics: BTreeMap<String, f64> = base
                .iter()
                .map(|(n, v)| (n.to_string(), v * factor))
                .collect();
            for count in ["web.run_delay.count", "web.wakeup.count"] {
                metrics.insert(count.into(), 1000.0);
            }
            RunRecord::new(Place::Lab, arm, seed, metrics)
        };
        Experiment {
            setup: Setup {
                name: "t".into(),
                title: "T".into(),
                cpus,
                groups: vec![Group {
                    name: "web".into(),
                    class: "latency".into(),
                    vms: 1,
                    vcpus: 1,
                }],
                warmup_ns: 0,
                measure_ns: 1_000_000_000,
                seeds: vec![1, 2],
            },
            variant: vec![],
            arms: arms
                .iter()
                .map(|(name, _)| Arm {
                    name: name.to_string(),
                    policy: name.to_string(),
                    hash: None,
                    model: None,
                    absent: None,
                })
                .collect(),
            baseline: Some(arms[0].0.to_string()),
            runs: arms.iter().flat_map(|a| [run(a, 1), run(a, 2)]).collect(),
            expects: vec![],
            findings: vec![],
            notes: vec![],
        }
    }

    fn bounds() -> Bounds {
        Bounds::built_in().unwrap()
    }

    fn verdict(c: &Comparison, arm: &str, q: Quantity) -> Verdict {
        let found = c.rows.iter().find(|r| r.arm == arm && r.quantity == q);
        found.unwrap().verdict.clone()
    }

    #[test]
    fn equal_places_agree_in_everything() {
        let e = experiment(1, &[("a", 1.0), ("b", 0.5)]);
        let c = compare(&e, &e, &bounds());
        assert!(!c.is_broken());
        assert_eq!(c.ranking.tau, Some(1.0));
        assert!(c.rows.iter().all(|r| r.verdict == Verdict::Within));
        assert!(table(&c).contains("run delay p99") && !table(&c).contains("rows lie within"));
        // One CPU has no migrations.
        assert!(c.rows.iter().all(|r| r.quantity != Quantity::Migrations));
    }

    #[test]
    fn every_quantity_can_break_its_bound() {
        let lab = experiment(1, &[("a", 1.0), ("b", 0.5)]);
        let sim = experiment(1, &[("a", 2.1), ("b", 0.5)]);
        let c = compare(&sim, &lab, &bounds());
        for q in Quantity::ALL {
            if q != Quantity::Migrations {
                assert_eq!(verdict(&c, "a", q), Verdict::Broken, "{q}");
                assert_eq!(verdict(&c, "b", q), Verdict::Within, "{q}");
            }
        }
        let half = c.rows.len() / 2;
        let said = format!("{half} of {} rows lie within their bounds", 2 * half);
        assert!(table(&c).contains(&said), "{}", table(&c));
        let swapped = experiment(1, &[("a", 0.5), ("b", 1.0)]);
        let c = compare(&swapped, &lab, &bounds());
        assert_eq!(
            (c.ranking.tau, c.ranking.verdict),
            (Some(-1.0), Verdict::Broken)
        );
    }

    #[test]
    fn offered_and_answered_requests_stand_beside_the_percentiles() {
        let mut e = experiment(1, &[("a", 1.0), ("b", 0.5)]);
        for run in &mut e.runs {
            let answered = if run.arm == "a" { 598.0 } else { 15.0 };
            run.metrics.insert("web.response.offered".into(), 600.0);
            run.metrics.insert("web.response.count".into(), answered);
        }
        let text = table(&compare(&e, &e, &bounds()));
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("answered")).collect();
        assert!(
            lines[0].contains("a ") && lines[0].contains("1196/1200"),
            "{text}"
        );
        assert!(!lines[0].contains("LESS"), "{text}");
        assert!(
            lines[1].contains("30/1200") && lines[1].ends_with("LESS THAN 99 % ANSWERED"),
            "{text}"
        );
        // Each arm's and group's name stands once, in its first line.
        assert_eq!(
            text.lines().filter(|l| l.contains("  web ")).count(),
            2,
            "{text}"
        );
    }

    #[test]
    fn an_interval_that_reaches_the_bound_is_open() {
        let lab = experiment(1, &[("a", 1.0)]);
        let sim = experiment(1, &[("a", 1.2)]);
        let open = |lab: &Experiment| {
            let c = compare(&sim, lab, &bounds());
            let mut rows = c.rows.iter();
            let row = rows.find(|r| r.quantity == Quantity::Switches).unwrap();
            assert_eq!(row.verdict, Verdict::Broken);
            row.open
        };
        // Two equal seeds: an interval without width.
        assert!(!open(&lab));
        // 1000 +- 63.5 (two seeds, t = 12.7): 1200 / 1063.5 is within 1.15.
        let mut wide = lab.clone();
        for (run, value) in wide.runs.iter_mut().zip([995.0, 1005.0]) {
            run.metrics.insert("web.switches".into(), value);
        }
        assert!(open(&wide));
    }

    #[test]
    fn rare_events_are_not_judged() {
        let mut lab = experiment(1, &[("a", 1.0)]);
        for run in &mut lab.runs {
            run.metrics.insert("web.wakeup.count".into(), 60.0);
            run.metrics.insert("web.switches".into(), 12.0);
        }
        let mut sim = lab.clone();
        for run in &mut sim.runs {
            run.metrics.insert("web.switches".into(), 3.0);
            run.metrics.insert("web.wakeup.p50".into(), 1.0);
            run.metrics.insert("web.wakeup.p99".into(), 1.0);
        }
        let c = compare(&sim, &lab, &bounds());
        // 120 values are enough for a median, not for a 99th percentile.
        assert_eq!(verdict(&c, "a", Quantity::WakeupP50), Verdict::Broken);
        assert!(matches!(
            verdict(&c, "a", Quantity::WakeupP99),
            Verdict::NotJudged(_)
        ));
        assert_eq!(verdict(&c, "a", Quantity::Switches), Verdict::Within);
        assert!(matches!(c.ranking.verdict, Verdict::NotJudged(_)));
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(time(1_234_567.0), "1.23 ms");
        assert_eq!(time(12_345.0), "12.3 us");
        assert_eq!(time(999.0), "999 ns");
        assert_eq!(value(Quantity::Share, Some(12.34)), "12.3 %");
        assert_eq!(value(Quantity::WakeupP50, None), "-");
    }
}
