// SPDX-License-Identifier: GPL-2.0-only
//! `berth guests`: real Linux guests under steal, recorded in the lab, and the simulator beside them.
use crate::exit::{Done, Failure};
use crate::interrupt;
use crate::output;
use berth_compare::guests::{Case, Cases, GuestBounds, bounds, page};
use berth_experiment::compare::guests::beside;
use berth_experiment::simulator::Running;
use berth_results::write;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder with the cases (cases.toml, a scenario for each, records)
    #[arg(value_name = "FOLDER", default_value = "crates/compare/guests")]
    folder: PathBuf,

    /// Record real guests: what has no record yet, or everything
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        default_missing_value = "missing",
        value_parser = ["missing", "all"]
    )]
    pub(super) record: Option<String>,

    /// Only this case; may be repeated
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,

    /// Folder of the records [default: `records` in the folder of cases]
    #[arg(long, value_name = "FOLDER")]
    records: Option<PathBuf>,

    /// Length of a recording [default: what the scenario measures]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) seconds: Option<u64>,

    /// How long a guest answers without competitors before that
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) floor: u64,

    /// A guest must have booted after so long
    #[arg(long, value_name = "SECONDS", default_value_t = 240, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) boot: u64,

    /// Keep recordings that the rule refuses, too: to try the machinery, in a folder of its own
    #[arg(long, requires = "records")]
    pub(super) keep_refused: bool,

    /// Write the comparison as a page
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Comparison as JSON on standard output, instead of tables
    #[arg(long)]
    json: bool,

    /// Exit status 1 if a bound is broken
    #[arg(long)]
    check: bool,

    /// Print the bounds, and do nothing else
    #[arg(long)]
    show_bounds: bool,

    /// Build the guest kernel that accounts for steal (once, 4 to 10 minutes), and do nothing else
    #[arg(long)]
    build_kernel: bool,
}

const EXAMPLES: &str = "Examples:
  berth guests                                  simulated guests beside the kept records of real ones
  berth guests --build-kernel                   the guest kernel for --record, from the distribution's source
  berth guests --record                         records what has no record yet, then compares
  berth guests --record all --case 06-hog-1     one case anew

A recording is taken only if the machine was quiet (berth guests --show-bounds says how quiet); else it is made again, \
and
refused by name after a few times. Where real guests cannot be had, the command says so, and the kept records are \
used.";

/// Below the heading of a page.
const MADE_BY: &str = "Made by `make guests` (`berth guests --markdown docs/guests-table.md`); do not edit. Simulator \
 / \
     real guest; bold: the bound is broken; in brackets: not judged.";

pub fn run(args: &Args) -> Done {
    if args.show_bounds {
        output::print(bounds::TEXT);
        return Ok(());
    }
    if args.build_kernel {
        return recording::build_kernel();
    }
    let input = |e: &dyn std::fmt::Display| Failure::Input(e.to_string());
    let bounds = GuestBounds::built_in().map_err(|e| input(&e))?;
    let cases = Cases::read(&args.folder).map_err(|e| input(&e))?;
    for name in &args.case {
        if !cases.iter().any(|c| c.name == *name) {
            let known: Vec<_> = cases.iter().map(|c| c.name.as_str()).collect();
            return Err(Failure::Input(format!(
                "there is no case `{}`; there are {}",
                name.escape_debug(),
                known.join(", ")
            )));
        }
    }
    let wanted = |c: &&Case| args.case.is_empty() || args.case.contains(&c.name);
    let chosen: Vec<&Case> = cases.iter().filter(wanted).collect();
    let records = args.records.clone();
    let records = records.unwrap_or_else(|| args.folder.join("records"));

    let failed = match args.record {
        Some(_) => recording::record(args, &args.folder, &records, &chosen, &bounds)?,
        None => Vec::new(),
    };
    let running = Running::new(0, interrupt::flag());
    let mut all = Vec::new();
    for case in &chosen {
        let beside = beside(&args.folder, &records, case, &bounds, &running)?;
        if !args.json {
            output::print(&page::table(&beside));
        }
        all.push(beside);
    }
    if args.json {
        let text = serde_json::to_string_pretty(&all).map_err(|e| Failure::Run(e.to_string()))?;
        output::print(&format!("{text}\n"));
    } else {
        output::print(&format!("\n{}\n", page::sum(&all)));
    }
    if let Some(path) = &args.markdown {
        let text = format!(
            "# Guests: the table\n\n{MADE_BY}\n\n{}",
            page::markdown(&all)
        );
        write::atomic(path, text.as_bytes()).map_err(|e| Failure::Run(e.to_string()))?;
    }
    if !failed.is_empty() {
        return Err(Failure::Run(failed.join("\n")));
    }
    if args.check && all.iter().any(|b| b.broken().next().is_some()) {
        return Err(Failure::Expect);
    }
    Ok(())
}

#[cfg(feature = "kernel")]
mod recording;

#[cfg(not(feature = "kernel"))]
mod recording {
    use super::{Args, Case, Done, Failure, GuestBounds};
    use std::path::Path;

    fn without() -> Failure {
        Failure::Input(
            "this berth was built without the lab (--no-default-features), so it records no guests"
                .into(),
        )
    }

    pub fn build_kernel() -> Done {
        Err(without())
    }

    pub fn record(
        _: &Args,
        _: &Path,
        _: &Path,
        _: &[&Case],
        _: &GuestBounds,
    ) -> Result<Vec<String>, Failure> {
        Err(without())
    }
}
