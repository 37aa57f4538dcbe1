// SPDX-License-Identifier: GPL-2.0-only
//! One vCPU: how long its bursts are.
use super::{Mean, Rules, VcpuSample};

/// What is known of a vCPU, smoothed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Vcpu {
    cpus: Mean,
    waiting: Mean,
    wakeups: Mean,
    /// CPUs used in bursts shorter than [`Rules::tail_ns`], where a histogram tells.
    below_tail: Option<Mean>,
    /// `None` as long as it hardly ran.
    long: Option<bool>,
}

/// A vCPU that wants less, in CPUs, says nothing of its bursts.
const RESTING: f64 = 0.002;

impl Vcpu {
    pub(super) fn feed(&mut self, s: &VcpuSample, seconds: f64, rules: &Rules) {
        let memory = rules.memory_s;
        self.cpus
            .add(s.run_ns as f64 / 1e9 / seconds, seconds, memory);
        self.waiting
            .add(s.wait_ns as f64 / 1e9 / seconds, seconds, memory);
        self.wakeups
            .add(s.wakeups as f64 / seconds, seconds, memory);
        match s.bursts {
            Some(bursts) => {
                let short = bursts.shorter_than(rules.tail_ns) as f64 / 1e9 / seconds;
                self.below_tail
                    .get_or_insert_default()
                    .add(short, seconds, memory);
            }
            None => self.below_tail = None,
        }
        if self.wanted() < RESTING {
            return;
        }
        let burst = self.burst_ns().unwrap_or(f64::INFINITY);
        let line = match self.long {
            None => rules.long_ns,
            Some(true) => rules.long_ns / rules.margin,
            Some(false) => rules.long_ns * rules.margin,
        };
        self.long = Some(burst >= line);
    }

    /// CPUs used.
    pub fn cpus(&self) -> f64 {
        self.cpus.get()
    }

    /// CPUs waited for.
    pub fn waiting(&self) -> f64 {
        self.waiting.get()
    }

    /// CPUs used and waited for: what it would use if nobody else wanted any and there was no cap, at most.
    pub fn wanted(&self) -> f64 {
        self.cpus() + self.waiting()
    }

    pub fn wakeups_per_s(&self) -> f64 {
        self.wakeups.get()
    }

    /// Mean time it runs between two wake-ups, in nanoseconds; `None` if it never woke.
    pub fn burst_ns(&self) -> Option<f64> {
        let wakeups = self.wakeups_per_s();
        (wakeups > 0.0).then(|| self.cpus() / wakeups * 1e9)
    }

    /// CPUs used in single long bursts; 0 if there is no histogram.
    pub fn tail_cpus(&self) -> f64 {
        self.below_tail
            .map_or(0.0, |short| (self.cpus() - short.get()).max(0.0))
    }

    /// CPUs wanted in long bursts: all of it where they are long on average, else in the proportion of what it got.
    pub fn long_wanted(&self) -> f64 {
        match self.is_long() {
            true => self.wanted(),
            false if self.cpus() > 0.0 => self.tail_cpus() / self.cpus() * self.wanted(),
            false => 0.0,
        }
    }

    /// Its bursts are long on average.
    pub fn is_long(&self) -> bool {
        self.long == Some(true)
    }
}
