// SPDX-License-Identifier: GPL-2.0-only
//! Tasks and cgroups: find, hold, walk. Objects live as long as the machine knows them, so holding one is
//! counted only.
use super::kernel_fns;
use crate::machine::cgroup::ROOT;
use crate::machine::task::Life;
use crate::scx::consts::*;
use crate::scx::kernel::Handle;
use crate::words::{SchedClass, TaskId};

impl Handle {
    /// The task an interrupt or callback found on the executing CPU.
    fn current(self) -> TaskId {
        self.cpus[self.exec as usize].curr
    }

    fn by_pid(self, pid: i32) -> u64 {
        self.population.pids.get(&pid).map_or(0, |t| {
            let cpu = self.tasks.hot[*t as usize].cpu;
            if self.cpus[cpu as usize].curr == *t {
                self.sync_to_last_tick(cpu);
            }
            self.tasks.ptr(*t) as u64
        })
    }

    /// Thread group of a task; its own pid if no policy can ask.
    fn tgid(self, task: TaskId) -> i32 {
        let rest = self.tasks.rest(task);
        rest.map_or(self.tasks.ts(task).pid, |rest| rest.tgid)
    }

    fn cgroup_arg(self, addr: u64) -> Option<u32> {
        self.cgroups.find(addr)
    }

    fn cgroup_of(self, task: TaskId) -> u32 {
        self.tasks.hot[task as usize].cgroup
    }
}

/// `struct bpf_iter_task` (24 bytes) and `bpf_iter_css` (24 bytes) as this kernel uses them.
#[repr(C)]
struct Walk {
    next: u32,
    flags: u32,
    of: u64,
    pad: u64,
}
const _: () = assert!(size_of::<Walk>() == 24);

const ALL_PROCS: u32 = 0;
const ALL_THREADS: u32 = 1;
const PROC_THREADS: u32 = 2;

const SELF_ONLY: u32 = 1;
const DESCENDANTS_PRE: u32 = 2;
const DESCENDANTS_POST: u32 = 3;
const ANCESTORS_UP: u32 = 4;
/// The walk has ended.
const END: u32 = u32::MAX;

kernel_fns! {
    fn bpf_task_from_pid(k, pid) { k.by_pid(pid as i32) }
    fn bpf_task_from_vpid(k, pid) { k.by_pid(pid as i32) }
    fn bpf_task_acquire(k, p) {
        k.tasks.find(p).map_or(0, |_| p)
    }
    fn bpf_task_release(_k, _p) { 0 }
    fn bpf_get_current_pid_tgid(k) {
        let task = k.current();
        ((k.tgid(task) as u32 as u64) << 32) | k.tasks.ts(task).pid as u32 as u64
    }
    fn bpf_get_current_comm(k, buf, size) {
        let comm = k.tasks.ts(k.current()).comm;
        let n = (size as usize).min(16);
        if buf == 0 || n == 0 {
            return -EINVAL as u64;
        }
        // SAFETY: the policy's buffer of `size` bytes.
        unsafe { std::ptr::copy_nonoverlapping(comm.as_ptr(), buf as *mut u8, n) };
        0
    }
    fn bpf_get_current_task(k) { k.tasks.ptr(k.current()) as u64 }
    fn bpf_get_current_task_btf(k) { k.tasks.ptr(k.current()) as u64 }
    fn bpf_get_current_cgroup_id(k) { k.cgroup_of(k.current()) as u64 + 1 }
    fn bpf_task_get_cgroup1(_k, _p, _hierarchy) {
        // There is no version 1 hierarchy.
        0
    }
    fn bpf_cgroup_acquire(k, cgrp) { k.cgroup_arg(cgrp).map_or(0, |_| cgrp) }
    fn bpf_cgroup_release(_k, _cgrp) { 0 }
    fn bpf_cgroup_ancestor(k, cgrp, level) {
        let index = k.cgroup_arg(cgrp).and_then(|g| k.cgroups.ancestor(g, level as i32));
        index.map_or(0, |g| k.cgroups.ptr(g) as u64)
    }
    fn bpf_cgroup_from_id(k, id) {
        k.cgroups.by_id(id).map_or(0, |g| k.cgroups.ptr(g) as u64)
    }
    fn bpf_task_under_cgroup(k, p, ancestor) {
        let (Some(task), Some(top)) = (k.tasks.find(p), k.cgroup_arg(ancestor)) else {
            return 0;
        };
        let level = k.cgroups.groups[top as usize].level as i32;
        (k.cgroups.ancestor(k.cgroup_of(task), level) == Some(top)) as u64
    }
    fn scx_bpf_task_cgroup(k, p) {
        let task = k.task_arg("scx_bpf_task_cgroup", p);
        let g = task.map_or(ROOT, |t| k.cgroup_of(t));
        k.cgroups.ptr(g) as u64
    }
    fn bpf_iter_task_new(k, it, of, flags) {
        // SAFETY: the policy's iterator on its stack (null is refused).
        let Some(w) = (unsafe { (it as *mut Walk).as_mut() }) else {
            return -EINVAL as u64;
        };
        *w = Walk { next: END, flags: flags as u32, of: 0, pad: 0 };
        match flags as u32 {
            ALL_PROCS | ALL_THREADS => (),
            PROC_THREADS => match k.tasks.find(of) {
                Some(t) => w.of = k.tgid(t) as u64,
                None => return -EINVAL as u64,
            },
            _ => return -EINVAL as u64,
        }
        w.next = k.cpus.len() as u32;
        0
    }
    fn bpf_iter_task_next(k, it) {
        // SAFETY: the policy's iterator on its stack (null is refused).
        let Some(w) = (unsafe { (it as *mut Walk).as_mut() }) else {
            return 0;
        };
        while (w.next as usize) < k.tasks.len() {
            let id = w.next;
            w.next += 1;
            let hot = &k.tasks.hot[id as usize];
            if matches!(hot.life, Life::Free | Life::Dead) || hot.class == SchedClass::Stop {
                continue;
            }
            let ts = k.tasks.ts(id);
            let wanted = match w.flags {
                ALL_PROCS => ts.pid == k.tgid(id),
                PROC_THREADS => k.tgid(id) as u64 == w.of,
                _ => true,
            };
            if wanted {
                return k.tasks.ptr(id) as u64;
            }
        }
        0
    }
    fn bpf_iter_task_destroy(_k, _it) { 0 }
    fn bpf_iter_css_new(k, it, start, flags) {
        // SAFETY: the policy's iterator on its stack (null is refused).
        let Some(w) = (unsafe { (it as *mut Walk).as_mut() }) else {
            return -EINVAL as u64;
        };
        *w = Walk { next: END, flags: flags as u32, of: 0, pad: 0 };
        // A css is the beginning of its cgroup.
        let Some(top) = k.cgroup_arg(start) else {
            return -EINVAL as u64;
        };
        w.of = top as u64;
        w.next = match flags as u32 {
            SELF_ONLY | DESCENDANTS_PRE | ANCESTORS_UP => top,
            DESCENDANTS_POST => k.cgroups.groups.len() as u32 - 1,
            _ => return -EINVAL as u64,
        };
        0
    }
    fn bpf_iter_css_next(k, it) {
        // SAFETY: the policy's iterator on its stack (null is refused).
        let Some(w) = (unsafe { (it as *mut Walk).as_mut() }) else {
            return 0;
        };
        let top = w.of as u32;
        let nr = k.cgroups.groups.len() as u32;
        // What lies on the policy's stack can be anything.
        if top >= nr {
            return 0;
        }
        loop {
            let at = w.next;
            if at >= nr {
                return 0;
            }
            // Groups are numbered parents first, and all below one parent here: numbers are a pre-order, and
            // backwards a post-order.
            w.next = match w.flags {
                DESCENDANTS_PRE => at + 1,
                DESCENDANTS_POST => at.checked_sub(1).unwrap_or(END),
                ANCESTORS_UP => k.cgroups.groups[at as usize].parent.unwrap_or(END),
                _ => END,
            };
            let level = k.cgroups.groups[top as usize].level as i32;
            if w.flags == ANCESTORS_UP || k.cgroups.ancestor(at, level) == Some(top) {
                return k.cgroups.ptr(at) as u64;
            }
        }
    }
    fn bpf_iter_css_destroy(_k, _it) { 0 }
}
