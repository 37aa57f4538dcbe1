// SPDX-License-Identifier: GPL-2.0-only
//! The table of loaders, `loaders.toml`: what those of the scx project's schedulers do with their default options.
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

#[derive(Deserialize)]
#[serde(untagged)]
pub enum Value {
    Truth(bool),
    Number(i64),
    /// Something of the machine.
    Word(String),
}

/// What a loader does with its default options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Package and version.
    pub loader: String,
    /// None: those of the object.
    pub ops_flags: Option<Vec<String>>,
    /// On machines with several NUMA nodes.
    #[serde(default)]
    pub ops_flags_numa: Vec<String>,
    /// All variables of this version, or (`some`) only those that the loader changes, in any version.
    pub rodata: BTreeMap<String, Value>,
    #[serde(default)]
    pub some: bool,
    /// Variables of older versions.
    #[serde(default)]
    pub older: BTreeMap<String, Value>,
    /// Programs that it runs, in this order; of this version only: another's may take other arguments.
    #[serde(default)]
    pub runs: Vec<Run>,
    /// What it does besides, and Berth does not.
    pub besides: Option<String>,
    /// The same on machines with several NUMA nodes.
    pub besides_numa: Option<String>,
}

/// A program that a loader runs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub program: String,
    pub arguments: Vec<Value>,
    /// When the scheduler has begun, on this CPU; else before that.
    pub after_on: Option<Value>,
    /// Once for each CPU.
    #[serde(default)]
    pub each_cpu: bool,
    /// On machines with SMT only.
    #[serde(default)]
    pub with_smt: bool,
}

impl Known {
    /// Whether an object with these variables and programs is of this version: it has those of the table and, where
    /// the table has all variables, no others.
    pub fn is_of(&self, there: &[(String, String)], programs: &[String]) -> bool {
        if !self.runs.iter().all(|run| programs.contains(&run.program)) {
            return false;
        }
        let has = |name: &String| there.iter().any(|(n, _)| n == name);
        let known = |name: &str| of_exit(name) || self.rodata.contains_key(name);
        self.some || self.rodata.keys().all(has) && there.iter().all(|(name, _)| known(name))
    }
}

/// What the macros of the scx project's headers keep of how a scheduler ended: nobody's to set.
pub fn of_exit(name: &str) -> bool {
    name.starts_with("uei_") || name.starts_with("__COMPAT_")
}

/// Loaders by their scheduler's name (`ops.name`).
pub fn table() -> &'static BTreeMap<String, Known> {
    static TABLE: OnceLock<BTreeMap<String, Known>> = OnceLock::new();
    TABLE.get_or_init(|| toml_edit::de::from_str(include_str!("loaders.toml")).unwrap_or_default())
}
