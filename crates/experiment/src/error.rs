// SPDX-License-Identifier: GPL-2.0-only
//! Why an experiment did not do all it was asked for.

#[derive(Debug)]
pub enum Failure {
    /// Something that was expected does not hold: an `[[expect]]`, a bound, a page. It has been said by then.
    Expect,
    /// Bad usage or input: nothing was run.
    Input(String),
    /// A run failed (an error of the policy, a broken invariant), or results could not be kept.
    Run(String),
    /// Interrupted; what there is, was kept.
    Interrupted,
}

impl From<berth_scenario::Error> for Failure {
    fn from(error: berth_scenario::Error) -> Failure {
        Failure::Input(error.to_string())
    }
}

pub type Done = Result<(), Failure>;
