// SPDX-License-Identifier: GPL-2.0-only
//! From what all VMs ask for to what each of them is to be set to, and why.
use crate::act::{self, Bounds, Setting};
use crate::cpuset::CpuSet;
use crate::due::due;
use crate::machine::Machine;
use crate::owners::owners;
use crate::pins::{Held, held};
use crate::place::{Place, Rest, place};
use crate::promise::Promise;
use crate::reason::{Bound, Reason};
use crate::settings::Settings;
use crate::share::{Claim, Shares, allot};

/// One VM and where it was before.
#[derive(Clone, Debug)]
pub struct Guest<'a> {
    pub promise: &'a Promise,
    pub vcpus: u32,
    pub claim: Claim,
    /// Where somebody else pinned it.
    pub pinned: Option<&'a CpuSet>,
    /// CPUs it has to itself.
    pub own: Option<&'a CpuSet>,
    /// CPUs onto which it was packed last.
    pub packed: Option<&'a CpuSet>,
    /// Its `cpu.weight` now.
    pub weight: u32,
    /// CPUs that it would use, when it is not frozen, where nobody is in its way; the part of the time in which it is
    /// not frozen.
    pub running: f64,
    /// CPUs that it used at the last two looks: the more of both.
    pub used: f64,
    pub run_fraction: Option<f64>,
}

impl Guest<'_> {
    /// CPUs that it may have to itself; 0: none.
    pub fn dedicated_cpus(&self) -> usize {
        self.promise.dedicated_cpus(self.vcpus) as usize
    }
}

/// What becomes of one VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// CPUs.
    pub share: f64,
    pub bound: Bound,
    pub setting: Setting,
    /// The CPUs of its setting are its own.
    pub own: bool,
    /// The CPUs of its setting are those onto which it was packed.
    pub packed: bool,
    pub reasons: Vec<Reason>,
}

/// What becomes of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In the order of the guests.
    pub outcomes: Vec<Outcome>,
    /// CPUs for what is no VM, beyond the reserve.
    pub host: f64,
    /// Those without CPUs of their own want more than there is.
    pub want: bool,
}

/// The division of a machine.
struct Division {
    /// CPUs for each guest, then for the host.
    cpus: Vec<f64>,
    /// Of those without CPUs of their own.
    rest: Shares,
    /// CPUs that these want, and that there are for them.
    wanted: f64,
    there_is: f64,
}

/// Decides. `host`: what is no VM, beyond the reserve. `wanted_before`: the last plan's [`Plan::want`]; want is over
/// only when demand is clearly below what there is.
pub fn plan(
    machine: &Machine,
    settings: &Settings,
    guests: &[Guest],
    host: Claim,
    wanted_before: bool,
) -> Plan {
    let capacity = settings.capacity(machine.online());
    let mut claims: Vec<Claim> = guests.iter().map(|g| g.claim).chain([host]).collect();
    let held = held(machine, guests, &claims);
    for (claim, held) in claims.iter_mut().zip(&held) {
        if let Some(held) = held {
            claim.limit = claim.limit.min(held.share);
        }
    }
    let shares = allot(capacity, &claims);
    let owners = owners(machine, settings, guests, &shares.cpus);
    let taken: Vec<u32> = owners.iter().flatten().flat_map(CpuSet::iter).collect();
    let pool = machine.without(taken);
    for (claim, owner) in claims.iter_mut().zip(&owners) {
        if let Ok(own) = owner {
            claim.limit = claim.limit.min(own.count() as f64);
        }
    }
    let owns = |i: usize| owners.get(i).is_some_and(Result::is_ok);
    let division = divide(capacity, pool.count(), &claims, &owns);
    let least = if wanted_before {
        1.0 - settings.hysteresis
    } else {
        1.0
    };
    let want = division.wanted > division.there_is * least;
    let rest = Rest {
        pool: &pool,
        wanted: division.wanted,
        there_is: division.there_is,
        want,
    };
    let places = place(machine, settings, guests, &owners, &division.cpus, rest);
    let shared: Vec<Claim> = (0..claims.len())
        .filter(|i| !owns(*i))
        .map(|i| claims[i])
        .collect();
    let mut weights = act::weights(division.rest.level, division.rest.kept, &shared).into_iter();
    let spare = machine.online() as f64 / capacity;
    let due = match settings.means.freezing && !settings.means.caps {
        true => due_of(machine, &places, &division.cpus, &owns),
        false => vec![None; guests.len()],
    };
    let short = |(i, due): (usize, &Option<f64>)| {
        let due = due.unwrap_or(0.0);
        claims[i].demand > due && guests[i].used < due * (1.0 - settings.step)
    };
    let uneven = due.iter().enumerate().any(short);
    let outcome = |(i, place): (usize, Place)| {
        let own = owns(i);
        let bounds = Bounds {
            demand: claims[i].demand,
            share: division.cpus[i],
            limit: guests[i].promise.limit,
            want,
            spare,
            running: guests[i].running,
            run_fraction: guests[i].run_fraction,
            due: due[i],
            uneven,
        };
        let weight = if own { None } else { weights.next() };
        // Who is pinned has rivals on these CPUs first.
        let weight = held[i].map_or(weight, |held| Some(held.weight));
        let packed = place.packed;
        let (setting, reasons) = settled(settings, &guests[i], place, weight, bounds);
        Outcome {
            share: division.cpus[i],
            bound: bound(&claims[i], division.cpus[i], &division.rest, held[i]),
            setting,
            own,
            packed,
            reasons,
        }
    };
    let outcomes = places.into_iter().enumerate().map(outcome).collect();
    Plan {
        host: division.cpus[guests.len()],
        outcomes,
        want,
    }
}

/// What each guest would have of its place by the shares there; none: the CPUs are its own.
fn due_of(
    machine: &Machine,
    places: &[Place],
    shares: &[f64],
    owns: &dyn Fn(usize) -> bool,
) -> Vec<Option<f64>> {
    let shared: Vec<usize> = (0..places.len()).filter(|i| !owns(*i)).collect();
    let vms: Vec<_> = shared
        .iter()
        .map(|i| (places[*i].cpus.as_ref(), shares[*i]))
        .collect();
    let mut all = vec![None; places.len()];
    for (i, due) in shared.iter().zip(due(machine, &vms)) {
        all[*i] = Some(due);
    }
    all
}

/// The setting of one guest and the reasons for it. `weight`: what holds up its share; none: its own.
fn settled(
    settings: &Settings,
    guest: &Guest,
    place: Place,
    weight: Option<u32>,
    b: Bounds,
) -> (Setting, Vec<Reason>) {
    let mut reasons = place.reasons;
    let own_weight = guest.promise.weight;
    let weight = match settings.means.weights {
        true => weight.unwrap_or(own_weight),
        false => guest.weight,
    };
    if settings.means.weights {
        reasons.push(match weight == own_weight {
            true => Reason::OwnWeight,
            false => Reason::Weighed {
                share: b.share,
                guarantee: guest.promise.guarantee,
            },
        });
    }
    let (cap, run_fraction, why) = act::bounds(settings, b);
    reasons.extend(why);
    (
        Setting {
            cpus: place.cpus,
            weight,
            cap,
            run_fraction,
        },
        reasons,
    )
}

/// Divides the capacity (CPUs). Those without CPUs of their own have what the others leave, and not more than their
/// CPUs.
fn divide(capacity: f64, pool: usize, claims: &[Claim], owns: &dyn Fn(usize) -> bool) -> Division {
    let mut cpus = allot(capacity, claims).cpus;
    let (own, shared): (Vec<usize>, Vec<usize>) = (0..claims.len()).partition(|i| owns(*i));
    let left = capacity - own.iter().map(|i| cpus[*i]).sum::<f64>();
    let there_is = left.min(pool as f64);
    let rest: Vec<Claim> = shared.iter().map(|i| claims[*i]).collect();
    let wanted = rest.iter().map(Claim::wanted).sum();
    let rest = allot(there_is, &rest);
    for (i, share) in shared.iter().zip(&rest.cpus) {
        cpus[*i] = *share;
    }
    Division {
        cpus,
        rest,
        wanted,
        there_is,
    }
}

/// What bounds this share.
fn bound(claim: &Claim, share: f64, rest: &Shares, held: Option<Held>) -> Bound {
    const EXACT: f64 = 1e-9;
    if let Some(held) = held.filter(|held| held.share < claim.demand && share >= held.share - EXACT)
    {
        return match held.guarantees {
            true => Bound::Guarantee,
            false => Bound::Pin,
        };
    }
    if share >= claim.wanted() - EXACT {
        return match claim.demand <= claim.limit {
            true => Bound::Demand,
            false => Bound::Limit,
        };
    }
    let guaranteed = claim.base() > claim.floor;
    match rest.level {
        Some(level) if rest.kept < 1.0 || level <= 0.0 => match guaranteed {
            true => Bound::Guarantee,
            false => Bound::Floor,
        },
        _ if share <= claim.floor + EXACT => Bound::Floor,
        _ => Bound::Weight,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Cpu;
    use crate::promise::Service;

    const NOTHING: Claim = Claim {
        demand: 0.0,
        guarantee: 0.0,
        limit: f64::INFINITY,
        weight: 100.0,
        floor: 0.0,
    };

    /// A target of so many vCPUs that is guaranteed them and wants `demand`, and others that want so much each.
    fn of_target(cpus: u32, demand: f64, vcpus: u32, others: &[f64], before: bool) -> Plan {
        let machine = Machine::new(&Cpu::flat(cpus)).unwrap();
        let promise = Promise {
            service: Service::Target,
            guarantee: f64::from(vcpus),
            ..Promise::default()
        };
        let other = Promise::default();
        let guest = |promise, vcpus, claim| Guest {
            promise,
            vcpus,
            claim,
            pinned: None,
            own: None,
            packed: None,
            weight: 100,
            running: 0.0,
            used: 0.0,
            run_fraction: None,
        };
        let claim = Claim {
            demand,
            guarantee: promise.guarantee,
            ..NOTHING
        };
        let rest = others.iter().map(|demand| {
            guest(
                &other,
                1,
                Claim {
                    demand: *demand,
                    ..NOTHING
                },
            )
        });
        let guests: Vec<Guest> = [guest(&promise, vcpus, claim)]
            .into_iter()
            .chain(rest)
            .collect();
        plan(&machine, &Settings::default(), &guests, NOTHING, before)
    }

    #[test]
    fn the_rest_has_no_more_than_its_cpus() {
        let plan = of_target(2, 0.6, 1, &[1.0; 4], false);
        assert!(plan.outcomes[0].own && plan.want);
        // 1.3 CPUs are not used by the target, and one is there for the others.
        let sum: f64 = plan.outcomes[1..].iter().map(|o| o.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn a_share_of_own_cpus_is_no_more_than_they_are() {
        let plan = of_target(4, 1.2, 1, &[0.5], false);
        let target = &plan.outcomes[0];
        assert!(target.own);
        assert_eq!((target.share, target.bound), (1.0, Bound::Limit));
    }

    #[test]
    fn want_ends_when_there_is_clearly_enough() {
        let want = |each: f64, before| of_target(4, 0.0, 1, &[each; 4], before).want;
        // 3.8 CPUs are divided.
        assert!(want(0.96, false));
        assert!(!want(0.94, false));
        assert!(want(0.94, true));
        assert!(!want(0.9, true));
    }
}
