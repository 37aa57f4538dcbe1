// SPDX-License-Identifier: GPL-2.0-only
//! A trace: how many CPUs of each kind each VM uses, step by step, of one run for each arm.
use super::Wanted;
use super::figure::Drawn;
use super::measure::QUICK;
use crate::error::Failure;
use crate::plan::plan;
use crate::policies;
use crate::request::Request;
use crate::simulator::{Running, Simulator};
use berth_report::plot::{Look, Plot, Point, Series, lines_as};
use berth_report::text::significant;
use berth_scenario::model::{CoreKind, Host, Nanos};
use berth_scenario::paper::{Experiment, Trace};
use berth_scenario::support::Place;
use berth_sim::machine::task::Life;
use berth_sim::trace::{Event, Kind, SharedSink, Sink};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// A trace, and what was measured.
pub struct Traced<'a> {
    pub trace: &'a Trace,
    /// The command that gives the same.
    pub command: String,
    pub arms: Vec<TracedArm>,
}

/// One run of a trace.
pub struct TracedArm {
    pub arm: String,
    /// Kinds of cores, the fastest first; one without a name if all are alike.
    pub kinds: Vec<String>,
    pub vms: Vec<String>,
    /// CPUs that VM `v` uses of kind `k`: entry `k * vms + v` of each step.
    pub steps: Vec<Vec<f64>>,
}

impl TracedArm {
    /// Of each entry of a step: the VM, and the kind if there are several.
    pub fn names(&self) -> Vec<String> {
        let of_kind = |kind: &String| {
            let kind = kind.clone();
            self.vms.iter().map(move |vm| match kind.as_str() {
                "" => vm.clone(),
                kind => format!("{vm}, {kind}"),
            })
        };
        self.kinds.iter().flat_map(of_kind).collect()
    }
}

/// Does the traces of an experiment. They are not kept: each is one run for each arm.
///
/// # Errors
/// Wrong input, an interrupt, or a run that failed.
pub fn trace<'a>(
    wanted: &Wanted<'a>,
    experiment: &'a Experiment,
    running: &Running,
    say: &dyn Fn(&str),
) -> Result<Vec<Traced<'a>>, Failure> {
    let of = |trace: &'a Trace| {
        let (paper, id) = (&wanted.paper.name, &experiment.id);
        say(&format!("{paper} {id}, trace {}", trace.name));
        let arms = trace
            .arms
            .iter()
            .map(|arm| one(wanted, trace, arm, running));
        Ok(Traced {
            trace,
            command: format!("berth reproduce {paper} {id}"),
            arms: arms.collect::<Result<_, _>>()?,
        })
    };
    experiment.traces.iter().map(of).collect()
}

fn one(
    wanted: &Wanted<'_>,
    trace: &Trace,
    arm: &str,
    running: &Running,
) -> Result<TracedArm, Failure> {
    let scenario = wanted.paper.folder.join(&trace.scenario);
    let request = Request {
        scenario: scenario.display().to_string(),
        set: trace.set.clone(),
        arms: vec![arm.to_string()],
        seed: Some(trace.seed),
        ..Request::default()
    };
    let quick = wanted.quick.then_some(QUICK);
    let mut plan = plan(&request, &policies::shipped(), quick)?;
    plan.check(Place::Sim, false)?;
    let mut simulator = Simulator::prepare(&mut plan, running)?;
    let job = simulator.job(0, 0, trace.seed);
    let job = job.ok_or_else(|| Failure::Run(format!("arm {arm} cannot run here")))?;
    let scenario = &job.scenario;
    let vms = berth_sim::run::vm_specs(scenario);
    let vms: Vec<String> = vms.into_iter().map(|vm| vm.name).collect();
    let (kinds, kind_of) = kinds(&scenario.host);
    let tally = Arc::new(Mutex::new(Tally::new(
        kind_of,
        kinds.len(),
        vms.len(),
        trace.step_ns,
    )));
    simulator.tell(SharedSink::new(tally.clone()));
    let end = scenario.run.warmup_ns + scenario.run.measure_ns;
    let ran = simulator.run(0, 0, trace.seed);
    if running.cancel.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    ran.map_err(|why| Failure::Run(format!("arm {arm}, seed {}: {why}", trace.seed)))?;
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(TracedArm {
        arm: arm.to_string(),
        kinds,
        vms,
        steps: tally.until(end),
    })
}

/// The kinds of cores of a host, the fastest first, and of which each CPU is. Two are fast and slow.
fn kinds(host: &Host) -> (Vec<String>, Vec<usize>) {
    let mut all: Vec<(usize, &CoreKind)> = (1..).zip(&host.cost.kinds).collect();
    all.sort_by_key(|(number, kind)| (std::cmp::Reverse(kind.speed_ppm), *number));
    let name = |(number, kind): &(usize, &CoreKind)| match kind.name.as_str() {
        "" => number.to_string(),
        name => name.to_string(),
    };
    let names = match all.len() {
        0 | 1 => vec![String::new()],
        2 => vec!["fast".into(), "slow".into()],
        _ => all.iter().map(name).collect(),
    };
    let of = |cpu: u32| {
        let core = cpu / host.threads.max(1);
        let found = all.iter().position(|(_, kind)| kind.cores.contains(&core));
        found.unwrap_or(0)
    };
    (names, (0..host.nr_cpus()).map(of).collect())
}

/// Adds up who has which CPU.
struct Tally {
    kind_of: Vec<usize>,
    kinds: usize,
    vms: usize,
    step_ns: Nanos,
    /// VM of each task of the host that has one.
    vm_of: BTreeMap<u32, usize>,
    /// Of each CPU: which VM has it, and since when that is not added up.
    has: Vec<(Option<usize>, Nanos)>,
    /// Nanoseconds: by step, kind, VM.
    ran_ns: Vec<Vec<Nanos>>,
}

impl Tally {
    fn new(kind_of: Vec<usize>, kinds: usize, vms: usize, step_ns: Nanos) -> Tally {
        Tally {
            has: vec![(None, 0); kind_of.len()],
            kind_of,
            kinds,
            vms,
            step_ns,
            vm_of: BTreeMap::new(),
            ran_ns: Vec::new(),
        }
    }

    /// Adds up what a CPU has done until now.
    fn settle(&mut self, cpu: usize, now: Nanos) {
        let (vm, mut from) = self.has[cpu];
        self.has[cpu].1 = now;
        let Some(vm) = vm else { return };
        let entry = self.kind_of[cpu] * self.vms + vm;
        while from < now {
            let step = (from / self.step_ns) as usize;
            let to = now.min((step as Nanos + 1) * self.step_ns);
            if self.ran_ns.len() <= step {
                self.ran_ns.resize(step + 1, vec![0; self.kinds * self.vms]);
            }
            self.ran_ns[step][entry] += to - from;
            from = to;
        }
    }

    /// CPUs by step, kind and VM, until the run's end. The last step may be shorter.
    fn until(&mut self, end: Nanos) -> Vec<Vec<f64>> {
        (0..self.has.len()).for_each(|cpu| self.settle(cpu, end));
        let steps = end.div_ceil(self.step_ns) as usize;
        self.ran_ns.resize(steps, vec![0; self.kinds * self.vms]);
        let of = |(step, ran): (Nanos, &Vec<Nanos>)| {
            let span = self.step_ns.min(end - step * self.step_ns) as f64;
            ran.iter().map(|ns| *ns as f64 / span).collect()
        };
        (0..).zip(&self.ran_ns).map(of).collect()
    }
}

impl Sink for Tally {
    fn born(&mut self, machine: u32, task: u32, _name: &str, entry: u32) {
        if machine == 0 && (entry as usize) < self.vms {
            self.vm_of.insert(task, entry as usize);
        }
    }

    fn event(&mut self, machine: u32, e: &Event, _life: &dyn Fn(u32) -> Life) {
        if machine == 0 && e.kind == Kind::Switch {
            let cpu = e.cpu as usize;
            self.settle(cpu, e.at_ns);
            self.has[cpu].0 = self.vm_of.get(&e.task).copied();
        }
    }
}

/// When a step begins, in seconds.
fn begins(trace: &Trace, step: usize) -> String {
    significant((step as Nanos * trace.step_ns) as f64 / 1e9, 6)
}

/// A picture for each arm.
pub fn pictures(experiment: &Experiment, traced: &Traced<'_>) -> Vec<Drawn> {
    let look = Look {
        thin: true,
        dots: false,
        ..Look::default()
    };
    let of = |arm: &TracedArm| {
        let steps = 0..arm.steps.len();
        let plot = Plot {
            title: format!("{}: {}, {}", experiment.id, traced.trace.name, arm.arm),
            x: "s".into(),
            y: "CPUs".into(),
            categories: steps.map(|step| begins(traced.trace, step)).collect(),
            series: arm
                .names()
                .into_iter()
                .enumerate()
                .map(|(i, name)| Series {
                    name,
                    points: arm
                        .steps
                        .iter()
                        .map(|step| {
                            Some(Point {
                                mean: step[i],
                                half: 0.0,
                            })
                        })
                        .collect(),
                })
                .collect(),
            ..Plot::default()
        };
        Drawn {
            picture: lines_as(&plot, &look),
            words: format!(
                "{}, {}: CPUs used over time, as in the table",
                traced.trace.name, arm.arm
            ),
        }
    };
    traced.arms.iter().map(of).collect()
}

/// The table of a trace.
pub fn table(traced: &Traced<'_>) -> String {
    let trace = traced.trace;
    let names = traced.arms.iter().flat_map(|arm| {
        let named = move |name: String| format!("{}: {name}", arm.arm);
        arm.names().into_iter().map(named)
    });
    let head: Vec<String> = std::iter::once(format!("{}: from, s", trace.name))
        .chain(names)
        .collect();
    let mut lines = vec![
        format!("| {} |", head.join(" | ")),
        format!("|{}", "---|".repeat(head.len())),
    ];
    let steps = traced.arms.iter().map(|arm| arm.steps.len()).max();
    for step in 0..steps.unwrap_or(0) {
        let mut cells = vec![begins(trace, step)];
        for arm in &traced.arms {
            match arm.steps.get(step) {
                Some(values) => cells.extend(values.iter().map(|value| significant(*value, 3))),
                None => cells.resize(cells.len() + arm.kinds.len() * arm.vms.len(), "-".into()),
            }
        }
        lines.push(format!("| {} |", cells.join(" | ")));
    }
    format!(
        "CPUs that VMs use, one run (seed {}): `{}`\n\n{}\n",
        trace.seed,
        traced.command,
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(tally: &mut Tally, at_ns: Nanos, cpu: u32, task: u32) {
        let event = Event {
            at_ns,
            kind: Kind::Switch,
            cpu,
            task,
        };
        tally.event(0, &event, &|_| Life::Runnable);
    }

    #[test]
    fn who_has_a_cpu_is_added_up_by_step_kind_and_vm() {
        let mut tally = Tally::new(vec![0, 1, 1], 2, 2, 100);
        tally.born(0, 10, "a/0", 0);
        tally.born(0, 11, "b/0", 1);
        tally.born(0, 12, "host", 2);
        // What is inside a guest has numbers of its own.
        tally.born(1, 12, "inside", 0);
        switch(&mut tally, 50, 0, 10);
        switch(&mut tally, 0, 1, 11);
        switch(&mut tally, 0, 2, 12);
        switch(&mut tally, 220, 0, 0);
        switch(&mut tally, 110, 2, 11);
        // Fast: a, b; slow: a, b. The last step is half as long.
        let steps = tally.until(350);
        assert_eq!(
            steps,
            [
                vec![0.5, 0.0, 0.0, 1.0],
                vec![1.0, 0.0, 0.0, 1.9],
                vec![0.2, 0.0, 0.0, 2.0],
                vec![0.0, 0.0, 0.0, 2.0],
            ]
        );
    }

    #[test]
    fn kinds_are_in_the_order_of_their_speed() {
        let kind = |name: &str, speed_ppm, cores: &[u32]| CoreKind {
            name: name.into(),
            cores: cores.to_vec(),
            speed_ppm,
            frequency_ppm: 1_000_000,
            smt_ppm: 0,
            llcs: 0,
            steps_khz: Vec::new(),
        };
        let mut host = Host {
            cores: 3,
            threads: 2,
            ..Host::default()
        };
        assert_eq!(kinds(&host), (vec![String::new()], vec![0; 6]));
        host.cost.kinds = vec![kind("", 500_000, &[0]), kind("", 1_000_000, &[1, 2])];
        let (names, of) = kinds(&host);
        assert_eq!(names, ["fast", "slow"]);
        assert_eq!(of, [1, 1, 0, 0, 0, 0]);
        host.cost.kinds = vec![
            kind("low", 300_000, &[0]),
            kind("", 1_000_000, &[1]),
            kind("mid", 500_000, &[2]),
        ];
        assert_eq!(kinds(&host).0, ["2", "mid", "low"]);
    }
}
