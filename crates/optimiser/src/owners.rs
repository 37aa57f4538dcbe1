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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Cpu;
    use crate::promise::{Promise, Service};
    use crate::share::Claim;

    /// A VM that wants so many CPUs; with the CPUs that it has to itself.
    struct Vm {
        promise: Promise,
        vcpus: u32,
        demand: f64,
        own: Option<CpuSet>,
    }

    fn target(guarantee: f64, vcpus: u32) -> Vm {
        Vm {
            promise: Promise {
                service: Service::Target,
                guarantee,
                ..Promise::default()
            },
            vcpus,
            demand: guarantee,
            own: None,
        }
    }

    fn normal(guarantee: f64) -> Vm {
        let mut vm = target(guarantee, 1);
        vm.promise.service = Service::Normal;
        vm
    }

    /// Of a machine of so many CPUs: who has how many, or why not. Shares are demands.
    fn decide(cpus: u32, vms: &[Vm]) -> Vec<Result<CpuSet, Option<Reason>>> {
        let machine = Machine::new(&Cpu::flat(cpus)).unwrap();
        let guest = |vm: &'_ Vm| Claim {
            demand: vm.demand,
            guarantee: vm.promise.guarantee,
            limit: f64::INFINITY,
            weight: 100.0,
            floor: 0.01,
        };
        let guests: Vec<Guest> = vms
            .iter()
            .map(|vm| Guest {
                promise: &vm.promise,
                vcpus: vm.vcpus,
                claim: guest(vm),
                pinned: None,
                own: vm.own.as_ref(),
                packed: None,
                weight: 100,
                running: 0.0,
                used: 0.0,
                run_fraction: None,
            })
            .collect();
        let shares: Vec<f64> = vms.iter().map(|vm| vm.demand).collect();
        owners(&machine, &Settings::default(), &guests, &shares)
    }

    fn has(cpus: u32, vms: &[Vm]) -> Vec<bool> {
        decide(cpus, vms).iter().map(Result::is_ok).collect()
    }

    #[test]
    fn others_keep_what_they_are_guaranteed() {
        // Of two CPUs a tenth is reserved: 0.9 are left beside one CPU.
        assert_eq!(has(2, &[target(1.0, 1), normal(0.9)]), [true, false]);
        let vms = [target(1.0, 1), normal(0.95)];
        assert_eq!(
            decide(2, &vms)[0],
            Err(Some(Reason::NoneToDedicate { cpus: 1 }))
        );
        // The last CPU is nobody's own.
        assert_eq!(has(2, &[target(1.0, 1), target(1.0, 1)]), [false, false]);
        assert_eq!(has(1, &[target(0.9, 1)]), [false]);
        assert_eq!(has(3, &[target(1.0, 1), target(1.0, 1)]), [true, true]);
    }

    #[test]
    fn who_has_cpus_keeps_them_then_the_larger_guarantee() {
        // There is room for either of the targets.
        let vms = |own| {
            let small = Vm {
                own,
                ..target(0.95, 1)
            };
            [small, target(1.9, 2), normal(0.85)]
        };
        assert_eq!(has(4, &vms(None)), [false, true, false]);
        let own = CpuSet::of([1]);
        let kept = decide(4, &vms(own.clone()));
        assert_eq!(kept[0].clone().ok(), own);
        assert!(kept[1].is_err());
    }

    #[test]
    fn taken_at_half_and_left_below_a_fifth() {
        let with = |demand: f64, own: Option<CpuSet>| {
            let vm = Vm {
                demand,
                own,
                ..target(1.0, 1)
            };
            decide(4, &[vm]).remove(0)
        };
        let own = CpuSet::of([2]);
        assert_eq!(with(0.49, None), Err(None));
        assert!(with(0.5, None).is_ok());
        assert_eq!(with(0.2, own.clone()).ok(), own);
        let demand = 0.19;
        assert_eq!(
            with(demand, own),
            Err(Some(Reason::Undedicated { cpus: 1, demand }))
        );
    }

    #[test]
    fn nobody_is_shut_into_fewer_cpus_than_its_share() {
        let with = |vcpus, demand, own: Option<CpuSet>| {
            let vm = Vm {
                demand,
                own,
                ..target(1.0, vcpus)
            };
            decide(4, &[vm]).remove(0)
        };
        let share = 3.0;
        assert_eq!(
            with(4, share, None),
            Err(Some(Reason::Outgrown { cpus: 1, share }))
        );
        // Its I/O threads may do a little beside it, once it has its CPU.
        assert!(with(4, 1.1, None).is_err());
        assert!(with(4, 1.1, CpuSet::of([3])).is_ok());
        // As many CPUs as vCPUs are enough.
        assert!(with(1, 1.2, None).is_ok());
    }
}
