// SPDX-License-Identifier: GPL-2.0-only
//! ACPI's list of CPUs and interrupt controllers (MADT), found from the address of the RSDP that PVH gives.
use alloc::vec::Vec;
use core::ptr::read_unaligned;

/// What the MADT says.
#[derive(Debug, Default)]
pub struct Machine {
    /// Local APICs of CPUs that may be used.
    pub cpus: Vec<u32>,
    /// I/O APICs: address, and number of the first interrupt.
    pub io_apics: Vec<(usize, u32)>,
}

/// Where tables may be: the memory that is mapped.
const END: u64 = 4 << 30;

/// `bytes` at `address` as a number; 0 where nothing is mapped.
fn read(address: u64, bytes: u64) -> u64 {
    if address == 0 || address >= END - 8 {
        return 0;
    }
    // SAFETY: the first 4 GiB are mapped as they are, tables are plain memory, and any bytes are a number.
    let value = unsafe { read_unaligned(address as *const u64) };
    value & (u64::MAX >> (64 - 8 * bytes))
}

/// Reads the tables; without any (`rsdp` 0) nothing is found.
pub fn read_machine(rsdp: u64) -> Machine {
    let mut machine = Machine::default();
    if rsdp == 0 {
        return machine;
    }
    let xsdt = read(rsdp + 24, 8);
    let (root, entry) = if read(rsdp + 15, 1) >= 2 && xsdt != 0 {
        (xsdt, 8)
    } else {
        (read(rsdp + 16, 4), 4)
    };
    let entries = read(root + 4, 4).saturating_sub(36) / entry;
    let tables = (0..entries.min(256)).map(|i| read(root + 36 + i * entry, entry));
    let Some(madt) = tables
        .into_iter()
        .find(|table| read(*table, 4) == u64::from(u32::from_le_bytes(*b"APIC")))
    else {
        return machine;
    };
    let (mut at, end) = (madt + 44, madt + read(madt + 4, 4));
    while at + 2 <= end {
        match read(at, 1) {
            0 if read(at + 4, 4) & 1 != 0 => machine.cpus.push(read(at + 3, 1) as u32),
            1 => machine
                .io_apics
                .push((read(at + 4, 4) as usize, read(at + 8, 4) as u32)),
            _ => {}
        }
        // An entry of no length would be read for ever.
        at += read(at + 1, 1).max(2);
    }
    machine
}
