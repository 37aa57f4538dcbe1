// SPDX-License-Identifier: GPL-2.0-only
//! Who has CPUs to itself: targets whose guarantee fills whole CPUs, while they want them and others keep theirs.
use crate::cpuset::CpuSet;
use crate::dedicate::Free;
use crate::demand::BEYOND_VCPUS;
use crate::machine::Machine;
use crate::plan::Guest;
use crate::reason::Reason;
use crate::settings::Settings;
use std::cmp::Reverse;

/// For each guest its own CPUs, or why it has none; nothing is to be said of who may not have any. `shares`: CPUs each
/// would get if none had its own. At least one CPU is left for the rest, and enough for all that they are guaranteed.
pub fn owners(
    machine: &Machine,
    settings: &Settings,
    guests: &[Guest],
    shares: &[f64],
) -> Vec<Result<CpuSet, Option<Reason>>> {
    let mut out: Vec<_> = guests.iter().map(|_| Err(None)).collect();
    if !settings.means.sets {
        return out;
    }
    let entitled = |i: &usize| guests[*i].pinned.is_none() && guests[*i].dedicated_cpus() > 0;
    let mut order: Vec<usize> = (0..guests.len()).filter(entitled).collect();
    // Who has CPUs keeps them; then by guarantee.
    order.sort_by(|a, b| {
        let (a, b) = (&guests[*a], &guests[*b]);
        let guarantee = b.promise.guarantee.total_cmp(&a.promise.guarantee);
        Reverse(a.own.is_some())
            .cmp(&Reverse(b.own.is_some()))
            .then(guarantee)
    });
    let pinned: Vec<&CpuSet> = guests.iter().filter_map(|g| g.pinned).collect();
    let mut free = Free::new(machine, &pinned);
    let mut left = machine.online();
    let due = |g: &Guest| g.promise.guarantee.max(g.claim.floor);
    let mut promised: f64 = guests.iter().map(due).sum();
    let reserve = machine.online() as f64 - settings.capacity(machine.online());
    for i in order {
        let guest = &guests[i];
        let n = guest.dedicated_cpus();
        out[i] = match wants(guest, n, shares[i], settings) {
            Err(reason) => Err(reason),
            Ok(()) => {
                let room = left > n && promised - due(guest) + reserve <= (left - n) as f64 + 1e-9;
                let chosen = match guest.own {
                    _ if !room => None,
                    Some(own) if own.count() == n && free.take(own) => Some(own.clone()),
                    _ => free.choose(n),
                };
                chosen.ok_or(Some(Reason::NoneToDedicate { cpus: n }))
            }
        };
        if out[i].is_ok() {
            left -= n;
            promised -= due(guest);
        }
    }
    out
}

/// Does this guest want `n` CPUs of its own, and would it not lose by being alone on them?
fn wants(guest: &Guest, n: usize, share: f64, settings: &Settings) -> Result<(), Option<Reason>> {
    let (demand, all) = (guest.claim.demand, n as f64);
    let has = guest.own.is_some();
    let (from, most) = match has {
        true => (settings.dedicate_until, all + BEYOND_VCPUS),
        false => (settings.dedicate_from, all),
    };
    if demand < from * all {
        return Err(has.then_some(Reason::Undedicated { cpus: n, demand }));
    }
    // I/O threads alone are no reason to give up CPUs as many as the vCPUs.
    if n < guest.vcpus as usize && share > most {
        return Err(Some(Reason::Outgrown { cpus: n, share }));
    }
    Ok(())
}
