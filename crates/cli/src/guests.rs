// SPDX-License-Identifier: GPL-2.0-only
//! `berth guests`: real Linux guests under steal, recorded in the lab, and the simulator beside them.
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use crate::output;
use berth_compare::guests::{
    Beside, Case, Cases, GuestBounds, GuestRecord, Row, bounds, judge, page,
};
use berth_compare::judge::Verdict;
use berth_experiment::plan::plan;
use berth_experiment::policies;
use berth_experiment::simulator::Simulator;
use berth_results::guest::Seen;
use berth_results::write;
use berth_scenario::model::{Hz, Scenario, Step};
use berth_scenario::{Edit, Input, keys, read};
use berth_sim::witness::Witness;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder with the cases (cases.toml, a scenario for each, records)
    #[arg(value_name = "FOLDER", default_value = "crates/compare/guests")]
    folder: PathBuf,

    /// Record real guests: what has no record yet, or everything
    #[arg(long, value_name = "WHAT", num_args = 0..=1, default_missing_value = "missing", value_parser = ["missing", "all"])]
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

A recording is taken only if the machine was quiet (berth guests --show-bounds says how quiet); else it is made again, and
refused by name after a few times. Where real guests cannot be had, the command says so, and the kept records are used.
Exit status: 0 done, 1 a bound is broken (with --check), 2 wrong usage or input, 3 a guest did not boot, a recording was
refused or the build failed (what is kept is compared all the same), 130 interrupted.";

/// Below the heading of a page.
const MADE_BY: &str = "Made by `make guests` (`berth guests --markdown docs/guests-table.md`); do not edit. Simulator / \
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
    let mut all = Vec::new();
    for case in &chosen {
        let beside = compare(&args.folder, &records, case, &bounds)?;
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

/// The scenario of a case, with these changes.
pub(super) fn scenario(folder: &Path, case: &Case, set: &[String]) -> Result<Scenario, Failure> {
    let input = Input::from_file(&case.scenario(folder))?;
    let edits: Vec<Edit> = set.iter().cloned().map(Edit::Set).collect();
    Ok(read(&input, &edits)?.scenario)
}

/// A case in the simulator, beside its record.
fn compare(
    folder: &Path,
    records: &Path,
    case: &Case,
    bounds: &GuestBounds,
) -> Result<Beside, Failure> {
    let plain = scenario(folder, case, &[])?;
    let client = plain.clients.first().map_or("", |c| c.to.as_str());
    let others = plain.vms.iter().filter(|vm| vm.name != client);
    let mut beside = Beside {
        case: case.name.clone(),
        title: plain.title.clone(),
        competitors: others.map(|vm| vm.count).sum(),
        steal_accounting: case.steal_accounting,
        hrtick: case.hrtick,
        alone: case.alone.clone(),
        absent: None,
        answers: (0, 0),
        rows: Vec::new(),
        note: None,
    };
    let path = case.record(records);
    let record = GuestRecord::read(&path).map_err(|e| Failure::Input(e.to_string()))?;
    let Some(record) = record else {
        beside.absent = Some("no record yet".into());
        return Ok(beside);
    };
    beside.note.clone_from(&record.note);
    let keys: Vec<&str> = keys::GUEST.names().collect();
    let edits = match case.edits(client, &keys) {
        Ok(edits) => edits,
        Err(why) => {
            beside.absent = Some(why);
            return Ok(beside);
        }
    };
    let changed = scenario(folder, case, &edits)?;
    let Some(vm) = changed.vms.iter().find(|vm| vm.name == client) else {
        return Err(Failure::Input(format!(
            "{}: no client sends to a VM",
            case.scenario(folder).display()
        )));
    };
    let tasks = vm.tasks.iter().filter_map(|t| changed.tasks.get(t));
    let guest = judge::Guest {
        vcpus: vm.vcpus,
        tick_ns: match vm.guest.hz {
            Hz::Ticks(hz) => 1e9 / f64::from(hz.max(1)),
            Hz::Exact => 0.0,
        },
        busy: tasks
            .into_iter()
            .any(|t| matches!(t.steps[..], [Step::Busy])),
    };
    match simulate(&case.scenario(folder), edits) {
        Ok(seen) => {
            beside.answers = (seen.answers.len(), record.seen().answers.len());
            beside.rows = judge::judge(&seen, &record, guest, bounds);
        }
        // A guest that starves is a finding, not the end of the comparison.
        Err(Failure::Run(why)) => {
            beside.rows = vec![Row {
                what: judge::What::Mean,
                sim: None,
                real: record.seen().response().map(|r| r.mean),
                verdict: Verdict::Broken,
            }];
            beside.note = Some(format!("the simulation ended: {why}"));
        }
        Err(other) => return Err(other),
    }
    Ok(beside)
}

/// All seeds of a scenario under the kernel's own scheduler.
fn simulate(file: &Path, set: Vec<String>) -> Result<Seen, Failure> {
    let options = RunOptions {
        scenario: Some(file.display().to_string()),
        set,
        vary: Vec::new(),
        yes: false,
        arm: vec!["linux".into()],
        policy: Vec::new(),
        seeds: None,
        seed: None,
        json: false,
        csv: false,
        out: PathBuf::new(),
        quiet: true,
    };
    let mut plan = plan(&options.request()?, &policies::shipped(), None)?;
    let mut simulator = Simulator::prepare(&mut plan, &options.running(0, false))?;
    let mut all = Seen::default();
    for seed in &plan.seeds {
        let scenario = &plan.variants[0].scenario;
        let witness = Witness::new(scenario, *seed)
            .map_err(|e| Failure::Input(format!("{}: {e}", file.display())))?;
        simulator.tell(witness.sink());
        let record = simulator.run(0, 0, *seed).map_err(Failure::Run)?;
        all.add(witness.finish(&record));
    }
    Ok(all)
}

#[cfg(feature = "kernel")]
mod recording;

#[cfg(not(feature = "kernel"))]
mod recording {
    use super::{Args, Case, Done, Failure, GuestBounds, Path};

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
