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
    #[error("{}: {why}", path.display())]
    Ledger { path: PathBuf, why: String },
    /// Another process acts on this host.
    #[error(
        "{}: another process acts on this host by it: end that one first (berth stop, or stop its daemon)",
        path.display()
    )]
    Held { path: PathBuf },
}

impl Error {
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
