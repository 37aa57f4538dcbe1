// SPDX-License-Identifier: GPL-2.0-only
//! Where /proc and /sys are: those of this machine, or a recorded tree.
use crate::dir::Dir;
use crate::time::{Time, Wall};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A /proc and a /sys that belong together.
#[derive(Clone, Debug)]
pub struct Root {
    proc: PathBuf,
    sys: PathBuf,
    live: bool,
    time: Arc<dyn Time>,
}

impl Root {
    /// This machine's.
    pub fn live() -> Root {
        Root {
            proc: "/proc".into(),
            sys: "/sys".into(),
            live: true,
            time: Arc::new(Wall),
        }
    }

    /// Those below a folder: a recorded host.
    pub fn at(folder: &Path) -> Root {
        Root {
            proc: folder.join("proc"),
            sys: folder.join("sys"),
            live: false,
            time: Arc::new(Wall),
        }
    }

    /// The same, with another time.
    pub fn with_time(self, time: Arc<dyn Time>) -> Root {
        Root { time, ..self }
    }

    /// The host's time.
    pub fn now(&self) -> Instant {
        self.time.now()
    }

    /// CPU time that the calling thread has used, by the host's time.
    pub fn spent(&self) -> Duration {
        self.time.spent()
    }

    /// Waits, by the host's time.
    pub fn sleep(&self, time: Duration) {
        self.time.sleep(time);
    }

    /// True for this machine: what is no file (system calls) can be asked too.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Opens /proc.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn proc(&self) -> io::Result<Dir> {
        Dir::open(&self.proc)
    }

    /// Opens /sys.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn sys(&self) -> io::Result<Dir> {
        Dir::open(&self.sys)
    }

    /// For messages.
    pub fn proc_path(&self) -> &Path {
        &self.proc
    }

    /// A file of /proc as text, ends trimmed; `None` if it cannot be read.
    pub fn proc_text(&self, name: &str) -> Option<String> {
        self.proc().ok()?.text(name)
    }

    /// A file of /sys as text, ends trimmed; `None` if it cannot be read.
    pub fn sys_text(&self, name: &str) -> Option<String> {
        self.sys().ok()?.text(name)
    }
}
