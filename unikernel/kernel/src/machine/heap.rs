// SPDX-License-Identifier: GPL-2.0-only
//! All memory behind the image, up to 3 GiB (where devices begin).
use super::lock::Lock;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};
use talc::{ErrOnOom, Span, Talc};

/// What the image needs behind it at least, bytes: the network's buffers and some threads.
pub const LEAST: usize = 3 << 20;

struct Heap(Lock<Talc<ErrOnOom>>);

#[global_allocator]
static HEAP: Heap = Heap(Lock::new(Talc::new(ErrOnOom)));
static SIZE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: talc gives out each byte of what it was given once at a time; the lock keeps it to one CPU at a time.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's: the layout's size is not zero.
        self.0
            .with(|talc| unsafe { talc.malloc(layout) }.map_or(null_mut(), NonNull::as_ptr))
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if let Some(memory) = NonNull::new(memory) {
            // SAFETY: the caller's: it is from `alloc` with this layout, and not used any more.
            self.0.with(|talc| unsafe { talc.free(memory, layout) });
        }
    }
}

/// Gives the heap its memory.
///
/// # Safety
/// `start..end` is memory that nothing else uses.
pub unsafe fn init(start: usize, end: usize) {
    let span = Span::new(start as *mut u8, end as *mut u8);
    // SAFETY: the caller's.
    let claimed = HEAP.0.with(|talc| unsafe { talc.claim(span) });
    assert!(
        claimed.is_ok(),
        "memory from {start:#x} to {end:#x} is too little for a heap"
    );
    SIZE.store(end - start, Ordering::Relaxed);
}

/// Bytes of the heap, used and free.
pub fn bytes() -> usize {
    SIZE.load(Ordering::Relaxed)
}
