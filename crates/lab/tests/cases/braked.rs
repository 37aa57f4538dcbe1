// SPDX-License-Identifier: GPL-2.0-only
//! `amp` on a real kernel of whose cores two are braked: its mechanisms, with BERTH_LAB_LONG=1 equal parts, too. What a
//! program gains is the same for all here, so scores are given.
use super::{booted, check, host, is_long, options, read_scenario};
use berth_lab::assets::Assets;
use berth_lab::kinds::capacities;
use berth_lab::run::LabOptions;
use berth_scenario::model::Scenario;
use berth_scx::{LoadOptions, Loaded, Value as Setting};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const KINDS: &str = r#"cores = 3
[host.kind.fast]
cores = "0"
speed = "237.5%"
[host.kind.slow]
cores = "1-2"
"#;
/// Three VMs at most, and the host's.
const SLOTS: u32 = 4;
/// What brakes leave of a slow core.
const SLOW: f64 = 1.0 / 2.375;
/// What the three cores are, in fast ones.
const ALL: f64 = 1.0 + 2.0 * SLOW;

const TASKS: &str = r#"
[task.burn]
model = "busy"
[task.some]
loop = ["compute 6ms", "sleep 4ms"]
[task.split]
model = "barrier"
compute = "20ms"
[compare]
policies = ["linux"]
"#;

fn vm(name: &str, vcpus: u32, task: &str, more: &str) -> String {
    format!(
        "[vm.{name}]\nvcpus = {vcpus}\nclass = \"latency\"\nguest = \"none\"\ntasks = [\"{task}\"]\n{more}"
    )
}

/// A name, VMs, parameters.
type Run = (&'static str, String, Vec<(&'static str, i64)>);

/// What is run: a fast core and two slow ones; everybody is of class latency. By default those with the parameters that
/// `amp` has by itself: they share one load, and for the others it is verified anew.
fn runs() -> Vec<Run> {
    let burn = |name: &str| vm(name, 1, "burn", "");
    let scored = |b: &str| {
        vm("a", 1, "burn", "score = \"120%\"\n")
            + &vm("b", 1, b, "score = \"200%\"\n")
            + &vm("c", 1, "burn", "score = \"110%\"\n")
    };
    let by_gain = [
        ("scores", scored("burn"), vec![]),
        ("conserving", scored("some"), vec![]),
        ("turns", vm("a", 3, "split", ""), vec![]),
    ];
    let in_equal_parts = [
        (
            "fair",
            burn("a") + &burn("b") + &burn("c"),
            vec![("mode", 2)],
        ),
        (
            "weights",
            vm("a", 3, "burn", "") + &vm("b", 3, "burn", "weight = 200\n"),
            vec![("mode", 2)],
        ),
    ];
    let more = is_long().then_some(in_equal_parts);
    by_gain
        .into_iter()
        .chain(more.into_iter().flatten())
        .collect()
}

type Metrics = BTreeMap<String, f64>;

/// On the kernel of `assets`, all in one boot.
pub fn mechanisms(assets: &Assets) -> Result<String, String> {
    let mut input = Vec::new();
    for (name, vms, set) in runs() {
        let mut scenario = read_scenario(KINDS, &(vms + TASKS))?;
        scenario.run.warmup_ns = 500_000_000;
        scenario.run.measure_ns = 1_000_000_000;
        input.push(json!({ "name": name, "scenario": scenario, "set": set }));
    }
    let patient = LabOptions {
        timeout: Duration::from_secs(1800),
        ..options()
    };
    let host = host(1, 1, 1, 3, 1);
    let result = booted(assets, "braked", host, Value::Array(input), &patient)?;
    let seen: BTreeMap<String, Metrics> =
        serde_json::from_value(result).map_err(|e| e.to_string())?;
    judge(&seen).map_err(|why| format!("{why}\n{seen:#?}"))
}

fn judge(seen: &BTreeMap<String, Metrics>) -> Result<String, String> {
    let mut said = by_gain(seen)?;
    if is_long() {
        said = format!("{}, {said}", in_equal_parts(seen)?);
    }
    Ok(said)
}

fn get(seen: &BTreeMap<String, Metrics>, run: &str, metric: &str) -> Result<f64, String> {
    let found = seen.get(run).and_then(|m| m.get(metric)).copied();
    found.ok_or_else(|| format!("{run}: no {metric}"))
}

/// Of each of the three VMs.
fn of(seen: &BTreeMap<String, Metrics>, run: &str, quantity: &str) -> Result<Vec<f64>, String> {
    ["a", "b", "c"]
        .iter()
        .map(|vm| get(seen, run, &format!("{vm}.{quantity}")))
        .collect()
}

/// The brake: slow cores are so much slower, and amp sees two kinds.
fn is_braked(seen: &BTreeMap<String, Metrics>, run: &str) -> Result<(), String> {
    let cpus: f64 = of(seen, run, "cpu")?.iter().sum();
    check(
        (cpus / ALL - 1.0).abs() < 0.05,
        format!("{run}: {cpus} CPUs"),
    )?;
    check(
        get(seen, run, "policy.symmetric")? == 0.0,
        "one kind of core",
    )
}

fn in_equal_parts(seen: &BTreeMap<String, Metrics>) -> Result<String, String> {
    is_braked(seen, "fair")?;
    // Equal parts of the fast core, and all of it.
    let parts = of(seen, "fair", "fast")?;
    check(
        parts.iter().all(|p| (p * 3.0 - 1.0).abs() < 0.1) && parts.iter().sum::<f64>() > 0.97,
        format!("fair: parts of the fast core are {parts:?}"),
    )?;
    // Weights, by turns, which a brake's time is part of. Of a round of 30 ms each vCPU has 5 ms of the fast core;
    // turns on slow ones are 5 ms for those of the lighter VM and 15 ms for the other's.
    let cpus = [
        get(seen, "weights", "a.cpu")?,
        get(seen, "weights", "b.cpu")?,
    ];
    let due = [5.0, 15.0].map(|slow| 3.0 * (5.0 + slow * SLOW) / 30.0);
    check(
        cpus.iter()
            .zip(due)
            .all(|(cpus, due)| (cpus / due - 1.0).abs() < 0.05),
        format!("weights: {cpus:?} CPUs of {due:?}"),
    )?;
    Ok(format!(
        "equal parts {parts:.3?}, weights {cpus:.3?} CPUs of {due:.3?}"
    ))
}

fn by_gain(seen: &BTreeMap<String, Metrics>) -> Result<String, String> {
    is_braked(seen, "scores")?;
    // By the score that is given.
    check(
        get(seen, "scores", "b.on_kind.fast")? > 0.97 && get(seen, "scores", "b.score")? == 2.0,
        "who gains most is not on the fast core",
    )?;
    check(
        of(seen, "scores", "scored_by.given")? == [1.0; 3],
        "scores are not those given",
    )?;
    // (W): for 4 ms of 10 nobody has a slot on the fast core; it is asked for at once.
    let missed = get(seen, "conserving", "a.missed_fast")?;
    check(missed < 0.05, format!("missed the fast core for {missed}"))?;
    let fast: f64 = of(seen, "conserving", "fast")?.iter().sum();
    check(fast > 0.95, format!("{fast} of the fast core is used"))?;
    // (E): three threads that wait for each other take turns on the fast core; without, 3 / 2.375.
    let turns = get(seen, "turns", "a.cpu")?;
    check(
        turns > 0.9 * ALL && turns < 1.01 * ALL,
        format!("turns: {turns} CPUs of {ALL}"),
    )?;
    Ok(format!(
        "missed {missed:.4}, turns {turns:.3} of {ALL:.3} CPUs"
    ))
}

/// In the VM: one run after the other, those with the same parameters under one load, which takes most of the time.
pub fn inside(input: &Value, _policy: Option<&mut Loaded>) -> Result<Value, String> {
    let mut seen = BTreeMap::new();
    let mut loaded: Option<(Value, Loaded)> = None;
    for run in input.as_array().ok_or("no runs")? {
        let name = run["name"].as_str().unwrap_or_default();
        println!("BERTH-BRAKED {name}");
        let scenario: Scenario =
            serde_json::from_value(run["scenario"].clone()).map_err(|e| e.to_string())?;
        if loaded.as_ref().is_none_or(|(set, _)| *set != run["set"]) {
            if let Some((_, before)) = loaded.take() {
                ended(before)?;
            }
            loaded = Some((run["set"].clone(), load(&scenario, &run["set"])?));
        }
        let (_, policy) = loaded.as_mut().ok_or("nothing is loaded")?;
        let threads = berth_lab::Vcpus::Threads;
        let metrics = berth_lab::perform(&scenario, 1, threads, Some(policy))?.metrics;
        let lasted = policy.poll().map_err(|e| e.to_string())?.running() == Some("amp");
        check(lasted, format!("{name}: it did not last"))?;
        seen.insert(name.to_string(), metrics);
    }
    if let Some((_, last)) = loaded {
        ended(last)?;
    }
    serde_json::to_value(seen).map_err(|e| e.to_string())
}

fn load(scenario: &Scenario, set: &Value) -> Result<Loaded, String> {
    let amp = berth_builtin::all().iter().find(|b| b.name == "amp");
    let amp = amp.ok_or("amp is not shipped")?;
    let set: Vec<(String, i64)> = serde_json::from_value(set.clone()).map_err(|e| e.to_string())?;
    // Plans twice a second: a run is short.
    let mut variables: BTreeMap<String, Setting> = [("interval_ms", 300), ("window_ms", 240)]
        .map(|(name, ms)| (name.to_string(), Setting::Number(ms)))
        .into();
    let set = set.into_iter().map(|(k, v)| (k, Setting::Number(v.into())));
    variables.extend(set);
    let load = LoadOptions {
        vm_slots: Some(SLOTS),
        capacities: capacities(&scenario.host),
        variables,
        ..LoadOptions::default()
    };
    let policy = Loaded::load(amp.object(), &load).map_err(|e| e.to_string())?;
    // An emulated CPU counts nothing, which whoever loads the policy is told.
    let told =
        |w: &String| w.starts_with("no performance counters, what VMs gain is reckoned without");
    let warnings = policy.warnings();
    check(
        warnings.iter().any(told),
        format!("not told of counters: {warnings:?}"),
    )?;
    Ok(policy)
}

fn ended(policy: Loaded) -> Result<(), String> {
    let exit = policy.unload().map_err(|e| e.to_string())?;
    check(!exit.is_error(), format!("ejected: {exit}"))
}
