// SPDX-License-Identifier: GPL-2.0-only
//! Task and cgroup storage: one element per task (cgroup), found by the dense number the simulator gave it.
//!
//! Chunks of [`STORAGE_CHUNK`] elements never move; the tables of chunks grow. `Map::data` and
//! `Map::present` point to the tables, `Map::max_entries` is how many numbers they cover now, so that
//! translated code can look an element up without a call.
use crate::abi::{Map, STORAGE_CHUNK};
use crate::ir::MapDef;
use crate::maps::{ENOENT, Element, MapRuntime, Place};

struct Chunk {
    /// u64 for alignment.
    values: Box<[u64]>,
    present: Box<[u8; STORAGE_CHUNK]>,
    /// Storages are keyed by a number here; what callbacks see as the key.
    keys: Box<[u32; STORAGE_CHUNK]>,
}

pub struct Storage {
    chunks: Vec<Option<Chunk>>,
    /// What `Map::data` and `Map::present` point to.
    values: Vec<*mut u8>,
    present: Vec<*mut u8>,
    stride: u64,
    value_size: u32,
    live: u64,
    /// The values hold timers or kernel pointers.
    special: bool,
    /// Values removed whose timers and kernel pointers are not ended yet.
    freed: Vec<*mut u8>,
}

// SAFETY: the pointers lead into `chunks`, which moves along.
unsafe impl Send for Storage {}

impl Storage {
    pub fn new(def: &MapDef, raw: &mut Map) -> Self {
        raw.max_entries = 0;
        Storage {
            chunks: Vec::new(),
            values: Vec::new(),
            present: Vec::new(),
            stride: raw.stride,
            value_size: raw.value_size,
            live: 0,
            special: !def.timers.is_empty() || !def.kptrs.is_empty(),
            freed: Vec::new(),
        }
    }

    /// The element of `index`, created (zeroed, or from `init`) if absent.
    ///
    /// # Safety
    /// `init` is null or has `value_size` readable bytes; `raw` is the map this storage belongs to.
    pub unsafe fn create(&mut self, raw: &mut Map, index: u32, init: *const u8) -> *mut u8 {
        let (c, i) = (
            index as usize / STORAGE_CHUNK,
            index as usize % STORAGE_CHUNK,
        );
        if c >= self.chunks.len() {
            self.chunks.resize_with(c + 1, || None);
            self.values.resize(c + 1, std::ptr::null_mut());
            self.present.resize(c + 1, std::ptr::null_mut());
            raw.data = self.values.as_mut_ptr().cast();
            raw.present = self.present.as_mut_ptr().cast();
            raw.max_entries = ((c + 1) * STORAGE_CHUNK) as u32;
        }
        let chunk = self.chunks[c].get_or_insert_with(|| Chunk {
            values: vec![0; STORAGE_CHUNK * self.stride as usize / 8].into_boxed_slice(),
            present: Box::new([0; STORAGE_CHUNK]),
            keys: Box::new(std::array::from_fn(|k| (c * STORAGE_CHUNK + k) as u32)),
        });
        self.values[c] = chunk.values.as_mut_ptr().cast();
        self.present[c] = chunk.present.as_mut_ptr();
        // SAFETY: `i` is below the number of elements of a chunk.
        let value = unsafe { self.values[c].add(i * self.stride as usize) };
        if chunk.present[i] == 0 {
            chunk.present[i] = 1;
            self.live += 1;
            // SAFETY: the element has `value_size` bytes, `init` too.
            unsafe {
                if init.is_null() {
                    value.write_bytes(0, self.stride as usize);
                } else {
                    std::ptr::copy(init, value, self.value_size as usize);
                }
            }
        }
        value
    }

    /// The element of `index`, or null.
    pub fn get(&self, index: u32) -> *mut u8 {
        let (c, i) = (
            index as usize / STORAGE_CHUNK,
            index as usize % STORAGE_CHUNK,
        );
        match self.chunks.get(c) {
            Some(Some(chunk)) if chunk.present[i] != 0 => {
                // SAFETY: as in `create`.
                unsafe { self.values[c].add(i * self.stride as usize) }
            }
            _ => std::ptr::null_mut(),
        }
    }

    /// Frees the element of `index`; false if there was none.
    pub fn remove(&mut self, index: u32) -> bool {
        let (c, i) = (
            index as usize / STORAGE_CHUNK,
            index as usize % STORAGE_CHUNK,
        );
        match self.chunks.get_mut(c) {
            Some(Some(chunk)) if chunk.present[i] != 0 => {
                chunk.present[i] = 0;
                self.live -= 1;
                if self.special {
                    // SAFETY: as in `create`.
                    self.freed
                        .push(unsafe { self.values[c].add(i * self.stride as usize) });
                }
                true
            }
            _ => false,
        }
    }

    fn slot(&self, address: u64) -> Option<(u32, u32)> {
        let bytes = STORAGE_CHUNK as u64 * self.stride;
        for (c, chunk) in self.chunks.iter().enumerate() {
            let Some(chunk) = chunk else { continue };
            let start = chunk.values.as_ptr() as u64;
            if (start..start + bytes).contains(&address) {
                let i = (address - start) / self.stride;
                let live = chunk.present[i as usize] != 0;
                return live.then_some((
                    (c * STORAGE_CHUNK) as u32 + i as u32,
                    ((address - start) % self.stride) as u32,
                ));
            }
        }
        None
    }
}

impl MapRuntime for Storage {
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
        while (*cursor as usize) < self.chunks.len() * STORAGE_CHUNK {
            let index = *cursor as u32;
            *cursor += 1;
            let value = self.get(index);
            if !value.is_null() {
                let chunk = self.chunks[index as usize / STORAGE_CHUNK].as_ref()?;
                let key = (&raw const chunk.keys[index as usize % STORAGE_CHUNK]).cast();
                return Some(Element { key, value });
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
        let is_key = self.chunks.iter().flatten().any(|c| {
            let keys = c.keys.as_ptr() as u64;
            (keys..keys + STORAGE_CHUNK as u64 * 4).contains(&address)
                && (address - keys) % 4 + u64::from(size) <= 4
        });
        if is_key {
            return true;
        }
        self.slot(address).is_some_and(|(_, offset)| {
            u64::from(offset) + u64::from(size) <= u64::from(self.value_size)
        })
    }

    fn locate(&mut self, address: u64) -> Option<Place> {
        let (index, offset) = self.slot(address)?;
        let chunk = self.chunks[index as usize / STORAGE_CHUNK].as_ref()?;
        Some(Place {
            element: u64::from(index),
            offset,
            key: (&raw const chunk.keys[index as usize % STORAGE_CHUNK]).cast(),
            value: self.get(index),
        })
    }
}
