// SPDX-License-Identifier: GPL-2.0-only
//! Cgroups that are made for a VM, and which one its process is in.
//!
//! Only a process all of whose threads are in one group is moved: where threads have groups of their own, somebody
//! manages them.
use crate::error::Error;
use crate::knob::{HERE, Knob, MADE, NOWHERE};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, mkdirat, openat2, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

const PROCS: &str = "cgroup.procs";
/// Bytes of a list of processes that are read at once.
const MOST: u64 = 1 << 20;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// The folder that a group is in, and its own name, which has to be one that is made here.
fn place<'g>(cgroups: &OwnedFd, knob: &Knob, group: &'g str) -> Result<(OwnedFd, &'g str), Error> {
    let group = group.trim_matches('/');
    let (above, name) = group.rsplit_once('/').unwrap_or((".", group));
    if !name.starts_with(MADE) {
        return Err(Error::refused(knob, "it is no group that is made here"));
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let above = openat2(cgroups, above, flags, Mode::empty(), BENEATH);
    let above = above.map_err(|e| match e {
        Errno::NOENT => Error::gone(knob),
        e => Error::refused(knob, e),
    })?;
    Ok((above, name))
}

/// Whether a group is there.
pub fn read(cgroups: &OwnedFd, knob: &Knob, group: &str) -> Result<String, Error> {
    let (above, name) = place(cgroups, knob, group)?;
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(above.as_fd(), name, flags, Mode::empty(), BENEATH) {
        Ok(_) => Ok(HERE.into()),
        Err(Errno::NOENT) => Ok(NOWHERE.into()),
        Err(e) => Err(Error::refused(knob, e)),
    }
}

/// Processes that are born in a group faster than they can be led out of it are given up after so many rounds.
const ROUNDS: usize = 20;

/// Makes it, or removes it. Whoever was born in one that is removed goes where the VM came from, the group above.
pub fn write(cgroups: &OwnedFd, knob: &Knob, group: &str, value: &str) -> Result<(), Error> {
    let (above, name) = place(cgroups, knob, group)?;
    let done = match value {
        HERE => mkdirat(&above, name, Mode::from_raw_mode(0o755)),
        NOWHERE => remove(&above, name),
        _ => return Err(Error::refused(knob, format!("{value:?} is neither"))),
    };
    match done {
        Ok(()) | Err(Errno::EXIST) if value == HERE => Ok(()),
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(Error::refused(knob, "there is still something in it")),
        Err(e) => Err(Error::refused(knob, e)),
    }
}

fn remove(above: &OwnedFd, name: &str) -> Result<(), Errno> {
    for _ in 0..ROUNDS {
        match unlinkat(above, name, AtFlags::REMOVEDIR) {
            Err(Errno::BUSY) => lead_out(above, name)?,
            done => return done,
        }
    }
    Err(Errno::BUSY)
}

/// Puts all processes of a group into the one above.
fn lead_out(above: &OwnedFd, name: &str) -> Result<(), Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let from = Path::new(name).join(PROCS);
    let from = openat2(above, &from, flags | OFlags::RDONLY, Mode::empty(), BENEATH)?;
    let mut text = String::new();
    let read = File::from(from).take(MOST).read_to_string(&mut text);
    read.map_err(|_| Errno::BUSY)?;
    let to = openat2(above, PROCS, flags | OFlags::WRONLY, Mode::empty(), BENEATH)?;
    let mut to = File::from(to);
    // Whoever has no number here stands as 0, by which the kernel would take this process.
    let pids = text.lines().filter_map(|l| l.parse::<i32>().ok());
    for pid in pids.filter(|pid| *pid > 0) {
        // One that has ended meanwhile is out, too.
        let _ = to.write_all(pid.to_string().as_bytes());
    }
    Ok(())
}

/// The group of a process in a hierarchy: `cpuset` and the like in version 1, empty in version 2.
pub fn member(proc: &Path, knob: &Knob, pid: i32, hierarchy: &str) -> Result<String, Error> {
    let text = std::fs::read_to_string(proc.join(format!("{pid}/cgroup")));
    let text = text.map_err(|_| Error::gone(knob))?;
    let path = text.lines().find_map(|line| {
        let mut words = line.splitn(3, ':');
        let (number, controllers, path) = (words.next()?, words.next()?, words.next()?);
        let it = match hierarchy {
            "" => number == "0" && controllers.is_empty(),
            name => controllers.split(',').any(|c| c == name),
        };
        it.then(|| path.to_string())
    });
    path.ok_or_else(|| Error::refused(knob, "it is in no group of that kind"))
}

/// Puts all threads of a process into a group.
pub fn enter(
    cgroups: &OwnedFd,
    knob: &Knob,
    (pid, hierarchy): (i32, &str),
    group: &str,
) -> Result<(), Error> {
    let path = Path::new(hierarchy)
        .join(group.trim_matches('/'))
        .join(PROCS);
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat2(cgroups, &path, flags, Mode::empty(), BENEATH);
    let file = file.map_err(|e| Error::refused(knob, e))?;
    let written = File::from(file).write_all(pid.to_string().as_bytes());
    written.map_err(|e| match e.raw_os_error() {
        Some(libc::ESRCH) => Error::gone(knob),
        Some(libc::ENOSPC) => Error::refused(knob, "the group has no CPUs or no memory nodes"),
        _ => Error::refused(knob, e),
    })
}

/// Who has this number now was put into a group by mistake: it goes where it was born, to the group of its parent.
pub fn give_back(
    cgroups: &OwnedFd,
    proc: &Path,
    knob: &Knob,
    (pid, hierarchy): (i32, &str),
    group: &str,
) {
    let is_in = |pid: i32| member(proc, knob, pid, hierarchy).ok();
    let there = is_in(pid).filter(|there| there.trim_matches('/') == group.trim_matches('/'));
    let parent = super::status_number(proc, pid, "PPid:").filter(|parent| *parent > 0);
    if let (Some(_), Some(home)) = (there, parent.and_then(is_in)) {
        let _ = enter(cgroups, knob, (pid, hierarchy), &home);
    }
}
