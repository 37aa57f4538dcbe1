// SPDX-License-Identifier: GPL-2.0-only
//! What is chosen before anything runs, and what of it is refused.
use alloc::string::String;
use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

/// A scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Three levels: Q1 (sub-queues) and Q2 by remaining time, a slice each; Q3 first come, first served.
    Mrsf,
    /// One queue, first come, first served, to completion.
    Fcfs,
    /// One queue; who is not done after a slice goes to its tail.
    Rr,
    /// Several queues to which tasks are tied; even ones are FCFS, odd ones RR. No balancing.
    Mqms,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 4] = [Policy::Mrsf, Policy::Fcfs, Policy::Rr, Policy::Mqms];

    /// Its name in boot options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Mrsf => "mrsf",
            Policy::Fcfs => "fcfs",
            Policy::Rr => "rr",
            Policy::Mqms => "mqms",
        }
    }
}

impl FromStr for Policy {
    type Err = Refused;

    fn from_str(name: &str) -> Result<Policy, Refused> {
        Policy::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| Refused::Policy(name.to_string()))
    }
}

/// Which CPU serves which queue of M-RSF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Every CPU serves all queues, the highest level first.
    Shared,
    /// Queue `q` belongs to CPU `q` modulo their number (Q1's sub-queues, then Q2, then Q3), as the paper has it; CPUs
    /// beyond the queues idle.
    PerQueue,
}

/// A scheduler before it is made. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The policy.
    pub policy: Policy,
    /// CPUs that will ask, 1 or more.
    pub cpus: usize,
    /// Slice of M-RSF's levels 1 and 2, of RR and of MQMS's odd queues, 1 or more; the paper's lambda, the mean service
    /// time.
    pub slice_ns: u64,
    /// Sub-queues of M-RSF's Q1, 1 or more; 3 in the paper.
    pub sub_queues: usize,
    /// Who serves M-RSF's queues.
    pub map: Map,
    /// Whether M-RSF's Q1 and Q2 are ordered by estimated remaining time; else in order of arrival.
    pub sorted: bool,
    /// Whether estimates are learned by class ([`crate::Learned`]) instead of taken from tasks.
    pub learned: bool,
    /// M-RSF: slice of Q3, after which a task goes to Q3's tail; `None` in the paper.
    pub q3_slice_ns: Option<u64>,
    /// M-RSF: who has waited longer in its queue is next, whatever its order; `None` in the paper.
    pub aging_ns: Option<u64>,
    /// M-RSF: Q2 begins only when all of Q1 is done, Q3 when Q2 is (a literal reading of the paper).
    pub barrier: bool,
    /// Queues of MQMS, 1 or more; 5 in the paper.
    pub mqms_queues: usize,
}

impl Config {
    /// `policy` on `cpus` CPUs as the paper has it, with slices of `slice_ns` and CPUs that share all queues.
    pub fn new(policy: Policy, cpus: usize, slice_ns: u64) -> Config {
        Config {
            policy,
            cpus,
            slice_ns,
            sub_queues: 3,
            map: Map::Shared,
            sorted: true,
            learned: false,
            q3_slice_ns: None,
            aging_ns: None,
            barrier: false,
            mqms_queues: 5,
        }
    }

    /// How many queues are dealt around among the CPUs, where those are fewer than the queues that have one each.
    pub fn dealt_around(&self) -> Option<usize> {
        let queues = match (self.policy, self.map) {
            (Policy::Mrsf, Map::PerQueue) => self.sub_queues + 2,
            (Policy::Mqms, _) => self.mqms_queues,
            _ => return None,
        };
        (queues > self.cpus).then_some(queues)
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// [`Refused`] says which value is wrong.
    pub fn check(&self) -> Result<(), Refused> {
        let positive = [
            ("CPUs", self.cpus as u64),
            ("the slice", self.slice_ns),
            ("sub-queues of Q1", self.sub_queues as u64),
            ("queues of mqms", self.mqms_queues as u64),
            ("the slice of Q3", self.q3_slice_ns.unwrap_or(1)),
            ("the wait before aging", self.aging_ns.unwrap_or(1)),
        ];
        match positive.into_iter().find(|(_, value)| *value == 0) {
            Some((what, _)) => Err(Refused::Zero(what)),
            None => Ok(()),
        }
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No policy has this name.
    Policy(String),
    /// This must be more than 0.
    Zero(&'static str),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Policy(name) => {
                write!(f, "no policy `{name}`; there are")?;
                Policy::ALL.iter().enumerate().try_for_each(|(i, policy)| {
                    write!(f, "{} {}", if i == 0 { "" } else { "," }, policy.name())
                })
            }
            Refused::Zero(what) => write!(f, "{what} must be more than 0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_policy_is_told_which_there_are() {
        let refused = "cfs".parse::<Policy>().unwrap_err();
        assert_eq!(
            refused.to_string(),
            "no policy `cfs`; there are mrsf, fcfs, rr, mqms"
        );
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
    }

    #[test]
    fn fewer_cpus_than_queues_are_noted() {
        let of = |policy, map, cpus| {
            let config = Config::new(policy, cpus, 10);
            Config { map, ..config }.dealt_around()
        };
        assert_eq!(of(Policy::Mrsf, Map::PerQueue, 4), Some(5));
        assert_eq!(of(Policy::Mrsf, Map::PerQueue, 5), None);
        assert_eq!(of(Policy::Mrsf, Map::Shared, 1), None);
        assert_eq!(of(Policy::Mqms, Map::Shared, 2), Some(5));
        assert_eq!(of(Policy::Rr, Map::PerQueue, 1), None);
    }

    #[test]
    fn nothing_is_zero() {
        let good = Config::new(Policy::Mrsf, 5, 10);
        assert_eq!(good.check(), Ok(()));
        for bad in [
            Config {
                cpus: 0,
                ..good.clone()
            },
            Config {
                slice_ns: 0,
                ..good.clone()
            },
            Config {
                sub_queues: 0,
                ..good.clone()
            },
            Config {
                mqms_queues: 0,
                ..good.clone()
            },
            Config {
                q3_slice_ns: Some(0),
                ..good.clone()
            },
            Config {
                aging_ns: Some(0),
                ..good.clone()
            },
        ] {
            assert!(matches!(bad.check(), Err(Refused::Zero(_))), "{bad:?}");
        }
    }
}
