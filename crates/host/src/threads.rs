// SPDX-License-Identifier: GPL-2.0-only
//! The threads of one process, followed from scan to scan.
use crate::dir::{Dir, Short};
use crate::procfile::{self, PF_IO_WORKER, PF_USER_WORKER, PF_VCPU, main_cgroup, number};
use crate::roles::Facts;
use std::collections::BTreeMap;
use std::io;

/// A thread and its inode. The inode tells cheaply that a number still means the same thread.
#[derive(Clone, Debug)]
pub struct Seen {
    pub inode: u64,
    pub facts: Facts,
}

/// The threads of a process.
#[derive(Debug, Default)]
pub struct Threads {
    /// By number.
    pub seen: Vec<Seen>,
    /// Of the folder `task` before it was listed last ([`Dir::links`]).
    links: u64,
}

impl Threads {
    /// Brings the list up to date by the folder `task`, which is `path` below `at`; gives true if anything changed.
    /// Unless `list` asks for it, nothing is listed as long as there are as many threads as before.
    ///
    /// # Errors
    /// The process has ended.
    pub fn follow(&mut self, at: &Dir, path: &str, list: bool) -> io::Result<bool> {
        let links = at.links(path)?;
        // 1: this file system does not count.
        if !list && links > 2 && links == self.links {
            return Ok(false);
        }
        let changed = follow(&at.dir(path)?, &mut self.seen)?;
        self.links = links;
        Ok(changed)
    }
}

/// Brings the list of a process's threads up to date, by its folder `task`; gives true if any came, went, or is another
/// now.
///
/// # Errors
/// The process has ended.
fn follow(task: &Dir, seen: &mut Vec<Seen>) -> io::Result<bool> {
    let mut now = Vec::with_capacity(seen.len());
    task.list(|name, inode| {
        if let Some(tid) = number(name).and_then(|n| i32::try_from(n).ok()) {
            now.push((tid, inode));
        }
    })?;
    now.sort_unstable();
    let same = |s: &Seen, n: &(i32, u64)| (s.facts.tid, s.inode) == *n;
    if now.len() == seen.len() && seen.iter().zip(&now).all(|(s, n)| same(s, n)) {
        return Ok(false);
    }
    let mut buf = [0; 4096];
    let mut old: BTreeMap<i32, Seen> = seen.drain(..).map(|s| (s.facts.tid, s)).collect();
    for (tid, inode) in now {
        if let Some(known) = old.remove(&tid).filter(|s| s.inode == inode) {
            seen.push(known);
        } else if let Some(facts) = first_look(task, tid, &mut buf) {
            seen.push(Seen { inode, facts });
        }
    }
    Ok(true)
}

/// What a thread's `stat` says.
fn first_look(task: &Dir, tid: i32, buf: &mut [u8; 4096]) -> Option<Facts> {
    let path = Short::of(format_args!("{tid}/stat"));
    let text = task.read_record(&path, buf).ok()?;
    let stat = procfile::stat(text)?;
    Some(Facts {
        tid,
        start: stat.start,
        comm: stat.comm.to_vec(),
        flags: stat.flags,
        guest: stat.guest > 0 || stat.flags & PF_VCPU != 0,
        ..Facts::default()
    })
}

/// Looks again at threads whose role is not settled: name (VMMs name a thread soon after its start), guest time,
/// whether it is in `KVM_RUN`, and, if `cgroups`, the last part of its cgroup. What `just_read` says is not read again.
pub fn look_closer(
    process: &Dir,
    seen: &mut [Seen],
    vcpu_fds: &BTreeMap<i32, u32>,
    cgroups: bool,
    just_read: bool,
) {
    let mut buf = [0; 4096];
    let Ok(task) = process.dir("task") else {
        return;
    };
    // Threads are made in the order of their numbers, vCPUs early: what comes behind the last one need not be asked.
    let known = seen.iter().filter(|s| s.facts.kvm_run.is_some()).count();
    let mut missing = vcpu_fds.len().saturating_sub(known);
    for Seen { facts, .. } in seen {
        if facts.debugfs.is_some() || facts.flags & (PF_IO_WORKER | PF_USER_WORKER) != 0 {
            continue;
        }
        let tid = facts.tid;
        if !just_read
            && let Ok(text) = task.read_record(&Short::of(format_args!("{tid}/stat")), &mut buf)
            && let Some(stat) = procfile::stat(text)
            && stat.start == facts.start
        {
            facts.guest |= stat.guest > 0 || stat.flags & PF_VCPU != 0;
            if facts.comm != stat.comm {
                facts.comm = stat.comm.to_vec();
            }
        }
        if facts.kvm_run.is_none()
            && missing > 0
            && let Ok(text) = task.read_record(&Short::of(format_args!("{tid}/syscall")), &mut buf)
        {
            let fd = procfile::kvm_run_fd(text);
            facts.kvm_run = fd.and_then(|fd| vcpu_fds.get(&fd).copied());
            missing -= usize::from(facts.kvm_run.is_some());
        }
        if cgroups
            && facts.kvm_run.is_none()
            && let Ok(text) = task.read_record(&Short::of(format_args!("{tid}/cgroup")), &mut buf)
        {
            facts.cgroup = main_cgroup(text).rsplit('/').next().map(String::from);
        }
    }
}
