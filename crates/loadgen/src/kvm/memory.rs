// SPDX-License-Identifier: GPL-2.0-only
//! A micro-VM's memory, as the host sees it: words that host and guest share.
use super::layout;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub struct Memory {
    base: *mut u8,
}

// SAFETY: the mapping lives as long as the value, and is only used by atomic words.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// # Errors
    /// The kernel has no room.
    pub fn new() -> io::Result<Memory> {
        // SAFETY: a new mapping; shared with the process that runs the VM.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                layout::BYTES as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Memory { base: base.cast() })
    }

    pub fn host_address(&self) -> u64 {
        self.base as u64
    }

    /// The word at a guest address. Panics on an address that this program cannot have made.
    pub fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < layout::BYTES);
        // SAFETY: inside the mapping, aligned, and every other user of it is an atomic word or the guest.
        unsafe { &*self.base.add(at as usize).cast::<AtomicU64>() }
    }

    pub fn set(&self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    pub fn get(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Copies bytes to a word's address.
    pub fn copy(&self, at: u64, bytes: &[u8]) {
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.set(at + 8 * i as u64, u64::from_le_bytes(word));
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody uses it any more.
        unsafe { libc::munmap(self.base.cast(), layout::BYTES as usize) };
    }
}

/// A counter that the guest keeps.
#[derive(Clone, Debug)]
pub struct Counter {
    pub memory: Arc<Memory>,
    pub at: u64,
}

impl Counter {
    pub fn get(&self) -> u64 {
        self.memory.get(self.at)
    }
}

/// Hands out guest memory from [`layout::FREE`] on.
#[derive(Debug)]
pub struct Room {
    next: u64,
}

impl Room {
    pub fn new() -> Room {
        Room { next: layout::FREE }
    }

    /// Zeroed bytes, each piece on a cache line of its own.
    ///
    /// # Errors
    /// The VM's memory is used up.
    pub fn take(&mut self, bytes: u64) -> Result<u64, super::KvmError> {
        let at = self.next;
        self.next = at.saturating_add(bytes).next_multiple_of(64);
        if self.next > layout::BYTES {
            return Err(super::KvmError::Unfit(format!(
                "its tasks and queues need more than {} MB of guest memory",
                layout::BYTES >> 20
            )));
        }
        Ok(at)
    }
}
