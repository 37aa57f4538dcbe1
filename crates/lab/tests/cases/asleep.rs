// SPDX-License-Identifier: GPL-2.0-only
//! The machine is suspended to memory and wakes again (ACPI S3), while a VM is pinned and while somebody schedules the
//! VMs: all threads are frozen wherever they are, also the agent's, and all CPUs but the first go and come. As on a
//! laptop, but for the clock, which stands still while the machine sleeps. One boot. `BERTH_LAB_LONG=1`: 100 times.
use super::agent::{load, place, policy, quiet, rules, state as loaded, until};
use super::any_kernel::{put_back, state};
use super::path::{GROUPS, enable};
use super::survival::{GOES, LOOK, SOON, masks, pin, whole};
use super::{HUNG, check, clean, coarse, host, is_long, read_scenario};
use berth_agent::agent::{Agent, Event};
use berth_agent::backend::Policy;
use berth_agent::pins::Method;
use berth_agent::rules::{Promised, Rules};
use berth_host::root::Root;
use berth_lab::Vcpus;
use berth_lab::assets::Assets;
use berth_lab::run::LabOptions;
use berth_optimiser::Promise;
use berth_scenario::model::Scenario;
use berth_scx::{Loaded, State};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const VMS: &str = r#"
[vm.web]
tasks = ["tick"]
[vm.hog]
tasks = ["burn"]
[task.tick]
loop = ["sleep 5ms", "compute 20us"]
[task.burn]
model = "busy"
[compare]
policies = ["linux"]
"#;
const STATE: &str = "/sys/power/state";
/// How often the kernel has slept, by itself.
const SLEPT: &str = "/sys/power/suspend_stats/success";
/// Of the emulator's chip set: where its power management is reached, and whether. Its firmware does not set them again
/// when the machine wakes, as a machine's does: without them it falls asleep but once.
const CHIPSET: &str = "/sys/bus/pci/devices/0000:00:1f.0/config";
const POWER: [u64; 2] = [0x40, 0x44];

/// What acts, by turns: pins by both methods, the optimiser, a policy that is loaded anew when CPUs come, and one that
/// follows them. In short all but the last, which takes the kernel long to verify.
const WAYS: u32 = 5;
const SLEEPS: u32 = 100;

pub fn woken(assets: &Assets) -> Result<String, String> {
    let mut scenario = read_scenario("cores = 2", VMS)?;
    scenario.run.warmup_ns = 0;
    // It is ended before.
    scenario.run.measure_ns = 24 * 3_600 * 1_000_000_000;
    let (sleeps, timeout) = match is_long() {
        true => (SLEEPS, 12 * HUNG),
        false => (WAYS - 1, HUNG),
    };
    let input = json!({ "scenario": scenario, "sleeps": sleeps });
    let options = LabOptions {
        timeout,
        vcpus: Vcpus::Kvm,
        ..coarse()
    };
    let boot = clean(assets, "asleep", host(1, 1, 1, 2, 1), input, &options)?;
    let seen = boot.sleeps;
    check(
        seen == sleeps as usize,
        format!("seen from outside it slept {seen} times"),
    )?;
    Ok(boot.answer.result.as_str().unwrap_or("").to_string())
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario =
        serde_json::from_value(input["scenario"].clone()).map_err(|e| e.to_string())?;
    let sleeps = input["sleeps"].as_u64().ok_or("how often?")?;
    enable(Path::new("/sys/fs/cgroup"))?;
    // It ends with this machine.
    let _load = load(scenario, 1);
    let limited = Promised {
        name: "hog".into(),
        promise: Promise {
            limit: Some(0.5),
            ..Promise::default()
        },
    };
    let rules = Rules {
        promises: vec![limited],
        ..rules()
    };
    let mut agent = Agent::new(Root::live(), place(), rules, None);
    until("2 VMs are known, and their vCPUs", &mut || {
        quiet(agent.tick().map_err(|e| e.to_string())?)?;
        Ok(whole(&agent) == 2)
    })?;
    enable(Path::new(GROUPS))?;
    slept(&mut agent, sleeps as u32).map(|said| json!(said))
}

fn slept(agent: &mut Agent, sleeps: u32) -> Result<String, String> {
    let before = state(agent)?;
    let mut worst = Duration::ZERO;
    for sleep in 0..sleeps {
        let took = match sleep % WAYS {
            0 => pinned(agent, Method::Taskset),
            1 => pinned(agent, Method::Cgroup),
            2 => optimised(agent),
            3 => scheduled(agent, "gfifo", false),
            _ => scheduled(agent, "vmfair", true),
        };
        println!("BERTH-ASLEEP {sleep}: {took:?}");
        let at = |what: String| format!("sleep {sleep}: {what}");
        worst = worst.max(took.map_err(at)?);
        put_back(&before, &state(agent)?).map_err(at)?;
    }
    check(worst <= SOON, format!("it acted only after {worst:?}"))?;
    Ok(format!(
        "the machine slept {sleeps} times: who acted acted as before after at most {:.2} s of its time",
        worst.as_secs_f64()
    ))
}

/// The agent looks while the machine falls asleep, and for some time after. What happened meanwhile.
fn sleep(agent: &mut Agent) -> Result<(Vec<Event>, Instant), String> {
    let number = || {
        let text = fs::read_to_string(SLEPT).map_err(|e| format!("{SLEPT}: {e}"))?;
        text.trim()
            .parse::<u64>()
            .map_err(|e| format!("{SLEPT}: {e}"))
    };
    let slept = number()?;
    let power = power()?;
    // Who writes is the only one that is not frozen.
    let asleep = std::thread::spawn(|| fs::write(STATE, "mem"));
    let mut events = Vec::new();
    while !asleep.is_finished() {
        std::thread::sleep(Duration::from_millis(20));
        events.extend(agent.tick().map_err(|e| e.to_string())?);
    }
    let awake = Instant::now();
    set_power(power)?;
    let done = asleep.join().map_err(|_| "who suspends panicked")?;
    done.map_err(|e| format!("{STATE}: {e}"))?;
    check(
        number()? == slept + 1,
        "the kernel does not say that it slept",
    )?;
    Ok((events, awake))
}

fn power() -> Result<[[u8; 4]; 2], String> {
    let chipset = File::open(CHIPSET).map_err(|e| format!("{CHIPSET}: {e}"))?;
    let mut all = [[0; 4]; 2];
    for (value, at) in all.iter_mut().zip(POWER) {
        let read = chipset.read_exact_at(value, at);
        read.map_err(|e| format!("{CHIPSET}: {e}"))?;
    }
    Ok(all)
}

fn set_power(all: [[u8; 4]; 2]) -> Result<(), String> {
    let chipset = File::options().write(true).open(CHIPSET);
    let chipset = chipset.map_err(|e| format!("{CHIPSET}: {e}"))?;
    all.iter().zip(POWER).try_for_each(|(value, at)| {
        let written = chipset.write_all_at(value, at);
        written.map_err(|e| format!("{CHIPSET}: {e}"))
    })
}

/// The machine sleeps; then the agent looks until something is so, and three times more: how long it took, and what
/// happened meanwhile.
fn settled(
    agent: &mut Agent,
    mut holds: impl FnMut(&Agent) -> Result<bool, String>,
) -> Result<(Duration, Vec<Event>), String> {
    let (mut events, awake) = sleep(agent)?;
    let mut look = |agent: &mut Agent, time| {
        std::thread::sleep(time);
        let new = agent.tick().map_err(|e| e.to_string())?;
        events.extend(new);
        Ok::<(), String>(())
    };
    until("it acts as before", &mut || {
        look(agent, Duration::ZERO)?;
        holds(agent)
    })?;
    let took = awake.elapsed();
    for _ in 0..3 {
        look(agent, LOOK)?;
    }
    check(holds(agent)?, "it acted as before, and no longer does")?;
    Ok((took, events))
}

/// A pinned VM stays where it is pinned, and nobody is blamed.
fn pinned(agent: &mut Agent, method: Method) -> Result<Duration, String> {
    let bound = |agent: &Agent| {
        let masks = masks(agent)?;
        Ok(!masks.is_empty() && masks.iter().all(|(_, cpus)| cpus == GOES))
    };
    pin(agent, method)?;
    check(bound(agent)?, "it is not pinned")?;
    let (took, events) = settled(agent, bound)?;
    quiet(events)?;
    agent.unpin(None).map_err(|e| e.to_string())?;
    Ok(took)
}

/// What the optimiser has set, it keeps as it is.
fn optimised(agent: &mut Agent) -> Result<Duration, String> {
    let before = state(agent)?;
    let optimiser = Policy::optimiser(false);
    let name = optimiser.name.clone();
    agent.start(optimiser).map_err(|e| e.to_string())?;
    until("the optimiser has set something", &mut || {
        quiet(agent.tick().map_err(|e| e.to_string())?)?;
        Ok(put_back(&before, &state(agent)?).is_err())
    })?;
    let set = state(agent)?;
    let (took, events) = settled(agent, |agent| {
        Ok(acts(agent, &name) && put_back(&set, &state(agent)?).is_ok())
    })?;
    quiet(events)?;
    agent.stop().map_err(|e| e.to_string())?;
    Ok(took)
}

/// A policy goes on that follows CPUs which go and come; another is ended by the kernel, and loaded anew by the agent.
fn scheduled(agent: &mut Agent, name: &str, follows: bool) -> Result<Duration, String> {
    agent.start(policy(name)?).map_err(|e| e.to_string())?;
    let runs = (State::Enabled, Some(name.to_string()));
    let (took, events) = settled(agent, |agent| Ok(acts(agent, name) && loaded()? == runs))?;
    let (anew, others): (Vec<Event>, Vec<Event>) = events
        .into_iter()
        .partition(|e| matches!(e, Event::Restarted(_)));
    quiet(others)?;
    check(
        anew.len() == usize::from(!follows),
        format!("{name} was loaded anew: {anew:?}"),
    )?;
    agent.stop().map_err(|e| e.to_string())?;
    Ok(took)
}

fn acts(agent: &Agent, name: &str) -> bool {
    let status = agent.status();
    let is_it = status.policy.is_some_and(|p| p.name == name);
    is_it && status.trouble.is_none() && status.vms.len() == 2
}
