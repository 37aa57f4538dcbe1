// SPDX-License-Identifier: GPL-2.0-only
//! The thread of one vCPU: runs the guest, answers its calls, collects what it measured.
use super::KvmError;
use super::layout::{self, port, vcpu};
use super::machine::{Machine, unpack};
use super::process::Say;
use crate::mailbox::Message;
use crate::metrics::Latencies;
use crate::shared::{Shared, Slot};
use crate::sys::{self, Woken};
use crate::{LoadError, procfs};
use berth_scenario::chunks::Share;
use berth_scenario::model::Nanos;
use kvm_ioctls::{VcpuExit, VcpuFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One vCPU and its thread.
pub struct Vcpu {
    shared: Arc<Shared>,
    machine: Arc<Machine>,
    slot: Arc<Slot>,
    page: u64,
    latencies: Latencies,
}

impl Vcpu {
    pub fn new(shared: Arc<Shared>, machine: Arc<Machine>, slot: Arc<Slot>) -> Vcpu {
        let number = slot.thread.role.vcpu().unwrap_or(0);
        Vcpu {
            shared,
            machine,
            slot,
            page: layout::VCPUS + u64::from(number) * layout::PAGE,
            latencies: Latencies::default(),
        }
    }

    /// Runs the guest until the run or the VM ends; call when the start time is known.
    pub fn run(mut self) -> Result<Latencies, LoadError> {
        let number = self.slot.thread.role.vcpu().unwrap_or(0);
        let done = match self.machine.take(number) {
            Some(mut cpu) if self.begin()? => self.guest(&mut cpu),
            _ => Ok(()),
        };
        // The counters vanish with the thread.
        let counters = procfs::thread(sys::gettid());
        self.shared.tell(&Say::Ended(self.slot.ordinal, counters));
        done?;
        self.wakeups();
        Ok(self.latencies)
    }

    /// Waits for the VM's start; false if the run is over before.
    fn begin(&self) -> Result<bool, LoadError> {
        let start = self.shared.start_ns();
        let begin = start.saturating_add(self.slot.thread.start_ns);
        loop {
            let woken = sys::wait(&[(self.shared.stop(), 0)], Some(begin));
            match woken.map_err(|source| LoadError::Thread {
                thread: self.slot.thread.name.clone(),
                what: "stopped waiting for its start",
                source,
            })? {
                Woken::Timeout => return Ok(true),
                Woken::Changed => return Ok(false),
                Woken::Wake => (),
            }
        }
    }

    fn is_over(&self) -> bool {
        let end = self
            .slot
            .thread
            .stop_ns
            .map(|ns| self.shared.start_ns().saturating_add(ns));
        self.shared.stop().load(Ordering::Relaxed) != 0 || end.is_some_and(|ns| sys::now_ns() >= ns)
    }

    fn guest(&mut self, cpu: &mut VcpuFd) -> Result<(), LoadError> {
        let thread = self.slot.thread.name.clone();
        let failed = |what: String| KvmError::Guest {
            thread: thread.clone(),
            what,
        };
        loop {
            match cpu.run() {
                Ok(VcpuExit::IoOut(port::OVER, _)) => {
                    if self.is_over() {
                        return Ok(());
                    }
                }
                Ok(VcpuExit::IoOut(port::REPLY, _)) => self.reply(),
                Ok(VcpuExit::IoOut(port::SEND, _)) => self.send(),
                Ok(VcpuExit::IoOut(port::CHUNK, _)) => self.chunk(),
                Ok(other) => {
                    let what = format!("the guest ended with {other:?}");
                    return Err(failed(what).into());
                }
                // A signal.
                Err(e) if [libc::EINTR, libc::EAGAIN].contains(&e.errno()) => {
                    if self.is_over() {
                        return Ok(());
                    }
                }
                Err(e) => return Err(failed(format!("KVM_RUN: {e}")).into()),
            }
        }
    }

    fn word(&self, at: u64) -> u64 {
        self.machine.memory.get(self.page + at)
    }

    fn reply(&mut self) {
        let (arrival_ns, asker) = (self.word(vcpu::CALL_A), self.word(vcpu::CALL_B));
        let now = sys::now_ns();
        if self.shared.measures(now) {
            self.latencies.response(now.saturating_sub(arrival_ns));
        }
        if let Some(asker) = unpack(asker) {
            self.shared.answered(asker, now);
        }
    }

    fn send(&mut self) {
        let to = self.word(vcpu::CALL_A) as usize;
        let Some(receiver) = self.machine.receivers.get(to) else {
            return;
        };
        let now = sys::now_ns();
        let message = Message {
            arrival_ns: now,
            sent_ns: now,
            client: None,
        };
        self.shared.put(receiver.home, &receiver.queue, message);
    }

    fn chunk(&mut self) {
        let comes = self.word(vcpu::CALL_B) != 0;
        let pool = self.machine.pools.get(self.word(vcpu::CALL_A) as usize);
        let home = self.shared.home(&self.slot.thread);
        let share = pool.map(|p| home.chunk(&p.name, self.slot.ordinal, comes, p.chunks, &p.each));
        let ns: Nanos = match share {
            Some(Share::Chunk { ns, .. }) => ns.max(1),
            _ => 0,
        };
        self.machine.memory.set(self.page + vcpu::CALL_C, ns);
    }

    /// The guest's histogram of wake-ups.
    fn wakeups(&mut self) {
        let table = self.word(vcpu::WAKEUPS);
        for i in 0..layout::BUCKETS {
            let n = self.machine.memory.get(table + 8 * i);
            if n > 0 {
                let ns = self.machine.ticks.to_ns(layout::bucket_ticks(i));
                self.latencies.wakeups(ns, n);
            }
        }
    }
}
