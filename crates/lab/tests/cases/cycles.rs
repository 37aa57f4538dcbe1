// SPDX-License-Identifier: GPL-2.0-only
//! Load a policy, boot micro-VMs under it, let them end, unload it; again and again, each policy in turn. Nothing may
//! be left: no file, no program, no map, no complaint of the kernel. One boot of the lab. `BERTH_LAB_BOOTS` is how many
//! micro-VMs each policy sees boot, `BERTH_LAB_POLICY` one policy. `make lab-boots` has 200 under each; without either
//! variable it is a few under two.
use super::agent::{load, place, policy, quiet, rules, state};
use super::{check, coarse, host, is_long, read_scenario, with_micro_vms};
use berth_agent::agent::Agent;
use berth_agent::tripwire::LIMIT;
use berth_host::root::Root;
use berth_lab::assets::Assets;
use berth_lab::run::LabOptions;
use berth_scenario::model::Scenario;
use berth_scx::{Loaded, State};
use serde_json::{Value, json};
use std::time::Duration;

/// Micro-VMs without `BERTH_LAB_BOOTS`, and the policies without `BERTH_LAB_POLICY` then: the main one, and the one
/// with the longest slices, under which whoever measures must not stand in line with whom it measures.
const BOOTS: u64 = 24;
const MORE_BOOTS: u64 = 32;
const POLICIES: [&str; 2] = ["vmfair", "credit"];
/// Of them, in each cycle.
const AT_ONCE: u64 = 8;
/// Cycles before anything is counted, where there are more: caches of the kernel and of this process fill.
const FIRST: u64 = 3;
/// Memory that may be gone at the end, in KiB: kernel memory is given back late.
const SLACK_KIB: u64 = 24 * 1024;
const VMS: &str = r#"
[vm.web]
count = 2
class = "latency"
tasks = ["tick"]
[vm.hog]
count = 6
tasks = ["burn"]
[task.tick]
loop = ["sleep 5ms", "compute 20us"]
[task.burn]
model = "busy"
[compare]
policies = ["linux"]
"#;

pub fn cycles(assets: &Assets) -> Result<String, String> {
    let number = std::env::var("BERTH_LAB_BOOTS").ok();
    let boots: Option<u64> = number.and_then(|n| n.parse().ok());
    let one = std::env::var("BERTH_LAB_POLICY").ok();
    let wanted = |name: &&str| match &one {
        Some(one) => one == name,
        None => boots.is_some() || POLICIES.contains(name),
    };
    let supported = berth_builtin::all().iter().filter(|b| !b.study);
    let names: Vec<&str> = supported.map(|b| b.name).filter(wanted).collect();
    let mut scenario = read_scenario("cores = 2", VMS)?;
    scenario.run.warmup_ns = 0;
    // Whoever reads the counters may wait for what a VM holds in the kernel until that has had its turn: four for each
    // CPU, of 30 ms under `credit`. As long again is left out of the window, and something must remain.
    scenario.run.measure_ns = 400_000_000;
    let patient = LabOptions {
        timeout: Duration::from_secs(7200),
        ..coarse()
    };
    let boots = boots.unwrap_or(if is_long() { MORE_BOOTS } else { BOOTS });
    let input = json!({ "scenario": scenario, "policies": names, "boots": boots });
    let result = with_micro_vms(assets, "cycles", host(1, 1, 1, 2, 1), input, patient)?;
    let words = result.as_str().unwrap_or("");
    Ok(format!("{words}\n  the kernel's log is clean"))
}

/// What can leak.
#[derive(Debug)]
struct Left {
    files: usize,
    programs: usize,
    maps: usize,
    available_kib: u64,
}

fn left() -> Result<Left, String> {
    // BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID
    let both = || (objects(11), objects(12));
    // They go when their readers are done with them.
    let (mut before, mut now) = ((0, 0), both());
    for _ in 0..20 {
        if now == before {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
        (before, now) = (now, both());
    }
    let (programs, maps) = now;
    let files = std::fs::read_dir("/proc/self/fd").map_err(|e| e.to_string())?;
    let memory = std::fs::read_to_string("/proc/meminfo").map_err(|e| e.to_string())?;
    let available = memory.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let available = available.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok());
    Ok(Left {
        files: files.count(),
        programs,
        maps,
        available_kib: available.ok_or("no MemAvailable")?,
    })
}

/// Objects of BPF, of one kind.
fn objects(command: libc::c_long) -> usize {
    let mut found = 0;
    // `union bpf_attr`: the last id, the next one, flags.
    let mut ids = [0u32; 3];
    loop {
        let size = size_of_val(&ids);
        // SAFETY: a structure of the given size that outlives the call.
        let done = unsafe { libc::syscall(libc::SYS_bpf, command, ids.as_mut_ptr(), size) };
        if done != 0 {
            return found;
        }
        (ids[0], found) = (ids[1], found + 1);
    }
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario =
        serde_json::from_value(input["scenario"].clone()).map_err(|e| e.to_string())?;
    let boots = input["boots"].as_u64().unwrap_or(BOOTS);
    let cycles = boots.div_ceil(AT_ONCE).max(2);
    let mut said = String::new();
    for name in input["policies"].as_array().ok_or("no policies")? {
        let name = name.as_str().unwrap_or("");
        let words = under(&scenario, cycles, name).map_err(|e| format!("{name}: {e}"))?;
        println!("BERTH-CYCLES {name}: {words}");
        said += &format!("\n  {name}: {words}");
    }
    Ok(json!(said))
}

fn under(scenario: &Scenario, cycles: u64, name: &str) -> Result<String, String> {
    let mut before = None;
    let mut known = 0;
    for cycle in 1..=cycles {
        let at = |what: String| format!("cycle {cycle}: {what}");
        known += one(scenario, cycle, name).map_err(at)?;
        if cycle == FIRST.min(cycles - 1) {
            before = Some(left()?);
        }
        if cycle.is_multiple_of(20) {
            println!("BERTH-CYCLE {name} {cycle}");
        }
    }
    let (before, after) = (before.ok_or("too few cycles")?, left()?);
    check(
        (before.files, before.programs, before.maps) == (after.files, after.programs, after.maps),
        format!("left behind: {before:?}, then {after:?}"),
    )?;
    let gone = before.available_kib.saturating_sub(after.available_kib);
    check(
        gone < SLACK_KIB,
        format!("memory is gone: {before:?}, then {after:?}"),
    )?;
    Ok(format!(
        "{} micro-VM boots ({known} known to it while they ran), {cycles} loads and unloads, {gone} KiB less memory at \
         the end",
        AT_ONCE * cycles
    ))
}

/// One policy's life. Gives the VMs that it knew.
fn one(scenario: &Scenario, seed: u64, name: &str) -> Result<usize, String> {
    let mut agent = Agent::new(Root::live(), place(), rules(), Some(LIMIT));
    agent.start(policy(name)?).map_err(|e| e.to_string())?;
    let load = load(scenario.clone(), seed);
    let mut known = 0;
    while !load.is_finished() {
        quiet(agent.tick().map_err(|e| e.to_string())?)?;
        known = known.max(agent.status().vms.len());
        std::thread::sleep(Duration::from_millis(10));
    }
    let outcome = load.join()?;
    check(
        outcome.window_ns.0 < outcome.window_ns.1,
        format!("measured too late: {:?}", outcome.window_ns),
    )?;
    check(
        outcome.metrics["hog.cpu"] > 0.1,
        format!("the VM stood still: {:?}", outcome.metrics),
    )?;
    check(
        state()?.1.as_deref() == Some(name),
        format!("it does not run any more: {:?}", state()?),
    )?;
    agent.stop().map_err(|e| e.to_string())?;
    check(state()?.0 == State::Disabled, "it is still loaded")?;
    Ok(known)
}
