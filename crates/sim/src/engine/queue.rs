// SPDX-License-Identifier: GPL-2.0-only
//! The event queue: a winner tree over slots.
//!
//! Every source of events (a CPU, a sleeping task's timer, an arrival stream) owns one slot, which holds
//! at most one due time. Setting a slot replaces its time, so nothing is ever cancelled and no stale
//! event is ever popped; pop and push are the same operation (`set` on the winner). A node holds the
//! smaller of its children's keys; a key packs `(time, slot)` in one u64, so equal times are ordered by
//! slot number: a fixed, documented order.
use crate::workload::api::Nanos;

/// Number of a slot.
pub type Slot = u32;

/// "No event": later than every time the queue can hold.
pub const NEVER: Nanos = u64::MAX;

/// Levels of a tree that is small.
const SMALL: u32 = 8;

/// See the module's comment.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// `tree[1]` is the root, `tree[leaves + slot]` the slot's key; empty = `u64::MAX`.
    tree: Vec<u64>,
    leaves: usize,
    /// Low bits of a key that hold the slot.
    shift: u32,
    used: Vec<bool>,
    free: Vec<Slot>,
    next: Slot,
}

impl EventQueue {
    /// A queue with room for `slots` slots (grows on demand).
    pub fn new(slots: usize) -> Self {
        let mut q = EventQueue {
            tree: Vec::new(),
            leaves: 0,
            shift: 0,
            used: Vec::new(),
            free: Vec::new(),
            next: 0,
        };
        q.resize(slots.max(2).next_power_of_two());
        q
    }

    fn resize(&mut self, leaves: usize) {
        let times: Vec<Nanos> = (0..self.leaves).map(|s| self.time(s as Slot)).collect();
        self.leaves = leaves;
        self.shift = leaves.trailing_zeros();
        self.tree = vec![u64::MAX; 2 * leaves];
        self.used.resize(leaves, false);
        for (slot, time) in times.into_iter().enumerate() {
            self.set(slot as Slot, time);
        }
    }

    /// A new slot, without an event. Lowest free number first among never used ones, else the one freed last.
    pub fn alloc(&mut self) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.next as usize == self.leaves {
                self.resize(2 * self.leaves);
            }
            self.next += 1;
            self.next - 1
        });
        self.used[slot as usize] = true;
        slot
    }

    /// Give a slot back; its event, if any, is void.
    pub fn release(&mut self, slot: Slot) {
        debug_assert!(self.used[slot as usize]);
        self.set(slot, NEVER);
        self.used[slot as usize] = false;
        self.free.push(slot);
    }

    /// The last instant the queue can hold, ns. Later events are never due.
    pub fn horizon(&self) -> Nanos {
        (u64::MAX >> self.shift) - 1
    }

    /// Due time of a slot.
    pub fn time(&self, slot: Slot) -> Nanos {
        match self.tree[self.leaves + slot as usize] {
            u64::MAX => NEVER,
            key => key >> self.shift,
        }
    }

    /// Let the slot be due at this time (replacing its earlier time); [`NEVER`] = not at all.
    #[inline]
    pub fn set(&mut self, slot: Slot, time: Nanos) {
        let key = if time > self.horizon() {
            u64::MAX
        } else {
            (time << self.shift) | slot as u64
        };
        let mut i = self.leaves + slot as usize;
        debug_assert!(i < self.tree.len());
        self.tree[i] = key;
        let mut winner = key;
        // A small tree is gone through to the top: whether a level changes is a jump hard to predict.
        if self.shift <= SMALL {
            for _ in 0..self.shift {
                winner = winner.min(self.tree[i ^ 1]);
                i >>= 1;
                self.tree[i] = winner;
            }
            return;
        }
        while i > 1 {
            winner = winner.min(self.tree[i ^ 1]);
            i >>= 1;
            if self.tree[i] == winner {
                return;
            }
            self.tree[i] = winner;
        }
    }

    /// Slots that are due up to this time, in no order, at most as many as there is room for; their number.
    pub fn soon(&self, until: Nanos, found: &mut [Slot]) -> usize {
        let latest = (until.min(self.horizon()) << self.shift) | (self.leaves as u64 - 1);
        let mut path = [0usize; 64];
        let (mut depth, mut n) = (1, 0);
        path[0] = 1;
        while depth > 0 && n < found.len() {
            depth -= 1;
            let node = path[depth];
            if self.tree[node] > latest {
                continue;
            }
            if node >= self.leaves {
                found[n] = (node - self.leaves) as Slot;
                n += 1;
            } else {
                (path[depth], path[depth + 1]) = (2 * node + 1, 2 * node);
                depth += 2;
            }
        }
        n
    }

    /// The tree's memory.
    pub fn memory(&self) -> &[u64] {
        &self.tree
    }

    /// The next event: its time and slot. The slot keeps its time until it is set again.
    #[inline]
    pub fn peek(&self) -> (Nanos, Slot) {
        match self.tree[1] {
            u64::MAX => (NEVER, 0),
            key => (key >> self.shift, (key & (self.leaves as u64 - 1)) as Slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn earliest_first_then_lowest_slot() {
        let mut q = EventQueue::new(2);
        let s: Vec<Slot> = (0..5).map(|_| q.alloc()).collect();
        assert_eq!(q.peek().0, NEVER);
        q.set(s[3], 20);
        q.set(s[1], 20);
        q.set(s[4], 30);
        assert_eq!(q.peek(), (20, s[1]));
        q.set(s[1], NEVER);
        assert_eq!(q.peek(), (20, s[3]));
        q.release(s[3]);
        assert_eq!(q.peek(), (30, s[4]));
        assert_eq!(q.alloc(), s[3]);
        assert_eq!(q.time(s[3]), NEVER);
    }

    #[test]
    fn what_is_due_soon() {
        let mut q = EventQueue::new(2);
        let s: Vec<Slot> = (0..9).map(|_| q.alloc()).collect();
        for (i, slot) in s.iter().enumerate() {
            q.set(*slot, 10 * i as u64);
        }
        q.set(s[1], NEVER);
        let mut found = [0; 8];
        let n = q.soon(40, &mut found);
        found[..n].sort_unstable();
        assert_eq!(found[..n], [s[0], s[2], s[3], s[4]]);
        assert_eq!(q.soon(40, &mut found[..2]), 2);
        assert_eq!(q.soon(NEVER, &mut found), 8);
        q.set(s[0], 5);
        assert_eq!(q.soon(4, &mut found), 0);
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_list(ops in proptest::collection::vec((0u32..40, 0u64..50), 1..300)) {
            let mut q = EventQueue::new(1);
            let slots: Vec<Slot> = (0..40).map(|_| q.alloc()).collect();
            let mut model = vec![NEVER; 40];
            for (s, t) in ops {
                let t = if t == 0 { NEVER } else { t };
                q.set(slots[s as usize], t);
                model[s as usize] = t;
                let best = (0..40).map(|i| (model[i], i as u32)).min().unwrap();
                if best.0 == NEVER {
                    prop_assert_eq!(q.peek().0, NEVER);
                } else {
                    prop_assert_eq!(q.peek(), best);
                }
            }
        }
    }
}
