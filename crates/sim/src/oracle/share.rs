// SPDX-License-Identifier: GPL-2.0-only
//! Weighted max-min fair shares by water-filling.

/// Who shares: a weight and the most it can use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Relative weight, > 0.
    pub weight: f64,
    /// Most it can use, >= 0 (one task: 1 CPU; a task that sleeps: its demand).
    pub limit: f64,
}

/// Divides `capacity`: everybody gets min(limit, weight x level), with the level at which all is given away
/// or all limits are reached. This is the only allocation in which nobody's share per weight can grow without
/// taking from somebody whose share per weight is not larger.
///
/// Solved exactly by sorting: claims reach their limits in the order of limit / weight.
pub fn max_min(capacity: f64, claims: &[Claim]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    let level_of = |c: &Claim| c.limit / c.weight;
    order.sort_by(|a, b| level_of(&claims[*a]).total_cmp(&level_of(&claims[*b])));
    let mut left = capacity;
    let mut weights: f64 = claims.iter().map(|c| c.weight).sum();
    let mut shares = vec![0.0; claims.len()];
    for (done, &i) in order.iter().enumerate() {
        let claim = &claims[i];
        if claim.limit * weights > left * claim.weight {
            // From here on nobody reaches the limit.
            for &j in &order[done..] {
                shares[j] = left * claims[j].weight / weights;
            }
            break;
        }
        shares[i] = claim.limit;
        left -= claim.limit;
        weights -= claim.weight;
    }
    shares
}

/// One group of claims with a weight of its own (a VM and its threads).
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub weight: f64,
    pub members: Vec<Claim>,
}

/// Shares of all members where groups share first and members share what their group got. A group can use at
/// most the sum of its members' limits.
pub fn max_min_nested(capacity: f64, groups: &[Group]) -> Vec<Vec<f64>> {
    let outer: Vec<Claim> = groups
        .iter()
        .map(|g| Claim {
            weight: g.weight,
            limit: g.members.iter().map(|m| m.limit).sum(),
        })
        .collect();
    max_min(capacity, &outer)
        .into_iter()
        .zip(groups)
        .map(|(share, group)| max_min(share, &group.members))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(weight: f64, limit: f64) -> Claim {
        Claim { weight, limit }
    }

    #[test]
    fn w8_is_below_everybodys_demand() {
        let mut claims = vec![claim(1.0, 0.2); 64];
        claims.extend(vec![claim(1.0, 1.0); 16]);
        let shares = max_min(8.0, &claims);
        assert!(shares.iter().all(|s| (s - 0.1).abs() < 1e-12));
    }

    #[test]
    fn what_a_limited_claim_leaves_goes_to_the_others_by_weight() {
        let shares = max_min(2.0, &[claim(10.0, 1.0), claim(1.0, 1.0), claim(2.0, 1.0)]);
        for (got, want) in shares.iter().zip([1.0, 1.0 / 3.0, 2.0 / 3.0]) {
            assert!((got - want).abs() < 1e-12, "{shares:?}");
        }
    }

    #[test]
    fn enough_for_everybody() {
        assert_eq!(
            max_min(8.0, &[claim(1.0, 1.0), claim(9.0, 0.5)]),
            [1.0, 0.5]
        );
        assert_eq!(max_min(8.0, &[]), [0.0; 0]);
    }

    #[test]
    fn a_group_with_many_members_gets_no_more_than_its_weight() {
        let group = |weight, n| Group {
            weight,
            members: vec![claim(1.0, 1.0); n],
        };
        let shares = max_min_nested(4.0, &[group(100.0, 8), group(100.0, 2)]);
        assert!(shares[0].iter().all(|s| (s - 0.25).abs() < 1e-12));
        assert!(shares[1].iter().all(|s| (s - 1.0).abs() < 1e-12));
    }

    proptest! {
        /// The definition itself: all is given out, limits hold, and whoever is below the limit has the
        /// largest share per weight of all.
        #[test]
        fn is_max_min(
            capacity in 0.1f64..20.0,
            claims in proptest::collection::vec((0.1f64..50.0, 0.01f64..2.0), 1..30),
        ) {
            let claims: Vec<Claim> = claims.into_iter().map(|(w, l)| claim(w, l)).collect();
            let shares = max_min(capacity, &claims);
            let limits: f64 = claims.iter().map(|c| c.limit).sum();
            let given: f64 = shares.iter().sum();
            prop_assert!((given - capacity.min(limits)).abs() < 1e-9);
            let top = shares.iter().zip(&claims).map(|(s, c)| s / c.weight).fold(0.0, f64::max);
            for (share, c) in shares.iter().zip(&claims) {
                prop_assert!(*share <= c.limit + 1e-12);
                prop_assert!(*share > c.limit - 1e-9 || share / c.weight > top - 1e-9);
            }
        }
    }
}
