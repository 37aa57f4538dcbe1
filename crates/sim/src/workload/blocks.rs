// SPDX-License-Identifier: GPL-2.0-only
//! Where threads are in steps that read or write.
use super::api::Nanos;
use super::device::disk::Job;

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum At {
    /// In no such step.
    #[default]
    Nowhere,
    /// It has done what comes before the disk.
    Before(Job, Nanos),
    /// The disk has it; whether it has slept for it.
    Inside(Job, Nanos, bool),
    /// It has done what comes behind the disk.
    Behind(Job, Nanos),
}

/// By thread; those without such steps have no place.
#[derive(Debug, Default)]
pub(super) struct Blocks(Vec<At>);

impl Blocks {
    /// Another thread has this number now.
    pub fn forget(&mut self, thread: u32) {
        if let Some(at) = self.0.get_mut(thread as usize) {
            *at = At::Nowhere;
        }
    }

    pub fn put(&mut self, thread: u32, at: At) {
        let number = thread as usize;
        if self.0.len() <= number {
            self.0.resize(number + 1, At::Nowhere);
        }
        self.0[number] = at;
    }

    pub fn get(&self, thread: u32) -> At {
        self.0.get(thread as usize).copied().unwrap_or_default()
    }
}
