// SPDX-License-Identifier: GPL-2.0-only
//! `berth compare` for folders of scenarios: the open set and the sealed one, with kept records of the kernel.
use crate::compare::{self, Args};
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use berth_compare::known::Known;
use berth_compare::record::Record;
use berth_compare::set::{self, Content, Set};
use berth_compare::{Bounds, Comparison, block, markdown};
use berth_experiment::plan::{Plan, Variant, plan};
use berth_experiment::policies;
use berth_results::experiment::{Arm, Experiment};
use berth_results::write;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fmt::Write;
use std::path::Path;

/// A folder's scenarios are short, and booting takes longer than they do.
const SEEDS_PER_BOOT: usize = 4;

/// Below the heading of a page.
const MADE_BY: &str = "Made by `make fidelity` (`berth compare crates/compare/set --sealed crates/compare/sealed --markdown
docs/fidelity-table.md`); do not edit. Simulator / kernel; bold: the bound is broken; in brackets: not judged; ±: half of
the kernel's 95 % interval, where it could hold the bound (open). Answered: requests answered / due in the measured time.";

/// What comparing a folder gave.
pub struct Compared {
    pub all: Vec<Comparison>,
    /// Scenarios of which starts are not recorded, and which.
    pub missing: Vec<(String, String)>,
    /// Arms whose policy is another one than was recorded.
    pub stale: BTreeSet<String>,
}

fn input(e: impl Display) -> Failure {
    Failure::Input(e.to_string())
}

fn failed(e: impl Display) -> Failure {
    Failure::Run(e.to_string())
}

/// The command line for one scenario of a folder.
fn of_file(run: &RunOptions, set: &Set, file: &Path) -> RunOptions {
    let mut options = run.clone();
    options.scenario = Some(file.display().to_string());
    if options.seed.is_none() && options.seeds.is_none() {
        options.seeds = set.seeds;
    }
    options
}

/// Refuses a scenario that both folders have.
///
/// # Errors
/// One of them is no set, a scenario cannot be read, or is in both.
pub fn disjoint(run: &RunOptions, open: &Path, sealed: &Path) -> Result<(), Failure> {
    let contents = |folder: &Path| -> Result<Vec<Content>, Failure> {
        let files = set::files(folder).map_err(input)?;
        let content = |path: std::path::PathBuf| {
            let mut options = run.clone();
            options.scenario = Some(path.display().to_string());
            options.arm.clear();
            let plan = plan(&options.request()?, &policies::shipped(), None)?;
            let world = plan.variants.first().map_or(String::new(), world);
            Ok(Content { path, world })
        };
        files.into_iter().map(content).collect()
    };
    set::disjoint(&contents(open)?, &contents(sealed)?).map_err(input)
}

/// A scenario without what two copies of it may differ in: how it is called, how long and often it runs, under whom.
fn world(variant: &Variant) -> String {
    let s = &variant.scenario;
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        s.host, s.vms, s.tasks, s.clients, s.net
    )
}

/// Compares the scenarios of a folder with their records; `--record` makes what is missing first.
///
/// # Errors
/// Wrong input, or a run that failed.
pub fn compared(args: &Args, folder: &Path, bounds: &Bounds) -> Result<Compared, Failure> {
    let set = Set::read(folder).map_err(input)?;
    let mut out = Compared {
        all: Vec::new(),
        missing: Vec::new(),
        stale: BTreeSet::new(),
    };
    for file in set::files(folder).map_err(input)? {
        let options = of_file(&args.run, &set, &file);
        let mut planned = plan(&options.request()?, &policies::shipped(), None)?;
        let path = Record::path(&file);
        let mut record = Record::read(&path).map_err(failed)?;
        if let Some(what) = args.record.as_deref() {
            record_arms(args, &options, &mut planned, what, &path, &mut record)?;
        }
        if args.record_only {
            continue;
        }
        out.missing.extend(missing(&planned, record.as_ref()));
        let Some(record) = record else { continue };
        let sim = compare::simulate(args, &mut planned)?;
        let order: Vec<String> = sim.arms.iter().map(|a| a.name.clone()).collect();
        let lab = record.experiment(&planned.name, &order);
        out.stale.extend(stale(&sim, &lab));
        let mut c = berth_compare::compare(&sim, &lab, bounds);
        if let Some(of) = set.measured_with(&planned.name) {
            c.measured.clone_from(&of.costs);
        }
        compare::show(args, &c);
        out.all.push(c);
    }
    for (scenario, what) in &out.missing {
        eprintln!("note: {scenario}: {what}");
    }
    for arm in &out.stale {
        eprintln!(
            "note: {arm}: another build than was recorded, or a changed policy; --record changed records it again"
        );
    }
    Ok(out)
}

/// Names of the arms that are to run.
fn arms(plan: &Plan) -> Vec<String> {
    let arms = plan.variants.iter().flat_map(|v| &v.arms);
    arms.map(|a| a.arm.name.clone()).collect()
}

/// Records what is missing of a scenario, arm by arm; each is kept at once, for recording takes long.
fn record_arms(
    args: &Args,
    options: &RunOptions,
    plan: &mut Plan,
    what: &str,
    path: &Path,
    record: &mut Option<Record>,
) -> Done {
    for arm in arms(plan) {
        let keep = match (&record, what) {
            (None, _) | (_, "all") => false,
            (Some(record), "changed") => !changed(plan, &arm, record)?,
            (Some(_), _) => true,
        };
        let seeds = match &record {
            Some(record) if keep => record.without(&arm, &plan.seeds),
            _ => plan.seeds.clone(),
        };
        if seeds.is_empty() {
            continue;
        }
        let mut one = options.clone();
        one.arm = vec![arm];
        let results = compare::boot(args, &one, None, SEEDS_PER_BOOT, Some(&seeds))?;
        let Some(newer) = Record::of(&results) else {
            continue;
        };
        // What is on the disk by now: somebody else may record other arms of the scenario meanwhile.
        let mut now = Record::read(path).map_err(failed)?;
        match &mut now {
            Some(now) => now.take_over(newer),
            None => now = Some(newer),
        }
        if let Some(now) = &now {
            now.write(path).map_err(failed)?;
        }
        *record = now;
    }
    Ok(())
}

/// The arm's policy is another one than was recorded.
fn changed(plan: &Plan, arm: &str, record: &Record) -> Result<bool, Failure> {
    let mut all = plan.variants.iter().flat_map(|v| &v.arms);
    let policy = all
        .find(|a| a.arm.name == arm)
        .map(|a| a.arm.policy.as_str());
    let (Some(policy), Some(kept)) = (policy, record.arms.get(arm)) else {
        return Ok(false);
    };
    if policy == "linux" {
        return Ok(false);
    }
    let now = berth_policy::identity::hash(&policies::object(policy)?);
    Ok(kept.hash.as_deref() != Some(&*now))
}

/// The scenario and which starts of it have no record, if any.
fn missing(plan: &Plan, record: Option<&Record>) -> Option<(String, String)> {
    let without = |arm: &String| match record {
        Some(record) => record.without(arm, &plan.seeds).len(),
        None => plan.seeds.len(),
    };
    let arms: Vec<(String, usize)> = arms(plan)
        .into_iter()
        .map(|arm| (without(&arm), arm))
        .filter(|(n, _)| *n > 0)
        .map(|(n, arm)| (arm, n))
        .collect();
    if arms.is_empty() {
        return None;
    }
    let of = plan.seeds.len();
    let said: Vec<String> = arms.iter().map(|(arm, n)| format!("{arm} {n}")).collect();
    let what = format!("of {of} starts not recorded yet: {}", said.join(", "));
    Some((plan.name.clone(), what))
}

/// Arms whose policy has changed since the kernel was recorded.
fn stale(sim: &Experiment, lab: &Experiment) -> Vec<String> {
    let changed = |arm: &&Arm| {
        let now = sim.arms.iter().find(|a| a.name == arm.name);
        arm.policy != "linux" && now.is_some_and(|now| now.hash != arm.hash)
    };
    let arms = lab.arms.iter().filter(changed);
    arms.map(|a| a.name.clone()).collect()
}

/// Writes the pages that were asked for.
///
/// # Errors
/// A page cannot be written, or has no place for the summary.
pub fn publish(
    args: &Args,
    bounds: &Bounds,
    known: &Known,
    open: &Compared,
    sealed: Option<&Compared>,
) -> Done {
    let reasons = |scenario: &str, row: &berth_compare::Row| known.why(scenario, row);
    let unsought = |_: &str, _: &berth_compare::Row| {
        Some("sealed: reported, and its causes are not looked for here".to_string())
    };
    let mut top = String::from("## The open set\n\n");
    top += &markdown::headline(&open.all, bounds);
    top += &format!(
        "\n### The ten largest errors\n\n{}",
        markdown::largest(&open.all, &reasons)
    );
    if let Some(sealed) = sealed {
        top += &format!(
            "\n## The sealed set\n\n{}",
            markdown::headline(&sealed.all, bounds)
        );
    }
    // Scenarios that lack the same stand in one line.
    let mut all_missing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (scenario, what) in [Some(open), sealed]
        .into_iter()
        .flatten()
        .flat_map(|c| &c.missing)
    {
        let of = all_missing.entry(what).or_default();
        of.push(format!("`{scenario}`"));
    }
    if !all_missing.is_empty() {
        let _ = write!(top, "\n## Not recorded yet\n\n");
        for (what, scenarios) in all_missing {
            let _ = writeln!(top, "- {what}: {}", scenarios.join(", "));
        }
    }
    for (set, compared) in [("open", Some(open)), ("sealed", sealed)] {
        let stale = compared.map(|c| c.stale.iter().cloned().collect::<Vec<_>>());
        if let Some(stale) = stale.filter(|s| !s.is_empty()) {
            let arms = stale.join(", ");
            let _ = writeln!(
                top,
                "\nIn the {set} set the kernel ran an earlier version of {arms}, in some scenarios at least."
            );
        }
    }
    if let Some(path) = &args.markdown {
        let mut page = format!(
            "# Fidelity: the table\n\n{MADE_BY}\n\n{top}\n## By quantity: the open set\n\n{}\n## Scenarios of the open set\n\n{}",
            markdown::summary(&open.all, bounds),
            markdown::scenarios(&open.all, &reasons)
        );
        if let Some(sealed) = sealed {
            let _ = write!(
                page,
                "\n## By quantity: the sealed set\n\n{}\n## Scenarios of the sealed set\n\n{}",
                markdown::summary(&sealed.all, bounds),
                markdown::scenarios(&sealed.all, &unsought)
            );
        }
        write::atomic(path, page.as_bytes()).map_err(failed)?;
    }
    if let Some(path) = &args.summary {
        let wrong = |e: &dyn Display| input(format!("{}: {e}", path.display()));
        let page = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
        let top = top.replace("\n### ", "\n#### ").replace("\n## ", "\n### ");
        let top = format!("#{top}");
        let page = block::replaced(&page, "fidelity", &top).map_err(|e| wrong(&e))?;
        write::atomic(path, page.as_bytes()).map_err(failed)?;
    }
    Ok(())
}
