// SPDX-License-Identifier: GPL-2.0-only
//! Maps at run time: what lies behind the inline fast paths, one object per map and instance.
//!
//! Return codes are the kernel's negative errnos: they are part of what a policy sees. Elements never
//! move while they exist. Walks have one fixed order.
use crate::abi::Map;
use crate::arena::Arena;
use crate::error::{LoadError, Result};
use crate::ir::MapDef;
use crate::storage::Storage;

pub mod array;
pub mod hash;
pub mod in_maps;
pub(crate) mod memory;
pub mod pages;
pub mod perf;
pub mod queue;
pub mod ringbuf;

/// BPF_MAP_TYPE_* numbers.
pub mod kind {
    pub const HASH: u32 = 1;
    pub const ARRAY: u32 = 2;
    pub const PERF_EVENT_ARRAY: u32 = 4;
    pub const PERCPU_HASH: u32 = 5;
    pub const PERCPU_ARRAY: u32 = 6;
    pub const LRU_HASH: u32 = 9;
    pub const LRU_PERCPU_HASH: u32 = 10;
    pub const ARRAY_OF_MAPS: u32 = 12;
    pub const HASH_OF_MAPS: u32 = 13;
    pub const QUEUE: u32 = 22;
    pub const STACK: u32 = 23;
    pub const RINGBUF: u32 = 27;
    pub const TASK_STORAGE: u32 = 29;
    pub const CGRP_STORAGE: u32 = 32;
    pub const ARENA: u32 = 33;

    /// The kernel's names of all of them, by number.
    pub const NAMES: [&str; 35] = [
        "UNSPEC",
        "HASH",
        "ARRAY",
        "PROG_ARRAY",
        "PERF_EVENT_ARRAY",
        "PERCPU_HASH",
        "PERCPU_ARRAY",
        "STACK_TRACE",
        "CGROUP_ARRAY",
        "LRU_HASH",
        "LRU_PERCPU_HASH",
        "LPM_TRIE",
        "ARRAY_OF_MAPS",
        "HASH_OF_MAPS",
        "DEVMAP",
        "SOCKMAP",
        "CPUMAP",
        "XSKMAP",
        "SOCKHASH",
        "CGROUP_STORAGE",
        "REUSEPORT_SOCKARRAY",
        "PERCPU_CGROUP_STORAGE",
        "QUEUE",
        "STACK",
        "SK_STORAGE",
        "DEVMAP_HASH",
        "STRUCT_OPS",
        "RINGBUF",
        "INODE_STORAGE",
        "TASK_STORAGE",
        "BLOOM_FILTER",
        "USER_RINGBUF",
        "CGRP_STORAGE",
        "ARENA",
        "INSN_ARRAY",
    ];
}

pub const ENOENT: i64 = -2;
pub const E2BIG: i64 = -7;
pub const EAGAIN: i64 = -11;
pub const ENOMEM: i64 = -12;
pub const EFAULT: i64 = -14;
pub const EBUSY: i64 = -16;
pub const EEXIST: i64 = -17;
pub const EINVAL: i64 = -22;
pub const EOPNOTSUPP: i64 = -95;

/// Map flag: elements are allocated one by one.
pub const BPF_F_NO_PREALLOC: u32 = 1;
/// Flags of update.
pub const BPF_ANY: u64 = 0;
pub const BPF_NOEXIST: u64 = 1;
pub const BPF_EXIST: u64 = 2;
pub const BPF_F_LOCK: u64 = 4;

/// One map of one instance. Pointers to keys have `key_size` readable bytes, pointers to values
/// `value_size` (one CPU's value). Operations a map type does not have keep their default.
///
/// # Safety
/// Callers pass pointers of the said sizes; the instance is used by one thread at a time.
#[allow(clippy::missing_safety_doc)] // the trait's own words
pub trait MapRuntime: Send {
    /// The element's value as code running on `cpu` sees it, or null.
    unsafe fn lookup(&mut self, _key: *const u8, _cpu: u32) -> *mut u8 {
        std::ptr::null_mut()
    }
    /// Create or overwrite; per-CPU maps write `cpu`'s copy (a new element's other copies are zero).
    unsafe fn update(&mut self, _key: *const u8, _value: *const u8, _flags: u64, _cpu: u32) -> i64 {
        EOPNOTSUPP
    }
    unsafe fn delete(&mut self, _key: *const u8) -> i64 {
        EOPNOTSUPP
    }
    /// A value whose timers and kernel pointers went away with the last update or delete (replaced, deleted, evicted);
    /// its memory is intact until the next one. Call until `None` when the definition has such fields; the caller ends
    /// the timers, releases the pointers and zeroes these fields.
    fn freed(&mut self) -> Option<*mut u8> {
        None
    }
    /// Walk in the map's fixed order: `cursor` starts at 0 and is the map's own afterwards. Elements
    /// deleted during the walk, also the current one, are skipped. `None` = end.
    fn next(&mut self, _cursor: &mut u64, _cpu: u32) -> Option<Element> {
        None
    }
    unsafe fn push(&mut self, _value: *const u8, _flags: u64) -> i64 {
        EOPNOTSUPP
    }
    unsafe fn pop(&mut self, _value: *mut u8) -> i64 {
        EOPNOTSUPP
    }
    unsafe fn peek(&mut self, _value: *mut u8) -> i64 {
        EOPNOTSUPP
    }
    /// Ring buffer and perf event array: one record.
    unsafe fn output(&mut self, _data: *const u8, _size: u64, _flags: u64) -> i64 {
        EOPNOTSUPP
    }
    /// Ring buffer: room for a record of `size` bytes, or null.
    fn reserve(&mut self, _size: u64, _flags: u64) -> *mut u8 {
        std::ptr::null_mut()
    }
    /// Ring buffer: a reserved record becomes visible, or is given back. False = not a reservation of this map.
    fn commit(&mut self, _record: *mut u8, _discard: bool) -> bool {
        false
    }
    fn query(&self, _flags: u64) -> u64 {
        0
    }
    /// Perf event array: `bpf_perf_event_read` (a negative error number).
    fn perf_read(&self, _flags: u64, _cpu: u32) -> i64 {
        EINVAL
    }
    /// Perf event array: `bpf_perf_event_read_value`; zeroes the `size` bytes of `value` when it fails.
    unsafe fn perf_read_value(&self, _flags: u64, _cpu: u32, _value: *mut u8, _size: u64) -> i64 {
        EINVAL
    }
    /// Number of elements present.
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Records written so far and not yet taken by the host, oldest first (ring buffer, perf event array).
    fn drain(&mut self, _take: &mut dyn FnMut(&[u8])) {}
    /// Does `size` bytes from `address` lie in one live element? For the checked mode.
    fn contains(&self, address: u64, size: u32) -> bool;
    /// The piece of memory, `[start, end)`, around an address, which holds elements and nothing else, and never moves.
    fn piece(&self, _address: u64) -> Option<(u64, u64)> {
        None
    }
    /// The element and the offset in its value in which `address` lies. For timers.
    fn locate(&mut self, address: u64) -> Option<Place>;
}

/// Have the elements of such a map addresses, which a policy may touch?
pub fn has_addresses(kind: u32) -> bool {
    let none = [
        kind::QUEUE,
        kind::STACK,
        kind::PERF_EVENT_ARRAY,
        kind::ARRAY_OF_MAPS,
        kind::HASH_OF_MAPS,
    ];
    !none.contains(&kind)
}

/// One element during a walk.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    pub key: *const u8,
    pub value: *mut u8,
}

/// Where an address lies in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the element in its map; one that took a deleted element's memory has another number.
    pub element: u64,
    pub offset: u32,
    pub key: *const u8,
    pub value: *mut u8,
}

/// A map of an instance.
pub struct MapSlot {
    /// The part translated code sees; its address is the policy's map pointer.
    pub raw: *mut Map,
    pub runtime: Box<dyn MapRuntime>,
}

/// What translated code sees of the map `def` before [`create`].
pub fn describe(def: &MapDef, max_entries: u32) -> Map {
    Map {
        data: std::ptr::null_mut(),
        cpu_stride: 0,
        max_entries,
        kind: def.kind,
        key_size: def.key_size,
        value_size: def.value_size,
    }
}

/// Bytes of the arena that [`create`] will take, about.
///
/// # Errors
/// A map that the kernel would refuse, or that is too large.
pub fn room(def: &MapDef, max_entries: u32, nr_cpus: u32) -> Result<usize> {
    Ok(match def.kind {
        kind::ARRAY | kind::PERCPU_ARRAY => {
            array::ArrayMap::check(def, max_entries, nr_cpus)?;
            array::ArrayMap::shape(def, max_entries, nr_cpus).1 as usize + 64
        }
        kind::TASK_STORAGE | kind::CGRP_STORAGE => Storage::room(def) + 64,
        _ => 0,
    })
}

/// Create the map `def` for a machine of `nr_cpus` CPUs; `max_entries` may override the definition's. `raw` is its
/// [`describe`]; it and `arena` live as long as the map.
///
/// # Errors
/// As [`room`]; no memory; a type that is not supported.
pub fn create(
    def: &MapDef,
    max_entries: u32,
    nr_cpus: u32,
    raw: &mut Map,
    arena: &mut Arena,
) -> Result<Box<dyn MapRuntime>> {
    let no_memory =
        || LoadError::Setting(format!("map {}: the host has no memory for it", def.name));
    Ok(match def.kind {
        kind::ARRAY | kind::PERCPU_ARRAY => {
            array::ArrayMap::check(def, max_entries, nr_cpus)?;
            let map = array::ArrayMap::new(def, max_entries, nr_cpus, raw, arena);
            Box::new(map.ok_or_else(no_memory)?)
        }
        kind::HASH | kind::PERCPU_HASH | kind::LRU_HASH | kind::LRU_PERCPU_HASH => {
            Box::new(hash::HashMap::new(def, max_entries, nr_cpus)?)
        }
        kind::TASK_STORAGE | kind::CGRP_STORAGE => {
            Box::new(Storage::new(def, raw, arena).ok_or_else(no_memory)?)
        }
        kind::QUEUE | kind::STACK => Box::new(queue::QueueMap::new(def, max_entries)?),
        kind::RINGBUF => Box::new(ringbuf::RingBuf::new(def, max_entries)?),
        kind::PERF_EVENT_ARRAY => Box::new(perf::PerfEvents::new(def, max_entries)?),
        other => {
            return Err(LoadError::Unsupported(format!(
                "map type {other} (map {})",
                def.name
            )));
        }
    })
}
