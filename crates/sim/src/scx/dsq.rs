// SPDX-License-Identifier: GPL-2.0-only
//! Dispatch queues: one local queue per CPU, one global queue per node, one bypass queue per CPU, and the
//! policy's own. A queue is a FIFO (linked through the tasks) or ordered by virtual time, never both.
//!
//! Nothing here calls the policy: rules about flags, custody and CPUs are in [`super::enqueue`].
use super::consts::*;
use super::ordered::{Entry, Ordered};
use crate::machine::Dense;
use crate::machine::task::{NONE, TaskHot};
use berth_policy::kview::ScxDispatchQ;
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// Index of a queue in its machine: local queues first (index = CPU), then global, bypass, user queues.
pub type DsqIx = u32;

/// Ids below this are found by a table, others by a search tree.
const DENSE_IDS: u64 = 1 << 16;

pub struct Dsq {
    pub id: u64,
    /// Tasks in it.
    pub nr: u32,
    /// Inserts so far: orders equal keys, and tells iterators what came after they began.
    pub seq: u32,
    pub head: u32,
    pub tail: u32,
    /// Made when first needed: most queues of most machines never are.
    ordered: Option<Box<Ordered>>,
    /// What a policy sees through `p->scx.dsq`; its address never changes.
    view: NonNull<ScxDispatchQ>,
    live: bool,
}

static NOTHING: Ordered = Ordered::empty();

impl Dsq {
    fn new(id: u64, view: NonNull<ScxDispatchQ>) -> Self {
        let mut dsq = Dsq {
            id,
            nr: 0,
            seq: 0,
            head: NONE,
            tail: NONE,
            ordered: None,
            view,
            live: true,
        };
        *dsq.view() = ScxDispatchQ {
            id,
            ..ScxDispatchQ::default()
        };
        dsq
    }

    /// Its ordered part.
    #[inline(always)]
    pub fn ordered(&self) -> &Ordered {
        match &self.ordered {
            Some(ordered) => ordered,
            None => &NOTHING,
        }
    }

    #[inline(always)]
    fn view(&mut self) -> &mut ScxDispatchQ {
        // SAFETY: the table's memory, which lives as long as the queue; no other reference to it is made, and
        // policies only look while none is in use.
        unsafe { self.view.as_mut() }
    }
}

/// All queues of a machine.
pub struct DsqTable {
    pub queues: Dense<Dsq>,
    nr_cpus: u32,
    nr_nodes: u32,
    dense: Vec<DsqIx>,
    book: Box<Book>,
}

/// What few events ask.
#[derive(Debug, Default)]
struct Book {
    sparse: BTreeMap<u64, DsqIx>,
    free: Vec<DsqIx>,
    /// Memory of the views: of the queues that are always there, then of one queue each. Made from boxed slices.
    views: Vec<NonNull<[ScxDispatchQ]>>,
}

impl Drop for DsqTable {
    fn drop(&mut self) {
        for views in &self.book.views {
            // SAFETY: made from a box in `more_views`, dropped once; the queues go, too.
            drop(unsafe { Box::from_raw(views.as_ptr()) });
        }
    }
}

impl DsqTable {
    pub fn new(nr_cpus: u32, nr_nodes: u32) -> Self {
        let mut table = DsqTable {
            queues: Dense::default(),
            nr_cpus,
            nr_nodes,
            dense: Vec::new(),
            book: Box::default(),
        };
        // Most policies make one queue.
        table.book.views.reserve_exact(2);
        let views = table.more_views((2 * nr_cpus + nr_nodes) as usize);
        // Most policies have one more.
        table.queues.reserve_exact(views.len() + 1);
        for i in 0..views.len() as u32 {
            let id = match i {
                i if i < nr_cpus => DSQ_LOCAL,
                i if i < nr_cpus + nr_nodes => DSQ_GLOBAL,
                _ => DSQ_BYPASS,
            };
            // SAFETY: inside the slice.
            let view = unsafe { views.cast::<ScxDispatchQ>().add(i as usize) };
            table.queues.push(Dsq::new(id, view));
        }
        table
    }

    fn more_views(&mut self, n: usize) -> NonNull<[ScxDispatchQ]> {
        let views: Box<[ScxDispatchQ]> = (0..n).map(|_| ScxDispatchQ::default()).collect();
        let views = NonNull::from(Box::leak(views));
        self.book.views.push(views);
        views
    }

    #[inline]
    pub fn local(&self, cpu: u32) -> DsqIx {
        cpu
    }

    /// Is there one global queue?
    #[inline]
    pub fn one_node(&self) -> bool {
        self.nr_nodes == 1
    }

    #[inline]
    pub fn global(&self, node: u32) -> DsqIx {
        self.nr_cpus + node
    }

    #[inline]
    pub fn bypass(&self, cpu: u32) -> DsqIx {
        self.nr_cpus + self.nr_nodes + cpu
    }

    #[inline]
    pub fn is_local(&self, q: DsqIx) -> bool {
        q < self.nr_cpus
    }

    #[inline]
    pub fn is_user(&self, q: DsqIx) -> bool {
        q >= 2 * self.nr_cpus + self.nr_nodes
    }

    #[inline]
    pub fn get(&self, q: DsqIx) -> &Dsq {
        &self.queues[q as usize]
    }

    /// The user queue of this id.
    #[inline]
    pub fn find_user(&self, id: u64) -> Option<DsqIx> {
        if id < DENSE_IDS {
            let q = *self.dense.get(id as usize)?;
            (q != NONE).then_some(q)
        } else {
            self.book.sparse.get(&id).copied()
        }
    }

    /// Make a user queue. Errors: `EINVAL` for a built-in id, `EEXIST`.
    pub fn create(&mut self, id: u64) -> Result<DsqIx, i64> {
        if id & DSQ_FLAG_BUILTIN != 0 {
            return Err(EINVAL);
        }
        if self.find_user(id).is_some() {
            return Err(EEXIST);
        }
        let q = match self.book.free.pop() {
            Some(q) => {
                let view = self.queues[q as usize].view;
                self.queues[q as usize] = Dsq::new(id, view);
                q
            }
            None => {
                if self.queues.len() == self.queues.capacity() {
                    // Most policies make one queue, or one per CPU: doubling would waste as much as there is.
                    let more = (self.queues.len() / 4).max(1);
                    self.queues.reserve_exact(more);
                }
                let view = self.more_views(1).cast();
                self.queues.push(Dsq::new(id, view));
                self.queues.len() as DsqIx - 1
            }
        };
        if id < DENSE_IDS {
            if self.dense.len() <= id as usize {
                self.dense.resize(id as usize + 1, NONE);
            }
            self.dense[id as usize] = q;
        } else {
            self.book.sparse.insert(id, q);
        }
        Ok(q)
    }

    /// Forget a user queue, which must be empty.
    pub fn destroy(&mut self, q: DsqIx) {
        let id = self.queues[q as usize].id;
        if id < DENSE_IDS {
            self.dense[id as usize] = NONE;
        } else {
            self.book.sparse.remove(&id);
        }
        self.queues[q as usize].live = false;
        self.book.free.push(q);
    }

    /// User queues in the order of their indices.
    pub fn users(&self) -> impl Iterator<Item = DsqIx> + '_ {
        let first = 2 * self.nr_cpus + self.nr_nodes;
        (first..self.queues.len() as DsqIx).filter(|q| self.queues[*q as usize].live)
    }

    /// What `p->scx.dsq` points to.
    #[inline]
    pub fn view(&mut self, q: DsqIx) -> *mut ScxDispatchQ {
        self.queues[q as usize].view.as_ptr()
    }

    /// Addresses of the views, for access checks.
    pub fn regions(&self) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        self.queues.iter().map(|q| {
            (
                q.view.as_ptr().cast_const().cast(),
                size_of::<ScxDispatchQ>(),
            )
        })
    }

    /// Put a task at the head or tail of a queue.
    #[inline]
    pub fn push(&mut self, hot: &mut Dense<TaskHot>, q: DsqIx, task: u32, at_head: bool) {
        let dsq = &mut self.queues[q as usize];
        let (prev, next) = if at_head {
            (NONE, dsq.head)
        } else {
            (dsq.tail, NONE)
        };
        let t = &mut hot[task as usize];
        debug_assert!(t.dsq == NONE && !t.deferred);
        t.prev = prev;
        t.next = next;
        t.on_priq = false;
        match prev {
            NONE => dsq.head = task,
            p => hot[p as usize].next = task,
        }
        match next {
            NONE => dsq.tail = task,
            n => hot[n as usize].prev = task,
        }
        Self::entered(dsq, &mut hot[task as usize], q);
    }

    /// Put a task into the ordered part of a queue.
    #[inline(always)]
    pub fn insert(&mut self, hot: &mut Dense<TaskHot>, q: DsqIx, task: u32, vtime: u64) {
        let dsq = &mut self.queues[q as usize];
        let t = &mut hot[task as usize];
        debug_assert!(t.dsq == NONE && !t.deferred);
        t.on_priq = true;
        t.key = vtime;
        Self::entered(dsq, t, q);
        dsq.ordered.get_or_insert_default().insert(Entry {
            vtime,
            seq: t.dsq_seq,
            task,
        });
    }

    #[inline]
    fn entered(dsq: &mut Dsq, t: &mut TaskHot, q: DsqIx) {
        dsq.seq = dsq.seq.wrapping_add(1);
        dsq.nr += 1;
        let (seq, nr) = (dsq.seq, dsq.nr);
        let view = dsq.view();
        (view.seq, view.nr) = (seq, nr);
        t.dsq_seq = dsq.seq;
        t.dsq = q;
    }

    /// Take a task out of the queue it is on.
    #[inline(always)]
    pub fn unlink(&mut self, hot: &mut Dense<TaskHot>, task: u32) {
        let t = &mut hot[task as usize];
        let dsq = &mut self.queues[t.dsq as usize];
        if t.on_priq {
            let e = Entry {
                vtime: t.key,
                seq: t.dsq_seq,
                task,
            };
            let there = dsq.ordered.as_mut().is_some_and(|o| o.remove(&e));
            debug_assert!(there);
            t.on_priq = false;
        } else {
            let (prev, next) = (t.prev, t.next);
            match prev {
                NONE => dsq.head = next,
                p => hot[p as usize].next = next,
            }
            match next {
                NONE => dsq.tail = prev,
                n => hot[n as usize].prev = prev,
            }
        }
        dsq.nr -= 1;
        let nr = dsq.nr;
        dsq.view().nr = nr;
        let t = &mut hot[task as usize];
        (t.next, t.prev, t.dsq) = (NONE, NONE, NONE);
    }

    /// First task in dispatch order.
    #[inline]
    pub fn first(&self, q: DsqIx) -> Option<u32> {
        let dsq = &self.queues[q as usize];
        if dsq.head != NONE {
            return Some(dsq.head);
        }
        dsq.ordered().first().map(|e| e.task)
    }

    /// Task after one that is on the queue.
    #[inline]
    pub fn following(&self, hot: &[TaskHot], task: u32) -> Option<u32> {
        let t = &hot[task as usize];
        if t.on_priq {
            let e = Entry {
                vtime: t.key,
                seq: t.dsq_seq,
                task,
            };
            return self.queues[t.dsq as usize]
                .ordered()
                .after(&e)
                .map(|e| e.task);
        }
        (t.next != NONE).then_some(t.next)
    }
}

/// A walk over a queue that survives removals and ignores what was queued after it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The queue's count when the walk began.
    pub limit: u32,
    pub reverse: bool,
    /// Last task returned, its place then, and its neighbour in walking order; `NONE` = at the start.
    pub task: u32,
    pub vtime: u64,
    pub seq: u32,
    pub done: bool,
}

impl Cursor {
    pub fn new(dsq: &Dsq, reverse: bool) -> Self {
        Cursor {
            limit: dsq.seq,
            reverse,
            task: NONE,
            vtime: 0,
            seq: 0,
            done: false,
        }
    }
}

impl DsqTable {
    /// The next task of a walk.
    ///
    /// In a FIFO, a task that has left the queue meanwhile has no place any more; the walk then goes on with
    /// the first (last) task queued after (before) it, which is where the kernel's cursor would stand,
    /// unless tasks were put at the head in between.
    pub fn next(&self, hot: &[TaskHot], q: DsqIx, c: &mut Cursor) -> Option<u32> {
        if c.done {
            return None;
        }
        let dsq = &self.queues[q as usize];
        loop {
            let next = if dsq.head == NONE && !dsq.ordered().is_empty() {
                let here = Entry {
                    vtime: c.vtime,
                    seq: c.seq,
                    task: c.task,
                };
                let e = match (c.task == NONE, c.reverse) {
                    (true, false) => dsq.ordered().first(),
                    (true, true) => dsq.ordered().last(),
                    (false, false) => dsq.ordered().after(&here),
                    (false, true) => dsq.ordered().before(&here),
                };
                e.map(|e| e.task)
            } else {
                self.fifo_next(hot, q, c)
            };
            let Some(task) = next else {
                c.done = true;
                return None;
            };
            let t = &hot[task as usize];
            (c.task, c.vtime, c.seq) = (task, t.key, t.dsq_seq);
            if (c.limit.wrapping_sub(t.dsq_seq) as i32) >= 0 {
                return Some(task);
            }
        }
    }

    fn fifo_next(&self, hot: &[TaskHot], q: DsqIx, c: &Cursor) -> Option<u32> {
        let dsq = &self.queues[q as usize];
        let link = |t: u32| {
            if c.reverse {
                hot[t as usize].prev
            } else {
                hot[t as usize].next
            }
        };
        let start = if c.reverse { dsq.tail } else { dsq.head };
        let some = |t: u32| (t != NONE).then_some(t);
        if c.task == NONE {
            return some(start);
        }
        let h = &hot[c.task as usize];
        if h.dsq == q && h.dsq_seq == c.seq {
            return some(link(c.task));
        }
        let mut at = start;
        while at != NONE {
            let age = hot[at as usize].dsq_seq.wrapping_sub(c.seq) as i32;
            if (age > 0) != c.reverse {
                return Some(at);
            }
            at = link(at);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::TaskTable;
    use berth_policy::needs::Needs;

    fn setup(n: u32) -> (DsqTable, TaskTable, DsqIx) {
        let mut q = DsqTable::new(2, 1);
        let mut t = TaskTable::new(0, 16, Needs::ALL);
        (0..n).for_each(|_| {
            t.alloc();
        });
        let user = q.create(7).unwrap();
        (q, t, user)
    }

    #[test]
    fn fifo_head_and_tail() {
        let (mut q, mut t, u) = setup(4);
        q.push(&mut t.hot, u, 0, false);
        q.push(&mut t.hot, u, 1, false);
        q.push(&mut t.hot, u, 2, true);
        assert_eq!(q.first(u), Some(2));
        assert_eq!(q.following(&t.hot, 2), Some(0));
        q.unlink(&mut t.hot, 0);
        assert_eq!(q.following(&t.hot, 2), Some(1));
        assert_eq!(q.get(u).nr, 2);
        q.unlink(&mut t.hot, 2);
        q.unlink(&mut t.hot, 1);
        assert_eq!(q.first(u), None);
    }

    #[test]
    fn ids() {
        let (mut q, _, u) = setup(0);
        assert_eq!(q.find_user(7), Some(u));
        assert_eq!(q.create(7), Err(EEXIST));
        assert_eq!(q.create(DSQ_GLOBAL), Err(EINVAL));
        let big = q.create(1 << 40).unwrap();
        assert_eq!(q.find_user(1 << 40), Some(big));
        q.destroy(big);
        assert_eq!(q.find_user(1 << 40), None);
        assert_eq!(q.find_user(8), None);
        assert_eq!(q.users().collect::<Vec<_>>(), [u]);
    }

    fn walk(q: &DsqTable, t: &TaskTable, u: DsqIx, c: &mut Cursor) -> Vec<u32> {
        std::iter::from_fn(|| q.next(&t.hot, u, c)).collect()
    }

    #[test]
    fn walks_survive_removal_and_ignore_late_comers() {
        for ordered in [false, true] {
            let (mut q, mut t, u) = setup(8);
            let put = |q: &mut DsqTable, t: &mut TaskTable, id: u32| match ordered {
                true => q.insert(&mut t.hot, u, id, id as u64 * 10),
                false => q.push(&mut t.hot, u, id, false),
            };
            (0..5).for_each(|id| put(&mut q, &mut t, id));
            let mut c = Cursor::new(q.get(u), false);
            assert_eq!(q.next(&t.hot, u, &mut c), Some(0));
            assert_eq!(q.next(&t.hot, u, &mut c), Some(1));
            q.unlink(&mut t.hot, 1);
            put(&mut q, &mut t, 6);
            q.unlink(&mut t.hot, 2);
            assert_eq!(walk(&q, &t, u, &mut c), [3, 4], "ordered {ordered}");
            assert_eq!(q.next(&t.hot, u, &mut c), None);
            let mut back = Cursor::new(q.get(u), true);
            assert_eq!(q.next(&t.hot, u, &mut back), Some(6));
            assert_eq!(q.next(&t.hot, u, &mut back), Some(4));
            q.unlink(&mut t.hot, 4);
            assert_eq!(walk(&q, &t, u, &mut back), [3, 0], "ordered {ordered}");
        }
    }
}
