// SPDX-License-Identifier: GPL-2.0-only
//! What a tracer adds to the counters of /proc: how long after a wake-up a VM runs, who had its CPU meanwhile, and how
//! long its bursts are. Where there is none, everything else works.
use crate::class::Bursts;
use crate::classes::VmId;
use crate::model::{Snapshot, TaskId};
use crate::procfile::Counters;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;

/// Who had a CPU that a VM waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A VM, perhaps itself.
    Vm(VmId),
    /// A thread that is no part of a VM.
    Host,
    /// Nobody: on the way to an idle CPU, or held back by a cap.
    Idle,
    /// More switches ago than the tracer remembers.
    Unknown,
}

/// Buckets of [`Waits::wakeups`].
pub const BUCKETS: usize = 128;

/// How a VM has waited since the tracer began.
#[derive(Clone, Debug, PartialEq)]
pub struct Waits {
    /// Wake-ups of vCPUs by how long it took until they ran: four buckets an octave from 64 ns on ([`bucket_ns`]).
    pub wakeups: [u64; BUCKETS],
    /// The longest wait of any of its threads, in nanoseconds. A tracer may forget older ones when it is read.
    pub worst_ns: u64,
    /// Waiting by who had the CPU, in nanoseconds.
    pub behind: BTreeMap<Cause, u64>,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits {
            wakeups: [0; BUCKETS],
            worst_ns: 0,
            behind: BTreeMap::new(),
        }
    }
}

/// The upper end of a bucket, in nanoseconds.
pub fn bucket_ns(bucket: usize) -> f64 {
    let (octave, part) = (bucket / 4, bucket % 4);
    64.0 * (octave as f64).exp2() * (1.0 + (part + 1) as f64 / 4.0)
}

impl Waits {
    /// What came after `earlier`. The worst is what it is now.
    pub fn since(&self, earlier: &Waits) -> Waits {
        let mut out = self.clone();
        for (now, then) in out.wakeups.iter_mut().zip(earlier.wakeups) {
            *now = now.saturating_sub(then);
        }
        for (cause, ns) in &mut out.behind {
            *ns = ns.saturating_sub(earlier.behind.get(cause).copied().unwrap_or(0));
        }
        out
    }

    /// The wait that a part `q` of the wake-ups did not exceed, within a quarter of an octave, in nanoseconds.
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        let all: u64 = self.wakeups.iter().sum();
        let rank = ((all as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (i, n) in self.wakeups.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return Some(bucket_ns(i));
            }
        }
        None
    }
}

/// Something that watches threads beyond what /proc tells.
pub trait Tracer {
    /// Watches the threads of these VMs from now on, and no others.
    ///
    /// # Errors
    /// The kernel refuses.
    fn follow(&mut self, snapshot: &Snapshot) -> io::Result<()>;

    /// Reads what was seen since it began.
    ///
    /// # Errors
    /// The kernel refuses.
    fn read(&mut self) -> io::Result<BTreeMap<VmId, Waits>>;

    /// Tells the counters that /proc would tell, and the voluntary context switches, of every thread it watches.
    ///
    /// # Errors
    /// The kernel refuses, or it cannot.
    fn counters(&mut self, each: &mut dyn FnMut(&TaskId, Counters, u64)) -> io::Result<()>;

    /// Bursts of a thread, as of the last [`Tracer::read`].
    fn bursts(&self, thread: &TaskId) -> Option<Bursts>;
}

/// How a VM waited over a stretch, for a reader.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waited {
    /// Wake-ups of vCPUs that were seen.
    pub wakeups: u64,
    /// From the wake-up until it ran, in nanoseconds; `None` without wake-ups.
    pub p50_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    /// The longest wait of any thread, in nanoseconds.
    pub worst_ns: u64,
    /// Who had the CPU, the most first.
    pub behind: Vec<Behind>,
}

/// A share of a VM's waiting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Behind {
    /// A VM's name, `itself`, `the host's threads`, `nobody`, `unknown`.
    pub who: String,
    /// Part of all its waiting, 0 to 1.
    pub part: f64,
    pub ns: u64,
}

impl Waited {
    /// `name` gives the name of a VM that is still there.
    pub fn of(vm: VmId, waits: &Waits, name: &dyn Fn(VmId) -> Option<String>) -> Waited {
        let all: u64 = waits.behind.values().sum();
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, ns) in waits.behind.iter().filter(|b| *b.1 > 0) {
            let who = match cause {
                Cause::Vm(other) if *other == vm => "itself".into(),
                Cause::Vm(other) => name(*other).unwrap_or_else(|| "a VM that has ended".into()),
                Cause::Host => "the host's threads".into(),
                Cause::Idle => "nobody".into(),
                Cause::Unknown => "unknown".into(),
            };
            *sums.entry(who).or_default() += ns;
        }
        let part = |ns: u64| ns as f64 / all.max(1) as f64;
        let mut behind: Vec<Behind> = sums
            .into_iter()
            .map(|(who, ns)| Behind {
                who,
                part: part(ns),
                ns,
            })
            .collect();
        behind.sort_by_key(|b| std::cmp::Reverse(b.ns));
        // A quantile is the edge of its bucket, which may lie above the longest wait there was.
        let quantile = |q| Some(waits.quantile_ns(q)?.min(waits.worst_ns as f64));
        Waited {
            wakeups: waits.wakeups.iter().sum(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            worst_ns: waits.worst_ns,
            behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_differences() {
        let mut now = Waits::default();
        assert_eq!(now.quantile_ns(0.5), None);
        // 1 ms is in [2^19 * 1.75, 2^20) = 917.5 us to 1.049 ms: octave 13 above 64 ns, the last quarter.
        now.wakeups[55] = 99;
        now.wakeups[60] = 1;
        assert_eq!(now.quantile_ns(0.5), Some(1_048_576.0));
        assert_eq!(now.quantile_ns(0.99), Some(1_048_576.0));
        assert_eq!(now.quantile_ns(1.0), Some(bucket_ns(60)));
        let mut then = Waits::default();
        then.wakeups[55] = 99;
        assert_eq!(now.since(&then).quantile_ns(0.0), Some(bucket_ns(60)));
    }

    /// 1 ms is in a bucket whose edge is 1.049 ms, and no wait was longer than 1 ms.
    #[test]
    fn no_quantile_is_above_the_longest_wait() {
        let mut waits = Waits {
            worst_ns: 1_000_000,
            ..Waits::default()
        };
        waits.wakeups[55] = 1;
        let waited = Waited::of((1, 1), &waits, &|_| None);
        assert_eq!((waited.p50_ns, waited.p99_ns), (Some(1e6), Some(1e6)));
        // Where it is longer, the edge it is.
        waits.wakeups[55] = 1000;
        waits.wakeups[60] = 1;
        waits.worst_ns = 5_000_000;
        let waited = Waited::of((1, 1), &waits, &|_| None);
        assert_eq!(waited.p99_ns, Some(1_048_576.0));
    }

    #[test]
    fn who_it_stood_behind() {
        let waits = Waits {
            behind: [
                (Cause::Host, 10),
                (Cause::Vm((2, 2)), 60),
                (Cause::Vm((1, 1)), 30),
                (Cause::Vm((3, 3)), 0),
            ]
            .into(),
            ..Waits::default()
        };
        let waited = Waited::of((1, 1), &waits, &|id| Some(format!("vm{}", id.0)));
        let told: Vec<(&str, f64)> = waited
            .behind
            .iter()
            .map(|b| (b.who.as_str(), b.part))
            .collect();
        assert_eq!(
            told,
            [("vm2", 0.6), ("itself", 0.3), ("the host's threads", 0.1)]
        );
    }
}
