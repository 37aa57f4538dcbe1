// SPDX-License-Identifier: GPL-2.0-only
//! Weighted threads whose demands are drawn anew in every epoch, and the mean of their weighted max-min shares.
//!
//! Time is cut into epochs of equal length. At the start of each, every thread draws how much CPU time it wants
//! in it, independently of everything else; what it has not got at the end is forgotten. A machine that shares
//! by weight at every moment gives thread i in an epoch the weighted max-min share of that epoch's demands (see
//! [`System::expected_share`] for when that is exact), so that epochs are independent and the mean over them is
//! known without any simulation: a sum over all combinations of demands.
use super::share::{Claim, max_min};
use crate::machine::task::nice_to_weight;
use crate::words::{Nanos, TaskId, TaskSpec, Who};
use crate::workload::api::{Action, Ctx, Workload};
use berth_scenario::dist::{Rng, Stream};
use std::collections::BTreeMap;

/// More than anybody can get in an epoch.
const ALL: f64 = 2.0;
/// Threads look this often whether the epoch has ended, in CPU time of theirs.
const CHUNK_NS: Nanos = 100_000;

/// A thread: its nice value, and what it wants in an epoch: fraction of one CPU, and how likely.
#[derive(Clone, Debug)]
pub struct Member {
    pub nice: i32,
    pub wants: Vec<(f64, f64)>,
}

/// Threads that share a machine.
#[derive(Clone, Debug)]
pub struct System {
    pub cpus: u32,
    pub members: Vec<Member>,
}

fn member(nice: i32, wants: &[(f64, f64)]) -> Member {
    let wants = wants.to_vec();
    Member { nice, wants }
}

impl System {
    /// Five threads on one CPU, with finite demands.
    pub fn limits() -> System {
        let wants = [(0.0, 0.3), (0.1, 0.2), (0.35, 0.2), (ALL, 0.3)];
        System {
            cpus: 1,
            members: [0, -5, 5, 3, -3].map(|nice| member(nice, &wants)).into(),
        }
    }

    /// Eight threads on three CPUs that want all or nothing; nobody can use more than one CPU.
    pub fn switches() -> System {
        let likely = [0.5, 0.8, 0.6, 0.5, 0.7, 0.4, 0.8, 0.5];
        let nice = [0, 0, -5, 5, 3, -3, 10, -10];
        let members = nice.iter().zip(likely);
        System {
            cpus: 3,
            members: members
                .map(|(nice, p)| member(*nice, &[(0.0, 1.0 - p), (ALL, p)]))
                .collect(),
        }
    }

    /// Mean share of the first thread, in CPUs.
    ///
    /// Exact in two cases. One CPU: everybody's service grows in proportion to the weights until the demand is
    /// met, so at the end all who are not done have the same share per weight, and no share is above it: that is
    /// max-min. Several CPUs and demands of nothing or all: nothing changes during an epoch.
    pub fn expected_share(&self) -> f64 {
        let mut claims: Vec<Claim> = self
            .members
            .iter()
            .map(|m| Claim {
                weight: f64::from(nice_to_weight(m.nice)),
                limit: 0.0,
            })
            .collect();
        self.expect(0, 1.0, &mut claims)
    }

    fn expect(&self, i: usize, probability: f64, claims: &mut [Claim]) -> f64 {
        let Some(member) = self.members.get(i) else {
            return probability * max_min(f64::from(self.cpus), claims)[0];
        };
        let mut sum = 0.0;
        for (want, p) in &member.wants {
            claims[i].limit = want.min(1.0);
            sum += self.expect(i + 1, probability * p, claims);
        }
        sum
    }
}

/// A system at work.
#[derive(Debug)]
pub struct Epochs {
    system: System,
    epoch_ns: Nanos,
    rngs: Vec<Rng>,
    tasks: Vec<TaskId>,
    /// What each thread still wants in this epoch, ns.
    left: Vec<Nanos>,
    sleeps: Vec<bool>,
    /// Epochs begun.
    begun: u64,
    /// CPU time of the first thread at the start of this epoch.
    ran: Nanos,
    shares: Vec<f64>,
}

impl Epochs {
    pub fn new(system: System, epoch_ns: Nanos, seed: u64) -> Epochs {
        let n = system.members.len();
        let rng = |i| Rng::new(seed, Stream::Thread(i));
        Epochs {
            epoch_ns,
            rngs: (0..n as u32).map(rng).collect(),
            tasks: vec![TaskId::MAX; n],
            left: vec![0; n],
            sleeps: vec![false; n],
            begun: 0,
            ran: 0,
            shares: Vec::new(),
            system,
        }
    }

    /// Share of the first thread in each epoch that has ended, in CPUs.
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    fn draw(&mut self, i: usize) -> Nanos {
        let mut x = self.rngs[i].unit();
        let wants = &self.system.members[i].wants;
        for (want, p) in wants {
            if x < *p {
                return (want * self.epoch_ns as f64) as Nanos;
            }
            x -= p;
        }
        0
    }
}

impl Workload for Epochs {
    fn start(&mut self, ctx: &mut Ctx) {
        for (token, member) in (0..).zip(&self.system.members) {
            ctx.spawn(&TaskSpec {
                token,
                name: "member".into(),
                nice: member.nice,
                ..TaskSpec::default()
            });
        }
        ctx.at(self.epoch_ns, 0);
    }

    fn born(&mut self, token: u32, task: TaskId) {
        self.tasks[token as usize] = task;
    }

    fn died(&mut self, _token: u32, _task: TaskId) {}

    fn next(&mut self, who: Who, _now: Nanos, _ctx: &mut Ctx) -> Action {
        let i = who.token as usize;
        let ns = self.left[i].min(CHUNK_NS);
        self.left[i] -= ns;
        self.sleeps[i] = ns == 0;
        if ns == 0 {
            Action::Block
        } else {
            Action::Compute { ns }
        }
    }

    fn event(&mut self, _token: u64, now: Nanos, ctx: &mut Ctx) {
        let ran = ctx.ran(self.tasks[0]);
        if self.begun > 0 {
            let share = (ran - self.ran) as f64 / self.epoch_ns as f64;
            self.shares.push(share);
        }
        self.ran = ran;
        self.begun += 1;
        for i in 0..self.tasks.len() {
            self.left[i] = self.draw(i);
            if self.left[i] > 0 && self.sleeps[i] {
                ctx.wake(self.tasks[i]);
            }
        }
        ctx.at(now + self.epoch_ns, 0);
    }

    fn measure_from(&mut self, _now: Nanos) {}

    fn metrics(&self, _now: Nanos, _out: &mut BTreeMap<String, f64>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads of equal weight that want a CPU or nothing, half of the time each: alone a quarter of the
    /// time, and together another.
    #[test]
    fn the_mean_of_two_switches() {
        let wants = [(0.0, 0.5), (ALL, 0.5)];
        let members = vec![member(0, &wants), member(0, &wants)];
        let share = |cpus| {
            let members = members.clone();
            System { cpus, members }.expected_share()
        };
        assert!((share(1) - 0.375).abs() < 1e-12);
        assert!((share(2) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn probabilities_add_up() {
        for system in [System::limits(), System::switches()] {
            for m in &system.members {
                let sum: f64 = m.wants.iter().map(|(_, p)| p).sum();
                assert!((sum - 1.0).abs() < 1e-12);
            }
        }
    }
}
