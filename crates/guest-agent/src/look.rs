// SPDX-License-Identifier: GPL-2.0-only
//! What processes there are, what they use, and where they may run.
use berth_host::dir::Dir;
use berth_host::procfile::{self, PF_KTHREAD, number, status_value};
use berth_host::root::Root;
use berth_host::threads::Threads;
use berth_mixed::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

/// CPUs in an affinity mask, at most.
const CPUS: usize = 1 << 13;
/// `CAP_SYS_NICE` of `linux/capability.h`.
const CAP_SYS_NICE: u32 = 23;
/// A clock tick of /proc (USER_HZ is 100 on all architectures that Linux supports), ns.
const TICK_NS: u64 = 10_000_000;

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub pid: i32,
    /// In clock ticks since boot.
    pub start: u64,
    pub ppid: i32,
    /// Of the user who has started it (the real one).
    pub uid: u32,
    /// Whether this process may set its affinity.
    pub permitted: bool,
    /// As its owner set it: any bytes.
    pub name: Vec<u8>,
    /// CPU time of all its threads, ended ones too, ns.
    pub ran_ns: u64,
    /// Number and start of each thread.
    pub threads: Vec<(i32, u64)>,
}

impl Reading {
    pub fn process(&self) -> Process {
        Process {
            number: self.pid.cast_unsigned(),
            start: self.start,
        }
    }
}

/// All processes at one instant, those of the kernel left out, in the order of their starts.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// By a clock that only goes forward, ns.
    pub at_ns: u64,
    pub processes: Vec<Reading>,
}

/// Who looks. A test plays the readings and acts on real processes all the same.
pub trait Eyes {
    /// # Errors
    /// There is no /proc.
    fn look(&mut self) -> io::Result<Look>;

    /// CPUs on which a process may run that nobody has pinned, those that are online.
    ///
    /// # Errors
    /// The kernel does not say.
    fn whole(&mut self) -> io::Result<BTreeSet<u32>>;

    /// CPUs on which a thread may run, those that are online; none: it has ended.
    fn affinity(&mut self, tid: i32) -> Option<BTreeSet<u32>>;

    /// The cgroup of a process; none: there are none, it is in the root, or it has ended.
    fn cgroup(&mut self, of: &Reading) -> Option<String>;
}

/// This machine's /proc.
#[derive(Debug)]
pub struct Proc {
    root: Root,
    begin: Instant,
    euid: u32,
    may_all: bool,
    known: BTreeMap<Process, Threads>,
}

impl Proc {
    pub fn new(root: Root) -> Proc {
        let status = root.proc_text("self/status").unwrap_or_default();
        let caps = status_value(status.as_bytes(), "CapEff")
            .and_then(|hex| u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        Proc {
            begin: root.now(),
            root,
            // SAFETY: it has no conditions.
            euid: unsafe { libc::geteuid() },
            may_all: caps.is_some_and(|caps| caps >> CAP_SYS_NICE & 1 == 1),
            known: BTreeMap::new(),
        }
    }

    /// The process of this number; none: it has ended, or is the kernel's.
    fn read(
        &self,
        proc: &Dir,
        pid: i32,
        known: &mut BTreeMap<Process, Threads>,
    ) -> Option<Reading> {
        // Held open: all that follows is of one process.
        let dir = proc.dir(&pid.to_string()).ok()?;
        let mut buf = [0; 4096];
        let stat = procfile::stat(dir.read_record("stat", &mut buf).ok()?)?;
        if stat.flags & PF_KTHREAD != 0 || matches!(stat.state, b'Z' | b'X' | b'x') {
            return None;
        }
        let mut reading = Reading {
            pid,
            start: stat.start,
            ppid: stat.ppid,
            uid: 0,
            permitted: false,
            name: stat.comm.to_vec(),
            ran_ns: stat.ran.saturating_mul(TICK_NS),
            threads: Vec::new(),
        };
        let (uid, euid) = users(dir.read_record("status", &mut buf).ok()?)?;
        reading.uid = uid;
        // As `check_same_owner` of the kernel has it.
        reading.permitted = self.may_all || [uid, euid].contains(&self.euid);
        let threads = known.entry(reading.process()).or_default();
        threads.follow(&dir, "task", false).ok()?;
        let all = threads.seen.iter();
        reading.threads = all.map(|t| (t.facts.tid, t.facts.start)).collect();
        Some(reading)
    }
}

/// Real and effective user of a `status` file.
fn users(status: &[u8]) -> Option<(u32, u32)> {
    let value = status_value(status, "Uid")?;
    let mut words = value
        .split(u8::is_ascii_whitespace)
        .filter(|w| !w.is_empty());
    let mut next = || u32::try_from(number(words.next()?)?).ok();
    Some((next()?, next()?))
}

impl Eyes for Proc {
    fn look(&mut self) -> io::Result<Look> {
        let proc = self.root.proc()?;
        let mut pids = Vec::new();
        proc.list(|name, _| {
            pids.extend(number(name).and_then(|n| i32::try_from(n).ok()));
        })?;
        let at_ns = self.root.now().saturating_duration_since(self.begin);
        let mut before = std::mem::take(&mut self.known);
        let mut processes: Vec<Reading> = (pids.into_iter())
            .filter_map(|pid| self.read(&proc, pid, &mut before))
            .collect();
        // Who has ended is forgotten.
        let there: BTreeSet<Process> = processes.iter().map(Reading::process).collect();
        before.retain(|process, _| there.contains(process));
        self.known = before;
        processes.sort_by_key(|r| (r.start, r.pid));
        Ok(Look {
            at_ns: at_ns.as_nanos() as u64,
            processes,
        })
    }

    /// A thread of this process asks for all CPUs, sees what it gets, and ends: whatever pinned this process does not
    /// count, what bounds all processes here does.
    fn whole(&mut self) -> io::Result<BTreeSet<u32>> {
        let ask = || {
            let all = [u64::MAX; CPUS / 64];
            // SAFETY: a mask of that many bytes that outlives the call; 0 is this thread.
            if unsafe { libc::sched_setaffinity(0, size_of_val(&all), all.as_ptr().cast()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            affinity(0)
        };
        let thread = std::thread::Builder::new().spawn(ask)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that asked has panicked")))
    }

    fn affinity(&mut self, tid: i32) -> Option<BTreeSet<u32>> {
        affinity(tid).ok()
    }

    fn cgroup(&mut self, of: &Reading) -> Option<String> {
        let dir = self.root.proc().ok()?.dir(&of.pid.to_string()).ok()?;
        let mut buf = [0; 4096];
        let stat = procfile::stat(dir.read_record("stat", &mut buf).ok()?)?;
        if stat.start != of.start {
            return None;
        }
        let text = dir.read_record("cgroup", &mut buf).ok()?;
        let cgroup = procfile::main_cgroup(text);
        (cgroup != "/").then(|| cgroup.to_string())
    }
}

/// CPUs on which a thread may run, those that are online; 0: the one that asks.
///
/// # Errors
/// Those of `sched_getaffinity`.
pub fn affinity(tid: i32) -> io::Result<BTreeSet<u32>> {
    let mut mask = [0u64; CPUS / 64];
    // SAFETY: a mask of that many bytes that outlives the call.
    if unsafe { libc::sched_getaffinity(tid, size_of_val(&mask), mask.as_mut_ptr().cast()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let bit = |cpu: &u32| mask[*cpu as usize / 64] >> (cpu % 64) & 1 == 1;
    Ok((0..CPUS as u32).filter(bit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn users_of_a_status_file() {
        let status = b"Name:\tUid:\t5\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGid:\t1\t2\t3\t4\n";
        assert_eq!(users(status), Some((1000, 0)));
        for bad in [
            &b""[..],
            b"Uid:\t1000\n",
            b"Uid:\tx\t1\n",
            b"Uid:\t-1\t0\n",
            b"Uid:",
        ] {
            assert_eq!(users(bad), None);
        }
    }

    #[test]
    fn this_process_is_seen_and_its_threads_are() {
        let mut eyes = Proc::new(Root::live());
        let (stop, end) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || end.recv());
        let look = eyes.look().unwrap();
        let own = std::process::id().cast_signed();
        let this = look.processes.iter().find(|r| r.pid == own).unwrap();
        assert!(this.permitted && this.threads.len() >= 2);
        assert!(
            this.threads
                .iter()
                .any(|(tid, start)| (*tid, *start) == (own, this.start))
        );
        // SAFETY: it has no conditions.
        assert_eq!(this.uid, unsafe { libc::getuid() });
        let whole = eyes.whole().unwrap();
        assert!(eyes.affinity(own).unwrap().is_subset(&whole));
        let starts: Vec<_> = look.processes.iter().map(|r| r.start).collect();
        assert!(starts.is_sorted());
        drop(stop);
        thread.join().unwrap().unwrap_err();
        let later = eyes.look().unwrap();
        assert!(later.at_ns > look.at_ns);
        let now = later.processes.iter().find(|r| r.pid == own).unwrap();
        assert!(now.ran_ns >= this.ran_ns);
    }

    proptest! {
        #[test]
        fn nothing_panics(text: Vec<u8>) {
            users(&text);
        }
    }
}
