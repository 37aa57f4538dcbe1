// SPDX-License-Identifier: GPL-2.0-only
//! What can be set, and by whom it is set.
use crate::error::Error;
use crate::unit::{self, Property};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The affinity of a thread that may run on every CPU of the host, also on those that come online later.
pub const ALL: &str = "all";

/// One value of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Knob {
    /// CPUs on which a thread may run: a list such as `0-3,8`, or [`ALL`].
    Affinity {
        pid: i32,
        tid: i32,
        /// Start of the thread, in clock ticks since boot: a number alone is used again.
        start: u64,
    },
    /// A file of a cgroup: `cpuset.cpus`, `cpu.weight`, `cpu.max`, `cpu.shares`, ...
    Group {
        /// Below `/sys/fs/cgroup`: `machine/vm1` (v2), `cpuset/machine/vm1` (v1).
        group: String,
        file: String,
    },
    /// A property of a unit of systemd, which alone may set it ([`crate::unit`] has its values).
    Unit { unit: String, property: Property },
}

impl Knob {
    /// What may be there while `was` is being put back, and is ours to go on with.
    pub(crate) fn half_way(&self, was: &str) -> Option<String> {
        match self {
            // Set, and still written down.
            Knob::Unit { .. } if !unit::is_runtime(was) => Some(unit::at_runtime(was)),
            _ => None,
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Knob::Affinity { tid, .. } => write!(f, "the CPU affinity of thread {tid}"),
            Knob::Group { group, file } => {
                write!(
                    f,
                    "{} of cgroup {}",
                    file.escape_debug(),
                    group.escape_debug()
                )
            }
            Knob::Unit { unit, property } => {
                write!(f, "{} of {}", property.name(), unit.escape_debug())
            }
        }
    }
}

/// A host whose values can be read and set. Values are text without the newline at their end, as the kernel shows them.
pub trait Host {
    /// # Errors
    /// [`Error::Gone`], or it cannot be read.
    fn read(&self, knob: &Knob) -> Result<String, Error>;

    /// # Errors
    /// [`Error::Gone`], or the kernel refuses.
    fn write(&self, knob: &Knob, value: &str) -> Result<(), Error>;

    /// What may have been born with the value of this one: the threads of its process, this one among them.
    fn kin(&self, knob: &Knob) -> Vec<Knob>;
}
