// SPDX-License-Identifier: GPL-2.0-only
//! `[net]` and `[disk.NAME]` after reading: what packets and requests go through.
use super::Nanos;
use serde::{Deserialize, Serialize};

/// `[net]`: how packets come from clients to tasks, and answers back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Net {
    pub path: NetPath,
    /// Of the link, bits per second, each way.
    pub link_bit_s: u64,
    /// One way, from client to NIC.
    pub latency_ns: Nanos,
    /// The NIC holds an interrupt back for so long, for more packets to share it.
    pub coalesce_ns: Nanos,
    /// Time of one interrupt on the CPU that takes it.
    pub irq_ns: Nanos,
    /// Work per packet of the host's thread on the path (vhost, emulator, driver domain).
    pub per_packet_host_ns: Nanos,
    /// Work per packet of the guest.
    pub per_packet_guest_ns: Nanos,
    /// Bytes of a packet.
    pub mtu: u32,
    /// CPUs that take the card's interrupts: the n-th VM's queue those of the n-th in turn; empty: CPU n mod CPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irq_cpus: Vec<u32>,
    /// What a packet costs stage by stage; none: `irq`, `per_packet_host` and `per_packet_guest` are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
}

impl Net {
    /// Threads of a VM that only move its packets.
    pub fn threads_per_vm(&self) -> u32 {
        u32::from(matches!(self.path, NetPath::Vhost | NetPath::Emulator))
    }
}

/// `[disk.NAME]`: a disk of the host. Each VM whose tasks name it has a file on it and a page cache of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub name: String,
    pub path: DiskPath,
    pub size_bytes: u64,
    /// Of each VM.
    pub file_bytes: u64,
    pub access: Access,
    /// Bits per second, not zero.
    pub bit_s: u64,
    /// Time of a request that does not begin where the last one ended: next to it, and at the other end of the disk.
    pub seek_near_ns: Nanos,
    pub seek_far_ns: Nanos,
    /// The largest request; a longer stretch is several. Not zero.
    pub request_bytes: u64,
    /// Page cache of each VM; 0: none.
    pub cache_bytes: u64,
    /// What is cached or not as a whole; not zero.
    pub block_bytes: u64,
    pub read_ahead_bytes: u64,
    /// Written data go to the disk after so long; 0: at once, and the task waits for it.
    pub write_back_ns: Nanos,
    /// Part of the cache that may be unwritten before who writes has to wait.
    pub dirty_ppm: u32,
    /// Work of a task: for each step, and for each KiB.
    pub syscall_ns: Nanos,
    pub copy_ns: Nanos,
    /// For each request that it waits for.
    pub submit_ns: Nanos,
    /// Work of the host's thread on the path, each way.
    pub per_request_host_ns: Nanos,
    /// The interrupt when a request is done: the host's, and the guest's of who waits for it.
    pub irq_ns: Nanos,
}

impl Disk {
    /// Threads of a VM that only move its blocks.
    pub fn threads_per_vm(&self) -> u32 {
        u32::from(matches!(self.path, DiskPath::Virtio | DiskPath::Emulated))
    }
}

/// How requests get from a guest to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskPath {
    /// Through an I/O thread of the VM.
    #[default]
    Virtio,
    /// Through the main loop of its emulator.
    Emulated,
    /// The disk is assigned to the VM.
    Direct,
    /// Through vCPUs of a driver domain.
    DriverDomain,
}

/// Where in the file the next record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    #[default]
    Sequential,
    Random,
}

/// `[net.stages]`: what the stages of a packet's way through a KVM host cost, for one packet alone. Of each,
/// `batch_ppm` is spent once for all packets that are taken together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    pub card: Card,
    /// Interrupt and driver.
    pub driver_ns: Nanos,
    pub bridge_ns: Nanos,
    /// Connection tracking.
    pub filter_ns: Nanos,
    pub tap_ns: Nanos,
    /// Into guest memory or out of it, and for each byte.
    pub copy_ns: Nanos,
    pub copy_byte_ns: Nanos,
    /// The guest's interrupt, or its exit to send.
    pub inject_ns: Nanos,
    /// Driver and stack of the guest.
    pub guest_ns: Nanos,
    /// Working sets of a thread that comes from another CPU.
    pub cold_copy_ns: Nanos,
    pub cold_inject_ns: Nanos,
    pub cold_guest_ns: Nanos,
    /// A line of 64 bytes from the cache of another CPU: below the same last-level cache, or not.
    pub near_line_ns: Nanos,
    pub far_line_ns: Nanos,
    /// Lines that a stage has of its own: they are where it ran last.
    pub own_lines: u32,
    /// A wake-up by the same CPU, by another one.
    pub wake_here_ns: Nanos,
    pub wake_other_ns: Nanos,
    pub batch_ppm: u32,
    /// Most packets that are taken together.
    pub batch: u32,
    /// Packets that a VM's queue of the card, and its tap, hold; more are dropped.
    pub ring: u32,
    pub tap_queue: u32,
    /// A packet that was dropped is sent again so much later.
    pub resend_ns: Nanos,
    /// CPUs that do bridge, filter and tap for the n-th VM in turn; empty: the CPU that took the interrupt.
    pub rps_cpus: Vec<u32>,
}

/// What the guest takes its network card for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Card {
    /// Rings shared with the back end.
    Virtio,
    /// A model of a real card: two copies, and exits for its registers.
    Emulated,
}

/// Who moves packets between NIC and guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetPath {
    /// Nobody, and no time passes: a request is an interrupt on the CPU of the thread that takes it.
    None,
    /// The vCPUs of the VM whose role is `driver`.
    DriverDomain,
    /// A vhost thread per VM.
    Vhost,
    /// The VM's emulator thread.
    Emulator,
    /// The guest itself: the NIC, or a part of it, is its own.
    Direct,
}

impl Default for Net {
    fn default() -> Net {
        Net {
            path: NetPath::None,
            link_bit_s: 10_000_000_000,
            latency_ns: 25_000,
            coalesce_ns: 0,
            irq_ns: 1_000,
            per_packet_host_ns: 1_000,
            per_packet_guest_ns: 1_000,
            mtu: 1500,
            irq_cpus: Vec::new(),
            stages: None,
        }
    }
}
