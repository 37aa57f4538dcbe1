// SPDX-License-Identifier: GPL-2.0-only
//! One CPU: what runs, until when, and its run queue's state.
use super::pace::Pace;
use super::task::NONE;
use crate::engine::queue::{NEVER, Slot};
use crate::words::{Nanos, TaskId};
use berth_policy::kview::Rq;

/// Ends of a list linked through the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    pub head: u32,
    pub tail: u32,
}

impl Default for List {
    fn default() -> Self {
        List {
            head: NONE,
            tail: NONE,
        }
    }
}

/// A list of event slots that is nearly always short: the first ones lie in it.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    few: [Slot; 5],
    /// Of `few`, how many there are.
    nr: u32,
    /// One word in the common case.
    #[allow(clippy::box_collection)] // a list that is hardly ever made takes 8 bytes, not 24
    more: Option<Box<Vec<Slot>>>,
}

impl Slots {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.nr == 0
    }

    #[inline]
    pub fn push(&mut self, slot: Slot) {
        match self.few.get_mut(self.nr as usize) {
            Some(place) => {
                *place = slot;
                self.nr += 1;
            }
            None => self.more.get_or_insert_default().push(slot),
        }
    }

    /// In the order in which they were put in.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        let more = self.more.iter().flat_map(|more| more.iter());
        self.few.iter().take(self.nr as usize).chain(more).copied()
    }

    /// Keeps its memory.
    pub fn clear(&mut self) {
        self.nr = 0;
        if let Some(more) = &mut self.more {
            more.clear();
        }
    }
}

/// What most events touch comes first, and what few touch is made when first needed: five cache lines.
#[repr(C, align(64))]
pub struct Cpu {
    pub curr: TaskId,
    /// Its idle task; number = CPU number.
    pub idle: TaskId,
    pub slot: Slot,
    pub online: bool,
    /// A guest's CPU that has no physical CPU now: it has no event in the queue.
    pub paused: bool,
    /// A guest's: exits of spinning tasks since it has its physical CPU: each doubles the next window.
    pub spun: u8,
    /// A guest's: it takes its late interrupts at `late_at`.
    pub takes_late: bool,
    /// A guest's: what runs on it was forbidden it while it had no physical CPU.
    pub misplaced: bool,
    /// When it enters its scheduler (an IPI on its way, or now).
    pub resched_at: Nanos,
    /// When the running task has done what it asked for.
    pub run_end: Nanos,
    /// Next timer tick that matters.
    pub tick_at: Nanos,
    /// Useful work of the running task counts from here (switch and migration costs come before).
    pub work_start: Nanos,
    /// The running task's time is charged up to here.
    pub exec_start: Nanos,
    /// Since when the present task (or idleness) has the CPU.
    pub since: Nanos,

    // ---- a pass
    /// Advances whenever the CPU passes through its scheduler.
    pub kick_sync: u64,
    pub switches: u64,
    /// Busy time before `since`.
    pub busy_ns: Nanos,
    /// A guest's: time its tasks had no physical CPU, before `since`.
    pub stolen_ns: Nanos,
    /// Until when an interrupt's handler has it.
    pub irq_until: Nanos,
    /// Task that last ran here (idleness apart): the same one again costs no switch.
    pub last_task: TaskId,
    pub nr_immed: u32,
    /// Whether the way into the next pass has been made longer by `pass_ns`.
    pub pass_paid: bool,
    pub bal_keep: bool,
    pub in_wakeup: bool,
    pub bal_cb_pending: bool,
    pub cpu_released: bool,
    pub in_balance: bool,
    rare: Option<Box<Rare>>,
    /// How fast work is done.
    pub pace: Pace,
    /// What a policy sees of the run queue; a machine's CPUs never move.
    pub rq: Rq,

    // ---- a wake-up
    /// Tasks directly dispatched to other CPUs' local queues, waiting for this run queue's lock.
    pub deferred: List,
    pub extra_enq_flags: u64,
    pub ops_qseq: u64,
    /// Flags of a pending re-enqueue of the local queue; 0 = none (bit 63 marks "pending").
    pub reenq_local: u64,
    pub nr_running: u32,
    pub distribute_prev: u32,
    /// Idle time before `since`.
    pub idle_ns: Nanos,
    /// What the policy's code took in the last pass that switched a thread in.
    pub pass_ns: Nanos,
    /// A guest's: of `work_start`, what was left when it was paused.
    pub owed: Nanos,
    /// A guest's: interrupts that fell due while it was paused, in order, and when they are taken.
    pub late: Slots,
    pub late_at: Nanos,
}

const _: () = assert!(size_of::<Cpu>() == 320);

/// What most CPUs never need.
pub struct Rare {
    /// CPUs whose pass this one waits for, with their `kick_sync` then.
    pub waits_for: Vec<(u32, u64)>,
    /// Waiting tasks of class fair, real-time, stop.
    pub higher: [List; 3],
    /// Its stopper thread, made when first needed.
    pub stopper: TaskId,
    pub fair_since: Nanos,
    /// Task that a higher class has taken the CPU from and that nobody but such classes has had it since.
    pub aside: TaskId,
}

impl Cpu {
    pub fn new(number: u32, slot: Slot) -> Self {
        Cpu {
            curr: number,
            idle: number,
            online: true,
            slot,
            resched_at: NEVER,
            run_end: NEVER,
            pass_ns: 0,
            pass_paid: false,
            tick_at: NEVER,
            paused: false,
            work_start: 0,
            pace: Pace::default(),
            irq_until: 0,
            exec_start: 0,
            since: 0,
            idle_ns: 0,
            busy_ns: 0,
            switches: 0,
            last_task: NONE,
            owed: 0,
            spun: 0,
            stolen_ns: 0,
            late: Slots::default(),
            takes_late: false,
            misplaced: false,
            late_at: NEVER,
            in_balance: false,
            bal_keep: false,
            in_wakeup: false,
            bal_cb_pending: false,
            cpu_released: false,
            nr_running: 0,
            extra_enq_flags: 0,
            ops_qseq: 0,
            deferred: List::default(),
            nr_immed: 0,
            reenq_local: 0,
            kick_sync: 0,
            distribute_prev: 0,
            rare: None,
            rq: Rq::default(),
        }
    }

    /// What few CPUs have, if this one has needed it.
    #[inline]
    pub fn rare(&self) -> Option<&Rare> {
        self.rare.as_deref()
    }

    #[cold]
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_with(|| {
            Box::new(Rare {
                waits_for: Vec::new(),
                higher: [List::default(); 3],
                stopper: NONE,
                fair_since: 0,
                aside: NONE,
            })
        })
    }

    /// Does it wait for other CPUs' passes?
    #[inline]
    pub fn waits(&self) -> bool {
        self.rare().is_some_and(|r| !r.waits_for.is_empty())
    }

    #[inline]
    pub fn is_idle(&self) -> bool {
        self.curr == self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_stay_in_order_however_many() {
        let mut list = Slots::default();
        for n in [0u32, 3, 5, 6, 20, 2] {
            assert!(list.is_empty());
            (0..n).for_each(|slot| list.push(slot));
            assert_eq!(list.iter().collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
            assert_eq!(list.is_empty(), n == 0);
            list.clear();
        }
    }
}
