// SPDX-License-Identifier: GPL-2.0-only
//! The whole path of a VM's packets on a real kernel: a client in a network namespace, a cable (veth), a bridge, a tap,
//! the worker of vhost-net, a vCPU of a micro-VM whose guest sends each frame back, and the same way home; beside it
//! three computing VMs for each CPU. It is bound by Berth's own agent, as `berth pin` has it done, in most of its ways
//! or in all.
//!
//! What is not real: the card (a cable instead, whose packets go on where they are sent), and the guest's card (it
//! knows where its rings are). The CPUs have no caches.
mod client;
mod network;
mod table;
mod vm;
mod ways;

use super::agent::{place, until};
use super::survival::set_mask;
use super::{NEVER, check, host, options, read_scenario, with_micro_vms};
use berth_affinity::{Ask, Policy};
use berth_agent::agent::Agent;
use berth_agent::pins::{Method, Pinning};
use berth_agent::register::VmKey;
use berth_agent::rules::Rules;
use berth_host::model::{Role, Vm};
use berth_host::profile::{Count, Functions};
use berth_host::root::Root;
use berth_lab::assets::{Assets, modules};
use berth_lab::run::LabOptions;
use berth_loadgen::Vcpus;
use berth_scenario::model::Scenario;
use berth_scx::Loaded;
use berth_tracer::CallCounter;
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
use ways::{Arm, CONFINED, COUNTED, JUDGED, LINUX, PAIRS, Ways};

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
const EVERY_CPU: [usize; CPUS as usize] = [0, 1];
pub(super) const GROUPS: &str = "/sys/fs/cgroup/berth";
const BRIDGE: &str = "br0";
const CABLE: &str = "cable0";
/// After a change, before measuring.
const SETTLE: Duration = Duration::from_millis(500);
/// Packets, in the shortest time that is measured: some 36 are.
const LEAST_SENT: usize = 15;
/// An agent looks so often.
const LOOK: Duration = Duration::from_millis(200);

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
    /// Where it was bound.
    bound: String,
    /// Samples by part of the kernel, of as many packets again.
    samples: BTreeMap<String, u64>,
    packets: usize,
    /// Calls by part of the kernel, and of functions, of as many packets once more.
    calls: BTreeMap<String, u64>,
    functions: BTreeMap<String, u64>,
    counted: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    scenario: Scenario,
    measure_ns: u64,
    seed: u64,
    ways: Ways,
}

impl Job {
    /// How long before measuring, and how long it is measured (ns). In short only those that are judged by times
    /// have all of it: of the others it is seen that every packet comes back.
    fn times(&self, arm: &Arm) -> (Duration, u64) {
        match self.ways != Ways::Short || JUDGED.contains(&arm.name) {
            true => (SETTLE, self.measure_ns),
            false => (2 * LOOK, self.measure_ns * 3 / 10),
        }
    }
}

/// Parts of the kernel that are on the path.
const PARTS: [&str; 6] = ["veth", "bridge", "tun", "vhost", "vhost_net", "kvm"];

pub fn measured(assets: &Assets) -> Result<String, String> {
    let ways = Ways::asked()?;
    let seeds = std::env::var("BERTH_LAB_SEEDS").ok();
    let usual = match ways {
        Ways::Pairs => 10,
        Ways::All => 3,
        Ways::Short => 1,
    };
    let seeds: u64 = match seeds.map(|n| n.parse()) {
        None => usual,
        Some(Ok(seeds)) if seeds > 0 => seeds,
        Some(_) => return Err("BERTH_LAB_SEEDS is to be a number of boots".into()),
    };
    let (mut said, mut all) = (String::new(), Vec::new());
    for seed in 1..=seeds {
        let rows = match table::kept(ways, seed)? {
            Some(rows) => rows,
            None => {
                let rows = boot(assets, seed, ways)?;
                table::keep(ways, seed, &rows)?;
                rows
            }
        };
        said += &format!("\n  seed {seed}");
        for row in &rows {
            said += &shown(row);
        }
        for row in &rows {
            check(
                row.sent >= LEAST_SENT && row.answered == row.sent,
                format!("packets were lost, or hardly any were sent: {row:?}"),
            )?;
        }
        let p99 = |name: &str| rows.iter().find(|r| r.name == name).map_or(0.0, |r| r.p99);
        check(
            ways == Ways::Pairs || p99(CONFINED) <= 0.8 * p99(LINUX.name),
            format!(
                "with the computing VMs confined the p99 is not a fifth below that of unbound Linux{said}"
            ),
        )?;
        all.push(rows);
    }
    if seeds > 1 {
        said += &format!("\n\n{}\n{}", table::times(&all), table::parts(&all));
    }
    if ways == Ways::Pairs {
        for [none, ways @ ..] in &PAIRS {
            for way in ways {
                said += &table::compared(&all, none.name, way.name);
            }
        }
    }
    Ok(said)
}

fn shown(row: &Row) -> String {
    let mut said = format!(
        "\n  {:<22} {} packets: mean {:.0}, p50 {:.0}, p99 {:.0}, max {:.0} us; others had {:.2} CPUs; {}",
        row.name,
        row.answered,
        row.mean / 1e3,
        row.p50 / 1e3,
        row.p99 / 1e3,
        row.most / 1e3,
        row.hogs,
        row.bound,
    );
    if row.packets > 0 {
        let per = |part: &&str| {
            let samples = row.samples.get(*part).copied().unwrap_or(0);
            format!("{part} {:.0}", samples as f64 * 1e3 / row.packets as f64)
        };
        let all: Vec<String> = PARTS.iter().map(per).collect();
        said += &format!("; samples of 1,000 packets: {}", all.join(", "));
    }
    if row.counted > 0 {
        let per = |part: &&str| {
            let calls = row.calls.get(*part).copied().unwrap_or(0);
            format!("{part} {:.1}", calls as f64 / row.counted as f64)
        };
        let all: Vec<String> = PARTS.iter().map(per).collect();
        said += &format!("; calls of a packet: {}", all.join(", "));
    }
    said
}

fn boot(assets: &Assets, seed: u64, ways: Ways) -> Result<Vec<Row>, String> {
    let mut scenario = read_scenario(&format!("cores = {CPUS}"), VMS)?;
    scenario.run.warmup_ns = 0;
    // It is ended before.
    scenario.run.measure_ns = 3_600_000_000_000;
    let job = Job {
        scenario,
        measure_ns: (ways.seconds() * 1e9) as u64,
        seed,
        ways,
    };
    let modules = modules::path(&assets.kernel, &|_| (), &NEVER).map_err(|e| e.to_string())?;
    let options = LabOptions {
        modules,
        // All ways take an hour beside other work.
        timeout: Duration::from_secs(if ways == Ways::Short { 1800 } else { 3 * 3600 }),
        ..options()
    };
    let result = with_micro_vms(assets, "path", host(1, 1, 1, CPUS, 1), json!(job), options)?;
    serde_json::from_value(result).map_err(|e| e.to_string())
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let job: Job = serde_json::from_value(input.clone()).map_err(|e| e.to_string())?;
    client::network_is_quiet()?;
    tracefs()?;
    network::add_bridge(BRIDGE)?;
    network::up(BRIDGE, None)?;
    let client = Client::start(CABLE)?;
    network::up(CABLE, Some(BRIDGE))?;
    enable(Path::new("/sys/fs/cgroup"))?;
    let over = Arc::new(AtomicBool::new(false));
    let load = load(job.scenario.clone(), Arc::clone(&over));
    let rows = beside(&job, &client, &over);
    over.store(true, Ordering::Relaxed);
    // What ended the load ended what is beside it, too.
    load.join().map_err(|_| "the load panicked")??;
    Ok(json!(rows?))
}

/// What says which functions can be watched.
fn tracefs() -> Result<(), String> {
    // SAFETY: plain strings that end in a zero byte.
    let done = unsafe {
        let (what, place) = (c"tracefs".as_ptr(), c"/sys/kernel/tracing".as_ptr());
        libc::mount(what, place, what, 0, std::ptr::null())
    };
    let error = std::io::Error::last_os_error();
    match done == 0 || error.raw_os_error() == Some(libc::EBUSY) {
        true => Ok(()),
        false => Err(format!("tracefs: {error}")),
    }
}

/// CPU sets for the groups below.
pub(super) fn enable(group: &Path) -> Result<(), String> {
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
            Err(e) => {
                over.store(true, Ordering::Relaxed);
                Err(e.to_string())
            }
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

/// Binds in one way after the other, and measures each.
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
    let mut echos = Vec::new();
    let mut rows = Vec::new();
    for arm in job.ways.arms(job.seed) {
        while echos.len() < arm.vms {
            echos.push(Echo::start(echos.len())?);
        }
        until("the VMs that answer are known", &mut || {
            agent.tick().map_err(|e| e.to_string())?;
            let vms = agent.vms().vms.iter();
            let known = vms.filter(|vm| {
                vm.name.starts_with(vm::NAME) && has(vm, Role::Vcpu(0)) && has(vm, Role::Vhost)
            });
            Ok(known.count() == arm.vms)
        })?;
        let before = state()?;
        let bound = bind(&mut agent, arm)?;
        check_bound(&agent, arm, &before, &state()?)?;
        let mut row = measure(job, client, &mut agent, arm, bound)?;
        // It is there still.
        if arm.pin.is_some_and(|p| p.2.is_some()) || arm.first_thread.is_some() {
            check_bound(&agent, arm, &before, &state()?)?;
        }
        let profiled = job.ways == Ways::All && table::PROFILED.contains(&arm.name);
        if profiled {
            profile(job, client, &agent, arm, &mut row)?;
        }
        if profiled || arm.name == COUNTED {
            count(job, client, &agent, arm, &mut row)?;
        }
        agent.unpin(None).map_err(|e| e.to_string())?;
        if arm.first_thread.is_some() {
            first_threads(&agent, &EVERY_CPU)?;
        }
        put_back(&before, &state()?)?;
        println!("{row:?}");
        rows.push(row);
    }
    Ok(rows)
}

/// A VM that answers, and its cgroup.
struct Echo {
    vm: Option<vm::Vm>,
    group: String,
}

impl Echo {
    fn start(number: usize) -> Result<Echo, String> {
        let group = format!("{GROUPS}/{}-{number}", vm::NAME);
        let failed = |e: std::io::Error| format!("{group}: {e}");
        fs::create_dir(&group).map_err(failed)?;
        fs::write(format!("{group}/cgroup.type"), "threaded").map_err(failed)?;
        let vm = vm::Vm::start(number, &group)?;
        network::up(&vm::tap(number), Some(BRIDGE))?;
        Ok(Echo {
            vm: Some(vm),
            group,
        })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.vm = None;
        // Its threads are seen as ended a little later; what is left ends with this machine.
        let _ = until("its cgroup can go", &mut || {
            Ok(fs::remove_dir(&self.group).is_ok())
        });
    }
}

/// The kernel itself has what the arm is to set: masks of all threads but KVM's helpers, and the queues of the path
/// where they are the VM's alone.
fn check_bound(agent: &Agent, arm: &Arm, before: &State, now: &State) -> Result<(), String> {
    let policy = arm.pin.map_or(Policy::None, |p| p.0);
    if policy == Policy::None {
        let other = |(file, was): &(&String, &String)| now.get(*file).is_some_and(|is| is != *was);
        let set: Vec<&String> = before.iter().filter(other).map(|(file, _)| file).collect();
        let by_hand = match arm.first_thread {
            None => 0,
            Some(_) => arm.vms,
        };
        // A first thread has its process's number.
        let leads = |file: &&String| {
            let mut parts = file.rsplit('/');
            parts.next() == parts.nth(1) && arm.first_thread.is_some_and(|cpu| on(now, file, cpu))
        };
        return check(
            set.len() == by_hand && set.iter().all(leads),
            format!("{}: {set:?} was set", arm.name),
        );
    }
    let vms = agent.vms().vms.iter();
    let named = |name: &'static str| vms.clone().filter(move |vm| vm.name.starts_with(name));
    let confined = arm.confined.iter().flat_map(|_| named("hog"));
    for vm in named(vm::NAME).chain(confined) {
        for thread in vm
            .threads
            .iter()
            .filter(|t| matches!(t.role, Role::Vcpu(_) | Role::Vhost))
        {
            let file = format!("/proc/{}/task/{}", thread.id.pid, thread.id.tid);
            let asked = match vm.name.starts_with(vm::NAME) {
                true => arm.pin.and_then(|p| p.2),
                false => arm.confined,
            };
            let there = (0..CPUS).any(|cpu| on(now, &file, cpu) && asked.is_none_or(|a| a == cpu));
            check(
                there,
                format!("{}: {file} has {:?}", arm.name, now.get(&file)),
            )?;
        }
    }
    let steered = now
        .iter()
        .filter(|(file, mask)| file.ends_with("rps_cpus") && before.get(*file) != Some(*mask));
    let steered: Vec<&str> = steered
        .filter_map(|(file, _)| file.split('/').nth(4))
        .collect();
    let path: Vec<String> = match (policy, arm.vms) {
        (Policy::Paper, _) => Vec::new(),
        (_, 1) => vec![CABLE.into(), vm::tap(0)],
        // The cable is everybody's.
        (_, n) => (0..n).map(vm::tap).collect(),
    };
    check(
        steered == path,
        format!("{}: RPS was set of {steered:?}, not of {path:?}", arm.name),
    )
}

/// A thread may run on this CPU alone.
fn on(now: &State, thread: &str, cpu: u32) -> bool {
    let mask = now
        .get(thread)
        .and_then(|line| line.split_whitespace().last());
    mask.is_some_and(|mask| u32::from_str_radix(mask, 16) == Ok(1 << cpu))
}

/// Where the kernel spends its time meanwhile.
fn profile(
    job: &Job,
    client: &Client,
    agent: &Agent,
    arm: &Arm,
    row: &mut Row,
) -> Result<(), String> {
    let echo = echo(agent)?;
    client.ask(ask(job, arm));
    let cpus: Vec<u32> = (0..CPUS).collect();
    let time = Duration::from_nanos(job.measure_ns);
    let seen =
        berth_host::profile::watch(echo, &cpus, time, &|| false).map_err(|e| e.to_string())?;
    row.samples = seen
        .samples
        .into_iter()
        .map(|(part, count)| (part, count.all))
        .collect();
    row.packets = wait(client)?;
    Ok(())
}

fn echo(agent: &Agent) -> Result<&Vm, String> {
    let mut vms = agent.vms().vms.iter().map(AsRef::as_ref);
    vms.find(|vm: &&Vm| vm.name.starts_with(vm::NAME))
        .ok_or("no VM".into())
}

/// Until the client is done: how many packets it has sent.
fn wait(client: &Client) -> Result<usize, String> {
    loop {
        if let Some(measured) = client.done() {
            return Ok(measured?.sent);
        }
        std::thread::sleep(LOOK);
    }
}

/// How often the kernel's functions are called, as `berth profile --calls` counts them. Each packet goes over the cable
/// there and back, and into the tap once: no call is counted twice, and none is missed that is not said to be lost.
fn count(
    job: &Job,
    client: &Client,
    agent: &Agent,
    arm: &Arm,
    row: &mut Row,
) -> Result<(), String> {
    // Of KVM there are thousands, which an emulated CPU takes long to patch.
    let functions = Functions::on_the_path().map_err(|e| e.to_string())?;
    let functions = functions.of_parts(&["veth", "bridge", "tun", "vhost", "vhost_net"]);
    let counter = CallCounter::start(echo(agent)?, functions).map_err(|e| e.to_string())?;
    client.ask(ask(job, arm));
    let packets = wait(client)?;
    let calls = counter.read().map_err(|e| e.to_string())?;
    drop(counter);
    let all = |(name, count): (String, Count)| (name, count.all);
    let of = |name: &str| calls.functions.get(name).copied().unwrap_or_default();
    let (cable, tap) = (of("veth_xmit"), of("tun_net_xmit"));
    // An interrupt that comes while a call is counted may call others, which are lost.
    let missed = (3 * packets as u64).checked_sub(cable.all + tap.all);
    check(
        cable.all <= 2 * packets as u64 && missed.is_some_and(|missed| missed <= calls.lost),
        format!(
            "{packets} packets: {cable:?} over the cable, {tap:?} into the tap, {} lost",
            calls.lost
        ),
    )?;
    // What comes out of the VM is put on its way by its vhost worker, one or several at a time.
    let out = of("tun_sendmsg");
    check(
        (1..=packets as u64).contains(&out.all) && (arm.vms > 1 || out.of_vm == out.all),
        format!("{packets} packets, out of the tap {out:?}"),
    )?;
    row.calls = calls.calls.into_iter().map(all).collect();
    row.functions = calls.functions.into_iter().map(all).collect();
    row.counted = packets;
    Ok(())
}

fn ask(job: &Job, arm: &Arm) -> client::Ask {
    client::Ask {
        ns: job.times(arm).1,
        vms: arm.vms,
        seed: job.seed,
    }
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
    if let Some(cpu) = arm.confined {
        for vm in keys(agent, "hog") {
            pin(agent, arm, vm, (Policy::Full, Method::Auto, Some(cpu)))?;
        }
    }
    if let Some(cpu) = arm.first_thread {
        first_threads(agent, &[cpu as usize])?;
    }
    let mut said = Vec::new();
    for vm in keys(agent, vm::NAME) {
        said.push(pin(agent, arm, vm, (policy, method, cpu))?);
    }
    Ok(said.join(", "))
}

fn first_threads(agent: &Agent, cpus: &[usize]) -> Result<(), String> {
    let mut vms = keys(agent, vm::NAME).into_iter();
    vms.try_for_each(|vm| set_mask(vm.pid, cpus))
}

fn pin(
    agent: &mut Agent,
    arm: &Arm,
    vm: VmKey,
    (policy, method, cpu): (Policy, Method, Option<u32>),
) -> Result<String, String> {
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
    Ok(format!(
        "{} by {by} on {:?}{:?}",
        pinned.acts, seat.vcpus, seat.path
    ))
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
    let settled = Instant::now() + job.times(arm).0;
    while Instant::now() < settled {
        look(agent)?;
    }
    let (used, began) = (used_ns(agent)?, Instant::now());
    client.ask(ask(job, arm));
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
        samples: BTreeMap::new(),
        packets: 0,
        calls: BTreeMap::new(),
        functions: BTreeMap::new(),
        counted: 0,
    })
}

/// CPU time that the computing VMs have used.
fn used_ns(agent: &Agent) -> Result<u64, String> {
    let vms = agent.vms().vms.iter();
    vms.filter(|vm| vm.name.starts_with("hog"))
        .map(|vm| cpu_ns(vm))
        .sum()
}

/// CPU time that a VM's threads have used.
pub(super) fn cpu_ns(vm: &Vm) -> Result<u64, String> {
    let of = |thread: &berth_host::model::Thread| {
        let file = format!("/proc/{}/task/{}/schedstat", thread.id.pid, thread.id.tid);
        let text = fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
        let first = text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
        first.ok_or(file)
    };
    vm.threads.iter().map(of).sum()
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
