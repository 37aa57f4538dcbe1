// SPDX-License-Identifier: GPL-2.0-only
//! Results on disk, and the report beside them.
use crate::error::Failure;
use berth_results::experiment::Results;
use berth_results::schema::Place;
use berth_results::write;
use std::path::{Path, PathBuf};

/// Writes the results and the report into the folder of the scenario's name in `out`; gives the path of the report.
///
/// # Errors
/// The disk's.
pub fn save(out: &Path, name: &str, results: &Results) -> Result<PathBuf, Failure> {
    let folder = write::folder(out, name);
    write::write(&folder, results).map_err(|e| Failure::Run(e.to_string()))?;
    report(&folder)
}

/// Writes `report.html` from all results of a folder; gives its path.
///
/// # Errors
/// There are no results, or they cannot be read, or the report not written.
pub fn report(folder: &Path) -> Result<PathBuf, Failure> {
    let failed = |e: write::FileError| Failure::Run(e.to_string());
    let mut all = Vec::new();
    for place in [Place::Sim, Place::Lab, Place::Host] {
        all.extend(write::read(folder, place).map_err(failed)?);
    }
    if all.is_empty() {
        return Err(none_in(folder));
    }
    let path = folder.join("report.html");
    let page = berth_report::html::page(&all.iter().collect::<Vec<_>>());
    write::atomic(&path, page.as_bytes()).map_err(failed)?;
    Ok(path)
}

/// What to say of a folder without results.
pub fn none_in(folder: &Path) -> Failure {
    Failure::Input(format!(
        "there are no results in {}: berth sim makes some",
        folder.display()
    ))
}
