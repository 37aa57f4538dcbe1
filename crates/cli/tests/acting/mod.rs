// SPDX-License-Identifier: GPL-2.0-only
//! Agents and guardians, as a test finds and kills them.
use std::path::Path;
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
