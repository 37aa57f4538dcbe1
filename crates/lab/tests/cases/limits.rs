// SPDX-License-Identifier: GPL-2.0-only
//! The limits of the study that asked for the optimiser (section 6.5 of its specification) under a real kernel's own
//! scheduler: a target beside sixteen VMs and alone, VMs that come and go, a target that sleeps, a VM of eight vCPUs
//! beside one of one. What a target gets done is its CPU time here, and stands for UnixBench: idle emulated CPUs make
//! the others faster. By hand: it takes many minutes.
use super::batch::clock_ns;
use super::path::{GROUPS, enable};
use super::{NEVER, check, host, options, with_micro_vms};
use berth_lab::Vcpus;
use berth_lab::assets::Assets;
use berth_lab::optimiser::Beside;
use berth_lab::run::{LabArm, LabOptions, run};
use berth_results::evenness::jain;
use berth_results::schema::RunRecord;
use berth_scenario::edit::Edit;
use berth_scenario::model::Scenario;
use berth_scenario::{Input, placement};
use berth_scx::Loaded;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The study's own experiment, at the ticks of the lab's kernels.
const STUDY: &str = include_str!("../../../../papers/schedulers/s6-optimiser.toml");
const TICKS: &str = "host.hz=250";
/// What the host has beyond the reserve of a twentieth.
const CAPACITY: f64 = 1.9;

// The limits.
/// Of the target's CPU time alone.
const INDEX: f64 = 0.85;
/// Of what the target leaves.
const REST: f64 = 0.9;
const EVEN: f64 = 0.9;
/// CPUs of whoever has the least.
const LEAST: f64 = 0.01;
const LENT_NS: u64 = 5 * SECOND_NS;
const BACK_NS: u64 = 3 * SECOND_NS;
const CONVERGED_NS: u64 = 5 * SECOND_NS;
const BETWEEN_CHANGES_NS: u64 = 10 * SECOND_NS;
const BY_VM: Range<f64> = 0.9..1.1;

const SECOND_NS: u64 = 1_000_000_000;
/// Who counts CPU time does so this often.
const SAMPLE: Duration = Duration::from_millis(250);
/// Below it, of a CPU, nobody is at work.
const AT_WORK: f64 = 0.1;

/// Sixteen VMs, of which half come at 15 s and the other half ends at 30 s.
const COME_AND_GO: &str = r#"
[run]
warmup  = "0s"
measure = "45s"
[host]
cores = 2
[vm.target]
tasks = ["busy"]
[vm.early]
count = 8
stop  = "30s"
tasks = ["half"]
[vm.late]
count = 8
start = "15s"
tasks = ["half"]
[task.busy]
model = "busy"
[task.half]
loop = ["compute exp(5ms)", "sleep exp(5ms)"]
[optimiser]
by = ["sets", "weights"]
[optimiser.vm.target]
service   = "target"
guarantee = "0.95 CPUs"
"#;

/// A target that works for ten seconds and sleeps for ten.
const NOW_AND_THEN: &str = r#"
[run]
warmup  = "0s"
measure = "45s"
[host]
cores = 2
[vm.target]
tasks = ["by-turns"]
[vm.other]
count = 16
tasks = ["half"]
[task.by-turns]
loop = ["compute 10s", "sleep 10s"]
[task.half]
loop = ["compute exp(5ms)", "sleep exp(5ms)"]
[optimiser]
by = ["sets", "weights"]
[optimiser.vm.target]
service   = "target"
guarantee = "0.95 CPUs"
"#;

const UNEQUAL: &str = r#"
[run]
warmup  = "6s"
measure = "10s"
[host]
cores = 2
[vm.wide]
vcpus = 8
tasks = ["busy"]
[vm.narrow]
tasks = ["busy"]
[task.busy]
model = "busy"
[optimiser]
"#;

fn scenario(text: &str, set: &[&str]) -> Result<Scenario, String> {
    let input = Input {
        name: "limits".into(),
        shown: "limits.toml".into(),
        text: text.into(),
        folder: None,
    };
    let edits: Vec<Edit> = set.iter().map(|e| Edit::Set(e.to_string())).collect();
    let read = berth_scenario::read(&input, &edits);
    read.map(|done| done.scenario).map_err(|e| e.to_string())
}

/// The kernel's own scheduler with each of these.
fn runs(arms: &[(&str, Scenario)], assets: &Assets) -> Result<Vec<RunRecord>, String> {
    let arm = |(name, scenario): &(&str, Scenario)| LabArm {
        name: name.to_string(),
        scenario: scenario.clone(),
        policy: None,
    };
    let arms: Vec<LabArm> = arms.iter().map(arm).collect();
    run(&arms, &[1], &patient(), assets, &|_| (), &NEVER).map_err(|e| e.to_string())
}

fn patient() -> LabOptions {
    LabOptions {
        vcpus: Vcpus::Kvm,
        timeout: Duration::from_secs(3_600),
        ..options()
    }
}

fn metric(run: &RunRecord, name: &str) -> Result<f64, String> {
    let value = run.metrics.get(name).copied();
    value.ok_or_else(|| format!("{}: no {name} in {:?}", run.arm, run.metrics))
}

/// The study's experiment.
pub fn beside_sixteen(assets: &Assets) -> Result<String, String> {
    let alone = scenario(STUDY, &[TICKS, "vm.dummy.count=0"])?;
    let without = scenario(STUDY, &[TICKS, "optimiser.on=false"])?;
    let with = scenario(STUDY, &[TICKS])?;
    let records = runs(
        &[("alone", alone), ("without", without), ("with", with)],
        assets,
    )?;
    let target = |i: usize| metric(&records[i], "target.cpu");
    let (alone, without, with) = (target(0)?, target(1)?, target(2)?);
    let of = |name: &str| metric(&records[2], name);
    let (dummies, jain) = (of("dummy.cpu")?, of("dummy.jain")?);
    let (least, changes) = (of("dummy.least")?, of("host.changes")?);
    let said = format!(
        "target alone {alone:.3} CPUs, beside 16 {without:.3}, with the optimiser {with:.3}; dummies {dummies:.3}, \
         Jain {jain:.3}, least {least:.4}, {changes:.2} changes a second"
    );
    check(with >= INDEX * alone, format!("the target: {said}"))?;
    check(
        dummies >= REST * (CAPACITY - with),
        format!("the rest: {said}"),
    )?;
    check(jain >= EVEN && least >= LEAST, format!("not even: {said}"))?;
    check(
        changes <= SECOND_NS as f64 / BETWEEN_CHANGES_NS as f64,
        format!("it goes on changing: {said}"),
    )?;
    Ok(said)
}

/// Eight vCPUs beside one.
pub fn by_vm(assets: &Assets) -> Result<String, String> {
    let records = runs(&[("unequal", scenario(UNEQUAL, &[])?)], assets)?;
    let ratio = metric(&records[0], "wide.cpu")? / metric(&records[0], "narrow.cpu")?;
    let said = format!("eight vCPUs have {ratio:.3} times what one has");
    check(BY_VM.contains(&ratio), &said)?;
    Ok(said)
}

/// CPU time of each VM at times, and when it changed how many VMs.
#[derive(Debug, Serialize, Deserialize)]
struct Watched {
    names: Vec<String>,
    samples: Vec<(u64, Vec<u64>)>,
    changes: Vec<(u64, usize)>,
    warnings: Vec<String>,
}

impl Watched {
    fn of(&self, group: &str) -> Vec<usize> {
        let all = self.names.iter().enumerate();
        let mine = all.filter(|(_, name)| name.starts_with(group));
        mine.map(|(i, _)| i).collect()
    }

    /// CPUs that each VM had between two samples.
    fn between(&self, from: usize, to: usize) -> Vec<f64> {
        let ((begin, before), (end, after)) = (&self.samples[from], &self.samples[to]);
        let ns = (end - begin).max(1) as f64;
        let pairs = before.iter().zip(after);
        pairs.map(|(b, a)| (a - b) as f64 * 1e3 / ns).collect()
    }

    fn first_at(&self, ns: u64) -> Option<usize> {
        self.samples.iter().position(|(at, _)| *at >= ns)
    }

    /// The first look after a time that finds that a group has begun to work, or ended; the end if it never does.
    fn turn(&self, group: &[usize], after_ns: u64, begins: bool) -> u64 {
        let sum = |i: usize| -> f64 {
            let cpus = self.between(i, i + 1);
            group.iter().map(|vm| cpus[*vm]).sum()
        };
        let pairs = 0..self.samples.len() - 1;
        let mut later = pairs.filter(|i| self.samples[*i].0 >= after_ns);
        let found = later.find(|i| (sum(*i) > AT_WORK) == begins);
        found.map_or(self.end_ns(), |i| self.samples[i].0)
    }

    /// The look before: what was found has been so since then, at most.
    fn before(&self, ns: u64) -> u64 {
        let earlier = self.samples.iter().map(|(at, _)| *at);
        earlier.take_while(|at| *at < ns).last().unwrap_or(ns)
    }

    fn end_ns(&self) -> u64 {
        self.samples.last().map_or(0, |(at, _)| *at)
    }

    /// Whole seconds within a time, with what each VM had.
    fn seconds(&self, (from_ns, to_ns): (u64, u64)) -> Vec<(u64, Vec<f64>)> {
        let mut all = Vec::new();
        let mut at = from_ns;
        while let (Some(from), Some(to)) = (self.first_at(at), self.first_at(at + SECOND_NS)) {
            if self.samples[to].0 > to_ns {
                break;
            }
            all.push((self.samples[from].0, self.between(from, to)));
            at += SECOND_NS;
        }
        all
    }

    /// Each second in a time: who is no target has what it leaves.
    fn rest_is_used(&self, during: (u64, u64), others: &[usize]) -> Result<f64, String> {
        let target = self.of("target")[0];
        let mut worst = f64::INFINITY;
        for (at, cpus) in self.seconds(during) {
            let used: f64 = others.iter().map(|vm| cpus[*vm]).sum();
            let part = used / (CAPACITY - cpus[target]);
            worst = worst.min(part);
            check(
                part >= REST,
                format!(
                    "at {} the others have {used:.3} CPUs, the target {:.3}: {}",
                    self.shown(at),
                    cpus[target],
                    self.told()
                ),
            )?;
        }
        Ok(worst)
    }

    /// Each second in a time: the target has its part of one CPU.
    fn target_has_its_part(&self, during: (u64, u64)) -> Result<f64, String> {
        let target = self.of("target")[0];
        let mut worst = f64::INFINITY;
        for (at, cpus) in self.seconds(during) {
            worst = worst.min(cpus[target]);
            check(
                cpus[target] >= INDEX,
                format!(
                    "at {} the target has {:.3} CPUs: {}",
                    self.shown(at),
                    cpus[target],
                    self.told()
                ),
            )?;
        }
        Ok(worst)
    }

    fn shown(&self, at_ns: u64) -> String {
        let since = at_ns.saturating_sub(self.samples[0].0);
        format!("{:.1} s", since as f64 / SECOND_NS as f64)
    }

    /// All of it, a line of seconds: the target's CPUs and the others', and the changes.
    fn told(&self) -> String {
        let target = self.of("target")[0];
        let seconds = self.seconds((self.samples[0].0, self.end_ns()));
        let second = |(_, cpus): &(u64, Vec<f64>)| {
            let all: f64 = cpus.iter().sum();
            format!("{:.2}+{:.2}", cpus[target], all - cpus[target])
        };
        let shown: Vec<String> = seconds.iter().map(second).collect();
        let changes: Vec<String> = (self.changes.iter())
            .map(|(at, n)| format!("{n} at {}", self.shown(*at)))
            .collect();
        format!("{}; changes: {}", shown.join(" "), changes.join(", "))
    }
}

/// The steps: VMs that come and others that go.
pub fn come_and_go(assets: &Assets) -> Result<String, String> {
    let seen = watched(COME_AND_GO, assets)?;
    let (target, early, late) = (seen.of("target"), seen.of("early"), seen.of("late"));
    let begin = seen.turn(&target, 0, true);
    let come = seen.turn(&late, begin, true);
    let gone = seen.turn(&early, come, false);
    let end = seen.end_ns();
    let both: Vec<usize> = early.iter().chain(&late).copied().collect();
    let mut said = Vec::new();
    for (from, to, others) in [
        (begin, come, &early),
        (come, gone, &both),
        (gone, end, &late),
    ] {
        check(
            to > from + CONVERGED_NS + 5 * SECOND_NS,
            format!("a phase is too short: {}", seen.told()),
        )?;
        let steady = (seen.before(from) + CONVERGED_NS, seen.before(to));
        let index = seen.target_has_its_part(steady)?;
        let rest = seen.rest_is_used(steady, others)?;
        let (Some(first), Some(last)) = (seen.first_at(steady.0), seen.first_at(steady.1)) else {
            return Err("no samples".into());
        };
        let cpus = seen.between(first, last);
        let cpus: Vec<f64> = others.iter().map(|vm| cpus[*vm]).collect();
        let even = jain(&cpus).unwrap_or(0.0);
        let least = cpus.iter().copied().fold(f64::INFINITY, f64::min);
        let changes: usize = (seen.changes.iter())
            .filter(|(at, _)| (steady.0..steady.1).contains(at))
            .map(|(_, n)| n)
            .sum();
        let told = format!(
            "{} VMs: in each second the target {index:.3} CPUs or more, {rest:.3} of the rest or more is used, Jain \
             {even:.3}, least {least:.4}, {changes} changes",
            others.len()
        );
        check(
            even >= EVEN && least >= LEAST,
            format!("not even: {told}: {cpus:?}"),
        )?;
        let allowed = (steady.1 - steady.0).div_ceil(BETWEEN_CHANGES_NS) as usize;
        check(
            changes <= allowed,
            format!("it goes on changing: {told}: {}", seen.told()),
        )?;
        said.push(told);
    }
    check(seen.warnings.is_empty(), format!("{:?}", seen.warnings))?;
    Ok(said.join("; "))
}

/// What idles is lent, and comes back.
pub fn now_and_then(assets: &Assets) -> Result<String, String> {
    let seen = watched(NOW_AND_THEN, assets)?;
    let (target, others) = (seen.of("target"), seen.of("other"));
    let mut at = seen.turn(&target, 0, true);
    let (mut lent, mut back) = (Vec::new(), Vec::new());
    while at < seen.end_ns() {
        let idle = seen.turn(&target, at, false);
        if !lent.is_empty() {
            let there = (seen.before(at) + BACK_NS, seen.before(idle));
            back.push(seen.target_has_its_part(there)?);
        }
        at = seen.turn(&target, idle, true);
        if idle < seen.end_ns() {
            let lending = (seen.before(idle) + LENT_NS, seen.before(at));
            lent.push(seen.rest_is_used(lending, &others)?);
        }
    }
    let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
    let (l, b) = (least(&lent), least(&back));
    let said =
        format!("while the target sleeps {l:.3} of the rest is used, and back it has {b:.3} CPUs");
    check(
        l.is_finite() && b.is_finite(),
        format!("nothing was lent, or came back: {}", seen.told()),
    )?;
    Ok(said)
}

/// A scenario in a VM, with the optimiser, watched from its beginning.
fn watched(text: &str, assets: &Assets) -> Result<Watched, String> {
    let job = json!(scenario(text, &[])?);
    let seen = with_micro_vms(assets, "limits", host(1, 1, 1, 2, 1), job, patient())?;
    serde_json::from_value(seen).map_err(|e| e.to_string())
}

pub fn inside(input: &Value, _: Option<&mut Loaded>) -> Result<Value, String> {
    let scenario: Scenario = serde_json::from_value(input.clone()).map_err(|e| e.to_string())?;
    let instances = placement::instances(&scenario);
    let names: Vec<String> = instances.iter().map(|vm| vm.name.clone()).collect();
    let load = Scenario {
        optimiser: None,
        ..scenario.clone()
    };
    enable(Path::new("/sys/fs/cgroup"))?;
    let over = Arc::new(AtomicBool::new(false));
    let mut acting = None;
    let mut how = berth_loadgen::Options {
        cgroup_root: Some(GROUPS.into()),
        measure_ns: load.run.measure_ns,
        vcpus: Vcpus::Kvm,
        on_threads: Some(Box::new(|_| {
            let beside = Beside::start(&scenario, "berth").map_err(io::Error::other)?;
            acting = Some((beside, counting(&names, &over)));
            Ok(())
        })),
        ..berth_loadgen::Options::default()
    };
    let outcome = berth_loadgen::run(&load, 1, &mut how);
    drop(how);
    over.store(true, Ordering::Relaxed);
    let (beside, counter) = acting.ok_or("it was not begun")?;
    let seen = beside.ok_or("it is not on")?.finish()?;
    let (from, to) = outcome.map_err(|e| e.to_string())?.window_ns;
    let mut samples = counter.join().map_err(|_| "the counter panicked")?;
    samples.retain(|(at, _)| (from..to).contains(at));
    check(samples.len() > 1, "nothing was counted")?;
    let changes = seen.decisions.iter();
    let changes = changes.map(|(at, decision)| (*at, decision.changes.len()));
    let counts = |(at, n): &(u64, usize)| *n > 0 && (from..to).contains(at);
    Ok(json!(Watched {
        names,
        samples,
        changes: changes.filter(counts).collect(),
        warnings: seen.warnings,
    }))
}

type Samples = Vec<(u64, Vec<u64>)>;

/// CPU time of each VM, in microseconds, until it is over.
fn counting(names: &[String], over: &Arc<AtomicBool>) -> JoinHandle<Samples> {
    let (names, over) = (names.to_vec(), Arc::clone(over));
    let used = |name: &String| -> Option<u64> {
        let text = fs::read_to_string(format!("{GROUPS}/{name}/cpu.stat")).ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
        line.parse().ok()
    };
    std::thread::spawn(move || {
        let mut samples = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let cpus: Option<Vec<u64>> = names.iter().map(used).collect();
            // Gone: the run is over.
            let Some(cpus) = cpus else { break };
            samples.push((clock_ns(libc::CLOCK_MONOTONIC), cpus));
            std::thread::sleep(SAMPLE);
        }
        samples
    })
}
