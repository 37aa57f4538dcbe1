// SPDX-License-Identifier: GPL-2.0-only
//! What very many combinations of `--vary` come to, from one run.
use crate::error::Failure;
use crate::plan::{Plan, plan};
use crate::policies;
use crate::request::Request;
use crate::simulator::{Running, Simulator};
use berth_scenario::edit;
use berth_scenario::model::{Client, Scenario, Sends, Step, Vm};
use berth_scenario::support::Place;
use std::time::{Duration, Instant};

/// What a request costs the simulator at the very least, CPU seconds: its arrival, where nobody gets to answer it. A
/// million a second to each of two VMs take 0.14 us each (`noisy-neighbour`, a release build).
const REQUEST_S: f64 = 0.1e-6;
/// What a thread costs for being there: its place, its first wake-up. 20,000 VMs with one
/// busy vCPU each take 90 us apiece for 10 ms (`gfifo`, a release build).
const THREAD_S: f64 = 10e-6;
/// What a second of a CPU costs on which threads that compute all the time take turns. With slices of 20 ms it is 25 us
/// (`gfifo`, two busy threads, a release build).
const BUSY_CPU_S: f64 = 10e-6;

/// Wall time of a plan's runs on this machine that they take at the very least, by the requests and threads that the
/// scenario names alone; seconds.
pub fn least_seconds(plan: &Plan) -> f64 {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let seeds = plan.seeds.len();
    let mut seconds = 0.0;
    let mut runs = 0;
    for variant in &plan.variants {
        let arms = variant.arms.iter().filter(|a| a.absent.is_none());
        for arm in arms {
            seconds += one_run(variant.scenario.for_arm(&arm.arm)) * seeds as f64;
            runs += seeds;
        }
    }
    seconds / cpus.min(runs.max(1)) as f64
}

fn one_run(scenario: &Scenario) -> f64 {
    let time_s = (scenario.run.warmup_ns + scenario.run.measure_ns) as f64 / 1e9;
    let vms = |name: &str| {
        let group = scenario.vms.iter().find(|vm| vm.name == name);
        group.map_or(0.0, |vm| f64::from(vm.count))
    };
    let requests = |client: &Client| {
        let each = match &client.sends {
            // Not more than the clock has steps.
            Sends::Open { gap } => time_s * 1e9 / gap.mean_ns().max(1.0),
            Sends::Every { period_ns, .. } => time_s * 1e9 / (*period_ns).max(1) as f64,
            Sends::Batch { count } => f64::from(*count),
            // It waits for answers: how long is not known.
            Sends::Closed { .. } => 0.0,
        };
        each * vms(&client.to)
    };
    let threads = |vm: &Vm| f64::from(vm.count) * f64::from(vm.vcpus);
    let all: f64 = scenario.vms.iter().map(threads).sum();
    let busy = |vm: &&Vm| {
        let mut tasks = vm.tasks.iter().filter_map(|t| scenario.tasks.get(t));
        tasks.any(|task| task.steps.contains(&Step::Busy))
    };
    let busy: f64 = scenario.vms.iter().filter(busy).map(threads).sum();
    let cpus = f64::from(scenario.host.nr_cpus());
    // Who is alone on a CPU takes no turns.
    let turns = if busy > cpus { cpus * time_s } else { 0.0 };
    scenario.clients.iter().map(requests).sum::<f64>() * REQUEST_S
        + all * THREAD_S
        + turns * BUSY_CPU_S
}

/// What a request asks for, and what one run of it took.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub combinations: u64,
    /// Combinations, arms and seeds.
    pub runs: u64,
    /// Wall time of one run.
    pub one_run: Duration,
    /// Of one run's record.
    pub bytes: u64,
    /// Runs at a time.
    pub workers: u64,
}

impl Estimate {
    /// Runs the first combination of the first arm that can run, with the first seed.
    ///
    /// # Errors
    /// The request cannot be planned or run; none of its arms can run here.
    pub fn of(request: &Request, running: &Running) -> Result<Estimate, Failure> {
        let first = request.first()?;
        let mut plan = plan(&first, &policies::shipped(), None)?;
        let simulator = Simulator::prepare(&mut plan, running)?;
        plan.check(Place::Sim, false)?;
        let arms = plan.variants.first().map_or(&[][..], |v| &v.arms);
        let arm = arms.iter().position(|a| a.absent.is_none());
        let (Some(arm), Some(seed)) = (arm, plan.seeds.first()) else {
            return Err(Failure::Input("no arm of the scenario can run here".into()));
        };
        let started = Instant::now();
        let record = simulator.run(0, arm, *seed).map_err(Failure::Run)?;
        let one_run = started.elapsed();
        let combinations = edit::combinations(&request.vary)?;
        Ok(Estimate {
            combinations,
            runs: (plan.runs() as u64).saturating_mul(combinations),
            one_run,
            bytes: serde_json::to_string(&record).map_or(0, |text| text.len() as u64),
            workers: match running.workers {
                0 => std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
                n => n as u64,
            },
        })
    }

    /// Wall time of all runs, s.
    pub fn seconds(&self) -> f64 {
        self.one_run.as_secs_f64() * self.runs as f64 / self.workers as f64
    }

    /// Memory that all results take, GB.
    pub fn gigabytes(&self) -> f64 {
        self.runs as f64 * self.bytes as f64 / 1e9
    }
}
