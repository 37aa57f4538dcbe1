// SPDX-License-Identifier: GPL-2.0-only
//! CPU time that was there and was not used: CPUs that idled while threads waited which may run anywhere. Of each
//! instant it is the lesser of the two numbers, so one waiting thread wastes one CPU at most. Without caps a policy
//! that keeps every CPU busy while anybody waits ("work-conserving") has next to none: what a wake-up takes.
//!
//! Threads that a cap holds back count as waiting. Threads that are bound to some CPUs do not, even if one of these
//! idles: where there are such it is the least that was wasted.
use crate::words::Nanos;

#[derive(Debug, Default)]
pub struct Unused {
    idle: u32,
    /// Of the waiting threads those that are bound to no CPUs.
    waiting: u32,
    at: Nanos,
    ns: Nanos,
}

impl Unused {
    /// So many CPUs, all idle.
    pub fn new(online: u32) -> Self {
        Unused {
            idle: online,
            ..Unused::default()
        }
    }

    /// CPU time so far.
    pub fn ns(&self, now: Nanos) -> Nanos {
        self.ns + (now - self.at) * Nanos::from(self.idle.min(self.waiting))
    }

    /// From now on there are so many more idle CPUs and waiting threads (by two's complement: fewer).
    #[inline]
    pub fn change(&mut self, now: Nanos, idle: u32, waiting: u32) {
        self.ns = self.ns(now);
        self.at = now;
        self.idle = self.idle.wrapping_add(idle);
        self.waiting = self.waiting.wrapping_add(waiting);
    }

    /// Idle CPUs and waiting threads.
    pub fn now(&self) -> (u32, u32) {
        (self.idle, self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEWER: u32 = u32::MAX;

    #[test]
    fn the_lesser_of_both_numbers_counts() {
        let mut unused = Unused::new(2);
        // Two idle, nobody waits; then one, then three threads; then one CPU takes one.
        unused.change(10, 0, 1);
        assert_eq!(unused.ns(15), 5);
        unused.change(20, 0, 2);
        unused.change(30, FEWER, FEWER);
        assert_eq!(unused.now(), (1, 2));
        assert_eq!(unused.ns(40), 10 + 2 * 10 + 10);
        unused.change(40, FEWER, FEWER);
        assert_eq!(unused.ns(100), 40);
    }
}
