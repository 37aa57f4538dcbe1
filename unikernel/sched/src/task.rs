// SPDX-License-Identifier: GPL-2.0-only
//! A task: what is known of it, what it had, where it belongs.

/// A task with whatever runs it (`payload`). Times in nanoseconds.
#[derive(Debug)]
pub struct Task<T> {
    /// Who it is; ties of a batch go to the smaller.
    pub id: u64,
    /// When it came.
    pub arrival_ns: u64,
    /// How long it is thought to run in all.
    pub estimate_ns: u64,
    /// Tasks of a class are thought to be alike, where estimates are learned.
    pub class: u8,
    /// What runs it.
    pub payload: T,
    pub(crate) attained_ns: u64,
    /// What is left of its slice; `None` before it is given one, and where slices have no end.
    pub(crate) slice_ns: Option<u64>,
    pub(crate) fresh: bool,
    pub(crate) level: usize,
    pub(crate) queue: usize,
    pub(crate) first_run_ns: Option<u64>,
    pub(crate) pieces: u32,
}

impl<T> Task<T> {
    /// A task that has not run yet.
    pub fn new(id: u64, arrival_ns: u64, estimate_ns: u64, payload: T) -> Task<T> {
        Task {
            id,
            arrival_ns,
            estimate_ns,
            class: 0,
            payload,
            attained_ns: 0,
            slice_ns: None,
            fresh: true,
            level: 0,
            queue: 0,
            first_run_ns: None,
            pieces: 0,
        }
    }

    /// It ran for `ran_ns`.
    pub fn charge(&mut self, ran_ns: u64) {
        self.attained_ns = self.attained_ns.saturating_add(ran_ns);
        self.slice_ns = self.slice_ns.map(|left| left.saturating_sub(ran_ns));
    }

    /// How long it may run on before [`crate::Scheduler::expire`]; `None`: for as long as it likes.
    pub fn budget_ns(&self) -> Option<u64> {
        self.slice_ns
    }

    /// CPU time it had.
    pub fn attained_ns(&self) -> u64 {
        self.attained_ns
    }

    /// The level it is on, from 0; always 0 but under M-RSF.
    pub fn level(&self) -> usize {
        self.level
    }

    /// The queue it belongs to, from 0.
    pub fn queue(&self) -> usize {
        self.queue
    }

    /// When it first ran.
    pub fn first_run_ns(&self) -> Option<u64> {
        self.first_run_ns
    }

    /// How many times it was dispatched.
    pub fn pieces(&self) -> u32 {
        self.pieces
    }

    /// Its estimated remaining time, negative once it ran longer than was thought.
    pub(crate) fn remaining_ns(&self) -> i64 {
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        signed(self.estimate_ns) - signed(self.attained_ns)
    }

    /// Gives it `slice_ns`, unless it still has one.
    pub(crate) fn give(&mut self, slice_ns: Option<u64>) {
        if core::mem::take(&mut self.fresh) {
            self.slice_ns = slice_ns;
        }
    }
}
