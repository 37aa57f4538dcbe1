// SPDX-License-Identifier: GPL-2.0-only
//! QUEUE and STACK: values without keys, first in first out or last in first out.
use super::array::MAX_BYTES;
use super::{BPF_EXIST, BPF_NOEXIST, E2BIG, EINVAL, ENOENT, MapRuntime, Place, kind};
use crate::error::{LoadError, Result};
use crate::ir::MapDef;

#[derive(Debug)]
pub struct QueueMap {
    entries: usize,
    value_size: usize,
    lifo: bool,
    /// A ring of `entries` values; its memory grows with use.
    ring: Vec<u8>,
    /// Index of the oldest value, and number of values.
    head: usize,
    len: usize,
}

impl QueueMap {
    /// An empty queue or stack of at most `entries` values.
    ///
    /// # Errors
    /// A definition the kernel would refuse.
    pub fn new(def: &MapDef, entries: u32) -> Result<QueueMap> {
        if def.key_size != 0 || def.value_size == 0 || entries == 0 {
            return Err(LoadError::Setting(format!(
                "map {}: a queue or stack has no key, and needs a value and at least one entry",
                def.name
            )));
        }
        let bytes = u64::from(entries) * u64::from(def.value_size);
        if bytes > MAX_BYTES {
            return Err(LoadError::Setting(format!(
                "map {}: {bytes} bytes are more than a map may have (4 GiB)",
                def.name
            )));
        }
        Ok(QueueMap {
            entries: entries as usize,
            value_size: def.value_size as usize,
            lifo: def.kind == kind::STACK,
            ring: Vec::new(),
            head: 0,
            len: 0,
        })
    }

    /// Position in `ring` of the n-th oldest value.
    fn at(&self, n: usize) -> usize {
        (self.head + n) % self.entries * self.value_size
    }

    /// The next value out; an empty map zeroes `value`.
    unsafe fn take(&mut self, value: *mut u8, remove: bool) -> i64 {
        // SAFETY: the caller's promise: a value.
        let value = unsafe { std::slice::from_raw_parts_mut(value, self.value_size) };
        if self.len == 0 {
            value.fill(0);
            return ENOENT;
        }
        let at = self.at(if self.lifo { self.len - 1 } else { 0 });
        value.copy_from_slice(&self.ring[at..at + self.value_size]);
        if remove {
            self.len -= 1;
            if !self.lifo {
                self.head = (self.head + 1) % self.entries;
            }
        }
        0
    }
}

impl MapRuntime for QueueMap {
    unsafe fn push(&mut self, value: *const u8, flags: u64) -> i64 {
        if flags & BPF_NOEXIST != 0 || flags > BPF_EXIST {
            return EINVAL;
        }
        if self.len == self.entries {
            if flags != BPF_EXIST {
                return E2BIG;
            }
            // The oldest goes.
            self.head = (self.head + 1) % self.entries;
            self.len -= 1;
        }
        let at = self.at(self.len);
        if self.ring.len() < at + self.value_size {
            self.ring.resize(at + self.value_size, 0);
        }
        // SAFETY: the caller's promise: a value. It cannot lie in the ring, whose addresses nobody gets.
        let value = unsafe { std::slice::from_raw_parts(value, self.value_size) };
        self.ring[at..at + self.value_size].copy_from_slice(value);
        self.len += 1;
        0
    }

    unsafe fn pop(&mut self, value: *mut u8) -> i64 {
        // SAFETY: the caller's promise.
        unsafe { self.take(value, true) }
    }

    unsafe fn peek(&mut self, value: *mut u8) -> i64 {
        // SAFETY: the caller's promise.
        unsafe { self.take(value, false) }
    }

    unsafe fn update(&mut self, _key: *const u8, _value: *const u8, _flags: u64, _cpu: u32) -> i64 {
        EINVAL
    }

    unsafe fn delete(&mut self, _key: *const u8) -> i64 {
        EINVAL
    }

    fn len(&self) -> u64 {
        self.len as u64
    }

    fn contains(&self, _address: u64, _size: u32) -> bool {
        false
    }

    fn locate(&mut self, _address: u64) -> Option<Place> {
        None
    }
}
