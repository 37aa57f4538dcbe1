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

    /// The same, of a policy that had not started before, for a reason that passes.
    pub(crate) fn after(self, before: &ScxError) -> ScxError {
        ScxError::NotStarted {
            reason: format!("{self}\nIt was loaded anew, since before that {before}"),
            exit: None,
        }
    }
}

fn exit_text(exit: &Option<Box<ExitRecord>>) -> String {
    match exit {
        Some(e) => format!("; its exit record says: {e}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pass_is_said_first() {
        let exit = ExitRecord {
            kind: 1024,
            code: 0,
            reason: "runtime error".into(),
            message: "ops.init_task() failed (-12) for x[1]".into(),
        };
        let before = ScxError::NotStarted {
            reason: "sched_ext is disabled".into(),
            exit: Some(Box::new(exit)),
        };
        assert!(before.is_passing());
        let both = ScxError::Busy("other".into()).after(&before);
        assert!(!both.is_passing());
        let words = both.to_string();
        let (first, then) = words.split_once("\nIt was loaded anew").unwrap();
        assert!(
            first.contains("another sched_ext scheduler is running (other)"),
            "{words}"
        );
        assert!(then.contains("init_task() failed (-12)"), "{words}");
    }
}
