// SPDX-License-Identifier: GPL-2.0-only
//! Why a scheduler ended: the record that `UEI_RECORD` leaves in the object's data.
use std::fmt;

/// Contents of `struct user_exit_info`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExitRecord {
    /// `enum scx_exit_kind`: 0 while it runs, 64 unloaded by its user space, 65 by its BPF code, 66 by the kernel,
    /// 67 by SysRq-S, 1024 and above are errors; -1 where it is not known
    /// (the scheduler was a program of its own).
    pub kind: i32,
    /// What the policy or the kernel gave as code; bits 32 and up are the kernel's (hotplug, restart wanted).
    pub code: i64,
    /// The kernel's words for the kind.
    pub reason: String,
    /// Details, e.g. which task waited how long.
    pub message: String,
}

/// First kind that is an error (`SCX_EXIT_ERROR`).
const FIRST_ERROR: i32 = 1024;
/// `SCX_ECODE_ACT_RESTART`.
const RESTART: i64 = 1 << 48;

impl ExitRecord {
    /// Whether the scheduler has ended.
    pub fn ended(&self) -> bool {
        self.kind != 0
    }

    /// Whether it ended by a fault of the policy (watchdog, wrong call, `scx_bpf_error`).
    pub fn is_error(&self) -> bool {
        self.kind >= FIRST_ERROR
    }

    /// Whether it was not started for want of memory that may be there in a moment: an allocator that may not wait,
    /// as that of what a policy keeps for each task, has what it has at hand (`ops.init_task`, -ENOMEM).
    pub fn is_passing(&self) -> bool {
        self.is_error() && self.message.starts_with("ops.init_task() failed (-12)")
    }

    /// Whether the kernel asks for the scheduler to be loaded again (a CPU came or went).
    pub fn wants_restart(&self) -> bool {
        self.code & RESTART != 0
    }

    /// Reads the record from the variable's bytes.
    pub(crate) fn parse(bytes: &[u8], at: &ExitLayout) -> Option<ExitRecord> {
        let text = |(off, len): (usize, usize)| -> Option<String> {
            let b = bytes.get(off..off + len)?;
            let end = b.iter().position(|&c| c == 0).unwrap_or(b.len());
            Some(String::from_utf8_lossy(&b[..end]).into_owned())
        };
        let kind = bytes.get(at.kind..at.kind + 4)?;
        let code = bytes.get(at.code..at.code + 8)?;
        Some(ExitRecord {
            kind: i32::from_ne_bytes(kind.try_into().ok()?),
            code: i64::from_ne_bytes(code.try_into().ok()?),
            reason: text(at.reason)?,
            message: text(at.message)?,
        })
    }
}

impl fmt::Display for ExitRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.ended() {
            return f.write_str("still running");
        }
        let reason = if self.reason.is_empty() {
            "no reason recorded"
        } else {
            &self.reason
        };
        write!(f, "{reason}")?;
        if !self.message.is_empty() {
            write!(f, " ({})", self.message)?;
        }
        if self.code != 0 {
            write!(f, ", exit code {:#x}", self.code)?;
        }
        Ok(())
    }
}

/// Where the fields lie in the object's own `struct user_exit_info`: offset, and length for texts, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct ExitLayout {
    pub kind: usize,
    pub code: usize,
    pub reason: (usize, usize),
    pub message: (usize, usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> ExitLayout {
        ExitLayout {
            kind: 0,
            code: 8,
            reason: (16, 8),
            message: (24, 8),
        }
    }

    #[test]
    fn reads_fields_and_prints_them() {
        let mut b = vec![0u8; 32];
        b[..4].copy_from_slice(&1026i32.to_ne_bytes());
        b[8..16].copy_from_slice(&7i64.to_ne_bytes());
        b[16..21].copy_from_slice(b"stall");
        b[24..32].copy_from_slice(b"no zero!");
        let e = ExitRecord::parse(&b, &layout()).unwrap();
        assert!(e.ended() && e.is_error() && !e.wants_restart());
        assert_eq!(e.to_string(), "stall (no zero!), exit code 0x7");
    }

    #[test]
    fn want_of_memory_passes_and_nothing_else_does() {
        let ended = |kind, message: &str| ExitRecord {
            kind,
            code: 0,
            reason: String::new(),
            message: message.to_string(),
        };
        assert!(ended(1024, "ops.init_task() failed (-12) for cpuhp/0[20]").is_passing());
        // A thread may be called anything.
        let named = "ops.init_task() failed (-22) for init_task() failed (-12)";
        for (kind, message) in [
            (1024, named),
            (1024, "ops.init() failed (-12)"),
            (64, "ops.init_task() failed (-12) for x"),
            (0, ""),
        ] {
            assert!(!ended(kind, message).is_passing(), "{kind} {message}");
        }
    }

    #[test]
    fn short_data_gives_none() {
        assert_eq!(ExitRecord::parse(&[0; 20], &layout()), None);
    }
}
