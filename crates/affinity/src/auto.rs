// SPDX-License-Identifier: GPL-2.0-only
//! When `auto` has the whole path on one CPU, when on two, and when nowhere in particular.
//!
//! It begins with `full`. Where that CPU is asked for more than 85 % of three seconds, mostly by this VM and others
//! that are pinned there, and its threads wait for one another, the path goes to another core (`l2`); where that is
//! not enough, nothing is bound. When what they use would keep the CPUs of the stage before busy for less than 50 %,
//! for 30 s, it goes back there.
//!
//! What a CPU is asked for is the time that it is busy, and the time that this VM's threads wait for it. Without the
//! second a stream whose threads take turns, each waiting for the other while the CPU idles in between, would go
//! unseen (paper K, A6: 72 % busy, and a quarter less through).
//!
//! Where nothing is bound nobody knows who would share a CPU: of several VMs that are to be on one, each tries `l2`
//! again after 30 s of calm, for the 3 s until it is too busy there.
use crate::policy::Policy;
use serde::{Deserialize, Serialize};

/// A CPU that is asked for more of the time is too busy.
pub const BUSY: f64 = 0.85;
/// For so long, s.
pub const BUSY_FOR_S: f64 = 3.0;
/// What would be less busy than this is not.
pub const CALM: f64 = 0.50;
/// For so long, s.
pub const CALM_FOR_S: f64 = 30.0;
/// A VM is bound by its throughput where its threads, ready to run, wait for more than so many CPUs.
pub const WAITS: f64 = 0.10;
/// It is the pins' own doing where at least this part of what keeps the CPU busy is of VMs that are pinned there.
pub const OWN: f64 = 0.5;

/// What was seen of one VM since the last look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Of how long, s.
    pub span_s: f64,
    /// CPUs that each of its vCPUs used, by index.
    pub vcpus: Vec<f64>,
    /// CPUs that the rest of its path used.
    pub path: f64,
    /// CPUs that its threads waited for.
    pub waits: f64,
    /// What the CPU of its that was asked for most was asked for: how busy it was, and what this VM's threads there
    /// waited for it.
    pub asked: f64,
    /// How busy that one was, 0 to 1, whoever ran there.
    pub busy: f64,
    /// Of it, what threads of other VMs used that are pinned there.
    pub others: f64,
    /// CPUs on which its path is under `l2`.
    pub paths: usize,
}

impl Seen {
    /// CPUs that the busiest CPU would be asked for by this VM.
    fn load(&self, stage: Policy) -> f64 {
        let most = self.vcpus.iter().copied().fold(0.0, f64::max);
        match stage {
            Policy::Full if self.vcpus.len() <= 1 => most + self.path,
            Policy::Full => most.max(self.path),
            Policy::L2 => most.max(self.path / self.paths.max(1) as f64),
            Policy::None | Policy::Paper | Policy::Auto => 0.0,
        }
    }
}

/// Of one VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Auto {
    stage: Policy,
    busy_s: f64,
    calm_s: f64,
}

impl Default for Auto {
    fn default() -> Auto {
        Auto {
            stage: Policy::Full,
            busy_s: 0.0,
            calm_s: 0.0,
        }
    }
}

impl Auto {
    /// What it does now: `full`, `l2` or `none`.
    pub fn stage(&self) -> Policy {
        self.stage
    }

    /// What is done from now on; some reason: it is another than before.
    pub fn observe(&mut self, seen: &Seen) -> Option<String> {
        let span = match seen.span_s.is_finite() {
            true => seen.span_s.clamp(0.0, 10.0),
            false => 0.0,
        };
        let own = seen.load(self.stage) + seen.others;
        let too_busy = self.stage != Policy::None
            && seen.asked > BUSY
            && own >= OWN * seen.busy
            // Else it would go back before long.
            && own > CALM
            && seen.waits > WAITS;
        self.busy_s = if too_busy { self.busy_s + span } else { 0.0 };
        let before = match self.stage {
            Policy::None => Policy::L2,
            _ => Policy::Full,
        };
        let back = seen.load(before) + seen.others;
        let calm = self.stage != Policy::Full && back < CALM;
        self.calm_s = if calm { self.calm_s + span } else { 0.0 };
        let (next, why) = if self.busy_s >= BUSY_FOR_S {
            let next = match self.stage {
                Policy::Full => Policy::L2,
                _ => Policy::None,
            };
            let why = format!(
                "its busiest CPU was {:.0} % busy for {BUSY_FOR_S:.0} s, and its threads waited for {:.2} CPUs",
                seen.busy * 100.0,
                seen.waits
            );
            (next, why)
        } else if self.calm_s >= CALM_FOR_S {
            let why = format!(
                "it would have kept a CPU {:.0} % busy for {CALM_FOR_S:.0} s",
                back * 100.0
            );
            (before, why)
        } else {
            return None;
        };
        *self = Auto {
            stage: next,
            busy_s: 0.0,
            calm_s: 0.0,
        };
        Some(format!("{next}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(vcpu: f64, path: f64, waits: f64, busy: f64) -> Seen {
        Seen {
            span_s: 1.0,
            vcpus: vec![vcpu],
            path,
            waits,
            asked: busy + waits,
            busy,
            others: 0.0,
            paths: 1,
        }
    }

    /// Seconds until it is at this stage.
    fn until(auto: &mut Auto, stage: Policy, seen: &Seen) -> Option<u32> {
        (1..=100).find(|_| {
            auto.observe(seen);
            auto.stage() == stage
        })
    }

    #[test]
    fn falls_back_by_load_and_comes_back() {
        let mut auto = Auto::default();
        assert_eq!(auto.stage(), Policy::Full);
        let hard = seen(0.6, 0.39, 0.4, 0.99);
        assert_eq!(until(&mut auto, Policy::L2, &hard), Some(3));
        // Two CPUs, each with one part: neither is too busy. Together they would not fit again.
        assert_eq!(
            until(&mut auto, Policy::Full, &seen(0.6, 0.4, 0.0, 0.6)),
            None
        );
        // More than one can do.
        let harder = seen(0.99, 0.9, 0.3, 0.99);
        assert_eq!(until(&mut auto, Policy::None, &harder), Some(3));
        let calm = seen(0.2, 0.2, 0.0, 0.4);
        assert_eq!(until(&mut auto, Policy::L2, &calm), Some(30));
        assert_eq!(until(&mut auto, Policy::Full, &calm), Some(30));
        assert_eq!(until(&mut auto, Policy::None, &calm), None);
    }

    #[test]
    fn one_calm_or_busy_second_too_few_is_none() {
        let mut auto = Auto::default();
        let (hard, calm) = (seen(0.7, 0.29, 0.4, 0.99), seen(0.1, 0.1, 0.0, 0.2));
        for _ in 0..50 {
            for _ in 0..2 {
                assert_eq!(auto.observe(&hard), None);
            }
            assert_eq!(auto.observe(&calm), None);
        }
        until(&mut auto, Policy::L2, &hard).unwrap();
        for _ in 0..5 {
            for _ in 0..29 {
                assert_eq!(auto.observe(&calm), None);
            }
            assert_eq!(auto.observe(&seen(0.5, 0.3, 0.0, 0.5)), None);
        }
        assert_eq!(auto.stage(), Policy::L2);
    }

    #[test]
    fn who_computes_alone_or_beside_a_busy_neighbour_stays() {
        // Busy, but nothing of it waits: there is nothing to gain on another CPU.
        let mut auto = Auto::default();
        assert_eq!(
            until(&mut auto, Policy::L2, &seen(0.98, 0.0, 0.01, 0.99)),
            None
        );
        // The neighbour's doing.
        assert_eq!(
            until(&mut auto, Policy::L2, &seen(0.2, 0.1, 0.6, 0.99)),
            None
        );
        // Of others that are pinned there, too: both are to make room.
        let beside = Seen {
            others: 0.48,
            ..seen(0.25, 0.23, 0.8, 0.97)
        };
        assert_eq!(until(&mut Auto::default(), Policy::L2, &beside), Some(3));
        // Several, that wait a little each for CPUs of their own: none of these is asked for too much.
        let spread = Seen {
            vcpus: vec![0.55, 0.5, 0.5, 0.5],
            asked: 0.64,
            ..seen(0.0, 0.1, 0.36, 0.55)
        };
        assert_eq!(until(&mut Auto::default(), Policy::L2, &spread), None);
        // Several vCPUs: each has a CPU, all of the path is on one.
        let several = Seen {
            vcpus: vec![0.3, 0.4],
            path: 0.97,
            ..seen(0.0, 0.0, 0.5, 0.98)
        };
        assert!(until(&mut auto, Policy::L2, &several).is_some());
        let why = Auto::default();
        assert_eq!(why.stage(), Policy::Full);
    }

    /// Threads that take turns: the CPU idles in between, and each waits for the other all the same.
    #[test]
    fn what_waits_counts_with_what_runs() {
        let turns = |waits| seen(0.4, 0.32, waits, 0.72);
        assert_eq!(
            until(&mut Auto::default(), Policy::L2, &turns(0.2)),
            Some(3)
        );
        assert_eq!(until(&mut Auto::default(), Policy::L2, &turns(0.12)), None);
        // It would be calm on one CPU: it stays there, however it waits.
        let calm = seen(0.25, 0.2, 0.9, 0.45);
        assert_eq!(until(&mut Auto::default(), Policy::L2, &calm), None);
    }

    #[test]
    fn nonsense_is_survived() {
        let mut auto = Auto::default();
        for x in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            let odd = Seen {
                span_s: x,
                vcpus: vec![x; 3],
                path: x,
                waits: x,
                asked: x,
                busy: x,
                others: x,
                paths: 0,
            };
            for _ in 0..100 {
                auto.observe(&odd);
            }
        }
        assert!(matches!(
            auto.stage(),
            Policy::Full | Policy::L2 | Policy::None
        ));
    }
}
