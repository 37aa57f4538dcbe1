// SPDX-License-Identifier: GPL-2.0-only
//! The automatic class of every VM of a host: brings counters of /proc, debugfs and (where there is one) a tracer to the
//! state machine of [`crate::class`].
use crate::class::{Bursts, Class, Classifier, OCTAVES, Rules, VcpuSample, Verdict, VmSample};
use crate::counters::Sampler;
use crate::model::{Role, Snapshot, TaskId, Vm};
use crate::procfile::{self, Counters};
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

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
}

#[derive(Debug)]
struct Watched {
    classifier: Classifier,
    at: Instant,
    threads: BTreeMap<TaskId, Last>,
    halts: Option<u64>,
}

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
        }
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
        let ids: BTreeSet<VmId> = snapshot.vms.iter().map(|vm| (vm.pid, vm.start)).collect();
        self.vms.retain(|id, _| ids.contains(id));
        let mut changes = Vec::new();
        let mut buf = [0; 4096];
        for vm in &snapshot.vms {
            let id = (vm.pid, vm.start);
            let mut now = BTreeMap::new();
            for thread in &vm.threads {
                if !matches!(thread.role, Role::Vcpu(_) | Role::Vhost) {
                    continue;
                }
                let task = thread.id;
                let path = format!("{}/task/{}/status", task.pid, task.tid);
                let wakeups = proc.read_record(&path, &mut buf).ok();
                let wakeups = wakeups.and_then(procfile::switches).map(|s| s.0);
                let Some(counters) = sampler.counters(&task) else {
                    continue;
                };
                let last = Last {
                    counters,
                    // Without them, stays: as many or more.
                    wakeups: wakeups.unwrap_or(counters.stays),
                    bursts: bursts.and_then(|b| b(&task)),
                };
                now.insert(task, last);
            }
            let at = Instant::now();
            let halts = halts(vm.pid);
            let Some(watched) = self.vms.get_mut(&id) else {
                let watched = Watched {
                    classifier: Classifier::new(self.rules),
                    at,
                    threads: now,
                    halts,
                };
                self.vms.insert(id, watched);
                continue;
            };
            let sample = VmSample {
                seconds: (at - watched.at).as_secs_f64(),
                halts: since(watched.halts, halts),
                ..sample(vm, &watched.threads, &now)
            };
            (watched.at, watched.threads, watched.halts) = (at, now, halts);
            if let Some(class) = watched.classifier.feed(&sample) {
                changes.push(Change { vm: id, class });
            }
        }
        Ok(changes)
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

/// What happened between two readings. A vCPU of several threads (two guesses of one index) counts as one.
fn sample(vm: &Vm, last: &BTreeMap<TaskId, Last>, now: &BTreeMap<TaskId, Last>) -> VmSample {
    let mut vcpus: BTreeMap<u32, VcpuSample> = BTreeMap::new();
    let mut packets = None;
    for thread in &vm.threads {
        let (Some(last), Some(now)) = (last.get(&thread.id), now.get(&thread.id)) else {
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
    use std::time::Duration;

    const HOST: &str = "process 5 lkvm\nargs lkvm run --name v\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n\
                        thread 6 kvm-vcpu-0 run=4 sched=1000,0,1\n";

    #[test]
    fn counters_reach_the_state_machine() {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(HOST).unwrap().unpack(folder.path()).unwrap();
        let root = Root::at(folder.path());
        let snapshot = Scanner::new(root.clone()).scan().unwrap();
        let mut sampler = Sampler::new(root.clone());
        let rules = Rules::default();
        let mut classes = Classes::new(root, rules);
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
        std::thread::sleep(Duration::from_millis(20));
        write(16_000_000, 4);
        assert!(feed(&mut classes).is_empty(), "too early");
        let seen = classes.classifier(&vm).unwrap().vcpus()[&0];
        assert!((seen.burst_ns().unwrap() - 4e6).abs() < 1.0, "{seen:?}");
        assert!(seen.wakeups_per_s() > 10.0);
    }
}
