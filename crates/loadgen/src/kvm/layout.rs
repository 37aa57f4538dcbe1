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

    // `enum Code`, from `enum op_code` there.
    include!(concat!(env!("OUT_DIR"), "/codes.rs"));
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

/// Words of `struct echo`, and where all of such a guest lies.
pub mod echo {
    use super::{FREE, PAGE};

    pub const SLOTS: u64 = 8;
    pub const BUFFERS: u64 = 16;
    pub const RX: u64 = 24;
    pub const TX: u64 = 48;
    pub const ECHOED: u64 = 88;
    pub const LINK: u64 = 104;

    /// Slots of a ring.
    pub const LENGTH: u64 = 64;
    pub const BUFFER_BYTES: u64 = 2048;
    pub const HERE: u64 = FREE;
    /// Descriptors, available and used ring of each direction, a page each.
    pub const RINGS: u64 = HERE + PAGE;
    pub const FRAMES: u64 = RINGS + 6 * PAGE;
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
    /// Something was given to the ring of frames that come, or of those that go.
    pub const RX: u16 = 0x14;
    pub const TX: u16 = 0x15;
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
    const SOURCE: &str = include_str!("guest.c");

    /// What stands between `start` and the next closing brace, without comments.
    fn body(start: &str) -> String {
        let (_, after) = SOURCE
            .split_once(start)
            .unwrap_or_else(|| panic!("no `{start}`"));
        let (body, _) = after.split_once("\n}").unwrap();
        let mut parts = body.split("/*");
        let first = parts.next().unwrap_or_default().to_string();
        first
            + &parts
                .map(|p| p.split_once("*/").unwrap().1)
                .collect::<String>()
    }

    /// Offsets of a structure's members, all of them words, bytes.
    fn members(name: &str) -> Vec<(String, u64)> {
        let mut at = 0;
        let mut all = Vec::new();
        for declaration in body(&format!("struct {name} {{")).split(';').map(str::trim) {
            let declared = declaration.trim_start_matches("struct ").split_once(' ');
            for member in declared
                .into_iter()
                .flat_map(|(_, members)| members.split(','))
            {
                let (member, words) = match member.trim_end_matches(']').split_once('[') {
                    Some((member, words)) => (member, words.parse().unwrap()),
                    None => (member, 1),
                };
                all.push((member.trim_matches([' ', '*']).to_string(), at));
                at += 8 * words;
            }
        }
        all
    }

    /// Words of this file, by the name of the structure and its member.
    fn words() -> Vec<(&'static str, &'static str, u64)> {
        vec![
            ("vm", "stop", vm::STOP),
            ("vm", "start_tsc", vm::START_TSC),
            ("vm", "measure_begin", vm::MEASURE_BEGIN),
            ("vm", "measure_end", vm::MEASURE_END),
            ("vm", "end_tsc", vm::END_TSC),
            ("vm", "vcpus", vm::VCPUS),
            ("vm", "vcpu0", vm::VCPU0),
            ("vm", "chunk_loops", vm::CHUNK_LOOPS),
            ("vm", "chunk_ns", vm::CHUNK_NS),
            ("vm", "slice_ns", vm::SLICE_NS),
            ("vcpu", "idle", vcpu::IDLE),
            ("vcpu", "work_ns", vcpu::WORK_NS),
            ("vcpu", "apic_id", vcpu::APIC_ID),
            ("vcpu", "nr_tasks", vcpu::NR_TASKS),
            ("vcpu", "tasks", vcpu::TASKS),
            ("vcpu", "vm", vcpu::VM),
            ("vcpu", "call_a", vcpu::CALL_A),
            ("vcpu", "call_b", vcpu::CALL_B),
            ("vcpu", "call_c", vcpu::CALL_C),
            ("vcpu", "wakeups", vcpu::WAKEUPS),
            ("vcpu", "number", vcpu::NUMBER),
            ("task", "pc", task::PC),
            ("task", "loop", task::LOOP),
            ("task", "phase", task::PHASE),
            ("queue", "tail", queue::TAIL),
            ("queue", "mask", queue::MASK),
            ("queue", "slots", queue::SLOTS),
            ("barrier", "members", BARRIER_MEMBERS),
            ("echo", "slots", echo::SLOTS),
            ("echo", "buffers", echo::BUFFERS),
            ("echo", "rx_descriptors", echo::RX),
            ("echo", "tx_descriptors", echo::TX),
            ("echo", "echoed", echo::ECHOED),
            ("echo", "link", echo::LINK),
        ]
    }

    #[test]
    fn words_are_where_the_guest_has_them() {
        for (structure, member, offset) in words() {
            let there = members(structure);
            let found = there.iter().find(|(name, _)| name == member);
            let found = found.unwrap_or_else(|| panic!("`{member}` is not in {there:?}"));
            assert_eq!(found.1, offset, "struct {structure}, {member}");
        }
    }
}
