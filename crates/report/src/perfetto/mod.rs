// SPDX-License-Identifier: GPL-2.0-only
//! A trace for Perfetto (<https://ui.perfetto.dev>), written while the simulation runs.
//!
//! The kernel's own form of switches is used (`FtraceEventBundle.compact_sched`), so that Perfetto shows a track per
//! CPU with what ran on it, and per thread when it ran, was runnable (preempted or woken) and slept. A VM is a process,
//! a vCPU one of its threads. A guest's machine is a machine of its own (`TracePacket.machine_id`).
//!
//! Nothing is kept but the switches of the last moments, by CPU: [`Writer`] writes a bundle when a CPU has
//! `SWITCHES` of them. A switch takes 8 to 12 bytes.
//!
//! Field numbers are those of Perfetto's published `.proto` files (`trace_packet`, `ftrace_event_bundle`,
//! `process_tree`, `system_info`).
mod proto;

use proto::Message;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Switches of a CPU that are written together, at most.
const SWITCHES: usize = 512;

/// What became of a thread that lost its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It is still runnable: preempted, or it yielded.
    Runnable,
    Asleep,
    Dead,
}

impl Left {
    /// The kernel's number (since 4.14, `R+` has a bit of its own).
    fn number(self) -> u64 {
        match self {
            Left::Runnable => 0x100,
            Left::Asleep => 1,
            Left::Dead => 0x10,
        }
    }
}

/// A CPU's events that are not written yet.
#[derive(Default)]
struct Pending {
    count: usize,
    /// Last time in each list: times are differences.
    switched_at: u64,
    woken_at: u64,
    switch: Lists,
    waking: Lists,
    names: Vec<u32>,
}

/// Packed lists: time, prev_state or target CPU, pid, priority, name.
#[derive(Default)]
struct Lists {
    at: Message,
    what: Message,
    pid: Message,
    priority: Message,
    name: Message,
    /// Flags (of wake-ups).
    flags: Message,
}

impl Lists {
    fn clear(&mut self) {
        for list in [
            &mut self.at,
            &mut self.what,
            &mut self.pid,
            &mut self.priority,
            &mut self.name,
            &mut self.flags,
        ] {
            list.clear();
        }
    }
}

/// One machine of the trace: the host (0) or a guest.
#[derive(Default)]
struct Machine {
    cpus: Vec<Pending>,
    /// Process and name of each thread, by number.
    threads: Vec<Thread>,
    processes: BTreeMap<String, u64>,
}

#[derive(Clone, Default)]
struct Thread {
    pid: u64,
    name: String,
}

/// Writes a trace. The first error stops all writing; [`Writer::finish`] tells it.
pub struct Writer<W: Write> {
    out: W,
    machines: BTreeMap<u32, Machine>,
    next_pid: u64,
    error: Option<io::Error>,
    packet: Message,
    body: Message,
    switches: u64,
    bytes: u64,
}

/// Sequence of all packets.
const SEQUENCE: u64 = 1;

impl<W: Write> Writer<W> {
    /// `release` is the kernel's, as of `uname -r`: readers take the meaning of task states from it.
    pub fn new(out: W, release: &str) -> Self {
        let mut w = Writer {
            out,
            machines: BTreeMap::new(),
            next_pid: 100,
            error: None,
            packet: Message::default(),
            body: Message::default(),
            switches: 0,
            bytes: 0,
        };
        let (mut info, mut names) = (Message::default(), Message::default());
        names.text(1, "Linux");
        names.text(2, "simulated by Berth");
        names.text(3, release);
        names.text(4, std::env::consts::ARCH);
        info.message(1, &names);
        w.packet.message(45, &info);
        w.flush_packet(0);
        w
    }

    /// The packet that has been put together, to disk.
    fn flush_packet(&mut self, machine: u32) {
        self.packet.number(10, SEQUENCE);
        if machine != 0 {
            self.packet.number(98, machine.into());
        }
        if self.error.is_none() {
            let mut head = Message::default();
            head.raw(1 << 3 | 2);
            head.raw(self.packet.0.len() as u64);
            let written = self.out.write_all(&head.0);
            match written.and_then(|()| self.out.write_all(&self.packet.0)) {
                Ok(()) => self.bytes += (head.0.len() + self.packet.0.len()) as u64,
                Err(e) => self.error = Some(e),
            }
        }
        self.packet.clear();
    }

    /// A thread exists: its number in its machine (it may have belonged to another one before), its name, and the
    /// process it is shown under (a VM's name).
    pub fn thread(&mut self, machine: u32, thread: u32, name: &str, process: &str) {
        let known = |m: &Machine| m.threads.get(thread as usize).is_some_and(|t| t.pid != 0);
        if self.machines.get(&machine).is_some_and(known) {
            // The number belonged to another thread: what is told of it is written under its name.
            let cpus = self.machines.get(&machine).map_or(0, |m| m.cpus.len());
            (0..cpus as u32).for_each(|cpu| self.bundle(machine, cpu));
        }
        let m = self.machines.entry(machine).or_default();
        let mut tree = Message::default();
        let mut next = || {
            self.next_pid += 1;
            self.next_pid
        };
        let tgid = *m.processes.entry(process.to_string()).or_insert_with(|| {
            let pid = next();
            let mut p = Message::default();
            p.number(1, pid);
            p.number(2, 1);
            p.text(3, process);
            tree.message(1, &p);
            pid
        });
        let pid = next();
        let mut t = Message::default();
        t.number(1, pid);
        t.text(2, name);
        t.number(3, tgid);
        tree.message(2, &t);
        let at = thread as usize;
        if m.threads.len() <= at {
            m.threads.resize(at + 1, Thread::default());
        }
        m.threads[at] = Thread {
            pid,
            name: name.to_string(),
        };
        self.packet.message(2, &tree);
        self.flush_packet(machine);
    }

    /// A CPU changes to a thread; `None`: it is idle.
    pub fn switch(&mut self, machine: u32, at_ns: u64, cpu: u32, left: Left, next: Option<u32>) {
        self.switches += 1;
        let m = self.machines.entry(machine).or_default();
        let pid = next.map_or(0, |t| m.threads.get(t as usize).map_or(0, |t| t.pid));
        let p = pending(&mut m.cpus, cpu);
        let name = index(&mut p.names, next.unwrap_or(u32::MAX));
        p.switch.at.raw(at_ns.wrapping_sub(p.switched_at));
        p.switched_at = at_ns;
        p.switch.what.raw(left.number());
        p.switch.pid.raw(pid);
        p.switch.priority.raw(120);
        p.switch.name.raw(name);
        p.count += 1;
        if p.count >= SWITCHES {
            self.bundle(machine, cpu);
        }
    }

    /// A thread is woken on a CPU's run queue.
    pub fn wake(&mut self, machine: u32, at_ns: u64, cpu: u32, thread: u32) {
        let m = self.machines.entry(machine).or_default();
        let pid = m.threads.get(thread as usize).map_or(0, |t| t.pid);
        let p = pending(&mut m.cpus, cpu);
        let name = index(&mut p.names, thread);
        p.waking.at.raw(at_ns.wrapping_sub(p.woken_at));
        p.woken_at = at_ns;
        p.waking.what.raw(cpu.into());
        p.waking.pid.raw(pid);
        p.waking.priority.raw(120);
        p.waking.name.raw(name);
        p.waking.flags.raw(0);
        p.count += 1;
        if p.count >= SWITCHES {
            self.bundle(machine, cpu);
        }
    }

    /// A CPU's pending events, to disk.
    fn bundle(&mut self, machine: u32, cpu: u32) {
        let Some(m) = self.machines.get_mut(&machine) else {
            return;
        };
        let p = &mut m.cpus[cpu as usize];
        if p.count == 0 {
            return;
        }
        self.body.clear();
        let body = &mut self.body;
        body.packed(1, &p.switch.at);
        body.packed(2, &p.switch.what);
        body.packed(3, &p.switch.pid);
        body.packed(4, &p.switch.priority);
        body.packed(6, &p.switch.name);
        for name in &p.names {
            let name = match name {
                &u32::MAX => "swapper",
                n => m.threads.get(*n as usize).map_or("", |t| t.name.as_str()),
            };
            body.text(5, name);
        }
        body.packed(7, &p.waking.at);
        body.packed(8, &p.waking.pid);
        body.packed(9, &p.waking.what);
        body.packed(10, &p.waking.priority);
        body.packed(11, &p.waking.name);
        body.packed(12, &p.waking.flags);
        // Times of the next bundle are absolute again.
        (p.count, p.switched_at, p.woken_at) = (0, 0, 0);
        p.switch.clear();
        p.waking.clear();
        p.names.clear();
        let mut bundle = Message::default();
        bundle.number(1, cpu.into());
        bundle.message(4, body);
        self.packet.message(1, &bundle);
        self.flush_packet(machine);
    }

    /// Everything to disk.
    ///
    /// # Errors
    /// The first one of writing.
    pub fn finish(mut self) -> io::Result<Written> {
        let all: Vec<(u32, u32)> = self
            .machines
            .iter()
            .flat_map(|(m, machine)| (0..machine.cpus.len() as u32).map(|c| (*m, c)))
            .collect();
        for (machine, cpu) in all {
            self.bundle(machine, cpu);
        }
        match self.error {
            Some(e) => Err(e),
            None => {
                self.out.flush()?;
                Ok(Written {
                    switches: self.switches,
                    bytes: self.bytes,
                })
            }
        }
    }
}

/// What a trace has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub switches: u64,
    pub bytes: u64,
}

fn pending(cpus: &mut Vec<Pending>, cpu: u32) -> &mut Pending {
    if cpus.len() <= cpu as usize {
        cpus.resize_with(cpu as usize + 1, Pending::default);
    }
    &mut cpus[cpu as usize]
}

/// Position of a name in the bundle's list.
fn index(names: &mut Vec<u32>, thread: u32) -> u64 {
    let at = names.iter().rposition(|n| *n == thread);
    let at = at.unwrap_or_else(|| {
        names.push(thread);
        names.len() - 1
    });
    at as u64
}
