// SPDX-License-Identifier: GPL-2.0-only
//! VMs that somebody else pinned to the same CPUs divide these among them, however much is free elsewhere.
use crate::act;
use crate::cpuset::CpuSet;
use crate::machine::Machine;
use crate::plan::Guest;
use crate::share::{Claim, allot, floor_cpus};
use std::collections::BTreeMap;

/// What one VM has of the CPUs to which it is pinned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// CPUs, at most.
    pub share: f64,
    /// The weight that gives it so much beside the others there.
    pub weight: u32,
    /// Those there are guaranteed more than the CPUs.
    pub guarantees: bool,
}

/// By guest, in the order of the guests; none: it is not pinned, or its CPUs have enough for all who are pinned to just
/// them. Pins that overlap otherwise are not looked at together.
pub fn held(machine: &Machine, guests: &[Guest], claims: &[Claim]) -> Vec<Option<Held>> {
    let mut groups: BTreeMap<&CpuSet, Vec<usize>> = BTreeMap::new();
    for (i, guest) in guests.iter().enumerate() {
        if let Some(pinned) = guest.pinned {
            groups.entry(pinned).or_default().push(i);
        }
    }
    let mut all = vec![None; guests.len()];
    for (cpus, members) in groups {
        let there_is = machine.positions(cpus).count() as f64;
        let floor = floor_cpus(there_is, members.len());
        let claim = |i: &usize| Claim {
            floor: claims[*i].floor.min(floor),
            ..claims[*i]
        };
        let theirs: Vec<Claim> = members.iter().map(claim).collect();
        // Where they are all offline the kernel runs the VMs on all CPUs.
        if there_is == 0.0 || theirs.iter().map(Claim::wanted).sum::<f64>() <= there_is {
            continue;
        }
        let shares = allot(there_is, &theirs);
        let weights = act::weights(shares.level, shares.kept, &theirs);
        for ((i, share), weight) in members.into_iter().zip(shares.cpus).zip(weights) {
            all[i] = Some(Held {
                share,
                weight,
                guarantees: shares.kept < 1.0,
            });
        }
    }
    all
}
