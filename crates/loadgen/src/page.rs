// SPDX-License-Identifier: GPL-2.0-only
//! Words that all processes of a run share: the one that made it, and one for each micro-VM.
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// The words that every process waits at.
#[repr(C)]
pub struct Words {
    /// Changes from 0 when the run is over; every sleeping thread also waits on it.
    pub stop: AtomicU32,
    /// Threads that are set up.
    pub ready: AtomicU32,
    /// Changes from 0 when they may start.
    pub gate: AtomicU32,
    /// Start of the run; 0 until it is known.
    pub start_ns: AtomicU64,
}

/// Shared memory: [`Words`], then the id of each thread.
#[derive(Debug)]
pub struct Page {
    base: *mut u8,
    threads: usize,
}

// SAFETY: the mapping lives as long as the value, and holds atomic words only.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

const TIDS: usize = 64;

impl Page {
    /// For so many threads; all words are 0.
    ///
    /// # Errors
    /// The kernel has no room.
    pub fn new(threads: usize) -> io::Result<Arc<Page>> {
        // SAFETY: a new mapping, zeroed by the kernel.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes(threads),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Arc::new(Page {
            base: base.cast(),
            threads,
        }))
    }

    pub fn words(&self) -> &Words {
        const { assert!(size_of::<Words>() <= TIDS) };
        // SAFETY: inside the mapping, aligned to a page, of atomic words that are valid as zeroes.
        unsafe { &*self.base.cast::<Words>() }
    }

    fn tid(&self, thread: usize) -> &AtomicI32 {
        assert!(thread < self.threads);
        // SAFETY: inside the mapping by the line above, aligned.
        unsafe { &*self.base.add(TIDS).cast::<AtomicI32>().add(thread) }
    }
}

fn bytes(threads: usize) -> usize {
    TIDS + threads * size_of::<AtomicI32>()
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody uses it any more.
        unsafe { libc::munmap(self.base.cast(), bytes(self.threads)) };
    }
}

/// The id of a thread; 0 until it runs.
#[derive(Debug)]
pub enum Tid {
    /// That may run in another process.
    Anywhere {
        page: Arc<Page>,
        thread: usize,
    },
    Here(AtomicI32),
}

impl Tid {
    pub fn of(page: &Arc<Page>, thread: u32) -> Tid {
        Tid::Anywhere {
            page: Arc::clone(page),
            thread: thread as usize,
        }
    }

    fn word(&self) -> &AtomicI32 {
        match self {
            Tid::Anywhere { page, thread } => page.tid(*thread),
            Tid::Here(tid) => tid,
        }
    }

    pub fn set(&self, tid: i32) {
        self.word().store(tid, Ordering::Release);
    }

    pub fn get(&self) -> i32 {
        self.word().load(Ordering::Acquire)
    }
}
