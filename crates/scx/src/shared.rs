// SPDX-License-Identifier: GPL-2.0-only
//! The memory of an array map, shared with the kernel.
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// An array map's elements as 64-bit words, as they are at the moment. The kernel writes them meanwhile: each word is
/// whole, several of them need not be of one moment.
#[derive(Debug)]
pub struct Shared {
    at: *mut libc::c_void,
    bytes: usize,
    words: usize,
}

// SAFETY: the memory is mapped for this process as long as the value lives, and only touched by atomic operations.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps `elements` elements of so many words each.
    pub(crate) fn new(map: BorrowedFd<'_>, words: usize, elements: usize) -> io::Result<Shared> {
        let bytes = words * 8 * elements;
        let how = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                how,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Shared { at, bytes, words })
    }

    /// The words of an element; none if there is no such element.
    pub fn element(&self, index: usize) -> &[AtomicU64] {
        // SAFETY: mapped, aligned to a page, and as long as `self`; atomic, since the kernel writes it too.
        let all = unsafe {
            std::slice::from_raw_parts(self.at.cast::<AtomicU64>().cast_const(), self.bytes / 8)
        };
        let first = index.saturating_mul(self.words);
        all.get(first..first.saturating_add(self.words))
            .unwrap_or(&[])
    }

    /// Sets all words of an element to 0.
    pub fn clear(&self, index: usize) {
        for word in self.element(index) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no reference is left.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}
