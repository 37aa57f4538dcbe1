// SPDX-License-Identifier: GPL-2.0-only
//! The event queue: a winner tree over slots.
//!
//! Every source of events (a CPU, a sleeping task's timer, an arrival stream) owns one slot, which holds
//! at most one due time. Setting a slot replaces its time, so nothing is ever cancelled and no stale
//! event is ever popped; pop and push are the same operation (`set` on the winner). A key packs `(time, slot)` in one
//! u64, so equal times are ordered by slot number: a fixed, documented order.
//!
//! Four nodes with one parent are a group, which is half a cache line; the parent holds the smallest of their keys.
//! Group 0 is below the root; the groups below the nodes of group g are 4 g + 1 to 4 g + 4.
use crate::dense::Dense;
use crate::words::Nanos;

/// Number of a slot.
pub type Slot = u32;

/// "No event": later than every time the queue can hold.
pub const NEVER: Nanos = u64::MAX;

/// Levels of a tree that is small.
const SMALL: u32 = 4;

/// Nodes with one parent.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Group([u64; 4]);

impl Group {
    const EMPTY: Group = Group([u64::MAX; 4]);
}

/// See the module's comment.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// The smallest key; empty = `u64::MAX`.
    root: u64,
    /// From the root's down to those of the leaves, which are as many as there is room for slots.
    groups: Dense<Group>,
    /// First group of leaves.
    leaves: usize,
    /// See [`EventQueue::horizon`].
    horizon: Nanos,
    /// A tree this small is gone through to the top.
    small: bool,
    /// Low bits of a key that hold the slot.
    shift: u32,
    book: Box<Book>,
}

/// Which slots are given out: no event asks.
#[derive(Clone, Debug, Default)]
struct Book {
    used: Vec<bool>,
    free: Vec<Slot>,
    next: Slot,
}

impl EventQueue {
    /// A queue with room for `slots` slots (grows on demand).
    pub fn new(slots: usize) -> Self {
        let mut q = EventQueue {
            root: u64::MAX,
            groups: Dense::default(),
            leaves: 0,
            horizon: 0,
            small: true,
            shift: 0,
            book: Box::default(),
        };
        q.resize(slots.max(2).next_power_of_two());
        q
    }

    fn resize(&mut self, slots: usize) {
        let times: Vec<Nanos> = (0..self.book.used.len())
            .map(|s| self.time(s as Slot))
            .collect();
        self.shift = slots.trailing_zeros();
        self.horizon = (u64::MAX >> self.shift) - 1;
        let mut levels = 1;
        self.leaves = 0;
        while 4usize.pow(levels) < slots {
            levels += 1;
            self.leaves = 4 * self.leaves + 1;
        }
        self.small = levels <= SMALL;
        self.root = u64::MAX;
        self.groups = vec![Group::EMPTY; self.leaves + slots.div_ceil(4)].into();
        self.book.used.resize(slots, false);
        for (slot, time) in times.into_iter().enumerate() {
            self.set(slot as Slot, time);
        }
    }

    /// A new slot, without an event. Lowest free number first among never used ones, else the one freed last.
    pub fn alloc(&mut self) -> Slot {
        let slot = self.book.free.pop().unwrap_or_else(|| {
            if self.book.next as usize == self.book.used.len() {
                self.resize(2 * self.book.used.len());
            }
            self.book.next += 1;
            self.book.next - 1
        });
        self.book.used[slot as usize] = true;
        slot
    }

    /// Give a slot back; its event, if any, is void.
    pub fn release(&mut self, slot: Slot) {
        debug_assert!(self.book.used[slot as usize]);
        self.set(slot, NEVER);
        self.book.used[slot as usize] = false;
        self.book.free.push(slot);
    }

    /// The last instant the queue can hold, ns. Later events are never due.
    #[inline]
    pub fn horizon(&self) -> Nanos {
        self.horizon
    }

    /// What a slot holds if it is due at this time.
    #[inline(always)]
    fn key(&self, slot: Slot, time: Nanos) -> u64 {
        if time > self.horizon {
            u64::MAX
        } else {
            (time << self.shift) | u64::from(slot)
        }
    }

    #[inline(always)]
    fn leaf(&self, slot: Slot) -> u64 {
        self.groups[self.leaves + slot as usize / 4].0[slot as usize % 4]
    }

    /// Due time of a slot.
    pub fn time(&self, slot: Slot) -> Nanos {
        match self.leaf(slot) {
            u64::MAX => NEVER,
            key => key >> self.shift,
        }
    }

    /// Let the slot be due at this time (replacing its earlier time); [`NEVER`] = not at all.
    #[inline(never)] // one copy: it is called from a dozen places, which share the cache for code
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    pub fn set(&mut self, slot: Slot, time: Nanos) {
        let key = self.key(slot, time);
        let mut node = 4 * self.leaves + slot as usize;
        if *self.node(node) == key {
            return;
        }
        let mut winner = key;
        loop {
            winner = self.put(node, winner);
            let Some(above) = (node / 4).checked_sub(1) else {
                break;
            };
            node = above;
            // A small tree is gone through to the top: whether a level changes is a jump hard to predict.
            if !self.small && *self.node(node) == winner {
                return;
            }
        }
        self.root = winner;
    }

    /// A node by its number: those of group g are 4 g to 4 g + 3, and what is below node n is group n + 1.
    #[inline(always)]
    fn node(&mut self, n: usize) -> &mut u64 {
        debug_assert!(n / 4 < self.groups.len());
        // SAFETY: groups are four nodes each, one behind the other.
        unsafe { &mut *self.groups.as_mut_ptr().cast::<u64>().add(n) }
    }

    /// Put a key into a node; the winner of its group. The other three are compared first, so that keys on their way to
    /// the root wait for one comparison a level.
    #[inline(always)]
    fn put(&mut self, n: usize, key: u64) -> u64 {
        let others = (*self.node(n ^ 1))
            .min(*self.node(n ^ 2))
            .min(*self.node(n ^ 3));
        *self.node(n) = key;
        others.min(key)
    }

    /// Slots that are due up to this time, in no order, at most as many as there is room for; their number.
    pub fn soon(&self, until: Nanos, found: &mut [Slot]) -> usize {
        let room = 1 << self.shift;
        let latest = (until.min(self.horizon()) << self.shift) | (room - 1);
        if self.root > latest {
            return 0;
        }
        let mut path = [0usize; 64];
        let (mut depth, mut n) = (1, 0);
        while depth > 0 && n < found.len() {
            depth -= 1;
            let at = path[depth];
            for (i, key) in self.groups[at].0.iter().enumerate().rev() {
                if *key > latest {
                    continue;
                }
                if at < self.leaves {
                    path[depth] = 4 * at + 1 + i;
                    depth += 1;
                } else if n < found.len() {
                    found[n] = (4 * (at - self.leaves) + i) as Slot;
                    n += 1;
                }
            }
        }
        n
    }

    /// Address and bytes of the tree, the part near its root first.
    pub fn memory(&self) -> (*const u8, usize) {
        (
            self.groups.as_ptr().cast(),
            size_of_val(self.groups.as_slice()),
        )
    }

    /// The next event: its time and slot. The slot keeps its time until it is set again.
    #[inline]
    pub fn peek(&self) -> (Nanos, Slot) {
        match self.root {
            u64::MAX => (NEVER, 0),
            key => (key >> self.shift, (key & ((1 << self.shift) - 1)) as Slot),
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
