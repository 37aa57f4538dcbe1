// SPDX-License-Identifier: GPL-2.0-only
//! When a process changes sides.
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// When a process changes sides. Parts are of one vCPU, of all threads of a process together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Time from one observation to the next, ns.
    pub period_ns: u64,
    /// Users have numbers from here on; the processes of others are the system's and are left alone.
    pub uid_from: u32,
    /// A process that uses less than this is light.
    pub light: f64,
    /// One that uses more than this is not. In between it stays where it is.
    pub heavy: f64,
    /// For so many periods, one after the other, before it is moved.
    pub periods: u32,
}

/// So many periods at most.
const MOST_PERIODS: u32 = 100_000;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            period_ns: 1_000_000_000,
            uid_from: 1000,
            light: 0.05,
            heavy: 0.2,
            periods: 3,
        }
    }
}

impl Settings {
    /// # Errors
    /// The first setting out of its range.
    pub fn check(&self) -> Result<(), Error> {
        let rules = [
            (
                "period_ns",
                self.period_ns as f64,
                self.period_ns > 0,
                "at least 1 ns",
            ),
            (
                "light",
                self.light,
                self.light >= 0.0 && self.light.is_finite(),
                "0 or more, of one vCPU",
            ),
            (
                "heavy",
                self.heavy,
                self.heavy >= self.light && self.heavy.is_finite(),
                "at least light",
            ),
            (
                "periods",
                f64::from(self.periods),
                (1..=MOST_PERIODS).contains(&self.periods),
                "1 to 100000",
            ),
        ];
        match rules.into_iter().find(|(_, _, fine, _)| !fine) {
            Some((name, value, _, range)) => Err(Error::Setting { name, value, range }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let s = Settings::default();
        assert_eq!(s.check(), Ok(()));
        for (settings, name) in [
            (Settings { period_ns: 0, ..s }, "period_ns"),
            (Settings { light: -0.1, ..s }, "light"),
            (
                Settings {
                    light: f64::NAN,
                    ..s
                },
                "light",
            ),
            (Settings { heavy: 0.04, ..s }, "heavy"),
            (
                Settings {
                    heavy: f64::INFINITY,
                    ..s
                },
                "heavy",
            ),
            (Settings { periods: 0, ..s }, "periods"),
        ] {
            let e = settings.check().unwrap_err().to_string();
            assert!(e.starts_with(&format!("setting {name} is ")), "{e}");
        }
    }

    #[test]
    fn a_setting_that_does_not_exist_is_refused() {
        assert!(serde_json::from_str::<Settings>(r#"{"lihgt": 0.1}"#).is_err());
        let some: Settings = serde_json::from_str(r#"{"periods": 5}"#).unwrap();
        assert_eq!(
            some,
            Settings {
                periods: 5,
                ..Settings::default()
            }
        );
    }
}
