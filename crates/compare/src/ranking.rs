// SPDX-License-Identifier: GPL-2.0-only
//! Does the simulator put the policies in the kernel's order? Kendall's tau over all pairs of arms.
use crate::bounds::Bounds;
use crate::judge::{Quantity, Row, Verdict, factor};
use serde::Serialize;
use std::cmp::Ordering;

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
    pub fn all<'a>(parts: impl Iterator<Item = &'a Ranking>, bounds: &Bounds) -> Ranking {
        let (mut alike, mut otherwise) = (0, 0);
        for part in parts {
            alike += part.alike;
            otherwise += part.otherwise;
        }
        Ranking::of(alike, otherwise, bounds)
    }
}

/// The order of arms by each quantity that can be judged. Shares are left out: their differences between policies that
/// divide a CPU fairly are noise.
pub fn rank(rows: &[Row], arms: &[String], bounds: &Bounds) -> Ranking {
    let (mut alike, mut otherwise) = (0, 0);
    let ranked = rows.iter().filter(|r| r.quantity != Quantity::Share);
    for a in ranked {
        for b in rows {
            let after = |x: &str| arms.iter().position(|arm| arm == x);
            let pair =
                (a.group == b.group && a.quantity == b.quantity) && after(&a.arm) < after(&b.arm);
            let (true, Some((sa, la)), Some((sb, lb))) = (pair, values(a), values(b)) else {
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

/// Both places' values, if there are enough of them. (Of the baseline arm there are, though it is not judged itself.)
fn values(row: &Row) -> Option<(f64, f64)> {
    match &row.verdict {
        Verdict::NotJudged(why) if why.contains("needed") => None,
        _ => Some((row.sim?, row.lab?)),
    }
}
