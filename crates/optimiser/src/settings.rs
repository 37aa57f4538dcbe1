// SPDX-License-Identifier: GPL-2.0-only
//! How the optimiser decides, and by what it may act.
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// How the optimiser decides. Parts are of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Time that an observation should cover, ns.
    pub period_ns: u64,
    /// Longest time between two decisions, ns.
    pub decide_ns: u64,
    /// Shortest time between two changes of one VM, ns.
    pub gap_ns: u64,
    /// Weight of the newest sample in the average of a VM's demand, above 0, at most 1.
    pub alpha: f64,
    /// A change of demand by more than this part of it is a step: the average starts anew, a decision is due.
    pub step: f64,
    /// Part of the host that is kept for what is no VM.
    pub reserve: f64,
    /// Weight of what is no VM, beyond the reserve; 1 to 10000.
    pub host_weight: u32,
    /// A weight, a cap or a run fraction changes only by more than this part.
    pub hysteresis: f64,
    /// How far a CPU's load may be above the mean before a VM leaves it, a part of the mean.
    pub imbalance: f64,
    /// A VM gets the CPUs it may have to itself from this part of them in demand, and loses them below the other.
    pub dedicate_from: f64,
    pub dedicate_until: f64,
    pub spread: Spread,
    pub means: Means,
}

/// How VMs without CPUs of their own are spread when there is less than they want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Packed onto CPUs by their shares: holds under any scheduler.
    #[default]
    Cpus,
    /// On one pool of CPUs: better where the scheduler divides it by the weights of VMs.
    Pool,
}

impl Spread {
    pub fn of(word: &str) -> Option<Spread> {
        match word {
            "cpus" => Some(Spread::Cpus),
            "pool" => Some(Spread::Pool),
            _ => None,
        }
    }
}

/// By what the optimiser may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Means {
    /// CPU sets: obeyed under any scheduler.
    pub sets: bool,
    /// `cpu.weight`.
    pub weights: bool,
    /// `cpu.max`: limits; without sets, shares too.
    pub caps: bool,
    /// `cgroup.freeze` for part of each 100 ms; only where there are no caps. It stops a VM's I/O, too.
    pub freezing: bool,
}

impl Default for Means {
    fn default() -> Means {
        Means {
            sets: true,
            weights: true,
            caps: true,
            freezing: false,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            period_ns: 1_000_000_000,
            decide_ns: 2_000_000_000,
            gap_ns: 2_000_000_000,
            alpha: 0.3,
            step: 0.2,
            reserve: 0.05,
            host_weight: 100,
            hysteresis: 0.05,
            imbalance: 0.1,
            dedicate_from: 0.5,
            dedicate_until: 0.2,
            spread: Spread::default(),
            means: Means::default(),
        }
    }
}

impl Settings {
    /// # Errors
    /// The first setting out of its range.
    pub fn check(&self) -> Result<(), Error> {
        let part = "a part from 0 to below 1";
        let rules = [
            (
                "period_ns",
                self.period_ns as f64,
                self.period_ns > 0,
                "at least 1 ns",
            ),
            (
                "decide_ns",
                self.decide_ns as f64,
                self.decide_ns >= self.period_ns,
                "at least period_ns",
            ),
            (
                "alpha",
                self.alpha,
                self.alpha > 0.0 && self.alpha <= 1.0,
                "above 0, at most 1",
            ),
            (
                "step",
                self.step,
                self.step > 0.0 && self.step.is_finite(),
                "above 0",
            ),
            (
                "reserve",
                self.reserve,
                (0.0..1.0).contains(&self.reserve),
                part,
            ),
            (
                "host_weight",
                f64::from(self.host_weight),
                (1..=10_000).contains(&self.host_weight),
                "1 to 10000",
            ),
            (
                "hysteresis",
                self.hysteresis,
                (0.0..1.0).contains(&self.hysteresis),
                part,
            ),
            (
                "imbalance",
                self.imbalance,
                self.imbalance >= 0.0 && self.imbalance.is_finite(),
                "0 or more",
            ),
            (
                "dedicate_from",
                self.dedicate_from,
                (0.0..=1.0).contains(&self.dedicate_from),
                "0 to 1",
            ),
            (
                "dedicate_until",
                self.dedicate_until,
                (0.0..=self.dedicate_from).contains(&self.dedicate_until),
                "0 to dedicate_from",
            ),
        ];
        match rules.into_iter().find(|(_, _, fine, _)| !fine) {
            Some((name, value, _, range)) => Err(Error::Setting { name, value, range }),
            None => Ok(()),
        }
    }

    /// CPUs to be divided among VMs, of so many online.
    pub fn capacity(&self, online: usize) -> f64 {
        online as f64 * (1.0 - self.reserve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let s = Settings::default();
        assert_eq!(s.check(), Ok(()));
        let wrong = [
            (Settings { alpha: 0.0, ..s }, "alpha"),
            (
                Settings {
                    step: f64::NAN,
                    ..s
                },
                "step",
            ),
            (Settings { reserve: 1.0, ..s }, "reserve"),
            (Settings { decide_ns: 1, ..s }, "decide_ns"),
            (
                Settings {
                    host_weight: 0,
                    ..s
                },
                "host_weight",
            ),
            (
                Settings {
                    dedicate_until: 0.6,
                    ..s
                },
                "dedicate_until",
            ),
            (
                Settings {
                    imbalance: -0.1,
                    ..s
                },
                "imbalance",
            ),
        ];
        for (settings, name) in wrong {
            let e = settings.check().unwrap_err().to_string();
            assert!(e.starts_with(&format!("setting {name} is ")), "{e}");
        }
        assert_eq!(s.capacity(2), 1.9);
    }
}
