// SPDX-License-Identifier: GPL-2.0-only
//! Events of the workload, as the tokens that the machine keeps.
use super::device::{self, Which};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A client's request is due (number of the asker).
    Request(u32),
    /// The same, moved to the CPU of the thread it is for.
    RequestHere(u32),
    StartVm(u32),
    StopVm(u32),
    /// Inside a VM: it has been switched on.
    Boot(u32),
    /// Inside a VM: its agent looks.
    Look(u32),
    /// Where its home is: a request (home, queue) starts a thread.
    Begin(u32, u16),
    /// Inside a VM: an interrupt for a thread on another vCPU (thread, low half of its task).
    Wake(u32, u16),
    Net(device::Event),
    Disk(device::Event),
}

const KIND_SHIFT: u32 = 56;
/// Where a device's own kind begins.
const WHAT_SHIFT: u32 = 32;

impl Event {
    pub fn of(device: Which, event: device::Event) -> Event {
        match device {
            Which::Net => Event::Net(event),
            Which::Disk => Event::Disk(event),
        }
    }

    pub fn token(self) -> u64 {
        let (kind, what, number) = match self {
            Event::Request(asker) => (0, 0, asker),
            Event::RequestHere(asker) => (1, 0, asker),
            Event::StartVm(vm) => (2, 0, vm),
            Event::StopVm(vm) => (3, 0, vm),
            Event::Boot(vm) => (4, 0, vm),
            Event::Net(event) => (5, event.what, event.number),
            Event::Begin(home, queue) => (6, queue, home),
            Event::Disk(event) => (7, event.what, event.number),
            Event::Look(vm) => (8, 0, vm),
            Event::Wake(thread, task) => (9, task, thread),
        };
        kind << KIND_SHIFT | u64::from(what) << WHAT_SHIFT | u64::from(number)
    }

    pub fn read(token: u64) -> Event {
        let number = token as u32;
        match token >> KIND_SHIFT {
            0 => Event::Request(number),
            1 => Event::RequestHere(number),
            2 => Event::StartVm(number),
            3 => Event::StopVm(number),
            4 => Event::Boot(number),
            8 => Event::Look(number),
            6 => Event::Begin(number, (token >> WHAT_SHIFT) as u16),
            9 => Event::Wake(number, (token >> WHAT_SHIFT) as u16),
            kind => {
                let what = (token >> WHAT_SHIFT) as u16;
                let event = device::Event { what, number };
                if kind == 7 {
                    Event::Disk(event)
                } else {
                    Event::Net(event)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_read_as_it_was_written() {
        let number = u32::MAX;
        let of_net = |what| Event::Net(device::Event { what, number });
        for event in [
            Event::Request(number),
            Event::RequestHere(number),
            Event::StartVm(number),
            Event::StopVm(number),
            Event::Boot(number),
            Event::Look(number),
            Event::Begin(number, u16::MAX),
            Event::Wake(number, u16::MAX),
            of_net(0),
            of_net(u16::MAX),
            Event::Disk(device::Event {
                what: u16::MAX,
                number,
            }),
        ] {
            assert_eq!(Event::read(event.token()), event);
        }
    }
}
