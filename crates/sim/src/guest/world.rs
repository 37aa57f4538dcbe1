// SPDX-License-Identifier: GPL-2.0-only
//! The host, its guests and the one clock they share.
//!
//! The clock is a winner tree over machines, keyed by each machine's earliest event: after an event only the
//! machines it touched are set anew, and a machine with nothing due costs nothing. Equal times: the host
//! first, then guests in the order of their VMs.
use super::horizon::Horizon;
use crate::engine::queue::{EventQueue, NEVER};
use crate::error::SimError;
use crate::machine::task::Life;
use crate::machine::vcpu::{Vcpu, VcpuState};
use crate::reference::Ref;
use crate::scx::Handle;
use crate::words::{HOST, MachineId, Nanos, TaskSpec};

/// What the host keeps of a guest that events do not touch.
#[derive(Debug)]
pub struct GuestInfo {
    pub name: String,
    /// Of its vCPUs, until they are started.
    pub threads: Vec<TaskSpec>,
    /// Its vCPUs are those from here.
    pub first: u32,
    /// vCPU last helped by a yield of another one.
    pub boosted: u32,
}

/// All machines of a run.
#[derive(Default)]
pub struct World {
    /// The host, then a place per VM; a VM without the guest level has no machine.
    pub machines: Vec<Option<Handle>>,
    pub guests: Vec<Option<GuestInfo>>,
    pub clock: Clock,
    pub ahead: Horizon,
    pub vcpus: Vec<Vcpu>,
    /// Something has ended the run.
    pub stop: bool,
    /// Events handled.
    pub events: u64,
}

/// Earliest event of each machine, and their number.
pub struct Clock(EventQueue, MachineId);

impl Default for Clock {
    fn default() -> Self {
        let mut clock = Clock(EventQueue::new(2), 0);
        clock.grow(HOST);
        clock
    }
}

impl Clock {
    /// Room for this machine and those before it.
    pub fn grow(&mut self, machine: MachineId) {
        while self.1 <= machine {
            self.1 = self.0.alloc() + 1;
        }
    }

    #[inline]
    pub fn peek(&self) -> (Nanos, MachineId) {
        self.0.peek()
    }

    pub fn horizon(&self) -> Nanos {
        self.0.horizon()
    }

    /// Machines with an event up to this time, in no order, as many as there is room for; their number.
    pub fn soon(&self, until: Nanos, found: &mut [MachineId]) -> usize {
        self.0.soon(until, found)
    }

    #[inline]
    pub fn set(&mut self, machine: MachineId, at: Nanos) {
        self.0.set(machine, at);
    }
}

/// The world, to act on.
pub type WorldRef = Ref<World>;

impl WorldRef {
    #[inline]
    pub fn host(self) -> Handle {
        self.machines[0].expect("the host is always there")
    }

    /// The machine inside a VM.
    #[inline]
    pub fn guest(self, machine: MachineId) -> Option<Handle> {
        self.machines.get(machine as usize).copied().flatten()
    }

    /// A machine's earliest event may be another one now.
    #[inline]
    pub fn touch(mut self, k: Handle) {
        let at = if k.guest.off {
            NEVER
        } else if k.rests() {
            k.watchdog_at()
        } else {
            k.queue.peek().0
        };
        self.clock.set(k.id, at);
    }

    /// Time that a vCPU has run, waited and been halted up to now, in ns.
    pub fn times(self, vcpu: u32) -> (Nanos, Nanos, Nanos) {
        let v = &self.vcpus[vcpu as usize];
        let host = self.host();
        let (mut run, mut steal, mut halt) = (v.run_ns, v.steal_ns, v.halt_ns);
        let span = host.now - v.since.min(host.now);
        match v.state {
            VcpuState::Off => (),
            VcpuState::Running => run += span,
            VcpuState::Waiting => steal += span,
            VcpuState::Halted => {
                let hot = &host.tasks.hot[v.task as usize];
                let waits = if hot.life == Life::Runnable {
                    host.now - hot.queued_at
                } else {
                    0
                };
                steal += waits;
                halt += span - waits;
            }
        }
        (run, steal, halt)
    }

    /// Wall = run + steal + halt for each vCPU, to the nanosecond; what it ran is what its thread had; what the
    /// guest's CPU counts agrees with what the host's thread counts.
    ///
    /// # Errors
    /// The first vCPU of which this is not so.
    pub fn check(self) -> Result<(), SimError> {
        let host = self.host();
        for (i, v) in self.vcpus.iter().enumerate() {
            if v.state == VcpuState::Off {
                continue;
            }
            let broken = |what: String| {
                let guest = self.guests[v.machine as usize - 1].as_ref();
                let name = guest.map_or("", |g| g.name.as_str());
                SimError::Invariant {
                    what: format!("vCPU {} of VM {name} {what}", v.cpu),
                    at_ns: host.now,
                    seed: host.seed,
                }
            };
            let (run, steal, halt) = self.times(i as u32);
            let wall = host.now - v.born;
            if run + steal + halt != wall {
                return Err(broken(format!(
                    "ran {run} ns, waited {steal} ns and halted {halt} ns of {wall} ns"
                )));
            }
            let hot = &host.tasks.hot[v.task as usize];
            let c = &host.cpus[hot.cpu as usize];
            let now_running = if c.curr == v.task {
                host.now - c.since
            } else {
                0
            };
            if hot.runtime + now_running != run {
                let had = hot.runtime + now_running;
                return Err(broken(format!(
                    "ran {run} ns, but its thread had a CPU for {had} ns"
                )));
            }
            let Some(k) = self.guest(v.machine) else {
                continue;
            };
            let c = &k.cpus[v.cpu as usize];
            let mut busy = c.busy_ns;
            let mut stolen = c.stolen_ns;
            let mut idle = c.idle_ns;
            let span = host.now - c.since;
            match (c.is_idle(), c.paused) {
                (true, _) => idle += span,
                (false, true) => stolen += span,
                (false, false) => busy += span,
            }
            if busy > run || stolen > steal || idle + busy + stolen != host.now {
                return Err(broken(format!(
                    "ran {run} ns and waited {steal} ns; its guest counts {busy} ns of work, {stolen} ns stolen \
                     and {idle} ns idle of {} ns",
                    host.now
                )));
            }
        }
        Ok(())
    }
}
