// SPDX-License-Identifier: GPL-2.0-only
//! What is where in the network. Rings are queues of parcels that allocate only when more parcels exist at once than
//! ever before.
use super::super::Worker;
use super::super::flow::Flow;
use super::detail::Detail;
use super::link::Link;
use super::parcel::{Cargo, Parcel};
use crate::words::{CpuId, Nanos};
use berth_scenario::model::Net as Spec;
use std::collections::VecDeque;

/// Where a parcel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// On the wire to the host, or waiting for it.
    WireIn,
    /// In the NIC, or taken by an interrupt that is not over.
    Nic,
    /// With the thread that moves packets between NIC and guest.
    BackEnd,
    /// On the wire to the client.
    WireOut,
    /// Waiting for the softirq of another CPU, or taken by it.
    Softirq,
    /// Dropped: the client has not noticed yet.
    Resend,
    /// Until the guest gives the acknowledgement that stands for it.
    Held,
}

const STAGES: [(Stage, &str); 7] = [
    (Stage::WireIn, "on the wire to the host"),
    (Stage::Nic, "in the NIC"),
    (Stage::BackEnd, "at the back end"),
    (Stage::WireOut, "on the wire to the client"),
    (Stage::Softirq, "in a softirq"),
    (Stage::Resend, "waiting to be sent again"),
    (Stage::Held, "waiting to be acknowledged"),
];

/// A VM's queue in the NIC.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub rx: VecDeque<Parcel>,
    /// CPU of the host that takes its interrupts.
    pub cpu: CpuId,
    /// An interrupt is on its way or being served.
    pub pending: bool,
    /// No interrupt before then.
    pub quiet_until: Nanos,
    /// Position of its back end; none for direct assignment.
    pub back: Option<u32>,
    /// The VM has stopped.
    pub stopped: bool,
    /// Position of its VM's group in [`Net::counters`].
    pub group: usize,
}

/// Threads that move packets, and the ring they serve.
#[derive(Clone, Debug, Default)]
pub(super) struct BackEnd {
    pub ring: VecDeque<Parcel>,
    /// Workers of it that sleep.
    pub idle: Vec<u32>,
}

/// A worker's part of a back end.
#[derive(Clone, Debug)]
pub(super) struct Hand {
    pub back: u32,
    pub holds: Option<Parcel>,
}

/// One client's requests to one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub vm: u32,
    /// Of a request and of a reply.
    pub bytes: [u64; 2],
    pub packets: [u64; 2],
    /// Its replies only acknowledge.
    pub acknowledges: bool,
}

/// What the network is told of a client's requests to one VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetStream {
    pub vm: u32,
    /// Of a request and of a reply.
    pub bytes: [u64; 2],
    /// Its replies only acknowledge.
    pub acknowledges: bool,
}

impl Stream {
    pub fn new(of: NetStream, mtu: u32) -> Stream {
        let NetStream {
            vm,
            bytes,
            acknowledges,
        } = of;
        let packets = bytes.map(|bytes| bytes.div_ceil(u64::from(mtu.max(1))).max(1));
        Stream {
            vm,
            bytes,
            packets,
            acknowledges,
        }
    }
}

/// What a group of VMs has had of the network since the warm-up.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub group: String,
    /// Clients ask it.
    pub asked: bool,
    /// Packets that the NIC received for it or sent from it.
    pub packets: u64,
}

/// Everything between the clients and the guests.
#[derive(Debug)]
pub struct Net {
    pub(super) spec: Spec,
    pub(super) link: Link,
    /// By number of the client's stream.
    pub(super) streams: Vec<Stream>,
    /// Parcels on the wire, in the order of arrival.
    pub(super) wire: [VecDeque<Parcel>; 2],
    /// By VM.
    pub(super) ports: Vec<Port>,
    pub(super) backs: Vec<BackEnd>,
    pub(super) workers: Vec<Worker>,
    /// By worker.
    pub(super) hands: Vec<Hand>,
    pub(super) stages: [Flow; STAGES.len()],
    /// By VM group.
    pub(super) counters: Vec<Counter>,
    pub(super) measure_from: Nanos,
    /// Costs by stage; none: three costs are all.
    pub(super) detail: Option<Box<Detail>>,
}

impl Net {
    pub(super) fn stream(&self, cargo: Cargo) -> &Stream {
        &self.streams[cargo.stream as usize]
    }

    pub(super) fn packets(&self, cargo: Cargo) -> u64 {
        self.stream(cargo).packets[usize::from(cargo.out)]
    }

    /// Its packets pass the NIC.
    pub(super) fn count(&mut self, cargo: Cargo, now: Nanos) {
        if now >= self.measure_from {
            let group = self.ports[self.stream(cargo).vm as usize].group;
            self.counters[group].packets += self.packets(cargo);
        }
    }

    /// A parcel comes to a stage.
    pub(super) fn come(&mut self, stage: Stage, cargo: Cargo, now: Nanos) -> Parcel {
        self.stages[stage as usize].enter(now);
        Parcel {
            cargo,
            since: now,
            cpu: 0,
            rides: false,
        }
    }

    /// It leaves that stage.
    pub(super) fn leave(&mut self, stage: Stage, parcel: Parcel, now: Nanos) {
        self.stages[stage as usize].leave(parcel.since, now, true);
    }

    fn at_stage(&self, stage: Stage) -> Box<dyn Iterator<Item = &Parcel> + '_> {
        match stage {
            Stage::WireIn => Box::new(self.wire[0].iter()),
            Stage::Nic => {
                let polled = self.detail.iter().flat_map(|d| d.polled.iter().flatten());
                Box::new(self.ports.iter().flat_map(|p| &p.rx).chain(polled))
            }
            Stage::BackEnd => {
                let rings = self.backs.iter().flat_map(|b| &b.ring);
                let detail = self.detail.iter();
                let taken = detail.flat_map(|d| d.sends.iter().chain(&d.taken).flatten());
                let held = self.hands.iter().filter_map(|h| h.holds.as_ref());
                Box::new(rings.chain(held).chain(taken))
            }
            Stage::WireOut => Box::new(self.wire[1].iter()),
            Stage::Softirq => {
                let detail = self.detail.iter();
                Box::new(detail.flat_map(|d| d.backlog.iter().chain(&d.soft).flatten()))
            }
            Stage::Held => {
                let detail = self.detail.iter();
                Box::new(detail.flat_map(|d| d.streams.iter().flat_map(|s| &s.held)))
            }
            Stage::Resend => Box::new(self.detail.iter().flat_map(|d| &d.resends)),
        }
    }

    /// Every parcel there is.
    pub(super) fn parcels(&self) -> impl Iterator<Item = &Parcel> {
        let stages = STAGES.into_iter();
        stages.flat_map(|(stage, _)| self.at_stage(stage))
    }

    /// Little's law, stage by stage: what is wrong, if anything.
    pub(super) fn little(&self, now: Nanos) -> Option<String> {
        STAGES.into_iter().find_map(|(stage, name)| {
            let since = self.at_stage(stage).map(|p| p.since);
            let what = self.stages[stage as usize].violated(now, since)?;
            Some(format!("{name}: {what}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_parcel() {
        let stream = |bytes| NetStream {
            vm: 0,
            bytes,
            acknowledges: false,
        };
        assert_eq!(Stream::new(stream([64, 4500]), 1500).packets, [1, 3]);
        assert_eq!(Stream::new(stream([0, 1501]), 1500).packets, [1, 2]);
    }
}
