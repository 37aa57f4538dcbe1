// SPDX-License-Identifier: GPL-2.0-only
//! Shares as settings of a host: weights, caps and freezing.
use crate::cpuset::CpuSet;
use crate::reason::Reason;
use crate::settings::Settings;
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
    /// What it would use when it is not frozen and nobody is in its way, and its run fraction now.
    pub running: f64,
    pub run_fraction: Option<f64>,
    /// What it would have if its CPUs were divided by the shares of those on them; none: they are its own.
    pub due: Option<f64>,
    /// Some VM wants more than it is due, and has clearly had less: the scheduler favours others.
    pub uneven: bool,
}

/// Cap and run fraction by the means there are, and why.
pub fn bounds(settings: &Settings, b: Bounds) -> (Option<f64>, Option<f64>, Vec<Reason>) {
    let means = &settings.means;
    let mut why = Vec::new();
    let mut most = f64::INFINITY;
    if let Some(limit) = b.limit {
        most = limit;
        why.push(match means.caps || means.freezing {
            true => Reason::Limited { limit },
            false => Reason::LimitNotKept { limit },
        });
    }
    if !means.caps {
        let mut fraction = most / b.demand.max(FLOOR_CPUS);
        if let Some(held) = held(settings, &b) {
            fraction = fraction.min(held);
            why.push(Reason::OverUse {
                due: b.due.unwrap_or(b.share),
                running: b.running,
            });
        }
        let freezes = means.freezing && fraction < 1.0;
        return (None, freezes.then_some(fraction.max(FLOOR_CPUS)), why);
    }
    // With CPU sets the CPUs themselves divide the machine.
    if !means.sets && b.want && b.demand > b.share * (1.0 + settings.hysteresis) {
        most = most.min(b.share * b.spare);
        why.push(Reason::OverShare {
            share: b.share,
            demand: b.demand,
        });
    }
    (most.is_finite().then_some(most), None, why)
}

/// The run fraction by which a VM cannot have more than it is due, however the scheduler favours it; none: it has not
/// been seen to have more, or may not be frozen. So those who share its CPUs are left what they are due, whatever all
/// others do. It begins when somebody goes short, and a VM that is close to what it is due is left as it is.
fn held(settings: &Settings, b: &Bounds) -> Option<f64> {
    let begins = b.uneven || b.run_fraction.is_some();
    let due = b
        .due
        .filter(|_| settings.means.freezing && b.want && begins)?;
    let fraction = due / b.running.max(FLOOR_CPUS);
    let now = b.run_fraction.unwrap_or(1.0);
    let close = (fraction - now).abs() <= settings.step * now;
    let fraction = if close { now } else { fraction };
    (fraction < 1.0).then_some(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Means;
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

    /// Wants twice its share, and has not been seen to have more than that.
    const WANTS: Bounds = Bounds {
        demand: 0.8,
        share: 0.4,
        limit: Some(0.5),
        want: true,
        spare: 1.25,
        running: 0.4,
        run_fraction: None,
        due: Some(0.5),
        uneven: true,
    };
    const ALL: Means = Means {
        sets: true,
        weights: true,
        caps: true,
        freezing: true,
    };

    fn by(means: Means, b: Bounds) -> (Option<f64>, Option<f64>, Vec<Reason>) {
        let settings = Settings {
            means,
            ..Settings::default()
        };
        bounds(&settings, b)
    }

    #[test]
    fn limits_and_shares_by_the_means_there_are() {
        let limited = Reason::Limited { limit: 0.5 };
        assert_eq!(by(ALL, WANTS), (Some(0.5), None, vec![limited.clone()]));
        let freezing = Means { caps: false, ..ALL };
        assert_eq!(by(freezing, WANTS), (None, Some(0.625), vec![limited]));
        let none = Means {
            caps: false,
            freezing: false,
            ..ALL
        };
        assert_eq!(by(none, WANTS).2, [Reason::LimitNotKept { limit: 0.5 }]);
        // Without sets the share holds, times what is spare; with enough for all there is nothing to hold.
        let no_sets = Means { sets: false, ..ALL };
        let free = Bounds {
            limit: None,
            ..WANTS
        };
        assert_eq!(by(no_sets, free).0, Some(0.5));
        let enough = Bounds {
            want: false,
            ..free
        };
        assert_eq!(by(no_sets, enough), (None, None, vec![]));
        assert_eq!(by(ALL, free), (None, None, vec![]));
        let near = Bounds {
            demand: 0.41,
            ..free
        };
        assert_eq!(by(no_sets, near).0, None);
    }

    #[test]
    fn whom_the_scheduler_favours_is_frozen_for_what_is_too_much() {
        let freezing = Means { caps: false, ..ALL };
        let fraction = |running: f64, now: Option<f64>, want: bool, due: Option<f64>| {
            let b = Bounds {
                limit: None,
                running,
                run_fraction: now,
                want,
                due,
                ..WANTS
            };
            by(freezing, b).1
        };
        let due = Some(0.5);
        // Twice as much as it is due: half of the time. By up to a fifth it is left alone, frozen or not.
        assert_eq!(fraction(1.0, None, true, due), Some(0.5));
        assert_eq!(fraction(0.6, None, true, due), None);
        assert_eq!(fraction(0.7, None, true, due), Some(0.5 / 0.7));
        assert_eq!(fraction(1.1, Some(0.5), true, due), Some(0.5));
        assert_eq!(fraction(0.9, Some(0.5), true, due), Some(0.5));
        assert_eq!(fraction(0.8, Some(0.5), true, due), Some(0.625));
        // It has what it is due without; there is enough for all; its CPUs are its own; others hold shares.
        assert_eq!(fraction(0.5, Some(0.5), true, due), None);
        assert_eq!(fraction(1.0, Some(0.5), false, due), None);
        assert_eq!(fraction(1.0, None, true, None), None);
        // Nobody goes short: nobody is frozen, and who is stays so.
        let even = |run_fraction| Bounds {
            limit: None,
            running: 1.0,
            run_fraction,
            uneven: false,
            ..WANTS
        };
        assert_eq!(by(freezing, even(None)).1, None);
        assert_eq!(by(freezing, even(Some(0.5))).1, Some(0.5));
        let why = Reason::OverUse {
            due: 0.5,
            running: 1.0,
        };
        let b = Bounds {
            running: 1.0,
            ..WANTS
        };
        assert_eq!(by(ALL, b).1, None);
        // The smaller of both fractions; a hundredth of the time at least.
        let limited = Reason::Limited { limit: 0.5 };
        assert_eq!(by(freezing, b), (None, Some(0.5), vec![limited, why]));
        assert_eq!(fraction(8.0, None, true, Some(0.01)), Some(0.01));
    }
}
