// SPDX-License-Identifier: GPL-2.0-only
//! Very many combinations of `--vary`: how long they would take is said first, and whether to go on is asked.
use crate::exit::{Done, Failure};
use berth_experiment::Request;
use berth_experiment::plan::plan;
use berth_experiment::policies;
use berth_experiment::simulator::{Running, Simulator};
use berth_scenario::edit;
use std::io::{BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

/// So many combinations are run without a question.
const UNASKED: u64 = 1_000;

/// Asks before very many combinations are run, unless `--yes` was said. The estimate comes from one run.
///
/// # Errors
/// A wrong option; the answer is no; there is nobody to ask.
pub fn ask(request: &Request, running: &Running, yes: bool) -> Done {
    let combinations = edit::combinations(&request.vary)?;
    if combinations <= UNASKED || yes {
        return Ok(());
    }
    let estimate = estimate(request, running, combinations)?;
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::Input(format!(
            "{estimate}\n  To run them all the same: --yes"
        )));
    }
    eprint!("{estimate}\n  Go on? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::Input("nothing was run".into()))
    }
}

/// Runs the first combination once and says what all of them come to.
fn estimate(request: &Request, running: &Running, combinations: u64) -> Result<String, Failure> {
    let first = Request {
        set: request
            .set
            .iter()
            .cloned()
            .chain(edit::first(&request.vary)?)
            .collect(),
        vary: Vec::new(),
        ..request.clone()
    };
    let mut plan = plan(&first, &policies::shipped(), None)?;
    let simulator = Simulator::prepare(&mut plan, running)?;
    plan.check(berth_scenario::support::Place::Sim, false)?;
    let runs = (plan.runs() as u64).saturating_mul(combinations);
    let arms = plan.variants.first().map_or(&[][..], |v| &v.arms);
    let arm = arms.iter().position(|a| a.absent.is_none());
    let (Some(arm), Some(seed)) = (arm, plan.seeds.first()) else {
        return Err(Failure::Input("no arm of the scenario can run here".into()));
    };
    let started = Instant::now();
    let record = simulator.run(0, arm, *seed).map_err(Failure::Run)?;
    let one = started.elapsed();
    let bytes = serde_json::to_string(&record).map_or(0, |text| text.len() as u64);
    Ok(words(combinations, runs, one, bytes, cpus(running.workers)))
}

fn cpus(workers: usize) -> u64 {
    match workers {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        n => n as u64,
    }
}

fn words(combinations: u64, runs: u64, one: Duration, bytes: u64, cpus: u64) -> String {
    let seconds = one.as_secs_f64() * runs as f64 / cpus as f64;
    let gigabytes = runs as f64 * bytes as f64 / 1e9;
    format!(
        "{} combinations are {} runs: about {} on {cpus} CPUs (one run took {:.3} s), and about {gigabytes:.1} GB of \
         results in memory",
        grouped(combinations),
        grouped(runs),
        long(seconds),
        one.as_secs_f64(),
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
fn long(seconds: f64) -> String {
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

    #[test]
    fn estimates_in_words() {
        let said = words(1_000_000, 30_000_000, Duration::from_millis(28), 3000, 2);
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
