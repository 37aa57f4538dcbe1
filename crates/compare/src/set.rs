// SPDX-License-Identifier: GPL-2.0-only
//! A set: a folder of scenarios, what they have in common (`set.toml`), and that no other set has them.
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What the scenarios of a folder have in common, its `set.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// Starts of each scenario under each arm: random seeds 1 to this. None: as each scenario says.
    pub seeds: Option<u32>,
    /// Judged to report, never used to choose a change.
    #[serde(default)]
    pub sealed: bool,
    /// Scenarios whose rows are shown and not counted.
    #[serde(default)]
    pub measured: Vec<Measured>,
}

/// A scenario that costs of the simulated machine were measured with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Its file, without `.toml`.
    pub scenario: String,
    /// Names in the cost profile.
    pub costs: Vec<String>,
}

/// A folder that is no set.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct SetError {
    path: PathBuf,
    reason: String,
}

/// Files of a set that are no scenarios.
const OTHERS: [&str; 2] = ["known.toml", "set.toml"];

impl Set {
    /// Reads the folder's `set.toml`; if it has none, its scenarios have nothing in common.
    ///
    /// # Errors
    /// It cannot be read or understood, has no seeds, or names a scenario that the folder does not have.
    pub fn read(folder: &Path) -> Result<Set, SetError> {
        let path = folder.join("set.toml");
        let wrong = |reason: String| SetError {
            path: path.clone(),
            reason,
        };
        let set: Set = match std::fs::read_to_string(&path) {
            Ok(text) => toml_edit::de::from_str(&text).map_err(|e| wrong(e.to_string()))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Set::default(),
            Err(e) => return Err(wrong(e.to_string())),
        };
        if set.seeds == Some(0) {
            return Err(wrong("seeds = 0: a scenario needs a start".into()));
        }
        for m in &set.measured {
            if !folder.join(format!("{}.toml", m.scenario)).is_file() {
                let name = &m.scenario;
                return Err(wrong(format!(
                    "[[measured]] names the scenario `{name}`, and the folder has no {name}.toml"
                )));
            }
        }
        Ok(set)
    }

    /// The costs that were measured with this scenario, if any were.
    pub fn measured_with(&self, scenario: &str) -> Option<&Measured> {
        self.measured.iter().find(|m| m.scenario == scenario)
    }
}

/// The scenario files of a folder, in order.
///
/// # Errors
/// It cannot be read, or has none.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, SetError> {
    let wrong = |reason: String| SetError {
        path: folder.to_path_buf(),
        reason,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| wrong(e.to_string()))? {
        let path = entry.map_err(|e| wrong(e.to_string()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.extension().is_some_and(|e| e == "toml") && !OTHERS.contains(&&*name) {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(wrong("no scenario files (*.toml) in it".into()));
    }
    Ok(files)
}

/// A scenario of a set, as far as two of them are compared: its file, and everything that it says of the machine and
/// what runs there, comments, titles, run lengths and arms left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub path: PathBuf,
    pub world: String,
}

/// Refuses what two sets both have, by the same name or with the same content: what is open to one is not sealed.
///
/// # Errors
/// The first scenario that is in both.
pub fn disjoint(open: &[Content], sealed: &[Content]) -> Result<(), SetError> {
    for s in sealed {
        let named = open
            .iter()
            .find(|o| o.path.file_name() == s.path.file_name());
        let alike = open.iter().find(|o| o.world == s.world);
        let (twin, what) = match (named, alike) {
            (_, Some(twin)) => (twin, "the same scenario as"),
            (Some(twin), None) => (twin, "a scenario of the same name as"),
            (None, None) => continue,
        };
        return Err(SetError {
            path: s.path.clone(),
            reason: format!(
                "{what} {}, and no scenario may be in both sets: take it out of one of them",
                twin.path.display()
            ),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    #[test]
    fn a_folder_without_a_description_has_nothing_in_common() {
        let dir = folder(&[("b.toml", ""), ("a.toml", ""), ("known.toml", "")]);
        assert_eq!(Set::read(dir.path()).unwrap(), Set::default());
        let files = files(dir.path()).unwrap();
        let names: Vec<_> = files.iter().map(|f| f.file_stem().unwrap()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn wrong_descriptions_are_refused() {
        for (text, word) in [
            ("seeds = 0\n", "needs a start"),
            ("seed = 4\n", "seed"),
            (
                "[[measured]]\nscenario = \"x\"\ncosts = [\"wake_ns\"]\n",
                "no x.toml",
            ),
        ] {
            let dir = folder(&[("set.toml", text), ("a.toml", "")]);
            let error = Set::read(dir.path()).unwrap_err().to_string();
            assert!(
                error.contains("set.toml") && error.contains(word),
                "{error}"
            );
        }
        let empty = folder(&[("set.toml", "seeds = 4\n")]);
        assert!(files(empty.path()).is_err());
    }

    #[test]
    fn no_scenario_is_in_both_sets() {
        let content = |path: &str, world: &str| Content {
            path: path.into(),
            world: world.into(),
        };
        let open = [
            content("set/01-a.toml", "hogs"),
            content("set/02-b.toml", "webs"),
        ];
        let error = |sealed: Content| disjoint(&open, &[sealed]).unwrap_err().to_string();
        assert!(disjoint(&open, &[content("sealed/51-c.toml", "both")]).is_ok());
        let same = error(content("sealed/51-c.toml", "webs"));
        assert!(same.contains("same scenario as set/02-b.toml"), "{same}");
        let named = error(content("sealed/01-a.toml", "both"));
        assert!(named.contains("same name as set/01-a.toml"), "{named}");
    }
}
