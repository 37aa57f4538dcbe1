// SPDX-License-Identifier: GPL-2.0-only
//! Where each VM runs: on CPUs of its own, where it was pinned, packed with others, or on all that are nobody's own.
use crate::cpuset::CpuSet;
use crate::machine::Machine;
use crate::pack::{Evenness, Item, Packed, pack};
use crate::plan::Guest;
use crate::reason::Reason;
use crate::settings::{Settings, Spread};

/// Where a VM runs, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// None: all CPUs of the host.
    pub cpus: Option<CpuSet>,
    pub packed: bool,
    pub reasons: Vec<Reason>,
}

/// What is known of those without CPUs of their own, CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    /// CPUs that are nobody's own.
    pub pool: &'a CpuSet,
    pub wanted: f64,
    pub there_is: f64,
    /// More is wanted than there is.
    pub want: bool,
}

/// A place for each guest, given its own CPUs (or why it has none) and its share.
pub fn place(
    machine: &Machine,
    settings: &Settings,
    guests: &[Guest],
    owners: &[Result<CpuSet, Option<Reason>>],
    shares: &[f64],
    rest: Rest,
) -> Vec<Place> {
    let packs = settings.means.sets && rest.want && settings.spread == Spread::Cpus;
    let shared: Vec<usize> = (0..guests.len()).filter(|i| owners[*i].is_err()).collect();
    let sets = match packs {
        true => packed(machine, settings, guests, &shared, shares, rest.pool),
        false => Vec::new(),
    };
    let cpus = sets.iter().map(|packed| &packed.cpus);
    let load = load(machine, shared.iter().map(|i| shares[*i]).zip(cpus));
    let mut packed = sets.into_iter();
    let place = |(i, owner): (usize, &Result<CpuSet, Option<Reason>>)| {
        let guest = &guests[i];
        let pack = owner.is_err().then(|| packed.next()).flatten();
        match (owner, guest.pinned) {
            (Ok(own), _) => Place {
                cpus: Some(own.clone()),
                packed: false,
                reasons: vec![Reason::Dedicated {
                    cpus: own.count(),
                    demand: guest.claim.demand,
                }],
            },
            (Err(_), Some(pinned)) => Place {
                cpus: Some(pinned.clone()),
                packed: false,
                reasons: vec![pinning(machine, pinned)],
            },
            (Err(why), None) => {
                let is_packed = pack.is_some();
                let crowd = pack
                    .as_ref()
                    .and_then(|packed| crowded(machine, guest, &packed.cpus, &load));
                let joined = pack.as_ref().filter(|packed| packed.joined);
                let joined = joined.map(|packed| Reason::Joined {
                    cpus: packed.cpus.count(),
                });
                let cpus = pack.map(|packed| packed.cpus);
                let (cpus, reason) = shared_place(machine, settings, cpus, shares[i], rest);
                let reasons = why.iter().cloned().chain(reason).chain(joined).chain(crowd);
                Place {
                    packed: is_packed,
                    cpus,
                    reasons: reasons.collect(),
                }
            }
        }
    };
    owners.iter().enumerate().map(place).collect()
}

fn pinning(machine: &Machine, pinned: &CpuSet) -> Reason {
    let cpus = pinned.clone();
    match pinned.meets(machine.all()) {
        true => Reason::Pinned { cpus },
        false => Reason::PinnedOffline { cpus },
    }
}

/// Where one without CPUs of its own runs.
fn shared_place(
    machine: &Machine,
    settings: &Settings,
    packed: Option<CpuSet>,
    share: f64,
    rest: Rest,
) -> (Option<CpuSet>, Option<Reason>) {
    if packed.is_some() {
        let reason = Reason::Packed {
            share,
            wanted: rest.wanted,
            there_is: rest.there_is,
        };
        return (packed, Some(reason));
    }
    match rest.pool == machine.all() {
        // Without CPU sets there is no place to speak of.
        true if !settings.means.sets => (None, None),
        true => (None, Some(Reason::Everywhere)),
        false => {
            let cpus = rest.pool.count();
            (Some(rest.pool.clone()), Some(Reason::Pool { cpus }))
        }
    }
}

/// The shared guests onto the pool.
fn packed(
    machine: &Machine,
    settings: &Settings,
    guests: &[Guest],
    shared: &[usize],
    shares: &[f64],
    pool: &CpuSet,
) -> Vec<Packed> {
    let item = |i: &usize| Item {
        service: guests[*i].promise.service,
        share: shares[*i],
        vcpus: guests[*i].vcpus,
        previous: guests[*i].packed,
        pinned: guests[*i].pinned,
    };
    let items: Vec<Item> = shared.iter().map(item).collect();
    let even = Evenness {
        imbalance: settings.imbalance,
        join: settings.means.weights,
    };
    pack(machine, pool, &items, even)
}

/// CPUs of shares on each CPU, by position in the machine.
fn load<'a>(machine: &Machine, packed: impl Iterator<Item = (f64, &'a CpuSet)>) -> Vec<f64> {
    let mut load = vec![0.0; machine.online()];
    for (share, set) in packed {
        let part = share / set.count() as f64;
        machine.positions(set).for_each(|at| load[at] += part);
    }
    load
}

/// Whole VMs do not always fill CPUs evenly: is one with a guarantee where more is due than its CPU can do?
fn crowded(machine: &Machine, guest: &Guest, set: &CpuSet, load: &[f64]) -> Option<Reason> {
    let most = machine
        .positions(set)
        .map(|at| load[at])
        .fold(0.0, f64::max);
    let short = guest.claim.base() > guest.claim.floor && most > 1.0 + 1e-9;
    short.then_some(Reason::Crowded {
        load: most,
        guarantee: guest.promise.guarantee,
    })
}
