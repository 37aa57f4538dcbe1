// SPDX-License-Identifier: GPL-2.0-only
//! Policies by name or file, and what they say about themselves.
use crate::errors;
use berth_experiment::policies::{description, load};
use berth_policy::policy::LoadOptions;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A policy: a shipped one, or one of a `.bpf.c` or `.bpf.o` file. Takes part in `arms=` of `berth.run` and
/// `berth.sweep`.
#[pyclass(frozen, module = "berth")]
pub struct Policy {
    /// Its name, or its file.
    #[pyo3(get)]
    name: String,
    /// What it does, in a sentence.
    #[pyo3(get)]
    help: String,
    /// A model of the literature rather than a policy for use.
    #[pyo3(get)]
    study: bool,
    /// Of its compiled object; results carry it.
    #[pyo3(get)]
    hash: String,
    /// Parameters and presets, as JSON.
    described: String,
}

#[pymethods]
impl Policy {
    fn __repr__(&self) -> String {
        format!("<berth.Policy {}: {}>", self.name, self.help)
    }

    /// Its parameters: `name`, `unit`, `default`, `min`, `max`, `live`, `help`, and `words` where values have names.
    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.described(py)?.get_item("parameters")
    }

    /// Its presets: `name`, `help`, `values`.
    #[getter]
    fn presets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.described(py)?.get_item("presets")
    }
}

impl Policy {
    fn described<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (&self.described,))
    }
}

fn described(name: &str, study: bool) -> PyResult<Policy> {
    let policy = load(name, &LoadOptions::default()).map_err(errors::raised)?;
    let parts = serde_json::json!({ "parameters": policy.params(), "presets": policy.presets() });
    Ok(Policy {
        name: name.into(),
        help: description(&policy).1,
        study,
        hash: policy.hash().into(),
        described: parts.to_string(),
    })
}

/// All shipped policies.
#[pyfunction]
pub fn policies(py: Python<'_>) -> PyResult<Vec<Policy>> {
    py.detach(|| {
        let all = berth_builtin::all().iter();
        all.map(|b| described(b.name, b.study)).collect()
    })
}

/// A policy by name or file.
#[pyfunction]
pub fn policy(py: Python<'_>, name: PathBuf) -> PyResult<Policy> {
    let name = name.to_string_lossy().into_owned();
    let study = berth_builtin::find(&name).is_some_and(|b| b.study);
    py.detach(|| described(&name, study))
}
