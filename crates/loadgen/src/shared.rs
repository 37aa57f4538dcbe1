// SPDX-License-Identifier: GPL-2.0-only
//! What all threads of a run share.
use crate::burn::Speed;
use crate::cgroup::Groups;
use crate::mailbox::{Asker, Mailbox};
use crate::procfs::ThreadCounters;
use crate::sync::{self, Home};
use crate::sys;
use berth_scenario::model::{Nanos, Scenario};
use berth_scenario::placement::{self, HostThread};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

/// One thread, as others see it.
#[derive(Debug)]
pub struct Slot {
    pub thread: HostThread,
    pub ordinal: u32,
    /// 0 until the thread runs.
    pub tid: AtomicI32,
    /// CPU time burnt by `compute` and `busy`.
    pub work_ns: AtomicU64,
    /// Set when the thread has ended.
    pub last_counters: Mutex<Option<ThreadCounters>>,
}

/// An answer to a closed-loop user: (asker, when).
pub type Answer = (Asker, Nanos);

#[derive(Debug)]
pub struct Shared {
    pub scenario: Scenario,
    pub seed: u64,
    pub speed: Speed,
    pub sched_ext: bool,
    pub groups: Option<Groups>,
    /// By VM ordinal; `None` is the host's.
    pub mailboxes: BTreeMap<Option<u32>, Mailbox>,
    /// What threads share; by VM ordinal, `None` is the host's.
    pub homes: BTreeMap<Option<u32>, Home>,
    /// Changes from 0 when the run is over; every sleeping thread also waits on it.
    pub stop: AtomicU32,
    /// Threads that are set up, and the gate they wait at.
    ready: AtomicU32,
    gate: AtomicU32,
    /// Start of the run; 0 until it is known.
    start_ns: AtomicU64,
    window_ns: (Nanos, Nanos),
    pub slots: Mutex<Vec<Arc<Slot>>>,
    pub notes: Mutex<BTreeSet<String>>,
    /// Answers for the generator, and the word it sleeps on.
    answers: Sender<Answer>,
    pub answered: AtomicU32,
    closed_streams: BTreeSet<usize>,
    /// Threads that `fork` steps started.
    pub forked: Mutex<Vec<crate::Handle>>,
}

impl Shared {
    #[allow(clippy::too_many_arguments)] // one caller; a second struct of the same fields helps nobody
    pub fn new(
        scenario: &Scenario,
        seed: u64,
        sched_ext: bool,
        groups: Option<Groups>,
        mailboxes: BTreeMap<Option<u32>, Mailbox>,
        window_ns: (Nanos, Nanos),
        answers: Sender<Answer>,
        closed_streams: BTreeSet<usize>,
    ) -> Shared {
        Shared {
            scenario: scenario.clone(),
            seed,
            speed: Speed::measure(),
            sched_ext,
            groups,
            mailboxes,
            homes: sync::homes(scenario, placement::instances(scenario).len() as u32, seed),
            stop: AtomicU32::new(0),
            ready: AtomicU32::new(0),
            gate: AtomicU32::new(0),
            start_ns: AtomicU64::new(0),
            window_ns,
            slots: Mutex::default(),
            notes: Mutex::default(),
            answers,
            answered: AtomicU32::new(0),
            closed_streams,
            forked: Mutex::default(),
        }
    }

    pub fn start_ns(&self) -> Nanos {
        self.start_ns.load(Ordering::Acquire)
    }

    pub fn start_at(&self, ns: Nanos) {
        self.start_ns.store(ns, Ordering::Release);
    }

    /// A thread is set up and waits for the start.
    pub fn pass(&self) {
        sys::change_and_wake(&self.ready, 1);
        while self.gate.load(Ordering::Acquire) == 0 {
            // An error means that the gate cannot be waited at; looking again is all that is left.
            let _ = sys::wait(&[(&self.gate, 0)], None);
        }
    }

    /// Waits until so many threads have come to the gate.
    pub fn wait_at_gate(&self, threads: u32) {
        loop {
            let ready = self.ready.load(Ordering::Acquire);
            if ready >= threads {
                return;
            }
            let _ = sys::wait(&[(&self.ready, ready)], None);
        }
    }

    pub fn open_gate(&self) {
        sys::change_and_wake(&self.gate, i32::MAX);
    }

    /// Whether something that happens at this time counts.
    pub fn measures(&self, at_ns: Nanos) -> bool {
        let since = at_ns.saturating_sub(self.start_ns());
        self.window_ns.0 <= since && since < self.window_ns.1
    }

    /// A request was answered: a closed-loop user now thinks.
    pub fn answered(&self, asker: Asker, at_ns: Nanos) {
        if self.closed_streams.contains(&asker.stream) && self.answers.send((asker, at_ns)).is_ok()
        {
            sys::change_and_wake(&self.answered, 1);
        }
    }

    pub fn note(&self, text: impl Into<String>) {
        self.notes
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .insert(text.into());
    }

    pub fn slots(&self) -> Vec<Arc<Slot>> {
        self.slots.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// A new slot; its ordinal is the number of threads before it.
    pub fn add_slot(&self, thread: HostThread) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(|e| e.into_inner());
        let slot = Arc::new(Slot {
            thread,
            ordinal: slots.len() as u32,
            tid: AtomicI32::new(0),
            work_ns: AtomicU64::new(0),
            last_counters: Mutex::new(None),
        });
        slots.push(Arc::clone(&slot));
        drop(slots);
        let vm = slot.thread.vm.as_ref().map(|vm| vm.ordinal);
        if let Some(home) = self.homes.get(&vm) {
            home.join(&self.scenario, &slot.thread, slot.ordinal);
        }
        slot
    }
}
