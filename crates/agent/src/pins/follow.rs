// SPDX-License-Identifier: GPL-2.0-only
//! At each look at the host: VMs that have ended, CPUs that come and go, new threads, networks that are another, values
//! that somebody else has set, and how busy pinned VMs are.
use super::act::cpus_of;
use super::{Pin, PinError, Pins, find, key};
use crate::keeper::Keeper;
use crate::register::VmKey;
use berth_actuator::{Host, Knob, Outcome};
use berth_affinity::Policy;
use berth_affinity::auto::Seen;
use berth_host::counters::Sampler;
use berth_host::model::{Role, Snapshot, Vm};
use berth_host::network::{self, Device, Irq, Networks};
use berth_host::root::Root;
use berth_optimiser::CpuSet;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Networks are looked at again so often: a tap can be made a port of another bridge.
const NETWORKS: Duration = Duration::from_secs(5);
/// So often it is looked whether somebody else has set what was set here, and how busy pinned VMs are.
const OTHERS: Duration = Duration::from_secs(1);

impl<H: Host> Pins<H> {
    /// The host has been looked at: follows what has changed. Gives what is worth saying.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn look(&mut self, host: &Keeper) -> Result<Vec<String>, PinError> {
        self.busy.look(&self.root);
        if self.pins.is_empty() {
            return Ok(Vec::new());
        }
        let vms = host.snapshot();
        let mut said = Vec::new();
        let mut again = self.forget_ended(vms, &mut said);
        again |= self.cpus_changed(&mut said)?;
        again |= self.has_new_threads(vms);
        again |= self.look_at_networks(vms, false);
        if self
            .looked_for_others
            .is_none_or(|at| self.root.now() - at >= OTHERS)
        {
            self.yield_to_others(&mut said);
            again |= self.watch_load(vms, &mut said);
            self.looked_for_others = Some(self.root.now());
        }
        if again {
            let planned = self.planned(vms);
            self.carry_out(vms, planned)?;
        }
        Ok(said)
    }

    fn forget_ended(&mut self, vms: &Snapshot, said: &mut Vec<String>) -> bool {
        let before = self.pins.len();
        self.pins.retain(|key, pin| {
            let there = find(vms, *key).is_some();
            if !there {
                said.push(format!("VM {} has ended: its pin is undone", pin.name));
            }
            there
        });
        self.pins.len() != before
    }

    /// CPUs came or went: what the kernel moved for that is nobody's wish.
    fn cpus_changed(&mut self, said: &mut Vec<String>) -> Result<bool, PinError> {
        let online = online(&self.root);
        if online == self.online {
            return Ok(false);
        }
        self.online = online;
        said.push(format!(
            "CPUs {} are online now: pins are planned anew",
            self.online
        ));
        let now: Option<CpuSet> = self.online.parse().ok();
        let lost = |value: &String| {
            let cpus: Option<CpuSet> = value.parse().ok();
            let gone = |cpus: CpuSet, now: &CpuSet| cpus.iter().any(|cpu| !now.has(cpu));
            cpus.zip(now.as_ref())
                .is_some_and(|(cpus, now)| gone(cpus, now))
        };
        if let Some(hands) = &mut self.hands {
            let moved: BTreeSet<Knob> = self
                .applied
                .iter()
                .filter(|(knob, (value, _))| {
                    !matches!(knob, Knob::Unbalanced { .. } | Knob::Made { .. }) && lost(value)
                })
                .map(|(knob, _)| knob.clone())
                .collect();
            hands.acknowledge(&moved)?;
        }
        Ok(true)
    }

    fn has_new_threads(&self, vms: &Snapshot) -> bool {
        self.pins.iter().any(|(key, pin)| {
            let vm = find(vms, *key);
            vm.is_some_and(|vm| vm.threads.iter().any(|t| !pin.threads.contains(&t.id)))
        })
    }

    /// True if the path of a VM is another one now.
    pub(super) fn look_at_networks(&mut self, vms: &Snapshot, at_once: bool) -> bool {
        let now = self.root.now();
        let due = self
            .looked_for_networks
            .is_none_or(|at| now - at >= NETWORKS);
        if !due && !at_once {
            return false;
        }
        self.looked_for_networks = Some(now);
        let (pinned, others): (Vec<_>, Vec<_>) = vms
            .vms
            .iter()
            .cloned()
            .partition(|vm| self.pins.contains_key(&key(vm)));
        let ours = Snapshot {
            vms: pinned,
            ..Snapshot::default()
        };
        let networks = network::among(&self.root, &ours, &others);
        // Where interrupts are sent changes by itself.
        let parts = |networks: &Networks| -> Vec<(String, Vec<Irq>, Vec<String>)> {
            let anywhere = |irq: &Irq| Irq {
                cpus: String::new(),
                effective: None,
                ..irq.clone()
            };
            let devices = networks.devices.values();
            let one = |d: &Device| {
                let queues = d.queues.iter().map(|q| q.name.clone());
                let irqs = d.irqs.iter().map(anywhere);
                (d.name.clone(), irqs.collect(), queues.collect())
            };
            devices.map(one).collect()
        };
        let same = networks.vms == self.networks.vms
            && networks.users == self.networks.users
            && networks.balance == self.networks.balance
            && parts(&networks) == parts(&self.networks);
        self.networks = networks;
        !same
    }

    /// What somebody else has set is his.
    fn yield_to_others(&mut self, said: &mut Vec<String>) {
        // The kernel moves what is on a CPU that goes: next time.
        if online(&self.root) != self.online {
            return;
        }
        let Some(hands) = &mut self.hands else { return };
        let report = hands.yielded();
        for (knob, outcome) in &report.outcomes {
            let Some((_, vm)) = self.applied.remove(knob) else {
                continue;
            };
            if let (Outcome::Foreign(value), Some(pin)) = (outcome, self.pins.get_mut(&vm)) {
                let what = format!(
                    "{knob} was set to {} by somebody else, and is left alone",
                    value.escape_debug()
                );
                pin.foreign.insert(knob.clone());
                if pin.complain(what.clone()) {
                    said.push(format!("VM {}: {what}", pin.name));
                } else if pin.more == 1 {
                    said.push(format!(
                        "VM {}: more of this is only counted: berth status",
                        pin.name
                    ));
                }
            }
        }
    }

    /// Lets `auto` decide; true if something is to be placed otherwise.
    fn watch_load(&mut self, vms: &Snapshot, said: &mut Vec<String>) -> bool {
        let auto = |pin: &Pin| pin.asked.ask.policy == Policy::Auto;
        if !self.pins.values().any(auto) {
            return false;
        }
        // They, and who is pinned to a CPU of theirs.
        let theirs: BTreeSet<u32> = self
            .pins
            .values()
            .filter(|pin| auto(pin))
            .flat_map(|pin| pin.seat.iter().flat_map(cpus_of))
            .collect();
        let counts = |pin: &Pin| {
            let mut cpus = pin.seat.iter().flat_map(cpus_of);
            auto(pin) || cpus.any(|cpu| theirs.contains(&cpu))
        };
        let watched = Snapshot {
            vms: vms
                .vms
                .iter()
                .filter(|vm| self.pins.get(&key(vm)).is_some_and(counts))
                .cloned()
                .collect(),
            ..Snapshot::default()
        };
        if self.sampler.refresh(&watched, None).is_err() {
            return false;
        }
        let Some(last) = self.looked_for_others else {
            return false;
        };
        let span_s = (self.root.now() - last).as_secs_f64();
        let busy = self.busy.of();
        // What each uses of each CPU that its threads are pinned to.
        let mut uses: Vec<(VmKey, u32, f64)> = Vec::new();
        for vm in &watched.vms {
            let Some(pin) = self.pins.get(&key(vm)) else {
                continue;
            };
            let threads = vm.threads.iter();
            uses.extend(threads.filter_map(|t| {
                let used = self.sampler.thread(&t.id)?.cpus;
                Some((key(vm), pin.cpu_of(t.id.tid)?, used))
            }));
        }
        let mut changed = false;
        for vm in &watched.vms {
            let Some(pin) = self.pins.get_mut(&key(vm)).filter(|pin| auto(pin)) else {
                continue;
            };
            let others = |cpu: u32| {
                let there = uses
                    .iter()
                    .filter(|(of, on, _)| *of != key(vm) && *on == cpu);
                there.map(|(.., used)| used).sum()
            };
            let seen = seen(&self.sampler, vm, pin, &busy, &others, span_s);
            if let Some(why) = pin.auto.observe(&seen) {
                said.push(format!("VM {}: {why}", pin.name));
                pin.because = Some(why);
                changed = true;
            }
        }
        changed
    }
}

/// The CPUs that are online, as the kernel lists them.
pub(super) fn online(root: &Root) -> String {
    root.sys_text("devices/system/cpu/online")
        .unwrap_or_default()
}

/// What was seen of a VM under `auto`; `others`: what other VMs used of a CPU that are pinned there.
fn seen(
    sampler: &Sampler,
    vm: &Vm,
    pin: &Pin,
    busy: &BTreeMap<u32, f64>,
    others: &dyn Fn(u32) -> f64,
    span_s: f64,
) -> Seen {
    let mut seen = Seen {
        span_s,
        paths: pin.seat.as_ref().map_or(1, |s| s.path.len().max(1)),
        ..Seen::default()
    };
    let mut waits: BTreeMap<u32, f64> = BTreeMap::new();
    for thread in &vm.threads {
        let Some(rates) = sampler.thread(&thread.id) else {
            continue;
        };
        seen.waits += rates.waiting;
        if let Some(cpu) = pin.cpu_of(thread.id.tid) {
            *waits.entry(cpu).or_default() += rates.waiting;
        }
        match thread.role {
            Role::Vcpu(_) => seen.vcpus.push(rates.cpus),
            _ => seen.path += rates.cpus,
        }
    }
    for cpu in pin.seat.iter().flat_map(cpus_of) {
        let Some(busy) = busy.get(&cpu) else { continue };
        let asked = busy + waits.get(&cpu).copied().unwrap_or(0.0);
        if asked > seen.asked {
            (seen.asked, seen.busy, seen.others) = (asked, *busy, others(cpu));
        }
    }
    seen
}
