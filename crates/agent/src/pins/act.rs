// SPDX-License-Identifier: GPL-2.0-only
//! From a plan to values that are set, in the order in which they are.
use super::sets::{self, Place};
use crate::register::VmKey;
use berth_actuator::{Acting as Hands, Host, Knob, same};
use berth_affinity::{Placed, Seat};
use berth_host::model::{TaskId, Vm};
use berth_host::network::Networks;
use berth_optimiser::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub vm: VmKey,
    pub knob: Knob,
    pub value: String,
    /// What it needs has been set in the steps before.
    pub step: usize,
}

/// Steps of groups come before all else: before Linux 6.2 a set that changes overwrites the affinity of its threads.
const AFTER_GROUPS: usize = 3;

/// The CPUs of a seat.
pub fn cpus_of(seat: &Seat) -> impl Iterator<Item = u32> + '_ {
    seat.vcpus.iter().chain(&seat.path).copied()
}

fn affinity(id: &TaskId) -> Knob {
    Knob::Affinity {
        pid: id.pid,
        tid: id.tid,
        start: id.start,
    }
}

/// What is to be set for one VM. `place`: by its cgroup.
pub fn settings(
    placed: &Placed,
    vm: &Vm,
    networks: &Networks,
    place: Option<&Place>,
) -> Vec<Setting> {
    let key = VmKey {
        pid: vm.pid,
        start: vm.start,
    };
    let mut all = Vec::new();
    let mut add = |step: usize, knob: Knob, value: String| {
        all.push(Setting {
            vm: key,
            knob,
            value,
            step,
        });
    };
    let in_process = |tid: &i32| {
        vm.threads
            .iter()
            .any(|t| t.id.tid == *tid && t.id.pid == vm.pid)
    };
    let inside = placed.threads.iter().filter(|(tid, _)| in_process(tid));
    let set = place.and(CpuSet::of(inside.map(|(_, cpu)| *cpu)));
    if let (Some(place), Some(set)) = (place, &set) {
        for (step, values) in sets::steps(place, vm, &set.to_string())
            .into_iter()
            .enumerate()
        {
            for (knob, value) in values {
                add(step, knob, value);
            }
        }
    }
    let ids: BTreeMap<i32, &TaskId> = vm.threads.iter().map(|t| (t.id.tid, &t.id)).collect();
    for (tid, cpu) in &placed.threads {
        let enough = in_process(tid) && set.as_ref().is_some_and(|set| set.count() == 1);
        if let Some(id) = ids.get(tid).filter(|_| !enough) {
            add(AFTER_GROUPS, affinity(id), cpu.to_string());
        }
    }
    let devices = || networks.devices.values();
    for (number, cpu) in &placed.irqs {
        let irq = devices().flat_map(|d| &d.irqs).find(|i| i.irq == *number);
        if let Some(irq) = irq {
            let knob = Knob::Irq {
                irq: irq.irq,
                name: irq.name.clone(),
            };
            add(AFTER_GROUPS, knob, cpu.to_string());
        }
    }
    for (device, queue, cpu) in &placed.queues {
        if let Some(index) = networks.devices.get(device).and_then(|d| d.index) {
            let knob = Knob::Queue {
                device: device.clone(),
                index,
                queue: queue.clone(),
            };
            add(AFTER_GROUPS, knob, cpu.to_string());
        }
    }
    all
}

/// irqbalance is told to leave alone the interrupts that are set, beside those that it does anyway.
pub fn unbalance<H: Host>(
    wanted: &mut Vec<Setting>,
    networks: &Networks,
    hands: Option<&Hands<H>>,
) {
    let (Some(balance), Some(hands)) = (networks.balance, hands) else {
        return;
    };
    let irqs = wanted.iter().filter_map(|s| match &s.knob {
        Knob::Irq { irq, .. } => Some((*irq, s.vm)),
        _ => None,
    });
    let irqs: Vec<(u32, VmKey)> = irqs.collect();
    let Some((_, vm)) = irqs.first().copied() else {
        return;
    };
    let knob = Knob::Unbalanced {
        pid: balance.pid,
        start: balance.start,
    };
    let own = match hands.was(&knob) {
        Some(was) => Ok(was.to_string()),
        None => hands.host().read(&knob),
    };
    // One that does not answer is complained of when it is told.
    let own = own.unwrap_or_default();
    let own = own.split_whitespace().filter_map(|n| n.parse::<u32>().ok());
    let numbers: BTreeSet<u32> = own.chain(irqs.iter().map(|(irq, _)| *irq)).collect();
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    let told = Setting {
        vm,
        knob,
        value: words.join(" "),
        step: 0,
    };
    wanted.insert(0, told);
}

/// A thread that has a value already that is only set here: with the thread whose value it is to get back in the end,
/// its process's first one, or any other that is bound.
pub fn born<H: Host>(knob: &Knob, wanted: &[Setting], hands: &Hands<H>) -> Option<(Knob, Knob)> {
    let Knob::Affinity { pid, .. } = knob else {
        return None;
    };
    let kin = |s: &&Setting| {
        let of = matches!(&s.knob, Knob::Affinity { pid: p, .. } if p == pid);
        of && s.knob != *knob && hands.was(&s.knob).is_some()
    };
    let there = hands.host().read(knob).ok()?;
    let mut kin: Vec<&Setting> = wanted.iter().filter(kin).collect();
    if !kin.iter().any(|s| same(&s.value, &there)) {
        return None;
    }
    let first = |s: &&Setting| matches!(&s.knob, Knob::Affinity { pid, tid, .. } if pid == tid);
    kin.sort_by_key(|s| (!same(&s.value, &there), !first(s)));
    Some((knob.clone(), kin.first()?.knob.clone()))
}
