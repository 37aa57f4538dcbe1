// SPDX-License-Identifier: GPL-2.0-only
//! The optimiser beside real micro-VMs, by cgroups of version 2 and affinity, under the kernel's own scheduler: what
//! promised is got, limits hold, a policy that is ended hands over, and in the end everything is what it was. One boot.
use super::agent::{load, place, policy, rules, until};
use super::{check, coarse, host, is_long, options, read_scenario, with_micro_vms};
use berth_agent::agent::{Agent, Event};
use berth_agent::backend::{Policy, Way};
use berth_agent::rules::{Promised, Rules};
use berth_agent::tripwire::LIMIT;
use berth_host::root::Root;
use berth_lab::assets::Assets;
use berth_optimiser::{Promise, Service};
use berth_scenario::model::Scenario;
use berth_scx::Loaded;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

const VMS: &str = r#"
[vm.web]
tasks = ["burn"]
[vm.hog]
count = 2
tasks = ["burn"]
[vm.capped]
tasks = ["burn"]
[task.burn]
model = "busy"
[compare]
policies = ["linux"]
"#;
/// Longer than what is beside it, of the VM's time; verifying `vmfair` alone takes 3 s, and more beside hogs.
const SECONDS: u64 = 120;
const TARGET: f64 = 0.95;
const LIMITED: f64 = 0.1;

pub fn optimised(assets: &Assets) -> Result<String, String> {
    let mut scenario = read_scenario("cores = 2", VMS)?;
    scenario.run.warmup_ns = 0;
    scenario.run.measure_ns = SECONDS * 1_000_000_000;
    // Any policy will do: in short one that the kernel verifies soon.
    let (ended, options) = match is_long() {
        true => ("vmfair", options()),
        false => ("gfifo", coarse()),
    };
    let input = json!({ "scenario": scenario, "ended": ended });
    let result = with_micro_vms(assets, "any kernel", host(1, 1, 1, 2, 1), input, options)?;
    Ok(result["said"].as_str().unwrap_or("").to_string())
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario =
        serde_json::from_value(input["scenario"].clone()).map_err(|e| e.to_string())?;
    let name = input["ended"].as_str().ok_or("no policy")?;
    let load = load(scenario, 1);
    let began = Instant::now();
    let said = beside_vms(name);
    let took = began.elapsed().as_secs_f64();
    let ended = load.end();
    let said = said?;
    ended?;
    Ok(json!({ "said": format!("{said} ({took:.0} s of the VM's time)") }))
}

fn promised() -> Rules {
    let promise = |name: &str, promise| Promised {
        name: name.into(),
        promise,
    };
    let target = Promise {
        service: Service::Target,
        guarantee: TARGET,
        ..Promise::default()
    };
    let limited = Promise {
        limit: Some(LIMITED),
        ..Promise::default()
    };
    Rules {
        promises: vec![promise("web", target), promise("capped", limited)],
        ..rules()
    }
}

/// Of a VM: where each of its threads may run, its weight and its cap.
#[derive(Debug)]
pub(super) struct State {
    cpus: BTreeMap<i32, String>,
    group: Vec<String>,
}

pub(super) type States = BTreeMap<String, State>;

pub(super) fn state(agent: &Agent) -> Result<States, String> {
    let read = |path: String| std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"));
    let mut all = BTreeMap::new();
    for vm in agent
        .vms()
        .vms
        .iter()
        .filter(|vm| !vm.name.starts_with("init-"))
    {
        let mut cpus = BTreeMap::new();
        for thread in &vm.threads {
            let (pid, tid) = (thread.id.pid, thread.id.tid);
            let status = read(format!("/proc/{pid}/task/{tid}/status"))?;
            let line = status.lines().find(|l| l.starts_with("Cpus_allowed_list"));
            cpus.insert(tid, line.unwrap_or("").to_string());
        }
        let group = format!("/sys/fs/cgroup{}", vm.cgroup);
        let group = vec![
            read(format!("{group}/cpu.weight"))?,
            read(format!("{group}/cpu.max"))?,
        ];
        all.insert(vm.name.clone(), State { cpus, group });
    }
    Ok(all)
}

/// `after` is what was `before`. A thread that was not known then has what its VM's other threads had: it inherits it.
pub(super) fn put_back(before: &States, after: &States) -> Result<(), String> {
    let same = before.len() == after.len()
        && before
            .iter()
            .zip(after)
            .all(|((name, was), (now_name, is))| {
                let born = was.cpus.values().next();
                name == now_name
                    && was.group == is.group
                    && is
                        .cpus
                        .iter()
                        .all(|(tid, cpus)| was.cpus.get(tid).or(born) == Some(cpus))
            });
    check(same, format!("after: {after:?}, before: {before:?}"))
}

/// `name`: the policy that is ended.
fn beside_vms(name: &str) -> Result<String, String> {
    let mut agent = Agent::new(Root::live(), place(), promised(), Some(LIMIT));
    let tick = |agent: &mut Agent| agent.tick().map_err(|e| e.to_string());
    until("4 VMs are known", &mut || {
        tick(&mut agent)?;
        Ok(agent
            .status()
            .vms
            .iter()
            .filter(|vm| !vm.name.starts_with("init-"))
            .count()
            == 4)
    })?;
    let before = state(&agent)?;
    agent
        .start(Policy::optimiser(false))
        .map_err(|e| e.to_string())?;
    let set_alone = |agent: &Agent| {
        let web = agent.status().vms.into_iter().find(|vm| vm.name == "web");
        web.and_then(|vm| vm.decided?.setting.cpus)
            .is_some_and(|cpus| cpus.count() == 1)
    };
    // The agent binds a thread at the look that finds it: the host shows it, not only the decision.
    let mut during = States::new();
    until("web has a CPU of its own", &mut || {
        tick(&mut agent)?;
        during = state(&agent)?;
        let home = before["web"].cpus.values().next();
        let bound = during["web"].cpus.values().all(|cpus| Some(cpus) != home);
        Ok(set_alone(&agent) && bound)
    })?;
    check(
        during["capped"]
            .group
            .last()
            .is_some_and(|max| max.trim() == "10000 100000"),
        format!("its limit: {during:?}"),
    )?;
    check(
        Path::new("/run/berth-changes/changes.json").exists(),
        "it is remembered",
    )?;
    let warnings = agent
        .status()
        .policy
        .map(|p| p.warnings)
        .unwrap_or_default();
    agent.stop().map_err(|e| e.to_string())?;
    put_back(&before, &state(&agent)?)?;
    // A policy that cannot be loaded, and one that is ended: the optimiser in its place.
    let broken = Policy {
        object: b"no object".to_vec(),
        backend: Way::Auto,
        ..policy(name)?
    };
    agent.start(broken).map_err(|e| e.to_string())?;
    let instead = |agent: &Agent| {
        agent
            .status()
            .policy
            .and_then(|p| Some((p.name, p.instead_of?.0)))
    };
    check(
        instead(&agent) == Some(("optimiser".into(), name.into())),
        format!("{:?}", agent.status().policy),
    )?;
    let auto = Policy {
        backend: Way::Auto,
        ..policy(name)?
    };
    agent.start(auto).map_err(|e| e.to_string())?;
    check(
        agent.status().policy.is_some_and(|p| p.name == name),
        "the policy acts",
    )?;
    // Root ends any scheduler by the kernel's own key.
    std::fs::write("/proc/sysrq-trigger", "S").map_err(|e| format!("sysrq: {e}"))?;
    let (mut fell, ended) = (None, Instant::now());
    until("the optimiser acts in its place", &mut || {
        // As the daemon: it asks that every 50 ms, and looks at the host less often.
        if !agent.notices_end().map_err(|e| e.to_string())? {
            return Ok(false);
        }
        for event in tick(&mut agent)? {
            if let Event::FellBack(why) = event {
                fell = Some(why);
            }
        }
        Ok(fell.is_some())
    })?;
    let after = ended.elapsed().as_millis();
    agent.stop().map_err(|e| e.to_string())?;
    put_back(&before, &state(&agent)?)?;
    Ok(format!(
        "web was alone, capped had {LIMITED} CPUs, all was put back; handed over after {after} ms: {}; \
         {} remarks {warnings:?}",
        fell.unwrap_or_default(),
        warnings.len()
    ))
}
