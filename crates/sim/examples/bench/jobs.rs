// SPDX-License-Identifier: GPL-2.0-only
//! Policies of jobs: what a decision costs with thousands of jobs queued, and how long a batch of 100,000 takes.
//!
//! A decision: `dispatch` at the end of a look, with the running job still first: all queues are looked at, nobody is
//! moved, so that it can be asked again. What moving costs is in the batch: each job a thread of its own, exponential,
//! on five CPUs without costs, beside the bare loop's switches.
use crate::engine::Program;
use crate::hogs::Hogs;
use crate::{Fallible, bare, median, timed};
use berth_policy::abi::Op;
use berth_scenario::{Input, read};
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy, run_one};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

const BATCH: u32 = 100_000;
/// What policies take for the mean of jobs they have not seen end, and so the slice, ns.
const LAMBDA_NS: u64 = 10_000_000;
/// What a job of a batch takes on average, us.
const BATCH_LAMBDA_US: u64 = 100;

/// One row of either table.
pub struct Cost {
    what: String,
    /// Jobs that wait, or that there are in all.
    jobs: u32,
    /// CPU seconds of it all.
    seconds: f64,
    /// Decisions, or pieces of jobs.
    turns: f64,
    insns: f64,
    /// Nanoseconds of a switch of the bare loop.
    bare_ns: f64,
}

impl Cost {
    fn ns(&self) -> f64 {
        self.seconds * 1e9 / self.turns
    }

    pub fn markdown(&self) -> String {
        format!(
            "| {} | {} | {:.2} | {:.0} | {:.0} | {:.1} |",
            self.what,
            self.jobs,
            self.seconds,
            self.ns(),
            self.insns,
            self.ns() / self.bare_ns
        )
    }

    pub fn json(&self) -> String {
        format!(
            "{{\"what\": \"{}\", \"jobs\": {}, \"cpu_s\": {:.3}, \"ns_per_turn\": {:.1}, \"insns_per_turn\": {:.1}, \
             \"times_bare\": {:.3}}}",
            self.what,
            self.jobs,
            self.seconds,
            self.ns(),
            self.insns,
            self.ns() / self.bare_ns
        )
    }
}

/// Decisions with 10 and 10,000 jobs queued, then batches, each row a median of `repeat`.
pub fn measure(quick: bool, repeat: usize, only: &str) -> Fallible<Vec<Cost>> {
    let w8 = bare::W8::new(8, 6_000_000_000);
    let bare = (0..repeat).map(|_| {
        let (counts, seconds) = timed(|| bare::run(&w8, None));
        seconds * 1e9 / counts.switches as f64
    });
    let bare_ns = median(bare.collect());
    let mut costs = Vec::new();
    for policy in ["mrsf", "sjf", "fcfs"] {
        if !policy.contains(only) {
            continue;
        }
        for queued in [10, 10_000] {
            costs.push(decisions(policy, queued, repeat, bare_ns)?);
        }
    }
    let jobs = if quick { BATCH / 10 } else { BATCH };
    for (policy, preset) in [
        ("mrsf", "fair"),
        ("mrsf", "literal"),
        ("sjf", "textbook"),
        ("fcfs", "textbook"),
    ] {
        if policy.contains(only) {
            costs.push(batch(policy, preset, jobs, repeat, bare_ns)?);
        }
    }
    Ok(costs)
}

fn decisions(policy: &str, queued: u32, repeat: usize, bare_ns: f64) -> Fallible<Cost> {
    let program = Program::load(policy)?;
    let spec = MachineSpec {
        hz: berth_scenario::model::Hz::Exact,
        tasks: queued as usize + 1,
        needs: program.policy.needs(),
        ..MachineSpec::new(Shape::flat(1))
    };
    let mut m = Simulation::new(&spec, &[], Hogs(queued + 1));
    let none = BTreeMap::new();
    load_policy(&mut m, &program.policy, &none, &[], &Options::default())?;
    m.start();
    // In the middle of a slice.
    m.run_until(LAMBDA_NS * 3 / 2)?;
    let k = m.kernel();
    let running = k.cpus[0].curr;
    let prev = k.tasks.ptr(running) as u64;
    let rounds = 100_000u32;
    let ask = || (0..rounds).for_each(|_| k.op_cpu(Op::Dispatch, 0, prev));
    ask();
    let before = k.policy.insns();
    let times = (0..repeat).map(|_| timed(ask).1);
    let seconds = median(times.collect());
    let insns = (k.policy.insns() - before) as f64 / (f64::from(rounds) * repeat as f64);
    Ok(Cost {
        what: format!("{policy}: a decision"),
        jobs: queued,
        seconds,
        turns: f64::from(rounds),
        insns,
        bare_ns,
    })
}

fn batch(policy: &str, preset: &str, jobs: u32, repeat: usize, bare_ns: f64) -> Fallible<Cost> {
    // Long enough for all of them, and far below what the watchdog lets a thread wait.
    let seconds = u64::from(jobs) * BATCH_LAMBDA_US / 5 / 1_000_000 + 2;
    let text = format!(
        "title = \"A batch\"\n[run]\nwarmup = \"0s\"\nmeasure = \"{seconds}s\"\n[host]\ncores = 5\n\
         hz = \"exact\"\ncost = \"none\"\n[vm.jobs]\nguest = \"none\"\ntasks = [\"job\"]\n[task.job]\n\
         per_request = true\nestimate = \"oracle\"\n\
         loop = [\"receive users\", \"compute exp({BATCH_LAMBDA_US}us)\", \"reply\"]\n\
         [client.users]\nto = \"jobs\"\nsends = \"batch({jobs})\"\n[compare]\npolicies = [\"{policy}\"]\n"
    );
    let input = Input {
        name: "batch".into(),
        shown: "batch".into(),
        text,
        folder: None,
    };
    let scenario = read(&input, &[]).map_err(|e| e.to_string())?.scenario;
    let program = Program::load(policy)?;
    let presets = program.policy.presets();
    let found = presets.iter().find(|p| p.name == preset);
    let params = found.ok_or(format!("{policy} has no preset {preset}"))?;
    let mut params: BTreeMap<String, String> = params.values.clone();
    if params.contains_key("lambda_us") {
        params.insert("lambda_us".into(), BATCH_LAMBDA_US.to_string());
    }
    let options = Options::default();
    let mut times = Vec::new();
    let (mut turns, mut insns) = (0.0, 0.0);
    for _ in 0..repeat {
        let (ran, took) =
            timed(|| run_one(&scenario, policy, &program.policy, &params, 1, &options));
        let m = ran?.metrics;
        if m["jobs.response.count"] != f64::from(jobs) {
            return Err(
                format!("{policy}: {} of {jobs} are done", m["jobs.response.count"]).into(),
            );
        }
        turns = m["policy.pieces"] * seconds as f64;
        insns = m["policy.insns_per_switch"];
        times.push(took);
    }
    Ok(Cost {
        what: format!("{policy}, {preset}: a piece of a batch"),
        jobs,
        seconds: median(times),
        turns,
        insns,
        bare_ns,
    })
}
