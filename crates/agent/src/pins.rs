// SPDX-License-Identifier: GPL-2.0-only
//! VMs that the operator has pinned: their whole network path on the CPUs that the planner gives them, followed while
//! it changes, undone exactly.
//!
//! ```text
//! observe    what the planner is told of this host
//! busy       how busy its CPUs are
//! sets       where the CPU set of a VM as a whole is set
//! standing   rules by which VMs are pinned when they appear: what is to be done
//! by_rule    doing it
//! follow     at each look: what has changed
//! carry_out  where all that is pinned goes, and how it gets there
//! act        from a plan to values that are set
//! would      what pinning would do, without doing it
//! ```
//! A pin is the operator's rule: whatever else acts on this host leaves such a VM's CPUs alone.
pub mod act;
pub mod busy;
mod by_rule;
mod carry_out;
mod follow;
pub mod observe;
pub mod sets;
pub mod standing;
pub mod would;

use crate::keeper::Keeper;
use crate::register::VmKey;
use berth_actuator::{Acting as Hands, Error, Host, Knob, Report};
use berth_affinity::auto::Auto;
use berth_affinity::{Ask, Left, Placed, Policy, Seat};
use berth_host::counters::Sampler;
use berth_host::model::{Snapshot, TaskId, Vm};
use berth_host::network::Networks;
use berth_host::root::Root;
use berth_optimiser::CpuSet;
use busy::Busy;
use serde::{Deserialize, Serialize};
use standing::Standing;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const ENDED: &str = "the VM has ended meanwhile: nothing is set";
/// Complaints that are kept of one VM.
const COMPLAINTS: usize = 32;

/// By what a VM is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The affinity of each thread.
    Taskset,
    /// The CPU set of its cgroup, and the affinity of threads that are to be on one of several CPUs.
    Cgroup,
    /// The second where it has a cgroup of its own that nobody manages, else the first.
    #[default]
    Auto,
}

impl Method {
    pub const WORDS: [&'static str; 3] = ["taskset", "cgroup", "auto"];

    pub fn word(self) -> &'static str {
        match self {
            Method::Taskset => "taskset",
            Method::Cgroup => "cgroup",
            Method::Auto => "auto",
        }
    }

    pub fn of(word: &str) -> Option<Method> {
        [Method::Taskset, Method::Cgroup, Method::Auto]
            .into_iter()
            .find(|m| m.word() == word)
    }
}

/// What is asked for of one VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinning {
    pub ask: Ask,
    pub method: Method,
}

/// What has become of a pin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pinned {
    pub vm: String,
    pub pid: i32,
    /// The name in the rule of the configuration by which it is pinned; none: by hand.
    #[serde(default)]
    pub rule: Option<String>,
    pub policy: Policy,
    /// What `auto` does just now, and why if it is not what it began with.
    pub acts: Policy,
    pub because: Option<String>,
    pub method: Method,
    pub seat: Seat,
    pub why: String,
    /// Values that are set.
    pub set: usize,
    /// What is left where it is, a sentence each.
    pub left: Vec<String>,
    pub warnings: Vec<String>,
    /// What could not be set, or was not left so by others.
    pub complaints: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The operator's to solve.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Actuator(#[from] Error),
}

/// One VM.
#[derive(Clone, Debug)]
struct Pin {
    name: String,
    asked: Pinning,
    auto: Auto,
    because: Option<String>,
    seat: Option<Seat>,
    threads: BTreeSet<TaskId>,
    /// Somebody else has set these since: they are his.
    foreign: BTreeSet<Knob>,
    placed: Option<Placed>,
    /// Why it has no place just now.
    refused: Option<String>,
    method: Method,
    complaints: Vec<String>,
    /// How many more there were.
    more: usize,
}

impl Pin {
    fn acts(&self) -> Policy {
        match self.asked.ask.policy {
            Policy::Auto => self.auto.stage(),
            policy => policy,
        }
    }

    /// The CPU that a thread was given.
    fn cpu_of(&self, tid: i32) -> Option<u32> {
        let threads = &self.placed.as_ref()?.threads;
        threads
            .iter()
            .find(|(of, _)| *of == tid)
            .map(|(_, cpu)| *cpu)
    }

    /// True: it is new, and not one of very many.
    fn complain(&mut self, what: String) -> bool {
        if self.complaints.contains(&what) {
            return false;
        }
        if self.complaints.len() == COMPLAINTS {
            self.more += 1;
            return false;
        }
        self.complaints.push(what);
        true
    }

    /// Forgets what others have set of threads and devices that are no more: where they come and go, these would be
    /// without end.
    fn forget_foreign(&mut self, networks: &Networks) {
        let threads = &self.threads;
        let devices = || networks.devices.values();
        self.foreign.retain(|knob| match knob {
            Knob::Affinity { tid, start, .. } => {
                threads.iter().any(|t| (t.tid, t.start) == (*tid, *start))
            }
            Knob::Queue { index, .. } => devices().any(|d| d.index == Some(*index)),
            Knob::Irq { irq, .. } => devices().any(|d| d.irqs.iter().any(|i| i.irq == *irq)),
            _ => true,
        });
    }
}

/// What one VM's plan came to.
type Planned = (VmKey, Result<Placed, berth_affinity::Refusal>);

/// VMs that were planned otherwise than they are.
struct Tried {
    /// These are as they were, and why.
    refused: Vec<(VmKey, String)>,
    planned: Vec<Planned>,
}

/// The pins of a host.
#[derive(Debug)]
pub struct Pins<H: Host> {
    root: Root,
    /// There while there are pins.
    hands: Option<Hands<H>>,
    pins: BTreeMap<VmKey, Pin>,
    /// Those by rule.
    standing: Standing,
    /// What is set, and for which VM.
    applied: BTreeMap<Knob, (String, VmKey)>,
    networks: Networks,
    looked_for_networks: Option<Instant>,
    looked_for_others: Option<Instant>,
    sampler: Sampler,
    busy: Busy,
    /// The CPUs that were online when it was last planned for them.
    online: String,
    /// While it is rehearsed: groups whose CPU set somebody here has set who lets go of a VM that is to be pinned, with
    /// the list that they had before.
    lent: BTreeMap<String, String>,
    /// How many VMs that are not pinned here are bound to a CPU all the same, when one was last pinned.
    taken: BTreeMap<u32, u32>,
    systemd: bool,
}

impl<H: Host> Pins<H> {
    /// Pins without hands: they only say what they would do.
    pub fn new(root: Root) -> Pins<H> {
        Pins {
            hands: None,
            pins: BTreeMap::new(),
            standing: Standing::default(),
            applied: BTreeMap::new(),
            networks: Networks::default(),
            looked_for_networks: None,
            looked_for_others: None,
            sampler: Sampler::new(root.clone()),
            busy: Busy::default(),
            online: String::new(),
            lent: BTreeMap::new(),
            taken: BTreeMap::new(),
            systemd: root.is_live() && std::path::Path::new("/run/systemd/system").is_dir(),
            root,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    pub fn len(&self) -> usize {
        self.pins.len()
    }

    /// Whether it can set anything yet.
    pub fn has_hands(&self) -> bool {
        self.hands.is_some()
    }

    pub fn take_hands(&mut self, hands: Hands<H>) {
        self.hands = Some(hands);
    }

    /// Where pinned VMs are: nobody else is to move them.
    pub fn held(&self) -> BTreeMap<VmKey, Option<CpuSet>> {
        let cpus = |pin: &Pin| {
            let seat = pin.seat.as_ref()?;
            CpuSet::of(seat.vcpus.iter().chain(&seat.path).copied())
        };
        self.pins
            .iter()
            .map(|(key, pin)| (*key, cpus(pin)))
            .collect()
    }

    /// Pins a VM, or pins it otherwise.
    ///
    /// # Errors
    /// It has ended, or cannot be placed as asked: then all is as it was. Or the ledger cannot be written.
    pub fn pin(&mut self, host: &Keeper, vm: VmKey, asked: Pinning) -> Result<Pinned, PinError> {
        let mut refused = self.pin_all(host, vec![(vm, asked)])?;
        if let Some((_, why)) = refused.pop() {
            return Err(PinError::Refused(why));
        }
        self.standing.pinned_by_hand(vm);
        let pin = self.pins.get(&vm).map(|pin| self.told(&vm, pin));
        pin.ok_or_else(|| PinError::Refused(ENDED.into()))
    }

    /// Pins VMs, all at once; gives those that cannot be, and why: these are as they were.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn pin_all(
        &mut self,
        host: &Keeper,
        asked: Vec<(VmKey, Pinning)>,
    ) -> Result<Vec<(VmKey, String)>, PinError> {
        let tried = self.try_all(host, asked);
        self.carry_out(host.snapshot(), tried.planned)?;
        Ok(tried.refused)
    }

    /// Plans these in place of what there is of them, without setting anything.
    fn try_all(&mut self, host: &Keeper, asked: Vec<(VmKey, Pinning)>) -> Tried {
        // Whoever has just begun to look knows of no CPU how busy it is.
        self.busy.settle(&self.root);
        if self.pins.is_empty() {
            // From here on it is followed, and what goes before the first look is not missed.
            self.online = follow::online(&self.root);
        }
        let vms = host.snapshot();
        let (mut befores, mut refused) = (BTreeMap::new(), Vec::new());
        for (vm, asked) in asked {
            match self.prepared(vms, vm, asked) {
                Ok(pin) => drop(befores.insert(vm, self.pins.insert(vm, pin))),
                Err(why) => refused.push((vm, why)),
            }
        }
        self.look_at_networks(vms, true);
        let others = vms.vms.iter().map(|vm| &**vm);
        let others = others.filter(|vm| !self.pins.contains_key(&key(vm)));
        self.taken = observe::taken(&self.root, others);
        let planned = loop {
            let planned = self.planned(vms);
            let new = |(vm, placed): &Planned| {
                let why = placed.as_ref().err()?.to_string();
                befores.contains_key(vm).then_some((*vm, why))
            };
            let wrong: Vec<(VmKey, String)> = planned.iter().filter_map(new).collect();
            if wrong.is_empty() {
                break planned;
            }
            for (vm, why) in wrong {
                let before = befores.remove(&vm).flatten();
                self.put_back(vm, before);
                refused.push((vm, why));
            }
        };
        Tried { refused, planned }
    }

    /// Plans these, and asks about it; then all is as if that had not been. `lent`: CPU sets of groups that whoever
    /// else acts here would let go of, with what they were.
    fn rehearsed<T>(
        &mut self,
        host: &Keeper,
        asked: Vec<(VmKey, Pinning)>,
        lent: BTreeMap<String, String>,
        about: impl FnOnce(&mut Self, Tried) -> T,
    ) -> T {
        let (pins, online) = (self.pins.clone(), self.online.clone());
        let (networks, taken) = (self.networks.clone(), self.taken.clone());
        let looked = self.looked_for_networks;
        self.lent = lent;
        let tried = self.try_all(host, asked);
        let told = about(self, tried);
        (self.pins, self.online) = (pins, online);
        (self.networks, self.taken) = (networks, taken);
        self.looked_for_networks = looked;
        self.lent.clear();
        told
    }

    fn put_back(&mut self, vm: VmKey, before: Option<Pin>) {
        match before {
            Some(before) => drop(self.pins.insert(vm, before)),
            None => drop(self.pins.remove(&vm)),
        }
    }

    /// A pin that is not planned yet; or why it cannot be.
    fn prepared(&self, vms: &Snapshot, vm: VmKey, asked: Pinning) -> Result<Pin, String> {
        let found = find(vms, vm).ok_or(ENDED)?;
        if asked.method == Method::Cgroup {
            sets::of(&self.root, found, self.systemd).map_err(|why| by_cgroup(&why))?;
        }
        let before = self.pins.get(&vm);
        let auto = before.filter(|b| b.asked == asked).map(|b| b.auto.clone());
        Ok(Pin {
            name: found.name.clone(),
            auto: auto.unwrap_or_default(),
            because: None,
            seat: before.and_then(|b| b.seat.clone()),
            threads: BTreeSet::new(),
            foreign: BTreeSet::new(),
            placed: None,
            refused: None,
            method: asked.method,
            complaints: Vec::new(),
            more: 0,
            asked,
        })
    }

    /// Undoes the pin of a VM; none: it is not pinned.
    ///
    /// # Errors
    /// The ledger cannot be written; what could be undone is.
    pub fn unpin(&mut self, host: &Keeper, vm: VmKey) -> Result<Option<Report>, PinError> {
        if let Some(pin) = self.pins.get(&vm) {
            self.standing.unpinned_by_hand(vm, &pin.name);
        }
        self.undo(host, vm)
    }

    fn undo(&mut self, host: &Keeper, vm: VmKey) -> Result<Option<Report>, PinError> {
        if self.pins.remove(&vm).is_none() {
            return Ok(None);
        }
        let planned = self.planned(host.snapshot());
        Ok(Some(self.carry_out(host.snapshot(), planned)?))
    }

    /// Undoes all of them.
    ///
    /// # Errors
    /// The ledger cannot be written; what could be undone is.
    pub fn end(&mut self) -> Result<Report, PinError> {
        self.pins.clear();
        self.applied.clear();
        match self.hands.take() {
            Some(hands) => Ok(hands.end()?),
            None => Ok(Report::default()),
        }
    }

    /// How busy the CPUs are, watched before anything is planned.
    pub fn watch(&mut self) {
        self.busy.look(&self.root);
    }

    /// The networks of pinned VMs.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// What has become of each pin, by name.
    pub fn status(&self) -> Vec<Pinned> {
        let mut all: Vec<Pinned> = self
            .pins
            .iter()
            .map(|(key, pin)| self.told(key, pin))
            .collect();
        all.sort_by(|a, b| a.vm.cmp(&b.vm));
        all
    }

    fn told(&self, key: &VmKey, pin: &Pin) -> Pinned {
        let sentence = |left: &Left| format!("{} is left where it is: {}", left.what, left.why);
        let placed = pin.placed.as_ref();
        let network = self.networks.vms.get(&(key.pid, key.start));
        let mut complaints: Vec<String> = pin.refused.iter().cloned().collect();
        complaints.extend(pin.complaints.iter().cloned());
        if pin.more > 0 {
            complaints.push(format!("and {} more", pin.more));
        }
        Pinned {
            vm: pin.name.clone(),
            pid: key.pid,
            rule: self.standing.of(*key).map(String::from),
            policy: pin.asked.ask.policy,
            acts: pin.acts(),
            because: pin.because.clone(),
            method: pin.method,
            seat: pin.seat.clone().unwrap_or_default(),
            why: placed.map_or(String::new(), |p| p.why.clone()),
            set: self.applied.values().filter(|(_, vm)| vm == key).count(),
            left: placed
                .iter()
                .flat_map(|p| &p.left)
                .map(sentence)
                .chain(network.iter().flat_map(|n| n.not_seen()))
                .collect(),
            warnings: placed.map_or(Vec::new(), |p| p.warnings.clone()),
            complaints,
        }
    }
}

impl<H: Host> Drop for Pins<H> {
    fn drop(&mut self) {
        // What cannot be undone stays in the ledger, for the guardian and `berth restore`.
        let _ = self.end();
    }
}

fn by_cgroup(why: &str) -> String {
    format!(
        "it cannot be bound by its cgroup: {why}; --method taskset binds its threads, inside of the sets they have"
    )
}

fn key(vm: &Vm) -> VmKey {
    VmKey {
        pid: vm.pid,
        start: vm.start,
    }
}

fn find(vms: &Snapshot, wanted: VmKey) -> Option<&Vm> {
    vms.vms.iter().map(|vm| &**vm).find(|vm| key(vm) == wanted)
}
