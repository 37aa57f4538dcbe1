// SPDX-License-Identifier: GPL-2.0-only
//! Full and partial switch mode side by side: a latency VM among hogs, with and without other work on the host. One
//! boot; the seeds of an arm one after the other. The table in docs/agent.md.
use super::agent::{load, place, policy, state};
use super::{NEVER, check, host, options, read_scenario};
use berth_agent::agent::Agent;
use berth_agent::backend::Policy;
use berth_agent::rules::{Rule, Rules};
use berth_agent::tripwire::LIMIT;
use berth_host::root::Root;
use berth_lab::Vcpus;
use berth_lab::assets::Assets;
use berth_lab::job::Work;
use berth_lab::run::{LabOptions, Single, single};
use berth_scenario::model::Scenario;
use berth_scx::{Loaded, State};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const VMS: &str = r#"
[vm.web]
class = "latency"
tasks = ["tick"]
[vm.hog]
count = 3
vcpus = 2
tasks = ["burn"]
[task.tick]
loop = ["sleep 5ms", "compute 20us"]
[task.burn]
model = "busy"
[task.host-burn]
model = "busy"
threads = 1
[compare]
policies = ["linux"]
"#;
const RUNS: u64 = 3;

/// Who is given to the policy.
const ARMS: [(&str, Option<&[&str]>); 4] = [
    ("linux", None),
    ("full", Some(&[])),
    ("partial, all VMs", Some(&["*"])),
    ("partial, web only", Some(&["web"])),
];

pub fn modes(assets: &Assets) -> Result<String, String> {
    let with_kvm = LabOptions {
        vcpus: Vcpus::Kvm,
        timeout: Duration::from_secs(1800),
        ..options()
    };
    let mut text = String::from(
        "\n| host | arm | web wake-up p50 ms | p99 ms | max ms | hogs, CPUs | policy ended \
         |\n|---|---|---|---|---|---|---|",
    );
    for (what, host_keys) in [
        ("idle", "cores = 2"),
        ("one busy thread", "cores = 2\ntasks = [\"host-burn\"]"),
    ] {
        let mut scenario = read_scenario(host_keys, VMS)?;
        scenario.run.warmup_ns = 500_000_000;
        scenario.run.measure_ns = 2_000_000_000;
        let what_runs = Single {
            host: host(1, 1, 1, 2, 1),
            policy: None,
            work: Work::Custom {
                name: "modes".to_string(),
                input: json!(scenario),
            },
        };
        let boot = single(&what_runs, &with_kvm, assets, &NEVER).map_err(|e| e.to_string())?;
        if let Some(e) = &boot.answer.error {
            return Err(format!("{e}\n{}", boot.console));
        }
        for row in boot.answer.result.as_array().ok_or("no answer")? {
            let ms = |key: &str| row[key].as_f64().unwrap_or(f64::NAN) / 1e6;
            text += &format!(
                "\n| {what} | {} | {:.3} | {:.3} | {:.3} | {:.2} | {} |",
                row["arm"].as_str().unwrap_or("?"),
                ms("p50"),
                ms("p99"),
                ms("max"),
                row["hogs"].as_f64().unwrap_or(f64::NAN),
                row["ended"].as_str().unwrap_or("no")
            );
        }
    }
    Ok(text)
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario = serde_json::from_value(input.clone()).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for (name, only) in ARMS {
        let mut runs: Vec<BTreeMap<String, f64>> = Vec::new();
        let mut ended = None;
        for seed in 1..=RUNS {
            let (metrics, why) = once(&scenario, seed, only)?;
            runs.push(metrics);
            ended = ended.or(why);
        }
        let median = |key: &str| {
            let mut all: Vec<f64> = runs.iter().map(|m| m[key]).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        rows.push(json!({
            "arm": name,
            "p50": median("web.wakeup.p50"),
            "p99": median("web.wakeup.p99"),
            "max": median("web.wakeup.max"),
            "hogs": median("hog.cpu"),
            "ended": ended,
        }));
    }
    Ok(json!(rows))
}

type Once = (BTreeMap<String, f64>, Option<String>);

fn once(scenario: &Scenario, seed: u64, only: Option<&[&str]>) -> Result<Once, String> {
    let mut why = None;
    let mut acting = None;
    if let Some(only) = only {
        let rules = Rules {
            only: only.iter().map(|s| s.to_string()).collect(),
            vms: vec![Rule {
                name: "web".into(),
                class: Some("latency".into()),
                io_vcpus: 0,
            }],
            ..Rules::default()
        };
        let mut agent = Agent::new(Root::live(), place(), rules, Some(LIMIT));
        let policy = Policy {
            partial: !only.is_empty(),
            ..policy("vmfair")?
        };
        // Before the load: the kernel's verifier takes a CPU for a while.
        agent.start(policy).map_err(|e| e.to_string())?;
        acting = Some(agent);
    }
    let load = load(scenario.clone(), seed);
    if let Some(agent) = &mut acting {
        while !load.is_finished() {
            agent.tick().map_err(|e| e.to_string())?;
            std::thread::sleep(Duration::from_millis(200));
        }
        why = agent.status().trouble;
        if agent.running() {
            agent.stop().map_err(|e| e.to_string())?;
        }
    }
    let outcome = load.join()?;
    check(state()?.0 == State::Disabled, "a policy is left loaded")?;
    Ok((outcome.metrics, why))
}
