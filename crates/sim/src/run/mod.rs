// SPDX-License-Identifier: GPL-2.0-only
//! One simulation: a scenario under one policy with one seed, from boot to record.
mod duty;
mod guests;
mod load;
mod optimiser;
mod options;
mod window;

pub use load::{load_guest_policy, load_policy};
pub use options::{GuestPolicy, Options, kernel_scheduler, machine_spec, vm_specs};
pub use window::settle;

use self::optimiser::Controller;
use crate::error::SimError;
use crate::record;
use crate::scx::consts::EXIT_ERROR;
use crate::scx::identity::VmSpec;
use crate::scx::kernel::Handle;
use crate::scx::mutation::MUTATIONS;
use crate::sim::Simulation;
use crate::stats::recent::Recent;
use crate::stats::{Counters, bounds};
use crate::trace;
use crate::words::Nanos;
use crate::workload::api::Workload;
use crate::workload::scenario::ScenarioWorkload;
use berth_identity::Scored;
use berth_identity::record::{SCORED, VMS};
use berth_policy::instance::Instance;
use berth_policy::policy::Policy;
use berth_results::evenness;
use berth_results::schema::{Place, RunRecord};
use berth_scenario::model::{PleYield, Scenario, VmRole};
use berth_scenario::placement::SHARED_NOTE;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Is there a line of the policy to blame?
fn has_a_place(error: &SimError) -> bool {
    match error {
        SimError::Trap { .. } => true,
        SimError::Guest { error, .. } => has_a_place(error),
        SimError::PolicyExit { kind, .. } => *kind == EXIT_ERROR,
        _ => false,
    }
}

/// Simulate a scenario (as its arm sees it) under a policy. Equal arguments give equal records.
///
/// # Errors
/// The scenario does not fit, a parameter is wrong, or the run ended early: the policy was ejected for a mistake or
/// trapped (then the run is repeated in checked mode, to name function, file and line), or an invariant broke.
pub fn run_one(
    scenario: &Scenario,
    arm: &str,
    policy: &Policy,
    params: &BTreeMap<String, String>,
    seed: u64,
    opts: &Options,
) -> Result<RunRecord, SimError> {
    run_traced(scenario, arm, policy, params, seed, opts).map(|(r, _)| r)
}

/// As [`run_one`], with the trace if `opts.record` asks for it.
///
/// # Errors
/// As [`run_one`].
pub fn run_traced(
    scenario: &Scenario,
    arm: &str,
    policy: &Policy,
    params: &BTreeMap<String, String>,
    seed: u64,
    opts: &Options,
) -> Result<(RunRecord, Vec<trace::Event>), SimError> {
    match attempt(scenario, arm, policy, params, seed, opts) {
        Err(native) if !opts.checked && opts.sink.is_none() && has_a_place(&native) => {
            let checked = Options {
                checked: true,
                ..opts.clone()
            };
            match attempt(scenario, arm, policy, params, seed, &checked) {
                // The interpreter says where; if it sees nothing wrong, the machine code's word stands.
                Err(e) => Err(e),
                Ok(_) => Err(native),
            }
        }
        result => result,
    }
}

fn attempt(
    scenario: &Scenario,
    arm: &str,
    policy: &Policy,
    params: &BTreeMap<String, String>,
    seed: u64,
    opts: &Options,
) -> Result<(RunRecord, Vec<trace::Event>), SimError> {
    if opts.mutation.is_some() && !MUTATIONS {
        let why = "this build has no wrong models: build berth-sim with the feature `mutations`";
        return Err(SimError::Setting(why.into()));
    }
    let inside = |group: usize| opts.guest(scenario, group).is_some();
    let workload = ScenarioWorkload::with_guests(scenario, seed, &inside)?;
    let mut spec = machine_spec(&scenario.host, seed, opts);
    if scenario.host.ple_yield.is_none() && policy.hypervisor() == Some("xen") {
        spec.ple_yield = PleYield::Xen;
    }
    let vms = vm_specs(scenario);
    spec.tasks = workload.host_threads() + 8;
    spec.needs = policy.needs();
    spec.shared_cgroups = options::shared_cgroups(scenario);
    spec.memory = options::memory(scenario);
    let mut m = Simulation::new(&spec, &vms, workload);
    if opts.record {
        m.record();
    }
    if let Some(flag) = opts.cancel {
        m.cancel_by(flag);
    }
    guests::add(&mut m, scenario, seed, opts);
    load_policy(&mut m, policy, params, &vms, opts)?;
    guests::load(&mut m, scenario, opts)?;
    let mut k = m.kernel();
    k.recent = Recent::new(k.topo.nr_cpus());
    if let Some(sink) = &opts.sink {
        m.tell(sink);
    }
    m.start();
    let mut optimiser = Controller::new(scenario, &vms)?;
    // Before the warm-up: replies during it are not measured.
    m.workload.measure_from(scenario.run.warmup_ns);
    advance(&mut m, &mut optimiser, scenario.run.warmup_ns)?;
    let before = Totals::of(k);
    settle(k);
    if let Some(optimiser) = &mut optimiser {
        optimiser.before_reset(k);
    }
    k.stats.reset();
    k.recent.reset();
    let guests_before = guests::Before::of(&m);
    let (begin, measure) = (scenario.run.warmup_ns, scenario.run.measure_ns);
    let end = begin + measure;
    let mut series = record::Series::default();
    series.begin(k.now);
    for part in 1..=record::PARTS {
        let until = u128::from(measure) * u128::from(part) / u128::from(record::PARTS);
        advance(&mut m, &mut optimiser, begin + until as u64)?;
        settle(k);
        series.look(k, scenario, &vms);
    }
    let mut metrics = BTreeMap::new();
    machine_metrics(k, scenario, &vms, &before, &mut metrics);
    scores(k, scenario, &vms, &mut metrics);
    guests_before.metrics(&m, scenario, &mut metrics);
    m.workload.metrics(end, &mut metrics);
    if let Some(optimiser) = &optimiser {
        let per_s = optimiser.changes() as f64 / (measure as f64 / 1e9);
        metrics.insert("host.changes".into(), per_s);
    }
    m.check()?;
    k.end_of_waits();
    let mut record = RunRecord::new(Place::Sim, arm, seed, metrics);
    record.hash = format!("{:016x}", m.trace_hash());
    let told = k.policy.instance().is_some_and(|i| i.map(VMS).is_some());
    if told && !spec.shared_cgroups.is_empty() {
        record.notes.push(SHARED_NOTE.into());
    }
    record.waits = record::waits(k, scenario, &vms);
    record.worst = record::worst(k, scenario);
    record::times(k, scenario, &vms, &mut record.times);
    m.workload.times(&mut record.times);
    record.series = series.finish();
    record.decisions = optimiser.map_or(Vec::new(), Controller::into_decisions);
    m.unload()?;
    Ok((record, m.trace()))
}

/// Runs up to an instant, watched by the optimiser if there is one.
fn advance(
    m: &mut Simulation<ScenarioWorkload>,
    optimiser: &mut Option<Controller>,
    until: Nanos,
) -> Result<(), SimError> {
    match optimiser {
        Some(optimiser) => optimiser.run_until(m, until),
        None => m.run_until(until),
    }
}

/// Machine-wide counters, to subtract what came before the measured window.
struct Totals {
    at_ns: Nanos,
    switches: u64,
    idle_ns: u64,
    unused_ns: u64,
    insns: u64,
    calls: u64,
    counters: Vec<(String, u64)>,
}

impl Totals {
    fn of(k: Handle) -> Self {
        Totals {
            at_ns: k.now,
            switches: k.cpus.iter().map(|c| c.switches).sum(),
            idle_ns: (0..k.cpus.len())
                .map(|c| {
                    let c = &k.cpus[c];
                    c.idle_ns + if c.is_idle() { k.now - c.since } else { 0 }
                })
                .sum(),
            unused_ns: k.stats.unused.ns(k.now),
            insns: k.policy.insns(),
            calls: k.code.queue_calls,
            counters: k
                .policy
                .instance()
                .map(Instance::counters)
                .unwrap_or_default(),
        }
    }
}

fn quantiles(
    out: &mut BTreeMap<String, f64>,
    prefix: &str,
    h: &Histogram<u64>,
    list: &[(&str, f64)],
) {
    out.insert(format!("{prefix}.count"), h.len() as f64);
    if h.is_empty() {
        return;
    }
    out.insert(format!("{prefix}.mean"), h.mean());
    out.insert(format!("{prefix}.max"), h.max() as f64);
    for (name, q) in list {
        out.insert(format!("{prefix}.{name}"), h.value_at_quantile(*q) as f64);
    }
}

fn machine_metrics(
    k: Handle,
    scenario: &Scenario,
    vms: &[VmSpec],
    before: &Totals,
    out: &mut BTreeMap<String, f64>,
) {
    let now = Totals::of(k);
    let span_ns = (now.at_ns - before.at_ns).max(1) as f64;
    let span_s = span_ns / 1e9;
    let cpus = k.cpus.len() as f64;
    let switches = (now.switches - before.switches) as f64;
    out.insert("host.switches".into(), switches / span_s);
    out.insert("host.switches_per_cpu".into(), switches / span_s / cpus);
    out.insert(
        "host.idle".into(),
        (now.idle_ns - before.idle_ns) as f64 / span_ns / cpus,
    );
    out.insert(
        "host.unused".into(),
        (now.unused_ns - before.unused_ns) as f64 / span_ns / cpus,
    );
    k.stats.moves(span_s, out);
    if switches > 0.0 {
        out.insert(
            "policy.insns_per_switch".into(),
            (now.insns - before.insns) as f64 / switches,
        );
        out.insert(
            "policy.calls_per_switch".into(),
            (now.calls - before.calls) as f64 / switches,
        );
    }
    for ((name, now), (_, before)) in now.counters.iter().zip(&before.counters) {
        let counted = now.wrapping_sub(*before) as f64;
        out.insert(format!("policy.{name}"), counted / span_s);
    }
    // Objects: VM groups, VMs of groups with several, the host's own threads.
    let mut objects: Vec<(String, Vec<u32>, bool)> = Vec::new();
    for (g, group) in scenario.vms.iter().enumerate() {
        let members: Vec<u32> = (0..vms.len() as u32)
            .filter(|v| vms[*v as usize].group == g as u32)
            .collect();
        if members.len() > 1 {
            for v in &members {
                objects.push((
                    vms[*v as usize].name.clone(),
                    vec![*v],
                    k.stats.own_histograms(),
                ));
            }
        }
        objects.push((group.name.clone(), members, true));
    }
    let own = k.stats.index(None);
    objects.push(("host".into(), vec![own], true));
    for (name, members, histograms) in objects {
        let sum = |f: &dyn Fn(&Counters) -> u64| -> f64 {
            members
                .iter()
                .map(|v| f(&k.stats.vms[*v as usize]))
                .sum::<u64>() as f64
        };
        let ran = sum(&|c| c.ran_ns);
        let waited = sum(&|c| c.waited_ns);
        if name == "host" && ran == 0.0 {
            continue;
        }
        out.insert(format!("{name}.cpu"), ran / span_ns);
        out.insert(format!("{name}.work"), sum(&|c| c.work_ns));
        // `host.switches` are those of all CPUs.
        if name != "host" {
            out.insert(format!("{name}.switches"), sum(&|c| c.waits) / span_s);
        }
        out.insert(
            format!("{name}.migrations"),
            sum(&|c| c.migrations) / span_s,
        );
        if ran + waited > 0.0 {
            out.insert(format!("{name}.run_delay.share"), waited / (ran + waited));
        }
        if let Some(on_kind) = &k.stats.on_kind {
            on_kind.metrics(&name, &members, span_ns, out);
        }
        if !histograms {
            continue;
        }
        let mut pairs: Vec<u32> = members.iter().map(|v| k.stats.pair_index(*v)).collect();
        pairs.dedup();
        let (mut wakeup, mut delay) = (bounds(), bounds());
        for p in pairs {
            let pair = &k.stats.pairs[p as usize];
            pair.wakeup.add_to(&mut wakeup);
            pair.run_delay.add_to(&mut delay);
        }
        let all = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];
        quantiles(out, &format!("{name}.wakeup"), &wakeup, &all);
        let some = [("p50", 0.5), ("p99", 0.99)];
        quantiles(out, &format!("{name}.run_delay"), &delay, &some);
    }
    for group in &scenario.vms {
        evenness::add(out, &group.name, group.count);
    }
    // What a driver domain does, it does for others.
    let groups = (scenario.vms.iter()).filter(|g| g.role != VmRole::Driver);
    evenness::add_all(out, groups.map(|g| (g.name.as_str(), g.count, g.weight)));
}

/// What a policy that asks what VMs gain from fast cores has found, and whence: of each VM, and of groups.
fn scores(k: Handle, scenario: &Scenario, vms: &[VmSpec], out: &mut BTreeMap<String, f64>) {
    let Some(map) = k.policy.instance().and_then(|i| i.map(SCORED)) else {
        return;
    };
    let of = |vm: usize| Scored::parse(&map.lookup(&(vm as u32 + 1).to_ne_bytes())?);
    let mut all: BTreeMap<&str, Vec<Scored>> = BTreeMap::new();
    for (i, vm) in vms.iter().enumerate() {
        let Some(scored) = of(i) else { continue };
        let group = scenario.vms[vm.group as usize].name.as_str();
        all.entry(group).or_default().push(scored);
        if group != vm.name {
            all.entry(&vm.name).or_default().push(scored);
        }
    }
    for (name, of) in all {
        out.extend(Scored::metrics(name, &of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Shape;
    use crate::scx::spec::MachineSpec;
    use crate::testing::w8;
    use berth_policy::policy::LoadOptions;
    use berth_scenario::model::Hz;

    fn w8_under(name: &str, opts: &Options, seconds: u64) -> (u64, f64, String) {
        let policy = berth_builtin::find(name)
            .expect("a shipped policy")
            .load(&LoadOptions::default())
            .unwrap();
        let mut spec = MachineSpec::new(Shape::flat(8));
        spec.tasks = 80;
        spec.hz = Hz::Ticks(1000);
        let mut m = Simulation::new(&spec, &[], w8());
        load_policy(&mut m, &policy, &BTreeMap::new(), &[], opts).unwrap();
        m.start();
        m.run_until(seconds * 1_000_000_000).unwrap();
        m.check().unwrap();
        let done = m.workload.scripts[..64].iter().map(|s| s.done / 2).sum();
        let k = m.kernel();
        settle(k);
        let hogs: u64 = m.workload.ids[64..]
            .iter()
            .map(|t| k.tasks.hot[*t as usize].runtime)
            .sum();
        let hash = format!("{:016x} {}", k.hash.finish(), k.policy.insns());
        m.unload().unwrap();
        (done, hogs as f64 / (8.0 * seconds as f64 * 1e9), hash)
    }

    #[test]
    fn w8_under_vtime_is_fair() {
        let native = w8_under("vtime", &Options::default(), 2);
        // Ideal fairness: 6,400 cycles a second, the hogs' share 0.2. Slices end at ticks only.
        assert!(
            (native.0 as f64 / 12_800.0 - 1.0).abs() < 0.02,
            "{native:?}"
        );
        assert!((native.1 - 0.2).abs() < 0.02, "{native:?}");
        // The interpreter does exactly the same.
        let checked = Options {
            checked: true,
            ..Options::default()
        };
        assert_eq!(w8_under("vtime", &checked, 2), native);
    }

    #[test]
    fn every_shipped_policy_runs_w8() {
        for b in berth_builtin::all() {
            let (done, ..) = w8_under(b.name, &Options::default(), 1);
            assert!(done > 300, "{}: {done} cycles", b.name);
        }
    }
}
