// SPDX-License-Identifier: GPL-2.0-only
//! The cases, as `cases.toml` of their folder lists them: what a scenario file cannot say of a real guest.
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// All cases of a folder, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    case: Vec<Case>,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its scenario is `NAME.toml`, its record `records/NAME.json`.
    pub name: String,
    /// The guest's kernel takes stolen time off its tasks' run time (`CONFIG_PARAVIRT_TIME_ACCOUNTING`).
    #[serde(default = "yes")]
    pub steal_accounting: bool,
    /// Slices end by a timer besides the ticks, on both levels.
    #[serde(default = "yes")]
    pub hrtick: bool,
    /// Share of the time that its vCPUs want to run in which they do not, as calculated; none: it is not known.
    pub steal: Option<f64>,
    /// Without competitors it answers quickly, so that a late answer then shows a busy machine.
    #[serde(default = "yes")]
    pub floor: bool,
    /// The case that has the like of this guest with nobody beside it.
    pub alone: Option<String>,
}

fn yes() -> bool {
    true
}

/// A list that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct CasesError {
    path: PathBuf,
    reason: String,
}

/// Where the list lies in its folder.
pub const FILE: &str = "cases.toml";

impl Cases {
    /// # Errors
    /// The list cannot be read or understood, a case stands there twice, or its scenario is missing.
    pub fn read(folder: &Path) -> Result<Cases, CasesError> {
        let path = folder.join(FILE);
        let wrong = |reason: String| CasesError {
            path: path.clone(),
            reason,
        };
        let text = std::fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
        let cases: Cases = toml_edit::de::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        for (i, case) in cases.case.iter().enumerate() {
            if cases.case[..i].iter().any(|c| c.name == case.name) {
                return Err(wrong(format!("case {} stands there twice", case.name)));
            }
            if !case.scenario(folder).is_file() {
                return Err(wrong(format!(
                    "case {} has no scenario: {} is missing",
                    case.name,
                    case.scenario(folder).display()
                )));
            }
            if case.steal.is_some_and(|s| !(0.0..1.0).contains(&s)) {
                return Err(wrong(format!(
                    "case {}: steal is a share, 0 to 1",
                    case.name
                )));
            }
            if let Some(alone) = &case.alone
                && !cases.case.iter().any(|c| c.name == *alone)
            {
                return Err(wrong(format!(
                    "case {}: alone = \"{alone}\" names no case",
                    case.name
                )));
            }
        }
        Ok(cases)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Case> {
        self.case.iter()
    }
}

impl Case {
    pub fn scenario(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.toml", self.name))
    }

    pub fn record(&self, records: &Path) -> PathBuf {
        records.join(format!("{}.json", self.name))
    }

    /// What is set in the simulator, `ADDRESS=VALUE`, where `vm` is the guest and these are the keys that it may have.
    /// What the simulator's guests cannot be told is left out where it is what real guests usually have.
    ///
    /// # Errors
    /// The key that is missing: the case is not simulated.
    pub fn edits(&self, vm: &str, keys: &[&str]) -> Result<Vec<String>, String> {
        let mut edits = Vec::new();
        for (key, value) in [
            ("steal_accounting", self.steal_accounting),
            ("hrtick", self.hrtick),
        ] {
            if keys.contains(&key) {
                edits.push(format!("vm.{vm}.guest.{key}={value}"));
            } else if !value {
                return Err(format!("the simulator has no vm.NAME.guest.{key}"));
            }
        }
        if !self.hrtick {
            // The last line whose own scheduler has no such timer.
            edits.push("host.kernel=7.0".to_string());
        }
        Ok(edits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_without_a_scenario_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let list = "[[case]]\nname = \"x\"\n";
        std::fs::write(dir.path().join(FILE), list).unwrap();
        let said = Cases::read(dir.path()).unwrap_err().to_string();
        assert!(said.contains("x.toml is missing"), "{said}");
        std::fs::write(dir.path().join("x.toml"), "").unwrap();
        let cases = Cases::read(dir.path()).unwrap();
        let case = cases.iter().next().unwrap();
        assert!(case.steal_accounting && case.hrtick && case.steal.is_none());
        std::fs::write(dir.path().join(FILE), list.repeat(2)).unwrap();
        let said = Cases::read(dir.path()).unwrap_err().to_string();
        assert!(said.contains("twice"), "{said}");
        let wrong = format!("{list}alone = \"y\"\n");
        std::fs::write(dir.path().join(FILE), wrong).unwrap();
        let said = Cases::read(dir.path()).unwrap_err().to_string();
        assert!(said.contains("\"y\" names no case"), "{said}");
    }

    #[test]
    fn settings_that_the_simulator_lacks_are_named() {
        let mut case = Case {
            name: "x".into(),
            steal_accounting: true,
            hrtick: true,
            steal: None,
            floor: true,
            alone: None,
        };
        assert_eq!(case.edits("a", &[]), Ok(vec![]));
        case.hrtick = false;
        assert!(case.edits("a", &[]).unwrap_err().contains("guest.hrtick"));
        let edits = case.edits("a", &["hrtick", "steal_accounting"]).unwrap();
        assert_eq!(
            edits,
            [
                "vm.a.guest.steal_accounting=true",
                "vm.a.guest.hrtick=false",
                "host.kernel=7.0"
            ]
        );
    }
}
