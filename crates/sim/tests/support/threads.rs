// SPDX-License-Identifier: GPL-2.0-only
//! Threads that each do a list of actions over and over under a policy, and what the record of switches says of them.
#![allow(dead_code, reason = "each test uses some of it")]
use berth_policy::policy::Policy;
use berth_scenario::model::Hz;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy, settle};
use berth_sim::scx::identity::VmSpec;
use berth_sim::trace::Kind;
use berth_sim::workload::api::{Action, Ctx, TaskId, TaskSpec, Who, Workload};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

pub const MS: u64 = 1_000_000;

/// What a thread does over and over, its nice value, and the slice it asks for (0: the default).
#[derive(Clone, Debug)]
pub struct Thread {
    pub nice: i32,
    pub slice_ns: u64,
    /// `SleepUntil { at: x }` means: sleep this long. `Fork`'s child has the token of a thread that is not started.
    pub actions: Vec<Action>,
    /// It is started with the machine; else another thread forks it.
    pub starts: bool,
    /// VM (of one process) it belongs to.
    pub vm: Option<u32>,
}

impl Default for Thread {
    fn default() -> Self {
        Thread {
            nice: 0,
            slice_ns: 0,
            actions: vec![Action::ComputeForever],
            starts: true,
            vm: None,
        }
    }
}

pub fn hog(nice: i32) -> Thread {
    Thread {
        nice,
        ..Thread::default()
    }
}

/// Computes and sleeps in turns.
pub fn sleeper(run_ns: u64, sleep_ns: u64) -> Thread {
    Thread {
        actions: vec![
            Action::Compute { ns: run_ns },
            Action::SleepUntil { at: sleep_ns },
        ],
        ..Thread::default()
    }
}

/// Hogs of which those in `ends` sleep for good once they have run for `ns`.
pub fn some_end(hogs: usize, ends: &[usize], ns: u64) -> Vec<Thread> {
    let ending = sleeper(ns, 1 << 60);
    let of = |i| {
        if ends.contains(&i) {
            ending.clone()
        } else {
            hog(0)
        }
    };
    (0..hogs).map(of).collect()
}

/// What a thread of a test, by its place in the list, is started with.
pub fn spec(token: usize, thread: &Thread) -> TaskSpec {
    TaskSpec {
        token: token as u32,
        nice: thread.nice,
        slice_ns: thread.slice_ns,
        vm: thread.vm,
        ..TaskSpec::default()
    }
}

struct Cast {
    threads: Vec<Thread>,
    at: Vec<usize>,
    ids: Vec<TaskId>,
}

impl Workload for Cast {
    fn start(&mut self, ctx: &mut Ctx) {
        for (token, thread) in self.threads.iter().enumerate().filter(|(_, t)| t.starts) {
            ctx.spawn(&spec(token, thread));
        }
    }
    fn born(&mut self, token: u32, task: TaskId) {
        self.ids[token as usize] = task;
    }
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, who: Who, now: u64, _: &mut Ctx) -> Action {
        let (actions, at) = (
            &self.threads[who.token as usize].actions,
            &mut self.at[who.token as usize],
        );
        *at += 1;
        match &actions[(*at - 1) % actions.len()] {
            Action::SleepUntil { at } => Action::SleepUntil { at: now + at },
            other => other.clone(),
        }
    }
    fn event(&mut self, _: u64, _: u64, _: &mut Ctx) {}
    fn measure_from(&mut self, _: u64) {}
    fn metrics(&self, _: u64, _: &mut BTreeMap<String, f64>) {}
}

/// What a run left behind.
pub struct Run {
    /// Run time of each thread, ns.
    pub ran: Vec<u64>,
    /// The record of switches and wake-ups: time, kind, CPU, thread by its place in the list (none: idle).
    pub events: Vec<(u64, Kind, u32, Option<usize>)>,
}

/// A machine without costs.
pub struct Setting<'a> {
    pub cpus: u32,
    /// 0: slices end exactly.
    pub hz: u32,
    pub params: &'a [(&'a str, &'a str)],
}

pub fn run(policy: &Policy, setting: &Setting, threads: &[Thread], ms: u64) -> Run {
    let cast = Cast {
        threads: threads.to_vec(),
        at: vec![0; threads.len()],
        ids: vec![u32::MAX; threads.len()],
    };
    let spec = MachineSpec {
        hz: if setting.hz == 0 {
            Hz::Exact
        } else {
            Hz::Ticks(setting.hz)
        },
        ..MachineSpec::new(Shape::flat(setting.cpus))
    };
    let vms: Vec<VmSpec> = (0..threads
        .iter()
        .filter_map(|t| t.vm)
        .max()
        .map_or(0, |v| v + 1))
        .map(|i| VmSpec {
            name: format!("v{i}"),
            group: i,
            class: berth_scenario::model::Class::Batch,
            weight: 100,
            cap_milli: None,
            vcpus: 1,
        })
        .collect();
    let mut m = Simulation::new(&spec, &vms, cast);
    m.record();
    let params: BTreeMap<String, String> = setting
        .params
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    load_policy(&mut m, policy, &params, &vms, &Options::default()).unwrap();
    m.start();
    let k = m.kernel();
    m.run_until(ms * MS).unwrap();
    m.check().unwrap();
    settle(k);
    let ids = m.workload.ids.clone();
    let at = |task: TaskId| ids.iter().position(|id| *id == task);
    let ran = ids
        .iter()
        .map(|t| k.tasks.hot.get(*t as usize).map_or(0, |t| t.runtime))
        .collect();
    let events = m.trace();
    let events = events
        .iter()
        .map(|e| (e.at_ns, e.kind, e.cpu, at(e.task)))
        .collect();
    m.unload().unwrap();
    Run { ran, events }
}

/// Times from wake-up to running of thread `who`, from `from_ns` on, ns, sorted.
pub fn latencies(run: &Run, who: usize, from_ns: u64) -> Vec<u64> {
    let mut woken = None;
    let mut out = Vec::new();
    for (at, kind, _, task) in &run.events {
        match kind {
            Kind::Wake if *task == Some(who) => woken = Some(*at),
            Kind::Switch if *task == Some(who) => {
                if let Some(w) = woken.take().filter(|w| *w >= from_ns) {
                    out.push(at - w);
                }
            }
            _ => (),
        }
    }
    out.sort_unstable();
    out
}

/// Who had CPU 0 in turn and for how long, ns; none: it was idle. The last turn is not over and left out.
pub fn turns(run: &Run) -> Vec<(Option<usize>, u64)> {
    let switches: Vec<_> = run
        .events
        .iter()
        .filter(|(_, kind, cpu, _)| *kind == Kind::Switch && *cpu == 0)
        .collect();
    switches
        .windows(2)
        .map(|w| (w[0].3, w[1].0 - w[0].0))
        .collect()
}

/// The longest time from one turn of `who` to its next one after `from_ns`, if it wants to run all the time, ns.
pub fn longest_gap(run: &Run, who: usize, from_ns: u64) -> u64 {
    let (mut since, mut running, mut longest) = (from_ns, None, 0);
    for (at, kind, cpu, task) in &run.events {
        if *kind != Kind::Switch {
            continue;
        }
        if running == Some(*cpu) && *task != Some(who) {
            (since, running) = ((*at).max(from_ns), None);
        } else if *task == Some(who) && running.is_none() {
            longest = longest.max(at.saturating_sub(since));
            running = Some(*cpu);
        }
    }
    if running.is_none() {
        let end = run.events.last().map_or(0, |e| e.0);
        longest = longest.max(end.saturating_sub(since));
    }
    longest
}
