// SPDX-License-Identifier: GPL-2.0-only
//! Results to the screen and to disk.
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use berth_experiment::plan::Plan;
#[cfg(feature = "kernel")]
use berth_experiment::save;
use berth_report::say;
use berth_report::{Style, sentences, table};
use berth_results::experiment::Results;
use berth_results::write;
use berth_scenario::shipped;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Prints to standard output; a reader that has gone away (`| head`) is no error. Anything else (a full disk) ends the
/// program with status 3: whoever reads the output must not take a part for the whole. Results are on disk by then.
pub fn print(text: &str) {
    printed(text);
}

/// The same; false if the reader has gone away, for those who would print without end.
pub fn printed(text: &str) -> bool {
    if cfg!(test) {
        // Goes where the test harness can hold it back.
        std::print!("{text}");
        return true;
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => true,
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => false,
        Err(e) => {
            say!("error: cannot write to standard output: {e}");
            std::process::exit(3);
        }
    }
}

/// What the optimiser has decided for a VM.
#[cfg(feature = "kernel")]
pub fn decided(decided: &berth_agent::backend::Decided) -> String {
    let set = &decided.setting;
    let cpus = set
        .cpus
        .as_ref()
        .map_or("all CPUs".into(), |c| format!("CPUs {c}"));
    let cap = set
        .cap
        .map_or(String::new(), |c| format!(", at most {c:.2} CPUs"));
    format!(
        "wants {:.2} CPUs, its share is {:.2}; set to {cpus}, weight {}{cap}: {}",
        decided.demand,
        decided.share,
        set.weight,
        decided.reasons.join("; ")
    )
}

/// Prints facts as JSON.
///
/// # Errors
/// A value that JSON cannot hold.
pub fn json(value: &impl serde::Serialize) -> Done {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::Run(e.to_string()))?;
    print(&format!("{text}\n"));
    Ok(())
}

/// What standard output can show. Not a terminal, or NO_COLOR set: no colour, 100 columns.
pub fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let width = if terminal {
        terminal_width().clamp(80, 100)
    } else {
        100
    };
    Style { colour, width }
}

fn terminal_width() -> usize {
    match std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()) {
        Some(columns) => columns,
        None => berth_report::progress::columns().unwrap_or(100),
    }
}

/// Results can be kept: found out before there are any.
///
/// # Errors
/// They cannot.
pub fn ready(options: &RunOptions) -> Done {
    let name = shipped::find(options.scenario()?)?.name;
    write::ready(&write::folder(&options.out, &name)).map_err(|e| {
        Failure::Run(format!(
            "{e}; nothing was run (--out FOLDER names another place)"
        ))
    })
}

/// Keeps results, shows them, and says what to do next. What can be shown is shown, whatever becomes of the files.
///
/// # Errors
/// The disk's.
#[cfg(feature = "kernel")]
pub fn keep(options: &RunOptions, plan: &Plan, results: &Results, next: &[(&str, String)]) -> Done {
    let saved = save::save(&options.out, &plan.name, results);
    kept(options, plan, results, saved, next)
}

/// Shows results, which are kept or not, and says what to do next.
///
/// # Errors
/// Those of keeping them; they cannot be shown as is asked for.
pub fn kept(
    options: &RunOptions,
    plan: &Plan,
    results: &Results,
    saved: Result<PathBuf, Failure>,
    next: &[(&str, String)],
) -> Done {
    show(options, results, plan.baseline())?;
    let saved = saved?;
    if !options.json && !options.csv {
        next_steps(&saved, next);
    }
    Ok(())
}

/// Shows results as the user wants them: table, JSON or CSV.
///
/// # Errors
/// The results cannot be put into that form.
fn show(options: &RunOptions, results: &Results, baseline: Option<&str>) -> Done {
    let failed = |e: write::FileError| Failure::Run(e.to_string());
    if options.json {
        print(&write::to_json(results).map_err(failed)?);
        return Ok(());
    }
    if options.csv {
        print(&write::to_csv(results).map_err(failed)?);
        return Ok(());
    }
    print(&text(results, baseline));
    Ok(())
}

/// Results as tables and sentences. `baseline` is the arm that the scenario names, if it is known.
pub fn text(results: &Results, baseline: Option<&str>) -> String {
    let style = style();
    let mut text = String::from("\n");
    for experiment in &results.experiments {
        if experiment.runs.is_empty() && results.experiments.len() > 1 {
            continue;
        }
        if results.experiments.len() <= 4 {
            text.push_str(&berth_report::whole(
                experiment,
                results.place,
                baseline,
                &style,
            ));
        } else {
            // Many variants: the tables say enough.
            text.push_str(&sentences::title(experiment, results.place));
            text.push_str("\n\n");
            text.push_str(&table::table(experiment, &style));
            text.push_str(&sentences::expects(&experiment.expects, baseline, &style));
        }
        text.push('\n');
    }
    text
}

/// The last lines: where the results are and what to do next.
fn next_steps(saved: &Path, lines: &[(&str, String)]) {
    let mut text = format!("  Report   {}\n", saved.display());
    for (word, line) in lines {
        text.push_str(&format!("  {word:<8} {line}\n"));
    }
    print(&text);
}

/// Some expectation does not hold.
pub fn broken_expectation(results: &Results) -> bool {
    results
        .experiments
        .iter()
        .flat_map(|e| &e.expects)
        .any(|v| v.holds == Some(false))
}
