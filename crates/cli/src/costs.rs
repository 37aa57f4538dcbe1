// SPDX-License-Identifier: GPL-2.0-only
//! `berth lab --measure-costs`: what the events of the lab's VM cost, under the kernel's own scheduler and policies
//! made for this.
use crate::exit::Failure;
use crate::options::RunOptions;
use berth_compare::costs::{self, CASES, Measured};
use berth_lab::Vcpus;
use std::path::Path;

/// Runs the cases in VMs; gives the profile's text.
///
/// # Errors
/// A case did not run, or did not measure what it should.
pub fn measure(run: &RunOptions, kernel: &str, jobs: Option<usize>) -> Result<String, Failure> {
    let folder = tempfile(run)?;
    let mut measured = Vec::new();
    let mut release = String::new();
    for case in &CASES {
        let file = folder.join(format!("{}.toml", case.name));
        std::fs::write(&file, case.scenario)
            .map_err(|e| Failure::Run(format!("{}: {e}", file.display())))?;
        let mut options = run.clone();
        options.scenario = Some(file.display().to_string());
        if let Some(source) = case.policy {
            let file = folder.join(format!("{}.bpf.c", case.name));
            std::fs::write(&file, source)
                .map_err(|e| Failure::Run(format!("{}: {e}", file.display())))?;
            options.policy = vec![file.display().to_string()];
            options.arm = vec![case.name.into()];
        }
        let results = crate::lab::results(&options, None, kernel, jobs, 1, Vcpus::Threads)?;
        release.clone_from(&results.provenance.kernel);
        let mut values = costs::read(case, &results).map_err(Failure::Run)?;
        if case.policy.is_some() {
            let results = crate::compare::simulated(&options)?;
            for (name, metric) in costs::COUNTED {
                let count = costs::per_wakeup(&results, metric).map_err(Failure::Run)?;
                values.insert(name.into(), count);
            }
        }
        measured.push(Measured {
            case: case.name,
            values,
        });
    }
    Ok(costs::profile(&measured, &release))
}

/// Where the cases' scenarios are put for the run.
fn tempfile(run: &RunOptions) -> Result<std::path::PathBuf, Failure> {
    let folder: &Path = &run.out.join("costs");
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure::Run(format!("{}: {e}", folder.display())))?;
    Ok(folder.to_path_buf())
}
