// SPDX-License-Identifier: GPL-2.0-only
//! Zeroed memory at a fixed address: what map elements live in. Large blocks cost nothing until touched.
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// A zeroed block that never moves. Raw on purpose: policies keep pointers into it, so no Rust reference to its
/// content is ever handed out.
#[derive(Debug)]
pub struct Block {
    base: *mut u8,
    bytes: usize,
    /// As the allocator gave it.
    memory: *mut u8,
    layout: Layout,
}

// SAFETY: owned memory.
unsafe impl Send for Block {}

impl Block {
    /// Cache-line aligned, so that element layout does not depend on the allocator.
    const ALIGN: usize = 64;

    /// `None` if the host has no such amount of memory.
    pub fn zeroed(bytes: usize) -> Option<Block> {
        // Asked for a larger alignment than its own, the allocator would write the zeros, and so touch every page.
        let layout = Layout::from_size_align(bytes.checked_add(Self::ALIGN)?, 16).ok()?;
        // SAFETY: the layout has a non-zero size.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            return None;
        }
        // SAFETY: at most ALIGN - 1 bytes further, inside the block.
        let base = unsafe { memory.add(memory.align_offset(Self::ALIGN)) };
        Some(Block {
            base,
            bytes,
            memory,
            layout,
        })
    }

    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Whether `size` bytes at `addr` lie inside.
    pub fn contains(&self, addr: u64, size: u32) -> bool {
        let base = self.base as u64;
        addr >= base && (addr - base).saturating_add(size.into()) <= self.bytes as u64
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with exactly this layout.
        unsafe { dealloc(self.memory, self.layout) }
    }
}

/// Which bytes of a value a plain copy leaves alone: timers and kernel pointers belong to the map.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// Offset and length, ascending.
    special: Vec<(usize, usize)>,
    value_size: usize,
}

impl Fields {
    /// Size of `struct bpf_timer`.
    const TIMER: usize = 16;

    pub fn new(value_size: u32, timers: &[u32], kptrs: &[u32]) -> Fields {
        let value_size = value_size as usize;
        let mut special: Vec<(usize, usize)> = timers
            .iter()
            .map(|&o| (o as usize, Self::TIMER))
            .chain(kptrs.iter().map(|&o| (o as usize, 8)))
            .filter(|&(o, n)| o + n <= value_size)
            .collect();
        special.sort_unstable();
        Fields {
            special,
            value_size,
        }
    }

    pub fn any(&self) -> bool {
        !self.special.is_empty()
    }

    /// Copy a value except its special fields. The two may overlap.
    ///
    /// # Safety
    /// Both sides are valid for the value size.
    pub unsafe fn copy(&self, from: *const u8, to: *mut u8) {
        let mut at = 0;
        // SAFETY: every range ends at or below the value size.
        unsafe {
            for &(offset, len) in &self.special {
                if offset > at {
                    std::ptr::copy(from.add(at), to.add(at), offset - at);
                }
                at = at.max(offset + len);
            }
            if self.value_size > at {
                std::ptr::copy(from.add(at), to.add(at), self.value_size - at);
            }
        }
    }

    /// Zero the special fields only.
    ///
    /// # Safety
    /// `value` is valid for the value size.
    pub unsafe fn clear(&self, value: *mut u8) {
        for &(offset, len) in &self.special {
            // SAFETY: inside the value.
            unsafe { std::ptr::write_bytes(value.add(offset), 0, len) }
        }
    }
}
