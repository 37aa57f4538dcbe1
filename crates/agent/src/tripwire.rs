// SPDX-License-Identifier: GPL-2.0-only
//! Notices that a policy starves a VM's thread, long before the kernel's own watchdog does.
//!
//! A thread that can run and does not is no proof: its VM may have used up its cap, or have so small a share that the
//! wait is fair. So a thread counts as starved only if it has waited for the whole limit without a nanosecond on a CPU
//! and the policy owed it CPU time meanwhile: its part of its VM's weighted share of the CPUs it may use, cut by the
//! VM's cap, minus nothing, came to more than [`GRACE`]. A VM at its cap is owed nothing.
use crate::register::{Entry, ThreadKey, VmKey};
use berth_host::dir::Dir;
use berth_host::procfile::{self, Counters};
use berth_host::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

/// CPU time that a thread must have been owed: several of the longest slices that a shipped policy gives (30 ms).
pub const GRACE: Duration = Duration::from_millis(100);
/// How long a thread may wait that is owed CPU time.
pub const LIMIT: Duration = Duration::from_millis(500);
/// Reading all threads takes at most this part of one CPU: looks come less often on hosts with very many. What this
/// thread itself waits for a CPU does not count: a policy that starves others may starve it, too.
const COST: f64 = 0.01;
const OFTEN: Duration = Duration::from_millis(100);

/// A thread that the policy starves.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Stall {
    pub vm: String,
    pub tid: i32,
    /// Seconds without CPU although it could run.
    pub waited_s: f64,
    /// CPU seconds it was owed meanwhile.
    pub owed_s: f64,
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "thread {} of VM {} could run for {:.2} s and got no CPU, {:.2} s were owed to it",
            self.tid, self.vm, self.waited_s, self.owed_s
        )
    }
}

/// What one look saw of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub counters: Counters,
    /// It runs or stands in a queue.
    pub runnable: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    last: Instant,
    counters: Counters,
    owed: Duration,
}

/// Watches the threads of VMs.
#[derive(Debug)]
pub struct Tripwire {
    root: Root,
    limit: Duration,
    waiting: BTreeMap<ThreadKey, Waiting>,
    /// Run time of each VM's threads at the last look, to see what of its cap is used.
    used: BTreeMap<VmKey, (Instant, u64)>,
    next: Option<Instant>,
}

impl Tripwire {
    pub fn new(root: Root, limit: Duration) -> Tripwire {
        Tripwire {
            root,
            limit,
            waiting: BTreeMap::new(),
            used: BTreeMap::new(),
            next: None,
        }
    }

    /// Looks, if it is time to; the thread that is starved worst.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn watch(&mut self, vms: &[Entry], cpus: usize) -> io::Result<Option<Stall>> {
        let now = self.root.now();
        if self.next.is_some_and(|at| now < at) {
            return Ok(None);
        }
        let before = self.root.spent();
        let looks = self.read(vms)?;
        let stall = self.judge(now, vms, cpus, &looks);
        let spent = self.root.spent().saturating_sub(before);
        self.next = Some(now + OFTEN.max(spent.div_f64(COST)));
        Ok(stall)
    }

    /// Reads the counters of all threads, and of those that did not move whether they can run.
    fn read(&self, vms: &[Entry]) -> io::Result<BTreeMap<ThreadKey, Look>> {
        let proc = self.root.proc()?;
        let mut looks = BTreeMap::new();
        for vm in vms {
            // Threads of helper processes and of the kernel have a folder of their own.
            let own = proc.dir(&format!("{}/task", vm.key.pid)).ok();
            for key in vm.threads.keys() {
                let name = key.tid.to_string();
                let folder = own.as_ref().and_then(|task| task.dir(&name).ok());
                let folder = folder.or_else(|| proc.dir(&name).ok());
                if let Some(look) = folder.and_then(|f| self.look(&f, *key)) {
                    looks.insert(*key, look);
                }
            }
        }
        Ok(looks)
    }

    fn look(&self, folder: &Dir, key: ThreadKey) -> Option<Look> {
        let mut buf = [0; 4096];
        let counters = procfile::schedstat(folder.read_record("schedstat", &mut buf).ok()?)?;
        let moved = self
            .waiting
            .get(&key)
            .is_some_and(|w| w.counters != counters);
        let runnable = !moved && {
            let stat = procfile::stat(folder.read_record("stat", &mut buf).ok()?)?;
            // Another thread of this number by now.
            if stat.start != key.start {
                return None;
            }
            stat.state == b'R'
        };
        Some(Look { counters, runnable })
    }

    /// Judges one look at all threads.
    pub fn judge(
        &mut self,
        now: Instant,
        vms: &[Entry],
        cpus: usize,
        looks: &BTreeMap<ThreadKey, Look>,
    ) -> Option<Stall> {
        let moved = |key: &ThreadKey, look: &Look| {
            let before = self.waiting.get(key);
            before.is_some_and(|w| w.counters != look.counters)
        };
        let wants = |key: &&ThreadKey| {
            let look = looks.get(*key);
            look.is_some_and(|l| l.runnable || moved(key, l))
        };
        // Threads of each VM that want a CPU or had one since the last look.
        let wanting: Vec<usize> = vms
            .iter()
            .map(|vm| vm.threads.keys().filter(wants).count())
            .collect();
        let active = vms.iter().zip(&wanting).filter(|(_, n)| **n > 0);
        let weights: f64 = active.map(|(vm, _)| f64::from(vm.weight)).sum();
        let mut alive = BTreeSet::new();
        let mut worst: Option<Stall> = None;
        let mut used = BTreeMap::new();
        for (vm, wanting) in vms.iter().zip(wanting) {
            let ns: u64 = vm
                .threads
                .keys()
                .filter_map(|k| looks.get(k))
                .map(|l| l.counters.run_ns)
                .sum();
            let before = self.used.get(&vm.key).copied();
            used.insert(vm.key, (now, ns));
            // CPUs it used since the last look, and those it may.
            let rate = before.map_or(0.0, |(at, before)| {
                ns.saturating_sub(before) as f64 / (now - at).as_nanos().max(1) as f64
            });
            let cap = vm.cap_milli.map_or(f64::MAX, |c| f64::from(c) / 1000.0);
            let share = cpus as f64 * f64::from(vm.weight) / weights.max(1.0);
            let each = match rate >= 0.9 * cap {
                true => 0.0,
                false => (share.min(cap) / wanting.max(1) as f64).min(1.0),
            };
            for key in vm.threads.keys() {
                let Some(look) = looks.get(key) else { continue };
                alive.insert(*key);
                let fresh = Waiting {
                    since: now,
                    last: now,
                    counters: look.counters,
                    owed: Duration::ZERO,
                };
                let w = self.waiting.entry(*key).or_insert(fresh);
                if !look.runnable || w.counters != look.counters {
                    *w = fresh;
                    continue;
                }
                w.owed += (now - w.last).mul_f64(each);
                w.last = now;
                let waited = now - w.since;
                if waited < self.limit || w.owed < GRACE {
                    continue;
                }
                let stall = Stall {
                    vm: vm.name.clone(),
                    tid: key.tid,
                    waited_s: waited.as_secs_f64(),
                    owed_s: w.owed.as_secs_f64(),
                };
                if worst.as_ref().is_none_or(|s| s.owed_s < stall.owed_s) {
                    worst = Some(stall);
                }
            }
        }
        self.waiting.retain(|key, _| alive.contains(key));
        self.used = used;
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::time::Time;
    use berth_identity::{Class, Role, ThreadRecord, VmId};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    const STEP: Duration = Duration::from_millis(100);

    fn vm(pid: i32, weight: u32, cap_milli: Option<u32>, threads: i32) -> Entry {
        let record = ThreadRecord {
            role: Role::Vcpu(0),
            io: false,
            score_milli: None,
        };
        let key = |i: i32| ThreadKey {
            tid: pid + i,
            start: 1,
        };
        Entry {
            key: VmKey { pid, start: 1 },
            name: format!("vm-{pid}"),
            id: VmId::Cgroup(pid.unsigned_abs().into()),
            class: Class::Batch,
            weight,
            cap_milli,
            node: None,
            cgroup: None,
            vcpus: 1,
            threads: (0..threads).map(|i| (key(i), record.clone())).collect(),
        }
    }

    /// Runs a host by steps: `ran` gives the nanoseconds each thread runs in a step, `None` if it sleeps.
    fn play(
        vms: &[Entry],
        cpus: usize,
        steps: u32,
        ran: &dyn Fn(i32) -> Option<u64>,
    ) -> Option<Stall> {
        let mut wire = Tripwire::new(Root::live(), LIMIT);
        let start = Instant::now();
        let mut sums: BTreeMap<ThreadKey, Counters> = BTreeMap::new();
        for step in 0..steps {
            let mut looks = BTreeMap::new();
            for key in vms.iter().flat_map(|vm| vm.threads.keys()) {
                let c = sums.entry(*key).or_default();
                let ns = ran(key.tid);
                c.run_ns += ns.unwrap_or(0);
                c.stays += u64::from(ns.unwrap_or(0) > 0);
                looks.insert(
                    *key,
                    Look {
                        counters: *c,
                        runnable: ns.is_some(),
                    },
                );
            }
            if let Some(stall) = wire.judge(start + STEP * step, vms, cpus, &looks) {
                return Some(stall);
            }
        }
        None
    }

    #[test]
    fn a_thread_that_is_owed_and_gets_nothing_is_starved() {
        let vms = [vm(10, 100, None, 1), vm(20, 100, None, 1)];
        let stall = play(&vms, 1, 50, &|tid| {
            Some(if tid == 20 { 100_000_000 } else { 0 })
        })
        .unwrap();
        assert_eq!((stall.vm.as_str(), stall.tid), ("vm-10", 10));
        assert!((0.5..0.7).contains(&stall.waited_s), "{stall}");
        assert!((0.2..0.4).contains(&stall.owed_s), "{stall}");
    }

    #[test]
    fn who_runs_sleeps_or_runs_now_and_then_is_not() {
        let vms = [vm(10, 100, None, 1), vm(20, 100, None, 1)];
        assert_eq!(play(&vms, 2, 50, &|_| Some(100_000_000)), None);
        assert_eq!(
            play(&vms, 1, 50, &|tid| (tid == 20).then_some(100_000_000)),
            None
        );
        assert_eq!(
            play(&vms, 1, 50, &|tid| Some(if tid == 20 {
                99_000_000
            } else {
                1_000_000
            })),
            None
        );
    }

    #[test]
    fn a_vm_at_its_cap_or_with_a_tiny_share_is_owed_little() {
        // One sibling has used the whole cap.
        let capped = [vm(10, 100, Some(500), 2), vm(20, 100, None, 1)];
        assert_eq!(
            play(&capped, 2, 100, &|tid| Some(if tid == 10 {
                50_000_000
            } else if tid == 20 {
                100_000_000
            } else {
                0
            })),
            None
        );
        // 1 of 10,001: in 5 s half a millisecond.
        let tiny = [vm(10, 1, None, 1), vm(20, 10_000, None, 1)];
        assert_eq!(
            play(&tiny, 1, 50, &|tid| Some(if tid == 20 {
                100_000_000
            } else {
                0
            })),
            None
        );
        // A capped VM that gets nothing at all is starved.
        let capped = [vm(10, 100, Some(500), 1), vm(20, 100, None, 1)];
        assert!(
            play(&capped, 1, 50, &|tid| Some(if tid == 20 {
                100_000_000
            } else {
                0
            }))
            .is_some()
        );
    }

    /// A full host: whenever somebody asks for the time, a second of waiting has passed, and so much of work.
    #[derive(Debug)]
    struct Full {
        begin: Instant,
        asked: AtomicU32,
        work: Duration,
    }

    impl Full {
        fn asked(&self) -> u32 {
            self.asked.fetch_add(1, Ordering::Relaxed)
        }
    }

    impl Time for Full {
        fn now(&self) -> Instant {
            self.begin + Duration::from_secs(1) * self.asked()
        }

        fn spent(&self) -> Duration {
            self.work * self.asked()
        }

        fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn looks_are_paced_by_work_not_by_waiting() {
        for (work_ms, pause_ms) in [(0, 100), (1, 100), (5, 500)] {
            let full = Full {
                begin: Instant::now(),
                asked: AtomicU32::new(0),
                work: Duration::from_millis(work_ms),
            };
            let begin = full.begin;
            let mut wire = Tripwire::new(Root::live().with_time(Arc::new(full)), LIMIT);
            assert_eq!(wire.watch(&[], 1).unwrap(), None);
            let pause = wire.next.unwrap() - begin;
            assert_eq!(pause, Duration::from_millis(pause_ms), "{work_ms} ms");
        }
    }

    #[test]
    fn threads_of_this_machine_are_read() {
        let me = std::process::id().cast_signed();
        let mut entry = vm(me, 100, None, 1);
        let mut buf = [0; 4096];
        let dir = Root::live().proc().unwrap().dir(&me.to_string()).unwrap();
        let start = procfile::stat(dir.read_record("stat", &mut buf).unwrap())
            .unwrap()
            .start;
        entry.threads = entry
            .threads
            .into_values()
            .map(|r| (ThreadKey { tid: me, start }, r))
            .collect();
        let wire = Tripwire::new(Root::live(), LIMIT);
        let looks = wire.read(std::slice::from_ref(&entry)).unwrap();
        assert!(looks[&ThreadKey { tid: me, start }].counters.run_ns > 0);
        // Of another thread with this number nothing is believed.
        entry.threads = entry
            .threads
            .into_values()
            .map(|r| (ThreadKey { tid: me, start: 1 }, r))
            .collect();
        assert!(wire.read(&[entry]).unwrap().is_empty());
    }
}
