// SPDX-License-Identifier: GPL-2.0-only
//! What is known of a host and its VMs.
use berth_optimiser::CpuSet;
use serde::Serialize;
use std::collections::BTreeMap;

/// One CPU that is online. Cores and caches are named by their lowest CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cpu {
    pub cpu: u32,
    pub core: u32,
    /// CPUs below one second-level cache.
    pub l2: u32,
    /// CPUs below one last-level cache.
    pub llc: u32,
    pub node: u32,
    /// Relative to the fastest, 1 to 1024.
    pub capacity: u32,
    /// Set apart at boot (`isolcpus=`): only who is bound there runs there.
    pub isolated: bool,
    /// Part of the last seconds in which it was busy, 0 to 1.
    pub busy: f64,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Those online.
    pub cpus: Vec<Cpu>,
    /// How many others are bound to a CPU: VMs that are not asked about.
    pub taken: BTreeMap<u32, u32>,
    /// All CPUs that the machine may ever have; none: not known.
    pub possible: Option<CpuSet>,
}

/// What a thread does on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Vcpu(u32),
    /// Moves packets or blocks in the kernel.
    Vhost,
    /// Moves them in the VMM.
    Iothread,
    /// The VMM's own.
    Emulator,
    /// KVM's own helpers (timer, recovery of large pages): listed, never placed.
    Helper,
}

/// One thread of a VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    pub tid: i32,
    pub part: Part,
    /// A thread of the VMM's process: what binding "the process" means.
    pub in_process: bool,
    /// Where its CPU set lets it run; none: everywhere.
    pub allowed: Option<CpuSet>,
}

/// An interrupt of a device on the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irq {
    pub irq: u32,
    pub device: String,
    /// The queue that it tells of; none: something else (configuration, errors).
    pub queue: Option<u32>,
    /// The kernel places it, and refuses others' wishes.
    pub managed: bool,
    /// VMs whose packets come through the device, this one among them.
    pub users: u32,
}

/// A receive or transmit queue of a device on the path (`rx-0`: RPS, `tx-0`: XPS).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Queue {
    pub device: String,
    pub name: String,
    pub users: u32,
}

impl Queue {
    /// Its number.
    pub fn index(&self) -> u32 {
        let digits = self.name.rsplit('-').next().unwrap_or("");
        digits.parse().unwrap_or(0)
    }
}

/// One VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vm {
    pub name: String,
    pub threads: Vec<Thread>,
    pub irqs: Vec<Irq>,
    pub queues: Vec<Queue>,
    /// Memory node of its network card; none: of none, or not known.
    pub node: Option<u32>,
}

impl Vm {
    /// Numbers of its vCPUs, ascending.
    pub fn vcpus(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self
            .threads
            .iter()
            .filter_map(|t| match t.part {
                Part::Vcpu(n) => Some(n),
                _ => None,
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
