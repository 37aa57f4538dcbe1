// SPDX-License-Identifier: GPL-2.0-only
//! A second of a small host under a policy: whether it starts (`init`) and lives.
use crate::error::Failure;
use crate::foreign;
use crate::plan::planned;
use crate::policies;
use crate::request::Request;
use crate::simulator::{Running, Simulator};
use berth_policy::policy::Policy;
use berth_scenario::Input;
use berth_scenario::edit::LoaderEdit;
use berth_scenario::support::Place;

/// VMs that wake and sleep, one that computes, more threads than CPUs, a cgroup's weight that is not the usual one.
const SCENARIO: &str = r#"
title = "A second of a small host"
[host]
cores = 2
[run]
warmup = "0s"
measure = "1s"
seeds = 1
[vm.web]
class = "latency"
vcpus = 2
tasks = ["worker"]
[vm.build]
class = "batch"
weight = 300
vcpus = 2
tasks = ["hog"]
[task.worker]
threads = 2
loop = ["receive users", "compute exp(300us)", "reply"]
[task.hog]
threads = 2
loop = ["compute 20ms"]
[client.users]
to = "web"
sends = "poisson(500/s)"
"#;

/// What a trial was of, in words.
pub const WHAT: &str =
    "init and a second of 2 CPUs, 2 VMs, 4 threads (one kind answers requests, one computes)";

/// Of what the compiler warns of.
const MOST_LINES: usize = 40;

/// What came of it.
pub struct Trial {
    pub policy: Policy,
    /// What should be known of it.
    pub notes: Vec<String>,
}

/// Loads a policy for a kernel line and runs a second of a small scenario, each access checked.
///
/// # Errors
/// It cannot be loaded, its `init` fails, the kernel would end it, or it does something wrong, with function and line.
pub fn trial(
    name: &str,
    loader: &[LoaderEdit],
    kernel: &str,
    running: &Running,
) -> Result<Trial, Failure> {
    let input = Input {
        name: "trial".into(),
        shown: "trial".into(),
        text: SCENARIO.into(),
        folder: None,
    };
    let is_file = policies::is_file(name);
    let options = policies::options(kernel)?;
    // A name that nobody ships is said as such, before it is planned with.
    let shipped = match is_file {
        true => None,
        false => Some(policies::load(name, &options)?),
    };
    let request = Request {
        set: vec![
            format!("host.kernel=\"{kernel}\""),
            "compare.policies=[]".into(),
        ],
        policies: vec![name.to_string()],
        loader: loader.iter().filter(|_| is_file).cloned().collect(),
        seed: Some(1),
        ..Request::default()
    };
    let mut plan = planned(&input, &request, &policies::shipped(), None)?;
    let arm = plan.variants.first().and_then(|v| v.arms.first());
    let arm = arm
        .ok_or_else(|| Failure::Input(format!("{name} is no policy")))?
        .arm
        .clone();
    let policy = match shipped {
        None => {
            let host = plan.variants.first().map(|v| v.scenario.host.clone());
            let machine = foreign::Machine::host(&host.unwrap_or_default());
            let ready = foreign::ready(name, &arm.loader, &machine)?;
            policies::from_object(name, &ready.object, &options)?
        }
        Some(policy) => policy,
    };
    if policy.program().structs.is_empty() {
        return Err(Failure::Input(format!(
            "policy {name}: it defines no struct sched_ext_ops"
        )));
    }
    let checked = Running {
        checked: true,
        ..running.clone()
    };
    let simulator = Simulator::prepare(&mut plan, &checked)?;
    plan.check(Place::Sim, false)?;
    let ran = simulator.run(0, 0, 1);
    // What was set for its loader, or was not, may be why.
    let notes: String = plan
        .warnings
        .iter()
        .map(|n| format!("\n  note: {n}"))
        .collect();
    ran.map_err(|why| {
        Failure::Input(format!(
            "policy {name}: it loads, but in {WHAT}: {why}{notes}"
        ))
    })?;
    let mut notes = plan.warnings;
    if is_file {
        notes.extend(said_by_compiler(&foreign::warnings(name, &arm.loader)?));
    }
    Ok(Trial { policy, notes })
}

/// Of the compiler's warnings the first ones.
fn said_by_compiler(warnings: &str) -> Option<String> {
    let all = warnings.lines().count();
    let first: Vec<&str> = warnings.lines().take(MOST_LINES).collect();
    let rest = match all - first.len() {
        0 => String::new(),
        n => format!("\n{n} more lines"),
    };
    (all > 0).then(|| format!("the compiler warns:\n{}{rest}", first.join("\n")))
}
