// SPDX-License-Identifier: GPL-2.0-only
//! What is wrong with the input. An observation that is refused changes nothing.

/// Names what it is about, the amount, and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("process {0} is listed twice: give each process once")]
    Twice(u32),
    #[error(
        "an observation of {at_ns} ns after one of {last_ns} ns: give them in the order of time"
    )]
    Order { at_ns: u64, last_ns: u64 },
    #[error("setting {name} is {value}: give {range}")]
    Setting {
        name: &'static str,
        value: f64,
        range: &'static str,
    },
}
