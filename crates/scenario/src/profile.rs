// SPDX-License-Identifier: GPL-2.0-only
//! Cost profiles: what the events of a machine cost, measured somewhere, under a name.
//!
//! A profile is a TOML file with a table `[cost]`, whose keys are the fields of [`HostCost`] in nanoseconds (those left
//! out are 0), and a table `[measured]` for the reader, with what the costs were derived from.
use crate::model::HostCost;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The profiles that are built in, by name.
const PROFILES: [(&str, &str); 1] = [("lab", include_str!("../profiles/lab.toml"))];

/// A profile's file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What the simulator charges.
    pub cost: HostCost,
    /// What was measured, for the reader.
    #[serde(default)]
    pub measured: BTreeMap<String, Measured>,
}

/// One measured figure: a number, or words (which kernel, which emulator).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Measured {
    Number(f64),
    Text(String),
}

impl Profile {
    /// Reads a profile's text.
    ///
    /// # Errors
    /// One sentence: not TOML, or a key that no profile has.
    pub fn parse(text: &str) -> Result<Profile, String> {
        toml_edit::de::from_str(text).map_err(|e| e.to_string())
    }

    /// A built-in profile; none of this name gives the names there are.
    ///
    /// # Errors
    /// The names of the built-in profiles.
    pub fn named(name: &str) -> Result<Profile, String> {
        let names = || PROFILES.map(|p| p.0).join(", ");
        let Some((_, text)) = PROFILES.iter().find(|(n, _)| *n == name) else {
            return Err(format!(
                "there is no cost profile `{name}`; there are: {}",
                names()
            ));
        };
        Profile::parse(text).map_err(|e| format!("cost profile {name}: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_read() {
        for (name, _) in PROFILES {
            Profile::named(name).unwrap();
        }
        assert!(Profile::named("laboratory").unwrap_err().contains("lab"));
    }

    #[test]
    fn what_is_left_out_costs_nothing_and_typos_are_errors() {
        let p = Profile::parse("[cost]\nswitch_ns = 7\n[measured]\nkernel = \"7.2\"\n").unwrap();
        assert_eq!((p.cost.switch_ns, p.cost.wake_ipi_ns), (7, 0));
        assert!(Profile::parse("[cost]\nswitch = 7\n").is_err());
    }
}
