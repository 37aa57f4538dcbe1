// SPDX-License-Identifier: GPL-2.0-only
//! What the tests of `flms` share: a machine with the policy on it, and a look at the policy's state.
use crate::support::{self, Cast, Peek};
use berth_policy::policy::Policy;
use berth_scenario::model::Class;
use berth_scenario::{Input, read};
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy, run_one};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

pub const MS: u64 = 1_000_000;
/// Credits of a load, as the policy keeps them.
pub const LOAD_BITS: u32 = 8;
pub const BOOST: u64 = 0;
pub const UNDER: u64 = 1;
pub const OVER: u64 = 2;
pub const IO_KIND: u64 = 1;
pub const CPU_KIND: u64 = 2;

pub fn flms() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| support::policy("flms"))
}

pub fn vm(i: u32, class: Class, weight: u32, vcpus: u32) -> VmSpec {
    VmSpec {
        name: format!("v{i}"),
        group: i,
        class,
        weight,
        cap_milli: None,
        vcpus,
    }
}

pub fn machine(
    shape: Shape,
    vms: &[VmSpec],
    cast: Cast,
    params: &[(&str, &str)],
) -> Box<Simulation<Cast>> {
    with(flms(), shape, vms, cast, params)
}

/// The same with another policy.
pub fn on(
    policy: &str,
    shape: Shape,
    vms: &[VmSpec],
    cast: Cast,
    params: &[(&str, &str)],
) -> Box<Simulation<Cast>> {
    with(rival(policy), shape, vms, cast, params)
}

/// A rival of flms, loaded once.
fn rival(name: &str) -> &'static Policy {
    static LOADED: Mutex<BTreeMap<String, &'static Policy>> = Mutex::new(BTreeMap::new());
    let mut loaded = LOADED.lock().unwrap();
    loaded
        .entry(name.to_string())
        .or_insert_with(|| Box::leak(Box::new(support::policy(name))))
}

/// A scenario under a rival: its metrics, after half a second.
pub fn measured(
    policy: &str,
    set: &[(&str, &str)],
    time: &str,
    text: &str,
) -> BTreeMap<String, f64> {
    let text = format!(
        "title = \"{policy}\"\n[run]\nwarmup = \"500ms\"\nmeasure = \"{time}\"\n[compare]\npolicies = \
         [\"{policy}\"]\n{text}"
    );
    let input = Input {
        name: policy.into(),
        shown: policy.into(),
        text,
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
    let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    let options = Options::default();
    run_one(
        &scenario.scenario,
        policy,
        rival(policy),
        &set.collect(),
        1,
        &options,
    )
    .unwrap_or_else(|e| panic!("{e}\n{}", input.text))
    .metrics
}

/// The values of a rival's preset.
pub fn preset(policy: &str, name: &str) -> Vec<(&'static str, &'static str)> {
    let mut all = rival(policy).presets().iter();
    let found = all.find(|p| p.name == name).expect("it has this preset");
    let values = found.values.iter();
    values.map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

pub fn assert_near(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!(
        (got - want).abs() <= tolerance,
        "{what}: {got:.4}, expected {want:.4} within {tolerance:.4}"
    );
}

fn with(
    policy: &Policy,
    shape: Shape,
    vms: &[VmSpec],
    cast: Cast,
    params: &[(&str, &str)],
) -> Box<Simulation<Cast>> {
    with_spec(policy, MachineSpec::new(shape), vms, cast, params)
}

/// The same on a machine of which more is said.
pub fn on_machine(
    policy: &str,
    spec: MachineSpec,
    vms: &[VmSpec],
    cast: Cast,
    params: &[(&str, &str)],
) -> Box<Simulation<Cast>> {
    with_spec(rival(policy), spec, vms, cast, params)
}

fn with_spec(
    policy: &Policy,
    mut spec: MachineSpec,
    vms: &[VmSpec],
    cast: Cast,
    params: &[(&str, &str)],
) -> Box<Simulation<Cast>> {
    spec.tasks = cast.scripts.len() as u32 as usize + 8;
    let mut m = Box::new(Simulation::new(&spec, vms, cast));
    let params: BTreeMap<String, String> = params
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    load_policy(&mut m, policy, &params, vms, &Options::default()).unwrap();
    m.start();
    m
}

/// Looks at the policy's state.
pub fn peek<T>(m: &mut Simulation<Cast>, look: impl FnOnce(&Peek) -> T) -> T {
    let k = m.kernel();
    look(&Peek(k.policy.instance().unwrap()))
}

pub const HOG: &str = "[task.hog]\nmodel = \"busy\"\n";

/// A host, and hogs in VMs `v0` and so on of these weights.
pub fn hogs(host: &str, weights: &[u32]) -> String {
    let vm = |(i, weight): (usize, &u32)| {
        format!("[vm.v{i}]\nweight = {weight}\nclass = \"batch\"\ntasks = [\"hog\"]\n")
    };
    let vms: String = weights.iter().enumerate().map(vm).collect();
    format!("[host]\n{host}\nhz = \"exact\"\n{HOG}{vms}")
}

/// A VM that wakes and computes for a while, over and over.
pub fn napper(name: &str, class: &str, period: &str, compute: &str) -> String {
    format!(
        "[vm.{name}]\nclass = \"{class}\"\ntasks = [\"{name}\"]\n[task.{name}]\nmodel = \"periodic\"\n\
         period = \"{period}\"\ncompute = \"{compute}\"\n"
    )
}

/// What a thread has run, ns.
pub fn runtime(m: &Simulation<Cast>, i: usize) -> u64 {
    match m.workload.ids[i] {
        u32::MAX => 0,
        task => m.kernel().tasks.hot[task as usize].runtime,
    }
}

/// The longest time without a thread on a CPU, in steps; the policy's numbers are `index`.
pub fn longest_gap(
    m: &mut Simulation<Cast>,
    cpu: u32,
    index: u32,
    from: u64,
    until: u64,
    step: u64,
) -> u64 {
    let (mut gap, mut longest) = (0, 0);
    let mut now = from;
    while now < until {
        m.run_until(now).unwrap();
        let runs = peek(m, |p| p.curr(cpu)) == index;
        gap = if runs { 0 } else { gap + step };
        longest = longest.max(gap);
        now += step;
    }
    longest
}

pub const BUSY: [Action; 1] = [Action::ComputeForever];

pub fn naps(work: u64, sleep: u64) -> [Action; 2] {
    [
        Action::Compute { ns: work },
        Action::SleepUntil { at: sleep },
    ]
}

/// Number of the first vCPU of VM number `vm`, as the policy counts.
pub fn index_of(p: &Peek, vm: u32) -> u32 {
    let all = 1..p.var("vcpus_used") as u32;
    let mut found = all.filter(|v| p.vcpu(*v, "slot") == u64::from(vm) + 1);
    found.next().expect("it was born")
}

/// Members of the group for I/O.
pub fn sp(p: &Peek, cpus: u32) -> Vec<u32> {
    let all = 0..cpus;
    all.filter(|c| p.get("pcpus_by_cpu", *c, "short_slices") == 1)
        .collect()
}
