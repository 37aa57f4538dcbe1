// SPDX-License-Identifier: GPL-2.0-only
//! Shares as settings of a host: weights, caps and freezing.
use crate::cpuset::CpuSet;
use crate::reason::Reason;
use crate::settings::Means;
use crate::share::{Claim, FLOOR_CPUS};
use serde::{Deserialize, Serialize};

/// What a VM is set to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// CPUs on which its threads may run; none: all of the host.
    pub cpus: Option<CpuSet>,
    /// `cpu.weight`, 1 to 10000.
    pub weight: u32,
    /// `cpu.max`, CPUs; none: no cap.
    pub cap: Option<f64>,
    /// Part of each 100 ms in which it is not frozen, above 0; none: it never is.
    pub run_fraction: Option<f64>,
}

impl Setting {
    /// What a VM of this weight has before anything is set.
    pub fn untouched(weight: u32) -> Setting {
        Setting {
            cpus: None,
            weight,
            cap: None,
            run_fraction: None,
        }
    }
}

/// Weights that give each claim its share where the scheduler divides by weight: in proportion to
/// `base + level * weight`, which is a VM's share as long as it wants more. Who has no guarantee keeps its own weight,
/// whatever the level. `level`: as in [`crate::share::Shares`].
pub fn weights(level: Option<f64>, kept: f64, claims: &[Claim]) -> Vec<u32> {
    const MOST: f64 = 10_000.0;
    let enough = level.is_none();
    let level = level.unwrap_or(0.0);
    let due = |c: &Claim| kept * c.base() + level * c.weight;
    let most = claims.iter().map(due).fold(0.0, f64::max);
    // Enough for all, or nothing but floors.
    if enough || most == 0.0 {
        return claims.iter().map(|c| c.weight as u32).collect();
    }
    // Guarantees that leave nothing to be divided by weight fill the scale.
    let scale = (1.0 / level).min(MOST / most);
    let weight = |c: &Claim| (due(c) * scale).round().clamp(1.0, MOST) as u32;
    claims.iter().map(weight).collect()
}

/// What is known of one VM when its cap is decided, CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub demand: f64,
    pub share: f64,
    pub limit: Option<f64>,
    /// Somebody goes short.
    pub want: bool,
    /// CPUs online for each CPU that is divided: the reserve is for planning and is never kept back.
    pub spare: f64,
}

/// Cap and run fraction by the means there are, and why.
pub fn bounds(
    means: &Means,
    b: Bounds,
    hysteresis: f64,
) -> (Option<f64>, Option<f64>, Vec<Reason>) {
    let mut why = Vec::new();
    let mut most = f64::INFINITY;
    if let Some(limit) = b.limit {
        most = limit;
        why.push(match means.caps || means.freezing {
            true => Reason::Limited { limit },
            false => Reason::LimitNotKept { limit },
        });
    }
    // With CPU sets the CPUs themselves divide the machine.
    if !means.sets && b.want && b.demand > b.share * (1.0 + hysteresis) {
        most = most.min(b.share * b.spare);
        why.push(Reason::OverShare {
            share: b.share,
            demand: b.demand,
        });
    }
    if most.is_infinite() {
        return (None, None, why);
    }
    if means.caps {
        return (Some(most), None, why);
    }
    let fraction = (most / b.demand.max(FLOOR_CPUS)).max(FLOOR_CPUS);
    let freezes = means.freezing && fraction < 1.0;
    (None, freezes.then_some(fraction), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::allot;

    fn claim(demand: f64, guarantee: f64, weight: f64) -> Claim {
        Claim {
            demand,
            guarantee,
            limit: f64::INFINITY,
            weight,
            floor: 0.0,
        }
    }

    #[test]
    fn weights_divide_as_the_shares_do() {
        let claims = [
            claim(2.0, 1.0, 100.0),
            claim(2.0, 0.0, 100.0),
            claim(2.0, 0.0, 200.0),
        ];
        let shares = allot(2.0, &claims);
        let w = weights(shares.level, shares.kept, &claims);
        // A level of 1/400: the guarantee of one CPU is worth 400.
        assert_eq!(w, [500, 100, 200]);
        let sum: u32 = w.iter().sum();
        for (w, share) in w.iter().zip(&shares.cpus) {
            assert!((f64::from(*w) / f64::from(sum) * 2.0 - share).abs() < 1e-9);
        }
        assert_eq!(weights(None, 1.0, &claims), [100, 100, 200]);
        assert_eq!(weights(Some(0.0), 0.0, &claims), [100, 100, 200]);
        // Guarantees take all: in proportion to them, whoever has none gets the least there is.
        let claims = [
            claim(2.0, 1.5, 100.0),
            claim(2.0, 0.5, 100.0),
            claim(1.0, 0.0, 100.0),
        ];
        let shares = allot(2.0, &claims);
        assert_eq!(
            weights(shares.level, shares.kept, &claims),
            [10_000, 3333, 1]
        );
    }

    #[test]
    fn limits_and_shares_by_the_means_there_are() {
        let b = Bounds {
            demand: 0.8,
            share: 0.4,
            limit: Some(0.5),
            want: true,
            spare: 1.25,
        };
        let all = Means {
            sets: true,
            weights: true,
            caps: true,
            freezing: true,
        };
        let limited = Reason::Limited { limit: 0.5 };
        assert_eq!(
            bounds(&all, b, 0.05),
            (Some(0.5), None, vec![limited.clone()])
        );
        let freezing = Means { caps: false, ..all };
        assert_eq!(
            bounds(&freezing, b, 0.05),
            (None, Some(0.625), vec![limited])
        );
        let none = Means {
            caps: false,
            freezing: false,
            ..all
        };
        assert_eq!(
            bounds(&none, b, 0.05).2,
            [Reason::LimitNotKept { limit: 0.5 }]
        );
        // Without sets the share holds, times what is spare; with enough for all there is nothing to hold.
        let no_sets = Means { sets: false, ..all };
        let free = Bounds { limit: None, ..b };
        assert_eq!(bounds(&no_sets, free, 0.05).0, Some(0.5));
        let enough = Bounds {
            want: false,
            ..free
        };
        assert_eq!(bounds(&no_sets, enough, 0.05), (None, None, vec![]));
        assert_eq!(bounds(&all, free, 0.05), (None, None, vec![]));
        let near = Bounds {
            demand: 0.41,
            ..free
        };
        assert_eq!(bounds(&no_sets, near, 0.05).0, None);
    }
}
