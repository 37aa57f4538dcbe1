// SPDX-License-Identifier: GPL-2.0-only
//! The daemon's configuration: a TOML file. What is wrong with it is said with file, line and key.
//!
//! ```toml
//! mode = "act"                # default "observe": nothing is scheduled
//! policy = "vmfair"           # a shipped policy, a .bpf.c or .bpf.o file, or "optimiser"
//! backend = "auto"            # default "scx"; "auto": the optimiser where the policy cannot act, or was ended;
//!                             # "cgroup": the optimiser, on any kernel
//! only = ["web*"]             # only these VMs have a class; the others get their share
//! stall_ms = 500              # how long a thread may be starved before the policy is unloaded; 0: never looked at
//! socket_group = "berth"      # who besides the agent's user may ask what it does (default: "berth" if there is one)
//! socket_mode = "0660"
//!
//! [set]                       # parameters of the policy
//! slice_us = 2000
//!
//! [[vm]]                      # what is known of VMs beforehand; the first that fits counts
//! name = "web*"
//! class = "latency"
//! score = 1.75                # amp: how much faster on a fast core than on a slow one; [1.9, 1.2] for each vCPU
//!
//! [[promise]]                 # what the optimiser keeps; the first that fits counts
//! name = "web*"
//! service = "target"          # or "normal" (default), "best-effort"
//! guarantee = 0.95            # CPUs that it gets whenever it wants them
//! limit = 2.0                 # CPUs that it gets at most
//!
//! [[pin]]                     # VMs that are pinned when they appear, as by `berth pin`; the first that fits counts
//! name = "web*"
//! policy = "full"             # default "auto"; or "l2", "paper", "none"
//! method = "taskset"          # default "auto"; or "cgroup"
//! cpu = 2                     # the CPU of its first vCPU; default: chosen
//! isolated = true             # isolated CPUs may be taken; default false
//! smt = true                  # the path may be on the other thread of a vCPU's core; default false
//! ```
mod access;
mod reader;
#[cfg(test)]
mod tests;

use crate::backend::Way;
use crate::door::Access;
use crate::pins::standing::PinRule;
use crate::rules::Rules;
use crate::tripwire::LIMIT;
use access::USUAL;
use berth_optimiser::CpuSet;
use reader::Reader;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml_edit::Document;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Observe,
    Act,
}

/// Which policy, as an operator names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub policy: String,
    pub preset: Option<String>,
    /// Parameters as written.
    pub set: BTreeMap<String, String>,
    /// Only the named VMs' threads are given to it; the rest stays with the kernel's own scheduler.
    pub partial: bool,
    pub backend: Way,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub mode: Mode,
    /// If the mode is to act there is one, or there are pins.
    pub choice: Option<Choice>,
    pub rules: Rules,
    /// VMs that are pinned when they appear.
    pub pins: Vec<PinRule>,
    /// None: stalls are not looked for.
    pub stall: Option<Duration>,
    /// Who may connect to its socket.
    pub access: Access,
    /// Line of each key that only the policy or the machine can judge: `policy`, `preset`, `set.slice_us`, `pin.0.cpu`.
    pub lines: BTreeMap<String, usize>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mode: Mode::Observe,
            choice: None,
            rules: Rules::default(),
            pins: Vec::new(),
            stall: Some(LIMIT),
            access: USUAL.clone(),
            lines: BTreeMap::new(),
        }
    }
}

/// Something is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {}{what}", file.display(), shown(line), key.as_ref().map_or(String::new(), |k| format!("{k}: ")))]
pub struct ConfigError {
    pub file: PathBuf,
    /// From 1; none if the file cannot be read at all.
    pub line: Option<usize>,
    pub key: Option<String>,
    pub what: String,
}

fn shown(line: &Option<usize>) -> String {
    line.map_or(String::new(), |line| format!(":{line}"))
}

/// Reads the file.
///
/// # Errors
/// The first thing that is wrong.
pub fn read(file: &Path) -> Result<Config, ConfigError> {
    let wrong = |line, what| ConfigError {
        file: file.into(),
        line,
        key: None,
        what,
    };
    let bytes = std::fs::read(file).map_err(|e| wrong(None, format!("cannot be read: {e}")))?;
    let text = std::str::from_utf8(&bytes).map_err(|e| {
        let before = &bytes[..e.valid_up_to()];
        wrong(Some(line_after(before)), "is not UTF-8 text".into())
    })?;
    parse(file, text)
}

/// The line in which what follows these bytes is.
fn line_after(before: &[u8]) -> usize {
    before.iter().filter(|b| **b == b'\n').count() + 1
}

impl Config {
    /// Finds out by `works` whether there is such a policy, and whether it takes the parameters.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn check(
        &self,
        file: &Path,
        works: &dyn Fn(&Choice) -> Result<(), String>,
    ) -> Result<(), ConfigError> {
        let Some(choice) = &self.choice else {
            return Ok(());
        };
        let Err(why) = works(choice) else {
            return Ok(());
        };
        let wrong = |key: &str, what: String| ConfigError {
            file: file.into(),
            line: self.lines.get(key).copied(),
            key: Some(key.into()),
            what,
        };
        let with = |preset: Option<String>, set: BTreeMap<String, String>| {
            let choice = Choice {
                preset,
                set,
                ..choice.clone()
            };
            works(&choice).err()
        };
        if let Some(what) = with(None, BTreeMap::new()) {
            return Err(wrong("policy", what));
        }
        if let Some(what) = with(choice.preset.clone(), BTreeMap::new()) {
            return Err(wrong("preset", what));
        }
        for (name, value) in &choice.set {
            let one = [(name.clone(), value.clone())].into();
            if let Some(what) = with(choice.preset.clone(), one) {
                return Err(wrong(&format!("set.{name}"), what));
            }
        }
        // Only all of them together are wrong.
        Err(wrong("policy", why))
    }

    /// Finds out whether the machine has the CPUs that are named; those that are offline may come. None: not known.
    ///
    /// # Errors
    /// The first CPU that there is not.
    pub fn check_cpus(&self, file: &Path, possible: Option<&CpuSet>) -> Result<(), ConfigError> {
        let Some(possible) = possible else {
            return Ok(());
        };
        let strange = |(at, rule): (usize, &PinRule)| {
            let cpu = rule.pinning.ask.cpu.filter(|cpu| !possible.has(*cpu))?;
            Some(ConfigError {
                file: file.into(),
                line: self.lines.get(&format!("pin.{at}.cpu")).copied(),
                key: Some("pin.cpu".into()),
                what: format!("there is no CPU {cpu} on this machine; it has {possible}"),
            })
        };
        match self.pins.iter().enumerate().find_map(strange) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Reads a text; `file` is for errors.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
    let reader = Reader { file, text };
    let document = Document::parse(text).map_err(|e| {
        let at = e.span().map_or(0, |s| s.start);
        reader.wrong(at, None, e.message().trim().replace('\n', "; "))
    })?;
    reader.config(document.as_table())
}
