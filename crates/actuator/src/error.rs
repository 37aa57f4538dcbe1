// SPDX-License-Identifier: GPL-2.0-only
//! Why something could not be set or remembered.
use crate::knob::Knob;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The VM has ended, or the thread, or its group.
    #[error("{what} is not there any more")]
    Gone { what: String },
    /// The kernel refuses; the value is what it was.
    #[error("{what} cannot be set: {why}")]
    Refused { what: String, why: String },
    /// This process may not, or nobody may: permission, a file system that is only read.
    #[error("{what} may not be set: {why}")]
    Denied { what: String, why: String },
    #[error("{}: {why}", path.display())]
    Ledger { path: PathBuf, why: String },
    /// Another process acts on this host; who, if that can be told.
    #[error(
        "{}: {} acts on this host by it: end that one first (berth stop, or stop its daemon)",
        path.display(),
        by.as_deref().unwrap_or("another process")
    )]
    Held { path: PathBuf, by: Option<String> },
}

impl Error {
    /// Of what the kernel says to an attempt to set something.
    pub(crate) fn kernel(what: impl ToString, error: &std::io::Error) -> Error {
        let (what, why) = (what.to_string(), error.to_string());
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ESRCH) => Error::Gone { what },
            Some(libc::EPERM | libc::EACCES | libc::EROFS) => Error::Denied { what, why },
            _ => Error::Refused { what, why },
        }
    }

    pub(crate) fn gone(knob: &Knob) -> Error {
        Error::Gone {
            what: knob.to_string(),
        }
    }

    pub(crate) fn refused(knob: &Knob, why: impl ToString) -> Error {
        Error::Refused {
            what: knob.to_string(),
            why: why.to_string(),
        }
    }

    pub(crate) fn ledger(path: impl Into<PathBuf>, why: impl ToString) -> Error {
        Error::Ledger {
            path: path.into(),
            why: why.to_string(),
        }
    }
}
