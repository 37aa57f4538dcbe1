// SPDX-License-Identifier: GPL-2.0-only
//! What acting without sched_ext has to survive, on a real kernel beside real micro-VMs: somebody else who writes to
//! what is pinned, again and again; CPUs that go and come; cgroups that are made, moved into and removed while VMs'
//! weights are set. In short one boot with the other cases (6 s of the duel, some cycles); in full, with
//! `BERTH_LAB_LONG=1` (`make survival`), a boot each.
use super::agent::{load, place, rules, until};
use super::path::{GROUPS, cpu_ns, enable};
use super::{HUNG, check, coarse, host, is_long, options, read_scenario, with_micro_vms};
use berth_affinity::{Ask, Policy as Pin};
use berth_agent::agent::{Agent, Event};
use berth_agent::backend::Policy;
use berth_agent::pins::{Method, Pinning};
use berth_agent::register::VmKey;
use berth_host::model::{Role, Vm};
use berth_host::root::Root;
use berth_lab::assets::Assets;
use berth_lab::run::LabOptions;
use berth_scenario::model::Scenario;
use berth_scx::Loaded;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const VMS: &str = r#"
[vm.web]
tasks = ["tick"]
[vm.hog]
count = 3
tasks = ["burn"]
[task.tick]
loop = ["sleep 5ms", "compute 20us"]
[task.burn]
model = "busy"
[compare]
policies = ["linux"]
"#;
/// The daemon looks so often.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// Whoever writes to what is pinned does it so often.
const WRITES: Duration = Duration::from_millis(500);
/// What is to be noticed is, after this.
pub(super) const SOON: Duration = Duration::from_secs(1);
/// After cgroups have come and gone, shares are right again.
const SETTLED: Duration = Duration::from_secs(2);
/// Online on every machine, and the one that goes.
const STAYS: &str = "0";
pub(super) const GOES: &str = "1";

/// How much of each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Amount {
    duel_s: u64,
    cycles: u32,
    groups: u32,
    /// So long shares are measured. Three VMs on two CPUs take turns: within 2 s one may have had a tenth less than
    /// its part. It is a few turns however long it is measured: within 5 s a twenty-fifth.
    measured_s: u64,
}

const SHORT: Amount = Amount {
    duel_s: 6,
    cycles: 6,
    groups: 200,
    measured_s: 5,
};
const NOTHING: Amount = Amount {
    duel_s: 0,
    cycles: 0,
    groups: 0,
    measured_s: 0,
};

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    scenario: Scenario,
    amount: Amount,
}

pub fn survived(assets: &Assets) -> Result<String, String> {
    boot(assets, SHORT, options())
}

pub fn duel_of_an_hour(assets: &Assets) -> Result<String, String> {
    let amount = Amount {
        duel_s: 3600,
        ..NOTHING
    };
    boot(assets, amount, coarse())
}

pub fn a_thousand_cycles(assets: &Assets) -> Result<String, String> {
    let amount = Amount {
        cycles: 1000,
        ..NOTHING
    };
    boot(assets, amount, coarse())
}

pub fn ten_thousand_groups(assets: &Assets) -> Result<String, String> {
    let amount = Amount {
        groups: 10_000,
        measured_s: 10,
        ..NOTHING
    };
    boot(assets, amount, options())
}

fn boot(assets: &Assets, amount: Amount, options: LabOptions) -> Result<String, String> {
    let mut scenario = read_scenario("cores = 2", VMS)?;
    scenario.run.warmup_ns = 0;
    // It is ended before.
    scenario.run.measure_ns = 24 * 3_600 * 1_000_000_000;
    let job = Job { scenario, amount };
    let options = LabOptions {
        timeout: if is_long() { 12 * HUNG } else { HUNG },
        ..options
    };
    let result = with_micro_vms(assets, "survival", host(1, 1, 1, 2, 1), json!(job), options)?;
    Ok(result.as_str().unwrap_or("").to_string())
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let job: Job = serde_json::from_value(input.clone()).map_err(|e| e.to_string())?;
    enable(Path::new("/sys/fs/cgroup"))?;
    // It ends with this machine.
    let _load = load(job.scenario, 1);
    let mut agent = Agent::new(Root::live(), place(), rules(), None);
    until("4 VMs are known, and their vCPUs", &mut || {
        tick(&mut agent)?;
        Ok(whole(&agent) == 4)
    })?;
    enable(Path::new(GROUPS))?;
    let Amount {
        duel_s,
        cycles,
        groups,
        ..
    } = job.amount;
    let mut said = Vec::new();
    // First: of the first cycle nobody has looked yet.
    if cycles > 0 {
        said.push(cpus_go_and_come(&mut agent, cycles)?);
    }
    if duel_s > 0 {
        said.push(duel(&mut agent, Duration::from_secs(duel_s))?);
    }
    if groups > 0 {
        said.push(groups_come_and_go(&mut agent, job.amount)?);
    }
    Ok(json!(said.join("; ")))
}

pub(super) fn vms(agent: &Agent) -> impl Iterator<Item = &Vm> {
    let vms = agent.vms().vms.iter().map(AsRef::as_ref);
    vms.filter(|vm| !vm.name.starts_with("init-"))
}

/// VMs whose vCPU is known: the process of one is seen before.
pub(super) fn whole(agent: &Agent) -> usize {
    vms(agent).filter(|vm| vm.known_vcpus() == 1).count()
}

fn web(agent: &Agent) -> Result<&Vm, String> {
    vms(agent)
        .find(|vm| vm.name == "web")
        .ok_or("no web".into())
}

/// What is said of pins.
fn tick(agent: &mut Agent) -> Result<Vec<String>, String> {
    let events = agent.tick().map_err(|e| e.to_string())?;
    let said = events.into_iter().filter_map(|e| match e {
        Event::Pins(said) => Some(said),
        _ => None,
    });
    Ok(said.collect())
}

/// Looks as the daemon does, for so long.
fn look_for(agent: &mut Agent, time: Duration) -> Result<Vec<String>, String> {
    let (end, mut said) = (Instant::now() + time, Vec::new());
    while Instant::now() < end {
        std::thread::sleep(LOOK);
        said.extend(tick(agent)?);
    }
    Ok(said)
}

pub(super) fn pin(agent: &mut Agent, method: Method) -> Result<(), String> {
    let vm = web(agent)?;
    let key = VmKey {
        pid: vm.pid,
        start: vm.start,
    };
    let ask = Ask {
        policy: Pin::Full,
        cpu: GOES.parse().ok(),
        ..Ask::default()
    };
    let pinned = agent.pin(key, Pinning { ask, method });
    let pinned = pinned.map_err(|e| e.to_string())?;
    check(pinned.complaints.is_empty(), format!("{pinned:?}"))
}

/// Where each thread of the VM may run, by its number. KVM's helpers are not bound.
pub(super) fn masks(agent: &Agent) -> Result<Vec<(i32, String)>, String> {
    let vm = web(agent)?;
    let of = |tid: i32| {
        let path = format!("/proc/{}/task/{tid}/status", vm.pid);
        let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
        Ok((tid, line.unwrap_or("").trim().to_string()))
    };
    let bound = vm.threads.iter().filter(|t| t.role != Role::Other);
    bound.map(|t| of(t.id.tid)).collect()
}

pub(super) fn set_mask(tid: i32, cpus: &[usize]) -> Result<(), String> {
    // SAFETY: all zeroes are an empty set; a value of this function's own.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        libc::sched_setaffinity(tid, size_of_val(&set), &raw const set)
    };
    let error = std::io::Error::last_os_error();
    check(done == 0, format!("thread {tid}: {error}"))
}

/// Somebody else binds a thread that is pinned, again and again: it is noticed soon, said once, and what he sets stays
/// as he set it, also when the pin is undone. All other threads are put back.
fn duel(agent: &mut Agent, time: Duration) -> Result<String, String> {
    let before = masks(agent)?;
    pin(agent, Method::Taskset)?;
    let bound = masks(agent)?;
    check(
        bound.iter().all(|(_, cpus)| cpus == GOES),
        format!("it is not pinned: {bound:?}"),
    )?;
    let tid = bound.last().ok_or("no thread")?.0;
    let of_it = |all: &[(i32, String)]| all.iter().find(|(t, _)| *t == tid).map(|t| t.1.clone());
    let (began, mut writes, mut noticed, mut said) = (Instant::now(), 0u64, None, Vec::new());
    let mut last = "";
    while began.elapsed() < time {
        last = if writes % 2 == 0 { STAYS } else { "0-1" };
        set_mask(tid, if writes % 2 == 0 { &[0] } else { &[0, 1] })?;
        writes += 1;
        said.extend(look_for(agent, WRITES)?);
        if noticed.is_none() && !said.is_empty() {
            noticed = Some(began.elapsed());
        }
        let now = of_it(&masks(agent)?);
        check(
            now.as_deref() == Some(last),
            format!("after {writes} writes it is {now:?}, and not {last}: {said:?}"),
        )?;
    }
    let noticed = noticed.ok_or("nobody said anything")?;
    check(
        noticed <= SOON + WRITES,
        format!("it was noticed after {noticed:?}"),
    )?;
    check(
        said.len() == 1,
        format!("{} sentences: {said:?}", said.len()),
    )?;
    agent.unpin(None).map_err(|e| e.to_string())?;
    let after = masks(agent)?;
    for (t, was) in &before {
        let now = after
            .iter()
            .find(|(a, _)| a == t)
            .map(|(_, cpus)| cpus.as_str());
        let should = if *t == tid { last } else { was };
        check(
            now == Some(should),
            format!("thread {t}: {now:?}, and should be {should}"),
        )?;
    }
    set_mask(tid, &[0, 1])?;
    Ok(format!(
        "a duel of {} s: {writes} writes of somebody else's, noticed after {:.2} s, said once, none undone",
        time.as_secs(),
        noticed.as_secs_f64()
    ))
}

/// The CPU on which a VM is pinned goes: it is planned anew on one that is there, nobody is blamed, and what was there
/// is there again after the CPU has come and the VM is unpinned.
fn cpus_go_and_come(agent: &mut Agent, cycles: u32) -> Result<String, String> {
    let before = masks(agent)?;
    let file = format!("/sys/devices/system/cpu/cpu{GOES}/online");
    let set = |online: &str| fs::write(&file, online).map_err(|e| format!("{file}: {e}"));
    let mut worst = Duration::ZERO;
    for cycle in 1..=cycles {
        let at = |what: String| format!("cycle {cycle}: {what}");
        let method = [Method::Taskset, Method::Cgroup][cycle as usize % 2];
        pin(agent, method).map_err(at)?;
        set("0").map_err(at)?;
        let (gone, mut said) = (Instant::now(), Vec::new());
        loop {
            std::thread::sleep(Duration::from_millis(20));
            said.extend(tick(agent).map_err(at)?);
            let now = masks(agent).map_err(at)?;
            if !said.is_empty() && now.iter().all(|(_, cpus)| cpus == STAYS) {
                break;
            }
            check(
                gone.elapsed() < 5 * SOON,
                at(format!("{now:?} while only CPU 0 is online: {said:?}")),
            )?;
        }
        worst = worst.max(gone.elapsed());
        set("1").map_err(at)?;
        said.extend(look_for(agent, LOOK).map_err(at)?);
        check(
            said.iter().all(|s| s.contains("planned anew")),
            at(format!("somebody is blamed: {said:?}")),
        )?;
        agent.unpin(None).map_err(|e| at(e.to_string()))?;
        let after = masks(agent).map_err(at)?;
        check(
            after == before,
            at(format!("after: {after:?}, before: {before:?}")),
        )?;
    }
    check(worst <= SOON, format!("planned anew only after {worst:?}"))?;
    Ok(format!(
        "a CPU went and came {cycles} times: planned anew after at most {:.2} s",
        worst.as_secs_f64()
    ))
}

/// Groups with a process in them come and go while the optimiser sets weights: no complaint of the kernel (that is
/// looked for after the boot), no trouble, and the VMs' shares are right.
fn groups_come_and_go(agent: &mut Agent, amount: Amount) -> Result<String, String> {
    let groups = amount.groups;
    agent
        .start(Policy::optimiser(false))
        .map_err(|e| e.to_string())?;
    let child = Sleeper::new()?;
    let root = "/sys/fs/cgroup/cgroup.procs";
    let pid = child.0.to_string();
    let mut looked = Instant::now();
    for number in 0..groups {
        let group = format!("/sys/fs/cgroup/berth-{}", number % 7);
        let failed = |e: std::io::Error| format!("{group}, the {number}th: {e}");
        fs::create_dir(&group).map_err(failed)?;
        fs::write(format!("{group}/cgroup.procs"), &pid).map_err(failed)?;
        if looked.elapsed() >= LOOK {
            tick(agent)?;
            looked = Instant::now();
        }
        fs::write(root, &pid).map_err(failed)?;
        fs::remove_dir(&group).map_err(failed)?;
    }
    look_for(agent, SETTLED)?;
    let (from, began) = (used_ns(agent)?, Instant::now());
    look_for(agent, Duration::from_secs(amount.measured_s))?;
    let to = used_ns(agent)?;
    let took = began.elapsed().as_nanos() as f64;
    let shares: Vec<f64> = from
        .iter()
        .zip(&to)
        .map(|(a, b)| (b - a) as f64 / took)
        .collect();
    check(
        agent.status().trouble.is_none(),
        format!("{:?}", agent.status().trouble),
    )?;
    let warnings = agent.status().policy.map(|p| p.warnings);
    agent.stop().map_err(|e| e.to_string())?;
    let fair = shares.iter().sum::<f64>() / shares.len() as f64;
    check(
        shares.len() == 3 && shares.iter().all(|s| (s / fair - 1.0).abs() < 0.1),
        format!("shares of CPUs: {shares:?}; {warnings:?}"),
    )?;
    Ok(format!(
        "{groups} cgroups came and went: then three equal VMs had {:.2} CPUs each",
        fair
    ))
}

/// CPU time of each computing VM.
fn used_ns(agent: &Agent) -> Result<Vec<u64>, String> {
    let hogs = vms(agent).filter(|vm| vm.name.starts_with("hog"));
    hogs.map(cpu_ns).collect()
}

/// A process that does nothing, killed when dropped.
struct Sleeper(libc::pid_t);

impl Sleeper {
    fn new() -> Result<Sleeper, String> {
        // SAFETY: the copy only sleeps until it is killed.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error().to_string()),
            0 => loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            },
            pid => Ok(Sleeper(pid)),
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // SAFETY: our own child, which has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
