// SPDX-License-Identifier: GPL-2.0-only
//! What can go wrong in the lab: one plain sentence each, with what to do.
use std::path::Path;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("the lab has x86-64 kernels only, this machine is {0}; `berth sim` works everywhere")]
    Machine(String),
    #[error(
        "the cache folder {path} cannot be used: {source}; set BERTH_CACHE to one on a disk with room"
    )]
    Cache {
        path: String,
        source: std::io::Error,
    },
    #[error("{path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error(
        "{what} needs {need_mb} MB in {path}, only {free_mb} MB are free; free some, or set BERTH_CACHE to another \
         folder"
    )]
    DiskSpace {
        what: String,
        path: String,
        need_mb: u64,
        free_mb: u64,
    },
    #[error(
        "cannot download {what}: {reason}; check the network (the mirror is {mirror}, set BERTH_MIRROR for another), \
         then repeat"
    )]
    Download {
        what: String,
        mirror: String,
        reason: String,
    },
    #[error(
        "the lab downloads kernels and QEMU with apt-get and dpkg-deb, and {0} is not here; install QEMU 9 or newer \
         and give a kernel with --kernel VMLINUZ,CONFIG"
    )]
    NoApt(String),
    #[error(
        "no QEMU: qemu-system-x86_64 {found} and none newer can be had from {suite} ({reason}); install QEMU 9 or newer"
    )]
    NoQemu {
        found: String,
        suite: String,
        reason: String,
    },
    #[error(
        "no kernel {rule} to be had{tried}; `--kernel 7.0` chooses another line, `--kernel VMLINUZ,CONFIG` your own"
    )]
    NoKernel { rule: String, tried: String },
    #[error("{path} is not fit for the lab: {reason}")]
    UnfitKernel { path: String, reason: String },
    #[error("the lab cannot run this scenario: {0}")]
    Scenario(String),
    #[error("the VM could not start: {0}")]
    Start(String),
    #[error("the VM's kernel crashed: {why}; it printed:\n{report}")]
    Panic { why: String, report: String },
    #[error(
        "the VM was not done after {after:?} and was stopped; a longer --timeout may help; its last lines:\n{tail}"
    )]
    Timeout { after: Duration, tail: String },
    #[error("the VM ended without a result (QEMU: {status}); its last lines:\n{tail}")]
    NoResult { status: String, tail: String },
    #[error("{0}")]
    Guest(String),
    #[error("interrupted")]
    Interrupted,
}

impl LabError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> LabError {
        LabError::Io {
            path: path.display().to_string(),
            source,
        }
    }
}
