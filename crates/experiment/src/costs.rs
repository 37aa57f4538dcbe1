// SPDX-License-Identifier: GPL-2.0-only
//! What the events of the lab's VM cost, under the kernel's own scheduler and policies
//! made for this.
use crate::error::Failure;
use crate::lab::{self, Boots};
use crate::request::Request;
use crate::simulator::{self, Running};
use berth_compare::costs::{self, CASES, Measured};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs the cases in VMs, with what `request` says besides the scenario; gives the profile's text. Files go into `out`.
///
/// # Errors
/// A case did not run, or did not measure what it should.
pub fn measure(
    request: &Request,
    boots: &Boots,
    running: &Running,
    out: &Path,
) -> Result<String, Failure> {
    let folder = cases(out)?;
    let mut measured = Vec::new();
    let mut release = String::new();
    for case in &CASES {
        let file = folder.join(format!("{}.toml", case.name));
        std::fs::write(&file, case.scenario)
            .map_err(|e| Failure::Run(format!("{}: {e}", file.display())))?;
        let mut request = request.clone();
        request.scenario = file.display().to_string();
        if let Some(source) = case.policy {
            let file = folder.join(format!("{}.bpf.c", case.name));
            std::fs::write(&file, source)
                .map_err(|e| Failure::Run(format!("{}: {e}", file.display())))?;
            request.policies = vec![file.display().to_string()];
            request.arms = vec![case.name.into()];
        }
        let results = lab::results(&request, None, None, boots, String::new())?;
        release.clone_from(&results.provenance.kernel);
        let mut values = costs::read(case, &results).map_err(Failure::Run)?;
        if case.counts_code() {
            let results = simulator::simulated(&request, running)?;
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
fn cases(out: &Path) -> Result<PathBuf, Failure> {
    let folder = out.join("costs");
    std::fs::create_dir_all(&folder)
        .map_err(|e| Failure::Run(format!("{}: {e}", folder.display())))?;
    Ok(folder)
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
