// SPDX-License-Identifier: GPL-2.0-only
//! `berth lab --measure-costs`: what the events of the lab's VM cost, under the kernel's own scheduler and policies
//! made for this.
use crate::exit::Failure;
use crate::options::RunOptions;
use berth_compare::costs::{self, CASES, Measured};
use berth_lab::Vcpus;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest time for one VM.
const TIMEOUT_S: u64 = 600;

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
        let results = crate::lab::results(
            &options,
            None,
            kernel,
            jobs,
            TIMEOUT_S,
            1,
            None,
            Vcpus::Threads,
        )?;
        release.clone_from(&results.provenance.kernel);
        let mut values = costs::read(case, &results).map_err(Failure::Run)?;
        if case.counts_code() {
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
    Ok(costs::profile(&measured, &release, &today()))
}

/// Where the cases' scenarios are put for the run.
fn tempfile(run: &RunOptions) -> Result<std::path::PathBuf, Failure> {
    let folder: &Path = &run.out.join("costs");
    std::fs::create_dir_all(folder)
        .map_err(|e| Failure::Run(format!("{}: {e}", folder.display())))?;
    Ok(folder.to_path_buf())
}

/// The day in UTC, as `YYYY-MM-DD`.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    day(since.map_or(0, |d| d.as_secs() / 86_400))
}

/// The day that is so many days after 1970-01-01, in the Gregorian calendar.
fn day(days: u64) -> String {
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let (mut year, mut rest) = (1970, days);
    while rest >= 365 + u64::from(leap(year)) {
        rest -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", rest + 1)
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn days_of_the_calendar() {
        // As `date -u -d @SECONDS +%F` has them.
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_392_000, "2026-11-23"),
            (1_798_675_200, "2026-12-31"),
        ] {
            assert_eq!(day(seconds / 86_400), text);
        }
    }
}
