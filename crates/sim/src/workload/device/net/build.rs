// SPDX-License-Identifier: GPL-2.0-only
//! The network of a scenario: its streams, ports, back ends and the threads that move packets.
use super::super::Worker;
use super::detail::Detail;
use super::link::Link;
use super::state::{BackEnd, Counter, Hand, Net, NetStream, Port, Stream};
use crate::words::{Nanos, Role};
use berth_scenario::model::{NetPath, Scenario, VmRole};
use berth_scenario::placement::{self, PlacementError, VmInstance};
use std::collections::VecDeque;

/// Back ends, and who works for them.
#[derive(Default)]
struct Staff {
    backs: Vec<BackEnd>,
    workers: Vec<Worker>,
    hands: Vec<Hand>,
}

impl Staff {
    fn hire(&mut self, back: u32, vm: u32, role: Role) {
        self.workers.push(Worker { vm, role });
        self.hands.push(Hand { back, holds: None });
    }

    /// One more back end, with these threads of a VM; `None`: there are none.
    fn back_end(&mut self, vm: u32, roles: impl IntoIterator<Item = Role>) -> Option<u32> {
        let (back, before) = (self.backs.len() as u32, self.workers.len());
        for role in roles {
            self.hire(back, vm, role);
        }
        if self.workers.len() == before {
            return None;
        }
        self.backs.push(BackEnd::default());
        Some(back)
    }
}

impl Net {
    /// `None`: requests are interrupts, nothing lies between. `streams`: each client's. `busy` tells which vCPUs of
    /// which VM have other work.
    ///
    /// # Errors
    /// A path that does not exist: no driver domain, or none with a free vCPU; a link that carries nothing.
    pub fn new(
        scenario: &Scenario,
        streams: impl Iterator<Item = NetStream>,
        busy: impl Fn(u32, u32) -> bool,
    ) -> Result<Option<Net>, PlacementError> {
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
        let counters: Vec<Counter> = scenario
            .vms
            .iter()
            .map(|vm| Counter {
                group: vm.name.clone(),
                asked: scenario.clients.iter().any(|c| c.to == vm.name),
                packets: 0,
            })
            .collect();
        let mut staff = Staff::default();
        if spec.path == NetPath::DriverDomain {
            let drives = |vm: &&VmInstance| scenario.vms[vm.group].role == VmRole::Driver;
            for vm in vms.iter().filter(drives) {
                let free = (0..scenario.vms[vm.group].vcpus).filter(|v| !busy(vm.ordinal, *v));
                staff.back_end(vm.ordinal, free.map(Role::Vcpu));
            }
            if staff.backs.is_empty() {
                return refuse(
                    "net.path is driver-domain, but no VM with role = \"driver\" has a vCPU for it: add \
                     [vm.dom0] with role = \"driver\", or choose another path",
                );
            }
        }
        let drivers = staff.backs.len() as u32;
        let ports = vms.iter().map(|vm| Port {
            rx: VecDeque::new(),
            // A queue per CPU; VMs are dealt over them.
            cpu: in_turn(&spec.irq_cpus, vm.ordinal)
                .unwrap_or(vm.ordinal % scenario.host.nr_cpus().max(1)),
            pending: false,
            quiet_until: 0,
            back: match spec.path {
                NetPath::None | NetPath::Direct => None,
                // Several driver domains share the VMs.
                NetPath::DriverDomain => Some(vm.ordinal % drivers),
                NetPath::Vhost | NetPath::Emulator if !counters[vm.group].asked => None,
                NetPath::Vhost => staff.back_end(vm.ordinal, [Role::Vhost]),
                NetPath::Emulator => staff.back_end(vm.ordinal, [Role::Emulator]),
            },
            stopped: false,
            group: vm.group,
        });
        let ports: Vec<Port> = ports.collect();
        let streams: Vec<Stream> = streams.map(|s| Stream::new(s, spec.mtu)).collect();
        let detail = spec.stages.as_ref().map(|stages| {
            let sizes = [
                ports.len(),
                counters.len(),
                staff.backs.len(),
                streams.len(),
            ];
            Box::new(Detail::new(stages, &scenario.host, sizes))
        });
        Ok(Some(Net {
            detail,
            link: Link::new(spec.link_bit_s, spec.latency_ns),
            streams,
            spec,
            wire: Default::default(),
            ports,
            backs: staff.backs,
            workers: staff.workers,
            hands: staff.hands,
            stages: Default::default(),
            counters,
            measure_from: Nanos::default(),
        }))
    }
}

/// The CPU for the n-th VM, of these in turn.
pub(super) fn in_turn(cpus: &[u32], n: u32) -> Option<u32> {
    let at = n as usize % cpus.len().max(1);
    cpus.get(at).copied()
}
