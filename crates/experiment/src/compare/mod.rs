// SPDX-License-Identifier: GPL-2.0-only
//! Simulator beside real kernel: one scenario ([`Comparing::single`]), folders of them with kept records ([`sets`]),
//! real guests ([`guests`]). What is judged, and by which bounds, is `berth_compare`'s.
pub mod guests;
pub mod page;
pub mod sets;

use crate::error::Failure;
use crate::plan::{Lengths, Plan, plan};
use crate::policies;
use crate::request::Request;
use crate::simulator::{self, Running};
use berth_compare::{Bounds, Comparison, compare};
use berth_results::experiment::{Experiment, Results};
use berth_results::schema::Place;
use berth_results::write;
use berth_scenario::model::{HostCost, Scenario};
use berth_scenario::profile::Profile;
use std::path::{Path, PathBuf};

/// What an emulated machine does in a bearable time.
const SHORT: Lengths = Lengths {
    warmup_ms: 500,
    measure_ms: 2_000,
    seeds: 2,
};

/// The kernel's side of a request: of these starts only, if any are named; so many of them in one boot.
pub type Boot<'a> =
    dyn Fn(&Request, Option<Lengths>, usize, Option<&[u64]>) -> Result<Results, Failure> + 'a;

/// Which starts on the kernel are made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Those that have no record.
    Missing,
    /// These, and those of arms whose policy has changed since.
    Changed,
    All,
}

/// How simulator and kernel are compared.
pub struct Comparing<'a> {
    /// What is run; for a folder without the scenario.
    pub request: Request,
    pub bounds: Bounds,
    /// The simulated machine has the costs measured in the lab's VM; else those of the scenario.
    pub lab_costs: bool,
    pub running: Running,
    /// Makes the same results again.
    pub command: String,
    pub record: Option<Record>,
    pub boot: &'a Boot<'a>,
}

/// Where the kernel's side of one scenario comes from.
pub struct Kept<'a> {
    /// Folder of results.
    pub out: &'a Path,
    /// The form of vCPUs that it must have (`threads`, `kvm`); none: whichever was recorded.
    pub vcpus: Option<&'a str>,
    /// As long and as often as the scenario says.
    pub full: bool,
}

impl Comparing<'_> {
    /// One scenario beside the lab's results that are kept, if they fit, or new ones, which are kept then. The file of
    /// the kept ones that were used, and their form of vCPUs.
    ///
    /// # Errors
    /// Wrong input, or a run that failed.
    pub fn single(&self, kept: &Kept) -> Result<(Comparison, Option<(PathBuf, String)>), Failure> {
        let lengths = (!kept.full).then_some(SHORT);
        let mut planned = plan(&self.request, &policies::shipped(), lengths)?;
        let folder = write::folder(kept.out, &planned.name);
        let found = write::read(&folder, Place::Lab).map_err(|e| Failure::Input(e.to_string()))?;
        let found = found.filter(|r| self.record.is_none() && fits(&planned, r, kept.vcpus));
        let used = found.as_ref().map(|results| {
            let file = write::json_path(&folder, Place::Lab);
            (file, results.provenance.vcpus.clone())
        });
        let lab = match found {
            Some(results) => results,
            None => {
                let results = (self.boot)(&self.request, lengths, 1, None)?;
                write::write(&folder, &results).map_err(|e| Failure::Run(e.to_string()))?;
                results
            }
        };
        let sim = self.simulate(&mut planned)?;
        let lab = first(lab)?;
        Ok((compare(&sim, &lab, &self.bounds), used))
    }

    /// Runs the plan in the simulator.
    ///
    /// # Errors
    /// Wrong input, an interrupt, or a run that failed.
    pub fn simulate(&self, plan: &mut Plan) -> Result<Experiment, Failure> {
        let cost = match self.lab_costs {
            true => Some(Profile::named("lab").map_err(Failure::Run)?.cost),
            false => None,
        };
        for variant in &mut plan.variants {
            adapt(&mut variant.scenario, cost.as_ref());
            let changed = variant.arms.iter_mut();
            let changed = changed.filter_map(|a| a.arm.scenario.as_mut());
            changed.for_each(|scenario| adapt(scenario, cost.as_ref()));
        }
        first(simulator::whole(plan, &self.running, self.command.clone())?)
    }
}

/// Results of the same scenario, whole, with all arms of the plan, and vCPUs of this form.
fn fits(plan: &Plan, results: &Results, vcpus: Option<&str>) -> bool {
    let (variant, experiment) = (plan.variants.first(), results.experiments.first());
    let has = |arm: &str| experiment.is_some_and(|e| e.runs.iter().any(|run| run.arm == arm));
    results.complete
        && vcpus.is_none_or(|form| form == results.provenance.vcpus)
        && variant.is_some_and(|v| {
            v.full == results.provenance.scenario && v.arms.iter().all(|a| has(&a.arm.name))
        })
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
