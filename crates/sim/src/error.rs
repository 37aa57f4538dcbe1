// SPDX-License-Identifier: GPL-2.0-only
//! Why a simulation did not reach its end. One sentence each.
use crate::words::Nanos;
use berth_policy::abi::{Trap, TrapKind};
use berth_policy::error::LoadError;
use berth_scenario::placement::PlacementError;

#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The policy left, or was thrown out, as the kernel would do it.
    #[error("policy {policy} was disabled at {}: {reason}{}{}", seconds(*at_ns), sep(message), message)]
    PolicyExit {
        policy: String,
        /// SCX_EXIT_* number.
        kind: u32,
        code: i64,
        /// The kernel's words for the kind.
        reason: &'static str,
        message: String,
        at_ns: Nanos,
    },
    #[error("policy {policy} {} in ops.{op} at {}{}", trap_what(trap), seconds(*at_ns), trap_where(trap, beyond))]
    Trap {
        policy: String,
        op: &'static str,
        at_ns: Nanos,
        trap: Box<Trap>,
        /// Which of its arrays it lies beyond, if it does, and what to do.
        beyond: Option<String>,
    },
    #[error("the simulator broke one of its own rules at {}: {what} (seed {seed}; please report it)", seconds(*at_ns))]
    Invariant {
        what: String,
        at_ns: Nanos,
        seed: u64,
    },
    #[error("task {task} did {actions} things in a row that take no time, at {}: let it compute or \
     sleep", seconds(*at_ns))]
    Livelock {
        task: String,
        actions: u32,
        at_ns: Nanos,
    },
    /// Asked for from outside ([`crate::run::Options::cancel`]).
    #[error("cancelled at {}", seconds(*at_ns))]
    Cancelled { at_ns: Nanos },
    /// Threads that wait for each other, for ever.
    #[error("deadlock at {}: {what}; let every task take its locks in one order, and none at a \
     barrier", seconds(*at_ns))]
    Deadlock { what: String, at_ns: Nanos },
    #[error("the run would last longer than {}, the most this machine's event queue can count: shorten \
     it", seconds(*horizon_ns))]
    TooLong { horizon_ns: Nanos },
    /// Something inside a VM; policies named in it are the guest's.
    #[error("VM {vm}: {error} (inside the guest)")]
    Guest { vm: String, error: Box<SimError> },
    #[error("{0}")]
    Policy(Box<LoadError>),
    #[error("{0}")]
    Placement(Box<PlacementError>),
    #[error("{0}")]
    Setting(String),
}

impl From<LoadError> for SimError {
    fn from(e: LoadError) -> Self {
        SimError::Policy(Box::new(e))
    }
}

impl From<PlacementError> for SimError {
    fn from(e: PlacementError) -> Self {
        SimError::Placement(Box::new(e))
    }
}

fn seconds(ns: Nanos) -> String {
    format!("{}.{:06} s", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

fn sep(message: &str) -> &'static str {
    if message.is_empty() { "" } else { ": " }
}

fn trap_what(trap: &Trap) -> String {
    match &trap.kind {
        TrapKind::BadAccess {
            address,
            size,
            write,
        } => {
            let what = if *write { "wrote" } else { "read" };
            let null = if *address < 4096 {
                " (a NULL pointer)"
            } else {
                ""
            };
            format!("{what} {size} bytes at {address:#x}{null}, which it may not touch,")
        }
        TrapKind::Budget { insns } => {
            format!("executed {insns} instructions without returning")
        }
        TrapKind::CallDepth { frames } => {
            format!("called functions {frames} deep, deeper than the kernel allows,")
        }
        TrapKind::Unrunnable { what } => format!("reached {what}, which cannot be run,"),
    }
}

fn trap_where(trap: &Trap, beyond: &Option<String>) -> String {
    let mut s = String::new();
    if let Some(f) = &trap.function {
        s = format!(", in function {f}");
    }
    if let Some(file) = &trap.file {
        s += &format!(", {file}");
        if let Some(line) = trap.line {
            s += &format!(":{line}");
        }
    }
    if let Some(beyond) = beyond {
        s += &format!("; that is {beyond}");
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences() {
        let e = SimError::PolicyExit {
            policy: "p".into(),
            kind: 1026,
            code: 0,
            reason: "runnable task stall",
            message: "web[5] failed to run for 2.500s".into(),
            at_ns: 2_500_000_000,
        };
        assert_eq!(
            e.to_string(),
            "policy p was disabled at 2.500000 s: runnable task stall: web[5] failed to run for 2.500s"
        );
        let e = SimError::Trap {
            policy: "p".into(),
            op: "enqueue",
            at_ns: 0,
            trap: Box::new(Trap {
                kind: TrapKind::BadAccess {
                    address: 8,
                    size: 4,
                    write: false,
                },
                function: Some("f".into()),
                file: Some("p.bpf.c".into()),
                line: Some(12),
            }),
            beyond: None,
        };
        assert_eq!(
            e.to_string(),
            "policy p read 4 bytes at 0x8 (a NULL pointer), which it may not touch, in ops.enqueue at 0.000000 s, in \
             function f, p.bpf.c:12"
        );
    }
}
