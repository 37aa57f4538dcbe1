// SPDX-License-Identifier: GPL-2.0-only
//! Who a thread is: what it does for its VM ([`Role`]), what the VM is for ([`Class`]), and the records by which a
//! policy is told ([`record`]). The one place for both: scenario files, the simulator, discovery on a host and the
//! loader of a kernel all speak these words; a test holds them against `policies/include/berth/identity.bpf.h`.
pub mod record;

pub use record::{JobRecord, MemoryRecord, Scored, ThreadRecord, VmId, VmRecord};

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a VM is for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Short bursts that somebody waits for.
    Latency,
    /// CPU time in long bursts: how much gets done counts.
    #[default]
    Batch,
    /// Both, on vCPUs of their own or on the same ones.
    Mixed,
    /// Nothing is said of it: policies decide.
    None,
}

impl Class {
    pub const ALL: [Class; 4] = [Class::Latency, Class::Batch, Class::Mixed, Class::None];

    /// As in scenario files, configurations and tables.
    pub fn word(self) -> &'static str {
        match self {
            Class::Latency => "latency",
            Class::Batch => "batch",
            Class::Mixed => "mixed",
            Class::None => "none",
        }
    }

    /// The class of this word.
    pub fn of(word: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.word() == word)
    }

    /// `enum berth_class`.
    pub fn number(self) -> u32 {
        match self {
            Class::None => 0,
            Class::Latency => 1,
            Class::Batch => 2,
            Class::Mixed => 3,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What a thread does for its VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs the guest: the virtual CPU of this index.
    Vcpu(u32),
    /// Moves packets or blocks for a virtio device in the kernel.
    Vhost,
    /// Moves blocks or packets for a device in the VMM.
    Iothread,
    /// The VMM's own: main loop, devices without a thread of their own, control.
    Emulator,
    /// Neither guest nor device, no VM's, or unknown.
    #[default]
    Other,
}

impl Role {
    /// The word of tables, without an index.
    pub fn word(self) -> &'static str {
        match self {
            Role::Vcpu(_) => "vcpu",
            Role::Vhost => "vhost",
            Role::Iothread => "iothread",
            Role::Emulator => "emulator",
            Role::Other => "other",
        }
    }

    /// Index of the vCPU, if it is one.
    pub fn vcpu(self) -> Option<u32> {
        match self {
            Role::Vcpu(index) => Some(index),
            _ => None,
        }
    }

    /// `enum berth_role`.
    pub fn number(self) -> u32 {
        match self {
            Role::Other => 0,
            Role::Vcpu(_) => 1,
            Role::Vhost => 2,
            Role::Iothread => 3,
            Role::Emulator => 4,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Vcpu(index) => write!(f, "vcpu{index}"),
            role => f.write_str(role.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_what_they_were_written_for() {
        for class in Class::ALL {
            assert_eq!(Class::of(class.word()), Some(class));
        }
        assert_eq!(Class::of("Latency"), None);
        assert_eq!(Role::Vcpu(3).to_string(), "vcpu3");
        assert_eq!(Role::Vhost.to_string(), "vhost");
        assert_eq!(
            (Role::Vcpu(3).vcpu(), Role::Emulator.vcpu()),
            (Some(3), None)
        );
    }
}
