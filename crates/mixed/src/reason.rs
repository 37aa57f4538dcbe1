// SPDX-License-Identifier: GPL-2.0-only
//! Why: the reasons of decisions as data, each with its sentence. Parts are of one vCPU.
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a process is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Every process of a user starts on the vCPUs that compute.
    Starts,
    /// It was light for so long; the most it used in one of the periods.
    Light { most: f64, periods: u32 },
    /// It was not light for so long; the least it used in one of the periods.
    Heavy { least: f64, periods: u32 },
    /// It is the system's.
    System { uid: u32 },
    /// Somebody else has pinned it.
    Pinned,
    /// It may not be moved by whoever asks.
    Denied,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| part * 100.0;
        match self {
            Reason::Starts => write!(f, "starts where processes compute"),
            Reason::Light { most, periods } => write!(
                f,
                "used at most {:.1} % of a vCPU in each of {periods} periods",
                percent(*most)
            ),
            Reason::Heavy { least, periods } => write!(
                f,
                "used at least {:.1} % of a vCPU in each of {periods} periods",
                percent(*least)
            ),
            Reason::System { uid } => write!(f, "is the system's (user {uid})"),
            Reason::Pinned => write!(f, "is pinned by somebody else"),
            Reason::Denied => write!(f, "may not be moved by this user"),
        }
    }
}
