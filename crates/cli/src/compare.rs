// SPDX-License-Identifier: GPL-2.0-only
//! `berth compare`: simulator beside real kernel, judged by bounds written down beforehand.
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use crate::plan::{Lengths, Plan, plan};
use crate::simulator::Simulator;
use crate::{interrupt, output, policies, replications};
use berth_compare::known::Known;
use berth_compare::record::Record;
use berth_compare::{Bounds, Comparison, compare, markdown, table};
use berth_report::progress::Bar;
use berth_results::experiment::{Experiment, Results};
use berth_results::schema::Place;
use berth_results::write;
use berth_scenario::model::{HostCost, Scenario};
use berth_scenario::profile::Profile;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    run: RunOptions,

    /// Record the kernel anew: what has no record yet, or everything
    #[arg(long, value_name = "WHAT", num_args = 0..=1, default_missing_value = "missing", value_parser = ["missing", "all"])]
    record: Option<String>,

    /// Exit status 1 if a bound is broken that is not in the list of known ones (known.toml of a folder)
    #[arg(long)]
    check: bool,

    /// Bounds of your own: a file like the one that `--show-bounds` prints
    #[arg(long, value_name = "FILE")]
    bounds: Option<PathBuf>,

    /// Print the bounds, and do nothing else
    #[arg(long)]
    show_bounds: bool,

    /// Costs of the simulated machine: `lab` (as measured in the lab's VM), or the `scenario`'s own
    #[arg(long, value_name = "PROFILE", default_value = "lab", value_parser = ["lab", "scenario"])]
    costs: String,

    /// Write the comparison as a page
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Kernel of the VM: `newest`, a line such as 7.0, or VMLINUZ,CONFIG
    #[arg(long, value_name = "RULE", default_value = "newest")]
    kernel: String,

    /// What vCPUs are in the VM: `threads`, for which the bounds were written, or `kvm`, those of real micro-VMs
    /// [default: as in berth-out's results of the lab, if they fit, else threads]
    #[arg(long, value_name = "FORM", value_parser = ["threads", "kvm"])]
    vcpus: Option<String>,

    /// VMs at the same time [default: one per CPU of this machine]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// As long and as often as the scenario says; else at most 0.5 s + 2 s and 2 seeds, unless set here
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "Examples:
  berth compare noisy-neighbour --arm vmfair,vtime    both places, arm by arm, metric by metric
  berth compare noisy-neighbour --vcpus kvm           the kernel's side with real micro-VMs
  berth compare crates/compare/set --check            a folder of scenarios, against its kept records
  berth compare crates/compare/set --record           the same; what has no record yet runs in VMs first

A scenario runs in VMs unless berth-out has results of the lab that fit. A folder's records lie in its `kernel` folder.
Exit status: 0 done, 1 a bound is broken (with --check), 2 wrong usage or input, 3 a run failed, 130 interrupted.";

/// Below the heading of a page.
const MADE_BY: &str = "Made by `make fidelity` (`berth compare crates/compare/set --markdown docs/fidelity-table.md`); do not edit. Simulator / kernel; bold: the bound is broken; in brackets: not judged; ±: half of the kernel's 95 % interval, where it could hold the bound (open).";

/// What an emulated machine does in a bearable time.
const SHORT: Lengths = Lengths {
    warmup_ms: 500,
    measure_ms: 2_000,
    seeds: 2,
};

/// A folder's scenarios are short, and booting takes longer than they do.
const SEEDS_PER_BOOT: usize = 4;

pub fn run(args: &Args) -> Done {
    let (text, bounds) = bounds(args)?;
    if args.show_bounds {
        output::print(&text);
        return Ok(());
    }
    let named = PathBuf::from(args.run.scenario()?);
    let is_set = named.is_dir();
    if let (true, Some("kvm")) = (is_set, args.vcpus.as_deref()) {
        return Err(Failure::Input(format!(
            "--vcpus kvm: a folder's records are of threads; name one scenario, such as {}/FILE.toml",
            named.display()
        )));
    }
    let known = if is_set {
        Known::read(&named.join("known.toml")).map_err(|e| Failure::Input(e.to_string()))?
    } else {
        Known::default()
    };
    let mut all = Vec::new();
    let mut notes = Vec::new();
    if is_set {
        let files = files(&named)?;
        for file in &files {
            let mut options = args.run.clone();
            options.scenario = Some(file.display().to_string());
            if let Some(c) = of_set(args, &options, file, &bounds, &mut notes)? {
                show(args, &c);
                all.push(c);
            }
        }
    } else {
        let c = single(args, &bounds, &mut notes)?;
        show(args, &c);
        all.push(c);
    }
    finish(args, &bounds, &known, &all, &notes)
}

fn bounds(args: &Args) -> Result<(String, Bounds), Failure> {
    let text = match &args.bounds {
        None => berth_compare::bounds::TEXT.to_string(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| Failure::Input(format!("{}: {e}", path.display())))?,
    };
    let bounds = Bounds::parse(&text).map_err(|e| Failure::Input(e.to_string()))?;
    Ok((text, bounds))
}

/// The scenario files of a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let wrong = |e: std::io::Error| Failure::Input(format!("{}: {e}", folder.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
        if path.extension().is_some_and(|e| e == "toml") && name.as_deref() != Some("known.toml") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Failure::Input(format!(
            "{} has no scenario files (*.toml)",
            folder.display()
        )));
    }
    Ok(files)
}

fn show(args: &Args, c: &Comparison) {
    if args.run.json {
        return;
    }
    let cpus = match c.cpus {
        1 => "1 CPU".to_string(),
        n => format!("{n} CPUs"),
    };
    output::print(&format!(
        "\n{} · {cpus} · {} seeds simulated, {} on the kernel\n\n{}",
        c.title,
        c.seeds.0,
        c.seeds.1,
        table::table(c)
    ));
}

fn finish(
    args: &Args,
    bounds: &Bounds,
    known: &Known,
    all: &[Comparison],
    notes: &[String],
) -> Done {
    for note in notes {
        eprintln!("note: {note}");
    }
    let reasons = |scenario: &str, row: &berth_compare::Row| known.why(scenario, row);
    if args.run.json {
        let text = serde_json::to_string_pretty(all).map_err(|e| Failure::Run(e.to_string()))?;
        output::print(&format!("{text}\n"));
    } else if all.len() > 1 {
        output::print(&format!("\n{}\n", markdown::summary(all, bounds)));
    }
    if let Some(path) = &args.markdown {
        let page = format!(
            "# Fidelity: the table\n\n{MADE_BY}\n\n{}\n{}",
            markdown::summary(all, bounds),
            markdown::scenarios(all, &reasons)
        );
        write::atomic(path, page.as_bytes()).map_err(|e| Failure::Run(e.to_string()))?;
    }
    if !args.check {
        return Ok(());
    }
    for line in known.mended(all) {
        eprintln!("note: known.toml lists what holds (or did not run): {line}");
    }
    let news = known.news(all);
    for line in &news {
        eprintln!("broken: {line}");
    }
    if news.is_empty() {
        Ok(())
    } else {
        Err(Failure::Expect)
    }
}

/// Runs the plan in the simulator.
fn simulate(args: &Args, plan: &mut Plan) -> Result<Experiment, Failure> {
    let cost = match args.costs.as_str() {
        "lab" => Some(Profile::named("lab").map_err(Failure::Run)?.cost),
        _ => None,
    };
    for variant in &mut plan.variants {
        adapt(&mut variant.scenario, cost.as_ref());
        let changed = variant.arms.iter_mut();
        let changed = changed.filter_map(|a| a.arm.scenario.as_mut());
        changed.for_each(|scenario| adapt(scenario, cost.as_ref()));
    }
    first(simulate_plan(&args.run, plan)?)
}

/// The results of a command line's scenario in the simulator, for who needs them whole.
///
/// # Errors
/// Wrong input, an interrupt, or a run that failed.
#[cfg(feature = "kernel")]
pub fn simulated(run: &RunOptions) -> Result<Results, Failure> {
    simulate_plan(run, &mut plan(run, &policies::shipped(), None)?)
}

fn simulate_plan(run: &RunOptions, plan: &mut Plan) -> Result<Results, Failure> {
    let simulator = Simulator::prepare(plan, false)?;
    let talk = !run.quiet && std::io::stderr().is_terminal();
    let bar = Bar::new(plan.runs() as u64, talk);
    let outcome = replications::run(plan, 0, interrupt::flag(), &bar, |v, a, s| {
        simulator.run(v, a, s)
    });
    drop(bar);
    if outcome.cancelled {
        return Err(Failure::Interrupted);
    }
    if let Some(failure) = outcome.failures.into_iter().next() {
        return Err(Failure::Run(failure));
    }
    Ok(plan.results(Place::Sim, "", run.command(), outcome.records, true))
}

/// The lab folds a VM's tasks onto its vCPU threads, and has costs of its own: so does the simulator here.
fn adapt(scenario: &mut Scenario, cost: Option<&HostCost>) {
    for vm in &mut scenario.vms {
        vm.guest.policy = "none".into();
    }
    if let Some(cost) = cost {
        scenario.host.cost = cost.clone();
    }
}

fn first(results: Results) -> Result<Experiment, Failure> {
    let mut experiments = results.experiments;
    if experiments.len() != 1 {
        return Err(Failure::Input(
            "compare takes one variant at a time: use --set, not --vary".into(),
        ));
    }
    Ok(experiments.remove(0))
}

/// A scenario of a folder, against its record.
fn of_set(
    args: &Args,
    options: &RunOptions,
    file: &Path,
    bounds: &Bounds,
    notes: &mut Vec<String>,
) -> Result<Option<Comparison>, Failure> {
    let failed = |e: berth_compare::record::RecordError| Failure::Run(e.to_string());
    let mut planned = plan(options, &policies::shipped(), None)?;
    let path = Record::path(file);
    let mut record = Record::read(&path).map_err(failed)?;
    let wanted: Vec<String> = planned
        .variants
        .iter()
        .flat_map(|v| &v.arms)
        .map(|a| a.arm.name.clone())
        .collect();
    if let Some(what) = &args.record {
        let has = |arm: &String| record.as_ref().is_some_and(|r| r.arms.contains_key(arm));
        let missing: Vec<String> = wanted
            .iter()
            .filter(|a| what == "all" || !has(a))
            .cloned()
            .collect();
        for arm in missing {
            let mut one = options.clone();
            one.arm = vec![arm];
            let results = boot(args, &one, None, SEEDS_PER_BOOT)?;
            let Some(newer) = Record::of(&results) else {
                continue;
            };
            match &mut record {
                Some(record) => record.take_over(newer),
                None => record = Some(newer),
            }
            // Kept at once: recording takes long.
            if let Some(record) = &record {
                record.write(&path).map_err(failed)?;
            }
        }
    }
    let Some(record) = record else {
        notes.push(format!(
            "{} has no record of the kernel: --record makes one",
            file.display()
        ));
        return Ok(None);
    };
    let sim = simulate(args, &mut planned)?;
    let order: Vec<String> = sim.arms.iter().map(|a| a.name.clone()).collect();
    let lab = record.experiment(&planned.name, &order);
    stale(&sim, &lab, notes);
    Ok(Some(compare(&sim, &lab, bounds)))
}

/// Policies that have changed since the kernel was recorded.
fn stale(sim: &Experiment, lab: &Experiment, notes: &mut Vec<String>) {
    for arm in &lab.arms {
        let now = sim.arms.iter().find(|a| a.name == arm.name);
        if let Some(now) = now
            && arm.policy != "linux"
            && now.hash != arm.hash
        {
            let note = format!(
                "{}: another build than was recorded, or a changed policy; --record all records it again",
                arm.name
            );
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
}

/// One scenario: the lab's results that are kept, if they fit, or new ones.
fn single(args: &Args, bounds: &Bounds, notes: &mut Vec<String>) -> Result<Comparison, Failure> {
    let lengths = (!args.full).then_some(SHORT);
    let mut planned = plan(&args.run, &policies::shipped(), lengths)?;
    let folder = write::folder(&args.run.out, &planned.name);
    let kept = write::read(&folder, Place::Lab).map_err(|e| Failure::Input(e.to_string()))?;
    let fits = |r: &Results| {
        let variant = planned.variants.first();
        let e = r.experiments.first();
        let asked = args.vcpus.as_deref();
        r.complete
            && asked.is_none_or(|form| form == r.provenance.vcpus)
            && variant.is_some_and(|v| {
                v.full == r.provenance.scenario
                    && v.arms
                        .iter()
                        .all(|a| e.is_some_and(|e| e.runs.iter().any(|run| run.arm == a.arm.name)))
            })
    };
    let lab = match kept {
        Some(results) if args.record.is_none() && fits(&results) => {
            let of = match results.provenance.vcpus.as_str() {
                "kvm" => ", with micro-VMs (the bounds were written for threads: --vcpus threads)",
                _ => "",
            };
            notes.push(format!(
                "the kernel's side is that of {}{of}; --record makes it anew",
                write::json_path(&folder, Place::Lab).display()
            ));
            results
        }
        _ => {
            let results = boot(args, &args.run, lengths, 1)?;
            write::write(&folder, &results).map_err(|e| Failure::Run(e.to_string()))?;
            results
        }
    };
    let sim = simulate(args, &mut planned)?;
    let lab = first(lab)?;
    Ok(compare(&sim, &lab, bounds))
}

#[cfg(feature = "kernel")]
fn boot(
    args: &Args,
    options: &RunOptions,
    lengths: Option<Lengths>,
    seeds_per_boot: usize,
) -> Result<Results, Failure> {
    let vcpus = args.vcpus.as_deref().unwrap_or("threads");
    let vcpus = berth_lab::Vcpus::parse(vcpus).map_err(Failure::Input)?;
    crate::lab::results(
        options,
        lengths,
        &args.kernel,
        args.jobs,
        seeds_per_boot,
        vcpus,
    )
}

#[cfg(not(feature = "kernel"))]
fn boot(_: &Args, _: &RunOptions, _: Option<Lengths>, _: usize) -> Result<Results, Failure> {
    Err(Failure::Input(
        "this berth was built without the lab: it compares with kept records only".into(),
    ))
}
