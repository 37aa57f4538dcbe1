// SPDX-License-Identifier: GPL-2.0-only
//! Every shipped policy on a real kernel: the verifier takes it, it starts, serves VMs of all three classes for a
//! while, is not ejected, and leaves without a complaint in the kernel's log. One boot for all of them.
mod record;

use crate::cases::{check, host, is_long, options, read_scenario, roam};
use berth_lab::assets::Assets;
use berth_lab::job::Work;
use berth_lab::run::{LabOptions, Single, single};
use berth_lab::vm::Mode;
use berth_lab::{LabError, Vcpus, perform, perform_unobserved};
use berth_scenario::dist::lead_ns;
use berth_scenario::model::Scenario;
use berth_scx::{LoadOptions, Loaded, STARTED_AGAIN};
use record::Record;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Three VMs, a slot each, and the host's.
const SLOTS: u32 = 4;
const VM_NAMES: [&str; 3] = ["web", "mix", "build"];
/// By the wall's clock: whoever has no turn in so long has none.
const LONGEST_NS: u64 = 16_000_000_000;
const VMS: &str = r#"
[vm.web]
vcpus = 2
class = "latency"
tasks = ["serve"]
[vm.mix]
vcpus = 2
class = "mixed"
reserved_vcpus = 1
tasks = ["burn-one", "serve-one"]
[vm.build]
vcpus = 4
class = "batch"
tasks = ["burn"]
[task.serve]
model = "periodic"
period = "5ms"
compute = "300us"
[task.serve-one]
model = "periodic"
threads = 1
period = "5ms"
compute = "300us"
[task.burn]
model = "busy"
[task.burn-one]
model = "busy"
threads = 1
[compare]
policies = ["linux"]
"#;

/// On the kernel of `assets`, by the virtual clock: who has how much is looked at, too.
pub fn run(assets: &Assets) -> Result<String, String> {
    on(assets, None)
}

/// With 1,024 possible CPUs: tables, loops and `ops.init` are those of a large host.
pub fn on_1024_possible_cpus(assets: &Assets) -> Result<String, String> {
    roam();
    on(assets, Some(1024))
}

/// The same with fewer: newer kernels have a table of all CPUs for each CPU, and fill it whenever a scheduler starts,
/// which takes longer than to verify most policies.
pub fn on_256_possible_cpus(assets: &Assets) -> Result<String, String> {
    roam();
    on(assets, Some(256))
}

/// Two groups of two CPUs that share a cache: policies that look further than a core do so. With more possible CPUs by
/// the wall's clock, with CPUs that run at the same time: verifying takes half as long, and it is the one place where
/// two of them meet in the middle of a policy's work.
fn on(assets: &Assets, possible_cpus: Option<u32>) -> Result<String, String> {
    let host = host(1, 1, 2, 4, 1);
    let mut scenario = read_scenario("cores = 4\nllcs = 2", VMS)?;
    scenario.run.warmup_ns = 50_000_000;
    scenario.run.measure_ns = 250_000_000;
    let cpus = host.nr_cpus();
    let mode = match possible_cpus {
        // CPU time is the virtual clock's in both; without even turns whoever wakes may be a tick later.
        None if is_long() => Mode::Deterministic,
        None => Mode::Coarse,
        Some(_) => Mode::Fast,
    };
    let only = std::env::var("BERTH_LAB_POLICY").ok();
    let record = possible_cpus
        .map(|cpus| Record::new(assets, cpus))
        .transpose()?;
    // By the wall's clock nothing is measured: whoever ran there as it is now would run again.
    let known = match &record {
        Some(record) if only.is_none() && !is_long() && !records() => record.known()?,
        _ => Vec::new(),
    };
    let rest = berth_builtin::all().iter().map(|b| b.name);
    let rest: BTreeSet<&str> = rest
        .filter(|name| !SIMULATOR_ONLY.contains(name))
        .filter(|name| *name == ALWAYS || !known.iter().any(|k| k == name))
        .collect();
    let what = Single {
        host,
        policy: None,
        work: Work::Custom {
            name: "shipped".to_string(),
            input: json!({
                "scenario": scenario,
                "only": &only,
                "rest": rest,
                "by_the_wall": mode == Mode::Fast,
            }),
        },
    };
    let never = AtomicBool::new(false);
    // All policies are verified one after the other, by an emulated CPU.
    let patient = LabOptions {
        timeout: Duration::from_secs(1800),
        possible_cpus,
        mode,
        vcpus: Vcpus::Threads,
        ..options()
    };
    let once = || single(&what, &patient, assets, &never);
    let boot = once().or_else(|e| match e {
        // Several emulation threads crash now and then, or have the kernel crash: once more.
        LabError::Panic { .. } | LabError::NoResult { .. } if mode == Mode::Fast => {
            println!("  again: {e}");
            once()
        }
        e => Err(e),
    });
    let boot = boot.map_err(|e| e.to_string())?;
    if let Some(e) = &boot.answer.error {
        return Err(format!("{e}\n{}", boot.console));
    }
    let seen = &boot.answer.result;
    let mut wrong = Vec::new();
    for (name, of) in seen.as_object().ok_or("no answer")? {
        let judged = judge(of).and_then(|()| match mode {
            Mode::Deterministic | Mode::Coarse => shares(of, cpus, served(name)),
            // How much runs in a while is up to the machine's load.
            Mode::Fast => Ok(()),
        });
        wrong.extend(judged.err().map(|why| format!("{name}: {why}")));
        let possible = possible_cpus.unwrap_or(cpus) - 1;
        let told = of["possible"].as_str().unwrap_or("refused");
        if told != format!("0-{possible}") {
            wrong.push(format!("{name}: possible CPUs are {told}"));
        }
    }
    check(wrong.is_empty(), wrong.join("\n"))?;
    check(boot.answer.notes.is_empty(), boot.answer.notes.join("; "))?;
    if let (Some(record), None, true) = (&record, &only, records()) {
        // Who started at a second try only is to be seen again.
        let at_once = seen.as_object().into_iter().flatten();
        let at_once = at_once.filter(|(_, of)| of["again"].is_null());
        record.write(at_once.map(|(name, _)| name))?;
    }
    let before = match known.iter().filter(|name| *name != ALWAYS).count() {
        0 => String::new(),
        n => format!("{n} ran there before, as they are; "),
    };
    Ok(format!("{}, {before}{}", boot.answer.kernel, loading(seen)))
}

/// How many policies were loaded, and which took longest, in seconds of the VM's clock: nearly all of it is the
/// verifier's. How many instructions that went through does not depend on the machine: of one policy alone
/// (BERTH_LAB_POLICY), by program.
fn loading(seen: &Value) -> String {
    let policies = || seen.as_object().into_iter().flatten();
    let of = |(name, of): (&String, &Value)| {
        let verified: u64 = verified(of).map(|(_, insns)| insns).sum();
        (of["load_s"].as_f64().unwrap_or(0.0), verified, name.clone())
    };
    let mut all: Vec<(f64, u64, String)> = policies().map(of).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let total: f64 = all.iter().map(|(s, _, _)| s).sum();
    let mut longest: Vec<String> = all
        .iter()
        .take(5)
        .map(|(s, verified, name)| format!("{name} {s:.1} ({verified} instructions)"))
        .collect();
    if let (1, Some((_, of))) = (all.len(), policies().next()) {
        longest.extend(verified(of).map(|(program, insns)| format!("{program} {insns}")));
    }
    longest.extend(
        policies().filter_map(|(name, of)| Some(format!("{name}: {}", of["again"].as_str()?))),
    );
    format!(
        "{} policies loaded in {total:.0} s: {}",
        all.len(),
        longest.join(", ")
    )
}

/// Instructions that the verifier went through, by program.
fn verified(of: &Value) -> impl Iterator<Item = (&str, u64)> {
    let programs = of["verified"].as_array().into_iter().flatten();
    programs.filter_map(|of| Some((of[0].as_str()?, of[1].as_u64()?)))
}

/// What one policy's run looks like from outside, whatever the clock: it stayed, and every VM ran.
fn judge(of: &Value) -> Result<(), String> {
    if let Some(refused) = of["refused"].as_str() {
        return Err(refused.to_string());
    }
    check(of["lasted"] == true, format!("ejected: {}", of["exit"]))?;
    for vm in VM_NAMES {
        check(cpu_of(of, vm) > 0.0, format!("{vm} never ran"))?;
    }
    Ok(())
}

/// CPUs that each VM has at least. With `mqms` a thread is tied to a queue, and three of five queues are first come,
/// first served: one that serves may find all five that burn before it, each with its turn of 20 ms (`most_ms`), and
/// has 300 us in 100 ms; two such threads have 0.006 CPUs.
fn served(policy: &str) -> f64 {
    if policy == "mqms" { 0.005 } else { 0.02 }
}

/// How much ran, by the virtual clock.
fn shares(of: &Value, cpus: u32, at_least: f64) -> Result<(), String> {
    // Five vCPUs are busy; but flms leaves idle what belongs to the group of those that serve.
    let used: f64 = VM_NAMES.iter().map(|vm| cpu_of(of, vm)).sum();
    let all = f64::from(cpus);
    check(
        used > 0.475 * all,
        format!("all VMs together used {used} of {cpus} CPUs"),
    )?;
    check(
        used < 1.0125 * all,
        format!("{used} of {cpus} CPUs were used"),
    )?;
    for vm in VM_NAMES {
        let cpu = cpu_of(of, vm);
        check(cpu > at_least, format!("{vm} used {cpu} CPUs"))?;
    }
    Ok(())
}

/// CPUs that a VM used on average while it was measured.
fn cpu_of(of: &Value, vm: &str) -> f64 {
    of["metrics"][format!("{vm}.cpu")].as_f64().unwrap_or(0.0)
}

/// It went on to the end, but a VM had no time at all.
fn starves(of: &Value) -> bool {
    of["lasted"] == true && VM_NAMES.iter().any(|vm| cpu_of(of, vm) == 0.0)
}

/// Studies that have nothing to decide by on these kernels. The verifier of Linux 7.0 refuses `brm` with a fault of its
/// own ("verifier bug", EFAULT); `best_node` ran there. BERTH_LAB_POLICY tries one all the same.
const SIMULATOR_ONLY: [&str; 2] = ["best_node", "brm"];

/// Cheap to verify: run whatever is on record, so that a large host boots, the observer is loaded, and VMs run.
const ALWAYS: &str = "vtime";

/// Whether what runs is written down.
fn records() -> bool {
    std::env::var("BERTH_LAB_RECORD").as_deref() == Ok("1")
}

/// In the VM: one policy after the other.
pub fn inside(input: &Value, _policy: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario =
        serde_json::from_value(input["scenario"].clone()).map_err(|e| e.to_string())?;
    let rest = input["rest"].as_array().ok_or("no policies")?;
    let mut seen = Map::new();
    for builtin in berth_builtin::all() {
        let wanted = match input["only"].as_str() {
            Some(only) => only == builtin.name,
            None => rest.iter().any(|name| name == builtin.name),
        };
        if !wanted {
            continue;
        }
        println!("BERTH-SHIPPED {}", builtin.name);
        let mut scenario = scenario.clone();
        if builtin.name == "o1" {
            // Until a thread has slept for its bonus it waits for slices of 100 ms.
            scenario.run.measure_ns = 2_000_000_000;
        }
        // Beside one of them; it takes longer to load than most of them.
        let observed = seen.is_empty();
        let run = |s: &Scenario| {
            one(builtin.object(), s, observed).unwrap_or_else(|e| json!({ "refused": e }))
        };
        let mut of = run(&scenario);
        // On a busy machine a short while may be over before all have had a turn.
        let by_the_wall = input["by_the_wall"] == true;
        while by_the_wall && starves(&of) && 4 * scenario.run.measure_ns <= LONGEST_NS {
            scenario.run.measure_ns *= 4;
            of = run(&scenario);
        }
        seen.insert(builtin.name.to_string(), of);
    }
    Ok(Value::Object(seen))
}

/// `observed`: with the observer, which has to load on every kernel.
fn one(object: &[u8], scenario: &Scenario, observed: bool) -> Result<Value, String> {
    let load = LoadOptions {
        vm_slots: Some(SLOTS),
        ..LoadOptions::default()
    };
    let started = Instant::now();
    let mut policy = Loaded::load(object, &load).map_err(|e| e.to_string())?;
    let load_s = started.elapsed().as_secs_f64();
    let verified = policy.verified_insns();
    let mut warnings = policy.warnings().iter();
    let again = warnings.find(|w| w.starts_with(STARTED_AGAIN)).cloned();
    // One of the seeds by which the work begins soon after the policy: nobody looks at what that does while idle.
    let seed = (1..100).min_by_key(|seed| lead_ns(*seed)).unwrap_or(1);
    let threads = Vcpus::Threads;
    let run = if observed {
        perform(scenario, seed, threads, Some(&mut policy))?
    } else {
        perform_unobserved(scenario, seed, threads, Some(&mut policy))?
    };
    let unknown = run
        .notes
        .iter()
        .find(|n| observed && n.contains("are not known"));
    if let Some(note) = unknown {
        return Err(format!("the observer: {note}"));
    }
    let name = policy.name().to_string();
    let lasted = policy.poll().map_err(|e| e.to_string())?.running() == Some(&name);
    let exit = if lasted {
        policy.unload()
    } else {
        policy.final_record()
    };
    let exit = exit.map_err(|e| e.to_string())?;
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    Ok(json!({
        "possible": possible.unwrap_or_default().trim(),
        "again": again,
        "lasted": lasted && !exit.is_error(),
        "exit": exit.to_string(),
        "load_s": load_s,
        "verified": verified,
        "metrics": run.metrics,
    }))
}
