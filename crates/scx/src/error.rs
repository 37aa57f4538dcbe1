// SPDX-License-Identifier: GPL-2.0-only
//! What can go wrong between an object file and a running scheduler.
use crate::ExitRecord;

/// Each variant is one plain sentence for the person at the terminal.
#[derive(Debug, thiserror::Error)]
pub enum ScxError {
    #[error(
        "this kernel ({release}) has no sched_ext, so it cannot run a policy; it needs Linux 6.18 or newer built with \
         CONFIG_SCHED_CLASS_EXT"
    )]
    NoSchedExt { release: String },
    #[error("another sched_ext scheduler is running ({0}); stop it first")]
    Busy(String),
    #[error("loading a policy needs root (CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN)")]
    NotPermitted,
    #[error("the kernel's type information cannot be read from /sys/kernel/btf/vmlinux: {0}")]
    NoBtf(String),
    #[error("this is not a BPF object that libbpf can open: {reason}\n{log}")]
    Open { reason: String, log: String },
    #[error("the object defines no sched_ext scheduler (no struct sched_ext_ops variable)")]
    NoOps,
    #[error("the object has no scheduler named `{name}`; it has: {found}")]
    UnknownOps { name: String, found: String },
    #[error("the object has several schedulers ({0}); name one")]
    SeveralOps(String),
    #[error("the object has no variable `{name}`{hint}")]
    UnknownVariable { name: String, hint: String },
    #[error("the object has no map `{name}`; it has: {found}")]
    UnknownMap { name: String, found: String },
    #[error("the object has no SEC(\"syscall\") program `{name}`; it has: {found}")]
    UnknownProgram { name: String, found: String },
    #[error(
        "the policy's tables end at {most} CPUs, and this machine may have {possible} \
         (/sys/devices/system/cpu/possible): take another policy"
    )]
    TooManyCpus { most: u32, possible: u32 },
    #[error("variable `{name}`: {reason}")]
    BadValue { name: String, reason: String },
    #[error("variable `{name}` is read-only after load; set it in the load options")]
    ReadOnly { name: String },
    #[error("map `{name}`: {reason}")]
    Map { name: String, reason: String },
    #[error("the kernel refuses the policy: {reason}\n{log}")]
    Rejected { reason: String, log: String },
    #[error("the policy did not start: {reason}{}", exit_text(.exit))]
    NotStarted {
        reason: String,
        exit: Option<Box<ExitRecord>>,
    },
    #[error("program `{name}` cannot be run: {reason}")]
    Run { name: String, reason: String },
    #[error("{path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
}

impl ScxError {
    /// Whether the same may succeed in a moment ([`ExitRecord::is_passing`]).
    pub fn is_passing(&self) -> bool {
        let ScxError::NotStarted { exit, .. } = self else {
            return false;
        };
        exit.as_ref().is_some_and(|exit| exit.is_passing())
    }

    /// The same, and what came of it when the policy was loaded anew.
    pub(crate) fn and_anew(self, anew: &ScxError) -> ScxError {
        match self {
            ScxError::NotStarted { reason, exit } => ScxError::NotStarted {
                reason: format!("{reason} (and loaded anew: {anew})"),
                exit,
            },
            other => other,
        }
    }
}

fn exit_text(exit: &Option<Box<ExitRecord>>) -> String {
    match exit {
        Some(e) => format!("; its exit record says: {e}"),
        None => String::new(),
    }
}
