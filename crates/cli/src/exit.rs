// SPDX-License-Identifier: GPL-2.0-only
//! Exit statuses. Scripts rely on them: they do not change.
use std::process::ExitCode;

/// Why a command did not do all it was asked for.
#[derive(Debug)]
pub enum Failure {
    /// Status 2: bad usage or input, nothing was run.
    Input(String),
}

impl From<berth_scenario::Error> for Failure {
    fn from(error: berth_scenario::Error) -> Failure {
        Failure::Input(error.to_string())
    }
}

pub type Done = Result<(), Failure>;

/// Prints what went wrong and gives the exit status.
pub fn code(done: Done) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Input(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}
