// SPDX-License-Identifier: GPL-2.0-only
//! Queues with known means, over many seeds: how often does the 95 % interval cover the truth?
//!
//! `cargo run --release -p berth-sim --example closed_forms -- [--seeds N] [--workers N] [--only WORDS] [--check]`
//!
//! Seeds are 1..=N. `--only`: systems whose name has these words. With `--check`, a coverage further from 95 % than 2
//! points is a failure; that is with 1,000 seeds, and 2.9 standard errors of the coverage, as it is with any other
//! number. The table goes to standard output, progress to standard error; Ctrl-C ends it there.
use berth_sim::oracle::closed_forms::{RoundRobin, Row};
use berth_sim::oracle::interval::Interval;
use berth_sim::replicate::{Replicate, jobs};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

struct Arguments {
    seeds: u64,
    workers: usize,
    check: bool,
    only: String,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        seeds: 1_000,
        workers: 0,
        check: false,
        only: String::new(),
    };
    let mut rest = std::env::args().skip(1);
    while let Some(option) = rest.next() {
        let mut number = || {
            let text = rest.next().unwrap_or_default();
            text.parse::<u64>()
                .map_err(|_| format!("{option} needs a number, not `{text}`"))
        };
        match option.as_str() {
            "--seeds" => parsed.seeds = number()?.max(1),
            "--workers" => parsed.workers = number()? as usize,
            "--only" => parsed.only = rest.next().ok_or("--only needs words")?,
            "--check" => parsed.check = true,
            other => {
                return Err(format!(
                    "unknown option {other}: --seeds N, --workers N, --only WORDS, --check"
                ));
            }
        }
    }
    Ok(parsed)
}

/// How far from 95 % a coverage over so many seeds may lie.
fn tolerance(seeds: f64) -> f64 {
    0.02 * (1_000.0 / seeds).sqrt()
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let arguments = arguments()?;
    let machine = RoundRobin::compile()?;
    let cancel = AtomicBool::new(false);
    let mut good = true;
    println!("| system | quantity | truth | mean of means | half-width | coverage | seconds |");
    println!("|---|---|---|---|---|---|---|");
    let wanted = |row: &Row| row.name().contains(&arguments.only);
    let talk = std::io::stderr().is_terminal();
    for row in Row::ALL.into_iter().filter(wanted) {
        let begin = Instant::now();
        let progress = |p: berth_sim::replicate::Progress| {
            if talk && p.done.is_multiple_of(50) {
                eprint!("\r{}: {} of {} seeds ", row.name(), p.done, p.of);
            }
        };
        let replicate = Replicate {
            workers: arguments.workers,
            cancel: &cancel,
            progress: &progress,
        };
        let outcome = replicate.run(&jobs(1, 1..=arguments.seeds), |job| {
            row.interval(&machine, job.seed)
        });
        if talk {
            eprint!("\r{:70}\r", "");
        }
        if let Some((job, error)) = outcome.errors().next() {
            return Err(format!("{}, seed {}: {error}", row.name(), job.seed).into());
        }
        let truth = row.truth();
        let intervals: Vec<Interval> = outcome.results().map(|(_, i)| *i).collect();
        let n = intervals.len() as f64;
        let covered = intervals.iter().filter(|i| i.covers(truth)).count() as f64 / n;
        let mean = intervals.iter().map(|i| i.mean).sum::<f64>() / n;
        let half = intervals.iter().map(|i| i.half_width).sum::<f64>() / n;
        println!(
            "| {} | {} | {truth:.5} | {mean:.5} | {:.2} % | {:.1} % | {:.0} |",
            row.name(),
            row.quantity(),
            100.0 * half / truth,
            100.0 * covered,
            begin.elapsed().as_secs_f64()
        );
        good &= (covered - 0.95).abs() <= tolerance(n);
    }
    Ok(good || !arguments.check)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("closed_forms: a coverage lies too far from 95 % (see --check)");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("closed_forms: {e}");
            ExitCode::FAILURE
        }
    }
}
