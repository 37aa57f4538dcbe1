// SPDX-License-Identifier: GPL-2.0-only
//! The cgroup tree as libvirt makes it: root, `machine.slice`, one group per VM. Each has the objects a
//! policy can reach (cgroup, task group, css set), at addresses that never change.
use crate::words::{TaskId, VmId};
use berth_policy::kview::{Cgroup, CssSet, KernfsNode, MmStruct, SignalStruct, TaskGroup};

/// Index of the root.
pub const ROOT: u32 = 0;
/// Index of `machine.slice`.
pub const MACHINE: u32 = 1;

#[derive(Debug)]
pub struct Group {
    pub name: String,
    pub parent: Option<u32>,
    pub level: u32,
    /// cpu.weight, 1..=10000.
    pub weight: u32,
    /// cpu.max and cpu.max.burst.
    pub bandwidth: Bandwidth,
    /// cpu.idle.
    pub idle: bool,
    /// cgroup.freeze.
    pub frozen: bool,
    /// ops.cgroup_init has been called.
    pub inited: bool,
    /// pid of the first thread of its VMs (their thread group).
    leader: Option<i32>,
    objects: *mut Objects,
}

/// What a policy can reach of a group, in one piece.
#[derive(Default)]
struct Objects {
    cgroup: Cgroup,
    node: KernfsNode,
    task_group: TaskGroup,
    set: CssSet,
}

/// Period of cpu.max if nothing else is said, µs.
pub const PERIOD_US: u64 = 100_000;

/// How much CPU time a group may use, as in `cpu.max` and `cpu.max.burst`; all in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    pub period_us: u64,
    /// Per period; none = no limit.
    pub quota_us: Option<u64>,
    /// What unused quota may add up to.
    pub burst_us: u64,
}

impl Default for Bandwidth {
    fn default() -> Self {
        Bandwidth {
            period_us: PERIOD_US,
            quota_us: None,
            burst_us: 0,
        }
    }
}

/// Why a cgroup stays as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CgroupError {
    #[error("VM number {0} does not exist on this machine: give one of the VMs it was made with")]
    NoSuchVm(VmId),
    #[error("weight {0}: a cgroup's weight is 1 to 10000")]
    Weight(u32),
    #[error(
        "VM number {0} is marked idle (cpu.idle): its weight cannot be set; clear the mark first"
    )]
    Idle(VmId),
    #[error("{0:?}: period 1 ms to 1 s, quota at least 1 ms, burst not above the quota")]
    Bandwidth(Bandwidth),
    #[error("the policy refuses to let task {task} move (cgroup_prep_move returned {errno})")]
    Refused { task: TaskId, errno: i32 },
}

/// What is known of a VM here.
#[derive(Debug)]
struct OfVm {
    group: u32,
    /// The group is not its own.
    shares: bool,
}

#[derive(Debug)]
pub struct CgroupTable {
    pub groups: Vec<Group>,
    vms: Vec<OfVm>,
    signal: *mut SignalStruct,
    mm: *mut MmStruct,
}

fn leak<T: Default>() -> *mut T {
    Box::into_raw(Box::default())
}

/// # Safety
/// `p` came from `leak` and is not used any more.
unsafe fn reclaim<T>(p: *mut T) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(p) });
}

impl Default for CgroupTable {
    fn default() -> Self {
        Self::new()
    }
}

impl CgroupTable {
    pub fn new() -> Self {
        let mut t = CgroupTable {
            groups: Vec::new(),
            vms: Vec::new(),
            signal: leak(),
            mm: leak(),
        };
        // SAFETY: just made.
        unsafe {
            (*t.mm).task_size = 1 << 47;
            (*t.signal).nr_threads = 1;
        }
        t.groups.reserve_exact(2);
        t.add("", None, 100, None);
        t.add("machine.slice", Some(ROOT), 100, None);
        t
    }

    fn add(&mut self, name: &str, parent: Option<u32>, weight: u32, quota_us: Option<u64>) -> u32 {
        let index = self.groups.len() as u32;
        let level = parent.map_or(0, |p| self.groups[p as usize].level + 1);
        let g = Group {
            name: name.to_string(),
            parent,
            level,
            weight,
            bandwidth: Bandwidth {
                quota_us,
                ..Bandwidth::default()
            },
            idle: false,
            frozen: false,
            inited: false,
            leader: None,
            objects: leak(),
        };
        // SAFETY: just made, nobody else knows them.
        unsafe {
            let o = g.objects;
            let cgroup = &raw mut (*o).cgroup;
            (*o).node.id = index as u64 + 1;
            (*o).cgroup.self_css.cgroup = cgroup;
            (*o).cgroup.self_css.id = index as i32 + 1;
            (*o).cgroup.level = level as i32;
            (*o).cgroup.kn = &raw mut (*o).node;
            (*o).cgroup.berth_index = index;
            (*o).task_group.css.cgroup = cgroup;
            (*o).task_group.css.id = index as i32 + 1;
            (*o).set.dfl_cgrp = cgroup;
        }
        self.groups.push(g);
        index
    }

    /// The group of the next VM (they are added in the order of their numbers).
    pub fn add_vm(&mut self, name: &str, weight: u32, quota_us: Option<u64>) -> u32 {
        let group = self.add(name, Some(MACHINE), weight, quota_us);
        self.vms.push(OfVm {
            group,
            shares: false,
        });
        group
    }

    /// The next VM is in a group of this name, which is not its own and has no weight or cap that is said.
    pub fn add_vm_within(&mut self, name: &str) -> u32 {
        let there = self.groups.iter().position(|g| g.name == name);
        let group = match there {
            Some(index) => index as u32,
            None => self.add(name, Some(MACHINE), 100, None),
        };
        self.vms.push(OfVm {
            group,
            shares: true,
        });
        group
    }

    /// Group of a VM; the root if it has none.
    pub fn of_vm(&self, vm: VmId) -> u32 {
        self.vms.get(vm as usize).map_or(ROOT, |vm| vm.group)
    }

    /// Its group may be others', too.
    pub fn shares(&self, vm: VmId) -> bool {
        self.vms.get(vm as usize).is_some_and(|vm| vm.shares)
    }

    /// Thread group of a VM's threads: the pid of its first one. VMs that share a group are one process.
    pub fn leader(&mut self, vm: VmId, pid: i32) -> i32 {
        let index = self.of_vm(vm);
        if index == ROOT {
            return pid;
        }
        *self.groups[index as usize].leader.get_or_insert(pid)
    }

    pub fn ptr(&self, index: u32) -> *mut Cgroup {
        let o = self.groups[index as usize].objects;
        // SAFETY: made in `add`, alive as long as the table; only the address is taken.
        unsafe { &raw mut (*o).cgroup }
    }

    /// Task group and css set of a group, as tasks point to them.
    pub fn views(&self, index: u32) -> (*mut TaskGroup, *mut CssSet) {
        let o = self.groups[index as usize].objects;
        // SAFETY: as `ptr`.
        unsafe { (&raw mut (*o).task_group, &raw mut (*o).set) }
    }

    /// The signal and mm structures all user threads share here.
    pub fn shared_objects(&self) -> (*mut SignalStruct, *mut MmStruct) {
        (self.signal, self.mm)
    }

    /// The group at an address that a policy gave us (of the cgroup or of its css).
    pub fn find(&self, addr: u64) -> Option<u32> {
        self.groups
            .iter()
            .position(|g| g.objects as u64 + std::mem::offset_of!(Objects, cgroup) as u64 == addr)
            .map(|i| i as u32)
    }

    /// The group of an id.
    pub fn by_id(&self, id: u64) -> Option<u32> {
        let index = id.checked_sub(1)?;
        (index < self.groups.len() as u64).then_some(index as u32)
    }

    /// Ancestor of a group at a level (itself included).
    pub fn ancestor(&self, index: u32, level: i32) -> Option<u32> {
        let mut at = index;
        loop {
            let g = &self.groups[at as usize];
            if g.level as i32 == level {
                return Some(at);
            }
            at = g.parent?;
        }
    }

    /// Every group after its parent.
    pub fn indices(&self) -> std::ops::Range<u32> {
        0..self.groups.len() as u32
    }

    /// Every group after its children, and children in the order in which they were made: the deepest level first,
    /// since all groups of a level have one parent.
    pub fn children_first(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.indices().collect();
        all.sort_by_key(|g| std::cmp::Reverse(self.groups[*g as usize].level));
        all
    }

    pub fn regions(&self) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        let shared = [
            (self.signal as *const u8, size_of::<SignalStruct>()),
            (self.mm as *const u8, size_of::<MmStruct>()),
        ];
        let own = (self.groups.iter()).map(|g| (g.objects as *const u8, size_of::<Objects>()));
        own.chain(shared)
    }
}

impl Drop for CgroupTable {
    fn drop(&mut self) {
        for g in &self.groups {
            // SAFETY: made by `leak`, dropped once; nothing outlives the machine.
            unsafe {
                reclaim(g.objects);
            }
        }
        // SAFETY: as above.
        unsafe {
            reclaim(self.signal);
            reclaim(self.mm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree() {
        let mut t = CgroupTable::new();
        let a = t.add_vm("web-1", 200, Some(50_000));
        let b = t.add_vm("web-2", 100, None);
        assert_eq!(t.children_first(), [a, b, MACHINE, ROOT]);
        assert_eq!(t.of_vm(0), a);
        assert_eq!(t.of_vm(7), ROOT);
        assert_eq!(t.groups[a as usize].level, 2);
        assert_eq!(t.ancestor(a, 1), Some(MACHINE));
        assert_eq!(t.ancestor(a, 0), Some(ROOT));
        assert_eq!(t.ancestor(a, 3), None);
        assert_eq!(t.find(t.ptr(a) as u64), Some(a));
        assert_eq!(t.by_id(3), Some(a));
        assert_eq!(t.by_id(0), None);
        assert_eq!(t.leader(0, 5), 5);
        assert_eq!(t.leader(0, 6), 5);
        let both = t.add_vm_within("both");
        assert_eq!(t.add_vm_within("both"), both);
        assert_eq!((t.of_vm(2), t.of_vm(3)), (both, both));
        assert!(t.shares(2) && t.shares(3) && !t.shares(0) && !t.shares(9));
        assert_eq!((t.leader(2, 7), t.leader(3, 8)), (7, 7));
    }
}
