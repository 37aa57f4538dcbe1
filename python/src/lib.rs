// SPDX-License-Identifier: GPL-2.0-only
//! `berth._native`: the library behind the commands, for Python.
//!
//! [`scenario`] and [`policy`] are what is run, [`run`] runs it, [`results`] and [`table`] are what came out; [`sweep`]
//! does very many jobs and keeps them; [`papers`] has what papers and kept records are compared by. [`attended`] keeps
//! Python's signals and progress alive while Rust works, [`errors`] are its exceptions. The rest of the package is
//! Python (`python/berth`).
mod attended;
mod errors;
mod papers;
mod policy;
mod results;
mod run;
mod scenario;
mod sweep;
mod table;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::errors::{BerthError, InputError, RunError};
    #[pymodule_export]
    use super::papers::{compare_records, reproduce};
    #[pymodule_export]
    use super::policy::{Policy, policies, policy};
    #[pymodule_export]
    use super::results::{Results, load};
    #[pymodule_export]
    use super::run::run;
    #[pymodule_export]
    use super::scenario::{Scenario, scenarios};
    #[pymodule_export]
    use super::sweep::chunk::work;
    #[pymodule_export]
    use super::sweep::plan::Sweep;
    #[pymodule_export]
    use super::sweep::runs::Runs;
    #[pymodule_export]
    use super::table::Table;

    /// The version of what does runs: that of Berth, and a hash of the sources that results depend on.
    #[pymodule_export]
    const VERSION: &str = berth_experiment::job::VERSION;
}
