// SPDX-License-Identifier: GPL-2.0-only
//! Maps as the host side sees them: by key bytes, like the bpf system call.
use crate::instance::Instance;
use crate::ir::{MapDef, MapId};
use crate::maps::{ENOENT, kind};

/// A map of an instance.
pub struct MapHandle<'a> {
    instance: &'a Instance,
    id: MapId,
}

impl<'a> MapHandle<'a> {
    pub(crate) fn new(instance: &'a Instance, id: MapId) -> Self {
        MapHandle { instance, id }
    }

    pub fn def(&self) -> &'a MapDef {
        &self.instance.policy().program().maps[self.id]
    }

    fn copies(&self) -> u32 {
        match self.def().kind {
            kind::PERCPU_ARRAY | kind::PERCPU_HASH | kind::LRU_PERCPU_HASH => {
                self.instance.nr_cpus()
            }
            _ => 1,
        }
    }

    fn key<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let want = match self.def().kind {
            kind::TASK_STORAGE | kind::CGRP_STORAGE => 4,
            _ => self.def().key_size as usize,
        };
        (key.len() == want).then_some(key)
    }

    /// The value under `key` (storages: the dense number); per-CPU maps give all CPUs' values one
    /// after the other. `None` if absent, or if the key has the wrong size.
    pub fn lookup(&self, key: &[u8]) -> Option<Vec<u8>> {
        let key = self.key(key)?;
        if matches!(self.def().kind, kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS) {
            return None;
        }
        let size = self.def().value_size as usize;
        let mut out = Vec::with_capacity(size * self.copies() as usize);
        for cpu in 0..self.copies() {
            // SAFETY: one operation at a time; the key has its size.
            let value = unsafe {
                self.instance
                    .slot(self.id)
                    .runtime
                    .lookup(key.as_ptr(), cpu)
            };
            if value.is_null() {
                return None;
            }
            // SAFETY: a value has `value_size` bytes.
            out.extend_from_slice(unsafe { std::slice::from_raw_parts(value, size) });
        }
        Some(out)
    }

    /// Address of the value under `key` (of CPU 0), as the policy sees it.
    pub fn address(&self, key: &[u8]) -> Option<*mut u8> {
        let key = self.key(key)?;
        // SAFETY: one operation at a time; the key has its size.
        let value = unsafe { self.instance.slot(self.id).runtime.lookup(key.as_ptr(), 0) };
        (!value.is_null()).then_some(value)
    }

    /// Write `value` under `key`; per-CPU maps take one value for all CPUs or one per CPU, queues and stacks an empty
    /// key.
    ///
    /// # Errors
    /// The kernel's negative errno.
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), i64> {
        let key = self.key(key).ok_or(crate::maps::EINVAL)?;
        let size = self.def().value_size as usize;
        let each = value.len() == size * self.copies() as usize;
        if !each && value.len() != size {
            return Err(crate::maps::EINVAL);
        }
        if matches!(self.def().kind, kind::QUEUE | kind::STACK) {
            // SAFETY: one operation; the size was checked.
            let rc = unsafe {
                let slot = self.instance.slot(self.id);
                slot.runtime.push(value.as_ptr(), flags)
            };
            return if rc == 0 { Ok(()) } else { Err(rc) };
        }
        for cpu in 0..self.copies() {
            let one = if each {
                &value[cpu as usize * size..][..size]
            } else {
                value
            };
            // The flags speak of the element, which exists after the first copy.
            let flags = if cpu == 0 {
                flags
            } else {
                crate::maps::BPF_ANY
            };
            // SAFETY: one operation; sizes were checked.
            let rc = unsafe {
                self.instance
                    .slot(self.id)
                    .runtime
                    .update(key.as_ptr(), one.as_ptr(), flags, cpu)
            };
            self.instance.end_fields(self.id);
            if rc != 0 {
                return Err(rc);
            }
        }
        Ok(())
    }

    /// Remove the element under `key`.
    ///
    /// # Errors
    /// The kernel's negative errno.
    pub fn delete(&self, key: &[u8]) -> Result<(), i64> {
        let key = self.key(key).ok_or(ENOENT)?;
        // SAFETY: one operation; the key has its size.
        let rc = unsafe { self.instance.slot(self.id).runtime.delete(key.as_ptr()) };
        self.instance.end_fields(self.id);
        match rc {
            0 => Ok(()),
            rc => Err(rc),
        }
    }

    /// All keys, in the map's fixed order.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let size = match self.def().kind {
            kind::TASK_STORAGE | kind::CGRP_STORAGE => 4,
            _ => self.def().key_size as usize,
        };
        let mut keys = Vec::new();
        let mut cursor = 0;
        // SAFETY: one operation; the key pointer is used before the map changes.
        while let Some(e) = unsafe { self.instance.slot(self.id) }
            .runtime
            .next(&mut cursor, 0)
        {
            // SAFETY: keys have `size` bytes.
            keys.push(unsafe { std::slice::from_raw_parts(e.key, size) }.to_vec());
        }
        keys
    }

    /// Take the records written so far (ring buffer, perf event array), oldest first.
    pub fn drain(&self, mut take: impl FnMut(&[u8])) {
        // SAFETY: one operation.
        unsafe { self.instance.slot(self.id) }
            .runtime
            .drain(&mut take);
    }

    pub fn len(&self) -> u64 {
        // SAFETY: one operation.
        unsafe { self.instance.slot(self.id) }.runtime.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
