// SPDX-License-Identifier: GPL-2.0-only
//! Very many combinations of `--vary`: how long they would take is said first, and whether to go on is asked.
use crate::exit::{Done, Failure};
use berth_experiment::Request;
use berth_experiment::estimate::{self, Estimate};
use berth_experiment::plan::plan;
use berth_experiment::policies;
use berth_experiment::simulator::Running;
use berth_report::say;
use berth_scenario::edit;
use std::io::{BufRead, IsTerminal};

/// So many combinations are run without a question, and so many runs before one is tried how long it takes.
const UNASKED: u64 = 1_000;

/// What takes this long, seconds, by the time that one run took, is not begun without a question. More than [`LONG_S`]:
/// a busy machine is no reason to ask.
const LONG_BY_ONE_S: f64 = 600.0;

/// What takes this long, seconds, is not begun without a question.
pub const LONG_S: f64 = 120.0;

/// Asks before very many combinations are run, or what takes minutes by all that is known, unless `--yes` was said. The
/// estimate comes from the scenario, or from one run.
///
/// # Errors
/// A wrong option; the answer is no; there is nobody to ask.
pub fn ask(request: &Request, running: &Running, yes: bool) -> Done {
    let combinations = edit::combinations(&request.vary)?;
    if yes {
        return Ok(());
    }
    // One run of it may take too long to find out by.
    let first = plan(&request.first()?, &policies::shipped(), None)?;
    let least = estimate::least_seconds(&first);
    let all = least * combinations as f64;
    let runs = (first.runs() as u64).saturating_mul(combinations);
    if runs > UNASKED && least < LONG_S {
        let estimate = Estimate::of(request, running)?;
        if combinations > UNASKED || estimate.seconds() >= LONG_BY_ONE_S {
            return go_on(&words(&estimate));
        }
    }
    if all >= LONG_S {
        return go_on(&format!(
            "by the requests and VMs that the scenario asks for this takes {} or more",
            long(all)
        ));
    }
    Ok(())
}

/// # Errors
/// The answer is no; there is nobody to ask.
fn go_on(estimate: &str) -> Done {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::Input(format!(
            "{estimate}\n  To run them all the same: --yes"
        )));
    }
    say::begin(&format!("{estimate}\n  Go on? [y/N] "));
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::Input("nothing was run".into()))
    }
}

fn words(of: &Estimate) -> String {
    format!(
        "{} combinations are {} runs: about {} on {} CPUs (one run took {:.3} s), and about {:.1} GB of results \
         in memory",
        grouped(of.combinations),
        grouped(of.runs),
        long(of.seconds()),
        of.workers,
        of.one_run.as_secs_f64(),
        of.gigabytes(),
    )
}

/// Digits in groups of three.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// Seconds in the unit that a person would use.
pub fn long(seconds: f64) -> String {
    const UNITS: [(f64, &str); 4] = [
        (365.25 * 86_400.0, "years"),
        (86_400.0, "days"),
        (3_600.0, "hours"),
        (60.0, "minutes"),
    ];
    for (unit, name) in UNITS {
        if seconds >= 2.0 * unit {
            return format!("{:.0} {name}", seconds / unit);
        }
    }
    format!("{seconds:.0} seconds")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn estimates_in_words() {
        let said = words(&Estimate {
            combinations: 1_000_000,
            runs: 30_000_000,
            one_run: Duration::from_millis(28),
            bytes: 3000,
            workers: 2,
        });
        assert_eq!(
            said,
            "1 000 000 combinations are 30 000 000 runs: about 5 days on 2 CPUs (one run took 0.028 s), and about 90.0 \
             GB of results in memory"
        );
        assert_eq!(long(90.0), "90 seconds");
        assert_eq!(long(400.0), "7 minutes");
        assert_eq!(long(1e9), "32 years");
    }
}
