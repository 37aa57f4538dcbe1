// SPDX-License-Identifier: GPL-2.0-only
//! A copied pointer to what the simulation owns.
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Points at something to act on; copies are free. Policy code calls kernel functions, which act on the machine while
/// one of its methods is in progress: therefore nobody holds a Rust reference to a machine, a CPU or the world, and
/// each access makes one that ends with the expression.
#[derive(Debug)]
pub struct Ref<T>(NonNull<T>);

impl<T> Clone for Ref<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> Ref<T> {
    /// # Safety
    /// What it points at outlives all use of the copies without moving, on one thread, and is reached through copies
    /// only.
    #[inline(always)]
    pub unsafe fn new(to: NonNull<T>) -> Self {
        Ref(to)
    }

    #[inline(always)]
    pub fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Deref for Ref<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as `new` was promised; the reference lasts for one expression that runs no policy code.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Ref<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as `deref`.
        unsafe { self.0.as_mut() }
    }
}
