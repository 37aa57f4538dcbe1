// SPDX-License-Identifier: GPL-2.0-only
//! Arms and seeds of one scenario, each pair in a boot of its own, several boots side by side.
use crate::assets::modules::Module;
use crate::assets::{Assets, modules};
use crate::initramfs::Archive;
use crate::job::{JOB, Job, PolicyJob, Work};
use crate::vm::{self, Boot, Mode, Vm};
use crate::{LabError, Listener, Progress, kinds, nested, optimiser};
use berth_loadgen::Vcpus;
use berth_results::schema::{Place, RunRecord};
use berth_scenario::model::{Host, Hz, Scenario};
use berth_scenario::support;
use berth_scx::LoadOptions;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Boots of one run at most: a crash of the emulator, or two runs that differ, are tried again.
const ATTEMPTS: u32 = 3;
/// Where a policy object lies in the VM.
const OBJECT: &str = "/policy.bpf.o";
/// Where a scheduler that is a program lies there, by its own name: some look at how they are called.
const PROGRAMS: &str = "/bin";

/// One thing to compare.
#[derive(Clone, Debug)]
pub struct LabArm {
    pub name: String,
    /// As this arm sees it, run lengths included.
    pub scenario: Scenario,
    /// `None`: the kernel's own scheduler.
    pub policy: Option<LabPolicy>,
}

/// What schedules in the VM, if it is not the kernel's own scheduler.
#[derive(Clone, Debug)]
pub enum LabPolicy {
    /// A policy for Berth to load.
    Object {
        /// The bytes of its `.bpf.o`.
        object: Vec<u8>,
        options: LoadOptions,
    },
    /// A program of this machine that loads a policy of its own. Nobody tells it whose the threads are.
    Program(PathBuf),
}

/// How to run.
#[derive(Clone, Debug)]
pub struct LabOptions {
    pub mode: Mode,
    /// CPUs that the VM's kernel counts on, of which the host's are there; none: these. Not with even turns
    /// ([`Mode::Deterministic`]).
    pub possible_cpus: Option<u32>,
    /// What the vCPUs of a scenario are.
    pub vcpus: Vcpus,
    /// Virtual milliseconds before the work begins.
    pub settle_ms: u64,
    /// Wall time of one boot.
    pub timeout: Duration,
    /// Boots at the same time.
    pub jobs: usize,
    /// Seeds of an arm that share a boot, one after the other: cheaper, but a later seed finds a kernel that has
    /// worked.
    pub seeds_per_boot: usize,
    /// Boot every run twice and compare.
    pub verify: bool,
    /// The binary that becomes the VM's first process: this one.
    pub program: PathBuf,
    /// More modules of the kernel, in the order in which they are loaded.
    pub modules: Vec<Module>,
    /// More programs of this machine: where each lies in the VM, and here.
    pub beside: Vec<(String, PathBuf)>,
    /// Folder for the serial logs.
    pub keep_logs: Option<PathBuf>,
}

impl Default for LabOptions {
    /// Deterministic, as many boots at a time as there are processors, this program inside.
    fn default() -> LabOptions {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        LabOptions {
            mode: Mode::Deterministic,
            possible_cpus: None,
            vcpus: Vcpus::default(),
            settle_ms: 3_000,
            timeout: Duration::from_secs(600),
            jobs: processors,
            seeds_per_boot: 1,
            verify: false,
            program: std::env::current_exe().unwrap_or_default(),
            modules: Vec::new(),
            beside: Vec::new(),
            keep_logs: None,
        }
    }
}

/// Runs every arm with every seed; records in the order of seeds, then arms. Each is also announced to the listener
/// when it is complete.
///
/// # Errors
/// The scenario does not fit a VM (before anything boots), or a boot failed for good; the others then stop.
pub fn run(
    arms: &[LabArm],
    seeds: &[u64],
    options: &LabOptions,
    assets: &Assets,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Vec<RunRecord>, LabError> {
    for arm in arms {
        check(arm, options.vcpus, assets)?;
    }
    let base = base_archive(&options.program, assets)?;
    let modules = needed(options, assets, listener, stop)?;
    let work: Vec<(&[u64], &LabArm)> = seeds
        .chunks(options.seeds_per_boot.max(1))
        .flat_map(|some| arms.iter().map(move |a| (some, a)))
        .collect();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let halt = AtomicBool::new(false);
    let records = Mutex::new(BTreeMap::new());
    let lab = Lab {
        options,
        assets,
        base: &base,
        modules: &modules,
        listener,
        stop: &halt,
    };
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..options.jobs.clamp(1, work.len().max(1)))
            .map(|_| {
                s.spawn(|| {
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let Some((seeds, arm)) = work.get(i) else {
                            break;
                        };
                        match lab.one(arm, seeds) {
                            Ok(of_boot) => {
                                lock(&records).insert(i, of_boot);
                            }
                            Err(e) => {
                                lock(&failed).get_or_insert(e);
                                halt.store(true, Ordering::Relaxed);
                            }
                        }
                        if halt.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                })
            })
            .collect();
        while workers.iter().any(|w| !w.is_finished()) {
            if stop.load(Ordering::Relaxed) {
                halt.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    if let Some(e) = lock(&failed).take() {
        return Err(e);
    }
    if stop.load(Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    Ok(std::mem::take(&mut *lock(&records))
        .into_values()
        .flatten()
        .collect())
}

/// The modules that a boot loads.
fn needed(
    options: &LabOptions,
    assets: &Assets,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Module>, LabError> {
    let mut all = match options.vcpus {
        Vcpus::Threads => Vec::new(),
        Vcpus::Kvm | Vcpus::Auto => modules::kvm(&assets.kernel, listener, stop)?,
    };
    all.extend(options.modules.iter().cloned());
    Ok(all)
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(|e| e.into_inner())
}

/// Refuses by name what a lab VM cannot do, with any kernel: before anything is downloaded.
///
/// # Errors
/// [`LabError::Scenario`]: what it cannot do, and what to do about it.
pub fn check_scenario(scenario: &Scenario, vcpus: Vcpus) -> Result<(), LabError> {
    let host = &scenario.host;
    vm::check_host(host)?;
    kinds::check(host)?;
    let refused = |e: &dyn std::fmt::Display| LabError::Scenario(e.to_string());
    if let Some(asked) = &scenario.optimiser {
        optimiser::policy(&asked.settings).map_err(|e| refused(&e))?;
    }
    if vcpus == Vcpus::Kvm {
        berth_loadgen::fits_micro_vms(scenario).map_err(|e| refused(&e))?;
        return support::check_features(scenario, support::Place::Lab, &|_| None)
            .map_err(|e| refused(&e));
    }
    support::check(scenario, support::Place::Lab, &|_| None).map_err(|e| refused(&e))
}

/// Refuses by name what a lab VM with this kernel cannot do.
fn check(arm: &LabArm, vcpus: Vcpus, assets: &Assets) -> Result<(), LabError> {
    check_scenario(&arm.scenario, vcpus)?;
    match (arm.scenario.host.hz, assets.kernel.hz()) {
        (Hz::Ticks(wanted), Some(has)) if wanted != has => Err(LabError::Scenario(format!(
            "host.hz is {wanted}, and the lab's kernel {} ticks at {has}; use --set host.hz={has}",
            assets.kernel.release
        ))),
        _ => Ok(()),
    }
}

/// What all boots share: the program as first process, its libraries, the kernel's configuration.
pub fn base_archive(program: &Path, assets: &Assets) -> Result<Vec<u8>, LabError> {
    let mut a = Archive::new();
    a.device("/dev/console", 5, 1);
    a.directory("/tmp");
    let config = &assets.kernel.config;
    a.file(
        &format!("/boot/config-{}", assets.kernel.release),
        &fs::read(config).map_err(|e| LabError::io(config, e))?,
    );
    a.installed("/init", program)?;
    Ok(a.finish())
}

struct Lab<'a> {
    options: &'a LabOptions,
    assets: &'a Assets,
    base: &'a [u8],
    modules: &'a [Module],
    listener: &'a Listener<'a>,
    stop: &'a AtomicBool,
}

impl Lab<'_> {
    /// One arm with the seeds of a boot: one boot, or as many as it takes.
    fn one(&self, arm: &LabArm, seeds: &[u64]) -> Result<Vec<RunRecord>, LabError> {
        let job = scenario_job(arm, seeds, self.modules, self.options)?;
        let seed = seeds.first().copied().unwrap_or(0);
        let mut notes = Vec::new();
        let mut wall = Duration::ZERO;
        let mut done: Vec<Boot> = Vec::new();
        let mut crashed = 0;
        for attempt in 1..=ATTEMPTS {
            (self.listener)(Progress::Boot {
                arm: arm.name.clone(),
                seed,
                attempt,
            });
            match self.boot(arm, &job) {
                Ok(b) => {
                    self.keep_log(arm, seed, attempt, &b)?;
                    wall += b.wall;
                    done.push(b);
                }
                // The emulator's fault, or the kernel's; seen rarely, and not twice in a row.
                Err(e @ (LabError::Panic { .. } | LabError::NoResult { .. })) => {
                    crashed += 1;
                    if crashed == 2 {
                        return Err(e);
                    }
                    continue;
                }
                Err(e) => return Err(e),
            }
            if !self.options.verify || agreeing(&done).is_some() {
                break;
            }
        }
        if crashed > 0 {
            notes.push(format!("{crashed} of its boots crashed and was repeated"));
        }
        let chosen = match agreeing(&done) {
            Some(i) if self.options.verify => {
                notes.push(match done.len() {
                    2 => "verified: two boots gave the same bytes".to_string(),
                    n => format!("{} of {n} boots differed from the other two", n - 2),
                });
                i
            }
            Some(i) => i,
            None => {
                if self.options.verify {
                    notes.push(format!(
                        "no two of {} boots gave the same bytes",
                        done.len()
                    ));
                }
                0
            }
        };
        let boot = done
            .into_iter()
            .nth(chosen)
            .ok_or_else(|| LabError::Start("no boot of this run came to an end".to_string()))?;
        if let Some(e) = boot.answer.error {
            return Err(LabError::Guest(format!("{}, seed {seed}: {e}", arm.name)));
        }
        notes.extend(boot.answer.notes);
        notes.extend(self.conditions(arm, &boot.answer.kernel));
        if seeds.len() > 1 {
            notes.push(format!("{} seeds shared a boot", seeds.len()));
        }
        let records = boot.answer.runs.into_iter().map(|run| {
            let mut record = RunRecord::new(Place::Lab, &arm.name, run.seed, run.metrics);
            record.hash = boot.hash.clone();
            (record.waits, record.worst, record.times) = (run.waits, run.worst, run.times);
            record.decisions = run.decisions;
            record.notes = run.notes.into_iter().chain(notes.clone()).collect();
            record
        });
        let records: Vec<RunRecord> = records.collect();
        for record in &records {
            (self.listener)(Progress::Done {
                record: Box::new(record.clone()),
                wall,
            });
        }
        Ok(records)
    }

    fn boot(&self, arm: &LabArm, job: &[u8]) -> Result<Boot, LabError> {
        Vm {
            qemu: &self.assets.qemu,
            kernel: &self.assets.kernel,
            host: &arm.scenario.host,
            mode: self.options.mode,
            possible_cpus: self.options.possible_cpus,
            nested: self.options.vcpus != Vcpus::Threads,
            memory_mb: vm::MEMORY_MB,
            timeout: self.options.timeout,
            stop: self.stop,
        }
        .boot(&[self.base, job])
    }

    fn keep_log(&self, arm: &LabArm, seed: u64, attempt: u32, b: &Boot) -> Result<(), LabError> {
        let Some(folder) = &self.options.keep_logs else {
            return Ok(());
        };
        fs::create_dir_all(folder).map_err(|e| LabError::io(folder, e))?;
        let path = folder.join(format!("{}-{seed}-{attempt}.log", arm.name));
        fs::write(&path, &b.console).map_err(|e| LabError::io(&path, e))
    }

    /// Under which conditions the numbers hold.
    fn conditions(&self, arm: &LabArm, kernel: &str) -> Vec<String> {
        let run = &arm.scenario.run;
        let mut notes = vec![format!(
            "Linux {kernel}, {}; {:.3} s measured after {:.3} s of warm-up",
            self.assets.qemu.describe(),
            run.measure_ns as f64 / 1e9,
            run.warmup_ns as f64 / 1e9,
        )];
        if let Some(other) = &self.assets.kernel.config_of {
            notes.push(format!(
                "the archive no longer has this kernel's build configuration; CONFIG_* of {other} stand in"
            ));
        }
        notes.push(match self.options.mode {
            Mode::Deterministic => {
                "virtual time (2 ns per instruction, shared by all CPUs): compare arms, never quote absolute times"
                    .to_string()
            }
            Mode::Coarse => "virtual time, but turns of the CPUs of up to a tick: ask for no times".to_string(),
            Mode::Fast => "emulated without a virtual clock: times mean nothing".to_string(),
        });
        if !arm.scenario.host.cost.kinds.is_empty() {
            notes.push(
                "slower cores are braked by real-time threads, the fastest are whole CPUs: every program gains the \
                 same from these"
                    .to_string(),
            );
        }
        let end = run.warmup_ns + run.measure_ns;
        for vm in arm.scenario.vms.iter().filter(|v| v.start_ns >= end) {
            notes.push(format!("vm.{} starts after the end of this run", vm.name));
        }
        notes
    }
}

/// Index of a boot that another one equals.
fn agreeing(done: &[Boot]) -> Option<usize> {
    (0..done.len()).find(|&i| done[i + 1..].iter().any(|b| b.hash == done[i].hash))
}

/// One boot that is no scenario: for tests of policies, conformance, experiments.
#[derive(Clone, Debug)]
pub struct Single {
    /// Topology.
    pub host: Host,
    pub policy: Option<LabPolicy>,
    pub work: Work,
}

/// Boots once.
///
/// # Errors
/// As [`Vm::boot`]; an error of the work is in the answer.
pub fn single(
    what: &Single,
    options: &LabOptions,
    assets: &Assets,
    stop: &AtomicBool,
) -> Result<Boot, LabError> {
    vm::check_host(&what.host)?;
    let base = base_archive(&options.program, assets)?;
    let modules = needed(options, assets, &|_| (), stop)?;
    let job = job_archive(what.policy.as_ref(), what.work.clone(), &modules, options)?;
    Vm {
        qemu: &assets.qemu,
        kernel: &assets.kernel,
        host: &what.host,
        mode: options.mode,
        possible_cpus: options.possible_cpus,
        nested: options.vcpus != Vcpus::Threads,
        memory_mb: vm::MEMORY_MB,
        timeout: options.timeout,
        stop,
    }
    .boot(&[&base, &job])
}

fn scenario_job(
    arm: &LabArm,
    seeds: &[u64],
    modules: &[Module],
    options: &LabOptions,
) -> Result<Vec<u8>, LabError> {
    let policy = arm.policy.clone().map(|mut p| {
        let vms = berth_scenario::placement::instances(&arm.scenario).len() as u32;
        if let LabPolicy::Object { options, .. } = &mut p {
            options.vm_slots.get_or_insert(vms + 1);
            options.capacities = kinds::capacities(&arm.scenario.host);
        }
        p
    });
    let work = Work::Scenario {
        scenario: Box::new(arm.scenario.clone()),
        seeds: seeds.to_vec(),
        vcpus: options.vcpus,
    };
    job_archive(policy.as_ref(), work, modules, options)
}

fn job_archive(
    policy: Option<&LabPolicy>,
    work: Work,
    modules: &[Module],
    options: &LabOptions,
) -> Result<Vec<u8>, LabError> {
    let mut a = Archive::new();
    for (path, file) in &options.beside {
        a.installed(path, file)?;
    }
    let policy = match policy {
        None => None,
        Some(LabPolicy::Object { object, options }) => {
            a.file(OBJECT, object);
            Some(PolicyJob::Object {
                path: OBJECT.to_string(),
                options: options.clone(),
            })
        }
        Some(LabPolicy::Program(program)) => {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            let path = format!("{PROGRAMS}/{name}");
            a.installed(&path, program)?;
            Some(PolicyJob::Program { path })
        }
    };
    let job = Job {
        settle_ms: options.settle_ms,
        modules: nested::add(&mut a, modules),
        policy,
        work,
    };
    let bytes = serde_json::to_vec(&job).map_err(|e| LabError::Start(e.to_string()))?;
    a.file(JOB, &bytes);
    Ok(a.finish())
}
