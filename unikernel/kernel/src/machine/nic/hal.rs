// SPDX-License-Identifier: GPL-2.0-only
//! Memory as devices see it: at the same addresses.
use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

const PAGE: usize = 4096;

/// The heap's.
pub struct Memory;

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * PAGE, PAGE).expect("a queue is some pages")
}

// SAFETY: memory is mapped as it is, so that addresses are what devices see; pages come from the heap, zeroed, and are
// nobody else's until they are given back.
unsafe impl Hal for Memory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout(pages)) });
        let memory = memory.expect("memory for the network card's queues");
        (memory.as_ptr() as PhysAddr, memory)
    }

    unsafe fn dma_dealloc(_: PhysAddr, memory: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: the caller's: it is from `dma_alloc`.
        unsafe { dealloc(memory.as_ptr(), layout(pages)) }
        0
    }

    unsafe fn mmio_phys_to_virt(address: PhysAddr, _: usize) -> NonNull<u8> {
        assert!(
            address < 4 << 30,
            "a device at {address:#x}, above the 4 GiB that are mapped"
        );
        NonNull::new(address as *mut u8).expect("no device is at address 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.as_ptr().cast::<u8>() as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
