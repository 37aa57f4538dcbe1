// SPDX-License-Identifier: GPL-2.0-only
//! `berth results show` and `report`: results that were kept, shown again.
use crate::exit::{Done, Failure};
use crate::output;
use berth_experiment::save;
use berth_report::side_by_side::side_by_side;
use berth_report::versus::versus;
use berth_results::experiment::{Experiment, Results};
use berth_results::schema::Place;
use berth_results::write;
use clap::Subcommand;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Shows kept results, of every place that has some
    Show {
        /// A scenario's folder, e.g. berth-out/noisy-neighbour
        folder: PathBuf,
        /// Simulator and real kernel in one table, instead
        #[arg(long)]
        side_by_side: bool,
        /// How they were made, too: command, versions, the whole scenario
        #[arg(long)]
        provenance: bool,
    },
    /// Two results side by side: what differed in the inputs, and which metrics did
    #[command(after_help = COMPARES)]
    Compare {
        /// A folder, e.g. berth-out/noisy-neighbour/1, or a .json file in it
        a: PathBuf,
        /// The other one, e.g. berth-out/noisy-neighbour/latest
        b: PathBuf,
        /// All metrics, also those that do not differ (marked =)
        #[arg(long)]
        all: bool,
        /// As JSON, with all metrics
        #[arg(long)]
        json: bool,
    },
    /// Writes report.html once more, from kept results
    Report {
        /// A scenario's folder, e.g. berth-out/noisy-neighbour
        folder: PathBuf,
    },
}

const COMPARES: &str = "Examples:
  berth results compare berth-out/weights/1 berth-out/weights/2
  berth results compare berth-out/weights/1 berth-out/weights/latest --all";

/// The results that a path names: those of its place, or of the first place that the folder has some of.
fn one(path: &Path) -> Result<Results, Failure> {
    let wrong = |e: write::FileError| Failure::Input(e.to_string());
    // A table is as good as the file that lies beside it.
    if path.is_file() {
        let table = ["csv", "parquet"].map(|end| path.extension() == Some(end.as_ref()));
        return match table.contains(&true) {
            true => write::read_file(&path.with_extension("json")).map_err(wrong),
            false => write::read_file(path).map_err(wrong),
        };
    }
    for place in [Place::Sim, Place::Lab, Place::Host] {
        if let Some(results) = write::read(path, place).map_err(wrong)? {
            return Ok(results);
        }
    }
    Err(save::none_in(path))
}

fn compare(a: &Path, b: &Path, all: bool, json: bool) -> Done {
    let versus = versus(&one(a)?, &one(b)?);
    if json {
        return output::json(&versus);
    }
    if versus.rows.is_empty() {
        return Err(Failure::Input(format!(
            "{} and {} have no arm of the same variant in common\n{}",
            a.display(),
            b.display(),
            versus.only(&output::style()).trim_end()
        )));
    }
    output::print(&format!("A  {}\nB  {}\n\n", a.display(), b.display()));
    output::print(&versus.text(all, &output::style()));
    Ok(())
}

/// The folder that is meant by one of its files.
fn folder_of(path: &Path) -> &Path {
    match path.is_file() {
        true => path.parent().unwrap_or(path),
        false => path,
    }
}

pub fn run(args: &Args) -> Done {
    let (folder, side_by_side, provenance) = match &args.verb {
        Verb::Report { folder } => {
            let path = save::report(folder_of(folder))?;
            output::print(&format!("{}\n", path.display()));
            return Ok(());
        }
        Verb::Compare { a, b, all, json } => return compare(a, b, *all, *json),
        Verb::Show {
            folder,
            side_by_side,
            provenance,
        } => (folder_of(folder), side_by_side, provenance),
    };
    let read = |place| write::read(folder, place).map_err(|e| Failure::Input(e.to_string()));
    let (sim, lab) = (read(Place::Sim)?, read(Place::Lab)?);
    if *side_by_side {
        return together(folder, sim.as_ref(), lab.as_ref());
    }
    let all: Vec<Results> = [sim, lab].into_iter().flatten().collect();
    if all.is_empty() {
        return Err(save::none_in(folder));
    }
    for results in &all {
        output::print(&output::text(results, None));
        if !results.complete {
            output::print("  note: not complete, it was interrupted or a run failed\n");
        }
        if *provenance {
            let p = &results.provenance;
            output::print(&format!(
                "  made by  {}\n  Berth    {}, {}, kernel {}\n\n{}\n",
                p.command, p.version, p.machine, p.kernel, p.scenario
            ));
        }
    }
    Ok(())
}

/// The experiments of both places that are of the same VMs.
pub fn matching<'a>(sim: &'a Results, lab: &Experiment) -> Option<&'a Experiment> {
    sim.experiments
        .iter()
        .find(|e| e.variant.is_empty() && e.setup.groups == lab.setup.groups)
}

fn together(folder: &Path, sim: Option<&Results>, lab: Option<&Results>) -> Done {
    let missing = |place: &str| {
        let name = folder
            .file_name()
            .map_or_else(|| "SCENARIO".into(), |n| n.to_string_lossy().into_owned());
        Failure::Input(format!(
            "{} has no results of the {place}: berth {place} {name}",
            folder.display()
        ))
    };
    let sim = sim.ok_or_else(|| missing("sim"))?;
    let lab = lab
        .and_then(|l| l.experiments.first())
        .ok_or_else(|| missing("lab"))?;
    let Some(sim) = matching(sim, lab) else {
        return Err(Failure::Input(
            "the results of both places are of different VMs: run one of them again".into(),
        ));
    };
    output::print("Simulator and real kernel, side by side\n\n");
    output::print(&side_by_side(sim, lab));
    Ok(())
}
