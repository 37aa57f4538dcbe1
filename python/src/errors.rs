// SPDX-License-Identifier: GPL-2.0-only
//! The commands' errors as exceptions, with the same text.
use berth_experiment::Failure;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;
use std::fmt::Display;

pyo3::create_exception!(
    berth,
    BerthError,
    PyException,
    "Anything that Berth says no to. Its text is that of the command line."
);
pyo3::create_exception!(
    berth,
    InputError,
    BerthError,
    "Wrong input: a scenario, a policy, an address, an option. Nothing was run."
);
pyo3::create_exception!(
    berth,
    RunError,
    BerthError,
    "A run failed, or results could not be kept. `results` has what there is, if there is anything."
);

pub fn input(why: impl Display) -> PyErr {
    InputError::new_err(why.to_string())
}

pub fn failed(why: impl Display) -> PyErr {
    RunError::new_err(why.to_string())
}

/// A failure as an exception.
pub fn raised(failure: Failure) -> PyErr {
    match failure {
        Failure::Input(why) => input(why),
        Failure::Run(why) => failed(why),
        Failure::Expect => failed("something that was expected does not hold"),
        Failure::Interrupted => PyKeyboardInterrupt::new_err("what was finished is kept"),
    }
}
