// SPDX-License-Identifier: GPL-2.0-only
//! `vmfair` on a real kernel among VMs that mean the others no good: the host and the bounds of
//! `berth_sim::oracle::enemies`, on two CPUs. One boot; the policy is loaded once. Some of the attacks, by a VM of
//! class latency; with `BERTH_LAB_LONG=1` all of them, under either class.
use super::{booted, check, host, is_long, options};
use berth_lab::assets::Assets;
use berth_lab::run::LabOptions;
use berth_lab::{Vcpus, perform};
use berth_scx::{LoadOptions, Loaded};
use berth_sim::oracle::enemies::{ATTACKS, Attack, Outcome, scenario};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const CPUS: u32 = 2;
/// Each takes what is not its own in a way of its own.
const SHORT: [&str; 6] = [
    "many vCPUs",
    "sleeps four times a tick",
    "storm of 2 us",
    "bursts of 3 ms",
    "yields each 5 us",
    "comes and goes",
];
/// Part of the host.
const SHARE: f64 = 0.02;
/// Waits of the victim: so many times those without the attacker, or so many us.
const CALM: (f64, f64) = (1.2, 100.0);

/// An attack's name and the class that is claimed; none: nobody attacks.
type Run = Option<(String, String)>;

type Metrics = BTreeMap<String, f64>;

fn runs() -> Vec<Run> {
    let run = |name: &str, class: &str| Some((name.to_string(), class.to_string()));
    let attacked: Vec<Run> = match is_long() {
        true => (ATTACKS.iter())
            .flat_map(|a| ["latency", "batch"].map(|class| run(a.name, class)))
            .collect(),
        false => SHORT.iter().map(|name| run(name, "latency")).collect(),
    };
    std::iter::once(None).chain(attacked).collect()
}

fn find(run: &Run) -> Result<Option<(&'static Attack, &str)>, String> {
    let Some((name, class)) = run else {
        return Ok(None);
    };
    let found = ATTACKS.iter().find(|a| a.name == name);
    let attack = found.ok_or(format!("no attack `{name}`"))?;
    Ok(Some((attack, class)))
}

/// On the kernel of `assets`.
pub fn held(assets: &Assets) -> Result<String, String> {
    let runs = runs();
    let patient = LabOptions {
        timeout: Duration::from_secs(3600),
        vcpus: Vcpus::Threads,
        ..options()
    };
    let host = host(1, 1, 1, CPUS, 1);
    let result = booted(assets, "attacked", host, json!(runs), &patient)?;
    let seen: Vec<Metrics> = serde_json::from_value(result).map_err(|e| e.to_string())?;
    check(
        seen.len() == runs.len(),
        format!("{} runs of {}", seen.len(), runs.len()),
    )?;
    judge(&runs, &seen)
}

/// All that is not held, and the worst of each figure.
fn judge(runs: &[Run], seen: &[Metrics]) -> Result<String, String> {
    let calm_us = seen[0]["victim.wakeup.p99"] / 1e3;
    let most_us = (CALM.0 * calm_us).max(CALM.1);
    let (mut wrong, mut gain, mut lack, mut p99_us) = (Vec::new(), f64::MIN, 0.0_f64, 0.0_f64);
    for (run, metrics) in runs.iter().zip(seen) {
        let Some((attack, class)) = find(run)? else {
            continue;
        };
        let o = Outcome::of(CPUS, attack, metrics);
        if o.gain > SHARE || o.lack > SHARE || o.quiet < 0.8 || o.victim_p99_us > most_us {
            wrong.push(format!("{} as {class}: {o:?}", attack.name));
        }
        gain = gain.max(o.gain);
        lack = lack.max(o.lack);
        p99_us = p99_us.max(o.victim_p99_us);
    }
    check(
        wrong.is_empty(),
        format!("calm {calm_us} us: {}", wrong.join("; ")),
    )?;
    Ok(format!(
        "{} attacks: at most {:+.1} % of the host beyond what is due, {:.1} % lacking; the victim's p99 {p99_us:.0} \
         us, without them {calm_us:.0}",
        runs.len() - 1,
        100.0 * gain,
        100.0 * lack
    ))
}

/// In the VM: one run after the other, under one load.
pub fn inside(input: &Value, _policy: Option<&mut Loaded>) -> Result<Value, String> {
    let runs: Vec<Run> = serde_json::from_value(input.clone()).map_err(|e| e.to_string())?;
    let shipped = berth_builtin::find("vmfair").ok_or("no policy vmfair")?;
    let mut policy =
        Loaded::load(shipped.object(), &LoadOptions::default()).map_err(|e| e.to_string())?;
    let mut seen = Vec::new();
    for run in &runs {
        println!("BERTH-ATTACK {run:?}");
        let scenario = scenario(CPUS, find(run)?);
        let done = perform(&scenario, 1, Vcpus::Threads, Some(&mut policy))?;
        // A p99 of a part of the run, or of something else.
        if let Some(note) = done.notes.iter().find(|n| n.contains("known")) {
            return Err(format!("{run:?}: {note}"));
        }
        let state = policy.poll().map_err(|e| e.to_string())?;
        let lasted = state.running() == Some("vmfair");
        check(lasted, format!("{run:?}: it did not last"))?;
        seen.push(done.metrics);
    }
    let exit = policy.unload().map_err(|e| e.to_string())?;
    check(!exit.is_error(), exit.to_string())?;
    serde_json::to_value(seen).map_err(|e| e.to_string())
}
