// SPDX-License-Identifier: GPL-2.0-only
//! Inside the VM: a scheduler that is a program of its own. It loads, feeds and unloads its policy itself; the lab
//! starts it, waits until the kernel says that it schedules, and ends it as Ctrl-C would.
use crate::job::PolicyReport;
use berth_scx::{ExitRecord, Status, events, status};
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What it says goes here.
const SAID: &str = "/run/scheduler.log";
/// Between start and scheduling: the kernel verifies its code.
const START: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A running scheduler.
pub(crate) struct Program {
    child: Child,
    path: String,
    /// As the kernel shows it.
    name: String,
}

impl Program {
    /// Starts it and waits until it schedules.
    ///
    /// # Errors
    /// One sentence with its last words: it ended, or the kernel never took its policy.
    pub fn start(path: &str) -> Result<Program, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("{path}: {e}");
        let said = File::create(SAID).map_err(|e| wrong(&e))?;
        let also = said.try_clone().map_err(|e| wrong(&e))?;
        let mut child = Command::new(path)
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(also)
            .spawn()
            .map_err(|e| wrong(&e))?;
        let end = Instant::now() + START;
        loop {
            let now = status().map_err(|e| wrong(&e))?;
            if let Some(name) = now.running() {
                let name = name.to_string();
                let path = path.to_string();
                return Ok(Program { child, path, name });
            }
            if let Some(how) = child.try_wait().map_err(|e| wrong(&e))? {
                return Err(format!("{path} ended at its start ({how}): {}", words()));
            }
            if Instant::now() > end {
                // Nothing of it is needed any more, whether or not it can still be ended.
                let _ = child.kill();
                return Err(format!("{path} does not schedule: {}", words()));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends it, and says how it fared.
    ///
    /// # Errors
    /// The kernel's state cannot be read, or it cannot be ended.
    pub fn finish(mut self) -> Result<PolicyReport, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", self.path);
        let runs = |now: &Status| now.running() == Some(self.name.as_str());
        let lasted = runs(&status().map_err(|e| wrong(&e))?);
        let events = events().map_err(|e| wrong(&e))?;
        // SAFETY: a child that has not been waited for, so the number is still its own.
        unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGINT) };
        let end = Instant::now() + END;
        while self.child.try_wait().map_err(|e| wrong(&e))?.is_none() {
            if Instant::now() > end {
                self.child.kill().map_err(|e| wrong(&e))?;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        while status().map_err(|e| wrong(&e))?.ops.is_some() {
            if Instant::now() > end + END {
                return Err(format!("{} has ended and still schedules", self.path));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(PolicyReport {
            name: self.name,
            lasted,
            exit: ExitRecord {
                kind: -1,
                code: 0,
                reason: "the scheduler is a program of its own, which said".to_string(),
                message: words(),
            },
            events,
        })
    }
}

/// The last lines of what it said.
fn words() -> String {
    let all = fs::read(SAID).unwrap_or_default();
    let text = String::from_utf8_lossy(&all);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    match &lines[lines.len().saturating_sub(5)..] {
        [] => "it said nothing".to_string(),
        last => last.join(" / "),
    }
}
