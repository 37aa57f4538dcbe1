// SPDX-License-Identifier: GPL-2.0-only
//! What goes in: the processes that there are, and what each has used.
use serde::{Deserialize, Serialize};

/// A process. Numbers are used again: only with its start it is that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    pub number: u32,
    /// In a unit of the observer's.
    pub start: u64,
}

/// Whether a process may be moved at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    #[default]
    Free,
    /// Somebody else has said on which CPUs it runs.
    Pinned,
    /// The observer is not permitted to move it.
    Denied,
}

/// One process, as it is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    pub process: Process,
    /// Of the user whose it is.
    pub uid: u32,
    /// CPU time of all its threads since its start, those included that have ended, ns.
    pub ran_ns: u64,
    #[serde(default)]
    pub standing: Standing,
}

/// All processes at one instant, in any order. One that is not there any more has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// By a clock that only goes forward, ns.
    pub at_ns: u64,
    pub processes: Vec<Seen>,
}
