// SPDX-License-Identifier: GPL-2.0-only
//! On which kind of core VMs run, and for how much of their time, where a host has several kinds.
//!
//! The kernel keeps no such account. So the CPU of each vCPU is looked at again and again, and what it has run since
//! the look before counts for that CPU's kind: right but for moves between two looks.
use crate::classes::VmId;
use crate::cores::CoreKind;
use crate::dir::Dir;
use crate::model::{Role, Snapshot, TaskId};
use crate::procfile::{schedstat, stat};
use crate::root::Root;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Fewer looks than this say nothing of a share.
const ENOUGH: u32 = 8;

/// What a VM's vCPUs ran on cores of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindShare {
    /// The kind's name.
    pub kind: String,
    /// Of the time its vCPUs ran, 0 to 1.
    pub share: f64,
}

/// `P 83 %, E 17 %`
pub fn words(kinds: &[KindShare]) -> String {
    let part = |kind: &KindShare| format!("{} {:.0} %", kind.kind, kind.share * 100.0);
    let parts: Vec<String> = kinds.iter().map(part).collect();
    parts.join(", ")
}

/// Run time by VM and kind since [`Places::begin`].
#[derive(Debug, Default)]
pub struct Places {
    names: Vec<String>,
    kind_of: HashMap<u32, usize>,
    /// Run time up to the last look, ns.
    seen: BTreeMap<TaskId, u64>,
    /// Since the beginning, ns by kind.
    spent: BTreeMap<VmId, Vec<u64>>,
    looks: u32,
}

impl Places {
    /// For these kinds; one without any looks at nothing.
    pub fn new(kinds: &[CoreKind]) -> Places {
        let number = |(i, kind): (usize, &CoreKind)| -> Vec<(u32, usize)> {
            kind.cpus.iter().map(|cpu| (*cpu, i)).collect()
        };
        Places {
            names: kinds.iter().map(|kind| kind.name.clone()).collect(),
            kind_of: kinds.iter().enumerate().flat_map(number).collect(),
            ..Places::default()
        }
    }

    /// Is there anything to look at?
    pub fn are_several(&self) -> bool {
        self.names.len() > 1
    }

    /// A new stretch begins.
    pub fn begin(&mut self) {
        self.spent.clear();
        self.looks = 0;
    }

    /// Looks where the vCPUs are.
    pub fn look(&mut self, root: &Root, snapshot: &Snapshot) {
        if !self.are_several() {
            return;
        }
        let Ok(proc) = root.proc() else {
            return;
        };
        self.looks += 1;
        let mut seen = BTreeMap::new();
        for vm in &snapshot.vms {
            let vcpus = vm.threads.iter();
            for thread in vcpus.filter(|t| matches!(t.role, Role::Vcpu(_))) {
                let Some((run_ns, cpu)) = read(&proc, &thread.id) else {
                    continue;
                };
                let before = self.seen.get(&thread.id).copied();
                seen.insert(thread.id, run_ns);
                if let (Some(before), Some(kind)) = (before, self.kind_of.get(&cpu)) {
                    let of = self.spent.entry((vm.pid, vm.start));
                    let of = of.or_insert_with(|| vec![0; self.names.len()]);
                    of[*kind] += run_ns.saturating_sub(before);
                }
            }
        }
        // Of threads that are gone nothing is kept.
        self.seen = seen;
    }

    /// The kinds' parts of a VM's run time in this stretch, in the order of the kinds; empty if it did not run, or was
    /// looked at too seldom.
    pub fn of(&self, vm: VmId) -> Vec<KindShare> {
        let spent = self.spent.get(&vm).filter(|_| self.looks >= ENOUGH);
        let all: u64 = spent.into_iter().flatten().sum();
        if all == 0 {
            return Vec::new();
        }
        let share = |(name, ns): (&String, &u64)| KindShare {
            kind: name.clone(),
            share: *ns as f64 / all as f64,
        };
        let spent = spent.into_iter().flatten();
        self.names.iter().zip(spent).map(share).collect()
    }
}

/// Run time of a thread and the CPU it was on last; `None` if it is gone, or its number is another's by now.
fn read(proc: &Dir, id: &TaskId) -> Option<(u64, u32)> {
    let folder = format!("{}/task/{}", id.pid, id.tid);
    let mut buf = [0; 4096];
    let text = proc.read_record(&format!("{folder}/stat"), &mut buf).ok()?;
    let found = stat(text).filter(|found| found.start == id.start)?;
    let cpu = found.processor;
    let text = proc
        .read_record(&format!("{folder}/schedstat"), &mut buf)
        .ok()?;
    Some((schedstat(text)?.run_ns, cpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Scanner;
    use crate::fixture::Fixture;
    use crate::machine::Machine;

    /// A VM of two vCPUs on a host with CPUs 0-1 fast, 2-3 slow; run times in ms and CPUs.
    fn host(folder: &std::path::Path, ran_ms: [u64; 2], on: [u32; 2]) {
        let vcpu = |i: usize| {
            format!(
                "thread 1{i} \"CPU {i}/KVM\" start=1{i} run=2{i} cpu={} sched={},0,1\n\
                 fd 2{i} anon_inode:kvm-vcpu:{i}\n",
                on[i],
                ran_ms[i] * 1_000_000
            )
        };
        let text = format!(
            "file sys/devices/system/cpu/online 0-3\ncpus 0-1 cpu_capacity 1024\ncpus 2-3 cpu_capacity 512\n\
             process 5 lkvm\nargs lkvm run --name v\nfd 3 anon_inode:kvm-vm\n{}{}",
            vcpu(0),
            vcpu(1)
        );
        // In the place of the one before.
        let _ = std::fs::remove_dir_all(folder.join("proc"));
        let _ = std::fs::remove_dir_all(folder.join("sys"));
        Fixture::parse(&text).unwrap().unpack(folder).unwrap();
    }

    fn shares(places: &Places, snapshot: &Snapshot) -> Vec<(String, u32)> {
        let vm = &snapshot.vms[0];
        let shares = places.of((vm.pid, vm.start)).into_iter();
        shares
            .map(|s| (s.kind, (s.share * 1000.0).round() as u32))
            .collect()
    }

    #[test]
    fn run_time_counts_for_the_kind_on_which_it_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        host(folder.path(), [100, 100], [0, 2]);
        let snapshot = Scanner::new(root.clone()).scan().unwrap();
        assert_eq!(snapshot.vms[0].vcpus, 2);
        let mut places = Places::new(&Machine::read(&root).kinds);
        for _ in 0..ENOUGH - 2 {
            places.look(&root, &snapshot);
        }
        // 30 ms fast, 20 ms slow; then both are slow, and the second did not run.
        host(folder.path(), [130, 120], [1, 3]);
        places.look(&root, &snapshot);
        assert_eq!(shares(&places, &snapshot), [], "looked at too seldom");
        host(folder.path(), [180, 120], [3, 3]);
        places.look(&root, &snapshot);
        let expected = [("fast".to_string(), 300), ("slow".to_string(), 700)];
        assert_eq!(shares(&places, &snapshot), expected);
        // A new stretch goes on from the last look.
        places.begin();
        host(folder.path(), [190, 120], [0, 3]);
        for _ in 0..ENOUGH {
            places.look(&root, &snapshot);
        }
        assert_eq!(
            shares(&places, &snapshot),
            [("fast".to_string(), 1000), ("slow".to_string(), 0)]
        );
        // Its number is another thread's: no time of that one.
        let text = std::fs::read_to_string(folder.path().join("proc/5/task/10/stat")).unwrap();
        std::fs::write(
            folder.path().join("proc/5/task/10/stat"),
            text.replace(" 10 0 ", " 99 0 "),
        )
        .unwrap();
        places.begin();
        for _ in 0..ENOUGH {
            places.look(&root, &snapshot);
        }
        assert_eq!(shares(&places, &snapshot), []);
    }

    #[test]
    fn a_host_of_one_kind_is_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        host(folder.path(), [1, 1], [0, 0]);
        let snapshot = Scanner::new(root.clone()).scan().unwrap();
        let mut places = Places::new(&[]);
        places.look(&root, &snapshot);
        assert!(places.seen.is_empty() && !places.are_several());
    }
}
