// SPDX-License-Identifier: GPL-2.0-only
//! A scenario, and what is changed of it.
use crate::errors;
use berth_experiment::{Request, policies};
use berth_scenario::{Edit, Input, edit, read, shipped, show};
use pyo3::prelude::*;
use std::path::PathBuf;

/// A scenario's text with changes. `berth.Scenario` is what users see of it.
#[pyclass(frozen, module = "berth._native")]
pub struct Scenario {
    pub input: Input,
    pub set: Vec<String>,
    /// What the command line calls it; none if it was made in Python.
    named: Option<String>,
}

impl Scenario {
    /// What is to be run of it. `arms`: names as the command's `--arm` takes them, or files; `policies` as `--policy`.
    pub fn request(
        &self,
        arms: Vec<String>,
        policies: Vec<String>,
        seeds: Option<u32>,
        seed: Option<u64>,
    ) -> Request {
        let (files, names): (Vec<String>, Vec<String>) =
            arms.into_iter().partition(|arm| policies::is_file(arm));
        let of_files = files.iter().map(|file| edit::arm_name(file));
        let arms = names.into_iter().chain(of_files).collect();
        let policies = files.into_iter().chain(policies).collect();
        Request {
            scenario: self.named.clone().unwrap_or_default(),
            set: self.set.clone(),
            vary: Vec::new(),
            arms,
            policies,
            seeds,
            seed,
            ..Request::default()
        }
    }

    fn read(&self) -> PyResult<berth_scenario::Loaded> {
        let edits: Vec<Edit> = self.set.iter().cloned().map(Edit::Set).collect();
        read(&self.input, &edits).map_err(errors::input)
    }
}

#[pymethods]
impl Scenario {
    /// A ready scenario's name, or a file.
    #[staticmethod]
    fn load(what: &str) -> PyResult<Scenario> {
        let input = shipped::find(what).map_err(errors::input)?;
        Ok(Scenario {
            input,
            set: Vec::new(),
            named: Some(what.into()),
        })
    }

    /// A scenario's text; `folder` is where files that it names lie.
    #[staticmethod]
    fn from_text(name: String, text: String, folder: Option<PathBuf>) -> Scenario {
        let input = Input {
            shown: format!("scenario {name}"),
            name,
            text,
            folder,
        };
        Scenario {
            input,
            set: Vec::new(),
            named: None,
        }
    }

    /// The same with one more change, `ADDRESS=VALUE`.
    fn with_set(&self, change: String) -> PyResult<Scenario> {
        let scenario = Scenario {
            input: self.input.clone(),
            set: self.set.iter().cloned().chain([change]).collect(),
            named: self.named.clone(),
        };
        scenario.read()?;
        Ok(scenario)
    }

    /// As it was written, or with every default filled in and every change made.
    fn text(&self, full: bool) -> PyResult<String> {
        if !full && self.set.is_empty() {
            return Ok(self.input.text.clone());
        }
        Ok(show::full(&self.read()?.facts))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.input.name
    }

    #[getter]
    fn changes(&self) -> Vec<String> {
        self.set.clone()
    }

    /// Names of its arms, in order.
    fn arms(&self) -> PyResult<Vec<String>> {
        let arms = self.read()?.scenario.arms;
        Ok(arms.into_iter().map(|arm| arm.name).collect())
    }
}

/// Name and question of every ready scenario.
#[pyfunction]
pub fn scenarios() -> Vec<(&'static str, String)> {
    let all = shipped::SHIPPED.iter();
    all.map(|(name, text)| (*name, shipped::question(text)))
        .collect()
}
