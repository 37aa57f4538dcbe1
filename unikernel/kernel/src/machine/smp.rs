// SPDX-License-Identifier: GPL-2.0-only
//! The other CPUs are started.
use super::{CPUS_MAX, clock, cpu, lapic, port};
use crate::switch::Current;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::spin_loop;
use core::ptr::{copy_nonoverlapping, write_volatile};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Where the trampoline is put: a page below 1 MiB that nothing uses.
const PAGE: usize = 0x8000;
/// 16-byte words of a CPU's first stack: 64 KiB.
const STACK: usize = 4096;
/// A CPU that is not up by then is told and left out.
const LIMIT_US: u64 = 20_000_000;

// For the trampoline: where the CPU that is being started has its stack, and its number.
#[unsafe(no_mangle)]
static mut OTHER_STACK: usize = 0;
#[unsafe(no_mangle)]
static mut OTHER_INDEX: usize = 0;

static UP: AtomicUsize = AtomicUsize::new(1);

/// Starts the CPUs of `ids` but this one; how many are up then.
pub fn start(ids: &[u32]) -> usize {
    unsafe extern "C" {
        static trampoline_start: u8;
        static trampoline_end: u8;
    }
    let (from, to) = (&raw const trampoline_start, &raw const trampoline_end);
    // SAFETY: boot.s has these bytes; the page is conventional memory below the image, which nobody uses.
    unsafe { copy_nonoverlapping(from, PAGE as *mut u8, to as usize - from as usize) };
    let me = lapic::id();
    let others: Vec<u32> = ids.iter().copied().filter(|id| *id != me).collect();
    if others.len() >= CPUS_MAX {
        crate::say!("{} CPUs, of which {CPUS_MAX} are used", others.len() + 1);
    }
    for id in others.into_iter().take(CPUS_MAX - 1) {
        let up = UP.load(Ordering::Acquire);
        // Never freed: the CPU idles on it.
        let stack = vec![0u128; STACK].leak();
        // SAFETY: one CPU is started at a time, and reads them before it is up.
        unsafe {
            write_volatile(&raw mut OTHER_STACK, stack.as_ptr_range().end as usize);
            write_volatile(&raw mut OTHER_INDEX, up);
        }
        lapic::start_cpu(id, (PAGE >> 12) as u8);
        let end_us = clock::now_us() + LIMIT_US;
        while UP.load(Ordering::Acquire) == up {
            if clock::now_us() > end_us {
                // It may come later, and would then run on a stack that is another's.
                super::exit::refuse(
                    super::exit::Code::Machine,
                    format_args!("CPU {id} does not start"),
                );
            }
            spin_loop();
        }
    }
    UP.load(Ordering::Acquire)
}

#[unsafe(no_mangle)]
extern "C" fn start_other(index: usize) -> ! {
    cpu::init(index, Current::Idle);
    UP.fetch_add(1, Ordering::AcqRel);
    idle()
}

/// Sleeps from interrupt to interrupt; whatever is to run, their handlers find it.
fn idle() -> ! {
    loop {
        port::halt();
    }
}

/// The place where CPU 0 idles, as its first thread has the stack it began on.
pub fn idle_frame(stack: &'static mut [u128]) -> (u64, u64) {
    (
        idle as fn() -> ! as usize as u64,
        stack.as_ptr_range().end as u64 - 8,
    )
}
