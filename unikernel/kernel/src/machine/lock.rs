// SPDX-License-Identifier: GPL-2.0-only
//! A lock between CPUs and their interrupt handlers.
use super::port;
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, Ordering};

/// A value that one CPU at a time may use, with its interrupts off.
pub struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` gives the value to one CPU at a time, and a CPU with interrupts off runs nothing else.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Lock<T> {
        Lock {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// What `f` makes of the value. Must not be called inside itself: it would wait for ever.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let were_on = port::interrupts_off();
        while self
            .taken
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            spin_loop();
        }
        // SAFETY: `taken` was false and is true now by us: nobody else has a reference.
        let result = f(unsafe { &mut *self.value.get() });
        self.taken.store(false, Ordering::Release);
        if were_on {
            port::interrupts_on();
        }
        result
    }
}
