// SPDX-License-Identifier: GPL-2.0-only
//! The scenario's work inside the VM, by the load generator, with the policy told who its threads are.
use crate::cast::Cast;
use crate::job::SeedRun;
use crate::kinds::{self, Brake};
use crate::observe::{self, Observer};
use crate::optimiser::{Beside, Seen};
use crate::strip;
use berth_agent::keeper::Keeper;
use berth_agent::register::{Entry, Register, ThreadKey, VmKey};
use berth_agent::rules::{Gains, Rule, Rules};
use berth_host::root::Root;
use berth_identity::{Scored, ThreadRecord, VmId};
use berth_loadgen::{NO_STAYS, Options, Tell, Teller, Vcpus};
use berth_optimiser::Decision;
use berth_scenario::dist::lead_ns;
use berth_scenario::model::{Nanos, Scenario};
use berth_scenario::placement::{self, HostThread};
use berth_scx::Loaded;
use std::collections::{BTreeMap, btree_map};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// cgroup of the run inside the VM; the VMs' own lie below it.
const CGROUPS: &str = "/sys/fs/cgroup/berth";
/// Its name.
const GROUP: &str = "berth";

/// Runs the scenario once inside a VM, under a policy that has been loaded or the kernel's own; the policy is told who
/// the threads are.
///
/// # Errors
/// The load generator could not do its work, or the policy's maps could not be read or written.
pub fn perform(
    scenario: &Scenario,
    seed: u64,
    vcpus: Vcpus,
    policy: Option<&mut Loaded>,
) -> Result<SeedRun, String> {
    perform_with(scenario, seed, vcpus, policy, true)
}

/// The same without the observer, which takes longer to load than a short run lasts: no waits, no times, no metrics of
/// kinds of CPUs; switches and wake-ups only as the load itself sees them.
///
/// # Errors
/// As [`perform`].
pub fn perform_unobserved(
    scenario: &Scenario,
    seed: u64,
    vcpus: Vcpus,
    policy: Option<&mut Loaded>,
) -> Result<SeedRun, String> {
    perform_with(scenario, seed, vcpus, policy, false)
}

fn perform_with(
    scenario: &Scenario,
    seed: u64,
    vcpus: Vcpus,
    mut policy: Option<&mut Loaded>,
    observe: bool,
) -> Result<SeedRun, String> {
    let counted = counters(policy.as_deref())?;
    let tell = match policy.as_deref() {
        Some(policy) => teller(policy)?,
        None => Teller::default(),
    };
    let mut told = policy.as_deref_mut().filter(|p| p.wants_identity());
    let (mut beside, mut no_optimiser) = (None, None);
    let mut options = Options {
        cgroup_root: Some(CGROUPS.into()),
        warmup_ns: scenario.run.warmup_ns,
        measure_ns: scenario.run.measure_ns,
        // A VM boots alike each time: without this, each seed would begin at the same point of all that is periodic.
        lead_ns: lead_ns(seed),
        vcpus,
        stop: None,
        // All VMs are there then, and wait: this process is not copied any more, and may have threads.
        on_threads: Some(Box::new(|threads| {
            if let Some(policy) = told.as_deref_mut() {
                introduce(scenario, threads, Path::new(CGROUPS), policy)?;
            }
            beside = Beside::start(scenario, GROUP).map_err(|why| {
                no_optimiser = Some(format!("the optimiser does not act: {why}"));
                io::Error::other(why)
            })?;
            Ok(())
        })),
        tell,
    };
    // Nothing of the load's.
    let load = Scenario {
        optimiser: None,
        ..scenario.clone()
    };
    let brake = Brake::start(&scenario.host).map_err(|e| format!("slow cores: {e}"))?;
    let observer = observe.then(Observer::start);
    let outcome = berth_loadgen::run(&load, seed, &mut options);
    drop(options);
    let ended = beside.map(Beside::finish).transpose();
    let outcome = outcome.map_err(|e| no_optimiser.unwrap_or_else(|| e.to_string()))?;
    let optimised = ended.map_err(|e| format!("the optimiser: {e}"))?;
    brake.finish().map_err(|e| format!("slow cores: {e}"))?;
    let mut run = SeedRun {
        seed,
        metrics: outcome.metrics,
        notes: outcome.notes,
        waits: Vec::new(),
        worst: Vec::new(),
        times: BTreeMap::new(),
        decisions: Vec::new(),
    };
    if let Some(seen) = optimised {
        run.tell_of(seen, outcome.window_ns, scenario.run.warmup_ns);
    }
    if policy.as_deref().is_some_and(Loaded::wants_identity)
        && vcpus == Vcpus::Threads
        && scenario.vms.iter().any(|v| v.cgroup.is_some())
    {
        run.notes.push(placement::SHARED_NOTE.to_string());
    }
    let births = placement::per_request(scenario, &|_| false);
    if policy.as_deref().is_some_and(Loaded::wants_identity)
        && births.iter().any(|thread| thread.vm.is_some())
    {
        let note =
            "threads that requests start are not told to the policy: they count as the host's";
        run.notes.push(note.to_string());
    }
    let seconds = (scenario.run.warmup_ns + scenario.run.measure_ns) as f64 / 1e9;
    for (name, now) in counters(policy.as_deref())? {
        let before = counted.get(&name).copied().unwrap_or(0);
        let rate = now.wrapping_sub(before) as f64 / seconds;
        run.metrics.insert(format!("policy.{name}"), rate);
    }
    if let Some(policy) = policy.as_deref().filter(|_| vcpus == Vcpus::Threads) {
        run.metrics.extend(scores(scenario, policy));
    }
    let Some(observer) = observer else {
        return Ok(run);
    };
    match observer.and_then(Observer::finish) {
        Ok((records, lost)) => {
            let cast = Cast::new(scenario, &outcome.threads);
            let seen = observe::replay(&records, &cast, outcome.window_ns);
            run.metrics.extend(seen.metrics(&cast));
            let on_kinds = kinds::metrics(&records, &cast, scenario, outcome.window_ns);
            run.metrics.extend(on_kinds);
            run.times = seen.times(&cast);
            run.notes.retain(|n| n != NO_STAYS);
            if lost > 0 {
                run.notes.push(format!(
                    "the observer's memory was full: the last {lost} switches and wake-ups are missing, and who waited \
                     for whom is not known; use a shorter run.measure"
                ));
            } else {
                let start = outcome.window_ns.0.saturating_sub(scenario.run.warmup_ns);
                run.waits = seen.waits(&cast);
                run.worst = strip::worst(&records, &seen, &cast, start);
            }
        }
        Err(e) => {
            run.notes.push(format!(
                "switches of VMs are not known and wake-ups are seen from inside the thread only: {e}"
            ));
        }
    }
    Ok(run)
}

impl SeedRun {
    /// What the optimiser did, in the time of the run.
    fn tell_of(&mut self, seen: Seen, window_ns: (Nanos, Nanos), warmup_ns: Nanos) {
        let changes = seen.changes_per_s(window_ns);
        self.metrics.insert("host.changes".into(), changes);
        let start = window_ns.0.saturating_sub(warmup_ns);
        // To the millisecond: a look takes as long.
        let in_the_run = |(at, decision): (Nanos, Decision)| Decision {
            at_ns: at.saturating_sub(start) / 1_000_000 * 1_000_000,
            ..decision
        };
        self.decisions = seen.decisions.into_iter().map(in_the_run).collect();
        if self.decisions.first().is_none_or(|d| d.at_ns >= warmup_ns) {
            self.notes.push(
                "the optimiser looks once a second, and had decided nothing before the measured window: make \
                 run.warmup longer (berth lab keeps the scenario's with --full)"
                    .into(),
            );
        }
        let told = |warning| format!("the optimiser: {warning}");
        self.notes.extend(seen.warnings.iter().map(told));
    }
}

/// How a policy is told of jobs, if it wants to be.
///
/// # Errors
/// Its map cannot be had.
pub fn teller(policy: &Loaded) -> Result<Teller, String> {
    let jobs = policy.jobs().map_err(|e| e.to_string())?;
    Ok(Teller(jobs.map(|jobs| -> Arc<Tell> {
        Arc::new(move |tid, job| {
            let told = jobs.tell(tid.cast_unsigned(), job);
            told.map_err(io::Error::other)
        })
    })))
}

/// What the policy reckons of each VM, and by what, as the simulator has it; nothing if it scores nobody.
fn scores(scenario: &Scenario, policy: &Loaded) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, Vec<Scored>> = BTreeMap::new();
    // Slots are given out in the order of VMs, to those that are told.
    let told = placement::instances(scenario).into_iter();
    let told = told.filter(|vm| scenario.vms[vm.group].cgroup.is_none());
    for (slot, vm) in (1..).zip(told) {
        let Some(scored) = policy.scored(slot) else {
            continue;
        };
        let group = &scenario.vms[vm.group].name;
        all.entry(group.clone()).or_default().push(scored);
        if *group != vm.name {
            all.entry(vm.name).or_default().push(scored);
        }
    }
    let all = all.iter();
    all.flat_map(|(name, of)| Scored::metrics(name, of))
        .collect()
}

/// The policy's own counters, so far.
fn counters(policy: Option<&Loaded>) -> Result<BTreeMap<String, u64>, String> {
    policy.map_or(Ok(BTreeMap::new()), |p| {
        p.policy_counters().map_err(|e| e.to_string())
    })
}

/// Tells a policy who the threads of a run are. VMs with processes of their own (micro-VMs) are found as the agent
/// finds any host's; for threads that stand in for vCPUs the scenario says it. `cgroups`: the folder of the run's
/// cgroups.
///
/// # Errors
/// A VM is not found whole, or the policy's maps cannot be written.
pub fn introduce(
    scenario: &Scenario,
    threads: &[(HostThread, i32)],
    cgroups: &Path,
    policy: &mut Loaded,
) -> io::Result<()> {
    let mut vms = threads.iter().filter(|(thread, _)| thread.vm.is_some());
    let own_process = |tid: i32| Path::new(&format!("/proc/self/task/{tid}")).exists();
    match vms.next() {
        None => policy.identities_changed().map_err(io::Error::other),
        Some((_, tid)) if own_process(*tid) => stand_ins(scenario, threads, cgroups, policy),
        Some(_) => discover(scenario, threads, policy),
    }
}

/// As the agent does on a host: discovery, description, register.
fn discover(
    scenario: &Scenario,
    threads: &[(HostThread, i32)],
    policy: &mut Loaded,
) -> io::Result<()> {
    let rule = |vm: &placement::VmInstance| {
        let spec = &scenario.vms[vm.group];
        Rule {
            name: vm.name.clone(),
            class: Some(spec.class.word().to_string()),
            io_vcpus: spec.reserved_vcpus,
        }
    };
    let instances = placement::instances(scenario);
    let gains = |vm: &placement::VmInstance| Gains {
        name: vm.name.clone(),
        score_milli: scenario.vms[vm.group].scores_milli.clone(),
    };
    let scored = |vm: &&placement::VmInstance| !scenario.vms[vm.group].scores_milli.is_empty();
    let rules = Rules {
        only: Vec::new(),
        vms: instances.iter().map(rule).collect(),
        scores: instances.iter().filter(scored).map(gains).collect(),
        ..Rules::default()
    };
    let mut keeper = Keeper::new(Root::live(), rules);
    keeper.refresh(policy).map_err(io::Error::other)?;
    // Every vCPU must have been found, as what it is.
    for (thread, tid) in threads {
        let Some(vm) = &thread.vm else { continue };
        let entries = &keeper.description().entries;
        let entry = entries.iter().find(|e| e.name == vm.name);
        let found = entry.and_then(|e| e.threads.iter().find(|(key, _)| key.tid == *tid));
        if found.is_none_or(|(_, record)| record.role.vcpu() != thread.role.vcpu()) {
            let why = keeper
                .description()
                .left_out
                .iter()
                .find(|l| l.vm == vm.name);
            return Err(io::Error::other(format!(
                "discovery does not see {} (thread {tid}): {}",
                thread.name,
                why.map_or("its thread or index is not found", |l| &l.why)
            )));
        }
    }
    Ok(())
}

/// Threads of this process that stand in for vCPUs.
fn stand_ins(
    scenario: &Scenario,
    threads: &[(HostThread, i32)],
    cgroups: &Path,
    policy: &mut Loaded,
) -> io::Result<()> {
    let mut entries: BTreeMap<u32, Entry> = BTreeMap::new();
    for (thread, tid) in threads {
        let Some(instance) = &thread.vm else { continue };
        let vm = &scenario.vms[instance.group];
        if vm.cgroup.is_some() {
            continue;
        }
        let entry = match entries.entry(instance.ordinal) {
            btree_map::Entry::Occupied(known) => known.into_mut(),
            btree_map::Entry::Vacant(new) => new.insert(Entry {
                key: VmKey {
                    pid: instance.ordinal.cast_signed(),
                    start: 0,
                },
                name: instance.name.clone(),
                id: VmId::Cgroup(std::fs::metadata(cgroups.join(&thread.cgroup))?.ino()),
                class: vm.class,
                weight: vm.weight,
                cap_milli: vm.cap_milli.map(|c| u32::try_from(c).unwrap_or(u32::MAX)),
                node: None,
                cgroup: None,
                vcpus: vm.vcpus,
                threads: BTreeMap::new(),
            }),
        };
        let record = ThreadRecord {
            role: thread.role,
            io: thread.role.vcpu().is_some_and(|v| vm.is_reserved(v)),
            score_milli: thread.role.vcpu().and_then(|v| vm.score_milli(v)),
        };
        let key = ThreadKey {
            tid: *tid,
            start: 0,
        };
        entry.threads.insert(key, record);
    }
    let entries: Vec<Entry> = entries.into_values().collect();
    Register::default()
        .update(policy, &entries)
        .map_err(io::Error::other)?;
    Ok(())
}
