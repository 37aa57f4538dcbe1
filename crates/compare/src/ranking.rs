// SPDX-License-Identifier: GPL-2.0-only
//! Does the simulator put the policies in the kernel's order? Kendall's tau over all pairs of arms.
use crate::bounds::Bounds;
use crate::judge::{Quantity, Row, Verdict, factor};
use serde::Serialize;
use std::cmp::Ordering;

/// The arms that people choose between. The others (`vtime`, `gfifo`) are small ones to learn from, and easier to
/// predict.
pub const CHOICE: [&str; 4] = ["linux", "credit", "flms", "vmfair"];

/// Agreement on the order of arms, over all quantities and groups of a scenario or of several.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranking {
    /// Pairs of arms that the kernel tells apart and that the simulator orders alike.
    pub alike: u32,
    /// And those that it orders the other way round or cannot tell apart.
    pub otherwise: u32,
    /// `(alike - otherwise) / (alike + otherwise)`; none without pairs.
    pub tau: Option<f64>,
    pub verdict: Verdict,
}

impl Ranking {
    fn of(alike: u32, otherwise: u32, bounds: &Bounds) -> Ranking {
        let pairs = alike + otherwise;
        let tau = (pairs > 0).then(|| (f64::from(alike) - f64::from(otherwise)) / f64::from(pairs));
        Ranking {
            alike,
            otherwise,
            tau,
            verdict: match tau {
                None => Verdict::NotJudged("no two arms differ on the kernel".into()),
                Some(tau) if tau >= bounds.ranking.tau => Verdict::Within,
                Some(_) => Verdict::Broken,
            },
        }
    }

    /// Several rankings as one: all their pairs together.
    pub fn all(parts: impl Iterator<Item = Ranking>, bounds: &Bounds) -> Ranking {
        let (mut alike, mut otherwise) = (0, 0);
        for part in parts {
            alike += part.alike;
            otherwise += part.otherwise;
        }
        Ranking::of(alike, otherwise, bounds)
    }
}

/// The order of these arms by each of the quantities that can be judged. Shares are left out: their differences between
/// policies that divide a CPU fairly are noise.
pub fn rank(
    rows: &[Row],
    arms: &[&str],
    ranked: impl Fn(Quantity) -> bool,
    bounds: &Bounds,
) -> Ranking {
    let (mut alike, mut otherwise) = (0, 0);
    let of_arm = |arm: &str| {
        let rows = rows.iter().filter(move |r| r.arm == arm);
        rows.filter(|r| r.quantity != Quantity::Share && ranked(r.quantity))
            .collect::<Vec<_>>()
    };
    let rows: Vec<Vec<&Row>> = arms.iter().map(|arm| of_arm(arm)).collect();
    for (i, first) in rows.iter().enumerate() {
        for (a, b) in rows[i + 1..].iter().flat_map(|then| pairs(first, then)) {
            let (Some((sa, la)), Some((sb, lb))) = (values(a), values(b)) else {
                continue;
            };
            let few = match a.quantity {
                Quantity::Switches => bounds.switches.few,
                Quantity::Migrations => bounds.migrations.few,
                _ => 0.0,
            };
            if factor(la, lb) < bounds.ranking.tied || (la < few && lb < few) {
                continue;
            }
            match sa.total_cmp(&sb) {
                order if order == la.total_cmp(&lb) && order != Ordering::Equal => alike += 1,
                _ => otherwise += 1,
            }
        }
    }
    Ranking::of(alike, otherwise, bounds)
}

/// The same quantity of the same group under two arms.
fn pairs<'a>(first: &[&'a Row], then: &[&'a Row]) -> Vec<(&'a Row, &'a Row)> {
    let same = |a: &Row, b: &Row| a.group == b.group && a.quantity == b.quantity;
    let other = |a: &&'a Row| Some((*a, *then.iter().find(|b| same(a, b))?));
    first.iter().filter_map(other).collect()
}

/// Both places' values, if there are enough of them.
fn values(row: &Row) -> Option<(f64, f64)> {
    match &row.verdict {
        Verdict::NotJudged(why) if why.contains("needed") => None,
        _ => Some((row.sim?, row.lab?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::compare;
    use crate::table::tests::experiment;

    #[test]
    fn arms_and_quantities_are_ranked_apart() {
        let bounds = Bounds::built_in().unwrap();
        let lab = experiment(1, &[("linux", 1.0), ("vmfair", 0.5), ("gfifo", 0.2)]);
        // Only gfifo is out of order; and vmfair in its switches.
        let mut sim = experiment(1, &[("linux", 1.0), ("vmfair", 0.5), ("gfifo", 2.0)]);
        for run in sim.runs.iter_mut().filter(|r| r.arm == "vmfair") {
            run.metrics.insert("web.switches".into(), 1_100.0);
        }
        let c = compare(&sim, &lab, &bounds);
        let tau = |arms: &[&str], ranked: fn(Quantity) -> bool| {
            let r = rank(&c.rows, arms, ranked, &bounds);
            (r.alike, r.otherwise)
        };
        // Five quantities: switches and four latencies.
        assert_eq!(tau(&CHOICE, |_| true), (4, 1));
        assert_eq!(tau(&CHOICE, Quantity::is_latency), (4, 0));
        assert_eq!(tau(&["linux", "vmfair", "gfifo"], |_| true), (4, 11));
        // The order in which arms are named does not matter.
        assert_eq!(tau(&["gfifo", "vmfair", "linux"], |_| true), (4, 11));
    }
}
