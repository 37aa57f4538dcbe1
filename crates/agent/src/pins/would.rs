// SPDX-License-Identifier: GPL-2.0-only
//! What pinning would do, without doing it.
use super::{Pinned, Pinning, Pins, find};
use crate::keeper::Keeper;
use crate::register::VmKey;
use berth_actuator::Host;
use berth_host::network::{Network, Networks};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What would be set of one VM, or why nothing can be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Would {
    pub vm: String,
    pub pid: i32,
    pub network: Option<Network>,
    pub pinned: Option<Pinned>,
    pub refused: Option<String>,
    /// What, and to which value.
    pub values: Vec<(String, String)>,
}

/// What would become of these VMs, all at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub vms: Vec<Would>,
    pub networks: Networks,
}

impl<H: Host> Pins<H> {
    /// Plans these VMs beside those that are pinned, in place of what there is of them; nothing is set. One that has
    /// ended is refused. `lent`: CPU sets of groups that whoever else acts here would let go of, with what they were.
    pub fn would(
        &mut self,
        host: &Keeper,
        vms: &[VmKey],
        pinning: &Pinning,
        lent: BTreeMap<String, String>,
    ) -> Plan {
        let asked = vms.iter().map(|vm| (*vm, pinning.clone())).collect();
        self.rehearsed(host, asked, lent, |pins, tried| {
            let wanted = pins.wanted(host.snapshot(), tried.planned);
            let one = |key: &VmKey| {
                let found = find(host.snapshot(), *key);
                let refused = tried.refused.iter().find(|(of, _)| of == key);
                let refused = refused.map(|(_, why)| why.clone());
                let pin = pins.pins.get(key).filter(|_| refused.is_none());
                let of = wanted.iter().filter(|s| s.vm == *key);
                Would {
                    vm: found.map_or(String::new(), |vm| vm.name.clone()),
                    pid: key.pid,
                    network: found.and_then(|vm| pins.networks.network(vm).cloned()),
                    pinned: pin.map(|pin| Pinned {
                        set: 0,
                        ..pins.told(key, pin)
                    }),
                    refused,
                    values: of.map(|s| (s.knob.to_string(), s.value.clone())).collect(),
                }
            };
            Plan {
                vms: vms.iter().map(one).collect(),
                networks: pins.networks.clone(),
            }
        })
    }
}
