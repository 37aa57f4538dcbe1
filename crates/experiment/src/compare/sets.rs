// SPDX-License-Identifier: GPL-2.0-only
//! Folders of scenarios with kept records of the kernel: the open set and the sealed one.
use super::{Comparing, Record};
use crate::error::{Done, Failure};
use crate::plan::{Plan, Variant, plan};
use crate::policies;
use crate::request::Request;
use berth_compare::Comparison;
use berth_compare::record;
use berth_compare::set::{self, Content, Set};
use berth_results::experiment::{Arm, Experiment};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

/// A folder's scenarios are short, and booting takes longer than they do.
const SEEDS_PER_BOOT: usize = 4;

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

/// The request for one scenario of a folder.
fn of_file(request: &Request, set: &Set, file: &Path) -> Request {
    let mut one = request.clone();
    one.scenario = file.display().to_string();
    if one.seed.is_none() && one.seeds.is_none() {
        one.seeds = set.seeds;
    }
    one
}

/// Refuses a scenario that both folders have.
///
/// # Errors
/// One of them is no set, a scenario cannot be read, or is in both.
pub fn disjoint(request: &Request, open: &Path, sealed: &Path) -> Result<(), Failure> {
    let contents = |folder: &Path| -> Result<Vec<Content>, Failure> {
        let files = set::files(folder).map_err(input)?;
        let content = |path: std::path::PathBuf| {
            let one = Request {
                scenario: path.display().to_string(),
                arms: Vec::new(),
                ..request.clone()
            };
            let plan = plan(&one, &policies::shipped(), None)?;
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

/// Records what is to be recorded of a folder's scenarios, and compares them with their records unless there is nobody
/// to `show` a comparison to.
///
/// # Errors
/// Wrong input, or a run that failed.
pub fn compared(
    comparing: &Comparing,
    folder: &Path,
    show: Option<&dyn Fn(&Comparison)>,
) -> Result<Compared, Failure> {
    let set = Set::read(folder).map_err(input)?;
    let mut out = Compared {
        all: Vec::new(),
        missing: Vec::new(),
        stale: BTreeSet::new(),
    };
    for file in set::files(folder).map_err(input)? {
        let request = of_file(&comparing.request, &set, &file);
        let mut planned = plan(&request, &policies::shipped(), None)?;
        let path = record::Record::path(&file);
        let mut record = record::Record::read(&path).map_err(failed)?;
        if let Some(what) = comparing.record {
            record_arms(comparing, &request, &planned, what, &path, &mut record)?;
        }
        let Some(show) = show else { continue };
        out.missing.extend(missing(&planned, record.as_ref()));
        let Some(record) = record else { continue };
        let sim = comparing.simulate(&mut planned)?;
        let order: Vec<String> = sim.arms.iter().map(|a| a.name.clone()).collect();
        let lab = record.experiment(&planned.name, &order);
        out.stale.extend(stale(&sim, &lab));
        let mut c = berth_compare::compare(&sim, &lab, &comparing.bounds);
        if let Some(of) = set.measured_with(&planned.name) {
            c.measured.clone_from(&of.costs);
        }
        show(&c);
        out.all.push(c);
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
    comparing: &Comparing,
    request: &Request,
    plan: &Plan,
    what: Record,
    path: &Path,
    record: &mut Option<record::Record>,
) -> Done {
    for arm in arms(plan) {
        let keep = match (&record, what) {
            (None, _) | (_, Record::All) => false,
            (Some(record), Record::Changed) => !changed(plan, &arm, record)?,
            (Some(_), Record::Missing) => true,
        };
        let seeds = match &record {
            Some(record) if keep => record.without(&arm, &plan.seeds),
            _ => plan.seeds.clone(),
        };
        if seeds.is_empty() {
            continue;
        }
        let one = Request {
            arms: vec![arm],
            ..request.clone()
        };
        let results = (comparing.boot)(&one, None, SEEDS_PER_BOOT, Some(&seeds))?;
        let Some(newer) = record::Record::of(&results) else {
            continue;
        };
        // What is on the disk by now: somebody else may record other arms of the scenario meanwhile.
        let mut now = record::Record::read(path).map_err(failed)?;
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
fn changed(plan: &Plan, arm: &str, record: &record::Record) -> Result<bool, Failure> {
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
fn missing(plan: &Plan, record: Option<&record::Record>) -> Option<(String, String)> {
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
    let what = format!(
        "not recorded yet, of {of} starts of each: {}",
        said.join(", ")
    );
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
