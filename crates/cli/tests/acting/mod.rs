// SPDX-License-Identifier: GPL-2.0-only
//! Agents and guardians, as a test finds and kills them, and what they set of a VM's threads.
use crate::vm::Vm;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

/// Ends what hangs; judges no speed.
pub const HUNG: Duration = Duration::from_secs(300);

/// The processes of the agent of a socket, and of the guardian of its state.
pub fn processes(socket: &Path, state: &str) -> (Vec<i32>, Vec<i32>) {
    let of = |word: &str, path: &str| {
        let all = std::fs::read_dir("/proc").unwrap();
        let pids = all.filter_map(|p| p.ok()?.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line
                .split(|b| *b == 0)
                .map(String::from_utf8_lossy)
                .collect();
            words.iter().any(|w| w == word) && words.iter().any(|w| w == path)
        })
        .collect()
    };
    (
        of("daemon", socket.to_str().unwrap()),
        of("guardian", state),
    )
}

/// One of each, once both are there: a process that was just started has no command line to be known by yet.
pub fn both(socket: &Path, state: &str) -> (i32, i32) {
    let end = Instant::now() + HUNG;
    loop {
        let there = processes(socket, state);
        if let ([agent], [guardian]) = (&there.0[..], &there.1[..]) {
            return (*agent, *guardian);
        }
        assert!(Instant::now() < end, "agents and guardians: {there:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn kill(pids: &[i32]) {
    for pid in pids {
        // SAFETY: a signal to a process of this test.
        unsafe { libc::kill(*pid, libc::SIGKILL) };
    }
}

pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + HUNG;
    while !so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// CPUs that this process may run on, and those that are online.
pub fn cpus() -> (i64, i64) {
    // SAFETY: all zeroes are an empty set; it outlives the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        let allowed = i64::from(libc::CPU_COUNT(&set));
        (allowed, libc::sysconf(libc::_SC_NPROCESSORS_ONLN))
    }
}

pub fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

/// Where a thread may run that nobody has bound.
pub fn everywhere() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().into()
}

/// A process that does nothing until this is dropped.
pub struct Stopped(i32);

impl Stopped {
    pub fn begin(pid: i32) -> Stopped {
        // SAFETY: a signal to a process of this test.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        let stopped = Stopped(pid);
        let state = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T'))
        };
        until("all of its threads have stopped", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            tasks.flatten().all(state)
        });
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }
}

impl Vm {
    pub fn another_thread(&mut self) {
        let before = self.threads().len();
        std::io::Write::write_all(self.0.stdin.as_mut().unwrap(), b"x").unwrap();
        until("there is another thread", || self.threads().len() > before);
    }

    /// Threads, and where each may run.
    pub fn threads(&self) -> Vec<(i32, String)> {
        let folder = format!("/proc/{}/task", self.0.id());
        let tids = std::fs::read_dir(&folder).unwrap();
        let tids = tids.filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok());
        let read = |tid: i32| {
            let status = std::fs::read_to_string(format!("{folder}/{tid}/status")).ok()?;
            let line = status
                .lines()
                .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
            Some((tid, line.trim().to_string()))
        };
        tids.filter_map(read).collect()
    }

    pub fn all_at(&self, cpus: &str) -> bool {
        self.threads().iter().all(|t| t.1 == cpus)
    }
}
