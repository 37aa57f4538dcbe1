// SPDX-License-Identifier: GPL-2.0-only
//! The set's scenarios in the simulator, as `berth compare` runs them.
use berth_compare::record::Record;
use berth_compare::set::Set;
use berth_compare::{Bounds, Comparison, compare};
use berth_policy::policy::{LoadOptions, Policy};
use berth_results::experiment::{Arm, Experiment};
use berth_results::schema::RunRecord;
use berth_scenario::model::Scenario;
use berth_scenario::profile::Profile;
use berth_scenario::{Input, read};
use berth_sim::run::{Options, kernel_scheduler, run_one};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("set")
}

/// A model to compare: the right one, or one that is wrong on purpose.
#[derive(Clone, Copy)]
pub struct Model {
    pub name: &'static str,
    pub change: fn(&mut Scenario),
    pub params: fn(&str) -> BTreeMap<String, String>,
    pub options: fn() -> Options,
}

pub const RIGHT: Model = Model {
    name: "the right model",
    change: |_| (),
    params: |_| BTreeMap::new(),
    options: Options::default,
};

fn policy(name: &str) -> Policy {
    let builtin = match name {
        "linux" => berth_builtin::linux_model(),
        name => berth_builtin::find(name).unwrap(),
    };
    builtin.load(&LoadOptions::default()).unwrap()
}

/// A scenario of the set, these arms of it, under this model, beside its record, with as many starts as the set has.
pub fn held(file: &Path, arms: &[&str], model: &Model) -> Comparison {
    let record = Record::read(&Record::path(file)).unwrap().unwrap();
    let starts = u64::from(Set::read(&folder()).unwrap().seeds.unwrap());
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let input = Input {
        name: name.clone(),
        shown: name.clone(),
        text: std::fs::read_to_string(file).unwrap(),
        folder: None,
    };
    let mut scenario = read(&input, &[]).unwrap().scenario;
    scenario.host.cost = Profile::named("lab").unwrap().cost;
    for vm in &mut scenario.vms {
        vm.guest.policy = "none".into();
    }
    (model.change)(&mut scenario);
    let order: Vec<String> = scenario.arms.iter().map(|a| a.name.clone()).collect();
    let lab = record.experiment(&name, &order);
    let mut runs: Vec<RunRecord> = Vec::new();
    for arm in lab.arms.iter().filter(|a| arms.contains(&a.name.as_str())) {
        let policy = policy(&arm.policy);
        let mut scenario = scenario.clone();
        let mut options = (model.options)();
        if arm.policy == "linux" {
            kernel_scheduler(&mut scenario.host, &mut options);
        }
        for seed in 1..=starts {
            let params = (model.params)(&arm.name);
            let run = run_one(&scenario, &arm.name, &policy, &params, seed, &options);
            runs.push(run.unwrap_or_else(|e| panic!("{name}, {}, {}: {e}", arm.name, model.name)));
        }
    }
    let sim = Experiment {
        arms: lab
            .arms
            .iter()
            .filter(|a| runs.iter().any(|r| r.arm == a.name))
            .map(|a| Arm {
                hash: None,
                ..a.clone()
            })
            .collect(),
        runs,
        ..lab.clone()
    };
    compare(&sim, &lab, &Bounds::built_in().unwrap())
}
