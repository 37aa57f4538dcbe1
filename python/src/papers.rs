// SPDX-License-Identifier: GPL-2.0-only
//! What papers report, and kept records of a real kernel, beside the simulator.
use crate::attended::{Cancel, Counts, attended};
use crate::errors;
use berth_compare::{Bounds, table};
use berth_experiment::compare::{Comparing, sets};
use berth_experiment::kept::Kept;
use berth_experiment::plan::Lengths;
use berth_experiment::reproduce as papers_of;
use berth_experiment::reproduce::Wanted;
use berth_experiment::reproduce::told::Told;
use berth_experiment::simulator::Running;
use berth_experiment::{Failure, Request};
use berth_results::experiment::Results;
use berth_scenario::paper;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// Does a paper's experiments, or one of them, and gives what came out as JSON. `say` is told of every run.
#[pyfunction]
pub fn reproduce(
    py: Python<'_>,
    name: &str,
    only: Option<&str>,
    quick: bool,
    workers: usize,
    papers: PathBuf,
    kept: Option<PathBuf>,
) -> PyResult<String> {
    let cancel = Cancel::new();
    let flag = cancel.flag();
    let work = || -> Result<String, Failure> {
        let paper = paper::named(&papers, name)?;
        let only = only.map(|id| papers_of::named(&paper, id)).transpose()?;
        let kept = match &kept {
            Some(folder) => Kept::at(folder),
            None => Kept::of_user()?,
        };
        let running = Running {
            kept: Some(kept),
            ..Running::new(workers, flag)
        };
        let wanted = Wanted {
            paper: &paper,
            only,
            quick,
            sealed: None,
        };
        let all = papers_of::reproduce(&wanted, &running, &|_| ())?;
        serde_json::to_string(&Told::of(&all)).map_err(|e| Failure::Run(e.to_string()))
    };
    let (done, stopped) = attended(py, &cancel, &Counts::default(), None, work)?;
    match stopped {
        Some(stopped) => Err(stopped),
        None => done.map_err(errors::raised),
    }
}

/// A folder of scenarios with kept records of a real kernel: simulated, judged, as JSON and as tables.
#[pyfunction]
pub fn compare_records(
    py: Python<'_>,
    folder: PathBuf,
    arms: Vec<String>,
    seeds: Option<u32>,
    lab_costs: bool,
    workers: usize,
) -> PyResult<(String, String)> {
    let cancel = Cancel::new();
    let flag = cancel.flag();
    let work = || compared(&folder, arms, seeds, lab_costs, Running::new(workers, flag));
    let (done, stopped) = attended(py, &cancel, &Counts::default(), None, work)?;
    match stopped {
        Some(stopped) => Err(stopped),
        None => done.map_err(errors::raised),
    }
}

fn compared(
    folder: &Path,
    arms: Vec<String>,
    seeds: Option<u32>,
    lab_costs: bool,
    running: Running,
) -> Result<(String, String), Failure> {
    let nobody = |_: &Request, _: Option<Lengths>, _: usize, _: Option<&[u64]>| {
        Err::<Results, _>(Failure::Input(
            "the lab boots from the command line only: berth compare".into(),
        ))
    };
    let comparing = Comparing {
        request: Request {
            arms,
            seeds,
            ..Request::default()
        },
        bounds: Bounds::built_in().map_err(|e| Failure::Run(e.to_string()))?,
        lab_costs,
        running,
        command: String::new(),
        record: None,
        boot: &nobody,
    };
    let compared = sets::compared(&comparing, folder, Some(&|_| ()))?;
    if compared.all.is_empty() {
        return Err(Failure::Input(format!(
            "{} has no kept records: berth compare {0} --record makes them",
            folder.display()
        )));
    }
    let json = serde_json::to_string(&compared.all).map_err(|e| Failure::Run(e.to_string()))?;
    let tables = compared.all.iter();
    let tables = tables.map(|c| format!("{}\n\n{}", c.title, table::table(c)));
    Ok((json, tables.collect::<Vec<_>>().join("\n")))
}
