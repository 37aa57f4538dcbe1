// SPDX-License-Identifier: GPL-2.0-only
//! Partial mode: only the named VMs' threads are given to the policy, by the scheduling class `SCHED_EXT`; all others
//! stay with the kernel's own scheduler. Undone thread by thread.
//!
//! A caution that the lab shows (`docs/agent.md`): the kernel's own scheduler ranks above sched_ext, so threads in this
//! class wait for every ordinary thread.
//!
//! Threads have no handle by which the class could be set; it goes by number. So a VM is acted on only when its process
//! has been held ([`Held`]) since before the scan that says it is this VM, and has not ended; and a thread only if it
//! is in the folder of that process, before and after. If a number changes hands between the last look and the system
//! call, it is given back.
use crate::register::{Entry, ThreadKey, VmKey};
use berth_host::pidfd::Held;
use berth_host::procfile::{self, PF_KTHREAD};
use berth_host::root::Root;
use std::collections::{BTreeMap, BTreeSet};

/// Number of the class, by `include/uapi/linux/sched.h`.
const SCHED_EXT: i32 = 7;

/// Threads that were given to the policy.
#[derive(Debug)]
pub struct Partial {
    root: Root,
    class: i32,
    /// The VMs, each held since before the last scan or earlier.
    held: BTreeMap<VmKey, Held>,
    /// By thread, its VM.
    given: BTreeMap<ThreadKey, VmKey>,
    /// Threads that the kernel did not let go; reported once.
    refused: BTreeSet<ThreadKey>,
}

impl Partial {
    pub fn new(root: Root) -> Partial {
        Partial::with_class(root, SCHED_EXT)
    }

    /// With another scheduling class in place of `SCHED_EXT`: for tests on kernels that do not have it.
    pub fn with_class(root: Root, class: i32) -> Partial {
        Partial {
            root,
            class,
            held: BTreeMap::new(),
            given: BTreeMap::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Gives the threads of these VMs to the policy, and back those that are no longer among them. A VM that was not
    /// there the last time is given its turn the next time. Returns how many threads the kernel refused now.
    pub fn give(&mut self, vms: &[&Entry]) -> usize {
        let mut wanted: BTreeMap<ThreadKey, VmKey> = BTreeMap::new();
        let mut held = BTreeMap::new();
        for vm in vms {
            match self.held.remove(&vm.key) {
                Some(process) if !process.has_ended() => {
                    wanted.extend(vm.threads.keys().map(|key| (*key, vm.key)));
                    held.insert(vm.key, process);
                }
                _ => {
                    if let Ok(process) = Held::open(vm.key.pid, vm.key.start) {
                        held.insert(vm.key, process);
                    }
                }
            }
        }
        let others = std::mem::replace(&mut self.held, held);
        let gone: Vec<(ThreadKey, VmKey)> = self
            .given
            .iter()
            .filter(|(key, vm)| wanted.get(key) != Some(vm))
            .map(|(key, vm)| (*key, *vm))
            .collect();
        for (key, vm) in gone {
            // With the process its threads have ended.
            if let Some(process) = others.get(&vm).or(self.held.get(&vm)) {
                self.put(process, vm, key, self.class, libc::SCHED_OTHER);
            }
            self.given.remove(&key);
        }
        self.refused.retain(|key| wanted.contains_key(key));
        let mut refused = 0;
        for (key, vm) in wanted {
            if self.given.contains_key(&key) || self.refused.contains(&key) {
                continue;
            }
            let Some(process) = self.held.get(&vm) else {
                continue;
            };
            if self.put(process, vm, key, libc::SCHED_OTHER, self.class) {
                self.given.insert(key, vm);
            } else {
                refused += 1;
                self.refused.insert(key);
            }
        }
        refused
    }

    /// How many threads the policy has been given.
    pub fn given(&self) -> usize {
        self.given.len()
    }

    /// Moves a thread from one class to another; false if it is in neither or gone. Its nice value stays.
    fn put(&self, process: &Held, vm: VmKey, key: ThreadKey, from: i32, to: i32) -> bool {
        // SAFETY: plain system calls; `parameter` outlives them.
        let class = |class: Option<i32>| unsafe {
            let parameter = std::mem::zeroed::<libc::sched_param>();
            match class {
                Some(class) => libc::sched_setscheduler(key.tid, class, &parameter),
                None => libc::sched_getscheduler(key.tid),
            }
        };
        let is_it = || self.is_still(vm, key) && !process.has_ended();
        if !is_it() {
            return false;
        }
        match class(None) {
            // A thread is born in the class of the one that made it.
            now if now == to => return is_it(),
            now if now != from => return false,
            _ => {}
        }
        if class(Some(to)) != 0 {
            return false;
        }
        // The number may have gone to a stranger in between: give it back what it had.
        if !is_it() {
            class(Some(from));
            return false;
        }
        true
    }

    /// Whether a number is that of this thread of the VM, or of one that works for it: a kernel thread, or a child's.
    fn is_still(&self, vm: VmKey, key: ThreadKey) -> bool {
        let Ok(proc) = self.root.proc() else {
            return false;
        };
        let mut buf = [0; 4096];
        let mut started = |path: String| {
            let text = proc.read_record(&path, &mut buf).ok()?;
            let stat = procfile::stat(text)?;
            let works_for_it = stat.flags & PF_KTHREAD != 0 || stat.ppid == vm.pid;
            Some((stat.start == key.start, works_for_it))
        };
        match started(format!("{}/task/{}/stat", vm.pid, key.tid)) {
            Some((same, _)) => same,
            None => started(format!("{}/stat", key.tid)) == Some((true, true)),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.give(&[]);
    }
}
