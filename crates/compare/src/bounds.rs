// SPDX-License-Identifier: GPL-2.0-only
//! The bounds, as `bounds.toml` has them.
use serde::Deserialize;

/// The bounds this program was built with.
pub const TEXT: &str = include_str!("../bounds.toml");

/// What counts as agreement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    pub share: Share,
    pub switches: Rate,
    pub migrations: Rate,
    pub run_delay: Latency,
    pub wakeup: Latency,
    pub samples: Samples,
    pub ranking: Ranking,
}

/// CPU time of a VM, as a share of all CPUs of the host.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Largest difference in percentage points.
    pub points: f64,
}

/// Events per second.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Largest factor between the two places, either way.
    pub ratio: f64,
    /// Two values below this many a second are equal.
    pub few: f64,
}

/// Largest factors between the two places, either way.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

/// Values that a percentile needs before it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    pub p50: u64,
    pub p99: u64,
}

/// The order of the policies.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranking {
    /// Smallest Kendall's tau.
    pub tau: f64,
    /// Policies closer than this factor on the real kernel have no order.
    pub tied: f64,
}

/// A bounds file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("bounds: {0}")]
pub struct BoundsError(String);

impl BoundsError {
    pub(crate) fn of(what: impl ToString) -> BoundsError {
        BoundsError(what.to_string())
    }
}

impl Bounds {
    /// The bounds this program was built with.
    ///
    /// # Errors
    /// None that a test of this crate would not find.
    pub fn built_in() -> Result<Bounds, BoundsError> {
        Bounds::parse(TEXT)
    }

    /// Reads a bounds file's text.
    ///
    /// # Errors
    /// Not TOML, a key missing or unknown, or a factor that bounds nothing.
    pub fn parse(text: &str) -> Result<Bounds, BoundsError> {
        let b: Bounds = toml_edit::de::from_str(text).map_err(|e| BoundsError(e.to_string()))?;
        let factors = [
            ("switches.ratio", b.switches.ratio),
            ("migrations.ratio", b.migrations.ratio),
            ("run_delay.p50", b.run_delay.p50),
            ("run_delay.p99", b.run_delay.p99),
            ("wakeup.p50", b.wakeup.p50),
            ("wakeup.p99", b.wakeup.p99),
            ("ranking.tied", b.ranking.tied),
        ];
        if let Some((name, value)) = factors.iter().find(|(_, v)| !(*v >= 1.0 && v.is_finite())) {
            return Err(BoundsError(format!(
                "{name} is {value}, and a factor between two places is at least 1"
            )));
        }
        Ok(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_bounds_are_the_stated_goals() {
        let b = Bounds::built_in().unwrap();
        assert_eq!((b.share.points, b.switches.ratio), (2.0, 1.15));
        assert_eq!((b.run_delay.p50, b.run_delay.p99), (1.3, 2.0));
        assert_eq!(b.wakeup, b.run_delay);
        assert_eq!(b.ranking.tau, 0.9);
    }

    #[test]
    fn wrong_bounds_are_refused() {
        for (old, new, word) in [
            ("ratio = 1.15", "ratio = 0.5", "switches.ratio"),
            ("points = 2.0", "point = 2.0", "point"),
        ] {
            let error = Bounds::parse(&TEXT.replace(old, new)).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
