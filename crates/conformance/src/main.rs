// SPDX-License-Identifier: GPL-2.0-only
//! `berth-conformance`: records the checklist on real kernels, and prints the table of the docs.
use std::process::ExitCode;

const USAGE: &str = "usage: berth-conformance rows
       berth-conformance record LINE [ROW...]   (needs feature `lab`; LINE as 7.2, ROW the beginning of a name)";

fn main() -> ExitCode {
    #[cfg(feature = "lab")]
    if berth_lab::guest::is_guest() {
        berth_lab::guest::main();
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["rows"] => {
            for row in berth_conformance::rows::rows() {
                println!("{:<20} {:<4} {}", row.name, row.machine.name(), row.title);
            }
            Ok(())
        }
        #[cfg(feature = "lab")]
        ["record-here", object, machine, ..] => {
            berth_conformance::vm::record_here(object.as_ref(), machine, &args[3..])
        }
        #[cfg(feature = "lab")]
        ["record", line, ..] => record(line, &args[2..]),
        _ => Err(USAGE.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "lab")]
fn record(line: &str, wanted: &[String]) -> Result<(), String> {
    use berth_conformance::vm;
    let say = |text: String| eprintln!("{text}");
    let bytes = berth_conformance::recorder::object().map_err(|e| e.to_string())?;
    let recorded = vm::record(line, &bytes, wanted, &say).map_err(|e| e.to_string())?;
    let good = recorded.values().filter(|r| r.is_ok()).count();
    println!("{good} of {} rows recorded", recorded.len());
    Ok(())
}
