// SPDX-License-Identifier: GPL-2.0-only
//! What can be asked for.
use serde::{Deserialize, Serialize};
use std::fmt;

/// How much of a VM's network path goes where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Nothing is bound.
    None,
    /// All threads of the VM's process on one CPU; interrupts stay. As the paper did it.
    Paper,
    /// The whole path on one CPU: as `paper`, and vhost, the card's interrupt and queues. With several vCPUs each has a
    /// CPU, and all of the path is on one more.
    Full,
    /// Each vCPU has a CPU, and its path is on another core below the same cache.
    L2,
    /// `full` while that goes, else `l2`, else `none`.
    #[default]
    Auto,
}

impl Policy {
    pub const ALL: [Policy; 5] = [
        Policy::None,
        Policy::Paper,
        Policy::Full,
        Policy::L2,
        Policy::Auto,
    ];

    /// As on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Paper => "paper",
            Policy::Full => "full",
            Policy::L2 => "l2",
            Policy::Auto => "auto",
        }
    }

    pub fn of(word: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|p| p.word() == word)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What is asked for of one VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub policy: Policy,
    /// The CPU of its first vCPU; none: chosen.
    #[serde(default)]
    pub cpu: Option<u32>,
    /// CPUs that are isolated may be taken.
    #[serde(default)]
    pub isolated: bool,
    /// The path may be on the other thread of a vCPU's core.
    #[serde(default)]
    pub smt: bool,
}
