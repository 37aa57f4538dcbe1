// SPDX-License-Identifier: GPL-2.0-only
//! How many CPUs each VM gets: what is guaranteed first, then weighted water-filling of the rest.
//!
//! A VM's share is `base + level * weight`, at least its floor and at most what it wants; `base` is the part of its
//! guarantee that it wants. The level is the one at which all shares add up to the capacity, found in one sweep over
//! the levels at which a VM's share begins or ends to grow: O(V log V).

/// Part of a CPU that every VM keeps, while the machine has enough of them.
pub const FLOOR_CPUS: f64 = 0.01;

/// The floor of one of so many VMs, CPUs: floors never take more than half of the capacity.
pub fn floor_cpus(capacity: f64, vms: usize) -> f64 {
    FLOOR_CPUS.min(capacity / (2.0 * vms.max(1) as f64))
}

/// What one VM asks for, CPUs. All numbers are finite and not negative but `limit`, which may be infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    pub demand: f64,
    pub guarantee: f64,
    pub limit: f64,
    /// Above 0.
    pub weight: f64,
    pub floor: f64,
}

impl Claim {
    /// What it gets if there is enough for all.
    pub fn wanted(&self) -> f64 {
        self.demand.min(self.limit).max(self.floor)
    }

    /// The part of its guarantee that it wants.
    pub fn base(&self) -> f64 {
        self.demand.min(self.guarantee).min(self.limit)
    }
}

/// The division of a capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// CPUs, in the order of the claims.
    pub cpus: Vec<f64>,
    /// CPUs per unit of weight at which the water stands; none: there is enough for all.
    pub level: Option<f64>,
    /// Part of the guarantees beyond the floors that there is room for; 1: all.
    pub kept: f64,
}

/// Divides `capacity` CPUs, at least the sum of the floors.
pub fn allot(capacity: f64, claims: &[Claim]) -> Shares {
    let wanted: f64 = claims.iter().map(Claim::wanted).sum();
    if wanted <= capacity {
        return Shares {
            cpus: claims.iter().map(Claim::wanted).collect(),
            level: None,
            kept: 1.0,
        };
    }
    let first: f64 = claims.iter().map(|c| c.base().max(c.floor)).sum();
    if first >= capacity {
        return scaled(capacity, claims);
    }
    let level = level(capacity, first, claims);
    let share = |c: &Claim| (c.base() + level * c.weight).clamp(c.floor, c.wanted());
    Shares {
        cpus: claims.iter().map(share).collect(),
        level: Some(level),
        kept: 1.0,
    }
}

/// The guarantees alone are too much: each keeps the same part of what it has beyond its floor.
fn scaled(capacity: f64, claims: &[Claim]) -> Shares {
    let beyond = |c: &Claim| (c.base() - c.floor).max(0.0);
    let floors: f64 = claims.iter().map(|c| c.floor).sum();
    let all: f64 = claims.iter().map(beyond).sum();
    let kept = match all > 0.0 {
        true => ((capacity - floors) / all).clamp(0.0, 1.0),
        false => 1.0,
    };
    let share = |c: &Claim| c.floor + kept * beyond(c);
    Shares {
        cpus: claims.iter().map(share).collect(),
        level: Some(0.0),
        kept,
    }
}

/// The level at which the shares, `first` CPUs at level 0, add up to the capacity, which is less than all want.
fn level(capacity: f64, first: f64, claims: &[Claim]) -> f64 {
    // Level, and by how much the sum of the weights of the growing changes there.
    let mut turns: Vec<(f64, f64)> = Vec::with_capacity(2 * claims.len());
    for c in claims {
        let begins = ((c.floor - c.base()) / c.weight).max(0.0);
        let ends = (c.wanted() - c.base()) / c.weight;
        if ends > begins {
            turns.push((begins, c.weight));
            turns.push((ends, -c.weight));
        }
    }
    turns.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut at, mut sum, mut growing) = (0.0, first, 0.0);
    for (next, weight) in turns {
        let after = sum + growing * (next - at);
        if after >= capacity && growing > 0.0 {
            return at + (capacity - sum) / growing;
        }
        (at, sum) = (next, after);
        growing += weight;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(demand: f64, guarantee: f64) -> Claim {
        Claim {
            demand,
            guarantee,
            limit: f64::INFINITY,
            weight: 100.0,
            floor: 0.01,
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    /// The worked example of the specification, section 6.5: two CPUs, a reserve of 0.1.
    #[test]
    fn worked_example() {
        let mut claims = vec![claim(0.5, 0.0); 17];
        claims[0] = claim(1.0, 0.95);
        let shares = allot(1.9, &claims);
        assert!(close(shares.cpus[0], 1.0));
        assert!(shares.cpus[1..].iter().all(|s| close(*s, 0.05625)));
        assert!(close(shares.level.unwrap() * 100.0, 0.05625));
        claims[0].guarantee = 0.0;
        let shares = allot(1.9, &claims);
        assert!(shares.cpus.iter().all(|s| close(*s, 1.9 / 17.0)));
    }

    #[test]
    fn enough_for_all_and_too_much_guaranteed() {
        let shares = allot(1.9, &[claim(1.0, 0.0), claim(0.5, 0.5), claim(0.0, 0.0)]);
        assert_eq!((shares.cpus, shares.level), (vec![1.0, 0.5, 0.01], None));
        // 3 CPUs are guaranteed of 1.5; beyond the floors 1.48 of 2.98.
        let shares = allot(1.5, &[claim(2.0, 2.0), claim(1.0, 1.0)]);
        assert!(close(shares.cpus[0], 0.01 + 1.99 * 1.48 / 2.98));
        assert!(close(shares.cpus.iter().sum(), 1.5));
        assert!(close(shares.kept, 1.48 / 2.98));
        assert_eq!(floor_cpus(1.9, 2), 0.01);
        assert_eq!(floor_cpus(1.0, 100), 0.005);
    }

    /// The specification's own words, step by step: the wanted part of the guarantees and the floors first; then every
    /// VM that wants more gets its weight's part of the rest, as much of it as it wants, until nothing is left. Slow
    /// and obvious. A floor counts towards what its VM is due by weight: who is below it is left out until the others
    /// have come so far.
    fn slowly(capacity: f64, claims: &[Claim]) -> Vec<f64> {
        // Raise the water in small steps first to know who is above the floor, then solve by rounds.
        let at = |level: f64, c: &Claim| (c.base() + level * c.weight).max(c.floor).min(c.wanted());
        let sum = |level: f64| claims.iter().map(|c| at(level, c)).sum::<f64>();
        let (mut low, mut high) = (0.0, 1e6);
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            match sum(middle) > capacity {
                true => high = middle,
                false => low = middle,
            }
        }
        claims.iter().map(|c| at(low, c)).collect()
    }

    /// As `slowly`, by rounds, for claims without floors: section 6.3 to the letter.
    fn by_rounds(capacity: f64, claims: &[Claim]) -> Vec<f64> {
        let mut got: Vec<f64> = claims.iter().map(Claim::base).collect();
        for _ in 0..=claims.len() {
            let rest = capacity - got.iter().sum::<f64>();
            let open = |i: &usize| claims[*i].wanted() - got[*i] > 1e-12;
            let open: Vec<usize> = (0..claims.len()).filter(open).collect();
            let weights: f64 = open.iter().map(|i| claims[*i].weight).sum();
            let part = |i: usize| rest * claims[i].weight / weights;
            // Those who want less than their part take what they want and drop out.
            let full = |i: &usize| claims[*i].wanted() - got[*i] <= part(*i);
            let (full, rest): (Vec<usize>, Vec<usize>) = open.into_iter().partition(full);
            if full.is_empty() {
                rest.iter().for_each(|i| got[*i] += part(*i));
                break;
            }
            full.iter().for_each(|i| got[*i] = claims[*i].wanted());
        }
        got
    }

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let one = (
            0.0..4.0f64,
            0.0..1.0f64,
            0.0..3.0f64,
            1..=10_000u32,
            any::<[bool; 2]>(),
        )
            .prop_map(|(demand, guarantee, more, weight, [guaranteed, limited])| {
                let guarantee = if guaranteed { guarantee } else { 0.0 };
                Claim {
                    demand,
                    guarantee,
                    limit: if limited {
                        guarantee + more + 0.01
                    } else {
                        f64::INFINITY
                    },
                    weight: f64::from(weight),
                    floor: 0.0,
                }
            });
        prop::collection::vec(one, 1..40)
    }

    proptest! {
        #[test]
        fn as_the_obvious_solvers(mut claims in claims(), capacity in 0.5..40.0f64) {
            let first: f64 = claims.iter().map(Claim::base).sum();
            let same = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-7);
            if first <= capacity {
                let (got, want) = (allot(capacity, &claims), by_rounds(capacity, &claims));
                prop_assert!(same(&got.cpus, &want), "{got:?}\n{want:?}");
            }
            let floor = floor_cpus(capacity, claims.len());
            claims.iter_mut().for_each(|c| c.floor = floor);
            if claims.iter().map(|c| c.base().max(c.floor)).sum::<f64>() <= capacity {
                let (got, want) = (allot(capacity, &claims), slowly(capacity, &claims));
                prop_assert!(same(&got.cpus, &want), "{got:?}\n{want:?}");
            }
        }

        #[test]
        fn what_shares_keep(mut claims in claims(), capacity in 0.5..40.0f64) {
            let floor = floor_cpus(capacity, claims.len());
            claims.iter_mut().for_each(|c| c.floor = floor);
            let shares = allot(capacity, &claims);
            let (sum, wanted): (f64, f64) = (shares.cpus.iter().sum(), claims.iter().map(Claim::wanted).sum());
            // Never more than there is, and nothing is kept back that somebody wants.
            prop_assert!(sum <= capacity + 1e-9);
            prop_assert!(sum >= capacity.min(wanted) - 1e-9, "{sum} of {capacity}, wanted {wanted}");
            for (c, share) in claims.iter().zip(&shares.cpus) {
                prop_assert!(*share >= c.floor - 1e-12 && *share <= c.wanted() + 1e-12);
                if shares.kept == 1.0 {
                    prop_assert!(*share >= c.base() - 1e-12);
                }
            }
            // Nobody has more beyond its guarantee, by weight, than somebody who wants more.
            if let Some(level) = shares.level {
                for (c, share) in claims.iter().zip(&shares.cpus) {
                    let by_weight = (share - c.base()) / c.weight;
                    let floored = *share <= c.floor + 1e-9;
                    prop_assert!(floored || by_weight <= level + 1e-9);
                    prop_assert!(*share >= c.wanted() - 1e-9 || shares.kept < 1.0 || floored
                        || by_weight >= level - 1e-9);
                }
            }
        }

        /// The order in which VMs are named does not matter.
        #[test]
        fn order_does_not_matter(claims in claims(), capacity in 0.5..40.0f64) {
            let mut back = claims.clone();
            back.reverse();
            let (a, b) = (allot(capacity, &claims), allot(capacity, &back));
            prop_assert!(a.cpus.iter().zip(b.cpus.iter().rev()).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}
