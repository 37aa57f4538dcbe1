// SPDX-License-Identifier: GPL-2.0-only
//! Where all that is pinned goes, and how it gets there.
use super::act::{self, Setting, settings};
use super::{Method, Pin, PinError, Pins, Planned, by_cgroup, find, follow, observe, sets};
use crate::register::VmKey;
use berth_actuator::{Acting as Hands, Host, Knob, Outcome, Report};
use berth_affinity::{Wanted, plan};
use berth_host::model::Snapshot;
use berth_optimiser::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

impl<H: Host> Pins<H> {
    /// Where everything goes.
    pub(super) fn planned(&self, vms: &Snapshot) -> Vec<Planned> {
        let online: Option<CpuSet> = follow::online(&self.root).parse().ok();
        let sets = self.sets_before();
        let there: Vec<(VmKey, &Pin, berth_affinity::Vm)> = self
            .pins
            .iter()
            .filter_map(|(key, pin)| {
                let vm = find(vms, *key)?;
                let was = |group: &str| sets.get(group).cloned();
                let vm = observe::vm(&self.root, vm, &self.networks, online.as_ref(), &was);
                Some((*key, pin, vm))
            })
            .collect();
        let host = observe::host(&self.root, &self.busy.of(), self.taken.clone());
        let wanted: Vec<Wanted<'_>> = there
            .iter()
            .map(|(_, pin, vm)| Wanted {
                vm,
                ask: &pin.asked.ask,
                acts: pin.acts(),
                now: pin.seat.as_ref(),
            })
            .collect();
        let plans = plan(&host, &wanted);
        there.iter().map(|(key, ..)| *key).zip(plans).collect()
    }

    /// CPU sets of groups as they were before they were set here.
    fn sets_before(&self) -> BTreeMap<String, String> {
        let mut sets = self.lent.clone();
        sets.extend(self.hands.as_ref().map(Hands::cpu_sets).unwrap_or_default());
        sets
    }

    /// Sets what is planned, and undoes what is not any more.
    pub(super) fn carry_out(
        &mut self,
        vms: &Snapshot,
        planned: Vec<Planned>,
    ) -> Result<Report, PinError> {
        let wanted = self.wanted(vms, planned);
        self.set(wanted)
    }

    /// The values of what is planned.
    pub(super) fn wanted(&mut self, vms: &Snapshot, planned: Vec<Planned>) -> Vec<Setting> {
        let mut wanted: Vec<Setting> = Vec::new();
        for (vm_key, placed) in planned {
            let (Some(vm), Some(pin)) = (find(vms, vm_key), self.pins.get_mut(&vm_key)) else {
                continue;
            };
            pin.threads = vm.threads.iter().map(|t| t.id).collect();
            pin.forget_foreign(&self.networks);
            let placed = match placed {
                Ok(placed) => placed,
                Err(refusal) => {
                    pin.refused = Some(refusal.to_string());
                    (pin.placed, pin.seat) = (None, None);
                    continue;
                }
            };
            pin.refused = None;
            let place = match pin.asked.method {
                Method::Taskset => None,
                Method::Cgroup => match sets::of(&self.root, vm, self.systemd) {
                    Ok(place) => Some(place),
                    Err(why) => {
                        pin.complain(by_cgroup(&why));
                        None
                    }
                },
                // A group is made for it only if that is asked for.
                Method::Auto => sets::of(&self.root, vm, self.systemd)
                    .ok()
                    .filter(|place| matches!(place, sets::Place::Own { .. })),
            };
            // Once made for it, the group is its own.
            let place = match place {
                Some(sets::Place::Own { group }) => {
                    let made = self.applied.keys().any(|k| {
                        *k == Knob::Made {
                            group: group.clone(),
                        }
                    });
                    if made {
                        sets::again(&group, &self.root)
                    } else {
                        Some(sets::Place::Own { group })
                    }
                }
                other => other,
            };
            pin.method = if place.is_some() {
                Method::Cgroup
            } else {
                Method::Taskset
            };
            let settings = settings(&placed, vm, &self.networks, place.as_ref());
            let own = settings
                .into_iter()
                .filter(|s| !pin.foreign.contains(&s.knob));
            wanted.extend(own.map(|s| Setting { vm: vm_key, ..s }));
            (pin.seat, pin.placed) = (Some(placed.seat.clone()), Some(placed));
        }
        act::unbalance(&mut wanted, &self.networks, self.hands.as_ref());
        wanted
    }

    fn set(&mut self, wanted: Vec<Setting>) -> Result<Report, PinError> {
        let Some(hands) = &mut self.hands else {
            return Ok(Report::default());
        };
        let keep: BTreeSet<&Knob> = wanted.iter().map(|s| &s.knob).collect();
        let gone: BTreeSet<Knob> = self
            .applied
            .keys()
            .filter(|k| !keep.contains(k))
            .cloned()
            .collect();
        let undone = match gone.is_empty() {
            true => Report::default(),
            false => hands.undo(&gone)?,
        };
        self.applied.retain(|knob, _| !gone.contains(knob));
        // Born where it is to be: what it would be otherwise is what its process's first thread was.
        let born: Vec<(Knob, Knob)> = wanted
            .iter()
            .filter(|s| !self.applied.contains_key(&s.knob))
            .filter_map(|s| act::born(&s.knob, &wanted, hands))
            .collect();
        hands.adopt(&born)?;
        let steps = wanted.iter().map(|s| s.step).max().unwrap_or(0);
        for step in 0..=steps {
            let of_step = |s: &&Setting| {
                let there = self.applied.get(&s.knob).map(|(value, _)| value);
                s.step == step && there != Some(&s.value)
            };
            let new: Vec<&Setting> = wanted.iter().filter(of_step).collect();
            if new.is_empty() {
                continue;
            }
            let values: Vec<_> = new
                .iter()
                .map(|s| (s.knob.clone(), s.value.clone()))
                .collect();
            let report = hands.set(&values)?;
            for (setting, (knob, outcome)) in new.into_iter().zip(&report.outcomes) {
                let Some(pin) = self.pins.get_mut(&setting.vm) else {
                    continue;
                };
                match outcome {
                    Outcome::Set | Outcome::Already => {}
                    Outcome::Instead(value) => {
                        pin.complain(format!(
                            "{knob} became {} in place of {}",
                            value.escape_debug(),
                            setting.value
                        ));
                    }
                    Outcome::Foreign(value) => {
                        pin.foreign.insert(knob.clone());
                        pin.complain(format!(
                            "{knob} was set to {} by somebody else, and is left alone",
                            value.escape_debug()
                        ));
                        continue;
                    }
                    Outcome::Gone => continue,
                    Outcome::Refused(why) | Outcome::Denied(why) => {
                        pin.complain(why.clone());
                        // Asked again only when it is pinned again: no war with who refuses.
                        pin.foreign.insert(knob.clone());
                        continue;
                    }
                }
                self.applied
                    .insert(knob.clone(), (setting.value.clone(), setting.vm));
            }
        }
        Ok(undone)
    }
}
