// SPDX-License-Identifier: GPL-2.0-only
//! All of it, one observation after the other.
use crate::act::Setting;
use crate::admission::misfits;
use crate::decision::{Allotment, Change, Decision};
use crate::demand::Demand;
use crate::error::Error;
use crate::hysteresis::worth;
use crate::known::Known;
use crate::machine::Machine;
use crate::observe::Observation;
use crate::plan::{Guest, Outcome, plan};
use crate::reason::{Reason, Trigger};
use crate::settings::Settings;
use crate::share::{Claim, floor_cpus};
use std::collections::{BTreeMap, BTreeSet};

/// Watches one host and decides what to set. It takes every change that it decides as made.
#[derive(Clone, Debug)]
pub struct Optimiser {
    settings: Settings,
    vms: BTreeMap<String, Known>,
    machine: Option<Machine>,
    /// What is no VM wants, CPUs.
    host: Option<Demand>,
    arrivals: u64,
    last_ns: Option<u64>,
    decided_ns: Option<u64>,
    /// The last plan: more was wanted than there is.
    want: bool,
    /// Changes that the last decision held back.
    held: bool,
}

impl Optimiser {
    /// # Errors
    /// The first setting out of its range.
    pub fn new(settings: Settings) -> Result<Optimiser, Error> {
        settings.check()?;
        Ok(Optimiser {
            settings,
            vms: BTreeMap::new(),
            machine: None,
            host: None,
            arrivals: 0,
            last_ns: None,
            decided_ns: None,
            want: false,
            held: false,
        })
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes in what was seen; a decision if one is due.
    ///
    /// # Errors
    /// The first thing that is wrong with the observation, by name; then nothing of it counts.
    pub fn observe(&mut self, seen: &Observation) -> Result<Option<Decision>, Error> {
        let machine = seen.check()?;
        if let Some(last_ns) = self.last_ns
            && seen.at_ns <= last_ns
        {
            let at_ns = seen.at_ns;
            return Err(Error::Order { at_ns, last_ns });
        }
        self.last_ns = Some(seen.at_ns);
        let triggers = self.see(seen, machine);
        if triggers.is_empty() {
            return Ok(None);
        }
        self.decided_ns = Some(seen.at_ns);
        Ok(Some(self.decide(seen, triggers)))
    }

    /// How a VM is set, and why it is to be set as the last decision says; `None`: no such VM was seen.
    pub fn explain(&self, vm: &str) -> Option<(&Setting, &[Reason])> {
        let known = self.vms.get(vm)?;
        Some((&known.setting, &known.reasons))
    }

    /// What puts every VM back to how it would be without the optimiser, by name. This waits for nothing.
    pub fn release(self) -> Vec<Change> {
        let back = |(vm, known): (String, Known)| {
            let to = known.untouched();
            (known.setting != to).then(|| Change {
                vm,
                from: known.setting,
                to,
                reasons: vec![Reason::Released],
            })
        };
        self.vms.into_iter().filter_map(back).collect()
    }

    /// Brings what is known up to date; what of it makes a decision due, in the order of [`Trigger`].
    fn see(&mut self, seen: &Observation, machine: Machine) -> Vec<Trigger> {
        let mut due = Vec::new();
        let elapsed = |t: u64| seen.at_ns - t >= self.settings.decide_ns;
        if self.decided_ns.is_none_or(elapsed) {
            due.push(Trigger::Time);
        }
        let names: BTreeSet<&str> = seen.vms.iter().map(|vm| vm.name.as_str()).collect();
        self.vms.retain(|name, _| {
            let stays = names.contains(name.as_str());
            if !stays {
                due.push(Trigger::Stopped(name.clone()));
            }
            stays
        });
        for vm in &seen.vms {
            match self.vms.get_mut(&vm.name) {
                Some(known) => due.extend(known.see(vm, seen.span_ns, &self.settings)),
                None => {
                    let known = Known::first(vm, seen.span_ns, self.arrivals);
                    self.arrivals += 1;
                    self.vms.insert(vm.name.clone(), known);
                    due.push(Trigger::Started(vm.name.clone()));
                }
            }
        }
        let host = seen.host.wanted(seen.span_ns);
        match &mut self.host {
            Some(demand) => drop(demand.update(host, &self.settings)),
            None => self.host = Some(Demand::first(host)),
        }
        if self.machine.as_ref() != Some(&machine) {
            if self.machine.is_some() {
                due.push(Trigger::Cpus);
            }
            self.vms
                .values_mut()
                .for_each(|known| known.cpus_gone(&machine));
            self.machine = Some(machine);
        }
        if self.held {
            due.push(Trigger::Held);
        }
        due.sort_unstable();
        due
    }

    fn decide(&mut self, seen: &Observation, triggers: Vec<Trigger>) -> Decision {
        let Some(machine) = &self.machine else {
            return Decision::default();
        };
        let online = machine.online();
        let capacity = self.settings.capacity(online);
        let floor = floor_cpus(capacity, self.vms.len());
        let guests: Vec<Guest> = self
            .vms
            .values()
            .map(|known| guest(known, machine, floor))
            .collect();
        let reserve = online as f64 - capacity;
        let host = Claim {
            demand: self
                .host
                .map_or(0.0, |d| (d.cpus() - reserve).clamp(0.0, online as f64)),
            guarantee: 0.0,
            limit: f64::INFINITY,
            weight: f64::from(self.settings.host_weight),
            floor: 0.0,
        };
        let plan = plan(machine, &self.settings, &guests, host, self.want);
        self.want = plan.want;
        let mut decision = Decision {
            at_ns: seen.at_ns,
            triggers,
            online,
            capacity,
            pressure: seen.pressure,
            host: plan.host,
            misfits: self.misfits(capacity),
            ..Decision::default()
        };
        for ((vm, known), outcome) in self.vms.iter_mut().zip(plan.outcomes) {
            decision.allotments.push(Allotment {
                vm: vm.clone(),
                demand: known.demand.cpus(),
                share: outcome.share,
                bound: outcome.bound,
            });
            settle(
                vm,
                known,
                outcome,
                seen.at_ns,
                &self.settings,
                &mut decision,
            );
        }
        self.held = !decision.held.is_empty();
        decision
    }

    fn misfits(&self, capacity: f64) -> Vec<crate::admission::Misfit> {
        let promised = self
            .vms
            .iter()
            .filter(|(_, known)| known.promise.guarantee > 0.0);
        let mut order: Vec<(&String, &Known)> = promised.collect();
        order.sort_unstable_by_key(|(_, known)| known.arrival);
        let guarantees = order
            .into_iter()
            .map(|(vm, known)| (vm.as_str(), known.promise.guarantee));
        misfits(capacity, guarantees)
    }
}

fn guest<'a>(known: &'a Known, machine: &Machine, floor: f64) -> Guest<'a> {
    let limit = known.promise.limit.unwrap_or(f64::INFINITY);
    // Where it is pinned to CPUs that are all offline, the kernel runs it on all.
    let pinned = known.pinned.as_ref().map(|p| machine.positions(p).count());
    let reach = pinned
        .filter(|n| *n > 0)
        .map_or(f64::INFINITY, |n| n as f64);
    Guest {
        promise: &known.promise,
        vcpus: known.vcpus,
        claim: Claim {
            demand: known.demand.cpus(),
            guarantee: known.promise.guarantee,
            limit: limit.min(reach),
            weight: f64::from(known.promise.weight),
            floor,
        },
        pinned: known.pinned.as_ref(),
        own: known.own.as_ref(),
        packed: known.packed.as_ref(),
        weight: known.setting.weight,
        running: known.running,
        used: known.used[0].max(known.used[1]),
        run_fraction: known.setting.run_fraction,
    }
}

/// Remembers what becomes of a VM, and changes its setting if that is worth it and its last change is old enough.
fn settle(
    vm: &str,
    known: &mut Known,
    outcome: Outcome,
    at_ns: u64,
    settings: &Settings,
    decision: &mut Decision,
) {
    let to = outcome.setting;
    known.own = to.cpus.clone().filter(|_| outcome.own);
    if outcome.packed {
        known.packed = to.cpus.clone();
    }
    known.reasons = outcome.reasons;
    if !worth(&known.setting, &to, settings.hysteresis) {
        return;
    }
    if known
        .changed_ns
        .is_some_and(|last| at_ns - last < settings.gap_ns)
    {
        decision.held.push(vm.to_string());
        return;
    }
    known.changed_ns = Some(at_ns);
    decision.changes.push(Change {
        vm: vm.to_string(),
        from: std::mem::replace(&mut known.setting, to.clone()),
        to,
        reasons: known.reasons.clone(),
    });
}
