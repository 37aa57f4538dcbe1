// SPDX-License-Identifier: GPL-2.0-only
//! What all threads of a run share.
use crate::births::{Births, Teller};
use crate::burn::Speed;
use crate::cgroup::Groups;
use crate::kvm::{Counter, Machine, Say};
use crate::mailbox::{Asker, Mailbox, Message};
use crate::page::{Page, Tid};
use crate::procfs::ThreadCounters;
use crate::sync::{self, Home};
use crate::sys;
use berth_identity::JobRecord;
use berth_scenario::model::{Nanos, Scenario};
use berth_scenario::placement::{self, HostThread};
use std::collections::{BTreeMap, BTreeSet};
use std::io::PipeWriter;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};

/// Between two looks at whether a process that others wait for has ended.
const LOOK_NS: Nanos = 100_000_000;

/// One thread, as others see it.
#[derive(Debug)]
pub struct Slot {
    pub thread: HostThread,
    pub ordinal: u32,
    pub tid: Tid,
    /// CPU time burnt by `compute` and `busy`.
    pub work_ns: AtomicU64,
    /// The same, where a guest counts it.
    pub guest_work: OnceLock<Counter>,
    /// Set when the thread has ended.
    pub last_counters: Mutex<Option<ThreadCounters>>,
}

impl Slot {
    /// Of a thread that is in no list.
    pub fn alone(thread: HostThread, ordinal: u32, tid: i32) -> Slot {
        Slot {
            thread,
            ordinal,
            tid: Tid::Here(AtomicI32::new(tid)),
            work_ns: AtomicU64::new(0),
            guest_work: OnceLock::new(),
            last_counters: Mutex::new(None),
        }
    }

    /// Useful CPU time so far, in nanoseconds.
    pub fn work(&self) -> u64 {
        self.work_ns.load(Ordering::Relaxed) + self.guest_work.get().map_or(0, Counter::get)
    }
}

/// Where messages of one queue go in: a VM's queue, or that of a micro-VM, or to a task of which each starts a thread.
pub struct Door<'a> {
    birth: Option<usize>,
    mailbox: Option<(&'a Mailbox, usize)>,
    machine: Option<(&'a Machine, &'a str)>,
}

/// What the clients' thread is told.
#[derive(Debug)]
pub enum Said {
    /// An answer to a closed-loop user, and when.
    Answered(Asker, Nanos),
    /// A message of a task that starts a thread.
    Starts(usize, Message),
}

#[derive(Debug)]
pub struct Shared {
    pub scenario: Scenario,
    pub seed: u64,
    pub speed: Speed,
    pub sched_ext: bool,
    /// Micro-VMs by ordinal; before the cgroups, which they must have left when those are removed.
    pub machines: BTreeMap<u32, Arc<Machine>>,
    pub groups: Option<Groups>,
    /// By VM ordinal; `None` is the host's.
    pub mailboxes: BTreeMap<Option<u32>, Mailbox>,
    /// What threads share; by VM ordinal, `None` is the host's.
    homes: BTreeMap<Option<u32>, Home>,
    /// By VM ordinal: the one whose home it is.
    meets: Vec<u32>,
    page: Arc<Page>,
    /// Set in the process of a micro-VM: the way to the first one.
    pipe: OnceLock<Mutex<PipeWriter>>,
    window_ns: (Nanos, Nanos),
    pub slots: Mutex<Vec<Arc<Slot>>>,
    pub notes: Mutex<BTreeSet<String>>,
    /// For the clients' thread, and the word it sleeps on.
    says: Sender<Said>,
    pub answered: AtomicU32,
    closed_streams: BTreeSet<usize>,
    /// By VM ordinal: requests that were due in the measured window.
    offered: Vec<AtomicU64>,
    /// Threads that `fork` steps started.
    pub forked: Mutex<Vec<crate::Handle>>,
    pub births: Births,
    teller: Teller,
    /// Sizes that were told, by task and home.
    told: Mutex<BTreeMap<(u16, u16), u32>>,
}

impl Shared {
    #[allow(clippy::too_many_arguments)] // one caller; a second struct of the same fields helps nobody
    pub fn new(
        scenario: &Scenario,
        seed: u64,
        sched_ext: bool,
        machines: BTreeMap<u32, Arc<Machine>>,
        groups: Option<Groups>,
        mailboxes: BTreeMap<Option<u32>, Mailbox>,
        window_ns: (Nanos, Nanos),
        says: Sender<Said>,
        closed_streams: BTreeSet<usize>,
        page: Arc<Page>,
        births: Births,
        teller: Teller,
    ) -> Shared {
        let vms = placement::instances(scenario).len();
        Shared {
            scenario: scenario.clone(),
            seed,
            speed: Speed::measure(),
            sched_ext,
            machines,
            groups,
            mailboxes,
            homes: sync::homes(scenario, vms as u32, seed),
            meets: placement::meeting_places(scenario),
            page,
            pipe: OnceLock::new(),
            window_ns,
            slots: Mutex::default(),
            notes: Mutex::default(),
            says,
            answered: AtomicU32::new(0),
            closed_streams,
            offered: (0..vms).map(|_| AtomicU64::new(0)).collect(),
            forked: Mutex::default(),
            births,
            teller,
            told: Mutex::default(),
        }
    }

    /// What a thread shares with others.
    pub fn home(&self, thread: &HostThread) -> &Home {
        let vm = thread.vm.as_ref().map(|vm| vm.ordinal);
        let meets = vm.map(|vm| self.meets.get(vm as usize).copied().unwrap_or(vm));
        // There is one for every VM and for the host.
        &self.homes[&meets]
    }

    /// Whether the policy wants to know of jobs.
    pub fn tells(&self) -> bool {
        self.teller.0.is_some()
    }

    /// Tells the policy of a thread's next job.
    pub fn tell_job(&self, tid: i32, job: &JobRecord) {
        let told = self.teller.0.as_ref().map(|tell| tell(tid, job));
        if let Some(Err(e)) = told {
            self.note(format!("sizes could not be told to the policy: {e}"));
        }
    }

    /// Number of the next size that is told of a task of a home.
    pub fn next_told(&self, task: u16, home: u16) -> u32 {
        let mut told = self.told.lock().unwrap_or_else(|e| e.into_inner());
        let next = told.entry((task, home)).or_default();
        *next += 1;
        *next - 1
    }

    /// Changes from 0 when the run is over; every sleeping thread also waits on it.
    pub fn stop(&self) -> &AtomicU32 {
        &self.page.words().stop
    }

    /// This is the process of a micro-VM from now on.
    pub fn become_a_copy(&self, pipe: PipeWriter) {
        // A new process has none yet.
        let _ = self.pipe.set(Mutex::new(pipe));
    }

    /// In the process of a micro-VM, the way to the first one.
    pub fn pipe(&self) -> Option<&Mutex<PipeWriter>> {
        self.pipe.get()
    }

    pub fn start_ns(&self) -> Nanos {
        self.page.words().start_ns.load(Ordering::Acquire)
    }

    pub fn start_at(&self, ns: Nanos) {
        for machine in self.machines.values() {
            machine.start_at(ns, self.window_ns);
        }
        self.page.words().start_ns.store(ns, Ordering::Release);
    }

    /// A thread is set up and waits for the start.
    pub fn pass(&self) {
        let words = self.page.words();
        sys::change_and_wake(&words.ready, 1);
        while words.gate.load(Ordering::Acquire) == 0 {
            // An error means that the gate cannot be waited at; looking again is all that is left.
            let _ = sys::wait(&[(&words.gate, 0)], None);
        }
    }

    /// Waits until so many threads have come to the gate, or `broken` says that they will not.
    pub fn wait_at_gate(&self, threads: u32, broken: &dyn Fn() -> bool) {
        let words = self.page.words();
        loop {
            let ready = words.ready.load(Ordering::Acquire);
            if ready >= threads || broken() {
                return;
            }
            let look = sys::now_ns() + LOOK_NS;
            let _ = sys::wait(&[(&words.ready, ready)], Some(look));
        }
    }

    pub fn open_gate(&self) {
        sys::change_and_wake(&self.page.words().gate, i32::MAX);
    }

    /// Whether something that happens at this time counts.
    pub fn measures(&self, at_ns: Nanos) -> bool {
        let since = at_ns.saturating_sub(self.start_ns());
        self.window_ns.0 <= since && since < self.window_ns.1
    }

    /// The run is over: whoever sleeps or waits is woken, micro-VMs stop.
    pub fn end(&self) {
        sys::change_and_wake(self.stop(), i32::MAX);
        for machine in self.machines.values() {
            machine.stop();
        }
    }

    /// The micro-VM of a thread, if it is a vCPU of one.
    pub fn machine(&self, thread: &HostThread) -> Option<Arc<Machine>> {
        let vm = thread.vm.as_ref()?;
        self.machines.get(&vm.ordinal).cloned()
    }

    /// The way into a queue of a VM, or of the host.
    pub fn door<'a>(&'a self, home: Option<u32>, queue: &'a str) -> Door<'a> {
        let machine = home.and_then(|vm| self.machines.get(&vm));
        let birth = self.births.at(home, queue);
        let mailbox = &self.mailboxes[&home];
        Door {
            birth,
            mailbox: mailbox.position(queue).map(|i| (mailbox, i)),
            machine: machine.map(|m| (&**m, queue)),
        }
    }

    /// Puts a message where it goes, waking who waits for it. Some: it is to start a thread, of this task.
    pub fn put_at(&self, door: &Door<'_>, message: Message) -> Option<usize> {
        if door.birth.is_some() {
            return door.birth;
        }
        if let Some((machine, queue)) = door.machine {
            if !machine.put(queue, &message) {
                self.note(format!(
                    "the queue {queue} of {} was full: messages were lost",
                    machine.name()
                ));
            }
        } else if let Some((mailbox, queue)) = door.mailbox {
            mailbox.put(queue, message);
        }
        None
    }

    /// As [`Shared::put_at`], where it is rare.
    pub fn put(&self, home: Option<u32>, queue: &str, message: Message) {
        let door = self.door(home, queue);
        // The queues of threads are the first process's.
        if door.machine.is_none() && self.pipe().is_some() {
            return self.tell(&Say::Put(home, queue.to_string(), message));
        }
        if let Some(birth) = self.put_at(&door, message) {
            self.say(Said::Starts(birth, message));
        }
    }

    fn say(&self, said: Said) {
        if self.says.send(said).is_ok() {
            sys::change_and_wake(&self.answered, 1);
        }
    }

    /// A request to this VM was due `since_ns` after the start.
    pub fn offer(&self, vm: u32, since_ns: Nanos) {
        let inside = self.window_ns.0 <= since_ns && since_ns < self.window_ns.1;
        if let Some(count) = self.offered.get(vm as usize).filter(|_| inside) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests to this VM that were due in the measured window.
    pub fn offered(&self, vm: u32) -> u64 {
        let count = self.offered.get(vm as usize);
        count.map_or(0, |n| n.load(Ordering::Relaxed))
    }

    /// A request was answered: a closed-loop user now thinks.
    pub fn answered(&self, asker: Asker, at_ns: Nanos) {
        if !self.closed_streams.contains(&asker.stream) {
            return;
        }
        if self.pipe().is_some() {
            return self.tell(&Say::Answered(asker, at_ns));
        }
        self.say(Said::Answered(asker, at_ns));
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
            tid: Tid::of(&self.page, slots.len() as u32),
            work_ns: AtomicU64::new(0),
            guest_work: OnceLock::new(),
            last_counters: Mutex::new(None),
        });
        if let (Some(machine), Some(vcpu)) = (self.machine(&slot.thread), slot.thread.role.vcpu()) {
            // A new slot has none yet.
            let _ = slot.guest_work.set(machine.work(vcpu));
        }
        slots.push(Arc::clone(&slot));
        drop(slots);
        self.home(&slot.thread)
            .join(&self.scenario, &slot.thread, slot.ordinal);
        slot
    }
}
