// SPDX-License-Identifier: GPL-2.0-only
//! This machine's threads, cgroups, interrupts and network queues.
//!
//! A path comes from a process's own cgroup or from the ledger: whatever it says, nothing outside of the cgroup file
//! systems is opened, no symbolic link is followed, and only files that are meant to be set here are written.
mod balance;
#[cfg(test)]
mod enemy;
mod group;
pub mod irq;
mod queue;

use crate::cpus;
use crate::error::Error;
use crate::knob::{ALL, Host, Knob};
use crate::systemd::Systemd;
use crate::unit::Property;
use rustix::fs::{Mode, OFlags, ResolveFlags, fstatfs, open, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files that are set: of version 2, and of version 1.
const FILES: [&str; 9] = [
    "cpuset.cpus",
    "cpuset.mems",
    "cpu.weight",
    "cpu.max",
    "cpu.shares",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cgroup.freeze",
    "freezer.state",
];
/// Bytes of a value, at most.
const MOST: u64 = 1 << 16;
/// `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const CGROUP: [i64; 2] = [0x0027_e0eb, 0x6367_7270];
/// CPUs in an affinity mask, at most.
const CPUS: usize = 1 << 13;
/// How long the kernel may lack what systemd has taken: it sets a unit's cgroup after it has answered.
const ARRIVES: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// This machine.
#[derive(Debug)]
pub struct Live {
    /// Where cgroups are mounted; none: there are none, threads can be set all the same.
    cgroups: Option<OwnedFd>,
    proc: PathBuf,
    sys: PathBuf,
    /// Where `irq` is.
    irqs: PathBuf,
    /// Where irqbalance has its socket.
    balance: PathBuf,
    /// Files of other file systems may be written, too: those of a test.
    any_file_system: bool,
    systemd: Systemd,
}

impl Live {
    /// Cgroups below `/sys/fs/cgroup`.
    pub fn new() -> Live {
        Live::at(Path::new("/sys/fs/cgroup"), false)
    }

    /// Cgroups below another folder; `any_file_system`: also plain files, for tests.
    pub fn at(cgroups: &Path, any_file_system: bool) -> Live {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        Live {
            cgroups: open(cgroups, flags, Mode::empty()).ok(),
            proc: "/proc".into(),
            sys: "/sys".into(),
            irqs: "/proc".into(),
            balance: "/run/irqbalance".into(),
            any_file_system,
            systemd: Systemd::new(),
        }
    }

    /// systemd of this machine, to be asked.
    pub fn systemd(&self) -> &Systemd {
        &self.systemd
    }

    /// The same, with interrupts (`proc/irq`), network queues (`sys/class/net`) and irqbalance's socket (`run`) in a
    /// folder, for tests. Threads are this machine's.
    pub fn with_devices_at(self, folder: &Path) -> Live {
        Live {
            sys: folder.join("sys"),
            balance: folder.join("run"),
            irqs: folder.join("proc"),
            ..self
        }
    }

    fn groups(&self, knob: &Knob) -> Result<&OwnedFd, Error> {
        let none = || Error::refused(knob, "there are no cgroups here");
        self.cgroups.as_ref().ok_or_else(none)
    }

    /// The CPUs that a thread's cgroup lets it use.
    fn cpuset(&self, pid: i32, tid: i32) -> Option<std::collections::BTreeSet<u32>> {
        let cgroups = self.cgroups.as_ref()?;
        let text =
            std::fs::read_to_string(self.proc.join(format!("{pid}/task/{tid}/cgroup"))).ok()?;
        let (mut old, mut new) = (None, None);
        for line in text.lines() {
            let mut words = line.splitn(3, ':').skip(1);
            match (words.next()?, words.next()?.trim_matches('/')) {
                ("", path) => new = Some(format!("{path}/cpuset.cpus.effective")),
                (c, path) if c.split(',').any(|c| c == "cpuset") => {
                    old = Some(format!("cpuset/{path}/cpuset.effective_cpus"));
                }
                _ => {}
            }
        }
        let path = old.or(new)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat2(
            cgroups,
            path.trim_matches('/'),
            flags,
            Mode::empty(),
            resolve,
        )
        .ok()?;
        let mut text = String::new();
        File::from(file).take(MOST).read_to_string(&mut text).ok()?;
        cpus::read(text.trim())
    }

    fn file(&self, knob: &Knob, group: &str, file: &str, flags: OFlags) -> Result<File, Error> {
        let refused = |why: &dyn std::fmt::Display| Error::Refused {
            what: knob.to_string(),
            why: why.to_string(),
        };
        if !FILES.contains(&file) {
            return Err(refused(&"it is no file that is set here"));
        }
        let cgroups = self
            .cgroups
            .as_ref()
            .ok_or_else(|| refused(&"there are no cgroups here"))?;
        let path = Path::new(group.trim_matches('/')).join(file);
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat2(cgroups, &path, flags, Mode::empty(), resolve).map_err(|e| match e {
            Errno::XDEV | Errno::LOOP => refused(&"its path leads out of the cgroups"),
            e => Error::kernel(knob, &e.into()),
        })?;
        let kind = fstatfs(&fd).map_err(|e| refused(&e))?.f_type;
        if !self.any_file_system && !CGROUP.contains(&kind) {
            return Err(refused(&"it is no file of a cgroup"));
        }
        Ok(File::from(fd))
    }

    /// Whether this thread is the one that is meant.
    fn is_there(&self, knob: &Knob, pid: i32, tid: i32, start: u64) -> Result<(), Error> {
        match start_of(&self.proc, pid, tid) {
            Some(there) if there == start => Ok(()),
            _ => Err(Error::Gone {
                what: knob.to_string(),
            }),
        }
    }

    /// Lets systemd set it, and sees whether the kernel has it then; if not it is what it was.
    fn write_unit(
        &self,
        knob: &Knob,
        unit: &str,
        property: Property,
        value: &str,
    ) -> Result<(), Error> {
        let what = knob.to_string();
        let before = self.systemd.read(&what, unit, property)?;
        self.systemd.write(&what, unit, property, value)?;
        let group = self.systemd.group(&what, unit)?;
        let end = Instant::now() + ARRIVES;
        loop {
            let Some((file, there)) = self.in_kernel(&group, property, value) else {
                return Ok(());
            };
            if Instant::now() >= end {
                // What the kernel has of a value that nobody set is systemd's matter.
                if crate::unit::plain(value) == crate::unit::UNSET {
                    return Ok(());
                }
                self.systemd.write(&what, unit, property, &before)?;
                let why = format!("systemd has taken it, and the kernel has {there:?} in {file}");
                return Err(Error::Refused { what, why });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The file in which the kernel has not got it, and what is in there; none: it has.
    fn in_kernel(&self, group: &str, property: Property, value: &str) -> Option<(String, String)> {
        let [new, old] = property.files();
        let files = [("", new), ("cpu/", old), ("cpu,cpuacct/", old)];
        let mut missing = None;
        for (version, (folder, file)) in [0, 1, 1].into_iter().zip(files) {
            let knob = Knob::Group {
                group: format!("{folder}{group}"),
                file: file.into(),
            };
            match self.read(&knob) {
                Ok(there) if property.has_arrived(value, version, &there) => return None,
                Ok(there) => return Some((file.into(), there)),
                Err(_) => missing = Some((file.into(), "nothing".into())),
            }
        }
        missing.filter(|_| crate::unit::plain(value) != crate::unit::UNSET)
    }

    /// Who has this number now was bound by mistake: it gets what it was born with, the affinity of its process, or of
    /// its parent.
    fn give_back(&self, tid: i32) {
        let number = |key: &str| status_number(&self.proc, tid, key);
        let from = match number("Tgid:") {
            Some(leader) if leader != tid => Some(leader),
            _ => number("PPid:"),
        };
        let Some(from) = from.filter(|pid| *pid > 0) else {
            return;
        };
        let mut mask = vec![0u64; CPUS / 64];
        let size = size_of_val(&mask[..]);
        // SAFETY: a mask of that many bytes that outlives the calls.
        unsafe {
            if libc::sched_getaffinity(from, size, mask.as_mut_ptr().cast()) == 0 {
                libc::sched_setaffinity(tid, size, mask.as_ptr().cast());
            }
        }
    }

    fn online(&self) -> Option<std::collections::BTreeSet<u32>> {
        cpus::read(&std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
    }
}

impl Default for Live {
    fn default() -> Live {
        Live::new()
    }
}

impl Host for Live {
    fn read(&self, knob: &Knob) -> Result<String, Error> {
        let refused = |why: String| Error::Refused {
            what: knob.to_string(),
            why,
        };
        match knob {
            Knob::Affinity { pid, tid, start } => {
                self.is_there(knob, *pid, *tid, *start)?;
                // What it may run on, also where that is offline; `sched_getaffinity` leaves those out.
                let status = std::fs::read(self.proc.join(format!("{pid}/task/{tid}/status")));
                let status = status.map_err(|_| Error::gone(knob))?;
                // A thread may call itself by any bytes.
                let status = String::from_utf8_lossy(&status);
                let line = status
                    .lines()
                    .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
                let list = line
                    .map(str::trim)
                    .ok_or_else(|| refused("the kernel does not say it".into()))?;
                let (allowed, online) = (cpus::read(list), self.online());
                match (allowed, online) {
                    (Some(allowed), Some(online)) if allowed.is_superset(&online) => Ok(ALL.into()),
                    _ => Ok(list.into()),
                }
            }
            Knob::Group { group, file } => {
                let opened = self.file(knob, group, file, OFlags::RDONLY)?;
                let mut text = String::new();
                let read = opened.take(MOST).read_to_string(&mut text);
                read.map_err(|e| Error::kernel(knob, &e))?;
                Ok(match text.strip_suffix('\n').unwrap_or(&text) {
                    // On its way to where it was told to go.
                    "FREEZING" => "FROZEN".into(),
                    text => text.into(),
                })
            }
            Knob::Unit { unit, property } => self.systemd.read(&knob.to_string(), unit, *property),
            Knob::Made { group } => group::read(self.groups(knob)?, knob, group),
            Knob::Member {
                pid,
                start,
                hierarchy,
            } => {
                self.is_there(knob, *pid, *pid, *start)?;
                group::member(&self.proc, knob, *pid, hierarchy)
            }
            Knob::Irq { irq, name } => irq::read(&self.irqs, &self.sys, knob, *irq, name),
            Knob::Queue {
                device,
                index,
                queue,
            } => queue::read(&self.sys, knob, (device, *index, queue)),
            Knob::Unbalanced { pid, start } => {
                self.is_there(knob, *pid, *pid, *start)?;
                balance::read(&self.balance, knob, *pid)
            }
        }
    }

    fn write(&self, knob: &Knob, value: &str) -> Result<(), Error> {
        let refused = |why: String| Error::Refused {
            what: knob.to_string(),
            why,
        };
        match knob {
            Knob::Affinity { pid, tid, start } => {
                self.is_there(knob, *pid, *tid, *start)?;
                let mask =
                    mask(value).ok_or_else(|| refused(format!("{value:?} is no list of CPUs")))?;
                // SAFETY: a mask of that many bytes that outlives the call.
                let done = unsafe {
                    libc::sched_setaffinity(*tid, size_of_val(&mask[..]), mask.as_ptr().cast())
                };
                match (done, std::io::Error::last_os_error()) {
                    (0, _) => self.is_there(knob, *pid, *tid, *start).inspect_err(|_| {
                        // The number changed hands between the look and the call.
                        self.give_back(*tid);
                    }),
                    (_, e) if e.raw_os_error() == Some(libc::EINVAL) => Err(refused(format!(
                        "none of the CPUs {value} is online and allowed to it, or the thread may not be moved"
                    ))),
                    (_, e) => Err(Error::kernel(knob, &e)),
                }
            }
            Knob::Group { group, file } => {
                let mut opened = self.file(knob, group, file, OFlags::WRONLY)?;
                // In one piece: half a value is never there.
                let text = format!("{value}\n");
                let written = opened.write_all(text.as_bytes());
                written.map_err(|e| match e.raw_os_error() {
                    // In version 1 a set that its parent's does not hold; this process may write all the same.
                    Some(libc::EACCES) if file.starts_with("cpuset.") => Error::refused(knob, e),
                    _ => Error::kernel(knob, &e),
                })?;
                match self.any_file_system {
                    true => opened
                        .set_len(text.len() as u64)
                        .map_err(|e| refused(e.to_string())),
                    false => Ok(()),
                }
            }
            Knob::Unit { unit, property } => self.write_unit(knob, unit, *property, value),
            Knob::Made { group } => group::write(self.groups(knob)?, knob, group, value),
            Knob::Member {
                pid,
                start,
                hierarchy,
            } => {
                self.is_there(knob, *pid, *pid, *start)?;
                let groups = self.groups(knob)?;
                group::enter(groups, knob, (*pid, hierarchy), value)?;
                self.is_there(knob, *pid, *pid, *start).inspect_err(|_| {
                    // The number changed hands between the look and the write.
                    group::give_back(groups, &self.proc, knob, (*pid, hierarchy), value);
                })
            }
            Knob::Irq { irq, name } => irq::write(&self.irqs, &self.sys, knob, (*irq, name), value),
            Knob::Queue {
                device,
                index,
                queue,
            } => queue::write(&self.sys, knob, (device, *index, queue), value),
            Knob::Unbalanced { pid, start } => {
                self.is_there(knob, *pid, *pid, *start)?;
                balance::write(&self.balance, knob, *pid, value)
            }
        }
    }

    /// A thread that was where its CPU set let it be had no wish of its own: since Linux 6.2 one that is written would
    /// outlast the set.
    fn put_back(&self, knob: &Knob, was: &str) -> Result<(), Error> {
        if let Knob::Affinity { pid, tid, .. } = knob
            && let Some(set) = self.cpuset(*pid, *tid)
            && cpus::read(was).is_some_and(|was| was == set)
        {
            return self.write(knob, ALL);
        }
        self.write(knob, was)
    }

    fn kin(&self, knob: &Knob) -> Vec<Knob> {
        let Knob::Affinity { pid, .. } = knob else {
            return Vec::new();
        };
        let Ok(threads) = std::fs::read_dir(self.proc.join(format!("{pid}/task"))) else {
            return Vec::new();
        };
        let threads = threads.filter_map(|t| t.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let kin = threads.filter_map(|tid| {
            Some(Knob::Affinity {
                pid: *pid,
                tid,
                start: start_of(&self.proc, *pid, tid)?,
            })
        });
        kin.collect()
    }
}

/// The mask of a list.
fn mask(value: &str) -> Option<Vec<u64>> {
    let mut mask = vec![0u64; CPUS / 64];
    if value == ALL {
        mask.fill(u64::MAX);
        return Some(mask);
    }
    let cpus = cpus::read(value).filter(|cpus| !cpus.is_empty())?;
    for cpu in cpus {
        *mask.get_mut(cpu as usize / 64)? |= 1 << (cpu % 64);
    }
    Some(mask)
}

/// A number in the status of a thread: `Tgid:`, `PPid:`.
fn status_number(proc: &Path, tid: i32, key: &str) -> Option<i32> {
    let status = std::fs::read(proc.join(format!("{tid}/status"))).ok()?;
    // A thread may call itself by any bytes.
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|l| l.strip_prefix(key))?;
    line.trim().parse().ok()
}

/// When a thread of this process began, in clock ticks since boot; none: there is no such process, or it has no such
/// thread.
pub fn start_of(proc: &Path, pid: i32, tid: i32) -> Option<u64> {
    let stat = std::fs::read(proc.join(format!("{pid}/task/{tid}/stat"))).ok()?;
    // Under the number of a thread the kernel shows the process that it is of.
    if status_number(proc, pid, "Tgid:") != Some(pid) {
        return None;
    }
    // A name may hold anything, also parentheses.
    let after = stat.iter().rposition(|b| *b == b')')?;
    let words = std::str::from_utf8(&stat[after + 1..]).ok()?;
    words.split_whitespace().nth(19)?.parse().ok()
}
