// SPDX-License-Identifier: GPL-2.0-only
//! A process that undoes everything when another one, which acts, has ended however it ended.
//!
//! It holds the reading end of a pipe whose writing end nobody but the acting process has: when that one is gone, even
//! by SIGKILL, the pipe ends.
use crate::acting::Report;
use crate::error::Error;
use crate::knob::Host;
use crate::ledger::{self, Ledger};
use crate::restore::restore;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the acting process's hold on the ledger may outlive its pipe: the kernel closes one file after the other.
const PATIENCE: Duration = Duration::from_secs(30);

/// A guardian, as seen by the process that it watches. Dropped, the pipe ends; who has undone everything by then leaves
/// it nothing to do.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guarded {
    /// Starts `command`, which has to call [`watch`] and nothing else.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Guarded> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // What ends the terminal or its foreground is not for it.
            .process_group(0)
            .spawn()?;
        let pipe = child.stdin.take();
        Ok(Guarded { child, pipe })
    }

    /// Whether it is still there.
    pub fn watches(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
    }
}

/// Waits until standard input ends, then undoes what the ledger of this folder tells of.
///
/// # Errors
/// As [`Ledger::open`] and [`restore`]. That another process acts by the ledger is none: what is in it is then that
/// one's, which has undone what was there.
pub fn watch(host: &impl Host, folder: &Path) -> Result<Option<Report>, Error> {
    // SAFETY: ignoring signals has no conditions. A manager that ends all of a service sends them to it, too.
    unsafe {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    let mut buffer = [0; 64];
    loop {
        match io::stdin().read(&mut buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let boot = ledger::this_boot()?;
    let end = Instant::now() + PATIENCE;
    loop {
        match Ledger::open(folder, &boot) {
            Ok(mut ledger) => return restore(host, &mut ledger).map(Some),
            Err(Error::Held { .. }) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Err(Error::Held { .. }) => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}
