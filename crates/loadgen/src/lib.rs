// SPDX-License-Identifier: GPL-2.0-only
//! A scenario's work made real on a Linux kernel: one thread per vCPU, one cgroup per VM.
//!
//! [`run`] starts the threads that [`berth_scenario::placement::threads`] names, lets them do their
//! steps, sends the clients' requests from one real-time thread, and returns the metrics of the results
//! schema. It schedules nothing itself: that is the kernel's own scheduler, or the sched_ext policy that
//! somebody loaded before.
// Where there are no micro-VMs, what only they use is used by nobody.
#![cfg_attr(
    any(not(target_arch = "x86_64"), feature = "no-micro-vms"),
    allow(dead_code)
)]
mod births;
mod burn;
mod cgroup;
mod client;
pub mod costs;
mod form;
#[cfg(all(target_arch = "x86_64", not(feature = "no-micro-vms")))]
mod kvm;
#[cfg(any(not(target_arch = "x86_64"), feature = "no-micro-vms"))]
#[path = "kvm/absent.rs"]
mod kvm;
mod mailbox;
mod metrics;
mod page;
pub mod procfs;
mod shared;
mod sync;
mod sys;
mod worker;

pub use births::{Tell, Teller};
pub use form::Vcpus;
pub use kvm::{Echo, KvmError, measure_speed};
pub use sys::Clock;

use berth_scenario::model::{Nanos, Scenario, Step};
use berth_scenario::placement::{self, HostThread, PlacementError};
use mailbox::Mailbox;
pub use metrics::NO_STAYS;
use metrics::{Latencies, Snapshot};
use shared::{Shared, Slot};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::{fs, io};

/// Threads of one run, at most: a `fork` loop must not take the machine down.
const MAX_THREADS: usize = 4096;
/// From the last preparations to the start of the run, at least.
const HEAD_START_NS: Nanos = 5_000_000;

/// Between two looks at whether somebody has asked for the end.
const LOOK_NS: Nanos = 100_000_000;

/// Told every thread and its id; see [`Options::on_threads`].
pub type OnThreads<'a> = dyn FnMut(&[(HostThread, i32)]) -> io::Result<()> + 'a;

/// How to run a scenario.
#[derive(Default)]
pub struct Options<'a> {
    /// cgroup v2 folder to make for the run, e.g. `/sys/fs/cgroup/berth`; its parent must exist.
    /// None: no cgroups, so weights and caps have no effect (and a note says so).
    pub cgroup_root: Option<PathBuf>,
    /// Time before measuring, in nanoseconds.
    pub warmup_ns: Nanos,
    /// Time measured, in nanoseconds.
    pub measure_ns: Nanos,
    /// Time between the last preparations and the start of the run, in nanoseconds.
    pub lead_ns: Nanos,
    /// What the VMs' vCPUs are.
    pub vcpus: Vcpus,
    /// Set from elsewhere (Ctrl-C) to end the run early.
    pub stop: Option<&'a AtomicBool>,
    /// Called when all threads exist and wait for the start: the place to give a policy their identity.
    pub on_threads: Option<Box<OnThreads<'a>>>,
    /// Called for each job of a task with `estimate`, before it begins.
    pub tell: Teller,
}

/// What a run found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Metric name -> value, as in [`berth_results::schema`].
    pub metrics: BTreeMap<String, f64>,
    /// What a reader must know: what could not be measured or done.
    pub notes: Vec<String>,
    /// The measured window, as times of `CLOCK_MONOTONIC` in nanoseconds.
    pub window_ns: (Nanos, Nanos),
    /// Every thread of the run and its id, forked ones included.
    pub threads: Vec<(HostThread, i32)>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error("this kernel run cannot do {what}: leave it out, or run the scenario in the simulator")]
    Unsupported { what: String },
    #[error(transparent)]
    Kvm(#[from] KvmError),
    #[error("cgroup: cannot write {}: {source}; run as root on a machine with cgroup v2", path.display())]
    Cgroup { path: PathBuf, source: io::Error },
    #[error("thread {thread} {what}: {source}")]
    Thread {
        thread: String,
        what: &'static str,
        source: io::Error,
    },
    #[error("the process of VM {vm}: {what}")]
    Machine { vm: String, what: String },
    #[error("threads could not be announced to the policy: {0}")]
    Announce(io::Error),
    #[error("thread {thread} cannot be started: {source}")]
    Spawn { thread: String, source: io::Error },
    #[error("thread {thread} panicked; its message is on standard error")]
    Panic { thread: String },
}

/// Whether the scenario's VMs can be micro-VMs; needs no KVM.
///
/// # Errors
/// What a micro-VM cannot do.
pub fn fits_micro_vms(scenario: &Scenario) -> Result<(), LoadError> {
    kvm::fits(scenario).map(|_| ())
}

/// Runs the scenario once, for `warmup_ns + measure_ns` of real time and a little more.
///
/// # Errors
/// A scenario that threads cannot express, a refused system call, a cgroup that cannot be written.
pub fn run(scenario: &Scenario, seed: u64, options: &mut Options) -> Result<Outcome, LoadError> {
    if !scenario.host.hotplug.is_empty() {
        return Err(LoadError::Unsupported {
            what: "host.hotplug".into(),
        });
    }
    if scenario.optimiser.is_some() {
        return Err(LoadError::Unsupported {
            what: "optimiser".into(),
        });
    }
    let form = form::choose(scenario, seed, options.vcpus)?;
    let streams = client::streams(scenario, seed);
    let (says, from_workers) = channel();
    let groups = options
        .cgroup_root
        .as_deref()
        .map(|root| cgroup::Groups::make(root, scenario))
        .transpose()?;
    let window = (
        options.warmup_ns,
        options.warmup_ns.saturating_add(options.measure_ns),
    );
    let closed = client::closed(&streams);
    let (boxes, threads) = (mailboxes(scenario), form.threads.len());
    let shared = Shared::new(
        scenario,
        seed,
        sched_ext_enabled(),
        form.machines,
        groups,
        boxes,
        window,
        says,
        closed,
        page::Page::new(form.threads.len() + MAX_THREADS).map_err(|source| LoadError::Thread {
            thread: "first".into(),
            what: "has no memory",
            source,
        })?,
        births::Births::new(scenario, threads),
        options.tell.clone(),
    );
    let shared = Arc::new(shared);
    note_what_is_missing(&shared, options.cgroup_root.is_none());
    for note in form.notes {
        shared.note(note);
    }

    // Nobody starts before everybody is set up and announced.
    let failed = Arc::new(Mutex::new(BTreeMap::new()));
    let mut handles = Vec::new();
    let mut setup = Ok(());
    let threads = form.threads.into_iter();
    let slots: Vec<Arc<Slot>> = threads.map(|t| shared.add_slot(t)).collect();
    // Micro-VMs first: their processes are copies of this one, which has no threads of the run yet.
    let mut processes = Vec::new();
    for (vm, machine) in &shared.machines {
        let of_vm = |s: &&Arc<Slot>| s.thread.vm.as_ref().is_some_and(|v| v.ordinal == *vm);
        let own: Vec<Arc<Slot>> = slots.iter().filter(of_vm).cloned().collect();
        match kvm::Process::start(&shared, machine, &own) {
            Ok(process) => processes.push(process),
            Err(source) => {
                let thread = machine.name().to_string();
                setup = Err(LoadError::Spawn { thread, source });
                break;
            }
        }
    }
    for slot in &slots {
        if setup.is_err() || shared.machine(&slot.thread).is_some() {
            continue;
        }
        let (gate, failed) = (Arc::clone(&shared), Arc::clone(&failed));
        let ordinal = slot.ordinal;
        let before = move |result: Result<(), LoadError>| {
            if let Err(e) = result {
                failed
                    .lock()
                    .unwrap_or_else(|e| e.into_inner())
                    .insert(ordinal, e);
            }
            gate.pass();
        };
        match spawn(&shared, slot, before) {
            Ok(handle) => handles.push(handle),
            Err(e) => setup = Err(e),
        }
    }
    let broken = || processes.iter().any(kvm::Process::is_over);
    if setup.is_ok() {
        shared.wait_at_gate(slots.len() as u32, &broken);
    }
    if broken() {
        shared.stop().store(1, Ordering::Release);
    }
    // Of several failures the first thread's, whichever came first.
    let first = failed.lock().unwrap_or_else(|e| e.into_inner()).pop_first();
    if let Some((_, e)) = first {
        setup = Err(e);
    }
    if let (Ok(()), false, Some(announce)) = (&setup, broken(), &mut options.on_threads) {
        setup = announce(&thread_ids(&shared)).map_err(LoadError::Announce);
    }
    if setup.is_err() {
        shared.stop().store(1, Ordering::Release);
    }
    let lead_ns = HEAD_START_NS + options.lead_ns;
    let snapshots = match setup {
        Ok(()) => observe(
            &shared,
            streams,
            from_workers,
            window,
            lead_ns,
            options.stop,
        ),
        Err(e) => {
            shared.start_at(sys::now_ns());
            shared.open_gate();
            Err(e)
        }
    };
    shared.end();
    shared.births.wait();
    let mut latencies = collect(&shared, handles)?;
    // All of them are waited for, whatever the first says.
    let ended: Vec<_> = processes.into_iter().map(kvm::Process::finish).collect();
    for of_vm in ended {
        latencies.extend(of_vm?);
    }
    let (begin, end) = snapshots?;
    if options.stop.is_some_and(|a| a.load(Ordering::Relaxed)) {
        return Err(LoadError::Interrupted);
    }
    let (metrics, mut notes) = metrics::metrics(&shared, &begin, &end, &latencies);
    notes.extend(
        shared
            .notes
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .iter()
            .cloned(),
    );
    let window_ns = window_between((begin.at_ns, begin.done_ns), end.at_ns);
    if window_ns.0 == window_ns.1 {
        notes.push(format!(
            "reading the counters took {} ms of a window of {} ms, so no stay was looked at: measure for longer",
            (begin.done_ns - begin.at_ns) / 1_000_000,
            (end.at_ns - begin.at_ns) / 1_000_000,
        ));
    }
    Ok(Outcome {
        metrics,
        notes,
        window_ns,
        threads: thread_ids(&shared),
    })
}

/// From the first reading of the counters (begun, done) to the last, in ns. The first one holds up whoever wants that
/// CPU, and they others: as long again is left out. Where nothing remains the window is empty.
fn window_between((at, done): (Nanos, Nanos), end: Nanos) -> (Nanos, Nanos) {
    let from = done + (done - at);
    (from.min(end), end)
}

fn thread_ids(shared: &Shared) -> Vec<(HostThread, i32)> {
    let id = |s: &Arc<Slot>| (s.thread.clone(), s.tid.get());
    let mut all: Vec<_> = shared.slots().iter().map(id).collect();
    all.extend(shared.births.all.iter().flat_map(births::Birth::ids));
    all
}

/// Starts the run, runs the generator and takes the snapshots at both ends of the measured window.
///
/// Both threads are real-time ones before anything else runs: as new ordinary threads they would wait for their first
/// turn with the load they are there to observe, which some policies let take longer than a short window.
fn observe(
    shared: &Arc<Shared>,
    streams: Vec<client::RequestStream>,
    said: std::sync::mpsc::Receiver<shared::Said>,
    (begin_ns, end_ns): (Nanos, Nanos),
    lead_ns: Nanos,
    asked: Option<&AtomicBool>,
) -> Result<(Snapshot, Snapshot), LoadError> {
    let failed = |what| {
        move |source| LoadError::Thread {
            thread: "clients".into(),
            what,
            source,
        }
    };
    // Nobody runs who waits at the gate: it is opened to let them end.
    let not_started = |source| {
        shared.stop().store(1, Ordering::Release);
        shared.start_at(sys::now_ns());
        shared.open_gate();
        failed("did not start")(source)
    };
    let lone = || io::Error::other("the other of the two did not start");
    // Each says when it is a real-time thread, and waits until the start is known.
    let (there, both) = channel();
    let also_there = there.clone();
    let (observe, may_observe) = channel::<()>();
    let (generate, may_generate) = channel::<()>();
    std::thread::scope(|scope| {
        let observer = move || {
            real_time(shared, 1);
            let _ = there.send(());
            may_observe.recv().map_err(|_| lone())?;
            let at = |ns: Nanos| -> io::Result<Snapshot> {
                let due = shared.start_ns().saturating_add(ns);
                loop {
                    // Whoever asks for the end cannot wake this thread: it looks.
                    let look = asked.map_or(due, |_| due.min(sys::now_ns() + LOOK_NS));
                    match sys::wait(&[(shared.stop(), 0)], Some(look))? {
                        sys::Woken::Timeout if look == due => break,
                        sys::Woken::Changed => break,
                        _ if asked.is_some_and(|a| a.load(Ordering::Relaxed)) => break,
                        _ => (),
                    }
                }
                Ok(Snapshot::take(shared))
            };
            let begin = at(begin_ns);
            let end = at(end_ns);
            shared.end();
            sys::change_and_wake(&shared.answered, i32::MAX);
            begin.and_then(|b| Ok((b, end?)))
        };
        let generator = move || {
            real_time(shared, 2);
            let _ = also_there.send(());
            may_generate.recv().map_err(|_| lone())?;
            client::generate(shared, streams, &said)
        };
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let observer = named("observer").spawn_scoped(scope, observer);
        let observer = observer.map_err(&not_started)?;
        let generator = match named("clients").spawn_scoped(scope, generator) {
            Ok(generator) => generator,
            Err(e) => {
                drop(observe);
                return Err(not_started(e));
            }
        };
        // Whoever panicked says nothing, and is found below.
        both.iter().take(2).for_each(drop);
        shared.start_at(sys::now_ns() + lead_ns);
        let _ = (observe.send(()), generate.send(()));
        shared.open_gate();
        let panicked = |_| LoadError::Panic {
            thread: "clients".into(),
        };
        let sent = generator.join().map_err(panicked)?;
        let seen = observer.join().map_err(panicked)?;
        sent.map_err(failed("stopped sending"))?;
        seen.map_err(failed("stopped observing"))
    })
}

fn real_time(shared: &Shared, priority: i32) {
    sys::exact_timers();
    if let Err(e) = sys::become_fifo(priority) {
        shared.note(format!(
            "clients run as ordinary threads, so requests may come late: SCHED_FIFO was refused ({e})"
        ));
    }
}

/// Waits for all threads, forked ones included.
fn collect(shared: &Shared, handles: Vec<Handle>) -> Result<BTreeMap<u32, Latencies>, LoadError> {
    let mut latencies = BTreeMap::new();
    let mut first_error = None;
    let mut waiting = handles;
    loop {
        for (name, ordinal, handle) in waiting {
            match handle
                .join()
                .unwrap_or(Err(LoadError::Panic { thread: name }))
            {
                Ok(seen) => {
                    latencies.insert(ordinal, seen);
                }
                Err(e) => {
                    first_error.get_or_insert(e);
                }
            }
        }
        waiting = std::mem::take(&mut *shared.forked.lock().unwrap_or_else(|e| e.into_inner()));
        if waiting.is_empty() {
            return first_error.map_or(Ok(latencies), Err);
        }
    }
}

/// Starts a thread: it sets itself up, tells `before` how that went, and works.
fn spawn(
    shared: &Arc<Shared>,
    slot: &Arc<Slot>,
    before: impl FnOnce(Result<(), LoadError>) + Send + 'static,
) -> Result<Handle, LoadError> {
    let (name, ordinal) = (slot.thread.name.clone(), slot.ordinal);
    let (shared, slot) = (Arc::clone(shared), Arc::clone(slot));
    // Thread names hold 15 bytes; the kernel cuts the rest.
    let builder = std::thread::Builder::new()
        .name(name.clone())
        .stack_size(256 << 10);
    let handle = builder.spawn(move || {
        slot.tid.set(sys::gettid());
        let thread = slot.thread.clone();
        let result = worker::set_up(&shared, &thread);
        before(result);
        match shared.machine(&thread) {
            Some(machine) => kvm::Vcpu::new(shared, machine, slot).run(),
            None => worker::Worker::new(shared, slot, thread).run(),
        }
    });
    match handle {
        Ok(handle) => Ok((name, ordinal, handle)),
        Err(source) => Err(LoadError::Spawn {
            thread: name,
            source,
        }),
    }
}

/// The `fork` step: one more thread of `task` in the VM of `parent`.
fn fork(shared: &Arc<Shared>, parent: &HostThread, task: &str) -> io::Result<()> {
    if shared.slots().len() >= MAX_THREADS {
        shared.note(format!(
            "`fork` was ignored once the run had {MAX_THREADS} threads"
        ));
        return Ok(());
    }
    let child = placement::forked(&shared.scenario, parent, task).map_err(io::Error::other)?;
    let slot = shared.add_slot(child);
    let for_errors = Arc::clone(shared);
    let before = move |result: Result<(), LoadError>| {
        if let Err(e) = result {
            for_errors.note(format!("a forked thread lacks some of its settings: {e}"));
        }
    };
    let handle = spawn(shared, &slot, before).map_err(io::Error::other)?;
    shared
        .forked
        .lock()
        .unwrap_or_else(|e| e.into_inner())
        .push(handle);
    Ok(())
}

/// One mailbox per VM instance (and one for the host), with a queue per name its pools serve.
fn mailboxes(scenario: &Scenario) -> BTreeMap<Option<u32>, Mailbox> {
    let queues = |names: &[String]| {
        let tasks = names.iter().filter_map(|n| scenario.tasks.get(n));
        let forks = scenario
            .tasks
            .values()
            .flat_map(|t| &t.steps)
            .filter_map(Step::starts)
            .filter_map(|name| scenario.tasks.get(name));
        let mut queues: Vec<String> = tasks
            .chain(forks)
            .filter_map(placement::pool_queue)
            .map(str::to_string)
            .collect();
        queues.sort();
        queues.dedup();
        Mailbox::new(queues)
    };
    let vms = placement::instances(scenario);
    let mut boxes: BTreeMap<_, _> = vms
        .iter()
        .map(|vm| (Some(vm.ordinal), queues(&scenario.vms[vm.group].tasks)))
        .collect();
    boxes.insert(None, queues(&scenario.host.tasks));
    boxes
}

/// Whether a sched_ext scheduler runs that only takes threads which ask for it.
fn sched_ext_enabled() -> bool {
    let read = |file: &str| {
        fs::read_to_string(format!("/sys/kernel/sched_ext/{file}")).unwrap_or_default()
    };
    read("state").trim() == "enabled" && read("switch_all").trim() == "0"
}

fn note_what_is_missing(shared: &Shared, no_cgroups: bool) {
    let scenario = &shared.scenario;
    let weighted = scenario
        .vms
        .iter()
        .any(|vm| vm.weight != 100 || vm.cap_milli.is_some() || vm.vcpus > 1);
    if no_cgroups && weighted {
        shared.note("VMs have no cgroups in this run: weights and caps have no effect, every vCPU counts alone");
    }
    let cpus = procfs::machine().map_or(0, |m| m.cpus);
    if cpus != 0 && cpus != u64::from(scenario.host.nr_cpus()) {
        shared.note(format!(
            "the scenario has {} CPUs, this machine {cpus}",
            scenario.host.nr_cpus()
        ));
    }
}

type Handle = (String, u32, JoinHandle<Result<Latencies, LoadError>>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_never_ends_before_it_begins() {
        assert_eq!(window_between((1_000, 1_010), 2_000), (1_020, 2_000));
        // Reading took longer than the window: seen on a busy machine in a VM of 1,024 possible CPUs.
        assert_eq!(window_between((1_000, 1_700), 2_000), (2_000, 2_000));
    }
}
