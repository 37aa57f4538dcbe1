// SPDX-License-Identifier: GPL-2.0-only
//! One process per micro-VM, as VMMs have it: so that whoever looks for VMs on this machine finds them one by one.
//!
//! It is a copy of this process (`fork`), made before the run has threads: guest memory, the words of [`crate::page`]
//! and the eventfds are shared with it, everything else is its own. What it has to say goes through a pipe, a line
//! each.
use super::machine::Machine;
use crate::mailbox::{Asker, Message};
use crate::metrics::Latencies;
use crate::procfs::ThreadCounters;
use crate::shared::{Shared, Slot};
use crate::{Handle, LoadError, spawn};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Program name in the command line of a micro-VM's process.
const PROGRAM: &str = "berth-microvm";

/// What a micro-VM's process tells.
#[derive(Debug, Serialize, Deserialize)]
pub enum Say {
    /// A request was answered: asker, when.
    Answered(Asker, u64),
    /// A message for a queue of the first process.
    Put(Option<u32>, String, Message),
    /// A thread has ended: its ordinal and last counters.
    Ended(u32, Option<ThreadCounters>),
    /// What a thread measured.
    Measured(u32, Latencies),
    Note(String),
    Failed(String),
}

/// What came of a process.
#[derive(Debug, Default)]
pub struct Report {
    pub latencies: BTreeMap<u32, Latencies>,
    pub failed: Option<String>,
    /// It said that it is done.
    complete: bool,
}

/// The process of a micro-VM.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: libc::pid_t,
    over: Arc<AtomicBool>,
    reader: Option<JoinHandle<Report>>,
}

impl Process {
    /// Starts the process with its vCPU threads, which wait at the gate.
    ///
    /// # Errors
    /// The kernel makes no process or thread.
    pub fn start(
        shared: &Arc<Shared>,
        machine: &Arc<Machine>,
        slots: &[Arc<Slot>],
    ) -> io::Result<Process> {
        let (reader, writer) = io::pipe()?;
        // SAFETY: the copy uses only what a single thread may use after a fork: its own memory, and new threads of its
        // own.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(reader);
                shared.become_a_copy(writer);
                // Nothing of a panicked run is used afterwards; its message is on standard error.
                let done =
                    std::panic::catch_unwind(AssertUnwindSafe(|| inside(shared, machine, slots)));
                // SAFETY: ends this copy without running what belongs to the first process (removing cgroups,
                // flushing).
                unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
            }
            pid => {
                drop(writer);
                let over = Arc::new(AtomicBool::new(false));
                let (for_reader, over_there) = (Arc::clone(shared), Arc::clone(&over));
                let slots = slots.to_vec();
                let reader = std::thread::Builder::new().spawn(move || {
                    let report = listen(&for_reader, &slots, reader);
                    over_there.store(true, Ordering::Release);
                    report
                })?;
                Ok(Process {
                    name: machine.name().to_string(),
                    pid,
                    over,
                    reader: Some(reader),
                })
            }
        }
    }

    /// It has ended, or will not say anything more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Waits until it has ended; what it measured.
    ///
    /// # Errors
    /// It failed, or ended without a word.
    pub fn finish(mut self) -> Result<BTreeMap<u32, Latencies>, LoadError> {
        let report = self.reader.take().map(JoinHandle::join);
        let failed = |what: String| LoadError::Machine {
            vm: self.name.clone(),
            what,
        };
        match report {
            Some(Ok(Report {
                failed: Some(why), ..
            })) => Err(failed(why)),
            Some(Ok(report)) if report.complete => Ok(report.latencies),
            _ => Err(failed("ended without its results".into())),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: our own child, not waited for before. It ends when its threads have seen the end of the run.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
    }
}

/// The first process: takes in what a copy says, until it says no more.
fn listen(shared: &Shared, slots: &[Arc<Slot>], from: PipeReader) -> Report {
    let mut report = Report::default();
    for line in BufReader::new(from).lines() {
        let Ok(said) = line
            .map_err(io::Error::other)
            .and_then(|l| Ok(serde_json::from_str(&l)?))
        else {
            return report;
        };
        match said {
            Say::Answered(asker, at) => shared.answered(asker, at),
            Say::Put(home, queue, message) => shared.put(home, &queue, message),
            Say::Ended(ordinal, counters) => {
                if let Some(slot) = slots.iter().find(|s| s.ordinal == ordinal) {
                    *slot.last_counters.lock().unwrap_or_else(|e| e.into_inner()) = counters;
                }
            }
            Say::Measured(ordinal, latencies) => {
                report.latencies.insert(ordinal, latencies);
                report.complete = report.latencies.len() == slots.len();
            }
            Say::Note(text) => shared.note(text),
            Say::Failed(why) => {
                report.failed.get_or_insert(why);
            }
        }
    }
    report
}

/// The copy: brings the VM up, runs its vCPUs, tells what they measured.
fn inside(shared: &Arc<Shared>, machine: &Arc<Machine>, slots: &[Arc<Slot>]) {
    settle_in(machine.name());
    let failed = |e: &dyn std::fmt::Display| shared.tell(&Say::Failed(e.to_string()));
    if let Some(groups) = &shared.groups
        && let Some(slot) = slots.first()
        && let Err(e) = groups.join(&slot.thread.cgroup)
    {
        return failed(&e);
    }
    if let Err(e) = machine.bring_up() {
        return failed(&e);
    }
    let mut handles: Vec<Handle> = Vec::new();
    for slot in slots {
        let shared_there = Arc::clone(shared);
        let before = move |result: Result<(), LoadError>| {
            if let Err(e) = result {
                shared_there.tell(&Say::Failed(e.to_string()));
            }
            shared_there.pass();
        };
        match spawn(shared, slot, before) {
            Ok(handle) => handles.push(handle),
            Err(e) => return failed(&e),
        }
    }
    for (name, ordinal, handle) in handles {
        match handle
            .join()
            .unwrap_or(Err(LoadError::Panic { thread: name }))
        {
            Ok(latencies) => shared.tell(&Say::Measured(ordinal, latencies)),
            Err(e) => failed(&e),
        }
    }
    let notes = shared
        .notes
        .lock()
        .unwrap_or_else(|e| e.into_inner())
        .clone();
    for note in notes {
        shared.tell(&Say::Note(note));
    }
}

/// Not disturbed by Ctrl-C, gone with the first process, and called by the VM's name.
fn settle_in(name: &str) {
    let line = format!("{PROGRAM}\0--name\0{name}\0").into_bytes().leak();
    let (start, end) = (
        line.as_ptr() as libc::c_ulong,
        line.as_ptr_range().end as libc::c_ulong,
    );
    let short: Vec<u8> = name.bytes().take(15).chain([0]).collect();
    // SAFETY: plain system calls; the command line lives for ever. Without the right to set it (CAP_SYS_RESOURCE) it
    // stays as it is: the kernel wants the start below the end at each step, which new memory, below the stack,
    // fulfils.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        libc::prctl(libc::PR_SET_NAME, short.as_ptr());
        libc::prctl(
            libc::PR_SET_MM,
            libc::PR_SET_MM_ARG_START as libc::c_ulong,
            start,
            0,
            0,
        );
        libc::prctl(
            libc::PR_SET_MM,
            libc::PR_SET_MM_ARG_END as libc::c_ulong,
            end,
            0,
            0,
        );
    }
}

impl Shared {
    /// Says something to the first process.
    pub fn tell(&self, what: &Say) {
        let Some(pipe) = self.pipe() else { return };
        let Ok(mut line) = serde_json::to_vec(what) else {
            return;
        };
        line.push(b'\n');
        let mut pipe = pipe.lock().unwrap_or_else(|e| e.into_inner());
        // Nobody listens any more: the run has ended.
        let _ = pipe.write_all(&line);
    }
}
