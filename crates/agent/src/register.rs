// SPDX-License-Identifier: GPL-2.0-only
//! What a policy has been told of VMs and threads, and how it is told what changed.
//!
//! The one place that fills a policy's identity maps: the agent gives it what discovery found, the lab's threads what
//! the scenario says.
use crate::backend::Trouble;
use berth_identity::record::{MAX_THREADS, MAX_VMS};
use berth_identity::{Class, ThreadRecord, VmId, VmRecord};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Tells a VM from all others, before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VmKey {
    /// The VMM's process; in the lab's threads the VM's number.
    pub pid: i32,
    /// Start of the process, in clock ticks since boot.
    pub start: u64,
}

/// Tells a thread from all others: a number alone is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ThreadKey {
    pub tid: i32,
    /// In clock ticks since boot.
    pub start: u64,
}

/// A VM as a policy should know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: VmKey,
    pub name: String,
    /// What the policy knows it by.
    pub id: VmId,
    pub class: Class,
    /// 1..=10000, of the whole VM, as `cpu.weight`.
    pub weight: u32,
    /// Thousandths of a CPU.
    pub cap_milli: Option<u32>,
    pub node: Option<u32>,
    /// The path of its cgroup, if that is its own.
    pub cgroup: Option<String>,
    pub vcpus: u32,
    pub threads: BTreeMap<ThreadKey, ThreadRecord>,
}

/// Where records go.
pub trait Sink {
    /// # Errors
    /// The policy does not take it.
    fn set_vm(&mut self, id: VmId, vm: &VmRecord) -> Result<(), Trouble>;
    /// # Errors
    /// The policy does not take it.
    fn remove_vm(&mut self, id: VmId) -> Result<(), Trouble>;
    /// # Errors
    /// The policy does not take it.
    fn set_thread(&mut self, tid: u32, thread: &ThreadRecord) -> Result<(), Trouble>;
    /// # Errors
    /// The policy does not take it.
    fn remove_thread(&mut self, tid: u32) -> Result<(), Trouble>;
    /// # Errors
    /// The policy does not take it.
    fn identities_changed(&mut self) -> Result<(), Trouble>;
}

/// What an update changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub vms_added: usize,
    pub vms_changed: usize,
    pub vms_removed: usize,
    pub threads_added: usize,
    pub threads_removed: usize,
    /// Left out because the policy's maps are full.
    pub left_out: usize,
}

impl Changes {
    /// Whether the policy has been told anything.
    pub fn any(&self) -> bool {
        self.vms_added
            + self.vms_changed
            + self.vms_removed
            + self.threads_added
            + self.threads_removed
            > 0
    }
}

#[derive(Debug)]
struct Told {
    id: VmId,
    record: VmRecord,
}

/// What one loaded policy has been told; a new one for each load.
#[derive(Debug)]
pub struct Register {
    vms: BTreeMap<VmKey, Told>,
    threads: BTreeMap<i32, (u64, ThreadRecord)>,
    /// Slots in use, and how often each has been given out.
    slots: BTreeSet<u32>,
    generations: BTreeMap<u32, u32>,
    most_vms: usize,
}

impl Default for Register {
    fn default() -> Register {
        Register::new(MAX_VMS)
    }
}

impl Register {
    /// For a policy whose maps hold so many VMs, the host not counted.
    pub fn new(most_vms: usize) -> Register {
        Register {
            vms: BTreeMap::new(),
            threads: BTreeMap::new(),
            slots: BTreeSet::new(),
            generations: BTreeMap::new(),
            most_vms: most_vms.min(MAX_VMS),
        }
    }

    /// Tells the policy what is different from last time. Slots are given in the order of the entries.
    ///
    /// # Errors
    /// The policy does not take a record; what was told until then stays told.
    pub fn update(&mut self, policy: &mut dyn Sink, entries: &[Entry]) -> Result<Changes, Trouble> {
        let mut changes = Changes::default();
        self.forget(policy, entries, &mut changes)?;
        for entry in entries {
            if !self.tell_vm(policy, entry, &mut changes)? {
                continue;
            }
            for (key, record) in &entry.threads {
                let known = self.threads.get(&key.tid);
                if known == Some(&(key.start, record.clone())) {
                    continue;
                }
                if known.is_none() && self.threads.len() >= MAX_THREADS {
                    changes.left_out += 1;
                    continue;
                }
                policy.set_thread(key.tid.unsigned_abs(), record)?;
                self.threads.insert(key.tid, (key.start, record.clone()));
                changes.threads_added += 1;
            }
        }
        // Threads that run already are looked at again.
        if changes.any() {
            policy.identities_changed()?;
        }
        Ok(changes)
    }

    /// The slot of a VM that the policy knows.
    pub fn slot(&self, key: VmKey) -> Option<u32> {
        Some(self.vms.get(&key)?.record.slot)
    }

    /// VMs and threads that the policy knows.
    pub fn len(&self) -> (usize, usize) {
        (self.vms.len(), self.threads.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    fn forget(
        &mut self,
        policy: &mut dyn Sink,
        entries: &[Entry],
        changes: &mut Changes,
    ) -> Result<(), Trouble> {
        let stays: BTreeMap<VmKey, VmId> = entries.iter().map(|e| (e.key, e.id)).collect();
        let gone: Vec<VmKey> = self
            .vms
            .iter()
            .filter(|(key, told)| stays.get(key) != Some(&told.id))
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            if let Some(told) = self.vms.get(&key) {
                policy.remove_vm(told.id)?;
                self.slots.remove(&told.record.slot);
                self.vms.remove(&key);
                changes.vms_removed += 1;
            }
        }
        let alive: BTreeSet<ThreadKey> = entries
            .iter()
            .flat_map(|e| e.threads.keys().copied())
            .collect();
        let gone: Vec<i32> = self
            .threads
            .iter()
            .filter(|(tid, (start, _))| {
                !alive.contains(&ThreadKey {
                    tid: **tid,
                    start: *start,
                })
            })
            .map(|(tid, _)| *tid)
            .collect();
        for tid in gone {
            policy.remove_thread(tid.unsigned_abs())?;
            self.threads.remove(&tid);
            changes.threads_removed += 1;
        }
        Ok(())
    }

    /// False if there is no room for it.
    fn tell_vm(
        &mut self,
        policy: &mut dyn Sink,
        entry: &Entry,
        changes: &mut Changes,
    ) -> Result<bool, Trouble> {
        let known = self.vms.get(&entry.key);
        let (slot, generation) = match known {
            Some(told) => (told.record.slot, told.record.generation),
            None => {
                let free = (1..).find(|slot| !self.slots.contains(slot)).unwrap_or(1);
                if free as usize > self.most_vms {
                    changes.left_out += 1;
                    return Ok(false);
                }
                (free, self.generations.get(&free).map_or(1, |g| g + 1))
            }
        };
        let record = VmRecord {
            slot,
            generation,
            class: entry.class,
            weight: entry.weight.clamp(1, 10_000),
            cap_milli: entry.cap_milli,
            node: entry.node,
            vcpus: entry.vcpus,
        };
        match known {
            Some(told) if told.record == record => return Ok(true),
            Some(_) => changes.vms_changed += 1,
            None => changes.vms_added += 1,
        }
        policy.set_vm(entry.id, &record)?;
        self.slots.insert(slot);
        self.generations.insert(slot, generation);
        let told = Told {
            id: entry.id,
            record,
        };
        self.vms.insert(entry.key, told);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_identity::Role;

    /// A policy's maps, as its programs see them.
    #[derive(Default)]
    struct Maps {
        vms: BTreeMap<u64, VmRecord>,
        threads: BTreeMap<u32, ThreadRecord>,
        changed: u32,
    }

    impl Sink for Maps {
        fn set_vm(&mut self, id: VmId, vm: &VmRecord) -> Result<(), Trouble> {
            self.vms.insert(id.key(), vm.clone());
            Ok(())
        }
        fn remove_vm(&mut self, id: VmId) -> Result<(), Trouble> {
            self.vms.remove(&id.key());
            Ok(())
        }
        fn set_thread(&mut self, tid: u32, thread: &ThreadRecord) -> Result<(), Trouble> {
            self.threads.insert(tid, thread.clone());
            Ok(())
        }
        fn remove_thread(&mut self, tid: u32) -> Result<(), Trouble> {
            self.threads.remove(&tid);
            Ok(())
        }
        fn identities_changed(&mut self) -> Result<(), Trouble> {
            self.changed += 1;
            Ok(())
        }
    }

    fn entry(pid: i32, cgroup: u64, tids: &[(i32, u64)]) -> Entry {
        let thread = |(tid, start): &(i32, u64)| {
            let key = ThreadKey {
                tid: *tid,
                start: *start,
            };
            let record = ThreadRecord {
                role: Role::Vcpu(0),
                io: false,
                score_milli: None,
            };
            (key, record)
        };
        Entry {
            key: VmKey { pid, start: 1 },
            name: format!("vm-{pid}"),
            id: VmId::Cgroup(cgroup),
            class: Class::Batch,
            weight: 100,
            cap_milli: None,
            node: None,
            cgroup: None,
            vcpus: 1,
            threads: tids.iter().map(thread).collect(),
        }
    }

    #[test]
    fn the_policy_is_told_what_changed_and_nothing_else() {
        let (mut maps, mut register) = (Maps::default(), Register::default());
        let mut all = vec![
            entry(10, 100, &[(11, 1), (12, 1)]),
            entry(20, 200, &[(21, 1)]),
        ];
        let changes = register.update(&mut maps, &all).unwrap();
        assert_eq!((changes.vms_added, changes.threads_added), (2, 3));
        assert_eq!((maps.vms[&100].slot, maps.vms[&200].slot), (1, 2));
        assert!(!register.update(&mut maps, &all).unwrap().any());
        assert_eq!(maps.changed, 1);
        all[0].weight = 300;
        let changes = register.update(&mut maps, &all).unwrap();
        assert_eq!((changes.vms_changed, changes.threads_added), (1, 0));
        assert_eq!((maps.vms[&100].weight, maps.vms[&100].slot), (300, 1));
        assert_eq!(maps.changed, 2);
    }

    #[test]
    fn a_slot_is_used_again_with_another_generation() {
        let (mut maps, mut register) = (Maps::default(), Register::default());
        let (a, b) = (entry(10, 100, &[(11, 1)]), entry(20, 200, &[]));
        register.update(&mut maps, &[a, b.clone()]).unwrap();
        let changes = register
            .update(&mut maps, std::slice::from_ref(&b))
            .unwrap();
        assert_eq!((changes.vms_removed, changes.threads_removed), (1, 1));
        assert!(maps.threads.is_empty() && !maps.vms.contains_key(&100));
        // The same number and cgroup, but another process.
        let mut again = entry(10, 100, &[(11, 7)]);
        again.key.start = 9;
        register.update(&mut maps, &[b, again]).unwrap();
        let vm = &maps.vms[&100];
        assert_eq!((vm.slot, vm.generation), (1, 2));
        assert_eq!(register.len(), (2, 1));
    }

    #[test]
    fn a_process_that_took_the_cgroup_at_once_is_told_anew() {
        let (mut maps, mut register) = (Maps::default(), Register::default());
        register
            .update(&mut maps, &[entry(10, 100, &[(11, 1)])])
            .unwrap();
        let mut next = entry(10, 100, &[(11, 2)]);
        next.key.start = 2;
        let changes = register.update(&mut maps, &[next]).unwrap();
        assert_eq!((changes.vms_added, changes.vms_removed), (1, 1));
        assert_eq!(maps.vms[&100].generation, 2);
        assert!(maps.threads.contains_key(&11));
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let (mut maps, mut register) = (Maps::default(), Register::new(1));
        let all = [entry(10, 100, &[(11, 1)]), entry(20, 200, &[(21, 1)])];
        assert_eq!(register.update(&mut maps, &all).unwrap().left_out, 1);
        assert_eq!((maps.vms.len(), maps.threads.len()), (1, 1));
    }
}
