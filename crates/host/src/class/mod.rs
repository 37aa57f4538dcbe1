// SPDX-License-Identifier: GPL-2.0-only
//! What a VM is for, by what it does: latency, batch, or both. A state machine fed with samples; it reads nothing
//! itself.
//!
//! Seen from the host, latency work is many short bursts that somebody waits for, batch work is CPU time in long
//! bursts. A burst is what a vCPU runs between two wake-ups; waiting in a run queue does not change its length. Per
//! vCPU ([`vcpu`]) a mean burst says short or long; per VM, CPU time of long vCPUs says that there is batch work, and
//! wake-ups of short vCPUs beyond a guest's housekeeping that there is latency work. Whoever has a cap, or a host with
//! more work than CPUs, uses little of a CPU whatever he does: how much batch work there is is told by what was used
//! and waited for, and what part of the VM's work it is by the CPU time that it got. Two kinds of latency work do not
//! show as wake-ups, and are added where their evidence can be read: packets for a vCPU that never sleeps (its vhost
//! threads wake all the same), and halts that KVM's halt polling ends before the thread has slept (`halt_exits` of
//! debugfs).
//!
//! A mean hides two kinds of bursts on one vCPU. Where BPF is allowed there is a histogram of them ([`Bursts`]), and
//! CPU time in the longest counts as batch work whatever the mean is.
//!
//! What cannot be told apart: latency work on a vCPU that never sleeps and whose interrupts come past the host (a
//! passed-through device), and a server so busy that its requests queue up: it does not sleep between them, and from
//! outside is a hog.
pub mod vcpu;

pub use berth_identity::Class;
use serde::Serialize;
use std::collections::BTreeMap;
use vcpu::Vcpu;

/// Where the lines are. The defaults are the best of a grid over generated loads (`tests/classes.rs`), none of which a
/// test of the result uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// A mean burst from here on is long, in nanoseconds.
    pub long_ns: f64,
    /// How far beyond [`Rules::long_ns`] a mean must be to change what was said of a vCPU, as a factor.
    pub margin: f64,
    /// The same for the lines of a VM: rates and CPU time change more than the length of bursts does.
    pub vm_margin: f64,
    /// A single burst from here on is batch work even where the mean is short, in nanoseconds.
    pub tail_ns: f64,
    /// Wake-ups per second of a vCPU that are its guest's housekeeping: timers, workers of its kernel.
    pub housekeeping_per_s: f64,
    /// Wake-ups per second beyond housekeeping from which on there is latency work.
    pub latency_per_s: f64,
    /// CPUs used and waited for in long bursts from which on there is batch work.
    pub batch_cpus: f64,
    /// CPU time in long bursts from which on there is batch work, as a part of all that the vCPUs got.
    pub batch_part: f64,
    /// Time constant of the smoothing, in seconds.
    pub memory_s: f64,
    /// Time for which a VM must have been a clear case of more batch work, or less latency work, than was known, in
    /// seconds.
    pub patience_s: f64,
    /// The same for what gives a privilege, or is not clear; the first time.
    pub caution_s: f64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            long_ns: 5e6,
            margin: 1.4,
            vm_margin: 2.0,
            tail_ns: 32e6,
            housekeeping_per_s: 20.0,
            latency_per_s: 20.0,
            batch_cpus: 0.2,
            batch_part: 0.3,
            memory_s: 8.0,
            patience_s: 10.0,
            caution_s: 600.0,
        }
    }
}

/// What one vCPU did during a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VcpuSample {
    pub index: u32,
    /// CPU time, in nanoseconds.
    pub run_ns: u64,
    /// Time in run queues, in nanoseconds.
    pub wait_ns: u64,
    /// Wake-ups: voluntary context switches.
    pub wakeups: u64,
    /// Bursts that ended; `None` if BPF did not see them.
    pub bursts: Option<Bursts>,
}

/// Octaves of [`Bursts`].
pub const OCTAVES: usize = 24;

/// CPU time by the length of the burst it was part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bursts {
    /// CPU time in bursts of `2^i` to `2^(i+1)` microseconds, in nanoseconds; all shorter ones in the first, all longer
    /// ones in the last.
    pub ns: [u64; OCTAVES],
}

impl Bursts {
    /// The octave of a burst.
    pub fn octave(burst_ns: u64) -> usize {
        let us = (burst_ns / 1000).max(1);
        (us.ilog2() as usize).min(OCTAVES - 1)
    }

    /// Adds a burst that has ended.
    pub fn add(&mut self, burst_ns: u64) {
        let at = &mut self.ns[Bursts::octave(burst_ns)];
        *at = at.saturating_add(burst_ns);
    }

    /// CPU time in bursts shorter than this, whole octaves, in nanoseconds.
    pub fn shorter_than(&self, ns: f64) -> u64 {
        let below = |i: &usize| (1u64 << (i + 1)) as f64 * 1000.0 <= ns * 1.05;
        (0..OCTAVES)
            .filter(below)
            .fold(0, |sum, i| self.ns[i].saturating_add(sum))
    }
}

/// What a VM did for some time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmSample {
    /// How long, in seconds.
    pub seconds: f64,
    pub vcpus: Vec<VcpuSample>,
    /// Wake-ups of its vhost threads; `None` if it has none.
    pub packets: Option<u64>,
    /// Times a guest halted (`halt_exits`), whether or not the thread slept; `None` if unknown.
    pub halts: Option<u64>,
}

/// The numbers a class rests on: means over the last [`Rules::memory_s`] or so.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// For how long it was watched, in seconds.
    pub watched_s: f64,
    /// CPUs used by vCPUs.
    pub cpus: f64,
    /// Of these, in long bursts.
    pub long_cpus: f64,
    /// CPUs that vCPUs used and waited for: throttled by a cap is waiting, too.
    pub wanted_cpus: f64,
    /// Of these, in long bursts.
    pub long_wanted_cpus: f64,
    /// Mean burst of all vCPUs together, in nanoseconds; `None` if nothing woke or ran.
    pub burst_ns: Option<f64>,
    /// Wake-ups of vCPUs per second.
    pub wakeups_per_s: f64,
    /// Wake-ups of vCPUs with short bursts, beyond housekeeping, per second.
    pub latency_per_s: f64,
    /// Packets per second that woke nobody, because the vCPU was running: half the wake-ups of vhost (a packet and its
    /// answer are one each) beyond those of the vCPUs.
    pub unseen_per_s: f64,
    /// Halts per second that polling ended.
    pub polled_per_s: f64,
    /// vCPUs with long bursts, and with short ones.
    pub long_vcpus: u32,
    pub short_vcpus: u32,
}

/// What is thought of a VM.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub class: Class,
    /// For how long it has been so, in seconds.
    pub since_s: f64,
    /// What it looks like now, if that is another class: not for long enough yet.
    pub looks: Option<Class>,
    /// Changes of class so far.
    pub flips: u32,
    pub evidence: Evidence,
}

/// Watches one VM.
#[derive(Clone, Debug)]
pub struct Classifier {
    rules: Rules,
    vcpus: BTreeMap<u32, Vcpu>,
    packets: Mean,
    halts: Mean,
    clock_s: f64,
    class: Option<(Class, f64)>,
    /// Another class, and since when.
    looks: Option<(Class, f64)>,
    /// Which side of the lines for batch and latency work it was on.
    has_batch: bool,
    has_latency: bool,
    /// When it changed without a clear case, for the patience to grow.
    flipped_s: Vec<f64>,
    flips: u32,
    evidence: Evidence,
}

/// A mean over the recent past, also right while there is little of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// `value` held for `seconds`; older ones fade with the time constant `memory_s`.
    pub fn add(&mut self, value: f64, seconds: f64, memory_s: f64) {
        let fade = (-seconds / memory_s).exp();
        self.sum = self.sum * fade + value * (1.0 - fade);
        self.weight = self.weight * fade + (1.0 - fade);
    }

    /// 0 as long as nothing was added.
    pub fn get(&self) -> f64 {
        if self.weight > 0.0 {
            self.sum / self.weight
        } else {
            0.0
        }
    }
}

/// Changes of class are remembered for so long, in seconds.
const REMEMBERED_S: f64 = 86_400.0;
/// The most patience, in seconds.
const PATIENT_S: f64 = 14_400.0;
/// Each remembered change without a clear case makes it so much more patient with the next.
const GROWING: f64 = 6.0;
/// Nothing is said before this, in seconds.
const FIRST_S: f64 = 1.5;
/// A vCPU that wants so much of a CPU always wants to run.
const HOG: f64 = 0.8;
/// Most of the CPU time.
const MOST: f64 = 0.7;
/// Until this time what is said follows what is seen, in seconds.
pub const SETTLED_S: f64 = 20.0;
/// A VM that wants less than this, in CPUs, shows nothing: what was said of it stays.
const RESTING: f64 = 0.01;

impl Classifier {
    pub fn new(rules: Rules) -> Classifier {
        Classifier {
            rules,
            vcpus: BTreeMap::new(),
            packets: Mean::default(),
            halts: Mean::default(),
            clock_s: 0.0,
            class: None,
            looks: None,
            has_batch: false,
            has_latency: false,
            flipped_s: Vec::new(),
            flips: 0,
            evidence: Evidence::default(),
        }
    }

    /// Takes a sample; gives the new class if it changed, and the first one. Samples without time are ignored.
    pub fn feed(&mut self, sample: &VmSample) -> Option<Class> {
        if !(sample.seconds > 0.0 && sample.seconds.is_finite()) {
            return None;
        }
        self.clock_s += sample.seconds;
        let rules = self.rules;
        let there = |index: &u32| sample.vcpus.iter().any(|v| v.index == *index);
        self.vcpus.retain(|index, _| there(index));
        for v in &sample.vcpus {
            self.vcpus
                .entry(v.index)
                .or_default()
                .feed(v, sample.seconds, &rules);
        }
        let rate = |n: Option<u64>| n.unwrap_or(0) as f64 / sample.seconds;
        self.packets
            .add(rate(sample.packets), sample.seconds, rules.memory_s);
        self.halts
            .add(rate(sample.halts), sample.seconds, rules.memory_s);
        self.evidence = self.weigh();
        let now = self.look()?;
        self.decide(now)
    }

    /// What is thought now; `None` until there are samples enough.
    pub fn verdict(&self) -> Option<Verdict> {
        let (class, since) = self.class?;
        Some(Verdict {
            class,
            since_s: self.clock_s - since,
            looks: self.looks.map(|l| l.0),
            flips: self.flips,
            evidence: self.evidence.clone(),
        })
    }

    /// Each vCPU's own numbers.
    pub fn vcpus(&self) -> &BTreeMap<u32, Vcpu> {
        &self.vcpus
    }

    fn weigh(&self) -> Evidence {
        let rules = &self.rules;
        let mut e = Evidence {
            watched_s: self.clock_s,
            ..Evidence::default()
        };
        let (mut long_wakeups, mut short_all) = (0.0, 0.0);
        for v in self.vcpus.values() {
            e.cpus += v.cpus();
            e.wanted_cpus += v.wanted();
            e.long_wanted_cpus += v.long_wanted();
            e.wakeups_per_s += v.wakeups_per_s();
            if v.is_long() {
                e.long_cpus += v.cpus();
                long_wakeups += v.wakeups_per_s();
                e.long_vcpus += 1;
            } else {
                e.long_cpus += v.tail_cpus();
                e.latency_per_s += (v.wakeups_per_s() - rules.housekeeping_per_s).max(0.0);
                short_all += v.wakeups_per_s();
                e.short_vcpus += 1;
            }
        }
        e.burst_ns = (e.wakeups_per_s > 0.0).then(|| e.cpus / e.wakeups_per_s * 1e9);
        e.polled_per_s = (self.halts.get() - e.wakeups_per_s).max(0.0);
        // Halts that polling ended cut what looks like long bursts; those of vCPUs that also sleep are their own.
        let cut = (e.polled_per_s - short_all).max(0.0);
        let bursts = long_wakeups + cut;
        if e.long_cpus > 0.0 && cut > 0.0 && e.long_cpus / bursts * 1e9 < rules.long_ns {
            (e.long_cpus, e.long_wanted_cpus) = (0.0, 0.0);
            (e.short_vcpus, e.long_vcpus) = (e.short_vcpus + e.long_vcpus, 0);
            e.latency_per_s += bursts;
        }
        if e.long_vcpus > 0 {
            e.unseen_per_s = (self.packets.get() / 2.0 - short_all - long_wakeups).max(0.0);
        }
        e
    }

    /// What the evidence says, with the lines a margin away from where it was. `None` if nothing can be said.
    fn look(&mut self) -> Option<Class> {
        let (e, rules) = (&self.evidence, &self.rules);
        if e.watched_s < FIRST_S {
            return None;
        }
        if e.wanted_cpus < RESTING && e.latency_per_s + e.unseen_per_s < rules.latency_per_s {
            return Some(self.class.map_or(Class::Latency, |c| c.0));
        }
        let new = self.class.is_none();
        let at = |line: f64, margin: f64, was: bool| match was {
            _ if new => line,
            true => line / margin,
            false => line * margin,
        };
        let was = self.has_batch;
        self.has_batch = e.long_wanted_cpus >= at(rules.batch_cpus, rules.vm_margin, was)
            && e.long_cpus >= e.cpus * at(rules.batch_part, rules.margin, was);
        let line = at(rules.latency_per_s, rules.vm_margin, self.has_latency);
        self.has_latency = e.latency_per_s + e.unseen_per_s >= line;
        Some(match (self.has_batch, self.has_latency) {
            (true, true) => Class::Mixed,
            (true, false) => Class::Batch,
            (false, _) => Class::Latency,
        })
    }

    /// Batch work that nobody can mistake: a vCPU that always wants to run, or most of the CPU time.
    fn clearly_batch(&self) -> bool {
        let hog = |v: &Vcpu| v.is_long() && v.wanted() >= HOG;
        let e = &self.evidence;
        self.vcpus.values().any(hog)
            || (e.long_wanted_cpus >= self.rules.batch_cpus * self.rules.vm_margin
                && e.long_cpus >= e.cpus * MOST)
    }

    fn decide(&mut self, now: Class) -> Option<Class> {
        let clock = self.clock_s;
        let Some((class, _)) = self.class else {
            self.class = Some((now, clock));
            return Some(now);
        };
        if now == class {
            self.looks = None;
            return None;
        }
        let since = match self.looks {
            Some((looks, since)) if looks == now => since,
            _ => clock,
        };
        self.looks = Some((now, since));
        self.flipped_s.retain(|at| clock - at < REMEMBERED_S);
        let settling = clock < SETTLED_S;
        let clear = self.clearly_less(class, now);
        let patience = match clear {
            true => self.rules.patience_s,
            false => self.caution(),
        };
        if !settling && clock - since < patience {
            return None;
        }
        self.class = Some((now, clock));
        self.looks = None;
        if settling {
            return Some(now);
        }
        self.flips += 1;
        if !clear {
            self.flipped_s.push(clock);
        }
        Some(now)
    }

    /// A privilege that clearly is not earned any more: it is taken away soon.
    fn clearly_less(&self, from: Class, to: Class) -> bool {
        let less = matches!(
            (from, to),
            (_, Class::Batch) | (Class::Latency, Class::Mixed)
        );
        less && self.clearly_batch()
    }

    /// Patience with everything else, ever more of it for a VM that goes to and fro.
    fn caution(&self) -> f64 {
        let recent = i32::try_from(self.flipped_s.len()).unwrap_or(i32::MAX);
        (self.rules.caution_s * GROWING.powi(recent)).min(PATIENT_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(run_ms: u64, wakeups: u64) -> VmSample {
        VmSample {
            seconds: 1.0,
            vcpus: vec![VcpuSample {
                index: 0,
                run_ns: run_ms * 1_000_000,
                wait_ns: 0,
                wakeups,
                bursts: None,
            }],
            ..VmSample::default()
        }
    }

    fn fed(sample: &VmSample, seconds: u32) -> Classifier {
        let mut c = Classifier::new(Rules::default());
        for _ in 0..seconds {
            c.feed(sample);
        }
        c
    }

    #[test]
    fn the_plain_cases() {
        let class = |s: &VmSample| fed(s, 20).verdict().unwrap().class;
        assert_eq!(class(&second(1000, 0)), Class::Batch);
        assert_eq!(class(&second(500, 5)), Class::Batch);
        assert_eq!(class(&second(300, 400)), Class::Latency);
        assert_eq!(class(&second(1, 10)), Class::Latency);
        assert_eq!(
            class(&VmSample {
                seconds: 1.0,
                ..VmSample::default()
            }),
            Class::Latency
        );
        let mut both = second(1000, 0);
        both.vcpus.push(VcpuSample {
            index: 1,
            run_ns: 50_000_000,
            wait_ns: 0,
            wakeups: 300,
            bursts: None,
        });
        assert_eq!(class(&both), Class::Mixed);
    }

    /// A hog that gets little is a hog; a server that waits for each of its short bursts is none.
    #[test]
    fn who_gets_little_is_judged_by_what_he_does_with_it() {
        let of = |run_ms: u64, wait_ms: u64, wakeups| {
            let mut sample = second(run_ms, wakeups);
            sample.vcpus[0].wait_ns = wait_ms * 1_000_000;
            fed(&sample, 20).verdict().unwrap()
        };
        for (run_ms, wakeups) in [(120, 0), (50, 0), (9, 0), (1, 0), (50, 3)] {
            let verdict = of(run_ms, 1000 - run_ms, wakeups);
            assert_eq!(verdict.class, Class::Batch, "{run_ms} ms: {verdict:?}");
        }
        // Nobody takes anything from it: a rare job of a few per cent of a CPU.
        assert_eq!(of(50, 0, 1).class, Class::Latency);
        assert_eq!(of(60, 600, 300).class, Class::Latency);
    }

    #[test]
    fn packets_and_polling_are_evidence() {
        let class = |s: &VmSample| fed(s, 20).verdict().unwrap();
        // A hog and an echo server on one vCPU: it never sleeps, its vhost does.
        let served = VmSample {
            packets: Some(400),
            ..second(1000, 0)
        };
        let verdict = class(&served);
        assert_eq!(
            (verdict.class, verdict.evidence.unseen_per_s),
            (Class::Mixed, 200.0)
        );
        // An echo server that halts 5,000 times a second and is polled for: it burns the whole CPU and is no batch
        // work.
        let polled = VmSample {
            halts: Some(5000),
            ..second(1000, 3)
        };
        let verdict = class(&polled);
        assert_eq!(
            (verdict.class, verdict.evidence.long_vcpus),
            (Class::Latency, 0)
        );
    }

    #[test]
    fn a_hog_loses_its_privilege_soon_and_gets_it_back_ever_later() {
        let (short, long) = (second(100, 200), second(1000, 0));
        let mut c = fed(&short, 60);
        let mut until = |sample: &VmSample, class| {
            (1..20_000u32)
                .find(|_| c.feed(sample) == Some(class))
                .unwrap()
        };
        let mut back = Vec::new();
        for _ in 0..3 {
            assert!(until(&long, Class::Batch) <= 40);
            back.push(until(&short, Class::Latency));
        }
        assert!(
            back[0] < 660 && back[1] > 3600 && back[2] > 14_000,
            "{back:?}"
        );
        assert_eq!(c.verdict().unwrap().flips, 6);
    }

    #[test]
    fn nothing_is_said_too_early_and_samples_may_be_odd() {
        let mut c = Classifier::new(Rules::default());
        assert_eq!(c.feed(&second(1000, 0)), None);
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                c.feed(&VmSample {
                    seconds,
                    ..second(1, 1)
                }),
                None
            );
        }
        assert_eq!(c.verdict(), None);
        let most = VmSample {
            seconds: 1e-9,
            vcpus: vec![VcpuSample {
                index: 0,
                run_ns: u64::MAX,
                wait_ns: u64::MAX,
                wakeups: u64::MAX,
                bursts: Some(Bursts {
                    ns: [u64::MAX; OCTAVES],
                }),
            }],
            packets: Some(u64::MAX),
            halts: Some(u64::MAX),
        };
        c.feed(&most);
        c.feed(&VmSample {
            seconds: 5.0,
            ..most
        });
        assert!(c.verdict().unwrap().evidence.cpus.is_finite());
    }

    #[test]
    fn octaves() {
        for (ns, octave) in [
            (0, 0),
            (999, 0),
            (2_000, 1),
            (3_999, 1),
            (16_384_000, 14),
            (u64::MAX, OCTAVES - 1),
        ] {
            assert_eq!(Bursts::octave(ns), octave, "{ns}");
        }
        let mut bursts = Bursts::default();
        bursts.add(3_000);
        bursts.add(40_000_000);
        assert_eq!(bursts.shorter_than(16e6), 3_000);
        assert_eq!(bursts.shorter_than(1e12), 40_003_000);
        // Half its time in long bursts, and a mean that is short.
        let mut both = second(500, 400);
        let mut seen = Bursts::default();
        (0..400).for_each(|_| seen.add(250_000));
        (0..10).for_each(|_| seen.add(40_000_000));
        both.vcpus[0].bursts = Some(seen);
        assert_eq!(fed(&both, 20).verdict().unwrap().class, Class::Mixed);
        both.vcpus[0].bursts = None;
        assert_eq!(fed(&both, 20).verdict().unwrap().class, Class::Latency);
    }
}
