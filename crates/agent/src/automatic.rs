// SPDX-License-Identifier: GPL-2.0-only
//! The class of VMs of which the operator says nothing: by what they do ([`berth_host::class`]), with its hysteresis
//! and its evidence. A VM counts as batch until it has been watched for [`SETTLED_S`]: no privilege by a first
//! impression.
use crate::register::VmKey;
use berth_host::class::{Rules, SETTLED_S, Verdict};
use berth_host::classes::Classes;
use berth_host::counters::{Rates, Sampler};
use berth_host::discover::Scanner;
use berth_host::model::{Snapshot, Vm};
use berth_host::pace::cpu_time;
use berth_host::root::Root;
use berth_identity::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

/// Between two samples.
const OFTEN: Duration = Duration::from_secs(1);
/// Reading counters takes at most this part of one CPU: samples come less often on hosts with very many threads. What
/// this thread itself waits for a CPU does not count, else they would be rare where many want one.
const COST: f64 = 0.01;
/// The same while nothing acts by the classes.
const COST_WATCHING: f64 = 0.004;

/// What a VM seems to be for.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    pub class: Class,
    /// Of a mixed VM, the vCPUs with the short bursts.
    pub io_vcpus: BTreeSet<u32>,
    /// The evidence, for a reader.
    pub why: String,
}

/// Watches all VMs.
#[derive(Debug)]
pub struct Automatic {
    classes: Classes,
    sampler: Sampler,
    cost: f64,
    next: Option<Instant>,
    sampled: Option<Instant>,
    guesses: BTreeMap<VmKey, Guess>,
    sides: BTreeMap<(VmKey, u32), Side>,
}

/// Whether a vCPU serves requests: what is said, and since when it has looked different.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Side {
    io: bool,
    differs: Option<Instant>,
}

impl Automatic {
    pub fn new(root: Root) -> Automatic {
        Automatic {
            classes: Classes::new(root.clone(), Rules::default()),
            sampler: Sampler::new(root),
            cost: COST,
            next: None,
            sampled: None,
            guesses: BTreeMap::new(),
            sides: BTreeMap::new(),
        }
    }

    /// Whether something acts by the classes: else they are looked at less often.
    pub fn set_acting(&mut self, acting: bool) {
        let cost = if acting { COST } else { COST_WATCHING };
        if cost > self.cost {
            // Not sooner: of a moment nothing can be said.
            self.next = self.sampled.map(|at| at + OFTEN);
        }
        self.cost = cost;
    }

    /// Takes a sample, if it is time to.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn feed(&mut self, vms: &Snapshot, scanner: &Scanner) -> io::Result<()> {
        let now = Instant::now();
        if self.next.is_some_and(|at| now < at) {
            return Ok(());
        }
        let before = cpu_time();
        self.sampler.refresh(vms, None)?;
        let halts = |pid| scanner.kvm_counter(pid, "halt_exits");
        self.classes.feed(vms, &self.sampler, &halts, None)?;
        self.judge(vms, now);
        let spent = cpu_time().saturating_sub(before);
        self.next = Some(now + OFTEN.max(spent.div_f64(self.cost)));
        self.sampled = Some(now);
        Ok(())
    }

    /// When counters were read last.
    pub fn sampled(&self) -> Option<Instant> {
        self.sampled
    }

    /// What all threads of a VM did between the last two readings.
    pub fn rates(&self, vm: &Vm) -> Option<Rates> {
        self.sampler.vm(vm, None)
    }

    /// True if this kernel seems to count no time in run queues.
    pub fn is_blind(&self) -> bool {
        self.sampler.zeros_seen()
    }

    /// By VM; none for those that have not been watched for long enough.
    pub fn guesses(&self) -> &BTreeMap<VmKey, Guess> {
        &self.guesses
    }

    fn judge(&mut self, vms: &Snapshot, now: Instant) {
        let mut guesses = BTreeMap::new();
        let mut sides = BTreeMap::new();
        for vm in &vms.vms {
            let settled = |v: &Verdict| v.evidence.watched_s >= SETTLED_S;
            let Some(verdict) = self.classes.verdict(vm).filter(settled) else {
                continue;
            };
            let io_vcpus = match verdict.class {
                Class::Mixed => self.io_vcpus(vm, now, &mut sides),
                _ => BTreeSet::new(),
            };
            let guess = Guess {
                class: verdict.class,
                io_vcpus,
                why: words(&verdict),
            };
            guesses.insert(key(vm), guess);
        }
        self.guesses = guesses;
        self.sides = sides;
    }

    /// vCPUs that wake often for short bursts; one that looks different now changes sides when it has done so for
    /// the classifier's patience.
    fn io_vcpus(
        &self,
        vm: &Vm,
        now: Instant,
        sides: &mut BTreeMap<(VmKey, u32), Side>,
    ) -> BTreeSet<u32> {
        let rules = self.classes.rules();
        let Some(classifier) = self.classes.classifier(vm) else {
            return BTreeSet::new();
        };
        let patience = Duration::from_secs_f64(rules.patience_s);
        let mut all = BTreeSet::new();
        for (index, vcpu) in classifier.vcpus() {
            let looks = !vcpu.is_long() && vcpu.wakeups_per_s() >= rules.housekeeping_per_s;
            let known = self.sides.get(&(key(vm), *index)).copied();
            let side = turn(known, looks, now, patience);
            if side.io {
                all.insert(*index);
            }
            sides.insert((key(vm), *index), side);
        }
        all
    }
}

fn turn(known: Option<Side>, looks: bool, now: Instant, patience: Duration) -> Side {
    let fresh = Side {
        io: looks,
        differs: None,
    };
    match known {
        Some(side) if side.io != looks => match side.differs {
            Some(since) if now - since >= patience => fresh,
            Some(_) => side,
            None => Side {
                differs: Some(now),
                ..side
            },
        },
        _ => fresh,
    }
}

fn key(vm: &Vm) -> VmKey {
    VmKey {
        pid: vm.pid,
        start: vm.start,
    }
}

/// `412 wake-ups/s, bursts of 0.05 ms, 0.02 CPUs (0.00 in long bursts), so for 35 s`
fn words(verdict: &Verdict) -> String {
    let e = &verdict.evidence;
    let bursts = e.burst_ns.map_or("no wake-ups".to_string(), |ns| {
        format!("bursts of {:.2} ms", ns / 1e6)
    });
    let waited = match e.long_wanted_cpus - e.long_cpus {
        little if little < 0.01 => String::new(),
        waited => format!(", {waited:.2} more waited for"),
    };
    let mut text = format!(
        "{:.0} wake-ups/s, {bursts}, {:.2} CPUs ({:.2} in long bursts{waited}), so for {:.0} s",
        e.wakeups_per_s, e.cpus, e.long_cpus, verdict.since_s
    );
    if let Some(looks) = verdict.looks {
        text += &format!("; looks like {looks} now");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::class::Evidence;

    #[test]
    fn a_vcpu_changes_sides_when_it_has_looked_different_for_a_while() {
        let start = Instant::now();
        let patience = Duration::from_secs(10);
        let at = |s: u64| start + Duration::from_secs(s);
        let mut side = turn(None, true, start, patience);
        assert!(side.io);
        for s in 1..5 {
            side = turn(Some(side), false, at(s), patience);
            assert!(side.io, "not yet");
        }
        side = turn(Some(side), true, at(5), patience);
        assert_eq!(side.differs, None, "it looked the same in between");
        for s in 6..=16 {
            assert!(side.io);
            side = turn(Some(side), false, at(s), patience);
        }
        assert!(!side.io);
    }

    #[test]
    fn the_evidence_is_said() {
        let verdict = Verdict {
            class: Class::Latency,
            since_s: 35.0,
            looks: Some(Class::Mixed),
            flips: 0,
            evidence: Evidence {
                watched_s: 40.0,
                cpus: 0.02,
                wakeups_per_s: 412.0,
                burst_ns: Some(50_000.0),
                ..Evidence::default()
            },
        };
        assert_eq!(
            words(&verdict),
            "412 wake-ups/s, bursts of 0.05 ms, 0.02 CPUs (0.00 in long bursts), so for 35 s; looks like mixed now"
        );
    }
}
