// SPDX-License-Identifier: GPL-2.0-only
//! The network path of each VM: its taps, the bridges that they are ports of, the cards behind those, cards that are
//! passed through; their interrupts and queues; and irqbalance, which moves interrupts.
//!
//! ```text
//! files    what a VMM's open files tell of its network
//! device   one device: its interrupts and queues
//! balance  irqbalance
//! ```
//! Devices are those of this network namespace: a tap in another one is named, and nothing behind it is seen.
pub mod balance;
pub mod device;
mod files;

use crate::dir::Dir;
use crate::model::{Snapshot, Vm};
use crate::root::Root;
pub use balance::Balance;
pub use device::{Device, Irq, Queue};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Devices that are followed downwards from one.
const DEPTH: usize = 8;
/// Ports of a bridge that are looked at.
const PORTS: usize = 4096;

/// How a VM is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Tap,
    Macvtap,
    /// A device that is passed through.
    Vfio,
}

/// What a tap is a port of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Linux's own: its ports are known.
    Bridge,
    /// Open vSwitch's datapath: all its bridges are one device here, and what goes where is in its flows.
    OpenVSwitch,
    /// Something else: a VRF, a team, another kind of switch.
    Other,
}

/// One connection of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub kind: Kind,
    /// The tap, or the address of the device that is passed through.
    pub name: String,
    /// Pairs of queues: as many as files of it are open.
    pub queues: u32,
    /// It is a device of this network namespace.
    pub here: bool,
    /// The bridge that it is a port of.
    pub bridge: Option<String>,
    /// What that is; none: there is none.
    pub switch: Option<Switch>,
    /// Devices by which packets leave the host.
    pub uplinks: Vec<String>,
}

/// The network of one VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub links: Vec<Link>,
    /// Files of `/dev/vhost-net`: pairs of queues whose packets the kernel moves.
    pub vhost: u32,
    /// Its process's files cannot be seen.
    pub hidden: bool,
}

impl Link {
    /// What of its way is not looked into, and what follows from that.
    pub fn not_seen(&self) -> Option<String> {
        const SO: &str = "is not looked into: no card's interrupts or queues are set for it";
        let name = &self.name;
        if !self.here {
            return Some(format!(
                "{name} is in another network namespace: what is behind it is not seen, and only threads are bound"
            ));
        }
        let bridge = self.bridge.as_deref().unwrap_or_default();
        match self.switch? {
            Switch::Bridge => None,
            Switch::OpenVSwitch => Some(format!(
                "{name} is a port of Open vSwitch ({bridge}): to which card its flows send packets {SO}"
            )),
            Switch::Other => Some(format!(
                "{name} belongs to {bridge}, which is no Linux bridge: what is behind it {SO}"
            )),
        }
    }
}

impl Network {
    /// What of its path is not looked into, a sentence each.
    pub fn not_seen(&self) -> Vec<String> {
        let hidden =
            "its files are not yours to see: its network is not known (as root: it is)".to_string();
        let hidden = self.hidden.then_some(hidden).into_iter();
        hidden
            .chain(self.links.iter().filter_map(Link::not_seen))
            .collect()
    }
}

/// The networks of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Networks {
    /// By process and its start.
    #[serde(skip)]
    pub vms: BTreeMap<(i32, u64), Network>,
    /// Those on the path of a VM, by name.
    pub devices: BTreeMap<String, Device>,
    /// How many are served by each of them.
    pub users: BTreeMap<String, u32>,
    pub balance: Option<Balance>,
}

/// A name that can be one of a network device, or of a bus's.
fn is_name(name: &str) -> bool {
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '/';
    !name.is_empty() && name.len() <= 64 && name != "." && name != ".." && !name.contains(odd)
}

/// What a symbolic link ends in.
fn last_of_link(dir: &Dir, path: &str) -> Option<String> {
    let mut buf = [0; 4096];
    let target = dir.link(path.as_bytes(), &mut buf).ok()?;
    let last = target.rsplit(|b| *b == b'/').next()?;
    let name = std::str::from_utf8(last).ok()?;
    is_name(name).then(|| name.to_string())
}

/// Names in a folder.
fn names(dir: &Dir, path: &str) -> Vec<String> {
    let mut all = Vec::new();
    if let Ok(folder) = dir.dir(path) {
        let _ = folder.list(|name, _| {
            if let Ok(name) = std::str::from_utf8(name)
                && is_name(name)
                && all.len() < PORTS
            {
                all.push(name.to_string());
            }
        });
    }
    all.sort_unstable();
    all
}

/// The networks of the VMs of a host.
pub fn of(root: &Root, vms: &Snapshot) -> Networks {
    among(root, vms, &[])
}

/// The networks of some VMs; `others` of the host are looked at only where they may be on the same card, for which they
/// count as its users.
pub fn among(root: &Root, vms: &Snapshot, others: &[Arc<Vm>]) -> Networks {
    let mut found = Networks {
        balance: balance::find(root),
        ..Networks::default()
    };
    let (Ok(proc), Ok(sys)) = (root.proc(), root.sys()) else {
        return found;
    };
    // Macvtaps are opened by number.
    let mut numbers: Option<BTreeMap<u32, String>> = None;
    for vm in &vms.vms {
        let mut network = Network::default();
        match files::of(&proc, vm.pid, root.is_live()) {
            Err(_) => network.hidden = true,
            Ok(files) => {
                network.vhost = files.vhost;
                for (name, queues) in files.taps {
                    network
                        .links
                        .push(tap(&sys, &name, queues, &mut found.users));
                }
                for (index, queues) in files.macvtaps {
                    let numbers = numbers.get_or_insert_with(|| by_number(&sys));
                    let name = numbers.get(&index).cloned();
                    let link = macvtap(&sys, name, index, queues, &mut found.users);
                    network.links.push(link);
                }
                for device in files.passed.iter().flat_map(|p| p.devices(&sys)) {
                    *found.users.entry(device.clone()).or_default() += 1;
                    network.links.push(Link {
                        kind: Kind::Vfio,
                        name: device.clone(),
                        queues: 1,
                        here: true,
                        bridge: None,
                        switch: None,
                        uplinks: vec![device],
                    });
                }
            }
        }
        found.vms.insert((vm.pid, vm.start), network);
    }
    let mut beside = Beside::default();
    let macvtaps = found.vms.values().flat_map(|n| &n.links);
    if macvtaps.into_iter().any(|l| l.kind == Kind::Macvtap) {
        let numbers = numbers.get_or_insert_with(|| by_number(&sys));
        for vm in others {
            beside.look(&proc, &sys, (vm.pid, root.is_live()), numbers);
        }
    }
    share(&sys, &mut found, &beside);
    let mut on_path = BTreeSet::new();
    for link in found.vms.values().flat_map(|n| &n.links) {
        let own = (link.here && link.kind != Kind::Vfio).then_some(&link.name);
        on_path.extend(own.into_iter().chain(&link.uplinks).cloned());
        if link.kind == Kind::Vfio {
            let device = device::passed(root, &sys, &link.name);
            found.devices.insert(link.name.clone(), device);
        }
    }
    for name in on_path {
        let device = || device::of(root, &sys, &name);
        found.devices.entry(name.clone()).or_insert_with(device);
    }
    found
}

fn by_number(sys: &Dir) -> BTreeMap<u32, String> {
    let index = |name: &String| {
        let text = sys.text(&format!("class/net/{name}/ifindex"))?;
        text.parse().ok()
    };
    let all = names(sys, "class/net").into_iter();
    all.filter_map(|name| Some((index(&name)?, name))).collect()
}

fn exists(sys: &Dir, path: &str) -> bool {
    sys.text(path).is_some()
}

fn tap(sys: &Dir, name: &str, queues: u32, users: &mut BTreeMap<String, u32>) -> Link {
    *users.entry(name.into()).or_default() += 1;
    // One of another network namespace may have the name of a device of this one that is no tap.
    let here = exists(sys, &format!("class/net/{name}/tun_flags"));
    let bridge = last_of_link(sys, &format!("class/net/{name}/master")).filter(|_| here);
    let switch = bridge.as_deref().map(|bridge| switch(sys, name, bridge));
    let uplinks = match &bridge {
        Some(bridge) => uplinks_of_bridge(sys, bridge).0,
        None => Vec::new(),
    };
    Link {
        kind: Kind::Tap,
        name: name.into(),
        queues,
        here,
        bridge,
        switch,
        uplinks,
    }
}

/// What a device is a port of. Its ports are told by a bridge of Linux itself; the datapath of Open vSwitch that the
/// daemon makes has one name.
fn switch(sys: &Dir, port: &str, master: &str) -> Switch {
    let folder = |path: &str| sys.dir(path).is_ok();
    let is_bridge = [
        format!("class/net/{master}/bridge"),
        format!("class/net/{master}/brif"),
        format!("class/net/{port}/brport"),
    ];
    match is_bridge.iter().any(|path| folder(path)) {
        true => Switch::Bridge,
        false if master == "ovs-system" => Switch::OpenVSwitch,
        false => Switch::Other,
    }
}

fn macvtap(
    sys: &Dir,
    name: Option<String>,
    index: u32,
    queues: u32,
    users: &mut BTreeMap<String, u32>,
) -> Link {
    let here = name.is_some();
    let name = name.unwrap_or(format!("tap{index}"));
    *users.entry(name.clone()).or_default() += 1;
    let uplinks = match here {
        true => lowest(sys, &name),
        false => Vec::new(),
    };
    Link {
        kind: Kind::Macvtap,
        name,
        queues,
        here,
        bridge: None,
        switch: None,
        uplinks,
    }
}

/// Ports of a bridge (another switch has none here) by which packets leave the host, and how many
/// others it has. Where no card is a port, what is no tap leads out.
fn uplinks_of_bridge(sys: &Dir, bridge: &str) -> (Vec<String>, u32) {
    let ports = names(sys, &format!("class/net/{bridge}/brif"));
    let all = ports.len();
    let is_tap = |p: &String| exists(sys, &format!("class/net/{p}/tun_flags"));
    let outside: Vec<String> = ports.into_iter().filter(|p| !is_tap(p)).collect();
    let has_card = |p: &String| {
        let lowest = lowest(sys, p);
        lowest.iter().any(|d| device::is_physical(sys, d))
    };
    let cards: Vec<String> = outside.iter().filter(|p| has_card(p)).cloned().collect();
    let leaving = if cards.is_empty() { outside } else { cards };
    let others = u32::try_from(all - leaving.len()).unwrap_or(u32::MAX);
    let mut devices: Vec<String> = leaving.iter().flat_map(|p| lowest(sys, p)).collect();
    devices.sort_unstable();
    devices.dedup();
    (devices, others)
}

/// The devices below this one (of a bond, a VLAN, a macvtap) that have none below them; itself if it has none.
fn lowest(sys: &Dir, device: &str) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut left = vec![(device.to_string(), 0)];
    while let Some((name, depth)) = left.pop() {
        if !seen.insert(name.clone()) || depth > DEPTH {
            continue;
        }
        let below: Vec<String> = names(sys, &format!("class/net/{name}"))
            .iter()
            .filter_map(|entry| Some(entry.strip_prefix("lower_")?.to_string()))
            .filter(|name| is_name(name))
            .collect();
        match below.is_empty() {
            true => drop(found.insert(name)),
            false => left.extend(below.into_iter().map(|name| (name, depth + 1))),
        }
    }
    found.into_iter().collect()
}

/// Macvtaps of VMs that are not asked about.
#[derive(Debug, Default)]
struct Beside {
    /// By device below them.
    direct: BTreeMap<String, u32>,
    /// Of other network namespaces: on which card they are is not seen here, so it may be on any.
    unseen: u32,
}

impl Beside {
    fn look(&mut self, proc: &Dir, sys: &Dir, vm: (i32, bool), numbers: &BTreeMap<u32, String>) {
        let Ok(files) = files::of(proc, vm.0, vm.1) else {
            // Nor can be seen whether it has one.
            self.unseen += 1;
            return;
        };
        for index in files.macvtaps.into_keys() {
            match numbers.get(&index) {
                Some(name) => {
                    for device in lowest(sys, name) {
                        *self.direct.entry(device).or_default() += 1;
                    }
                }
                None => self.unseen += 1,
            }
        }
    }
}

/// Devices on top of this one (VLANs, bonds, macvtaps and others) that have none on top of them.
fn highest(sys: &Dir, device: &str) -> u32 {
    let mut found = 0;
    let mut seen = BTreeSet::new();
    let mut left = vec![(device.to_string(), 0)];
    while let Some((name, depth)) = left.pop() {
        if !seen.insert(name.clone()) || depth > DEPTH {
            continue;
        }
        let above: Vec<String> = names(sys, &format!("class/net/{name}"))
            .iter()
            .filter_map(|entry| Some(entry.strip_prefix("upper_")?.to_string()))
            .filter(|name| is_name(name))
            .collect();
        match above.is_empty() {
            true => found += u32::from(depth > 0),
            false => left.extend(above.into_iter().map(|name| (name, depth + 1))),
        }
    }
    found
}

/// How many each uplink serves: all other ports of the bridge, be they VMs' or not; of macvtaps those of all VMs, and
/// whatever else is on top of the card, be it a VM's or not.
fn share(sys: &Dir, found: &mut Networks, beside: &Beside) {
    let mut bridges = BTreeMap::new();
    let mut direct: BTreeMap<String, u32> = BTreeMap::new();
    for link in found.vms.values().flat_map(|n| &n.links) {
        match (&link.bridge, link.kind) {
            (Some(bridge), _) => {
                bridges
                    .entry(bridge.clone())
                    .or_insert_with(|| uplinks_of_bridge(sys, bridge));
            }
            (None, Kind::Vfio) => {}
            (None, _) => {
                for uplink in &link.uplinks {
                    *direct.entry(uplink.clone()).or_default() += 1;
                }
            }
        }
    }
    for (uplinks, others) in bridges.into_values() {
        for uplink in uplinks {
            *found.users.entry(uplink).or_default() += others;
        }
    }
    for (uplink, n) in direct {
        let others = beside.unseen + beside.direct.get(&uplink).copied().unwrap_or(0);
        let users = found.users.entry(uplink.clone()).or_default();
        *users = (*users + n + others).max(highest(sys, &uplink));
    }
}

impl Networks {
    /// The network of a VM.
    pub fn network(&self, vm: &crate::model::Vm) -> Option<&Network> {
        self.vms.get(&(vm.pid, vm.start))
    }

    /// Devices on the path of a VM, its taps first.
    pub fn path(&self, network: &Network) -> Vec<&Device> {
        let mut names: Vec<&String> = Vec::new();
        for link in &network.links {
            names.extend([&link.name].into_iter().chain(&link.uplinks));
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        names
            .into_iter()
            .filter_map(|name| self.devices.get(name))
            .collect()
    }
}
