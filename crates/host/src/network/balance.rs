// SPDX-License-Identifier: GPL-2.0-only
//! irqbalance: whether it runs.
use crate::procfile::{self, status_value};
use crate::root::Root;
use serde::{Deserialize, Serialize};

/// It runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    pub pid: i32,
    /// Start, in clock ticks since boot.
    pub start: u64,
}

/// Looks for it. Anybody can call a process so; only root's moves interrupts.
pub fn find(root: &Root) -> Option<Balance> {
    let proc = root.proc().ok()?;
    let mut pids = Vec::new();
    proc.list(|name, _| {
        let pid = procfile::number(name).and_then(|n| i32::try_from(n).ok());
        pids.extend(pid);
    })
    .ok()?;
    let mut buf = [0; 4096];
    for pid in pids {
        let Ok(text) = proc.read_record(&format!("{pid}/stat"), &mut buf) else {
            continue;
        };
        let Some(stat) = procfile::stat(text).filter(|s| s.comm == b"irqbalance") else {
            continue;
        };
        let start = stat.start;
        let Ok(status) = proc.read_record(&format!("{pid}/status"), &mut buf) else {
            continue;
        };
        let root = status_value(status, "Uid").and_then(|ids| {
            let mut words = ids.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
            // All four: who only acts as root is somebody else's.
            words.all(|w| w == b"0").then_some(())
        });
        if root.is_some() {
            return Some(Balance { pid, start });
        }
    }
    None
}
