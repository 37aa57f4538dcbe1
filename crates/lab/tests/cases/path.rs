// SPDX-License-Identifier: GPL-2.0-only
//! The whole path of a VM's packets on a real kernel: a client in a network namespace, a cable (veth), a bridge, a tap,
//! the worker of vhost-net, a vCPU of a micro-VM whose guest sends each frame back, and the same way home; beside it
//! three computing VMs for each CPU. It is bound by Berth's own agent, as `berth pin` has it done, in all its ways.
//!
//! What is not real: the card (a cable instead, whose packets go on where they are sent), and the guest's card (it
//! knows where its rings are). The CPUs have no caches.
mod client;
mod network;
mod vm;

use super::agent::{place, until};
use super::{NEVER, check, host, options, read_scenario, with_micro_vms};
use berth_affinity::{Ask, Policy};
use berth_agent::agent::Agent;
use berth_agent::pins::{Method, Pinning};
use berth_agent::register::VmKey;
use berth_agent::rules::Rules;
use berth_host::model::Role;
use berth_host::root::Root;
use berth_lab::assets::{Assets, modules};
use berth_lab::run::LabOptions;
use berth_loadgen::Vcpus;
use berth_scenario::model::Scenario;
use berth_scx::Loaded;
use client::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub use vm::called_as_it as called_as_vm;

/// Three for each of two CPUs.
const VMS: &str = r#"
[vm.hog]
count = 6
tasks = ["burn"]
[task.burn]
model = "busy"
[compare]
policies = ["linux"]
"#;
const HOGS: usize = 6;
const CPUS: u32 = 2;
const GROUPS: &str = "/sys/fs/cgroup/berth";
const BRIDGE: &str = "br0";
const CABLE: &str = "cable0";
/// After a change, before measuring.
const SETTLE: Duration = Duration::from_millis(500);
/// An agent looks so often.
const LOOK: Duration = Duration::from_millis(200);

/// One way to bind.
#[derive(Debug)]
struct Arm {
    name: &'static str,
    /// None: no agent looks at all.
    pin: Option<(Policy, Method, Option<u32>)>,
    /// The computing VMs are bound to this CPU, too.
    confined: Option<u32>,
}

const fn arm(name: &'static str, policy: Policy, method: Method, cpu: Option<u32>) -> Arm {
    Arm {
        name,
        pin: Some((policy, method, cpu)),
        confined: None,
    }
}

const ARMS: [Arm; 10] = [
    Arm {
        name: "linux",
        pin: None,
        confined: None,
    },
    arm("none", Policy::None, Method::Auto, None),
    arm("paper, taskset", Policy::Paper, Method::Taskset, None),
    arm("paper, cgroup", Policy::Paper, Method::Cgroup, None),
    arm("full", Policy::Full, Method::Auto, None),
    arm("full, CPU 0", Policy::Full, Method::Auto, Some(0)),
    arm("l2", Policy::L2, Method::Auto, None),
    arm("auto", Policy::Auto, Method::Auto, None),
    Arm {
        name: "full, others on CPU 0",
        pin: Some((Policy::Full, Method::Auto, Some(1))),
        confined: Some(0),
    },
    Arm {
        name: "linux again",
        pin: None,
        confined: None,
    },
];

/// What binding sets, by file.
type State = BTreeMap<String, String>;

/// What one way came to; times in nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    name: String,
    sent: usize,
    answered: usize,
    mean: f64,
    p50: f64,
    p99: f64,
    most: f64,
    /// CPUs that the computing VMs had.
    hogs: f64,
    /// Where it was bound, in the agent's words.
    bound: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    scenario: Scenario,
    measure_ns: u64,
    seed: u64,
}

pub fn measured(assets: &Assets) -> Result<String, String> {
    let long = std::env::var("BERTH_LAB_LONG").as_deref() == Ok("1");
    let rows = boot(assets, if long { 10 } else { 2 }, 1)?;
    let by_name: BTreeMap<&str, &Row> = rows.iter().map(|r| (r.name.as_str(), r)).collect();
    let mut said = String::new();
    for row in &rows {
        check(
            row.answered == row.sent,
            format!("packets were lost: {row:?}"),
        )?;
        said += &format!(
            "\n  {:<22} n={} mean {:.0} p50 {:.0} p99 {:.0} max {:.0} us, others {:.2} CPUs; {}",
            row.name,
            row.answered,
            row.mean / 1e3,
            row.p50 / 1e3,
            row.p99 / 1e3,
            row.most / 1e3,
            row.hogs,
            row.bound,
        );
    }
    let p99 = |name: &str| by_name[name].p99;
    println!("{said}");
    check(
        p99("full, others on CPU 0") <= 0.8 * p99("linux"),
        "with the computing VMs confined the p99 is not a fifth below that of unbound Linux",
    )?;
    Ok(said)
}

fn boot(assets: &Assets, seconds: u64, seed: u64) -> Result<Vec<Row>, String> {
    let mut scenario = read_scenario(&format!("cores = {CPUS}"), VMS)?;
    scenario.run.warmup_ns = 0;
    // It is ended before.
    scenario.run.measure_ns = 3_600_000_000_000;
    let job = Job {
        scenario,
        measure_ns: seconds * 1_000_000_000,
        seed,
    };
    let modules = modules::path(&assets.kernel, &|_| (), &NEVER).map_err(|e| e.to_string())?;
    let options = LabOptions {
        modules,
        timeout: Duration::from_secs(900),
        ..options()
    };
    let result = with_micro_vms(assets, "path", host(1, 1, 1, CPUS, 1), json!(job), options)?;
    serde_json::from_value(result).map_err(|e| e.to_string())
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let job: Job = serde_json::from_value(input.clone()).map_err(|e| e.to_string())?;
    client::network_is_quiet()?;
    network::add_bridge(BRIDGE)?;
    network::up(BRIDGE, None)?;
    let client = Client::start(CABLE)?;
    network::up(CABLE, Some(BRIDGE))?;
    enable(Path::new("/sys/fs/cgroup"))?;
    let over = Arc::new(AtomicBool::new(false));
    let load = load(job.scenario.clone(), Arc::clone(&over));
    let rows = beside(&job, &client, &over);
    over.store(true, Ordering::Relaxed);
    let ended = load.join().map_err(|_| "the load panicked")?;
    let rows = rows?;
    ended?;
    Ok(json!(rows))
}

/// CPU sets for the groups below.
fn enable(group: &Path) -> Result<(), String> {
    let file = group.join("cgroup.subtree_control");
    fs::write(&file, "+cpuset").map_err(|e| format!("{}: {e}", file.display()))
}

/// The computing VMs, until it is over; and on each CPU a thread that has what nobody else wants: an idle emulated CPU
/// would make the others faster.
fn load(scenario: Scenario, over: Arc<AtomicBool>) -> JoinHandle<Result<(), String>> {
    std::thread::spawn(move || {
        for cpu in 0..CPUS {
            let over = Arc::clone(&over);
            std::thread::spawn(move || spin(cpu, &over));
        }
        let mut how = berth_loadgen::Options {
            cgroup_root: Some(GROUPS.into()),
            measure_ns: scenario.run.measure_ns,
            vcpus: Vcpus::Kvm,
            stop: Some(&over),
            ..berth_loadgen::Options::default()
        };
        match berth_loadgen::run(&scenario, 1, &mut how) {
            Ok(_) | Err(berth_loadgen::LoadError::Interrupted) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    })
}

fn spin(cpu: u32, over: &AtomicBool) {
    // SAFETY: all zeroes are an empty set; values of this function's own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        let parameters = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
    while !over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Binds in all ways, one after the other, and measures each.
fn beside(job: &Job, client: &Client, over: &AtomicBool) -> Result<Vec<Row>, String> {
    let is_over = || check(!over.load(Ordering::Relaxed), "the load has ended");
    let mut agent = Agent::new(Root::live(), place(), Rules::default(), None);
    until("the computing VMs run", &mut || {
        is_over()?;
        agent.tick().map_err(|e| e.to_string())?;
        let hogs = agent.vms().vms.iter();
        let hogs = hogs.filter(|vm| vm.name.starts_with("hog") && has(vm, Role::Vcpu(0)));
        Ok(hogs.count() == HOGS)
    })?;
    enable(Path::new(GROUPS))?;
    let group = format!("{GROUPS}/{}", vm::NAME);
    fs::create_dir(&group).map_err(|e| format!("{group}: {e}"))?;
    fs::write(format!("{group}/cgroup.type"), "threaded").map_err(|e| format!("{group}: {e}"))?;
    let vm = vm::Vm::start(&group)?;
    network::up(vm::TAP, Some(BRIDGE))?;
    until("the VM that answers is known", &mut || {
        agent.tick().map_err(|e| e.to_string())?;
        let echo = agent.vms().vms.iter().find(|vm| vm.name == vm::NAME);
        Ok(echo.is_some_and(|vm| has(vm, Role::Vcpu(0)) && has(vm, Role::Vhost)))
    })?;
    let mut rows = Vec::new();
    for arm in &ARMS {
        let before = state()?;
        let bound = bind(&mut agent, arm)?;
        let row = measure(job, client, &mut agent, arm, bound)?;
        agent.unpin(None).map_err(|e| e.to_string())?;
        put_back(&before, &state()?)?;
        println!("{row:?}");
        rows.push(row);
    }
    drop(vm);
    // Its threads are seen as ended a little later.
    until("its cgroup can go", &mut || {
        Ok(fs::remove_dir(&group).is_ok())
    })?;
    Ok(rows)
}

fn has(vm: &berth_host::model::Vm, role: Role) -> bool {
    vm.threads.iter().any(|t| t.role == role)
}

fn keys(agent: &Agent, name: &str) -> Vec<VmKey> {
    let named = agent
        .vms()
        .vms
        .iter()
        .filter(|vm| vm.name.starts_with(name));
    named
        .map(|vm| VmKey {
            pid: vm.pid,
            start: vm.start,
        })
        .collect()
}

/// As `berth pin` has it done; gives what is bound, and where.
fn bind(agent: &mut Agent, arm: &Arm) -> Result<String, String> {
    let Some((policy, method, cpu)) = arm.pin else {
        return Ok("nothing is bound".into());
    };
    let mut wanted = Vec::new();
    // As long as they are not bound, theirs is any CPU.
    if let Some(cpu) = arm.confined {
        let hogs = keys(agent, "hog").into_iter();
        wanted.extend(hogs.map(|vm| (vm, Policy::Full, Method::Auto, Some(cpu))));
    }
    wanted.extend(
        keys(agent, vm::NAME)
            .into_iter()
            .map(|vm| (vm, policy, method, cpu)),
    );
    let mut said = String::new();
    for (vm, policy, method, cpu) in wanted {
        let ask = Ask {
            policy,
            cpu,
            ..Ask::default()
        };
        let pinned = agent.pin(vm, Pinning { ask, method });
        let pinned = pinned.map_err(|e| format!("{}: {e}", arm.name))?;
        check(
            pinned.complaints.is_empty(),
            format!("{}: {pinned:?}", arm.name),
        )?;
        let (seat, by) = (&pinned.seat, pinned.method.word());
        said = format!(
            "{}: vCPUs {:?}, path {:?}, by {by}, {} values, left: {:?}",
            pinned.acts, seat.vcpus, seat.path, pinned.set, pinned.left
        );
    }
    Ok(said)
}

fn measure(
    job: &Job,
    client: &Client,
    agent: &mut Agent,
    arm: &Arm,
    bound: String,
) -> Result<Row, String> {
    let look = |agent: &mut Agent| {
        std::thread::sleep(LOOK);
        match arm.pin {
            Some(_) => agent.tick().map(drop).map_err(|e| e.to_string()),
            None => Ok(()),
        }
    };
    let settled = Instant::now() + SETTLE;
    while Instant::now() < settled {
        look(agent)?;
    }
    let (used, began) = (used_ns(agent)?, Instant::now());
    client.ask(job.measure_ns, job.seed);
    let measured = loop {
        look(agent)?;
        if let Some(measured) = client.done() {
            break measured?;
        }
    };
    let took_ns = began.elapsed().as_nanos() as f64;
    let hogs = (used_ns(agent)? - used) as f64 / took_ns;
    let mut all = measured.round_trips_ns;
    all.sort_unstable();
    // Nearest rank.
    let at = |part: f64| {
        let rank = (all.len() as f64 * part).ceil() as usize;
        all.get(rank.max(1) - 1)
            .map_or(f64::INFINITY, |ns| *ns as f64)
    };
    Ok(Row {
        name: arm.name.into(),
        sent: measured.sent,
        answered: all.len(),
        mean: all.iter().sum::<u64>() as f64 / all.len().max(1) as f64,
        p50: at(0.5),
        p99: at(0.99),
        most: at(1.0),
        hogs,
        bound,
    })
}

/// CPU time that the computing VMs have used.
fn used_ns(agent: &Agent) -> Result<u64, String> {
    let hogs = agent
        .vms()
        .vms
        .iter()
        .filter(|vm| vm.name.starts_with("hog"));
    let mut all = 0;
    for thread in hogs.flat_map(|vm| &vm.threads) {
        let file = format!("/proc/{}/task/{}/schedstat", thread.id.pid, thread.id.tid);
        let text = fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
        let first = text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        all += first.ok_or(file)?;
    }
    Ok(all)
}

/// What binding sets, by file: where each thread may run, the queues of devices, the CPU sets of cgroups.
fn state() -> Result<State, String> {
    let mut all = BTreeMap::new();
    let here = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|e| e.path().display().to_string()).collect()
    };
    for process in here("/proc")
        .iter()
        .filter(|p| p.ends_with(|c: char| c.is_ascii_digit()))
    {
        for thread in here(&format!("{process}/task")) {
            // One that has ended meanwhile is none.
            let Ok(status) = fs::read_to_string(format!("{thread}/status")) else {
                continue;
            };
            let line = status.lines().find(|l| l.starts_with("Cpus_allowed:"));
            all.insert(thread, line.unwrap_or("").to_string());
        }
    }
    for queue in here("/sys/class/net")
        .iter()
        .flat_map(|d| here(&format!("{d}/queues")))
    {
        for file in ["rps_cpus", "xps_cpus"].map(|f| format!("{queue}/{f}")) {
            // A queue has one of them, and one of a device with one queue cannot be read.
            if let Ok(text) = fs::read_to_string(&file) {
                all.insert(file, text);
            }
        }
    }
    for group in here(GROUPS) {
        let file = format!("{group}/cpuset.cpus");
        if let Ok(text) = fs::read_to_string(&file) {
            all.insert(file, text);
        }
    }
    check(
        all.keys().any(|f| f.contains("rps_cpus")) && all.keys().any(|f| f.contains("cpuset")),
        "queues and CPU sets are seen",
    )?;
    Ok(all)
}

/// All that is still there is byte for byte what it was.
fn put_back(before: &State, after: &State) -> Result<(), String> {
    for (file, was) in before {
        let same = after.get(file).is_none_or(|is| is == was);
        check(
            same,
            format!("{file}: {:?}, and was {was:?}", after.get(file)),
        )?;
    }
    check(
        before
            .keys()
            .filter(|f| !f.starts_with("/proc"))
            .all(|f| after.contains_key(f)),
        "a queue or a CPU set is gone",
    )
}
