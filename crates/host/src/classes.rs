// SPDX-License-Identifier: GPL-2.0-only
//! The automatic class of every VM of a host: brings counters of /proc, debugfs and (where there is one) a tracer to
//! the state machine of [`crate::class`].
use crate::class::{Bursts, Class, Classifier, OCTAVES, Rules, VcpuSample, Verdict, VmSample};
use crate::counters::Sampler;
use crate::dir::{Dir, Short};
use crate::model::{Role, Snapshot, TaskId, Vm};
use crate::procfile::{self, Counters};
use crate::root::Root;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

/// Which VM: a process by number and start.
pub type VmId = (i32, u64);

/// Bursts of a thread since a tracer began, by thread; `None` for threads that it does not see.
pub type SeenBursts<'a> = &'a dyn Fn(&TaskId) -> Option<Bursts>;

/// The classes of all VMs.
#[derive(Debug)]
pub struct Classes {
    root: Root,
    rules: Rules,
    vms: BTreeMap<VmId, Watched>,
    /// Files that one feed may read.
    limit: usize,
    /// The VM that the next feed begins with.
    next: usize,
}

#[derive(Debug)]
struct Watched {
    classifier: Classifier,
    at: Instant,
    /// By thread.
    threads: Vec<(TaskId, Last)>,
    halts: Option<u64>,
}

/// Counters that were read longer ago are read again.
const FRESH: Duration = Duration::from_millis(100);

/// What a thread's counters were.
#[derive(Clone, Copy, Debug)]
struct Last {
    counters: Counters,
    wakeups: u64,
    bursts: Option<Bursts>,
}

/// A class that changed, or was said for the first time.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub vm: VmId,
    pub class: Class,
}

impl Classes {
    pub fn new(root: Root, rules: Rules) -> Classes {
        Classes {
            root,
            rules,
            vms: BTreeMap::new(),
            limit: usize::MAX,
            next: 0,
        }
    }

    /// Reads at most about so many files of /proc and debugfs at a feed: those whose turn it is not get a longer sample
    /// later. A VM of which a tracer told all counts as one file.
    pub fn limit(&mut self, files: usize) {
        self.limit = files;
    }

    /// Feeds what happened since the last call. `halts` gives the guest halts of a process's VMs since their start.
    ///
    /// # Errors
    /// /proc cannot be opened. Threads that have ended are no error.
    pub fn feed(
        &mut self,
        snapshot: &Snapshot,
        sampler: &Sampler,
        halts: &dyn Fn(i32) -> Option<u64>,
        bursts: Option<SeenBursts<'_>>,
    ) -> io::Result<Vec<Change>> {
        let proc = self.root.proc()?;
        let there: BTreeSet<VmId> = snapshot.vms.iter().map(|vm| (vm.pid, vm.start)).collect();
        self.vms.retain(|id, _| there.contains(id));
        let mut changes = Vec::new();
        let mut left = self.limit;
        let all = snapshot.vms.len();
        let first = self.next;
        for place in (0..all).map(|i| (first + i) % all) {
            let Some(vm) = snapshot.vms.get(place) else {
                continue;
            };
            if left == 0 {
                self.next = place;
                break;
            }
            let mut files = Files {
                root: &self.root,
                proc: &proc,
                read: 0,
            };
            let now = files.threads(vm, sampler, bursts);
            let at = now.1;
            let halts = halts(vm.pid);
            // What a tracer told takes no file, but some time too.
            left = left.saturating_sub((files.read + usize::from(halts.is_some())).max(1));
            if let Some(class) = self.sample(vm, at, now.0, halts) {
                let vm = (vm.pid, vm.start);
                changes.push(Change { vm, class });
            }
        }
        Ok(changes)
    }

    /// Takes what one VM's threads and halts were at a time.
    fn sample(
        &mut self,
        vm: &Vm,
        at: Instant,
        threads: Vec<(TaskId, Last)>,
        halts: Option<u64>,
    ) -> Option<Class> {
        match self.vms.entry((vm.pid, vm.start)) {
            Entry::Vacant(place) => {
                place.insert(Watched {
                    classifier: Classifier::new(self.rules),
                    at,
                    threads,
                    halts,
                });
                None
            }
            Entry::Occupied(mut place) => {
                let watched = place.get_mut();
                let sample = VmSample {
                    seconds: at.saturating_duration_since(watched.at).as_secs_f64(),
                    halts: since(watched.halts, halts),
                    ..sample(vm, &watched.threads, &threads)
                };
                (watched.at, watched.threads, watched.halts) = (at, threads, halts);
                watched.classifier.feed(&sample)
            }
        }
    }

    /// What is thought of a VM.
    pub fn verdict(&self, vm: &Vm) -> Option<Verdict> {
        self.classifier(vm)?.verdict()
    }

    /// All that is known of a VM's vCPUs.
    pub fn classifier(&self, vm: &Vm) -> Option<&Classifier> {
        Some(&self.vms.get(&(vm.pid, vm.start))?.classifier)
    }

    /// Where the lines are.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }
}

fn since(last: Option<u64>, now: Option<u64>) -> Option<u64> {
    now?.checked_sub(last?)
}

/// What was read for one VM.
struct Files<'a> {
    root: &'a Root,
    proc: &'a Dir,
    read: usize,
}

impl Files<'_> {
    /// Counters of the vCPUs and vhost threads of a VM, by thread, and when that was.
    fn threads(
        &mut self,
        vm: &Vm,
        sampler: &Sampler,
        bursts: Option<SeenBursts<'_>>,
    ) -> (Vec<(TaskId, Last)>, Instant) {
        let now = self.root.now();
        let mut at = None;
        let mut found = Vec::with_capacity(vm.threads.len());
        for thread in &vm.threads {
            if !matches!(thread.role, Role::Vcpu(_) | Role::Vhost) {
                continue;
            }
            let task = thread.id;
            let last = sampler.reading(&task);
            let last = last.filter(|last| now.saturating_duration_since(last.0) < FRESH);
            let (counters, wakeups) = match last {
                Some((read_at, counters, Some(wakeups))) => {
                    at = at.max(Some(read_at));
                    (counters, wakeups)
                }
                last => {
                    at = at.max(Some(now));
                    let counters = last.map(|last| last.1).or_else(|| self.counters(&task));
                    let Some(counters) = counters else { continue };
                    // Without them, stays: as many or more.
                    let wakeups = self.wakeups(&task).unwrap_or(counters.stays);
                    (counters, wakeups)
                }
            };
            let last = Last {
                counters,
                wakeups,
                bursts: bursts.and_then(|b| b(&task)),
            };
            found.push((task, last));
        }
        found.sort_unstable_by_key(|(id, _)| *id);
        (found, at.unwrap_or(now))
    }

    fn counters(&mut self, task: &TaskId) -> Option<Counters> {
        self.file(task, "schedstat", procfile::schedstat)
    }

    fn wakeups(&mut self, task: &TaskId) -> Option<u64> {
        self.file(task, "status", procfile::switches).map(|s| s.0)
    }

    fn file<T>(
        &mut self,
        task: &TaskId,
        name: &str,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<T> {
        self.read += 1;
        let mut buf = [0; 4096];
        let path = Short::of(format_args!("{}/task/{}/{name}", task.pid, task.tid));
        parse(self.proc.read_record(&path, &mut buf).ok()?)
    }
}

/// What happened between two readings. A vCPU of several threads (two guesses of one index) counts as one.
fn sample(vm: &Vm, last: &[(TaskId, Last)], now: &[(TaskId, Last)]) -> VmSample {
    let find = |in_: &[(TaskId, Last)], id: &TaskId| {
        let place = in_.binary_search_by_key(id, |t| t.0).ok()?;
        Some(in_.get(place)?.1)
    };
    let mut vcpus: BTreeMap<u32, VcpuSample> = BTreeMap::new();
    let mut packets = None;
    for thread in &vm.threads {
        let (Some(last), Some(now)) = (find(last, &thread.id), find(now, &thread.id)) else {
            continue;
        };
        let wakeups = now.wakeups.saturating_sub(last.wakeups);
        match thread.role {
            Role::Vcpu(index) => {
                let (a, b) = (last.counters, now.counters);
                let v = vcpus.entry(index).or_default();
                v.index = index;
                v.run_ns += b.run_ns.saturating_sub(a.run_ns);
                v.wait_ns += b.wait_ns.saturating_sub(a.wait_ns);
                v.wakeups += wakeups;
                if let (Some(a), Some(b)) = (last.bursts, now.bursts) {
                    let sum = v.bursts.get_or_insert_default();
                    for i in 0..OCTAVES {
                        sum.ns[i] += b.ns[i].saturating_sub(a.ns[i]);
                    }
                }
            }
            _ => packets = Some(packets.unwrap_or(0) + wakeups),
        }
    }
    VmSample {
        vcpus: vcpus.into_values().collect(),
        packets,
        ..VmSample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Scanner;
    use crate::fixture::Fixture;
    use crate::time::Played;
    use std::sync::Arc;

    const HOST: &str = "process 5 lkvm\nargs lkvm run --name v\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n\
                        thread 6 kvm-vcpu-0 run=4 sched=1000,0,1\n";

    #[test]
    fn counters_reach_the_state_machine() {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(HOST).unwrap().unpack(folder.path()).unwrap();
        let root = Root::at(folder.path()).with_time(Arc::new(Played::new(|_| ())));
        let snapshot = Scanner::new(root.clone()).scan().unwrap();
        let mut sampler = Sampler::new(root.clone());
        let rules = Rules::default();
        let mut classes = Classes::new(root.clone(), rules);
        let task = folder.path().join("proc/5/task/6");
        let write = |run_ns: u64, wakeups: u64| {
            std::fs::write(task.join("schedstat"), format!("{run_ns} 0 9")).unwrap();
            std::fs::write(
                task.join("status"),
                format!("voluntary_ctxt_switches:\t{wakeups}\nnonvoluntary_ctxt_switches:\t5\n"),
            )
            .unwrap();
        };
        let vm = snapshot.vms[0].clone();
        let mut feed = |classes: &mut Classes| {
            sampler.refresh(&snapshot, None).unwrap();
            classes
                .feed(&snapshot, &sampler, &|_| Some(7), None)
                .unwrap()
        };
        write(0, 0);
        assert!(feed(&mut classes).is_empty());
        assert_eq!(classes.verdict(&vm), None);
        root.sleep(Duration::from_millis(20));
        write(16_000_000, 4);
        assert!(feed(&mut classes).is_empty(), "too early");
        let seen = classes.classifier(&vm).unwrap().vcpus()[&0];
        assert!((seen.burst_ns().unwrap() - 4e6).abs() < 1.0, "{seen:?}");
        assert!((seen.wakeups_per_s() - 200.0).abs() < 1.0, "{seen:?}");
    }
}
