// SPDX-License-Identifier: GPL-2.0-only
//! A plan's runs on a real kernel, in throw-away VMs.
use crate::error::Failure;
use crate::foreign::{self, Machine};
use crate::plan::{Lengths, Plan, plan};
use crate::policies::{self, Asked};
use crate::request::Request;
use crate::simulator::placed;
use berth_lab::assets::{self, Kernel, KernelRule};
use berth_lab::run::{LabArm, LabOptions, LabPolicy};
use berth_lab::{LabError, Progress, Vcpus};
use berth_report::progress::Bar;
use berth_results::experiment::Results;
use berth_results::schema::{Place, RunRecord};
use berth_scenario::model::{Arm, Host};
use berth_scenario::section::Fact;
use berth_scenario::{place_of, support};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What VMs are booted for.
#[derive(Clone, Debug)]
pub struct Boots {
    pub rule: KernelRule,
    /// Look for newer kernels and emulators than those in the cache.
    pub refresh: bool,
    pub options: LabOptions,
    /// Set from outside to stop.
    pub cancel: &'static AtomicBool,
    /// There is somebody who wants to see progress.
    pub talk: bool,
}

/// What came out of the boots of a plan.
pub struct Booted {
    kernel: String,
    /// Never `auto`.
    vcpus: Vcpus,
    /// Of each variant of the plan.
    pub records: Vec<Vec<RunRecord>>,
    pub outcome: Result<(), LabError>,
}

/// The results of a request on a real kernel, for who needs them whole; `seeds`: of these starts only.
///
/// # Errors
/// Wrong input, an interrupt, or a run that failed.
pub fn results(
    request: &Request,
    lengths: Option<Lengths>,
    seeds: Option<&[u64]>,
    boots: &Boots,
    command: String,
) -> Result<Results, Failure> {
    let mut plan = plan(request, &policies::shipped(), lengths)?;
    if let Some(seeds) = seeds {
        plan.seeds = seeds.to_vec();
    }
    let mut done = boot(&mut plan, boots)?;
    std::mem::replace(&mut done.outcome, Ok(())).map_err(failed)?;
    Ok(done.results(&plan, command, true))
}

impl Booted {
    /// The records with what is judged of them. `command` makes the same again.
    pub fn results(self, plan: &Plan, command: String, complete: bool) -> Results {
        let mut results = plan.results(Place::Lab, &self.kernel, command, self.records, complete);
        results.provenance.vcpus = self.vcpus.word().into();
        results
    }
}

/// Micro-VMs if every arm's scenario fits; else threads, and why, where there are VMs at all.
fn form(arms: &[Vec<LabArm>]) -> (Vcpus, Option<String>) {
    let mut all = arms.iter().flatten().map(|a| &a.scenario);
    if all.clone().all(|s| s.vms.is_empty()) {
        return (Vcpus::Threads, None);
    }
    match all.find_map(|s| berth_lab::fits_micro_vms(s).err()) {
        None => (Vcpus::Kvm, None),
        Some(e) => (Vcpus::Threads, Some(plain_threads(&e))),
    }
}

fn plain_threads(why: &dyn std::fmt::Display) -> String {
    format!("vCPUs are plain threads, not those of real VMs: {why}")
}

/// Which kernel: the one that is asked for; without a word, of the line that all scenarios name (`host.kernel`).
fn rule(asked: &KernelRule, arms: &[Vec<LabArm>]) -> KernelRule {
    let mut lines = arms.iter().flatten().map(|a| &a.scenario.host.kernel);
    match lines.next() {
        Some(line)
            if *asked == KernelRule::Newest
                && *line != Host::default().kernel
                && lines.all(|l| l == line) =>
        {
            KernelRule::Line(line.clone())
        }
        _ => asked.clone(),
    }
}

/// # Errors
/// There is a policy to load, and the kernel cannot.
fn loadable(arms: &[Vec<LabArm>], kernel: &Kernel) -> Result<(), Failure> {
    let object = |arm: &&LabArm| matches!(arm.policy, Some(LabPolicy::Object { .. }));
    match arms.iter().flatten().find(object) {
        Some(arm) if !kernel.sched_ext => Err(Failure::Input(format!(
            "arm {}: kernel {} is built without sched_ext: on it there is only policy = \"linux\" (--arm linux)",
            arm.name, kernel.release
        ))),
        _ => Ok(()),
    }
}

/// Boots a VM for each variant, arm and seed.
///
/// # Errors
/// What is found out before the first of them.
pub fn boot(plan: &mut Plan, boots: &Boots) -> Result<Booted, Failure> {
    let mut options = boots.options.clone();
    plan.admit_programs();
    let arms = arms(plan)?;
    let choose = options.vcpus == Vcpus::Auto;
    if choose {
        let (vcpus, why) = form(&arms);
        options.vcpus = vcpus;
        plan.warnings.extend(why);
    }
    plan.check(support::Place::Lab, options.vcpus == Vcpus::Kvm)?;
    for arm in arms.iter().flatten() {
        berth_lab::run::check_scenario(&arm.scenario, options.vcpus).map_err(failed)?;
    }
    for warning in &plan.warnings {
        berth_report::say!("note: {warning}");
    }
    let stop = boots.cancel;
    let bar = Bar::new(plan.runs() as u64, boots.talk);
    let finished = Mutex::new(Vec::<RunRecord>::new());
    let done = AtomicUsize::new(0);
    let listener = |progress: Progress| match progress {
        Progress::Say(text) => bar.line(&text),
        Progress::Download { what, done, total } => {
            bar.say(format!("{what}: {} of {} MB", done >> 20, total >> 20))
        }
        Progress::Boot { arm, seed, attempt } => {
            let again = if attempt > 1 {
                format!(", attempt {attempt}")
            } else {
                String::new()
            };
            bar.say(format!("{arm}, seed {seed}{again}"));
        }
        Progress::Done { record, .. } => {
            finished
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .push(*record);
            bar.at(done.fetch_add(1, Ordering::Relaxed) as u64 + 1);
        }
    };
    let rule = rule(&boots.rule, &arms);
    let assets = assets::ensure(&rule, boots.refresh, &listener, stop).map_err(failed)?;
    loadable(&arms, &assets.kernel)?;
    if options.vcpus == Vcpus::Kvm {
        match assets::modules::kvm(&assets.kernel, &listener, stop) {
            Err(e) if choose && !matches!(e, LabError::Interrupted) => {
                options.vcpus = Vcpus::Threads;
                plan.check(support::Place::Lab, false)?;
                let note = plain_threads(&e);
                bar.line(&format!("note: {note}"));
                plan.warnings.push(note);
            }
            other => other.map(|_| ()).map_err(failed)?,
        }
    }
    bar.line(&format!(
        "kernel {}, {}, each in a VM of its own",
        assets.kernel.release,
        plan.runs_in_words()
    ));
    let mut records = Vec::new();
    let mut outcome = Ok(());
    for arms in &arms {
        if outcome.is_ok() {
            let all = berth_lab::run::run(arms, &plan.seeds, &options, &assets, &listener, stop);
            outcome = all.map(|_| ());
        }
        // What was finished, whatever came then.
        records.push(std::mem::take(
            &mut *finished.lock().unwrap_or_else(|e| e.into_inner()),
        ));
    }
    drop(bar);
    Ok(Booted {
        kernel: assets.kernel.release,
        vcpus: options.vcpus,
        records,
        outcome,
    })
}

/// An error of the lab that is the input's.
pub fn input(error: LabError) -> Failure {
    Failure::Input(error.to_string())
}

/// An error of the lab.
pub fn failed(error: LabError) -> Failure {
    match error {
        LabError::Interrupted => Failure::Interrupted,
        LabError::Scenario(_) => input(error),
        _ => Failure::Run(error.to_string()),
    }
}

/// Arms of each variant as the lab wants them: the scenario of each, the bytes of its policy.
fn arms(plan: &mut Plan) -> Result<Vec<Vec<LabArm>>, Failure> {
    let mut all = Vec::new();
    let mut said = Vec::new();
    for variant in &mut plan.variants {
        let mut arms = Vec::new();
        for planned in &mut variant.arms {
            if planned.absent.is_some() {
                continue;
            }
            let arm = &planned.arm;
            let policy = if arm.policy == "linux" {
                no_params(arm, &variant.facts)?;
                None
            } else if support::is_program(&arm.policy) {
                no_params(arm, &variant.facts)?;
                let program = policies::program(&arm.policy)?;
                planned.hash = Some(policies::program_hash(&program)?);
                Some(LabPolicy::Program(program))
            } else {
                let scenario = variant.scenario.for_arm(arm);
                let object = match policies::is_file(&arm.policy) {
                    true => {
                        let machine = Machine::host(&scenario.host);
                        let ready = foreign::ready(&arm.policy, &arm.loader, &machine)?;
                        said.extend(ready.notes);
                        ready.object
                    }
                    false => policies::object(&arm.policy)?,
                };
                policies::object_keeps_caps(arm, scenario, &object)?;
                said.extend(policies::object_keeps_no_weights(arm, scenario, &object));
                planned.hash = Some(berth_policy::identity::hash(&object));
                let mut options = berth_scx::LoadOptions::default();
                for (name, value) in policies::values(&Asked::by(arm, &variant.facts), &object)? {
                    let value = match value {
                        policies::Set::Number(n) => berth_scx::Value::Number(n.into()),
                        policies::Set::Text(text) => berth_scx::Value::Text(text),
                    };
                    options.variables.insert(name, value);
                }
                Some(LabPolicy::Object { object, options })
            };
            arms.push(LabArm {
                name: arm.name.clone(),
                scenario: variant.scenario.for_arm(arm).clone(),
                policy,
            });
        }
        all.push(arms);
    }
    for note in said {
        plan.say(note);
    }
    Ok(all)
}

/// The kernel's own scheduler takes no parameters, nor does a program.
///
/// # Errors
/// The arm, of a scenario that says this, has a preset or a parameter.
pub fn no_params(arm: &Arm, facts: &[Fact]) -> Result<(), Failure> {
    let at = |key: &str| place_of(facts, &format!("arm.{}.{key}", arm.name));
    if let Some(preset) = &arm.preset {
        let why = format!(
            "arm {}: preset `{preset}` is asked for, but {}, which has none",
            arm.name,
            without_params(arm)
        );
        return Err(placed(at("preset"), Failure::Input(why)));
    }
    let Some(name) = arm.params.keys().next() else {
        return Ok(());
    };
    let why = format!(
        "arm {}: `policy.{name}` is set, but {}, which takes no parameters",
        arm.name,
        without_params(arm)
    );
    let at = at(&format!("set.policy.{name}"));
    Err(placed(at, Failure::Input(why)))
}

fn without_params(arm: &Arm) -> String {
    match arm.policy.as_str() {
        "linux" => "`linux` is the kernel's own scheduler".to_string(),
        program => format!("`{program}` is a program of its own"),
    }
}
