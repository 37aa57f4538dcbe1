// SPDX-License-Identifier: GPL-2.0-only
//! Exit statuses. Scripts rely on them: they do not change. 1: what was expected does not hold, 2: bad usage or
//! input, 3: a run failed or results could not be kept, 130: interrupted.
pub use berth_experiment::{Done, Failure};
use std::process::ExitCode;

/// Checks each of `items`, past those that are wrong; every wrong one is reported.
///
/// # Errors
/// All that is wrong with them, or at once what is not about an input.
pub fn each<T>(items: &[T], check: impl Fn(&T) -> Done) -> Done {
    let mut wrong = Vec::new();
    for item in items {
        match check(item) {
            Ok(()) => {}
            Err(Failure::Input(message)) => wrong.push(message),
            Err(other) => return Err(other),
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::Input(wrong.join("\n")))
}

/// Prints what went wrong and gives the exit status.
pub fn code(done: Done) -> ExitCode {
    let (message, status) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Expect) => (None, 1),
        Err(Failure::Input(message)) => (Some(message), 2),
        Err(Failure::Run(message)) => (Some(message), 3),
        Err(Failure::Interrupted) => (None, 130),
    };
    if let Some(message) = message {
        eprintln!("error: {message}");
    }
    ExitCode::from(status)
}
