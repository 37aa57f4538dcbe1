// SPDX-License-Identifier: GPL-2.0-only
//! What of one VM is set, and what is put back, when the optimiser has decided otherwise.
use super::freezer::{Freezer, Write};
use super::home::Home;
use super::manager::Kept;
use berth_actuator::{ALL, Acting as Hands, Host, Knob, Outcome};
use berth_host::model::{TaskId, Vm};
use berth_optimiser::{Change, CpuSet, Setting};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether a thread that may run there may run on all CPUs that are divided: nobody has bound it.
pub fn is_free(mask: &str, all: Option<&CpuSet>) -> bool {
    let list: Option<CpuSet> = mask.parse().ok();
    mask == ALL
        || list
            .zip(all)
            .is_some_and(|(list, all)| all.iter().all(|cpu| list.has(cpu)))
}

/// The knob of a thread's CPUs.
pub fn affinity(id: &TaskId) -> Knob {
    Knob::Affinity {
        pid: id.pid,
        tid: id.tid,
        start: id.start,
    }
}

/// The CPU set of a VM.
pub fn place<H: Host>(
    change: &Change,
    vm: &Arc<Vm>,
    kept: &mut Kept,
    hands: &Hands<H>,
    free: &dyn Fn(&str) -> bool,
    wanted: &mut Vec<(Knob, String)>,
    undone: &mut BTreeSet<Knob>,
) {
    if change.from.cpus == change.to.cpus || kept.pinned.is_some() || kept.by_hand {
        return;
    }
    let list = change.to.cpus.as_ref().map(ToString::to_string);
    if let Some(set) = &kept.home.set {
        match list {
            Some(list) => wanted.push((set.clone(), kept.home.cpus(&list))),
            None => drop(undone.insert(set.clone())),
        }
        return;
    }
    for thread in &vm.threads {
        kept.threads.insert(thread.id);
        let knob = affinity(&thread.id);
        let ours = hands.was(&knob).is_some();
        match &list {
            // Threads that were bound to CPUs of their own choice stay there.
            Some(list) if ours || hands.host().read(&knob).is_ok_and(|mask| free(&mask)) => {
                wanted.push((knob, list.clone()));
            }
            None if ours => drop(undone.insert(knob)),
            _ => {}
        }
    }
    kept.bound = list;
}

/// Weight and cap of a VM, but for what somebody else has set.
pub fn share<H: Host>(
    change: &Change,
    home: &Home,
    hands: &Hands<H>,
    theirs: &BTreeSet<Knob>,
    wanted: &mut Vec<(Knob, String)>,
    undone: &mut BTreeSet<Knob>,
) -> Result<(), String> {
    let Setting { weight, cap, .. } = &change.to;
    if change.from.weight == *weight && change.from.cap == *cap {
        return Ok(());
    }
    let shares = home.shares.as_ref().map_err(Clone::clone)?;
    if change.from.weight != *weight {
        let (knob, value) = shares.weight(*weight);
        let own = hands.was(&knob).and_then(|was| shares.weight_of(was));
        match own == Some(*weight) {
            _ if theirs.contains(&knob) => {}
            true => drop(undone.insert(knob)),
            false => wanted.push((knob, value)),
        }
    }
    if change.from.cap != *cap {
        let (knob, _) = shares.cap(1.0, None);
        match cap {
            _ if theirs.contains(&knob) => {}
            Some(cpus) => {
                let own = hands
                    .was(&knob)
                    .map(String::from)
                    .or_else(|| hands.host().read(&knob).ok());
                wanted.push(shares.cap(*cpus, own.as_deref()));
            }
            None => drop(undone.insert(knob)),
        }
    }
    Ok(())
}

/// The part of each period in which a VM runs.
pub fn freeze<H: Host>(
    change: &Change,
    home: &Home,
    hands: &mut Hands<H>,
    freezer: &mut Option<Freezer>,
    write: &mut Option<Write>,
    undone: &mut BTreeSet<Knob>,
) -> Result<(), String> {
    let Some(part) = change.to.run_fraction else {
        if let (Ok(group), Some(freezer)) = (&home.freeze, freezer) {
            freezer.thaw(group.knob());
            undone.insert(group.knob().clone());
        }
        return Ok(());
    };
    let group = home.freeze.clone()?;
    match hands.lend(group.knob(), &group.words()) {
        Ok(Outcome::Set | Outcome::Already) => {}
        Ok(Outcome::Foreign(_)) => return Err("somebody else has frozen it".into()),
        Ok(Outcome::Refused(why) | Outcome::Denied(why)) => return Err(why),
        Ok(_) => return Ok(()),
        Err(e) => return Err(e.to_string()),
    }
    let running = match freezer.take() {
        Some(running) => running,
        None => {
            let write = write.take().ok_or("nothing freezes here")?;
            Freezer::start(write).map_err(|e| format!("no thread for it: {e}"))?
        }
    };
    freezer.insert(running).run(group, part);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_run_on_all_that_is_divided_is_free() {
        let all: CpuSet = "0-1,4-7".parse().unwrap();
        for (mask, free) in [
            (ALL, true),
            ("0-1,4-7", true),
            ("0-7", true),
            ("0-1,4-6", false),
            ("2-3", false),
            ("", false),
        ] {
            assert_eq!(is_free(mask, Some(&all)), free, "{mask}");
        }
        assert!(is_free(ALL, None) && !is_free("0-7", None));
    }
}
