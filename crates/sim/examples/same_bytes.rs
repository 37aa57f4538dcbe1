// SPDX-License-Identifier: GPL-2.0-only
//! One hash over 200 random scenarios with all shipped policies: it must not depend on build or workers.
//!
//! `cargo run -p berth-sim --example same_bytes -- [--workers N] [--scenarios N]`
//!
//! Prints the hash of everything that happened and every metric, bit for bit. `tools/same-bytes` runs the
//! release build with 1, 3 and 8 workers, and the debug build with 2. A run that ends with an error counts with the
//! error's text.
use berth_sim::oracle::same_bytes;
use std::process::ExitCode;

fn run() -> Result<String, Box<dyn std::error::Error>> {
    let (mut workers, mut scenarios) = (0, 200);
    let mut rest = std::env::args().skip(1);
    while let Some(option) = rest.next() {
        let number = rest.next().unwrap_or_default().parse::<usize>();
        let number = number.map_err(|_| format!("{option} needs a number"))?;
        match option.as_str() {
            "--workers" => workers = number,
            "--scenarios" => scenarios = number,
            other => {
                return Err(format!("unknown option {other}: --workers N, --scenarios N").into());
            }
        }
    }
    let policies: Vec<_> = berth_builtin::all()
        .iter()
        .map(|b| Ok((b.name.to_string(), b.load(&Default::default())?)))
        .collect::<Result<_, berth_policy::error::LoadError>>()?;
    Ok(same_bytes::hash(&policies, scenarios as u64, workers))
}

fn main() -> ExitCode {
    match run() {
        Ok(hash) => {
            println!("{hash}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("same_bytes: {e}");
            ExitCode::FAILURE
        }
    }
}
