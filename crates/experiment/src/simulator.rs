// SPDX-License-Identifier: GPL-2.0-only
//! A plan's jobs for the simulator: policies loaded, parameters checked.
use crate::error::Failure;
use crate::foreign::Machine;
use crate::job::{Job, JobPolicy, Loaded};
use crate::kept::Kept;
use crate::linux;
use crate::plan::{Plan, plan};
use crate::policies::{self, Asked};
use crate::replications;
use crate::request::Request;
use crate::runner::{Elsewhere, Here, Runner};
use berth_policy::policy::Policy;
use berth_report::progress::Bar;
use berth_results::experiment::Results;
use berth_results::schema::{Place, RunRecord};
use berth_scenario::diag::At;
use berth_scenario::model::Vm;
use berth_scenario::place_of;
use berth_scenario::section::Fact;
use berth_sim::trace::SharedSink;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How runs are done.
#[derive(Clone, Debug)]
pub struct Running {
    /// Runs at once; 0: one per CPU of this machine. Results do not depend on it.
    pub workers: usize,
    /// Interpret policies and check each of their accesses.
    pub checked: bool,
    /// Set from outside to stop.
    pub cancel: &'static AtomicBool,
    /// Where runs are kept, and looked for before they are done.
    pub kept: Option<Kept>,
    /// Who does the runs; none: this process.
    pub elsewhere: Option<Elsewhere>,
    /// There is somebody who wants to see progress.
    pub talk: bool,
}

impl Running {
    /// In this process, nothing is kept, nobody looks on. `workers`, `cancel`: as the fields.
    pub fn new(workers: usize, cancel: &'static AtomicBool) -> Running {
        Running {
            workers,
            checked: false,
            cancel,
            kept: None,
            elsewhere: None,
            talk: false,
        }
    }
}

/// Everything that runs need. Positions are those of the plan.
pub struct Simulator {
    /// Per variant and arm, of seed 0; none where the arm is absent.
    jobs: Vec<Vec<Option<Job>>>,
    runner: Arc<dyn Runner>,
    /// This process.
    here: Arc<Here>,
    kept: Option<Kept>,
}

impl Simulator {
    /// Loads every policy once and checks parameters. `linux` is its model here.
    ///
    /// # Errors
    /// A policy that cannot be loaded, or a parameter that it does not have.
    pub fn prepare(plan: &mut Plan, running: &Running) -> Result<Simulator, Failure> {
        let loaded = Arc::new(Loaded::default());
        let jobs = jobs(plan, running.checked, &loaded)?;
        let here = Arc::new(Here::new(Some(running.cancel), loaded));
        let runner: Arc<dyn Runner> = match &running.elsewhere {
            Some(elsewhere) => Arc::new(elsewhere.clone()),
            None => here.clone(),
        };
        Ok(Simulator {
            jobs,
            runner,
            here,
            kept: running.kept.clone(),
        })
    }

    /// Tells a sink what happens in runs from now on (there should be one at a time). They are all done, and by this
    /// process: none is taken from those kept.
    pub fn tell(&mut self, sink: SharedSink) {
        self.kept = None;
        self.here.tell(sink);
        self.runner = self.here.clone();
    }

    /// The job of a variant's arm with a seed; none where the arm is absent.
    pub fn job(&self, variant: usize, arm: usize, seed: u64) -> Option<Job> {
        let job = self.jobs.get(variant)?.get(arm)?.as_ref()?;
        Some(Job {
            seed,
            ..job.clone()
        })
    }

    /// One run, or the kept one.
    ///
    /// # Errors
    /// One sentence: the policy was ejected or did something wrong, or the simulator broke a rule of its own.
    pub fn run(&self, variant: usize, arm: usize, seed: u64) -> Result<RunRecord, String> {
        let Some(job) = self.job(variant, arm, seed) else {
            return Err("this arm cannot run here".into());
        };
        if let Some(record) = self.kept.as_ref().and_then(|kept| kept.get(&job)) {
            return Ok(record);
        }
        let record = self.runner.run(&job)?;
        if let Some(kept) = self.kept.as_ref().filter(|kept| kept.as_finished()) {
            kept.put(&job, &record);
        }
        Ok(record)
    }

    /// Whether an arm's policy begins: the first millisecond of a run.
    ///
    /// # Errors
    /// One sentence, as [`Simulator::run`].
    pub fn begins(&self, variant: usize, arm: usize) -> Result<(), String> {
        let Some(mut job) = self.job(variant, arm, 1) else {
            return Ok(());
        };
        job.scenario.run.warmup_ns = 0;
        job.scenario.run.measure_ns = 1_000_000;
        self.here.run(&job).map(drop)
    }

    /// After an interrupt: keeps what was finished, unless it was kept as it was finished; the next start goes on from
    /// there. `records`: of each variant of the plan.
    pub fn interrupted(&self, plan: &Plan, records: &[Vec<RunRecord>]) {
        let Some(kept) = self.kept.as_ref().filter(|kept| !kept.as_finished()) else {
            return;
        };
        for (at, (variant, records)) in plan.variants.iter().zip(records).enumerate() {
            for record in records {
                let arm = variant.arms.iter().position(|a| a.arm.name == record.arm);
                if let Some(job) = arm.and_then(|arm| self.job(at, arm, record.seed)) {
                    kept.put(&job, record);
                }
            }
        }
    }
}

/// The results of a request in the simulator, for who needs them whole.
///
/// # Errors
/// Wrong input, an interrupt, or a run that failed.
pub fn simulated(request: &Request, running: &Running) -> Result<Results, Failure> {
    let mut plan = plan(request, &policies::shipped(), None)?;
    whole(&mut plan, running, String::new())
}

/// All runs of a plan, or none. `command` makes the same results again.
///
/// # Errors
/// Wrong input, an interrupt, or a run that failed.
pub fn whole(plan: &mut Plan, running: &Running, command: String) -> Result<Results, Failure> {
    let simulator = Simulator::prepare(plan, running)?;
    let bar = Bar::new(plan.runs() as u64, running.talk);
    let done = replications::run(plan, running, &bar, |v, a, s| simulator.run(v, a, s));
    drop(bar);
    if done.cancelled {
        simulator.interrupted(plan, &done.records);
        return Err(Failure::Interrupted);
    }
    if let Some(failure) = done.failures.into_iter().next() {
        return Err(Failure::Run(failure));
    }
    Ok(plan.results(Place::Sim, "", command, done.records, true))
}

/// The job of each arm of each variant, of seed 0; none where the arm is absent. Says in the plan which policy each arm
/// has.
///
/// # Errors
/// A policy that cannot be loaded, or a parameter that it does not have.
pub fn jobs(
    plan: &mut Plan,
    checked: bool,
    loaded: &Loaded,
) -> Result<Vec<Vec<Option<Job>>>, Failure> {
    let mut all = Vec::new();
    let mut said = Vec::new();
    for variant in &mut plan.variants {
        let mut row = Vec::new();
        for planned in &mut variant.arms {
            let arm = &planned.arm;
            if planned.absent.is_some() {
                row.push(None);
                continue;
            }
            if let Some(name) = arm.params.keys().next()
                && arm.policy == "linux"
            {
                let why = format!(
                    "arm {}: `policy.{name}` is set, but `linux` is the kernel's own scheduler, which takes no \
                     parameters; an arm with policy = \"{}\" takes its model's",
                    arm.name,
                    berth_builtin::LINUX_MODEL
                );
                let place = format!("arm.{}.set.policy.{name}", arm.name);
                let place = place_of(&variant.facts, &place);
                return Err(placed(place, Failure::Input(why)));
            }
            let mut job = Job::new(&variant.scenario, arm, checked);
            let kernel = &job.scenario.host.kernel;
            let at = |address: &str| place_of(&variant.facts, address);
            policies::options(kernel).map_err(|e| placed(at("host.kernel"), e))?;
            let own = arm.policy == "linux";
            let arm = linux::arm_on(arm, kernel);
            let arm = &arm.map_err(|e| placed(at("host.kernel"), e))?;
            let who = format!("arm {}", arm.name);
            let machine = Machine::host(&job.scenario.host);
            let (policy, named, notes) = loaded
                .by_name(&arm.policy, &arm.loader, &machine, kernel)
                .map_err(|e| {
                    let place = at(&format!("arm.{}.{}", arm.name, e.key));
                    placed(place, of(&who, e.why))
                })?;
            said.extend(notes);
            fits(&policy, &who, &arm.policy, job.scenario.host.nr_cpus())?;
            let (scenario, program) = (&job.scenario, policy.program());
            let capped = scenario.vms.iter().find(|vm| vm.cap_milli.is_some());
            let cap = capped.and_then(|vm| at(&format!("vm.{}.cap", vm.name)));
            policies::keeps_caps(arm, scenario, program).map_err(|e| placed(cap, e))?;
            let most = scenario.vms.iter().max_by_key(|vm| vm.count);
            let count = most.and_then(|vm| at(&format!("vm.{}.count", vm.name)));
            policies::has_room(arm, scenario, program).map_err(|e| placed(count, e))?;
            policies::has_turbo_cpus(arm, &job.scenario, policy.params())?;
            said.extend(policies::keeps_no_weights(
                arm,
                &job.scenario,
                policy.program(),
            ));
            let asked = Asked::by(arm, &variant.facts);
            let params = policies::resolve(&asked, policy.params(), policy.presets())?;
            job.policy = JobPolicy { params, ..named };
            for vm in &job.scenario.vms {
                job.guests.push(if vm.guest.is_none() {
                    None
                } else {
                    Some(guest(loaded, vm, &variant.facts, kernel, &mut said)?)
                });
            }
            planned.hash = Some(policy.hash().to_string());
            planned.model = own.then(|| match arm.policy.as_str() {
                "linux" => berth_builtin::LINUX_MODEL.into(),
                model => model.into(),
            });
            row.push(Some(job));
        }
        all.push(row);
    }
    for note in said {
        plan.say(note);
    }
    Ok(all)
}

/// An error with the place in the scenario that it comes from.
pub fn placed(at: Option<At>, error: Failure) -> Failure {
    match (at, error) {
        (Some(at), Failure::Input(text)) => {
            let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
            let error = berth_scenario::Error::at(&at, first);
            Failure::Input(match rest {
                "" => error.to_string(),
                rest => format!("{error}\n{rest}"),
            })
        }
        (_, error) => error,
    }
}

/// An error of a policy with who runs it in front, where that is not its name anyway.
fn of(who: &str, error: Failure) -> Failure {
    match error {
        Failure::Input(text) => Failure::Input(format!("{who}: {text}")),
        other => other,
    }
}

/// Before anything runs: is the machine too large for the policy?
fn fits(policy: &Policy, who: &str, name: &str, cpus: u32) -> Result<(), Failure> {
    policy
        .fits(cpus)
        .map_err(|e| Failure::Input(format!("{who}: policy {name}: {e}")))
}

/// The scheduler inside a VM.
fn guest(
    loaded: &Loaded,
    vm: &Vm,
    facts: &[Fact],
    kernel: &str,
    said: &mut Vec<String>,
) -> Result<JobPolicy, Failure> {
    let who = format!("vm.{}.guest", vm.name);
    let machine = Machine::even(vm.vcpus, kernel);
    let (policy, named, notes) = loaded
        .by_name(&vm.guest.policy, &Default::default(), &machine, kernel)
        .map_err(|e| of(&who, e.why))?;
    said.extend(notes);
    fits(&policy, &who, &vm.guest.policy, vm.vcpus)?;
    let asked = Asked::by_guest(vm, facts);
    let params = policies::resolve(&asked, policy.params(), policy.presets())?;
    Ok(JobPolicy { params, ..named })
}
