// SPDX-License-Identifier: GPL-2.0-only
//! Devices: whom a client or a task gives a piece of work, and who is told when it is done.
//!
//! [`Device`] is what each of them is asked for; [`Bus`] is all that a device reaches: instants, interrupts, its own
//! threads, and those who wait. The way of one piece of work, and whose CPU time it costs:
//!
//! | what | when | CPU time |
//! |---|---|---|
//! | [`Device::guest_ns`] | before a task gives it in, and when it has got it back | the task's |
//! | [`Device::enter`] | a client outside, or a task at a step, gives it in | nobody's: arithmetic |
//! | [`Device::event`] | an instant that the device has asked for ([`Bus::at`]) | nobody's: arithmetic |
//! | [`Bus::interrupt`] | in an event: the host's interrupt and softirq | taken from who runs on that CPU |
//! | [`Device::serve`] | a thread of the device has a CPU | that thread's: the policy schedules it |
//! | [`Bus::done`], [`Bus::lost`] | in any of these | a guest's interrupt, if the one who waits is in a guest |
//!
//! The threads of a device ([`Worker`]) are tasks like any other, with the role by which policies know them. A device
//! is static code behind this trait: no event costs a virtual call.
//!
//! A second device: a folder here that implements [`Device`] for its kind of work, and its name in [`Which`]; the
//! compiler leads from there to `workload/devices`, where it gets its field and its [`Bus::done`]. Steps that give it
//! work are in `workload/steps`. [`net`] is the first, [`disk`] the second.
use super::api::{Action, CpuId, Ctx, HOST, MachineId, Nanos, Role, VmId};
use std::collections::BTreeMap;

pub(super) mod disk;
pub(super) mod flow;
pub(super) mod net;
#[cfg(test)]
mod testing;

/// A CPU of a machine of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub machine: MachineId,
    pub cpu: CpuId,
}

impl Place {
    pub fn of_host(cpu: CpuId) -> Place {
        Place { machine: HOST, cpu }
    }

    /// Where this call is executed.
    pub fn here(ctx: &Ctx) -> Place {
        Place {
            machine: ctx.machine(),
            cpu: ctx.cpu(),
        }
    }

    /// Arms an event of the workload there, at this instant, ns.
    pub fn arm(self, at: Nanos, token: u64, ctx: &mut Ctx) {
        if self.machine == ctx.machine() {
            ctx.at_on(self.cpu, at, token);
        } else {
            ctx.at_in(self.machine, self.cpu, at, token);
        }
    }
}

/// An event of a device, in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub what: u16,
    /// What it is about: a VM, a request, ...
    pub number: u32,
}

/// The devices that a workload can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Net,
    Disk,
}

/// Number of [`Which`].
pub(super) const DEVICES: usize = 2;

/// A thread's place in a device: its number among the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Post {
    pub device: Which,
    pub worker: u32,
}

/// A thread of a device, which starts and stops with a VM. Its number is its position in [`Device::workers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Worker {
    pub vm: VmId,
    pub role: Role,
}

/// A task that pays for its part of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taker {
    /// Its number among the threads.
    pub thread: u32,
    /// The CPU that runs it.
    pub cpu: CpuId,
    /// It slept before it got this, so that the guest's interrupt is part of it.
    pub woken: bool,
}

/// A device. `Work`: one piece of work, and who waits for it.
pub(super) trait Device {
    type Work: Copy;

    /// Its threads; the same ones in the whole run.
    fn workers(&self) -> &[Worker];

    /// A piece of work comes in. It may be done within the call.
    fn enter(&mut self, work: Self::Work, bus: &mut impl Bus<Self::Work>);

    /// An event is due, where and when [`Bus::at`] was told.
    fn event(&mut self, event: Event, bus: &mut impl Bus<Self::Work>);

    /// This thread of the device has done what it was told, or has been woken: what it does next. One that finds
    /// nothing returns [`Action::Block`], and is to be woken by [`Bus::wake`].
    fn serve(&mut self, worker: u32, bus: &mut impl Bus<Self::Work>) -> Action;

    /// CPU time that a task pays for a piece of work, ns: before it gives it in, or when it has got it.
    fn guest_ns(&mut self, work: Self::Work, taker: Taker) -> Nanos;

    /// A VM has stopped, and with it the device's threads of that VM: what they had is lost, and what is still on its
    /// way to the VM will be.
    fn stop_vm(&mut self, vm: VmId, bus: &mut impl Bus<Self::Work>);

    /// All work in the device.
    fn inside(&self) -> impl Iterator<Item = Self::Work>;

    /// What was counted before this instant is left out of the metrics.
    fn measure_from(&mut self, now: Nanos);

    /// Its metrics, `VM.NAME`; `seconds`: measured time.
    fn metrics(&self, seconds: f64, out: &mut BTreeMap<String, f64>);

    /// An invariant that does not hold, as one sentence.
    fn violated(&self, now: Nanos) -> Option<String>;
}

/// What a device reaches, for its kind of work.
pub(super) trait Bus<Work> {
    /// The present instant, ns.
    fn now(&self) -> Nanos;

    /// The CPU that executes this call.
    fn here(&self) -> Place;

    /// A CPU of the host for what happens outside a VM: the present one, if the call is executed by the host.
    fn outside(&self, vm: VmId) -> Place;

    /// Where an interrupt for the one who waits for this work goes, if it goes straight to it.
    fn place_of(&self, work: Work) -> Place;

    /// [`Device::event`] at this instant, ns, by an interrupt there.
    fn at(&mut self, place: Place, at: Nanos, event: Event);

    /// An interrupt takes this much of the present CPU's time, ns. Returns when its handler is done.
    fn interrupt(&mut self, ns: Nanos) -> Nanos;

    /// Wakes a thread of the device that sleeps.
    fn wake(&mut self, worker: u32);

    /// The device has done its part: who waits for it is told, by an interrupt if it is in a guest.
    fn done(&mut self, work: Work);

    /// The work will never be done: its VM has stopped.
    fn lost(&mut self, work: Work);
}
