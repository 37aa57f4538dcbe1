// SPDX-License-Identifier: GPL-2.0-only
//! The devices of a scenario, and what they reach of the rest of it.
use super::api::{Action, Ctx, HOST, Nanos, VmId};
use super::device::disk::{Disks, Job};
use super::device::net::{Cargo, Net};
use super::device::{self, Bus, Device, Place, Post, Which, Worker};
use super::events::Event;
use super::homes::Homes;
use super::mail::{Asker, Message};
use super::requests::Requests;
use super::threads::Threads;
use crate::guest::machine_of;

/// The devices there are.
pub(super) struct Devices {
    /// `None`: requests are interrupts, nothing lies between clients and tasks.
    pub net: Option<Net>,
    /// `None`: nobody reads or writes.
    pub disk: Option<Disks>,
}

/// What all devices reach.
pub(super) struct Board<'a> {
    pub homes: &'a Homes,
    pub threads: &'a Threads,
    pub requests: &'a mut Requests,
    pub ctx: &'a mut Ctx,
}

impl Devices {
    /// All threads of devices.
    pub fn workers(&self) -> impl Iterator<Item = (Post, &Worker)> {
        let post = |device, worker| Post { device, worker };
        let net = self.net.iter().flat_map(|net| (0..).zip(net.workers()));
        let net = net.map(move |(worker, of)| (post(Which::Net, worker), of));
        let disk = self.disk.iter().flat_map(|disk| (0..).zip(disk.workers()));
        net.chain(disk.map(move |(worker, of)| (post(Which::Disk, worker), of)))
    }

    /// A thread of a device asks what it does next.
    pub fn serve(&mut self, post: Post, mut board: Board) -> Action {
        match post.device {
            Which::Net => match &mut self.net {
                Some(net) => net.serve(post.worker, &mut board),
                None => Action::Block,
            },
            Which::Disk => match &mut self.disk {
                Some(disk) => disk.serve(post.worker, &mut board),
                None => Action::Block,
            },
        }
    }

    pub fn stop_vm(&mut self, vm: VmId, mut board: Board) {
        if let Some(net) = &mut self.net {
            net.stop_vm(vm, &mut board);
        }
        if let Some(disk) = &mut self.disk {
            disk.stop_vm(vm, &mut board);
        }
    }
}

/// What the network carries of a message; `None`: it is no client's.
pub(super) fn cargo(message: Message, out: bool) -> Option<Cargo> {
    let Asker { stream, user } = message.from?;
    let sent = message.sent;
    Some(Cargo {
        sent,
        stream,
        user,
        out,
    })
}

fn message(cargo: Cargo) -> Message {
    let Cargo { stream, user, .. } = cargo;
    Message {
        sent: cargo.sent,
        from: Some(Asker { stream, user }),
    }
}

impl Bus<Cargo> for Board<'_> {
    fn now(&self) -> Nanos {
        self.ctx.now()
    }

    fn here(&self) -> Place {
        Place::here(self.ctx)
    }

    fn outside(&self, vm: VmId) -> Place {
        self.homes.outside(vm, self.ctx)
    }

    fn place_of(&self, cargo: Cargo) -> Place {
        let stream = &self.requests.clients.streams[cargo.stream as usize];
        let waits = self
            .requests
            .waits_on(self.threads, stream.vm, stream.queue);
        let cpu = waits.unwrap_or_else(|| self.requests.taken_on(stream.vm));
        if !self.homes.is_inside(stream.vm) {
            return Place::of_host(cpu);
        }
        Place {
            machine: machine_of(stream.vm),
            cpu: self.homes.takes_interrupt(stream.vm, cpu),
        }
    }

    fn at(&mut self, place: Place, at: Nanos, event: device::Event) {
        place.arm(at, Event::of(Which::Net, event).token(), self.ctx);
    }

    fn interrupt(&mut self, ns: Nanos) -> Nanos {
        self.ctx.interrupt(ns)
    }

    fn wake(&mut self, worker: u32) {
        let device = Which::Net;
        let post = Post { device, worker };
        self.threads.wake_worker(post, self.homes, self.ctx);
    }

    /// A request is put into the queue of the guest's task, a reply is with its client.
    fn done(&mut self, cargo: Cargo) {
        let message = message(cargo);
        if cargo.out {
            return self.requests.answered(self.homes, message, self.ctx);
        }
        let stream = &self.requests.clients.streams[cargo.stream as usize];
        let (home, queue) = (stream.vm, stream.queue);
        let (homes, threads) = (self.homes, self.threads);
        self.requests
            .send(homes, threads, home, queue, message, self.ctx);
    }

    fn lost(&mut self, cargo: Cargo) {
        let now = self.ctx.now();
        self.requests.give_up(message(cargo), now);
    }
}

impl Bus<Job> for Board<'_> {
    fn now(&self) -> Nanos {
        self.ctx.now()
    }

    fn here(&self) -> Place {
        Place::here(self.ctx)
    }

    fn outside(&self, vm: VmId) -> Place {
        self.homes.outside(vm, self.ctx)
    }

    fn place_of(&self, job: Job) -> Place {
        let t = &self.threads[job.thread];
        Place {
            machine: t.machine,
            cpu: match t.machine {
                HOST => t.cpu,
                _ => self.homes.takes_interrupt(t.home, t.cpu),
            },
        }
    }

    fn at(&mut self, place: Place, at: Nanos, event: device::Event) {
        place.arm(at, Event::of(Which::Disk, event).token(), self.ctx);
    }

    fn interrupt(&mut self, ns: Nanos) -> Nanos {
        self.ctx.interrupt(ns)
    }

    fn wake(&mut self, worker: u32) {
        let device = Which::Disk;
        let post = Post { device, worker };
        self.threads.wake_worker(post, self.homes, self.ctx);
    }

    /// The thread whose step it is goes on.
    fn done(&mut self, job: Job) {
        self.threads.wake(job.thread, self.homes, self.ctx);
    }

    /// Its thread is gone.
    fn lost(&mut self, _job: Job) {}
}
