// SPDX-License-Identifier: GPL-2.0-only
//! The network between clients and tasks: what is where, and the arithmetic. Who moves it on is in
//! [`super::path`]. Stages and what is left out: `docs/network.md`.
//!
//! A request or reply travels as one parcel of one or more packets. Rings are queues of parcels that allocate
//! only when more parcels exist at once than ever before.
use super::api::{CpuId, Nanos};
use super::flow::Flow;
use super::mail::Message;
use berth_scenario::model::{Net as Spec, NetPath, Scenario, VmRole};
use berth_scenario::placement::{self, PlacementError};
use std::collections::VecDeque;

/// A request on its way in, or a reply on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parcel {
    pub message: Message,
    /// Since when it is in its present stage.
    pub since: Nanos,
    /// It is a reply.
    pub out: bool,
}

/// Where a parcel is. In the guest it is a message (see [`super::mail`]).
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
}

const STAGES: [&str; 4] = [
    "on the wire to the host",
    "in the NIC",
    "at the back end",
    "on the wire to the client",
];

/// A full-duplex link: serialisation, first come first served each way, then the latency.
#[derive(Clone, Debug)]
pub(super) struct Link {
    bit_s: u64,
    latency: Nanos,
    /// When each direction has sent what it was given: in, out.
    free: [Nanos; 2],
}

impl Link {
    pub fn new(bit_s: u64, latency: Nanos) -> Link {
        Link {
            bit_s: bit_s.max(1),
            latency,
            free: [0; 2],
        }
    }

    /// Time that so many bytes (at least one) take on the wire, ns, rounded up.
    pub fn serialise(&self, bytes: u64) -> Nanos {
        let bits = u128::from(bytes.max(1)) * 8_000_000_000;
        bits.div_ceil(u128::from(self.bit_s)).min(1 << 62) as Nanos
    }

    /// Sends now; tells when the last bit arrives. Later than every earlier parcel of the same direction.
    pub fn send(&mut self, out: bool, bytes: u64, now: Nanos) -> Nanos {
        let ns = self.serialise(bytes);
        let free = &mut self.free[usize::from(out)];
        *free = (*free).max(now).saturating_add(ns);
        free.saturating_add(self.latency)
    }
}

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
}

/// Threads that move packets, and the ring they serve.
#[derive(Clone, Debug, Default)]
pub(super) struct BackEnd {
    pub ring: VecDeque<Parcel>,
    /// Threads of it that sleep.
    pub idle: Vec<u32>,
}

/// Sizes of one client's requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub bytes: [u64; 2],
    /// Packets: of the request, of the reply.
    pub packets: [u64; 2],
    /// What counts as carried: request and reply; of a stream, whose replies only acknowledge, the request.
    pub payload: u64,
}

impl Sizes {
    pub fn new(request: u64, reply: u64, stream: bool, mtu: u32) -> Sizes {
        let packets = |bytes: u64| bytes.div_ceil(u64::from(mtu.max(1))).max(1);
        Sizes {
            bytes: [request, reply],
            packets: [packets(request), packets(reply)],
            payload: if stream { request } else { request + reply },
        }
    }
}

/// Everything outside the guests.
#[derive(Debug)]
pub(super) struct Net {
    pub spec: Spec,
    pub link: Link,
    /// Parcels on the wire, in the order of arrival.
    pub wire: [VecDeque<Parcel>; 2],
    /// By VM.
    pub ports: Vec<Port>,
    pub backs: Vec<BackEnd>,
    /// Parcel in the hands of a back end's thread, by its number among them.
    pub hands: Vec<Option<Parcel>>,
    stages: [Flow; 4],
}

/// A thread of the network, to be started with its VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BackThread {
    /// VM that it belongs to.
    pub vm: u32,
    /// Its vCPU, for a driver domain.
    pub vcpu: Option<u32>,
    pub back: u32,
}

impl Net {
    /// `None`: requests are interrupts, nothing lies between. Also gives the threads that move packets; `busy`
    /// tells which vCPUs of which VM have other work.
    ///
    /// # Errors
    /// A path that does not exist: no driver domain, or none with a free vCPU; a link that carries nothing.
    pub fn new(
        scenario: &Scenario,
        nr_cpus: u32,
        busy: impl Fn(u32, u32) -> bool,
    ) -> Result<Option<(Net, Vec<BackThread>)>, PlacementError> {
        let spec = scenario.net.clone();
        if spec.path == NetPath::None || scenario.clients.is_empty() {
            return Ok(None);
        }
        let refuse = |why: &str| Err(PlacementError::Network(why.to_string()));
        if spec.link_bit_s == 0 {
            return refuse(
                "net.link is 0 bit/s: no request would ever arrive; give it a speed, say 10Gbit/s",
            );
        }
        let vms = placement::instances(scenario);
        let asked = |vm: &placement::VmInstance| {
            let name = &scenario.vms[vm.group].name;
            scenario.clients.iter().any(|c| c.to == *name)
        };
        let mut threads = Vec::new();
        let mut backs = Vec::new();
        let mut ports = Vec::new();
        if spec.path == NetPath::DriverDomain {
            for vm in vms
                .iter()
                .filter(|vm| scenario.vms[vm.group].role == VmRole::Driver)
            {
                let free = (0..scenario.vms[vm.group].vcpus).filter(|v| !busy(vm.ordinal, *v));
                let before = threads.len();
                threads.extend(free.map(|vcpu| BackThread {
                    vm: vm.ordinal,
                    vcpu: Some(vcpu),
                    back: backs.len() as u32,
                }));
                if threads.len() > before {
                    backs.push(BackEnd::default());
                }
            }
            if backs.is_empty() {
                return refuse(
                    "net.path is driver-domain, but no VM with role = \"driver\" has a vCPU for it: add \
                     [vm.dom0] with role = \"driver\", or choose another path",
                );
            }
        }
        let drivers = backs.len() as u32;
        for vm in &vms {
            let back = match spec.path {
                NetPath::None | NetPath::Direct => None,
                // Several driver domains share the VMs.
                NetPath::DriverDomain => Some(vm.ordinal % drivers),
                NetPath::Vhost | NetPath::Emulator if asked(vm) => {
                    backs.push(BackEnd::default());
                    let back = backs.len() as u32 - 1;
                    threads.push(BackThread {
                        vm: vm.ordinal,
                        vcpu: None,
                        back,
                    });
                    Some(back)
                }
                NetPath::Vhost | NetPath::Emulator => None,
            };
            ports.push(Port {
                rx: VecDeque::new(),
                // A queue per CPU; VMs are dealt over them.
                cpu: vm.ordinal % nr_cpus.max(1),
                pending: false,
                quiet_until: 0,
                back,
                stopped: false,
            });
        }
        let net = Net {
            link: Link::new(spec.link_bit_s, spec.latency_ns),
            spec,
            wire: Default::default(),
            ports,
            backs,
            hands: vec![None; threads.len()],
            stages: Default::default(),
        };
        Ok(Some((net, threads)))
    }

    /// A parcel comes to a stage.
    pub fn enter(&mut self, stage: Stage, message: Message, out: bool, now: Nanos) -> Parcel {
        self.stages[stage as usize].enter(now);
        Parcel {
            message,
            since: now,
            out,
        }
    }

    /// It leaves that stage.
    pub fn leave(&mut self, stage: Stage, parcel: Parcel, now: Nanos) {
        self.stages[stage as usize].leave(parcel.since, now, true);
    }

    /// Every parcel there is.
    pub fn parcels(&self) -> impl Iterator<Item = &Parcel> {
        let rings = self.backs.iter().flat_map(|b| &b.ring);
        let rx = self.ports.iter().flat_map(|p| &p.rx);
        let wires = self.wire.iter().flatten();
        wires
            .chain(rx)
            .chain(rings)
            .chain(self.hands.iter().flatten())
    }

    /// Little's law, stage by stage: what is wrong, if anything.
    pub fn violated(&self, now: Nanos) -> Option<String> {
        let since = |p: &Parcel| p.since;
        let at_back = self
            .backs
            .iter()
            .flat_map(|b| &b.ring)
            .chain(self.hands.iter().flatten());
        let [wire_in, nic, back, wire_out] = &self.stages;
        let wrong = [
            wire_in.violated(now, self.wire[0].iter().map(since)),
            nic.violated(now, self.ports.iter().flat_map(|p| &p.rx).map(since)),
            back.violated(now, at_back.map(since)),
            wire_out.violated(now, self.wire[1].iter().map(since)),
        ];
        let at = wrong.iter().position(Option::is_some)?;
        let what = wrong.into_iter().flatten().next()?;
        Some(format!("{}: {what}", STAGES[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_serialises_each_way_by_itself() {
        // 1 Gbit/s: 8 ns a byte.
        let mut link = Link::new(1_000_000_000, 30_000);
        assert_eq!(link.send(false, 1500, 0), 12_000 + 30_000);
        assert_eq!(link.send(false, 1500, 5_000), 24_000 + 30_000);
        assert_eq!(link.send(true, 64, 5_000), 5_512 + 30_000);
        assert_eq!(link.send(false, 1, 100_000), 100_008 + 30_000);
        // Even nothing takes a while: parcels do not overtake or coincide.
        let mut fast = Link::new(400_000_000_000, 0);
        assert_eq!((fast.send(true, 0, 7), fast.send(true, 0, 7)), (8, 9));
        assert_eq!(Link::new(1, 0).serialise(u64::MAX), 1 << 62);
    }

    #[test]
    fn packets_of_a_parcel() {
        let sizes = Sizes::new(64, 4500, false, 1500);
        assert_eq!((sizes.packets, sizes.payload), ([1, 3], 4564));
        let sizes = Sizes::new(0, 1501, true, 1500);
        assert_eq!((sizes.packets, sizes.payload), ([1, 2], 0));
    }
}
