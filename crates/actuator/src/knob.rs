// SPDX-License-Identifier: GPL-2.0-only
//! What can be set, and by whom it is set.
use crate::error::Error;
use crate::unit::{self, Property};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The affinity of a thread that may run on every CPU of the host, also on those that come online later.
pub const ALL: &str = "all";

/// A cgroup that is there, and one that is not.
pub const HERE: &str = "here";
pub const NOWHERE: &str = "nowhere";

/// How the names of groups begin that are made here.
pub const MADE: &str = "berth-";

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
    /// A cgroup that is made for a VM: [`HERE`] or [`NOWHERE`].
    Made {
        /// As [`Knob::Group`]; its own name begins with [`MADE`].
        group: String,
    },
    /// The cgroup that a process is in, below the mount of a hierarchy.
    Member {
        pid: i32,
        /// Start of the process, in clock ticks since boot.
        start: u64,
        /// `cpuset` and the like in version 1, empty in version 2.
        hierarchy: String,
    },
    /// CPUs of an interrupt.
    Irq {
        irq: u32,
        /// What it is for: the number alone is used again.
        name: String,
    },
    /// CPUs of a network queue: `rx-N` (RPS) or `tx-N` (XPS); empty: none in particular.
    Queue {
        device: String,
        /// Of the device: the name alone is used again.
        index: u32,
        queue: String,
    },
    /// Interrupts that irqbalance leaves alone, ascending, a blank between them.
    Unbalanced {
        pid: i32,
        /// Start of irqbalance, in clock ticks since boot.
        start: u64,
    },
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
            Knob::Made { group } => write!(f, "cgroup {}", group.escape_debug()),
            Knob::Member { pid, hierarchy, .. } => match hierarchy.is_empty() {
                true => write!(f, "the cgroup of process {pid}"),
                false => write!(
                    f,
                    "the {} cgroup of process {pid}",
                    hierarchy.escape_debug()
                ),
            },
            Knob::Irq { irq, name } => {
                write!(f, "the CPUs of interrupt {irq} ({})", name.escape_debug())
            }
            Knob::Queue { device, queue, .. } => write!(
                f,
                "the CPUs of queue {} of {}",
                queue.escape_debug(),
                device.escape_debug()
            ),
            Knob::Unbalanced { .. } => f.write_str("what irqbalance leaves alone"),
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

    /// Writes what was there before. Where that is all that is possible now, it is no limit later either.
    ///
    /// # Errors
    /// As [`Host::write`].
    fn put_back(&self, knob: &Knob, was: &str) -> Result<(), Error> {
        self.write(knob, was)
    }

    /// What may have been born with the value of this one: the threads of its process, this one among them.
    fn kin(&self, knob: &Knob) -> Vec<Knob>;
}
