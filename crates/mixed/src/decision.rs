// SPDX-License-Identifier: GPL-2.0-only
//! What comes out: who changes sides, and why.
use crate::observe::Process;
use crate::reason::Reason;
use serde::{Deserialize, Serialize};

/// The two kinds of vCPUs of a mixed VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Those that are not reserved.
    Compute,
    /// Those that are reserved for I/O.
    Reserved,
}

impl Side {
    pub const ALL: [Side; 2] = [Side::Compute, Side::Reserved];

    pub fn word(self) -> &'static str {
        match self {
            Side::Compute => "compute",
            Side::Reserved => "reserved",
        }
    }
}

/// One process goes elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub process: Process,
    /// None: it was nobody's to move.
    pub from: Option<Side>,
    /// None: it is not to be moved any more, and whatever was set of it is put back.
    pub to: Option<Side>,
    pub reason: Reason,
}

/// One decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Time of the observation, ns.
    pub at_ns: u64,
    /// By process, at most one for each.
    pub changes: Vec<Change>,
    /// Those that were on a side and have ended, by process.
    pub ended: Vec<Process>,
}
