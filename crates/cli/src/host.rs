// SPDX-License-Identifier: GPL-2.0-only
//! `berth host`: a scenario's load on this machine, by its own scheduler and, where it has sched_ext, by policies.
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use crate::{agent, interrupt, output};
use berth_agent::backend::scx::{self, Scx};
use berth_agent::backend::{Backend, Policy};
use berth_experiment::lab::no_params;
use berth_experiment::plan::{Lengths, Plan, plan};
use berth_experiment::policies;
use berth_host::discover::Scanner;
use berth_host::root::Root;
use berth_lab::Vcpus;
use berth_loadgen::costs::CostError;
use berth_loadgen::{Clock, LoadError, Options};
use berth_report::progress::Bar;
use berth_report::say;
use berth_results::schema::{Place, RunRecord};
use berth_scenario::model::Scenario;
use std::collections::BTreeMap;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    run: RunOptions,

    /// What vCPUs are: `kvm` (real micro-VMs), `threads`, or `auto`: micro-VMs where they can be
    #[arg(long, value_name = "FORM", default_value = "auto", value_parser = Vcpus::parse)]
    vcpus: Vcpus,

    /// Measure what events cost on this machine (about 2 s), and write the cost profile `this-host` (or FILE;
    /// `-` prints it); no scenario is run
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "", conflicts_with = "scenario")]
    measure_costs: Option<String>,

    /// As long and as often as the scenario says; else at most 0.5 s + 2 s and 2 seeds, unless set here
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "Examples:
  berth host noisy-neighbour                    web servers and builds on this machine's own scheduler
  berth host noisy-neighbour --vcpus threads    without KVM
  berth host --measure-costs                    what events cost here: the cost profile this-host

The load is real: it takes the CPU time that the scenario says, and other work here feels it. Where this machine has
sched_ext, arms with a policy load it for each run: it then schedules everything here. As root, VMs have cgroups \
(weights, caps), which are removed at the end.";

/// What one bears on a machine that has other work.
const SHORT: Lengths = Lengths {
    warmup_ms: 500,
    measure_ms: 2_000,
    seeds: 2,
};
const CGROUPS: &str = "/sys/fs/cgroup";
/// Beginning of the name of a run's cgroup; the process id follows.
const GROUP: &str = "berth-host-";

/// Measures this machine and writes the profile.
fn measure_costs(file: &str) -> Done {
    let costs = berth_loadgen::costs::measure(interrupt::flag()).map_err(|e| match e {
        CostError::Interrupted => Failure::Interrupted,
        e => Failure::Run(e.to_string()),
    })?;
    if let Some(doubt) = costs.disturbed() {
        say!("note: {doubt}");
    }
    let profile = costs.profile(&kernel());
    let path = match file {
        "-" => {
            output::print(&profile);
            return Ok(());
        }
        "" => berth_scenario::cost::this_host().ok_or_else(|| {
            Failure::Input("this user has no home folder: name a file, or `-`".into())
        })?,
        file => PathBuf::from(file),
    };
    let failed = |e: std::io::Error| Failure::Run(format!("{}: {e}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    berth_results::write::atomic(&path, profile.as_bytes())
        .map_err(|e| Failure::Run(e.to_string()))?;
    say!("{}", path.display());
    Ok(())
}

pub fn run(args: &Args) -> Done {
    if let Some(file) = &args.measure_costs {
        return measure_costs(file);
    }
    let lengths = (!args.full).then_some(SHORT);
    let mut plan = plan(&args.run.request()?, &policies::shipped(), lengths)?;
    output::ready(&args.run)?;
    let obstacle = obstacle();
    let mut policies_of = BTreeMap::new();
    for variant in &mut plan.variants {
        for planned in &mut variant.arms {
            if planned.arm.policy == "linux" {
                no_params(&planned.arm, &variant.facts)?;
            } else if let Some(why) = &obstacle {
                planned.absent = Some(format!("no policy can be loaded here: {why}"));
            } else if planned.absent.is_none() {
                let scenario = variant.scenario.for_arm(&planned.arm);
                let policy = agent::resolve_as(&agent::choice(&planned.arm), &planned.arm.loader)?;
                policies::object_keeps_caps(&planned.arm, scenario, &policy.object)?;
                planned.hash = Some(policy.hash.clone());
                policies_of.insert(planned.arm.name.clone(), policy);
            }
        }
    }
    if plan.runs() == 0 {
        let why = obstacle.unwrap_or_else(|| "there is no such arm".into());
        return Err(Failure::Input(format!(
            "no arm can run here: {why}; berth lab tries policies in a VM"
        )));
    }
    // With micro-VMs, tasks need not fold; without, the load generator says so.
    plan.check(
        berth_scenario::support::Place::Host,
        args.vcpus != Vcpus::Threads,
    )?;
    for warning in &plan.warnings {
        say!("note: {warning}");
    }
    if args.vcpus != Vcpus::Threads {
        // Before any policy: the same for all arms. What fails here fails in the runs, which say so.
        let _ = berth_loadgen::measure_speed(Clock::Cpu);
    }
    let mut records = Vec::new();
    let mut outcome = Ok(());
    let talk = !args.run.quiet && std::io::stderr().is_terminal();
    let bar = Bar::new(plan.runs() as u64, talk);
    let mut done = 0;
    for variant in &plan.variants {
        let mut of_variant = Vec::new();
        for seed in &plan.seeds {
            for planned in variant.arms.iter().filter(|a| a.absent.is_none()) {
                if outcome.is_err() {
                    continue;
                }
                bar.say(format!("{}, seed {seed}", planned.arm.name));
                let scenario = variant.scenario.for_arm(&planned.arm);
                let policy = policies_of.get(&planned.arm.name);
                match once(scenario, *seed, args.vcpus, policy) {
                    Ok((metrics, notes)) => {
                        let mut record =
                            RunRecord::new(Place::Host, &planned.arm.name, *seed, metrics);
                        record.notes = notes;
                        of_variant.push(record);
                        done += 1;
                        bar.at(done);
                    }
                    Err(e) => outcome = Err(e),
                }
            }
        }
        records.push(of_variant);
    }
    drop(bar);
    report(args, &plan, records, outcome)
}

type Measured = (BTreeMap<String, f64>, Vec<String>);

/// What keeps policies from being loaded on this machine.
fn obstacle() -> Option<String> {
    let root = Root::live();
    let backend = Scx::new(root.clone());
    if let Err(e) = backend.able() {
        return Some(e.to_string());
    }
    let vms = Scanner::new(root.clone()).scan().unwrap_or_default();
    let all = backend.obstacles(&vms, false);
    let no_cgroup = || cgroup().err();
    all.into_iter().next().or_else(no_cgroup)
}

/// One run. Where cgroups cannot be made it goes without, and says so.
fn once(
    scenario: &Scenario,
    seed: u64,
    vcpus: Vcpus,
    policy: Option<&Policy>,
) -> Result<Measured, LoadError> {
    let root = cgroup();
    let refused = |e: berth_scx::ScxError| LoadError::Announce(std::io::Error::other(e));
    let loaded = policy.map(|p| berth_scx::Loaded::load(&p.object, &scx::options(p)));
    let mut loaded = loaded.transpose().map_err(refused)?;
    let mut options = Options {
        cgroup_root: root.as_ref().ok().cloned(),
        warmup_ns: scenario.run.warmup_ns,
        measure_ns: scenario.run.measure_ns,
        // The host's own clocks and timers know nothing of when the work begins.
        lead_ns: 0,
        vcpus,
        stop: Some(interrupt::flag()),
        on_threads: None,
        tell: match &loaded {
            Some(policy) => {
                let told = berth_lab::teller(policy);
                told.map_err(|e| LoadError::Announce(std::io::Error::other(e)))?
            }
            None => berth_loadgen::Teller::default(),
        },
    };
    if let (Some(policy), Ok(groups)) = (&mut loaded, &root)
        && policy.wants_identity()
    {
        options.on_threads = Some(Box::new(move |threads| {
            berth_lab::introduce(scenario, threads, groups, policy)
        }));
    }
    let outcome = berth_loadgen::run(scenario, seed, &mut options)?;
    drop(options);
    let mut notes = outcome.notes;
    notes.extend(root.err());
    notes.extend(scheduler());
    if let Some(policy) = loaded {
        notes.extend(policy.warnings().iter().cloned());
        let lasted = policy.poll().map_err(refused)?.running() == Some(policy.name());
        let record = policy.unload().map_err(refused)?;
        if !lasted {
            let why = format!("the policy ended during the run: {record}");
            return Err(LoadError::Announce(std::io::Error::other(why)));
        }
    }
    Ok((outcome.metrics, notes))
}

/// A cgroup of this process's own, or why there is none. What killed processes left behind is removed.
fn cgroup() -> Result<PathBuf, String> {
    let root = Path::new(CGROUPS);
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).map_err(|_| {
        "VMs have no cgroups: this machine has no unified cgroup tree (version 2)".to_string()
    })?;
    if !controllers.split_whitespace().any(|c| c == "cpu") {
        return Err("VMs have no cgroups: the `cpu` controller is not in the unified tree".into());
    }
    remove_leftovers(root);
    let writable = fs::OpenOptions::new()
        .write(true)
        .open(root.join("cgroup.subtree_control"));
    writable.map_err(|e| format!("VMs have no cgroups: {e}; run as root"))?;
    Ok(root.join(format!("{GROUP}{}", std::process::id())))
}

/// Removes the groups of runs that were killed before they could.
fn remove_leftovers(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|n| n.strip_prefix(GROUP)?.parse::<u32>().ok());
        if owner.is_none_or(|pid| Path::new(&format!("/proc/{pid}")).exists()) {
            continue;
        }
        for below in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            // A group with threads in it, or another user's, stays.
            let _ = fs::remove_dir(below.path());
        }
        let _ = fs::remove_dir(entry.path());
    }
}

/// The sched_ext scheduler that runs here, if one does.
fn scheduler() -> Option<String> {
    let read = |file: &str| {
        fs::read_to_string(format!("/sys/kernel/sched_ext/{file}")).unwrap_or_default()
    };
    (read("state").trim() == "enabled")
        .then(|| format!("scheduled by {} (sched_ext)", read("root/ops").trim()))
}

fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|s| s.trim().to_string())
        .unwrap_or_default()
}

/// Keeps and shows what there is, whatever else went wrong.
fn report(
    args: &Args,
    plan: &Plan,
    records: Vec<Vec<RunRecord>>,
    outcome: Result<(), LoadError>,
) -> Done {
    let finished: usize = records.iter().map(Vec::len).sum();
    let results = plan.results(
        Place::Host,
        &kernel(),
        args.run.command(),
        records,
        outcome.is_ok(),
    );
    if finished > 0 {
        let name = args.run.scenario.as_deref().unwrap_or(&plan.name);
        let lines = [("Policies", format!("berth lab {name}"))];
        output::keep(&args.run, plan, &results, &lines)?;
    }
    match outcome {
        Ok(()) if output::broken_expectation(&results) => Err(Failure::Expect),
        Ok(()) => Ok(()),
        Err(LoadError::Interrupted) => {
            say!("interrupted: {finished} of {} runs are kept", plan.runs());
            Err(Failure::Interrupted)
        }
        Err(e @ (LoadError::Placement(_) | LoadError::Unsupported { .. })) => {
            Err(Failure::Input(e.to_string()))
        }
        Err(e) => Err(Failure::Run(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_dead_processes_are_removed() {
        let all = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = format!("{GROUP}{}", child.id());
        child.wait().unwrap();
        let own = format!("{GROUP}{}", std::process::id());
        for name in [&dead, &own, &format!("{GROUP}x")] {
            fs::create_dir_all(all.path().join(name).join("web-1")).unwrap();
        }
        remove_leftovers(all.path());
        assert!(!all.path().join(dead).exists());
        assert!(all.path().join(own).join("web-1").exists());
        assert!(all.path().join(format!("{GROUP}x")).exists());
    }
}
