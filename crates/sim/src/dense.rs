// SPDX-License-Identifier: GPL-2.0-only
//! A vector for what the machine numbers itself: CPUs, tasks, queues.
//!
//! Some hundred times per switch something is looked up by a number that the machine has handed out and never takes
//! back (vectors of this kind only grow). Numbers that come from outside are checked where they come in: a policy's
//! CPUs by `ops_cpu_valid`, its tasks by `TaskTable::find`, its queues by `find_user`; the workload's by `get`. So an
//! index is checked in builds with debug assertions only, which all tests are: the checks were a tenth of all
//! instructions.
use std::ops::{Deref, DerefMut, Index, IndexMut};
use std::ptr::NonNull;

/// See the module's comment.
#[derive(Clone, Debug)]
pub struct Dense<T>(Vec<T>);

impl<T> Default for Dense<T> {
    fn default() -> Self {
        Dense(Vec::new())
    }
}

impl<T> From<Vec<T>> for Dense<T> {
    fn from(v: Vec<T>) -> Self {
        Dense(v)
    }
}

impl<T> Dense<T> {
    /// Where an element is, until the vector grows.
    #[inline(always)]
    pub fn place(&mut self, i: usize) -> NonNull<T> {
        debug_assert!(i < self.0.len(), "{i} of {}", self.0.len());
        // SAFETY: the machine's own number; see the module's comment.
        unsafe { NonNull::new_unchecked(self.0.as_mut_ptr().add(i)) }
    }
}

impl<T> Deref for Dense<T> {
    type Target = Vec<T>;
    #[inline(always)]
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for Dense<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T> Index<usize> for Dense<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, i: usize) -> &T {
        debug_assert!(i < self.0.len(), "{i} of {}", self.0.len());
        // SAFETY: the machine's own number; see the module's comment.
        unsafe { self.0.get_unchecked(i) }
    }
}

impl<T> IndexMut<usize> for Dense<T> {
    #[inline(always)]
    fn index_mut(&mut self, i: usize) -> &mut T {
        debug_assert!(i < self.0.len(), "{i} of {}", self.0.len());
        // SAFETY: as `index`.
        unsafe { self.0.get_unchecked_mut(i) }
    }
}
