// SPDX-License-Identifier: GPL-2.0-only
//! `berth-conformance`: records the checklist on real kernels, and prints the table of the docs.
use berth_conformance::rows::rows;
use berth_conformance::{golden, log, report, sim};
use berth_policy::policy::{LoadOptions, Policy};
use berth_sim::scx::{MUTATIONS, Mutation};
use std::process::ExitCode;

const USAGE: &str = "usage: berth-conformance rows
       berth-conformance play ROW [MISTAKE]
                                         the row's log in the simulator, or in one that makes a mistake
       berth-conformance compare LINE    every row in the simulator against its recording
       berth-conformance table [--record] [--out FILE]
                                         the page docs/conformance.md; --record records all lines first
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
            for row in rows() {
                println!("{:<20} {:<4} {}", row.name, row.machine.name(), row.title);
            }
            Ok(())
        }
        ["play", row] => play(row, None),
        ["play", row, mutation] => play(row, Some(mutation)),
        ["compare", line] => compare(line),
        ["table", options @ ..] => table(options),
        #[cfg(feature = "lab")]
        ["record-here", object, machine, ..] => {
            berth_conformance::vm::record_here(object.as_ref(), machine, &args[3..])
        }
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

fn recorder() -> Result<Policy, String> {
    let object = berth_conformance::recorder::object().map_err(|e| e.to_string())?;
    Policy::from_object(&object, &LoadOptions::default()).map_err(|e| e.to_string())
}

fn play(name: &str, mistake: Option<&str>) -> Result<(), String> {
    let row = rows()
        .into_iter()
        .find(|r| r.name == name)
        .ok_or(format!("no row `{name}`"))?;
    let unknown = |m| format!("no mistake `{m}`: see docs/conformance.md");
    let mutation = mistake
        .map(|m| Mutation::from_name(m).ok_or(unknown(m)))
        .transpose()?;
    if mutation.is_some() {
        with_mistakes()?;
    }
    let log = sim::play(&row, &recorder()?, mutation).map_err(|e| e.to_string())?;
    print!("{log}");
    Ok(())
}

/// An optimised build has wrong models only if it is asked for them.
fn with_mistakes() -> Result<(), String> {
    match MUTATIONS {
        true => Ok(()),
        false => Err(
            "this build makes no mistakes: cargo run --release -p berth-conformance --features mutations -- ..."
                .to_string(),
        ),
    }
}

/// `--record` records all lines first; `--out FILE` writes the page there.
fn table(options: &[&str]) -> Result<(), String> {
    with_mistakes()?;
    let (again, out) = match options {
        [] => (false, None),
        ["--record"] => (true, None),
        ["--out", out] => (false, Some(out)),
        ["--record", "--out", out] | ["--out", out, "--record"] => (true, Some(out)),
        _ => return Err(USAGE.to_string()),
    };
    if again {
        for line in golden::LINES {
            record(line, &[])?;
        }
    }
    let report = report::report(&recorder()?).map_err(|e| e.to_string())?;
    let page = report::markdown(&report);
    match out {
        Some(out) => std::fs::write(out, page).map_err(|e| format!("{out}: {e}")),
        None => {
            print!("{page}");
            Ok(())
        }
    }
}

fn compare(line: &str) -> Result<(), String> {
    let recorder = recorder()?;
    let mut different = 0;
    for row in rows() {
        let Some(golden) = golden::load(line, &row).map_err(|e| e.to_string())? else {
            println!("{:<20} not recorded", row.name);
            continue;
        };
        let result = sim::play(&row, &recorder, None)
            .map_err(|e| e.to_string())
            .and_then(|log| {
                log::compare(&row, &golden.log, &report::as_line(line, &log))
                    .map_err(|e| e.to_string())
            });
        different += u32::from(result.is_err());
        println!("{:<20} {}", row.name, result.err().unwrap_or("same".into()));
    }
    if different == 0 {
        Ok(())
    } else {
        Err(format!("{different} rows differ"))
    }
}

#[cfg(feature = "lab")]
fn record(line: &str, wanted: &[String]) -> Result<(), String> {
    use berth_conformance::vm;
    let say = |text: String| eprintln!("{text}");
    let bytes = berth_conformance::recorder::object().map_err(|e| e.to_string())?;
    let program = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
    let mut keep = |rows: &vm::Recorded| vm::store(line, rows, &say);
    let recorded =
        vm::record(line, &bytes, wanted, &program, &say, &mut keep).map_err(|e| e.to_string())?;
    let good = recorded.values().filter(|r| r.is_ok()).count();
    println!("{good} of {} rows recorded", recorded.len());
    Ok(())
}

#[cfg(not(feature = "lab"))]
fn record(_line: &str, _wanted: &[String]) -> Result<(), String> {
    Err("recording needs the lab: cargo run -p berth-conformance --features lab -- ...".to_string())
}
