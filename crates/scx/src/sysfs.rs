// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel says about sched_ext in /sys/kernel/sched_ext.
use crate::ScxError;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const ROOT: &str = "/sys/kernel/sched_ext";

/// State of the sched_ext class, as the kernel names it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Enabling,
    Enabled,
    Disabling,
    Disabled,
    /// A state this version of Berth does not know.
    Other(String),
}

impl State {
    fn parse(text: &str) -> State {
        match text {
            "enabling" => State::Enabling,
            "enabled" => State::Enabled,
            "disabling" => State::Disabling,
            "disabled" => State::Disabled,
            other => State::Other(other.to_string()),
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Enabling => "enabling",
            State::Enabled => "enabled",
            State::Disabling => "disabling",
            State::Disabled => "disabled",
            State::Other(s) => s,
        })
    }
}

/// One reading of the class.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Status {
    pub state: State,
    /// Name of the root scheduler, if one is there.
    pub ops: Option<String>,
    /// Schedulers enabled since boot.
    pub enable_seq: u64,
    /// Tasks refused by `ops.init_task` since boot.
    pub nr_rejected: u64,
}

impl Status {
    /// The running scheduler's name, if one is fully enabled.
    pub fn running(&self) -> Option<&str> {
        match self.state {
            State::Enabled => self.ops.as_deref(),
            _ => None,
        }
    }
}

/// Whether the running kernel has sched_ext.
///
/// # Errors
/// [`ScxError::NoSchedExt`] if not.
pub fn supported() -> Result<(), ScxError> {
    if Path::new(ROOT).join("state").exists() {
        return Ok(());
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")
        .unwrap_or_else(|_| "unknown release".to_string());
    Err(ScxError::NoSchedExt {
        release: release.trim().to_string(),
    })
}

/// Reads the class's state.
///
/// # Errors
/// [`ScxError::NoSchedExt`], or an I/O error naming the file.
pub fn status() -> Result<Status, ScxError> {
    supported()?;
    Ok(Status {
        state: State::parse(&read("state")?.unwrap_or_default()),
        ops: read("root/ops")?.filter(|s| !s.is_empty()),
        enable_seq: number("enable_seq")?,
        nr_rejected: number("nr_rejected")?,
    })
}

/// The kernel's event counters of the running scheduler (`SCX_EV_*`), by name; empty if none runs.
///
/// # Errors
/// The file exists but cannot be read.
pub fn events() -> Result<BTreeMap<String, u64>, ScxError> {
    let text = read("root/events")?.unwrap_or_default();
    Ok(text
        .lines()
        .filter_map(|l| {
            let (name, value) = l.split_once(char::is_whitespace)?;
            Some((name.trim().to_string(), value.trim().parse().ok()?))
        })
        .collect())
}

/// Counts CPU hotplug operations; 0 on kernels without the file.
pub(crate) fn hotplug_seq() -> Result<u64, ScxError> {
    number("hotplug_seq")
}

fn number(name: &str) -> Result<u64, ScxError> {
    Ok(read(name)?.and_then(|s| s.parse().ok()).unwrap_or(0))
}

/// Contents without the newline; `None` if the file is not there (no scheduler, or an older kernel).
fn read(name: &str) -> Result<Option<String>, ScxError> {
    let path = Path::new(ROOT).join(name);
    match fs::read_to_string(&path) {
        Ok(s) => Ok(Some(s.trim_end().to_string())),
        // ENODEV: the scheduler went away between lookup and read.
        Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ENODEV) => {
            Ok(None)
        }
        Err(source) => Err(ScxError::Io {
            path: path.display().to_string(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_round_trip() {
        for s in ["enabling", "enabled", "disabling", "disabled", "bypassing"] {
            assert_eq!(State::parse(s).to_string(), s);
        }
        assert_eq!(State::parse("new"), State::Other("new".to_string()));
    }

    #[test]
    fn only_enabled_counts_as_running() {
        let mut s = Status {
            state: State::Enabling,
            ops: Some("x".to_string()),
            enable_seq: 1,
            nr_rejected: 0,
        };
        assert_eq!(s.running(), None);
        s.state = State::Enabled;
        assert_eq!(s.running(), Some("x"));
    }
}
