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
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

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

/// Makes it, or removes it.
pub fn write(cgroups: &OwnedFd, knob: &Knob, group: &str, value: &str) -> Result<(), Error> {
    let (above, name) = place(cgroups, knob, group)?;
    let done = match value {
        HERE => mkdirat(&above, name, Mode::from_raw_mode(0o755)),
        NOWHERE => unlinkat(&above, name, AtFlags::REMOVEDIR),
        _ => return Err(Error::refused(knob, format!("{value:?} is neither"))),
    };
    match done {
        Ok(()) | Err(Errno::EXIST) if value == HERE => Ok(()),
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(Error::refused(knob, "there is still something in it")),
        Err(e) => Err(Error::refused(knob, e)),
    }
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
        .join("cgroup.procs");
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
