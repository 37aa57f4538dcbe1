// SPDX-License-Identifier: GPL-2.0-only
//! ARRAY and PERCPU_ARRAY: one block of memory, looked up inline by translated code.
use super::memory::Fields;
use super::{
    BPF_EXIST, BPF_F_LOCK, BPF_NOEXIST, E2BIG, EEXIST, EINVAL, Element, MapRuntime, Place,
};
use crate::abi::Map;
use crate::arena::Arena;
use crate::error::{LoadError, Result};
use crate::ir::MapDef;

/// Largest block one map may take, bytes.
pub(super) const MAX_BYTES: u64 = 1 << 32;

pub struct ArrayMap {
    /// In the instance's arena, which lives longer.
    memory: *mut u8,
    bytes: u64,
    /// Index of each element as the key handed to callbacks; made when first walked.
    keys: Vec<u32>,
    fields: Fields,
    freed: Option<*mut u8>,
    entries: u32,
    value_size: u32,
    stride: u64,
    /// 0 if not per CPU.
    cpu_stride: u64,
}

// SAFETY: the pointers lead into the arena of the instance, which moves along.
unsafe impl Send for ArrayMap {}

impl ArrayMap {
    /// Distance of two CPUs' copies (0: none), and all bytes of such a map.
    pub(super) fn shape(def: &MapDef, entries: u32, nr_cpus: u32) -> (u64, u64) {
        let copy = u64::from(def.value_size).next_multiple_of(8) * u64::from(entries);
        if def.kind != super::kind::PERCPU_ARRAY {
            return (0, copy);
        }
        // Copies of different CPUs do not share a cache line when they are large enough to matter.
        let copy = if copy > 64 {
            copy.next_multiple_of(64)
        } else {
            copy
        };
        (copy, copy.saturating_mul(u64::from(nr_cpus)))
    }

    /// Refuses what the kernel would refuse, and what is too large for this host.
    pub(super) fn check(def: &MapDef, entries: u32, nr_cpus: u32) -> Result<()> {
        if def.key_size != 4 || def.value_size == 0 || entries == 0 {
            return Err(LoadError::Setting(format!(
                "map {}: an array needs a 4-byte key, a value and at least one entry",
                def.name
            )));
        }
        let (_, bytes) = Self::shape(def, entries, nr_cpus);
        if bytes > MAX_BYTES {
            return Err(LoadError::Setting(format!(
                "map {}: {bytes} bytes are more than a map may have (4 GiB)",
                def.name
            )));
        }
        Ok(())
    }

    /// Fills `data` and `cpu_stride` of `raw`. `None`: no memory.
    pub(super) fn new(
        def: &MapDef,
        entries: u32,
        nr_cpus: u32,
        raw: &mut Map,
        arena: &mut Arena,
    ) -> Option<Self> {
        let (cpu_stride, bytes) = Self::shape(def, entries, nr_cpus);
        let memory = arena.take(
            usize::try_from(bytes).ok()?,
            if bytes < 64 { 8 } else { 64 },
        )?;
        raw.data = memory;
        raw.cpu_stride = cpu_stride;
        Some(ArrayMap {
            memory,
            bytes,
            keys: Vec::new(),
            fields: Fields::new(def.value_size, &def.timers, &def.kptrs),
            freed: None,
            entries,
            value_size: def.value_size,
            stride: raw.stride(),
            cpu_stride,
        })
    }

    fn at(&mut self, index: u32, cpu: u32) -> *mut u8 {
        let offset = self.cpu_stride * u64::from(cpu) + self.stride * u64::from(index);
        // SAFETY: callers checked `index`; `cpu` is below the number of copies.
        unsafe { self.memory.add(offset as usize) }
    }

    /// A readable copy of the index, as callbacks get it.
    fn key(&mut self, index: u32) -> *const u8 {
        if self.keys.is_empty() {
            self.keys = (0..self.entries).collect();
        }
        (&raw const self.keys[index as usize]).cast()
    }

    fn range(&self) -> (u64, u64) {
        let start = self.memory as u64;
        (start, start + self.bytes)
    }
}

impl MapRuntime for ArrayMap {
    unsafe fn lookup(&mut self, key: *const u8, cpu: u32) -> *mut u8 {
        // SAFETY: the key has four bytes.
        let index = unsafe { key.cast::<u32>().read_unaligned() };
        if index < self.entries {
            self.at(index, cpu)
        } else {
            std::ptr::null_mut()
        }
    }

    unsafe fn update(&mut self, key: *const u8, value: *const u8, flags: u64, cpu: u32) -> i64 {
        if flags & !BPF_F_LOCK > BPF_EXIST {
            return EINVAL;
        }
        // SAFETY: as `lookup`.
        let index = unsafe { key.cast::<u32>().read_unaligned() };
        if index >= self.entries {
            return E2BIG;
        }
        if flags & BPF_NOEXIST != 0 {
            return EEXIST;
        }
        let element = self.at(index, cpu);
        // SAFETY: both have `value_size` bytes; a policy may pass the element itself.
        unsafe { self.fields.copy(value, element) };
        self.freed = self.fields.any().then_some(element);
        0
    }

    fn freed(&mut self) -> Option<*mut u8> {
        self.freed.take()
    }

    unsafe fn delete(&mut self, _key: *const u8) -> i64 {
        EINVAL
    }

    fn next(&mut self, cursor: &mut u64, cpu: u32) -> Option<Element> {
        if *cursor >= u64::from(self.entries) {
            return None;
        }
        let index = *cursor as u32;
        *cursor += 1;
        Some(Element {
            key: self.key(index),
            value: self.at(index, cpu),
        })
    }

    fn len(&self) -> u64 {
        u64::from(self.entries)
    }

    fn contains(&self, address: u64, size: u32) -> bool {
        // Copies of the indices, handed to callbacks.
        let keys = self.keys.as_ptr() as u64;
        if (keys..keys + self.keys.len() as u64 * 4).contains(&address) {
            return (address - keys) % 4 + u64::from(size) <= 4;
        }
        let (start, end) = self.range();
        if address < start || address >= end {
            return false;
        }
        let within = if self.cpu_stride == 0 {
            address - start
        } else {
            (address - start) % self.cpu_stride
        };
        within / self.stride < u64::from(self.entries)
            && within % self.stride + u64::from(size) <= u64::from(self.value_size)
    }

    fn piece(&self, address: u64) -> Option<(u64, u64)> {
        let (start, end) = self.range();
        (start..end).contains(&address).then_some((start, end))
    }

    fn locate(&mut self, address: u64) -> Option<Place> {
        let (start, end) = self.range();
        if address < start || address >= end || self.cpu_stride != 0 {
            return None;
        }
        let element = (address - start) / self.stride;
        let offset = ((address - start) % self.stride) as u32;
        (offset < self.value_size).then(|| Place {
            element,
            offset,
            key: self.key(element as u32),
            value: (start + element * self.stride) as *mut u8,
        })
    }
}
