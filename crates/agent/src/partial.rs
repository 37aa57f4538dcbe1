// SPDX-License-Identifier: GPL-2.0-only
//! Partial mode: only the named VMs' threads are given to the policy, by the scheduling class `SCHED_EXT`; all others
//! stay with the kernel's own scheduler. Undone thread by thread.
//!
//! A caution that the lab shows (`docs/agent.md`): the kernel's own scheduler ranks above sched_ext, so threads in this
//! class wait for every ordinary thread.
use crate::register::{Entry, ThreadKey};
use berth_host::procfile;
use berth_host::root::Root;
use std::collections::BTreeSet;

/// Number of the class, by `include/uapi/linux/sched.h`.
const SCHED_EXT: i32 = 7;

/// Threads that were given to the policy.
#[derive(Debug)]
pub struct Partial {
    root: Root,
    given: BTreeSet<ThreadKey>,
    /// Threads that the kernel did not let go; reported once.
    refused: BTreeSet<ThreadKey>,
}

impl Partial {
    pub fn new(root: Root) -> Partial {
        Partial {
            root,
            given: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Gives the threads of these VMs to the policy, and back those that are no longer among them. Returns how many the
    /// kernel refused now.
    pub fn give(&mut self, vms: &[&Entry]) -> usize {
        let wanted: BTreeSet<ThreadKey> = vms
            .iter()
            .flat_map(|vm| vm.threads.keys().copied())
            .collect();
        let gone: Vec<ThreadKey> = self.given.difference(&wanted).copied().collect();
        for key in gone {
            self.put(key, SCHED_EXT, libc::SCHED_OTHER);
            self.given.remove(&key);
        }
        self.refused.retain(|key| wanted.contains(key));
        let mut refused = 0;
        for key in wanted {
            if self.given.contains(&key) || self.refused.contains(&key) {
                continue;
            }
            match self.put(key, libc::SCHED_OTHER, SCHED_EXT) {
                true => self.given.insert(key),
                false => {
                    refused += 1;
                    self.refused.insert(key)
                }
            };
        }
        refused
    }

    /// Moves a thread from one class to another; false if it is in neither or gone. Its nice value stays.
    fn put(&self, key: ThreadKey, from: i32, to: i32) -> bool {
        // SAFETY: plain system calls; `parameter` outlives them.
        let class = |class: Option<i32>| unsafe {
            let parameter = std::mem::zeroed::<libc::sched_param>();
            match class {
                Some(class) => libc::sched_setscheduler(key.tid, class, &parameter),
                None => libc::sched_getscheduler(key.tid),
            }
        };
        if !self.is_still(key) || class(None) != from || class(Some(to)) != 0 {
            return false;
        }
        // The number may have gone to a stranger in between: give it back what it had.
        if !self.is_still(key) {
            class(Some(from));
            return false;
        }
        true
    }

    fn is_still(&self, key: ThreadKey) -> bool {
        let mut buf = [0; 4096];
        let Ok(folder) = self.root.proc().and_then(|p| p.dir(&key.tid.to_string())) else {
            return false;
        };
        let stat = folder.read_record("stat", &mut buf).ok();
        stat.and_then(procfile::stat)
            .is_some_and(|s| s.start == key.start)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.give(&[]);
    }
}
