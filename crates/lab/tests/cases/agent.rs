// SPDX-License-Identifier: GPL-2.0-only
//! The agent beside real micro-VMs: it finds them, policies are switched while they run, one VM ends, the agent is
//! killed, another scheduler is there first, a policy that starves a VM is unloaded. One boot.
use super::noticed::{noticed, rounds_wanted};
use super::path::cpu_ns;
use super::survival::vms as micro_vms;
use super::{HUNG, OBJECT, check, coarse, host, is_long, options, read_scenario, with_micro_vms};
use berth_agent::agent::{Agent, Event, Started};
use berth_agent::backend::{Policy, Value as Setting, Way};
use berth_agent::place::Place;
use berth_agent::rules::{Rule, Rules};
use berth_agent::tripwire::LIMIT;
use berth_host::model::Vm;
use berth_host::root::Root;
use berth_lab::Vcpus;
use berth_lab::assets::Assets;
use berth_lab::run::LabOptions;
use berth_loadgen::{LoadError, Outcome};
use berth_scenario::model::Scenario;
use berth_scx::{LoadOptions, Loaded, State};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One VM ends early.
const VMS: &str = r#"
[vm.web]
class = "latency"
tasks = ["tick"]
[vm.hog]
vcpus = 2
tasks = ["burn"]
[vm.victim]
tasks = ["burn"]
[vm.brief]
vcpus = 2
stop = "15s"
tasks = ["burn"]
[task.tick]
loop = ["sleep 5ms", "compute 20us"]
[task.burn]
model = "busy"
[compare]
policies = ["linux"]
"#;
/// Longer than what is beside it, of the VM's time; verifying `vmfair` alone takes 3 s, and more beside hogs.
const SECONDS: u64 = 120;
/// One after the other; in short only the last takes the kernel long to verify.
const POLICIES: [&str; 2] = ["gfifo", "vmfair"];
const MORE_POLICIES: [&str; 3] = ["vmfair", "credit", "vmfair"];

pub fn acting(assets: &Assets) -> Result<String, String> {
    let mut scenario = read_scenario("cores = 2", VMS)?;
    scenario.run.warmup_ns = 0;
    scenario.run.measure_ns = SECONDS * 1_000_000_000;
    // Whoever asks for rounds asks for their times.
    let in_full = is_long() || std::env::var_os("BERTH_LAB_ROUNDS").is_some();
    let (policies, options) = match in_full {
        true => (
            MORE_POLICIES.as_slice(),
            LabOptions {
                timeout: 12 * HUNG,
                ..options()
            },
        ),
        false => (POLICIES.as_slice(), coarse()),
    };
    let input = json!({
        "scenario": scenario,
        "policies": policies,
        "foreign": OBJECT.get(),
        "rounds": rounds_wanted(),
    });
    let result = with_micro_vms(assets, "agent", host(1, 1, 1, 2, 1), input, options)?;
    Ok(result["said"].as_str().unwrap_or("").to_string())
}

pub(super) fn policy(name: &str) -> Result<Policy, String> {
    let builtin = berth_builtin::find(name).ok_or("no such policy")?;
    Ok(Policy {
        name: name.into(),
        hash: name.into(),
        parameters: BTreeMap::new(),
        values: BTreeMap::new(),
        partial: false,
        backend: Way::Scx,
        object: builtin.object().to_vec(),
    })
}

/// Where the optimiser would remember what it changed; nobody watches over these agents.
pub(super) fn place() -> Place {
    Place::new("/run/berth-changes".into(), None, None)
}

pub(super) fn state() -> Result<(State, Option<String>), String> {
    let status = berth_scx::status().map_err(|e| e.to_string())?;
    let running = status.running().map(String::from);
    Ok((status.state, running))
}

/// Looks until something is so, for a while.
pub(super) fn until(
    what: &str,
    holds: &mut dyn FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds()? {
        check(Instant::now() < end, format!("never came true: {what}"))?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A scenario's micro-VMs, by a thread of their own.
pub(super) struct Load {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Outcome, LoadError>>,
}

pub(super) fn load(scenario: Scenario, seed: u64) -> Load {
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let thread = std::thread::spawn(move || {
        let mut how = berth_loadgen::Options {
            cgroup_root: Some("/sys/fs/cgroup/berth".into()),
            warmup_ns: scenario.run.warmup_ns,
            measure_ns: scenario.run.measure_ns,
            vcpus: Vcpus::Kvm,
            stop: Some(&stop),
            ..berth_loadgen::Options::default()
        };
        berth_loadgen::run(&scenario, seed, &mut how)
    });
    Load { over, thread }
}

impl Load {
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end.
    pub fn join(self) -> Result<Outcome, String> {
        let result = self.thread.join().map_err(|_| "the load panicked")?;
        result.map_err(|e| e.to_string())
    }

    /// Ends it now: what nobody looks at any more costs as much as what somebody does.
    ///
    /// # Errors
    /// It had ended before: what was looked at no longer ran.
    pub fn end(self) -> Result<(), String> {
        self.over.store(true, Ordering::Relaxed);
        match self.thread.join().map_err(|_| "the load panicked")? {
            Err(LoadError::Interrupted) => Ok(()),
            Err(e) => Err(e.to_string()),
            Ok(_) => Err("the load had ended before; it is to be longer".into()),
        }
    }
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario =
        serde_json::from_value(input["scenario"].clone()).map_err(|e| e.to_string())?;
    let foreign: Vec<u8> =
        serde_json::from_value(input["foreign"].clone()).map_err(|e| e.to_string())?;
    let policies: Vec<String> =
        serde_json::from_value(input["policies"].clone()).map_err(|e| e.to_string())?;
    let (first, others) = policies.split_first().ok_or("no policies")?;
    killed(first)?;
    another_is_there(&foreign)?;
    let load = load(scenario, 1);
    let began = Instant::now();
    let said = beside_vms(&foreign, first, others);
    let took = began.elapsed().as_secs_f64();
    let ended = load.end();
    let said = said?;
    ended?;
    check(state()?.0 == State::Disabled, "a policy is left loaded")?;
    let rounds = input["rounds"].as_u64().unwrap_or(1);
    let noticed = noticed(rounds)?;
    check(state()?.0 == State::Disabled, "the daemon's policy is left")?;
    Ok(json!({ "said": format!("{said}; {took:.0} s of the VM's time; {noticed}") }))
}

pub(super) fn rules() -> Rules {
    Rules {
        only: Vec::new(),
        vms: vec![Rule {
            name: "web*".into(),
            class: Some("latency".into()),
            io_vcpus: 0,
        }],
        ..Rules::default()
    }
}

/// Nothing has happened that should not: the first process makes the micro-VMs, and may be seen with one.
pub(super) fn quiet(events: Vec<Event>) -> Result<(), String> {
    let usual = |e: &Event| matches!(e, Event::LeftOut(vm) | Event::ByProcess(vm) if vm.vm.starts_with("init-"));
    match events.into_iter().find(|e| !usual(e)) {
        Some(event) => Err(format!("{event:?}")),
        None => Ok(()),
    }
}

/// Follows the VMs through policies that come and go.
fn beside_vms(starving: &[u8], first: &str, others: &[String]) -> Result<String, String> {
    let mut agent = Agent::new(Root::live(), place(), rules(), Some(LIMIT));
    let seen = |agent: &mut Agent, vms: usize| {
        let what = format!("{vms} VMs are known, and their vCPUs");
        until(&what, &mut || {
            quiet(agent.tick().map_err(|e| e.to_string())?)?;
            let whole = |vm: &&Vm| vm.vcpus > 0 && vm.known_vcpus() == vm.vcpus;
            Ok(agent.status().vms.len() == vms && micro_vms(agent).filter(whole).count() == vms)
        })
    };
    seen(&mut agent, 4)?;
    let start = |agent: &mut Agent, name: &str| -> Result<Started, String> {
        let started = agent.start(policy(name)?).map_err(|e| e.to_string())?;
        check(
            state()?.1.as_deref() == Some(name),
            format!("{name} runs: {:?}", state()?),
        )?;
        Ok(started)
    };
    check(start(&mut agent, first)? == Started::Loaded, "loaded")?;
    let (web_ran, under) = (ran(&agent, "web")?, Instant::now());
    let status = agent.status();
    let web = status
        .vms
        .iter()
        .find(|vm| vm.name == "web")
        .ok_or("web is not found")?;
    check(web.class == "latency" && web.vcpus == 1, format!("{web:?}"))?;
    // The vCPU, the first thread of the process, and those of KVM.
    check(web.threads >= 2, format!("{web:?}"))?;
    for other in others {
        let switched = start(&mut agent, other)? == Started::Switched;
        check(switched, format!("switched to {other}"))?;
    }
    // One the kernel refuses: what runs stays.
    let broken = Policy {
        object: b"no object".to_vec(),
        hash: "x".into(),
        ..policy("credit")?
    };
    let refused = agent.start(broken).err().ok_or("nonsense was loaded")?;
    check(
        state()?.1.as_deref() == Some("vmfair"),
        format!("after {refused}: {:?}", state()?),
    )?;
    // A VM ends.
    seen(&mut agent, 3)?;
    let preempted = agent
        .status()
        .policy
        .and_then(|p| p.counters.get("preempted").copied());
    check(
        preempted > Some(0),
        format!("it knew the latency VM: {preempted:?}"),
    )?;
    agent.stop().map_err(|e| e.to_string())?;
    check(state()?.0 == State::Disabled, "stopped")?;
    // Every 5.02 ms it computes for 20 us; of that a quarter at least.
    let least = under.elapsed().as_nanos() as f64 * (20.0 / 5020.0) / 4.0;
    let web_ran = (ran(&agent, "web")? - web_ran) as f64;
    check(
        web_ran > least,
        format!("the latency VM ran {web_ran} ns, of {least} at least"),
    )?;
    let stall = starved(&mut agent, starving)?;
    Ok(format!(
        "4 VMs found, policies switched, one VM ended; {} preemptions; {stall}",
        preempted.unwrap_or(0)
    ))
}

/// CPU time of a VM until now.
fn ran(agent: &Agent, name: &str) -> Result<u64, String> {
    let mut vms = agent.vms().vms.iter();
    let vm = vms.find(|vm| vm.name == name);
    cpu_ns(vm.ok_or_else(|| format!("{name} is not there"))?)
}

/// A policy that lets one VM starve is unloaded, long before the kernel's watchdog does it, and the VM runs on.
fn starved(agent: &mut Agent, object: &[u8]) -> Result<String, String> {
    let stall = [("stall".to_string(), Setting::Text("true".to_string()))];
    let starving = Policy {
        name: "starving".into(),
        hash: "starving".into(),
        parameters: BTreeMap::new(),
        values: stall.into(),
        partial: false,
        backend: Way::Scx,
        object: object.to_vec(),
    };
    agent.start(starving).map_err(|e| e.to_string())?;
    let began = Instant::now();
    let mut said = None;
    until("the policy that starves is unloaded", &mut || {
        for event in agent.tick().map_err(|e| e.to_string())? {
            let Event::Ended(why) = event else {
                return Err(format!("{event:?}"));
            };
            said = Some(why);
        }
        Ok(said.is_some())
    })?;
    let said = said.unwrap_or_default();
    check(
        said.contains("of VM victim") && said.contains("got no CPU"),
        format!("why: {said}"),
    )?;
    check(
        began.elapsed() < Duration::from_secs(5),
        format!("it took {:?}", began.elapsed()),
    )?;
    check(state()?.0 == State::Disabled, "it is still loaded")?;
    check(
        agent.status().trouble.as_deref() == Some(said.as_str()),
        "the status says why",
    )?;
    // It is one of three that want two CPUs.
    let before = ran(agent, "victim")?;
    std::thread::sleep(Duration::from_millis(300));
    let runs_ns = ran(agent, "victim")? - before;
    check(
        runs_ns > 50_000_000,
        format!("the VM ran for {runs_ns} ns of 300 ms"),
    )?;
    Ok(format!(
        "{said} (noticed in {:.1} s)",
        began.elapsed().as_secs_f64()
    ))
}

/// An agent that is killed leaves the kernel's own scheduler.
fn killed(name: &str) -> Result<(), String> {
    // SAFETY: the copy loads a policy and sleeps until it is killed; this process waits for it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut agent = Agent::new(Root::live(), place(), rules(), None);
        let loaded = policy(name).map(|p| agent.start(p).is_ok());
        while loaded == Ok(true) {
            std::thread::sleep(Duration::from_secs(1));
        }
        // SAFETY: ends the copy without anything of the first process.
        unsafe { libc::_exit(1) };
    }
    let loaded = until("the copy's policy runs", &mut || {
        Ok(state()?.1.as_deref() == Some(name))
    });
    // SAFETY: our own child, which has not been waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    loaded?;
    until("the kernel's own scheduler is back", &mut || {
        Ok(state()?.0 == State::Disabled)
    })
}

/// Another scheduler is named and left alone.
fn another_is_there(object: &[u8]) -> Result<(), String> {
    let foreign = Loaded::load(object, &LoadOptions::default()).map_err(|e| e.to_string())?;
    let mut agent = Agent::new(Root::live(), place(), rules(), Some(LIMIT));
    let refused = agent.start(policy("vmfair")?).err().map(|e| e.to_string());
    let refused = refused.ok_or("loaded over another scheduler")?;
    check(
        refused.contains("`fifo`"),
        format!("it is named: {refused}"),
    )?;
    check(state()?.1.as_deref() == Some("fifo"), "it is left alone")?;
    foreign.unload().map_err(|e| e.to_string())?;
    Ok(())
}
