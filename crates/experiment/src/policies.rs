// SPDX-License-Identifier: GPL-2.0-only
//! Policies by name or file: loading, what they say about themselves, and an arm's parameters.
use crate::error::Failure;
use crate::linux;
use crate::simulator::placed;
use berth_identity::record::{SCORES, VMS};
use berth_policy::abi::Op;
use berth_policy::error::LoadError;
use berth_policy::ir::Program;
use berth_policy::maps::{BPF_F_NO_PREALLOC, kind};
use berth_policy::params::Param;
use berth_policy::policy::{LoadOptions, Policy};
use berth_policy::presets::{self, Preset};
use berth_policy::profile::KernelProfile;
use berth_scenario::diag::{At, nearest};
use berth_scenario::model::{Arm, Loader, Scenario, Vm};
use berth_scenario::section::Fact;
use berth_scenario::{place_of, place_of_value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Names of the shipped policies.
pub fn shipped() -> Vec<&'static str> {
    berth_builtin::all().iter().map(|b| b.name).collect()
}

/// A policy is a file rather than a shipped name.
pub fn is_file(policy: &str) -> bool {
    policy.contains('/') || policy.ends_with(".bpf.c") || policy.ends_with(".bpf.o")
}

/// Loads a policy by name or file; `linux` is the model that stands in for it.
///
/// # Errors
/// Nobody ships it, there is no such file, it does not compile, or it needs what the simulator does not have.
pub fn load(policy: &str, options: &LoadOptions) -> Result<Policy, Failure> {
    if is_file(policy) {
        return Policy::from_path(Path::new(policy), options).map_err(|e| wrong(policy, &e));
    }
    let name = if policy == "linux" {
        berth_builtin::LINUX_MODEL
    } else {
        policy
    };
    match berth_builtin::find(name) {
        Some(builtin) => builtin.load(options).map_err(|e| wrong(policy, &e)),
        None => Err(unknown(policy)),
    }
}

/// Loads an object, whose name is for errors.
///
/// # Errors
/// It is no policy, or needs what the simulator does not have.
pub fn from_object(name: &str, bytes: &[u8], options: &LoadOptions) -> Result<Policy, Failure> {
    Policy::from_object(bytes, options).map_err(|e| wrong(name, &e))
}

/// An error with the policy's name in front, unless it names the file itself.
pub(crate) fn wrong(policy: &str, error: &LoadError) -> Failure {
    let text = error.to_string();
    Failure::Input(if text.contains(policy) {
        text
    } else {
        format!("policy {policy}: {text}")
    })
}

/// The error for a name that is no policy.
pub fn unknown(policy: &str) -> Failure {
    let shipped = shipped();
    let near = nearest(policy, shipped.iter().copied())
        .map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    let file = if Path::new(policy).exists() {
        format!(" (for the file, write ./{policy})")
    } else {
        String::new()
    };
    Failure::Input(format!(
        "there is no policy `{}`{near}{file}\n  Shipped: {}. Your own: a .bpf.c or .bpf.o file",
        policy.escape_debug(),
        shipped.join(", ")
    ))
}

/// Options for loading a policy for the kernel that a scenario's host has. The model of a kernel without sched_ext is
/// loaded as for the default one.
///
/// # Errors
/// The simulator has no such kernel.
pub fn options(kernel: &str) -> Result<LoadOptions, Failure> {
    if !linux::has_sched_ext(kernel) {
        return Ok(LoadOptions::default());
    }
    match KernelProfile::named(kernel) {
        Some(kernel) => Ok(LoadOptions {
            kernel,
            ..LoadOptions::default()
        }),
        None => Err(Failure::Input(format!(
            "kernel {kernel} has no model here; the simulator has: {}",
            KernelProfile::NAMES.join(", ")
        ))),
    }
}

/// What a policy says about itself: `berth:policy charges=... help=...`.
pub fn description(policy: &Policy) -> (String, String) {
    let tags = policy
        .program()
        .sections
        .iter()
        .flat_map(|s| &s.vars)
        .flat_map(|v| &v.tags);
    let Some(text) = tags.filter_map(|t| t.strip_prefix("berth:policy ")).next() else {
        return (String::new(), String::new());
    };
    let (head, help) = text.split_once("help=").unwrap_or((text, ""));
    let charges = head
        .split_whitespace()
        .find_map(|w| w.strip_prefix("charges="));
    (charges.unwrap_or("").to_string(), help.trim().to_string())
}

/// What a policy keeps, bytes: what its maps have from the beginning, and its variables. Maps that grow, of records for
/// instance, are not counted, and neither is what the kernel needs to find it all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Of each thread.
    pub thread: u64,
    /// Of each CPU.
    pub cpu: u64,
    /// Besides.
    pub once: u64,
}

/// What `policy` keeps.
pub fn memory(policy: &Policy) -> Memory {
    let program = policy.program();
    let mut memory = Memory::default();
    for map in &program.maps {
        let [key, value, entries] = [map.key_size, map.value_size, map.max_entries].map(u64::from);
        match map.kind {
            kind::TASK_STORAGE => memory.thread += value,
            kind::PERCPU_ARRAY => memory.cpu += value * entries,
            kind::ARRAY => memory.once += value * entries,
            kind::HASH | kind::LRU_HASH if map.flags & BPF_F_NO_PREALLOC == 0 => {
                memory.once += (key + value) * entries;
            }
            _ => {}
        }
    }
    memory.once += program
        .sections
        .iter()
        .map(|s| s.data.len() as u64)
        .sum::<u64>();
    memory
}

/// What somebody asks of a policy: its preset, and parameters as written.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// Whose parameters they are, for errors: `arm NAME`, `vm.NAME.guest`; none if there is nobody else.
    pub who: Option<String>,
    pub policy: &'a str,
    pub preset: Option<&'a str>,
    pub set: &'a BTreeMap<String, String>,
    /// What the scenario says, for the places of errors.
    pub facts: &'a [Fact],
    /// The address of the preset, and what stands before a parameter's name in its address.
    pub preset_address: String,
    pub set_address: String,
}

impl<'a> Asked<'a> {
    /// By an arm of a scenario that says this.
    pub fn by(arm: &'a Arm, facts: &'a [Fact]) -> Asked<'a> {
        Asked {
            who: Some(format!("arm {}", arm.name)),
            policy: &arm.policy,
            preset: arm.preset.as_deref(),
            set: &arm.params,
            facts,
            preset_address: format!("arm.{}.preset", arm.name),
            set_address: format!("arm.{}.set.policy", arm.name),
        }
    }

    /// By a VM, for its guest.
    pub fn by_guest(vm: &'a Vm, facts: &'a [Fact]) -> Asked<'a> {
        let address = format!("vm.{}.guest", vm.name);
        Asked {
            who: Some(address.clone()),
            policy: &vm.guest.policy,
            preset: vm.guest.preset.as_deref(),
            set: &vm.guest.params,
            facts,
            preset_address: format!("{address}.preset"),
            set_address: format!("{address}.set"),
        }
    }

    fn wrong(&self, at: Option<At>, why: impl std::fmt::Display) -> Failure {
        let who = self
            .who
            .as_ref()
            .map_or(String::new(), |w| format!("{w}: "));
        placed(at, Failure::Input(format!("{who}{why}")))
    }

    /// Where a parameter stands.
    fn name_at(&self, name: &str) -> Option<At> {
        place_of(self.facts, &format!("{}.{name}", self.set_address))
    }

    /// Where its value stands.
    fn value_at(&self, name: &str) -> Option<At> {
        place_of_value(self.facts, &format!("{}.{name}", self.set_address))
    }

    fn preset_at(&self) -> Option<At> {
        place_of(self.facts, &self.preset_address)
    }
}

/// Checks parameters against what the policy declares.
///
/// # Errors
/// No such parameter (with the nearest, and all there are), or a value out of bounds or of another unit (of words: with
/// the nearest).
fn check_params(asked: &Asked<'_>, params: &[Param]) -> Result<(), Failure> {
    let policy = asked.policy;
    for (name, text) in asked.set {
        let Some(param) = params.iter().find(|p| p.name == *name) else {
            let names: Vec<String> = params.iter().map(|p| p.name.clone()).collect();
            let near = did_you_mean(name, &names);
            let all = if names.is_empty() {
                "none".to_string()
            } else {
                names.join(", ")
            };
            let of_one_arm = match &asked.who {
                Some(who) if who.starts_with("arm ") => {
                    format!("\n  For one arm only: --set arm.NAME.set.policy.{name}=VALUE")
                }
                _ => String::new(),
            };
            let why = format!(
                "policy {policy} has no parameter `{name}`{near}\n  It has: {all}   (berth policy show \
                 {policy}){of_one_arm}"
            );
            return Err(asked.wrong(asked.name_at(name), why));
        };
        param.value(text).map_err(|e| {
            let why = format!("{e}{}", did_you_mean(text, &param.words));
            asked.wrong(asked.value_at(name), why)
        })?;
    }
    Ok(())
}

/// The one of these that is written most alike, if one is.
fn did_you_mean(wrong: &str, names: &[String]) -> String {
    nearest(wrong, names.iter().map(String::as_str))
        .map_or(String::new(), |n| format!("; did you mean `{n}`?"))
}

/// Parameters with the preset's values filled in; those that were set win.
///
/// # Errors
/// As `check_params`, or the policy has no such preset (with the nearest, and those it has).
pub fn resolve(
    asked: &Asked<'_>,
    params: &[Param],
    presets: &[Preset],
) -> Result<BTreeMap<String, String>, Failure> {
    check_params(asked, params)?;
    let policy = asked.policy;
    presets::resolve(presets, asked.preset, asked.set).map_err(|e| {
        let names: Vec<String> = presets.iter().map(|p| p.name.clone()).collect();
        let near = did_you_mean(asked.preset.unwrap_or_default(), &names);
        let why = format!("policy {policy}: {e}{near}   (berth policy show {policy})");
        asked.wrong(asked.preset_at(), why)
    })
}

/// The compiled object of a policy, as a kernel loads it.
///
/// # Errors
/// Nobody ships it, there is no such file, or it does not compile.
pub fn object(policy: &str) -> Result<Vec<u8>, Failure> {
    if !is_file(policy) {
        return berth_builtin::find(policy)
            .map(|b| b.object().to_vec())
            .ok_or_else(|| unknown(policy));
    }
    Ok(crate::foreign::object(policy, &Loader::default())?)
}

/// Whether a policy asks what VMs gain from fast cores. One that only a kernel can read is taken at its word.
pub fn takes_scores(object: &[u8]) -> bool {
    readable(object).is_none_or(|p| p.maps.iter().any(|map| map.name == SCORES))
}

/// A parameter's value for a kernel: in the parameter's own unit, or as the user wrote it where the object declares
/// no parameters (any global variable can be set then).
pub enum Set {
    Number(i64),
    Text(String),
}

/// The installed program of a scheduler that loads its policy itself.
///
/// # Errors
/// It is not installed.
pub fn program(name: &str) -> Result<std::path::PathBuf, Failure> {
    let mut folders: Vec<_> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    // Where `cargo install` puts it.
    folders.extend(std::env::home_dir().map(|home| home.join(".cargo/bin")));
    let mut candidates = folders.iter().map(|folder| folder.join(name));
    candidates.find(|file| file.is_file()).ok_or_else(|| {
        Failure::Input(format!(
            "{name} is a program of its own, and is not in PATH
  Install it: cargo install {name} --locked"
        ))
    })
}

/// Identifies the program's build in results.
///
/// # Errors
/// It cannot be read.
pub fn program_hash(program: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(program)
        .map_err(|e| Failure::Input(format!("cannot read {}: {e}", program.display())))?;
    Ok(berth_policy::identity::hash(&bytes))
}

/// The shipped policies that keep caps, and `linux`.
fn keepers() -> Vec<&'static str> {
    let shipped = berth_builtin::all().iter().filter(|b| !b.study);
    let kept = shipped.filter(|b| readable(b.object()).is_some_and(|p| knows_caps(&p)));
    std::iter::once("linux")
        .chain(kept.map(|b| b.name))
        .collect()
}

fn knows_caps(program: &Program) -> bool {
    let mut ops = program.structs.iter().flat_map(|s| &s.ops);
    program.maps.iter().any(|map| map.name == VMS)
        || ops.any(|(op, _)| *op == Op::CgroupSetBandwidth)
}

/// Before anything runs: are there VMs with a cap, and a policy that keeps caps? It does if it takes the VMs' records
/// (`berth_vms`) or is told of cgroups' bandwidth (`ops.cgroup_set_bandwidth`).
///
/// # Errors
/// It keeps none, which is a refusal: a cap that nobody keeps would be no cap in the results either.
pub fn keeps_caps(arm: &Arm, scenario: &Scenario, program: &Program) -> Result<(), Failure> {
    keeps_new_caps(arm, scenario, program)?;
    let Some(vm) = scenario.vms.iter().find(|vm| vm.cap_milli.is_some()) else {
        return Ok(());
    };
    if knows_caps(program) {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "arm {}: VM {} has a cap, and policy {} keeps none: it neither takes the VMs' records (map {}) nor is told of \
         cgroups' bandwidth (ops.cgroup_set_bandwidth)\n  Leave out the cap or this arm, or take one of the \
         policies that keep caps: {}",
        arm.name,
        vm.name,
        arm.policy,
        VMS,
        keepers().join(", ")
    )))
}

/// Before anything runs: has the policy room for so many VMs? Those that know VMs keep something of each.
///
/// # Errors
/// It has not.
pub fn has_room(arm: &Arm, scenario: &Scenario, program: &Program) -> Result<(), Failure> {
    // Cgroups beside those of VMs: the slot of none.
    const ROOMS: [(&str, u64); 2] = [(VMS, 0), ("berth_groups_by_cgroup", 1)];
    let room_of = |(name, taken): (&str, u64)| {
        let map = program.maps.iter().find(|map| map.name == name)?;
        Some(u64::from(map.max_entries).saturating_sub(taken))
    };
    let vms: u64 = scenario.vms.iter().map(|vm| u64::from(vm.count)).sum();
    match ROOMS.into_iter().filter_map(room_of).min() {
        Some(room) if vms > room => Err(Failure::Input(format!(
            "arm {}: the scenario has {vms} VMs, and policy {} has room for {room}\n  Give it fewer, leave out this \
             arm, or take a policy that does not know VMs, such as gfifo",
            arm.name, arm.policy
        ))),
        _ => Ok(()),
    }
}

/// Before anything runs: are there VMs with turbo vCPUs, and a policy that has CPUs for them?
///
/// # Errors
/// It has none: its parameters do not say how many (`turbo_cpus`).
pub fn has_turbo_cpus(arm: &Arm, scenario: &Scenario, params: &[Param]) -> Result<(), Failure> {
    let Some(vm) = scenario.vms.iter().find(|vm| vm.turbo_vcpus > 0) else {
        return Ok(());
    };
    if params.iter().any(|p| p.name == "turbo_cpus") {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "arm {}: VM {} has turbo vCPUs, and policy {} has no CPUs for them\n  Leave out `turbo_vcpus` or this arm, or \
         take policy vturbo",
        arm.name, vm.name, arm.policy
    )))
}

/// What to say where VMs have different weights and the policy knows none: it stays an arm of the comparison.
pub fn keeps_no_weights(arm: &Arm, scenario: &Scenario, program: &Program) -> Option<String> {
    let first = scenario.vms.first()?.weight;
    let other = scenario.vms.iter().find(|vm| vm.weight != first)?;
    let mut ops = program.structs.iter().flat_map(|s| &s.ops);
    let knows = program.maps.iter().any(|map| map.name == VMS)
        || ops.any(|(op, _)| matches!(op, Op::CgroupSetWeight | Op::CgroupInit));
    (!knows).then(|| {
        format!(
            "arm {}: policy {} does not know the VMs' weights ({}: {}): in it all threads are equal",
            arm.name, arm.policy, other.name, other.weight
        )
    })
}

/// Is there an optimiser that may set caps, and a policy that is told of them?
fn keeps_new_caps(arm: &Arm, scenario: &Scenario, program: &Program) -> Result<(), Failure> {
    let sets_caps = scenario.optimiser.as_ref().is_some_and(|o| {
        let means = o.settings.means;
        means.caps && (!means.sets || o.promises.values().any(|p| p.limit.is_some()))
    });
    let mut ops = program.structs.iter().flat_map(|s| &s.ops);
    if !sets_caps || ops.any(|(op, _)| *op == Op::CgroupSetBandwidth) {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "arm {}: the optimiser may set caps, and policy {} is not told of them (ops.cgroup_set_bandwidth)\n  \
         Leave out limits, allow `sets` and not `caps` in optimiser.by, or take policy eevdf",
        arm.name, arm.policy
    )))
}

/// What an object's code, maps and callbacks are; nothing for what only a kernel can load.
fn readable(object: &[u8]) -> Option<Program> {
    berth_policy::object::load(object, &KernelProfile::default()).ok()
}

/// As [`keeps_caps`], for an object of which nothing has been read yet.
///
/// # Errors
/// As there.
pub fn object_keeps_caps(arm: &Arm, scenario: &Scenario, object: &[u8]) -> Result<(), Failure> {
    readable(object).map_or(Ok(()), |program| keeps_caps(arm, scenario, &program))
}

/// As [`keeps_no_weights`], likewise.
pub fn object_keeps_no_weights(arm: &Arm, scenario: &Scenario, object: &[u8]) -> Option<String> {
    keeps_no_weights(arm, scenario, &readable(object)?)
}

/// Parameters for a kernel.
///
/// # Errors
/// As `check_params`.
pub fn values(asked: &Asked<'_>, object: &[u8]) -> Result<Vec<(String, Set)>, Failure> {
    // What only a kernel can load has no declarations that could be read here.
    let (params, presets) = readable(object)
        .and_then(|p| {
            let params = berth_policy::params::declared(&p).ok()?;
            let presets = presets::declared(&p, &params).ok()?;
            Some((params, presets))
        })
        .unwrap_or_default();
    if params.is_empty() {
        if let Some(preset) = asked.preset {
            let why = format!(
                "policy {} declares no preset, not `{preset}` either",
                asked.policy
            );
            return Err(asked.wrong(asked.preset_at(), why));
        }
        let as_written = asked.set.iter();
        return Ok(as_written
            .map(|(name, text)| (name.clone(), Set::Text(text.clone())))
            .collect());
    }
    let mut values = Vec::new();
    for (name, text) in &resolve(asked, &params, &presets)? {
        if let Some(param) = params.iter().find(|p| p.name == *name) {
            let value = param.value(text);
            let value = value.map_err(|e| asked.wrong(asked.value_at(name), e))?;
            values.push((name.clone(), Set::Number(value)));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mrsf: a `struct job` of 80 bytes of each thread, 7 counters of each CPU; seats and places of 1024 CPUs of 24
    /// bytes each, as many learned means, a timer, and its variables.
    #[test]
    fn what_a_policy_keeps_is_counted() {
        let of = |name: &str| {
            let policy = berth_builtin::find(name).unwrap();
            memory(&policy.load(&LoadOptions::default()).unwrap())
        };
        let mrsf = of("mrsf");
        assert_eq!((mrsf.thread, mrsf.cpu), (80, 7 * 8), "{mrsf:?}");
        let maps = 1024 * (24 + 24 + 8) + 16;
        assert!((maps..maps + 4096).contains(&mrsf.once), "{mrsf:?}");
        // Records of jobs are a map that grows.
        assert_eq!(of("fcfs").thread, 80);
    }

    #[test]
    fn turbo_vcpus_need_a_policy_that_has_cpus_for_them() {
        let arm = |policy: &str| Arm {
            name: "a".into(),
            policy: policy.into(),
            preset: None,
            params: BTreeMap::new(),
            loader: Loader::default(),
            set: BTreeMap::new(),
            scenario: None,
        };
        let mut scenario = Scenario::default();
        scenario.vms.push(Vm {
            name: "web".into(),
            turbo_vcpus: 1,
            ..Vm::default()
        });
        let judged = |scenario: &Scenario, policy: &str| {
            let loaded = berth_builtin::find(policy).unwrap();
            let loaded = loaded.load(&LoadOptions::default()).unwrap();
            has_turbo_cpus(&arm(policy), scenario, loaded.params())
        };
        assert!(judged(&scenario, "vturbo").is_ok());
        let Err(Failure::Input(said)) = judged(&scenario, "credit") else {
            panic!("credit has no turbo CPUs");
        };
        assert!(
            said.starts_with("arm a: VM web has turbo vCPUs, and policy credit has no CPUs"),
            "{said}"
        );
        scenario.vms[0].turbo_vcpus = 0;
        assert!(judged(&scenario, "credit").is_ok());
    }
}
