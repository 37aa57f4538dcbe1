// SPDX-License-Identifier: GPL-2.0-only
//! The records of `policies/include/berth/identity.bpf.h`, byte for byte, and the maps they go into. Any policy with
//! these maps is told; others are left alone.
use crate::{Class, Role};
use serde::{Deserialize, Serialize};

/// Version of both records.
pub const VERSION: u32 = 1;
/// Map of VMs: [`VmId::key`] to [`VmRecord::bytes`].
pub const VMS: &str = "berth_vms";
/// Map of threads: thread id (`u32`) to [`ThreadRecord::bytes`].
pub const THREADS: &str = "berth_threads";
/// Map of scores: thread id (`u32`) to thousandths ([`ThreadRecord::score_milli`]); of `scores.bpf.h`.
pub const SCORES: &str = "berth_scores";
/// Array by slot: what a policy has made of them, [`Scored`]; of `scores.bpf.h`.
pub const SCORED: &str = "berth_scored_by_vm";
/// Array by slot: where a VM's memory is, [`MemoryRecord::bytes`]; of `memory.bpf.h`.
pub const MEMORY: &str = "berth_memory_by_vm";
/// Nodes of which it is said.
pub const MEMORY_NODES: usize = 16;
/// Variable (`u32`) to add one to after any later change of either map.
pub const GENERATION: &str = "berth_generation";
/// Map of jobs that begin: thread id (`u32`) to [`JobRecord::bytes`]; `policies/include/berth/jobs.bpf.h`.
pub const JOBS: &str = "berth_jobs";
/// What a score may be, in thousandths: a fast core is up to 100 times as fast as a slow one.
pub const SCORE_MILLI: std::ops::RangeInclusive<u32> = 1000..=100_000;
/// VMs that a policy can know at once.
pub const MAX_VMS: usize = 4096;
/// Threads that a policy can know at once.
pub const MAX_THREADS: usize = 65_536;

/// Key of a process, not of a cgroup.
const PROCESS: u64 = 1 << 63;
/// One more than the highest number of a process.
const PROCESS_NUMBERS: u64 = 1 << 22;
/// `berth_thread.flags`: this vCPU serves I/O.
const FLAG_IO: u32 = 1;
/// In a record: no node, no vCPU.
const NO_INDEX: u32 = u32::MAX;

/// What a policy knows a VM by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VmId {
    /// Its own cgroup: the inode of the folder.
    Cgroup(u64),
    /// Its process, if it has no cgroup of its own. `start` in clock ticks since boot: a number alone is used again.
    Process { pid: u32, start: u64 },
}

impl VmId {
    /// The key in the policy's map.
    pub fn key(self) -> u64 {
        match self {
            VmId::Cgroup(id) => id,
            VmId::Process { pid, start } => {
                PROCESS | start.wrapping_mul(PROCESS_NUMBERS).wrapping_add(pid.into())
            }
        }
    }
}

/// A VM, as `struct berth_vm`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmRecord {
    /// Dense number of the VM, 1 and up.
    pub slot: u32,
    /// Another one for each VM that gets the slot.
    pub generation: u32,
    pub class: Class,
    /// 1..=10000, of the whole VM, as `cpu.weight`.
    pub weight: u32,
    /// Thousandths of a CPU the VM may use; `None`: no cap.
    pub cap_milli: Option<u32>,
    /// Memory node, if it has one.
    pub node: Option<u32>,
    pub vcpus: u32,
}

impl VmRecord {
    pub const SIZE: usize = 32;

    pub fn bytes(&self) -> [u8; Self::SIZE] {
        bytes([
            VERSION,
            self.slot,
            self.generation,
            self.class.number(),
            self.weight,
            self.cap_milli.unwrap_or(0),
            self.node.unwrap_or(NO_INDEX),
            self.vcpus,
        ])
    }
}

/// A thread, as `struct berth_thread`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRecord {
    pub role: Role,
    /// This vCPU serves I/O (mixed VMs).
    pub io: bool,
    /// How many times as fast it is said to be on the fastest kind of cores as on the slowest, in thousandths
    /// ([`SCORE_MILLI`]); none: nothing is said. No part of the record: it goes into the map [`SCORES`], if a policy
    /// has one.
    pub score_milli: Option<u32>,
}

impl ThreadRecord {
    pub const SIZE: usize = 16;

    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let flags = if self.io { FLAG_IO } else { 0 };
        bytes([
            VERSION,
            self.role.number(),
            self.role.vcpu().unwrap_or(NO_INDEX),
            flags,
        ])
    }
}

/// A job that a thread begins with, as `struct berth_job`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// CPU time that it will take, as far as the teller knows; 0: it does not.
    pub size_ns: u64,
    /// The thread's other jobs are told of, too: no sleep begins one.
    pub each: bool,
}

impl JobRecord {
    pub const SIZE: usize = 16;

    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..4].copy_from_slice(&VERSION.to_ne_bytes());
        out[4..8].copy_from_slice(&u32::from(self.each).to_ne_bytes());
        out[8..].copy_from_slice(&self.size_ns.to_ne_bytes());
        out
    }
}

/// Where the memory of a VM is, as `struct berth_memory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRecord {
    /// Part on each node, parts per million.
    parts_ppm: [u32; MEMORY_NODES],
}

impl MemoryRecord {
    pub const SIZE: usize = 4 * MEMORY_NODES;

    /// Of more nodes than fit, nothing is said of the last ones.
    pub fn new(parts_ppm: &[u32]) -> MemoryRecord {
        let part = |node| parts_ppm.get(node).copied().unwrap_or(0);
        MemoryRecord {
            parts_ppm: std::array::from_fn(part),
        }
    }

    pub fn bytes(&self) -> [u8; Self::SIZE] {
        bytes(self.parts_ppm)
    }

    /// The node that has all of it, if there is one.
    pub fn only_node(&self) -> Option<u32> {
        let all = self.parts_ppm.iter().position(|ppm| *ppm == 1_000_000)?;
        Some(all as u32)
    }
}

/// By what a policy has scored the vCPUs of a VM in its last window, as `struct berth_scored`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scored {
    /// How many times as fast the VM is reckoned to be on the fastest kind of cores, in thousandths.
    pub score_milli: u32,
    /// Active vCPUs whose score was given,
    pub given: u32,
    /// was measured by performance counters,
    pub pmu: u32,
    /// comes from utilisation alone.
    pub utilisation: u32,
    /// vCPUs whose counters jumped or stood still, and were not believed.
    pub left_out: u32,
}

impl Scored {
    pub const SIZE: usize = 24;

    /// Metrics of a VM, or of the VMs of a group: `NAME.score`, their mean, and `NAME.scored_by.*`, vCPUs by where
    /// their score comes from.
    pub fn metrics(name: &str, of: &[Scored]) -> Vec<(String, f64)> {
        let sum = |f: &dyn Fn(&Scored) -> u32| of.iter().map(f).map(f64::from).sum::<f64>();
        let score = sum(&|s| s.score_milli) / 1000.0 / of.len().max(1) as f64;
        let by = |what: &str, vcpus: f64| (format!("{name}.scored_by.{what}"), vcpus);
        vec![
            (format!("{name}.score"), score),
            by("given", sum(&|s| s.given)),
            by("counters", sum(&|s| s.pmu)),
            by("utilisation", sum(&|s| s.utilisation)),
            by("left_out", sum(&|s| s.left_out)),
        ]
    }

    /// From the bytes of the map; none: no vCPU of the VM was scored yet, or these are not such bytes.
    pub fn parse(bytes: &[u8]) -> Option<Scored> {
        let (fields, []) = bytes.as_chunks::<4>() else {
            return None;
        };
        let fields: Vec<u32> = fields.iter().map(|f| u32::from_ne_bytes(*f)).collect();
        let [_, score_milli, given, pmu, utilisation, left_out] = fields[..] else {
            return None;
        };
        (given + pmu + utilisation + left_out > 0).then_some(Scored {
            score_milli,
            given,
            pmu,
            utilisation,
            left_out,
        })
    }

    /// Where the score comes from, in words: `given`, `counters`, `utilisation`, or of how many vCPUs each.
    pub fn source(&self) -> String {
        let all = [
            (self.given, "given"),
            (self.pmu, "counters"),
            (self.utilisation, "utilisation"),
        ];
        let used: Vec<(u32, &str)> = all.into_iter().filter(|(n, _)| *n > 0).collect();
        match used[..] {
            [] => "none of its vCPUs was active".into(),
            [(_, only)] => only.into(),
            _ => {
                let each = used.iter().map(|(n, what)| format!("{what} ({n})"));
                each.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// Fields of 32 bits as the machine has them in memory.
fn bytes<const FIELDS: usize, const SIZE: usize>(fields: [u32; FIELDS]) -> [u8; SIZE] {
    const { assert!(FIELDS * size_of::<u32>() == SIZE) };
    let mut out = [0; SIZE];
    for (place, field) in out.chunks_exact_mut(size_of::<u32>()).zip(fields) {
        place.copy_from_slice(&field.to_ne_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_job_stands_behind_version_and_flags() {
        let bytes = JobRecord {
            size_ns: 0x0102_0304_0506_0708,
            each: true,
        }
        .bytes();
        let words = [1u32, 1].map(u32::to_ne_bytes).concat();
        assert_eq!(bytes[..8], words);
        assert_eq!(
            u64::from_ne_bytes(bytes[8..].try_into().unwrap()),
            0x0102_0304_0506_0708
        );
    }

    /// As `berth_vm_of_process` of `identity.bpf.h`.
    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let process = |pid, start| VmId::Process { pid, start }.key();
        assert_eq!(process(7, 3), 0x8000_0000_00c0_0007);
        assert_ne!(process(7, 3), process(7, 4));
        assert_ne!(process(4_194_303, 3), process(0, 4));
        assert_eq!(VmId::Cgroup(123).key(), 123);
    }

    #[test]
    fn where_a_score_comes_from() {
        let parse = |fields: [u32; 6]| Scored::parse(&bytes::<6, 24>(fields));
        let source = |fields| parse(fields).map(|s| s.source());
        assert_eq!(parse([3, 0, 0, 0, 0, 0]), None);
        assert_eq!(source([3, 1750, 2, 0, 0, 0]).as_deref(), Some("given"));
        assert_eq!(source([3, 1750, 0, 4, 0, 0]).as_deref(), Some("counters"));
        let both = "counters (1), utilisation (3)";
        assert_eq!(source([3, 1100, 0, 1, 3, 3]).as_deref(), Some(both));
        assert_eq!(Scored::parse(&[1; 20]), None);
        assert_eq!(Scored::parse(&[1; 23]), None);
    }
}
