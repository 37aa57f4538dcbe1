// SPDX-License-Identifier: GPL-2.0-only
//! A machine with more possible CPUs than run: what a policy finds on a large host, on two emulated CPUs.
//!
//! Linux takes the CPUs it may ever have from the firmware's list of interrupt controllers (ACPI, table MADT). One that
//! comes first in the initial file system replaces the emulator's; `maxcpus=` on the kernel's command line keeps it
//! from starting those that do not exist. (CPUs that the emulator could plug in later are not counted by Linux 7.2.)
use crate::initramfs::Archive;

/// Where Linux looks for tables that replace the firmware's (CONFIG_ACPI_TABLE_UPGRADE).
const PLACE: &str = "/kernel/firmware/acpi/apic.aml";
/// Length of what all ACPI tables begin with.
const HEADER: usize = 36;
/// Numbers of interrupt controllers that fit in the older kind of entry.
const OLD_IDS: u32 = 255;

/// To be put before the other archives.
pub fn archive(possible: u32) -> Vec<u8> {
    let mut archive = Archive::new();
    archive.file(PLACE, &interrupt_controllers(possible));
    archive.finish()
}

/// The table, of the emulator's machine but for the number of CPUs (ACPI 6.5, section 5.2.12).
fn interrupt_controllers(possible: u32) -> Vec<u8> {
    let mut t = Vec::new();
    t.extend(b"APIC");
    t.extend([0; 4]); // length, below
    t.extend([5, 0]); // revision; checksum, below
    t.extend(b"BOCHS BXPC    "); // the emulator's: what is replaced
    t.extend(2u32.to_le_bytes()); // newer than the emulator's
    t.extend(b"BXPC");
    t.extend(1u32.to_le_bytes());
    debug_assert_eq!(t.len(), HEADER);
    t.extend(0xfee0_0000u32.to_le_bytes());
    t.extend(1u32.to_le_bytes()); // there are the old controllers, too
    for cpu in 0..possible {
        let (id, enabled) = (cpu.to_le_bytes(), 1u32.to_le_bytes());
        if cpu < OLD_IDS {
            entry(&mut t, 0, &[&[id[0], id[0]], &enabled]);
        } else {
            entry(&mut t, 9, &[&[0, 0], &id, &enabled, &id]);
        }
    }
    // The interrupt controller of the devices, the timer's line, and those that are active high.
    entry(
        &mut t,
        1,
        &[&[0, 0], &0xfec0_0000u32.to_le_bytes(), &[0; 4]],
    );
    for (line, to, flags) in [
        (0, 2, 0),
        (5, 5, 13),
        (9, 9, 13),
        (10, 10, 13),
        (11, 11, 13),
    ] {
        entry(&mut t, 2, &[&[0, line], &u32::to_le_bytes(to), &[flags, 0]]);
    }
    let length = t.len() as u32;
    t[4..8].copy_from_slice(&length.to_le_bytes());
    t[9] = t
        .iter()
        .fold(0u8, |sum, b| sum.wrapping_add(*b))
        .wrapping_neg();
    t
}

fn entry(table: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|p| p.len()).sum();
    table.extend([kind, length as u8 + 2]);
    table.extend(parts.concat());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_has_an_entry_and_the_sum_is_zero() {
        let t = interrupt_controllers(1024);
        assert_eq!(t.iter().fold(0u8, |s, b| s.wrapping_add(*b)), 0);
        assert_eq!(
            u32::from_le_bytes(t[4..8].try_into().unwrap()) as usize,
            t.len()
        );
        let (mut at, mut cpus) = (HEADER + 8, 0);
        while at < t.len() {
            cpus += u32::from(matches!(t[at], 0 | 9));
            at += usize::from(t[at + 1]);
        }
        assert_eq!((at, cpus), (t.len(), 1024));
    }
}
