// SPDX-License-Identifier: GPL-2.0-only
//! What a run keeps beside its metrics: distributions, who waited for whom, the worst waits, values over time.
use serde::{Deserialize, Serialize};

/// Cause of waiting: the CPU on whose queue the thread stood was idle (a wake-up IPI on its way, or a policy that let
/// it idle).
pub const IDLE: &str = "(idle)";
/// Cause of waiting: the CPU was switching or refilling what a migration left cold, for nobody's useful work.
pub const COSTS: &str = "(switching)";
/// Cause of waiting: VMs beyond those that are told apart.
pub const OTHERS: &str = "(others)";
/// Cause of waiting: the VM was frozen (`cgroup.freeze`). Its threads stood in no run queue then, and would have run or
/// stood in one.
pub const FROZEN: &str = "(frozen)";
/// The host's own threads, as waiters and as causes.
pub const HOST: &str = "host";

/// Time that threads of one VM stood in run queues while something else had the CPU.
///
/// The sum over the causes of a waiter, [`FROZEN`] left out, is its run delay in the measured window: in the simulator
/// to the nanosecond, in the lab the kernel's own (schedstat), so interruptions by kernel threads and clients are in
/// it, as [`HOST`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// A VM, a group of VMs (where there are too many to tell apart), or [`HOST`].
    pub waiter: String,
    /// A VM or a group, [`HOST`], [`IDLE`], [`COSTS`], [`OTHERS`] or [`FROZEN`].
    pub cause: String,
    /// In the measured window, ns.
    pub ns: u64,
}

/// The longest stay in a run queue that ended in the measured window (or had not ended at its end).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorstWait {
    /// VM group (or [`HOST`]) whose worst it is.
    pub group: String,
    /// Thread: `web-2/0` is vCPU 0 of the VM web-2.
    pub thread: String,
    /// CPU on which it ran at last (or on whose queue it stands).
    pub cpu: u32,
    /// ns since the start of the run.
    pub from_ns: u64,
    pub to_ns: u64,
    /// It still waited when the measured window ended.
    pub unfinished: bool,
    /// Who had the CPU meanwhile, longest first: thread and ns. At most eight; from the window below.
    pub behind: Vec<(String, u64)>,
    /// What ran around it; none in runs that are not the worst of their arm.
    pub strip: Option<Strip>,
}

impl WorstWait {
    pub fn ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// What ran on which CPU for a short time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strip {
    /// ns since the start of the run.
    pub from_ns: u64,
    pub to_ns: u64,
    /// CPUs that are shown.
    pub cpus: Vec<u32>,
    /// Threads that ran, and the VM group of each ([`HOST`] for the host's).
    pub threads: Vec<(String, String)>,
    /// CPU, index into `threads`, start after `from_ns`, length; in order of CPU and time. Idle time is left out.
    pub ran: Vec<[u64; 4]>,
}

/// What a strip shows of the time before and after the end of a worst wait, ns.
pub const STRIP_BEFORE_NS: u64 = 45_000_000;
pub const STRIP_AFTER_NS: u64 = 5_000_000;
/// CPUs that a strip shows, at most.
pub const STRIP_CPUS: u32 = 64;

/// The CPUs that a strip shows of this many: those around the one that was waited for.
pub fn strip_cpus(cpu: u32, all: u32) -> std::ops::Range<u32> {
    let shown = all.min(STRIP_CPUS);
    let first = cpu.saturating_sub(shown / 2).min(all - shown);
    first..first + shown
}

impl Strip {
    /// Which threads had this CPU between two times (ns since the start of the run), and how long: the eight longest.
    pub fn behind(&self, cpu: u32, from_ns: u64, to_ns: u64) -> Vec<(String, u64)> {
        let mut sums = std::collections::BTreeMap::<u64, u64>::new();
        for [of, thread, at, ns] in &self.ran {
            let begin = (self.from_ns + at).max(from_ns);
            let end = (self.from_ns + at + ns).min(to_ns);
            if *of == u64::from(cpu) && end > begin {
                *sums.entry(*thread).or_default() += end - begin;
            }
        }
        let named = |(thread, ns): (u64, u64)| {
            let (name, _) = self.threads.get(thread as usize)?;
            Some((name.clone(), ns))
        };
        let mut list: Vec<(String, u64)> = sums.into_iter().filter_map(named).collect();
        list.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        list.truncate(8);
        list
    }
}

/// A distribution of times, in logarithmic steps of 1/16 of a power of two (4.5 %).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// Largest value of each step, ns, ascending.
    pub upto_ns: Vec<u64>,
    /// How many times were in it.
    pub count: Vec<u64>,
}

/// Steps per power of two, as a power of two.
const STEPS: u32 = 4;

impl Distribution {
    /// From values and how often each occurred, in ascending order of values.
    pub fn of(values: impl IntoIterator<Item = (u64, u64)>) -> Distribution {
        let mut d = Distribution::default();
        for (value, n) in values {
            let upto = step_end(value);
            match d.upto_ns.last() {
                Some(last) if *last == upto => {
                    if let Some(count) = d.count.last_mut() {
                        *count += n;
                    }
                }
                _ => {
                    d.upto_ns.push(upto);
                    d.count.push(n);
                }
            }
        }
        d
    }

    pub fn total(&self) -> u64 {
        self.count.iter().sum()
    }

    /// The sum of several: equal steps are added.
    pub fn merged<'a>(all: impl IntoIterator<Item = &'a Distribution>) -> Distribution {
        let mut steps = std::collections::BTreeMap::<u64, u64>::new();
        for d in all {
            for (upto, n) in d.upto_ns.iter().zip(&d.count) {
                *steps.entry(*upto).or_default() += n;
            }
        }
        Distribution {
            upto_ns: steps.keys().copied().collect(),
            count: steps.into_values().collect(),
        }
    }
}

/// Largest value of the step that holds `ns`.
fn step_end(ns: u64) -> u64 {
    let shift = (63 - (ns | 1 << STEPS).leading_zeros()) - STEPS;
    (((ns >> shift) + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn steps_are_narrow_and_lose_nothing(mut values in prop::collection::vec(0..u64::MAX / 4, 1..200)) {
            values.sort_unstable();
            let d = Distribution::of(values.iter().map(|v| (*v, 1)));
            prop_assert_eq!(d.total(), values.len() as u64);
            prop_assert!(d.upto_ns.windows(2).all(|w| w[0] < w[1]));
            for v in values {
                let end = step_end(v);
                prop_assert!(end >= v && (end - v) as f64 <= v as f64 / 16.0 + 1.0);
            }
        }
    }

    #[test]
    fn distributions_add_up() {
        let a = Distribution::of([(5, 2), (100, 1)]);
        let b = Distribution::of([(5, 1), (1_000_000, 4)]);
        let both = Distribution::merged([&a, &b]);
        assert_eq!((both.total(), both.count[0], both.upto_ns.len()), (8, 3, 3));
    }
}
