// SPDX-License-Identifier: GPL-2.0-only
//! Results on disk, and the report beside them.
use crate::error::Failure;
use berth_results::experiment::Results;
use berth_results::schema::Place;
use berth_results::write;
use std::path::{Path, PathBuf};

/// Writes the results and the report into the next numbered folder of that of the scenario's name in `out`, which shows
/// them as the newest; gives the path of the report there.
///
/// # Errors
/// The disk's.
pub fn save(out: &Path, name: &str, results: &Results) -> Result<PathBuf, Failure> {
    let folder = write::folder(out, name);
    let failed = |e: write::FileError| Failure::Run(e.to_string());
    write::write(&folder, results).map_err(failed)?;
    let shown = report(&folder)?;
    let Some(numbered) = write::newest(&folder, results.place) else {
        return Ok(shown);
    };
    // The report of that day, with what other places had found by then.
    let page =
        std::fs::read(&shown).map_err(|e| Failure::Run(format!("{}: {e}", shown.display())))?;
    let path = numbered.join("report.html");
    write::atomic(&path, &page).map_err(failed)?;
    Ok(path)
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
