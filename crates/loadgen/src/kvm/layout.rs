// SPDX-License-Identifier: GPL-2.0-only
//! What lies where in a micro-VM's memory: as `guest.c` has it. Addresses and offsets are bytes.

/// The guest's machine code.
pub static CODE_BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest.bin"));
/// Entry points in it.
pub mod entry {
    include!(concat!(env!("OUT_DIR"), "/guest.rs"));
}

pub const CODE: u64 = 0x1000;
pub const IDT: u64 = 0x4000;
pub const GDT: u64 = 0x5000;
pub const VM: u64 = 0x6000;
/// Page tables: one top level, one below, four of 2 MB pages: the first 4 GB, each at its own address.
pub const PAGE_TABLES: u64 = 0x10000;
/// A page for each vCPU.
pub const VCPUS: u64 = 0x20000;
pub const PAGE: u64 = 0x1000;
/// vCPUs of one VM, at most: who waits for a lock is a word of bits.
pub const MAX_VCPUS: u32 = 64;
/// A page of stack for each vCPU.
pub const STACKS: u64 = VCPUS + MAX_VCPUS as u64 * PAGE;
/// From here on what the scenario needs.
pub const FREE: u64 = STACKS + MAX_VCPUS as u64 * PAGE;
/// Memory of a VM; only what is touched takes room.
pub const BYTES: u64 = 64 << 20;

/// Words of `struct vm`, as offsets.
pub mod vm {
    pub const STOP: u64 = 0;
    pub const START_TSC: u64 = 8;
    pub const MEASURE_BEGIN: u64 = 16;
    pub const MEASURE_END: u64 = 24;
    pub const END_TSC: u64 = 32;
    pub const VCPUS: u64 = 40;
    pub const VCPU0: u64 = 48;
    pub const CHUNK_LOOPS: u64 = 56;
    pub const CHUNK_NS: u64 = 64;
    pub const SLICE_NS: u64 = 72;
    /// Not the guest's: what its clock is ahead of the machine's.
    pub const CLOCK_OFFSET: u64 = 4088;
}

/// Words of `struct vcpu`.
pub mod vcpu {
    pub const IDLE: u64 = 0;
    pub const WORK_NS: u64 = 8;
    pub const APIC_ID: u64 = 16;
    pub const NR_TASKS: u64 = 24;
    pub const TASKS: u64 = 32;
    pub const VM: u64 = 40;
    pub const CALL_A: u64 = 56;
    pub const CALL_B: u64 = 64;
    pub const CALL_C: u64 = 72;
    pub const WAKEUPS: u64 = 80;
    pub const NUMBER: u64 = 120;
}

/// Words of `struct task`.
pub mod task {
    pub const BYTES: u64 = 128;
    pub const PC: u64 = 0;
    pub const LOOP: u64 = 8;
    pub const PHASE: u64 = 48;
}

/// Words of `struct op`, and its codes.
pub mod op {
    pub const BYTES: u64 = 64;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u64)]
    pub enum Code {
        Compute,
        Busy,
        Sleep,
        Timer,
        Receive,
        Reply,
        Send,
        Yield,
        Lock,
        Unlock,
        Spin,
        Unspin,
        Barrier,
        Wait,
        Signal,
        Broadcast,
        Chunks,
        Exit,
        Loop,
        Nothing,
    }
}

/// Words of `struct queue` and `struct slot`.
pub mod queue {
    pub const TAIL: u64 = 8;
    pub const MASK: u64 = 16;
    pub const SLOTS: u64 = 24;
    pub const SLOT_BYTES: u64 = 32;
    /// Messages that fit.
    pub const LENGTH: u64 = 1 << 13;
}

/// First word of `struct barrier`.
pub const BARRIER_MEMBERS: u64 = 0;

/// Buckets of a histogram of ticks: 128 to each doubling, see [`bucket_ticks`].
pub const BUCKETS: u64 = 58 * 128;

/// The middle of a bucket of the guest's histogram, in ticks.
pub fn bucket_ticks(index: u64) -> u64 {
    if index < 128 {
        return index;
    }
    let shift = index / 128 - 1;
    ((index % 128 + 128) << shift) + (1 << shift) / 2
}

/// Ports by which the guest calls the host.
pub mod port {
    /// The run, or the VM, is over.
    pub const OVER: u16 = 0x10;
    /// An answer: CALL_A when the request was due, CALL_B who asked.
    pub const REPLY: u16 = 0x11;
    /// A message: CALL_A to whom, an index of the machine's receivers.
    pub const SEND: u16 = 0x12;
    /// A chunk: CALL_A an index of the machine's pools, CALL_B whether the task comes now; CALL_C its length, 0: none.
    pub const CHUNK: u16 = 0x13;
}

/// Interrupt vectors; all have the same handler.
pub const VECTOR_MESSAGE: u32 = 0x40;
pub const VECTOR_TIMER: u32 = 0x42;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_fits_and_buckets_grow() {
        assert!(CODE + (CODE_BYTES.len() as u64) < IDT);
        assert!(entry::GUEST > 0 && (entry::GUEST as usize) < CODE_BYTES.len());
        for i in 1..BUCKETS {
            assert!(bucket_ticks(i) > bucket_ticks(i - 1), "{i}");
        }
        // As `record` in guest.c: 1000 = 0b1111101000 has shift 2, so bucket 3 * 128 + 250 - 128.
        assert_eq!(bucket_ticks(3 * 128 + 122), 1002);
    }
}
