// SPDX-License-Identifier: GPL-2.0-only
//! `berth compare`: simulator beside real kernel, judged by bounds written down beforehand.
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use crate::{output, sets};
use berth_compare::known::Known;
use berth_compare::{Bounds, Comparison, compare, markdown, table};
use berth_experiment::plan::{Lengths, Plan, plan};
use berth_experiment::{policies, simulator};
use berth_results::experiment::{Experiment, Results};
use berth_results::schema::Place;
use berth_results::write;
use berth_scenario::model::{HostCost, Scenario};
use berth_scenario::profile::Profile;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub(crate) run: RunOptions,

    /// Record the kernel anew: starts that have no record yet (`missing`), those and arms whose policy has changed since
    /// (`changed`), or everything (`all`); --arm says for which arms only
    #[arg(long, value_name = "WHAT", num_args = 0..=1, default_missing_value = "missing", value_parser = ["missing", "changed", "all"])]
    pub(crate) record: Option<String>,

    /// A second folder of scenarios, judged to report only; with the first one they have no scenario in common
    #[arg(long, value_name = "FOLDER")]
    sealed: Option<PathBuf>,

    /// Record only, and compare nothing
    #[arg(long, requires = "record")]
    pub(crate) record_only: bool,

    /// Write a folder's list of known broken bounds anew: reasons stay where there is one, new rows wait for theirs
    #[arg(long)]
    renew_known: bool,

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
    pub(crate) markdown: Option<PathBuf>,

    /// Write what came out in all and the largest errors into a page, between its lines `begin fidelity` and `end fidelity`
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,

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

    /// Longest time for one VM, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// As long and as often as the scenario says; else at most 0.5 s + 2 s and 2 seeds, unless set here
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "Examples:
  berth compare noisy-neighbour --arm vmfair,vtime    both places, arm by arm, metric by metric
  berth compare noisy-neighbour --vcpus kvm           the kernel's side with real micro-VMs
  berth compare crates/compare/set --check            a folder of scenarios, against its kept records
  berth compare crates/compare/set --record           the same; what has no record yet runs in VMs first
  berth compare crates/compare/set --sealed crates/compare/sealed     and a second set, judged to report only

A scenario runs in VMs unless berth-out has results of the lab that fit. A folder's records lie in its `kernel` folder.
Exit status: 0 done, 1 a bound is broken (with --check), 2 wrong usage or input, 3 a run failed, 130 interrupted.";

/// What an emulated machine does in a bearable time.
const SHORT: Lengths = Lengths {
    warmup_ms: 500,
    measure_ms: 2_000,
    seeds: 2,
};

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
    if !is_set {
        for (set, flag) in [
            (args.sealed.is_some(), "--sealed"),
            (args.renew_known, "--renew-known"),
            (args.record_only, "--record-only"),
        ] {
            if set {
                let name = named.display();
                return Err(Failure::Input(format!(
                    "{flag} is for a folder of scenarios, and {name} is one scenario"
                )));
            }
        }
        let mut notes = Vec::new();
        let c = single(args, &bounds, &mut notes)?;
        show(args, &c);
        notes.iter().for_each(|note| eprintln!("note: {note}"));
        return finish(args, &bounds, &Known::default(), &[c]);
    }
    let known = named.join("known.toml");
    let list = Known::read(&known).map_err(|e| Failure::Input(e.to_string()))?;
    if let Some(sealed) = &args.sealed {
        sets::disjoint(&args.run, &named, sealed)?;
    }
    let open = sets::compared(args, &named, &bounds)?;
    let sealed = args.sealed.as_deref();
    let sealed = sealed.map(|folder| sets::compared(args, folder, &bounds));
    let sealed = sealed.transpose()?;
    if args.record_only {
        return Ok(());
    }
    if args.renew_known {
        let text = list.renewed(&open.all);
        write::atomic(&known, text.as_bytes()).map_err(|e| Failure::Run(e.to_string()))?;
    }
    let list = Known::read(&known).map_err(|e| Failure::Input(e.to_string()))?;
    sets::publish(args, &bounds, &list, &open, sealed.as_ref())?;
    finish(args, &bounds, &list, &open.all)
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

pub(crate) fn show(args: &Args, c: &Comparison) {
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
        c.simulated,
        c.recorded().0,
        table::table(c)
    ));
}

fn finish(args: &Args, bounds: &Bounds, known: &Known, all: &[Comparison]) -> Done {
    if args.run.json {
        let text = serde_json::to_string_pretty(all).map_err(|e| Failure::Run(e.to_string()))?;
        output::print(&format!("{text}\n"));
    } else if all.len() > 1 {
        output::print(&format!(
            "\n{}\n{}\n",
            markdown::headline(all, bounds),
            markdown::summary(all, bounds)
        ));
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
pub(crate) fn simulate(args: &Args, plan: &mut Plan) -> Result<Experiment, Failure> {
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
    let running = args.run.running(0, false);
    first(simulator::whole(plan, &running, args.run.command())?)
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

/// One scenario: the lab's results that are kept, if they fit, or new ones.
fn single(args: &Args, bounds: &Bounds, notes: &mut Vec<String>) -> Result<Comparison, Failure> {
    let lengths = (!args.full).then_some(SHORT);
    let mut planned = plan(&args.run.request()?, &policies::shipped(), lengths)?;
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
            let results = boot(args, &args.run, lengths, 1, None)?;
            write::write(&folder, &results).map_err(|e| Failure::Run(e.to_string()))?;
            results
        }
    };
    let sim = simulate(args, &mut planned)?;
    let lab = first(lab)?;
    Ok(compare(&sim, &lab, bounds))
}

#[cfg(feature = "kernel")]
pub(crate) fn boot(
    args: &Args,
    options: &RunOptions,
    lengths: Option<Lengths>,
    seeds_per_boot: usize,
    seeds: Option<&[u64]>,
) -> Result<Results, Failure> {
    use berth_lab::run::LabOptions;
    use std::time::Duration;
    let vcpus = args.vcpus.as_deref().unwrap_or("threads");
    let vcpus = berth_lab::Vcpus::parse(vcpus).map_err(Failure::Input)?;
    let mut lab = LabOptions {
        vcpus,
        timeout: Duration::from_secs(args.timeout),
        seeds_per_boot,
        ..LabOptions::default()
    };
    lab.jobs = args.jobs.unwrap_or(lab.jobs).max(1);
    let boots = crate::lab::boots(options, &args.kernel, lab)?;
    let command = options.command();
    berth_experiment::lab::results(&options.request()?, lengths, seeds, &boots, command)
}

#[cfg(not(feature = "kernel"))]
pub(crate) fn boot(
    _: &Args,
    _: &RunOptions,
    _: Option<Lengths>,
    _: usize,
    _: Option<&[u64]>,
) -> Result<Results, Failure> {
    Err(Failure::Input(
        "this berth was built without the lab: it compares with kept records only".into(),
    ))
}
