// SPDX-License-Identifier: GPL-2.0-only
//! What a set says in all: tau and broken bounds for one CPU and several apart, and the largest errors. Scenarios that
//! a cost was measured with do not count.
use crate::bounds::Bounds;
use crate::judge::{Comparison, Quantity, Row, Verdict};
use crate::ranking::{CHOICE, Ranking};
use std::cmp::Ordering;

/// How many rows were judged and held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub judged: u32,
    pub within: u32,
    /// Broken, but the intervals of the seeds have values within the bound ([`Row::open`]).
    pub open: u32,
}

impl Tally {
    pub fn broken(self) -> u32 {
        self.judged - self.within
    }

    fn add(&mut self, verdict: &Verdict, open: bool) {
        if !matches!(verdict, Verdict::NotJudged(_)) {
            self.judged += 1;
            self.within += u32::from(*verdict == Verdict::Within);
            self.open += u32::from(open);
        }
    }
}

/// Comparisons that count.
pub fn counted(all: &[Comparison]) -> impl Iterator<Item = &Comparison> {
    all.iter().filter(|c| c.measured.is_empty())
}

/// Of one quantity.
pub fn tally<'a>(all: impl Iterator<Item = &'a Comparison>, quantity: Quantity) -> Tally {
    let mut t = Tally::default();
    for row in all.flat_map(|c| &c.rows).filter(|r| r.quantity == quantity) {
        t.add(&row.verdict, row.open);
    }
    t
}

/// Of all quantities, and of each scenario's order of the policies.
pub fn rows<'a>(all: impl Iterator<Item = &'a Comparison>) -> Tally {
    let mut t = Tally::default();
    for c in all {
        for row in &c.rows {
            t.add(&row.verdict, row.open);
        }
        t.add(&c.ranking.verdict, false);
    }
    t
}

/// Whose order is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arms {
    /// The arms that people choose between.
    Choice,
    /// Every arm that ran in both places.
    All,
}

/// The order of the policies over scenarios.
pub fn order<'a>(
    all: impl Iterator<Item = &'a Comparison>,
    arms: Arms,
    ranked: fn(Quantity) -> bool,
    bounds: &Bounds,
) -> Ranking {
    let of = |c: &Comparison| {
        let names: Vec<&str> = match arms {
            Arms::Choice => CHOICE.to_vec(),
            Arms::All => c.arms.iter().map(|(name, _)| name.as_str()).collect(),
        };
        c.order(&names, ranked, bounds)
    };
    Ranking::all(all.map(of), bounds)
}

/// How many times as far off as its bound allows: 1 is at the bound. Factors are compared by their logarithms.
pub fn excess(row: &Row) -> f64 {
    match (row.quantity, row.off) {
        (_, None) => 0.0,
        (Quantity::Share, Some(off)) => off / row.bound,
        (_, Some(off)) => off.ln() / row.bound.ln(),
    }
}

/// The broken rows that count and are furthest beyond their bounds, at most `n`, the worst first.
pub fn largest(all: &[Comparison], n: usize) -> Vec<(&Comparison, &Row)> {
    let mut broken: Vec<_> = counted(all)
        .flat_map(|c| c.broken().map(move |r| (c, r)))
        .collect();
    let by = |a: &Row, b: &Row| match excess(b).total_cmp(&excess(a)) {
        // Without end, like another one: by what the kernel has.
        Ordering::Equal => b.lab.unwrap_or(0.0).total_cmp(&a.lab.unwrap_or(0.0)),
        other => other,
    };
    broken.sort_by(|(_, a), (_, b)| by(a, b));
    broken.truncate(n);
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::compare;
    use crate::table::tests::experiment;

    #[test]
    fn what_a_cost_was_measured_with_does_not_count() {
        let bounds = Bounds::built_in().unwrap();
        let lab = experiment(1, &[("linux", 1.0), ("vmfair", 0.5)]);
        let sim = experiment(1, &[("linux", 1.2), ("vmfair", 2.0)]);
        let mut all = vec![compare(&sim, &lab, &bounds), compare(&lab, &lab, &bounds)];
        // Linux: share and switches; vmfair: all six; the order of the one scenario.
        assert_eq!(rows(counted(&all)).broken(), 9);
        assert_eq!(tally(counted(&all), Quantity::Switches).broken(), 2);
        assert_eq!(
            order(counted(&all), Arms::Choice, |_| true, &bounds).otherwise,
            5
        );
        let worst = largest(&all, 3);
        let is: Vec<_> = worst.iter().map(|(_, r)| (&*r.arm, r.quantity)).collect();
        // 75 points are 37 bounds of 2; a factor of 4 is 10 of 1.15 and 5 of 1.3.
        assert_eq!(is[0], ("vmfair", Quantity::Share));
        assert_eq!(is[1], ("vmfair", Quantity::Switches));
        all[0].measured = vec!["wake_ns".into()];
        assert_eq!(rows(counted(&all)).broken(), 0);
        assert!(largest(&all, 3).is_empty());
        assert_eq!(
            order(counted(&all), Arms::Choice, |_| true, &bounds).otherwise,
            0
        );
    }
}
