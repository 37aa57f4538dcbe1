// SPDX-License-Identifier: GPL-2.0-only
//! Task and cgroup storage: one element per task (cgroup), found by the dense number the simulator gave it.
//!
//! A table holds the address of each element, null where there is none; `Map::data` points to it and `Map::max_entries`
//! is how many numbers it covers now, so that translated code finds an element without a call. The table grows and
//! moves; elements lie in chunks that never move. The first ones of both are part of the instance's arena.
use crate::abi::Map;
use crate::arena::Arena;
use crate::ir::MapDef;
use crate::maps::memory::Block;
use crate::maps::{ENOENT, Element, MapRuntime, Place};

/// Numbers of tasks and cgroups are dense; a larger one is of no object.
const MOST: u32 = 1 << 22;
/// Elements per chunk, and numbers that the first table covers.
const CHUNK: usize = 16;

pub struct Storage {
    /// Values, then as many keys: storages are keyed by a number here, and this is what callbacks see as the key.
    chunks: Vec<*mut u8>,
    /// Memory of chunks that are not in the arena.
    blocks: Vec<Block>,
    /// What `Map::data` points to, and how many entries it has: in the arena until it grows.
    table: *mut *mut u8,
    covers: usize,
    grown: Vec<*mut u8>,
    stride: usize,
    value_size: u32,
    live: u64,
    /// The values hold timers or kernel pointers.
    special: bool,
    /// Values removed whose timers and kernel pointers are not ended yet.
    freed: Vec<*mut u8>,
}

// SAFETY: the pointers lead into `blocks`, `grown` and the instance's arena, which move along.
unsafe impl Send for Storage {}

impl Storage {
    fn chunk_bytes(stride: usize) -> usize {
        CHUNK * (stride + size_of::<u32>())
    }

    /// Bytes of the arena that [`Storage::new`] takes.
    pub fn room(def: &MapDef) -> usize {
        let stride = (def.value_size as usize).next_multiple_of(8).max(8);
        CHUNK * size_of::<*mut u8>() + Self::chunk_bytes(stride)
    }

    /// `None`: no memory.
    pub fn new(def: &MapDef, raw: &mut Map, arena: &mut Arena) -> Option<Self> {
        let stride = (raw.stride() as usize).max(8);
        let table: *mut *mut u8 = arena.take(CHUNK * size_of::<*mut u8>(), 64)?.cast();
        let first = arena.take(Self::chunk_bytes(stride), 8)?;
        raw.data = table.cast();
        raw.max_entries = CHUNK as u32;
        let mut storage = Storage {
            chunks: Vec::new(),
            blocks: Vec::new(),
            table,
            covers: CHUNK,
            grown: Vec::new(),
            stride,
            value_size: raw.value_size,
            live: 0,
            special: !def.timers.is_empty() || !def.kptrs.is_empty(),
            freed: Vec::new(),
        };
        storage.add_chunk(0, first);
        Some(storage)
    }

    fn add_chunk(&mut self, number: usize, memory: *mut u8) {
        if self.chunks.len() <= number {
            self.chunks.resize(number + 1, std::ptr::null_mut());
        }
        self.chunks[number] = memory;
        for i in 0..CHUNK {
            // SAFETY: the keys follow the values.
            unsafe {
                self.key(number, i)
                    .cast_mut()
                    .write((number * CHUNK + i) as u32)
            }
        }
    }

    /// Address of the key of element `i` of a chunk.
    fn key(&self, chunk: usize, i: usize) -> *const u32 {
        // SAFETY: inside the chunk, after its values; 4-byte aligned because the stride is a multiple of 8.
        unsafe {
            self.chunks[chunk]
                .add(CHUNK * self.stride)
                .cast::<u32>()
                .add(i)
        }
    }

    /// Let table and chunks cover `index`. `None`: no memory.
    fn cover(&mut self, raw: &mut Map, index: usize) -> Option<*mut u8> {
        if index >= self.covers {
            let covers = (index + 1).next_power_of_two();
            let mut table = Vec::with_capacity(covers);
            // SAFETY: the table has this many entries.
            table.extend_from_slice(unsafe { std::slice::from_raw_parts(self.table, self.covers) });
            table.resize(covers, std::ptr::null_mut());
            self.grown = table;
            self.table = self.grown.as_mut_ptr();
            self.covers = covers;
            raw.data = self.table.cast();
            raw.max_entries = u32::try_from(covers).unwrap_or(u32::MAX);
        }
        let chunk = index / CHUNK;
        if self.chunks.get(chunk).is_none_or(|c| c.is_null()) {
            let block = Block::zeroed(Self::chunk_bytes(self.stride))?;
            let base = block.base();
            self.blocks.push(block);
            self.add_chunk(chunk, base);
        }
        // SAFETY: inside the chunk.
        Some(unsafe { self.chunks[chunk].add(index % CHUNK * self.stride) })
    }

    /// The element of `index`, created (zeroed, or from `init`) if absent; null if the host has no memory, or if no
    /// object has such a number.
    ///
    /// # Safety
    /// `init` is null or has `value_size` readable bytes; `raw` is the map this storage belongs to.
    pub unsafe fn create(&mut self, raw: &mut Map, index: u32, init: *const u8) -> *mut u8 {
        let value = self.get(index);
        if !value.is_null() || index >= MOST {
            return value;
        }
        let Some(value) = self.cover(raw, index as usize) else {
            return std::ptr::null_mut();
        };
        self.live += 1;
        // SAFETY: the table covers the index; the element has `stride` bytes, `init` `value_size`.
        unsafe {
            self.table.add(index as usize).write(value);
            if init.is_null() {
                value.write_bytes(0, self.stride);
            } else {
                std::ptr::copy(init, value, self.value_size as usize);
            }
        }
        value
    }

    /// The element of `index`, or null.
    pub fn get(&self, index: u32) -> *mut u8 {
        if index as usize >= self.covers {
            return std::ptr::null_mut();
        }
        // SAFETY: covered by the table.
        unsafe { self.table.add(index as usize).read() }
    }

    /// Frees the element of `index`; false if there was none.
    pub fn remove(&mut self, index: u32) -> bool {
        let value = self.get(index);
        if value.is_null() {
            return false;
        }
        // SAFETY: as in `get`.
        unsafe { self.table.add(index as usize).write(std::ptr::null_mut()) };
        self.live -= 1;
        if self.special {
            self.freed.push(value);
        }
        true
    }

    /// Chunk and offset in it of an address.
    fn chunk_at(&self, address: u64) -> Option<(usize, usize)> {
        let bytes = Self::chunk_bytes(self.stride) as u64;
        self.chunks.iter().enumerate().find_map(|(c, chunk)| {
            let start = *chunk as u64;
            (start != 0 && (start..start + bytes).contains(&address))
                .then(|| (c, (address - start) as usize))
        })
    }

    /// Number of a live element and offset in it.
    fn slot(&self, address: u64) -> Option<(u32, u32)> {
        let (c, offset) = self.chunk_at(address)?;
        let i = offset / self.stride;
        let index = (c * CHUNK + i) as u32;
        (i < CHUNK && !self.get(index).is_null()).then_some((index, (offset % self.stride) as u32))
    }
}

impl MapRuntime for Storage {
    /// The values of a chunk.
    fn piece(&self, address: u64) -> Option<(u64, u64)> {
        let (chunk, _) = self.chunk_at(address)?;
        let start = self.chunks[chunk] as u64;
        let end = start + (CHUNK * self.stride) as u64;
        (address < end).then_some((start, end))
    }

    /// Host side: the key is the dense number.
    unsafe fn lookup(&mut self, key: *const u8, _cpu: u32) -> *mut u8 {
        // SAFETY: four readable bytes.
        self.get(unsafe { key.cast::<u32>().read_unaligned() })
    }

    unsafe fn delete(&mut self, key: *const u8) -> i64 {
        // SAFETY: as `lookup`.
        if self.remove(unsafe { key.cast::<u32>().read_unaligned() }) {
            0
        } else {
            ENOENT
        }
    }

    fn next(&mut self, cursor: &mut u64, _cpu: u32) -> Option<Element> {
        while (*cursor as usize) < self.covers {
            let index = *cursor as u32;
            *cursor += 1;
            let value = self.get(index);
            if !value.is_null() {
                let key = self.key(index as usize / CHUNK, index as usize % CHUNK);
                return Some(Element {
                    key: key.cast(),
                    value,
                });
            }
        }
        None
    }

    fn freed(&mut self) -> Option<*mut u8> {
        self.freed.pop()
    }

    fn len(&self) -> u64 {
        self.live
    }

    fn contains(&self, address: u64, size: u32) -> bool {
        if let Some((_, offset)) = self.chunk_at(address)
            && let Some(in_keys) = offset.checked_sub(CHUNK * self.stride)
        {
            return in_keys % 4 + size as usize <= 4;
        }
        self.slot(address).is_some_and(|(_, offset)| {
            u64::from(offset) + u64::from(size) <= u64::from(self.value_size)
        })
    }

    fn locate(&mut self, address: u64) -> Option<Place> {
        let (index, offset) = self.slot(address)?;
        Some(Place {
            element: u64::from(index),
            offset,
            key: self
                .key(index as usize / CHUNK, index as usize % CHUNK)
                .cast(),
            value: self.get(index),
        })
    }
}
