// SPDX-License-Identifier: GPL-2.0-only
//! PERF_EVENT_ARRAY: the kernel's own checks of arguments. Events of the machine's performance counters are open in
//! maps of these names ([`EVENTS`]), if the machine has any; in all others no event is ever installed, so that reads
//! and outputs fail as they do where nobody has opened one.
use super::{E2BIG, EINVAL, ENOENT, EOPNOTSUPP, MapRuntime, Place};
use crate::error::{LoadError, Result};
use crate::ir::MapDef;
use crate::kview::BpfPerfEventValue;

/// Maps whose events a loader opens, one for each CPU at its number: what they count.
pub const EVENTS: [(&str, &str); 4] = [
    ("berth_instructions_by_cpu", "retired instructions"),
    ("berth_cycles_by_cpu", "unhalted cycles"),
    ("berth_node_loads_by_cpu", "reads of memory"),
    (
        "berth_node_load_misses_by_cpu",
        "reads of another node's memory",
    ),
];

/// Index bits of the flags; all ones = the executing CPU.
pub(crate) const INDEX_MASK: u64 = 0xffff_ffff;
pub(crate) const VALUE_SIZE: u64 = size_of::<BpfPerfEventValue>() as u64;

#[derive(Debug)]
pub struct PerfEvents {
    entries: u32,
}

impl PerfEvents {
    /// An array of `entries` empty places.
    ///
    /// # Errors
    /// A definition the kernel would refuse.
    pub fn new(def: &MapDef, entries: u32) -> Result<PerfEvents> {
        if def.key_size != 4 || def.value_size != 4 || entries == 0 {
            return Err(LoadError::Setting(format!(
                "map {}: a perf event array needs 4-byte keys, 4-byte values and at least one entry",
                def.name
            )));
        }
        Ok(PerfEvents { entries })
    }
}

impl MapRuntime for PerfEvents {
    fn perf_read(&self, flags: u64, cpu: u32) -> i64 {
        if flags & !INDEX_MASK != 0 {
            return EINVAL;
        }
        let index = if flags == INDEX_MASK {
            cpu.into()
        } else {
            flags
        };
        if index >= u64::from(self.entries) {
            E2BIG
        } else {
            ENOENT
        }
    }

    unsafe fn perf_read_value(&self, flags: u64, cpu: u32, value: *mut u8, size: u64) -> i64 {
        let code = if size == VALUE_SIZE {
            self.perf_read(flags, cpu)
        } else {
            EINVAL
        };
        // SAFETY: the caller's promise: `size` bytes.
        unsafe { value.write_bytes(0, size as usize) };
        code
    }

    unsafe fn output(&mut self, _data: *const u8, _size: u64, flags: u64) -> i64 {
        let index = flags & INDEX_MASK;
        if index != INDEX_MASK && index >= u64::from(self.entries) {
            E2BIG
        } else {
            ENOENT
        }
    }

    unsafe fn update(&mut self, _key: *const u8, _value: *const u8, _flags: u64, _cpu: u32) -> i64 {
        EOPNOTSUPP
    }

    fn len(&self) -> u64 {
        0
    }

    fn contains(&self, _address: u64, _size: u32) -> bool {
        false
    }

    fn locate(&mut self, _address: u64) -> Option<Place> {
        None
    }
}
