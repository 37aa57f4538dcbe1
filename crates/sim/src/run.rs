// SPDX-License-Identifier: GPL-2.0-only
//! One simulation: a scenario under one policy with one seed, from boot to record.
use crate::error::SimError;
use crate::guest;
use crate::machine::Shape;
use crate::machine::task::Waits;
use crate::record;
use crate::scx::consts::EXIT_ERROR;
use crate::scx::identity::{self, VmSpec};
use crate::scx::kernel::{Handle, MachineSpec};
use crate::scx::kfunc;
use crate::scx::mutation::{MUTATIONS, Mutation};
use crate::scx::ops::{Policy as Loaded, Port};
use crate::sim::Machine;
use crate::stats::bounds;
use crate::stats::recent::Recent;
use crate::trace;
use crate::workload::api::{Nanos, VmId, Workload};
use crate::workload::scenario::ScenarioWorkload;
use berth_policy::instance::{Instance, InstanceConfig, Mode};
use berth_policy::ir::{Operation, Program, Size, Src};
use berth_policy::kview::{SchedExtEntity, TaskStruct};
use berth_policy::needs::Needs;
use berth_policy::policy::Policy;
use berth_policy::profile::Kconfig;
use berth_results::schema::{Place, RunRecord};
use berth_scenario::dist::{Rng, Stream, lead_ns, uptime_ns};
use berth_scenario::model::{Host, Hz, PleYield, Scenario, VmRole};
use berth_scenario::placement::instances;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::atomic::AtomicBool;

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Interpret the policy, checking every access: slower; errors name function, file and line.
    pub checked: bool,
    /// Slices end by a timer besides the ticks, as those of Linux's own scheduler do from 7.2 on ([`MachineSpec::slice_timer`]).
    pub slice_timer: bool,
    /// A deliberately wrong kernel model (tests of tests).
    pub mutation: Option<Mutation>,
    /// Which scheduler of the object, if it has several.
    pub ops_var: Option<String>,
    /// Keep the trace ([`run_traced`]).
    pub record: bool,
    /// Told what happens. A run with one is not repeated in checked mode when the policy fails.
    pub sink: Option<trace::SharedSink>,
    /// By VM group: the scheduler inside. Without one, or for driver domains, a VM's tasks are folded onto its vCPU
    /// threads (see [`berth_scenario::placement`]).
    pub guests: Vec<Option<GuestPolicy>>,
    /// Set from outside (Ctrl-C) to end a run early, with [`SimError::Cancelled`].
    pub cancel: Option<&'static AtomicBool>,
}

/// The scheduler inside the VMs of a group.
#[derive(Clone)]
pub struct GuestPolicy {
    pub policy: Policy,
    pub params: BTreeMap<String, String>,
}

impl std::fmt::Debug for GuestPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GuestPolicy({}, {:?})", self.policy.hash(), self.params)
    }
}

impl Options {
    /// The scheduler inside the VMs of this group, if they have one.
    pub fn guest(&self, scenario: &Scenario, group: usize) -> Option<&GuestPolicy> {
        let folded = scenario.vms[group].role == VmRole::Driver;
        self.guests.get(group)?.as_ref().filter(|_| !folded)
    }
}

/// Kernels from this line on end the slices of their own scheduler by a timer, not only at ticks (HRTICK);
/// sched_ext policies are not concerned. The lab shows it: five hogs on one CPU are switched 1,413 times a second.
const TIMER_SINCE: (u32, u32) = (7, 2);

/// What the machine does for the kernel's own scheduler only, which a policy stands in for.
pub fn kernel_scheduler(host: &mut Host, opts: &mut Options) {
    host.cost.own_scheduler();
    let mut line = host.kernel.split('.').map(|n| n.parse().unwrap_or(0));
    let line = (line.next().unwrap_or(0), line.next().unwrap_or(0));
    opts.slice_timer = line >= TIMER_SINCE;
}

/// The machine of a scenario's host.
pub fn machine_spec(host: &Host, seed: u64, opts: &Options) -> MachineSpec {
    let ticks = host.hz != Hz::Exact;
    MachineSpec {
        shape: Shape {
            nodes: host.nodes,
            packages: host.packages,
            llcs: host.llcs,
            cores: host.cores,
            threads: host.threads,
        },
        hz: host.hz,
        slice_timer: opts.slice_timer && ticks,
        steal_accounting: true,
        ple_yield: host.ple_yield.unwrap_or_default(),
        cost: host.cost.clone(),
        tick_phase_ns: match host.hz {
            // A real machine's ticks know nothing of when the work begins.
            Hz::Ticks(hz) => {
                Rng::new(seed, Stream::Ticks).below(1_000_000_000 / u64::from(hz.max(1)))
            }
            Hz::Exact => 0,
        },
        // Nor does what the policy does by timers of its own.
        lead_ns: if ticks { lead_ns(seed) } else { 0 },
        uptime_ns: if ticks { uptime_ns(seed) } else { 0 },
        tasks: 64,
        needs: Needs::ALL,
        seed,
        mutation: opts.mutation,
        hotplug: host.hotplug.clone(),
    }
}

/// The VMs of a scenario, in the order of their numbers.
pub fn vm_specs(scenario: &Scenario) -> Vec<VmSpec> {
    let of = |v: berth_scenario::placement::VmInstance| {
        let vm = &scenario.vms[v.group];
        VmSpec {
            name: v.name,
            group: v.group as u32,
            class: vm.class,
            weight: vm.weight,
            cap_milli: vm.cap_milli,
            vcpus: vm.vcpus,
        }
    };
    instances(scenario).into_iter().map(of).collect()
}

/// Does the policy store to `p->scx.slice` itself? Then ticks cannot be skipped: the store is noticed at the
/// next tick. (An equal offset into something else costs time only.)
fn writes_slices(program: &Program) -> bool {
    let slice = offset_of!(TaskStruct, scx) + offset_of!(SchedExtEntity, slice);
    let stores = |op: &Operation| {
        matches!(op, Operation::Store { size: Size::B8, off, src, .. }
            if *off as usize == slice && !matches!(src, Src::Imm(i) if *i < 0))
    };
    program
        .funcs
        .iter()
        .any(|f| f.insns.iter().any(|i| stores(&i.op)))
}

/// Do the machine's tasks have what the policy can reach?
fn reaches(k: Handle, policy: &Policy) -> Result<(), SimError> {
    if k.tasks.needs().cover(policy.needs()) {
        return Ok(());
    }
    let what = "the policy reaches more of the kernel's tasks than this machine has of them: \
                give `MachineSpec::needs` what `Policy::needs` says";
    Err(SimError::Setting(what.into()))
}

/// Make the policy's data for the host and let it take over.
///
/// # Errors
/// A parameter, map or constant that does not fit.
pub fn load_policy<W: Workload>(
    machine: &mut Machine<W>,
    policy: &Policy,
    params: &BTreeMap<String, String>,
    vms: &[VmSpec],
    opts: &Options,
) -> Result<(), SimError> {
    let loaded = instance(machine.kernel(), policy, params, vms, opts)?;
    machine.load(loaded);
    Ok(())
}

/// As [`load_policy`], for the machine inside a VM (which has been given one).
///
/// # Errors
/// As [`load_policy`].
pub fn load_guest_policy<W: Workload>(
    machine: &mut Machine<W>,
    vm: VmId,
    policy: &Policy,
    params: &BTreeMap<String, String>,
    opts: &Options,
) -> Result<(), SimError> {
    if let Some(k) = machine.guest(vm) {
        let loaded = instance(k, policy, params, &[], opts)?;
        machine.load_guest(vm, loaded);
    }
    Ok(())
}

/// A policy's data for one machine.
fn instance(
    mut k: Handle,
    policy: &Policy,
    params: &BTreeMap<String, String>,
    vms: &[VmSpec],
    opts: &Options,
) -> Result<Loaded, SimError> {
    reaches(k, policy)?;
    policy.fits(k.topo.nr_cpus())?;
    let mut config = InstanceConfig::new(k.topo.nr_cpus());
    config.seed = k.seed;
    config.params = params.clone();
    config.mode = if opts.checked {
        Mode::Checked
    } else {
        Mode::Native
    };
    let hz = match k.hz {
        Hz::Ticks(hz) => hz,
        Hz::Exact => 1000,
    };
    config
        .kconfig
        .insert("CONFIG_HZ".into(), Kconfig::Int(hz as i64));
    let machine = identity::Facts {
        vms: vms.len() as u32,
        cgroups: k.cgroups.groups.len() as u32,
        hz: match k.hz {
            Hz::Ticks(hz) => hz,
            Hz::Exact => 0,
        },
        slice_timer: k.slice_timer,
        tick_phase_ns: k.tick_phase(),
    };
    identity::prepare(&mut config, policy, &k.topo, &machine);
    let ops_var = opts.ops_var.as_deref();
    let instance = Instance::new(policy, ops_var, &config, kfunc::vtable()?)?;
    identity::fill(
        &instance,
        &k.topo,
        |cpu| k.capacity(cpu),
        vms,
        |vm| k.cgroups.of_vm(vm) as u64 + 1,
    )
    .map_err(SimError::Setting)?;
    let var = policy.ops_var(ops_var)?;
    let ops: Vec<_> = var.ops.iter().map(|(op, _)| *op).collect();
    k.real_ticks = ops.contains(&berth_policy::abi::Op::Tick) || writes_slices(policy.program());
    Ok(Loaded::new(
        Port::Instance(instance),
        &var.name,
        &ops,
        var.flags,
        var.timeout_ms,
        var.dispatch_max_batch,
    ))
}

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
    let mut m = Machine::new(&spec, &vms, workload);
    if opts.record {
        m.record();
    }
    if let Some(flag) = opts.cancel {
        m.cancel_by(flag);
    }
    guest::scenario::add(&mut m, scenario, seed, opts);
    load_policy(&mut m, policy, params, &vms, opts)?;
    guest::scenario::load(&mut m, scenario, opts)?;
    let mut k = m.kernel();
    k.recent = Recent::new(k.topo.nr_cpus());
    if let Some(sink) = &opts.sink {
        m.tell(sink);
    }
    m.start();
    // Before the warm-up: replies during it are not measured.
    m.workload.measure_from(scenario.run.warmup_ns);
    m.run_until(scenario.run.warmup_ns)?;
    let before = Totals::of(k);
    settle(k);
    k.stats.reset();
    k.recent.reset();
    let guests_before = guest::scenario::Before::of(m.world());
    let (begin, measure) = (scenario.run.warmup_ns, scenario.run.measure_ns);
    let end = begin + measure;
    let mut series = record::Series::default();
    series.begin(k.now);
    for part in 1..=record::PARTS {
        m.run_until(
            begin + (u128::from(measure) * u128::from(part) / u128::from(record::PARTS)) as u64,
        )?;
        settle(k);
        series.look(k, scenario, &vms);
    }
    let mut metrics = BTreeMap::new();
    machine_metrics(k, scenario, &vms, &before, &mut metrics);
    guests_before.metrics(m.world(), scenario, &mut metrics);
    m.workload.metrics(end, &mut metrics);
    m.check()?;
    k.end_of_waits();
    let mut record = RunRecord::new(Place::Sim, arm, seed, metrics);
    record.hash = format!("{:016x}", m.trace_hash());
    record.waits = record::waits(k, scenario, &vms);
    record.worst = record::worst(k, scenario);
    record::times(k, scenario, &vms, &mut record.times);
    m.workload.times(&mut record.times);
    record.series = series.finish();
    m.unload()?;
    Ok((record, m.trace()))
}

/// Machine-wide counters, to subtract what came before the measured window.
struct Totals {
    at_ns: Nanos,
    switches: u64,
    idle_ns: u64,
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
            insns: k.policy.insns(),
            calls: k.queue_calls,
            counters: k
                .policy
                .instance()
                .map(Instance::counters)
                .unwrap_or_default(),
        }
    }
}

/// Account what is running and waiting up to now, so that a window has sharp edges.
pub fn settle(mut k: Handle) {
    let now = k.now;
    let kernel = &mut *k;
    if let Some(blame) = &mut kernel.stats.blame {
        blame.settle(now);
    }
    for hot in kernel.tasks.hot.iter().filter(|hot| hot.waits != Waits::No) {
        kernel.stats.still_waits(hot.stats, hot.queued_at, now);
    }
    kernel.stats.settled_at = now;
    for cpu in 0..k.cpus.len() as u32 {
        if k.cpus[cpu as usize].is_idle() {
            continue;
        }
        k.sync_work(cpu);
        let now = k.now;
        let c = &mut k.cpus[cpu as usize];
        let span = now - c.since;
        c.since = now;
        if c.paused {
            c.stolen_ns += span;
            continue;
        }
        c.busy_ns += span;
        let curr = c.curr as usize;
        k.tasks.hot[curr].runtime += span;
        let entry = k.tasks.hot[curr].stats;
        k.stats.ran(entry, span);
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
        let sum = |f: &dyn Fn(&crate::stats::Counters) -> u64| -> f64 {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::w8;
    use berth_policy::policy::LoadOptions;

    fn w8_under(name: &str, opts: &Options, seconds: u64) -> (u64, f64, String) {
        let policy = berth_builtin::find(name)
            .expect("a shipped policy")
            .load(&LoadOptions::default())
            .unwrap();
        let mut spec = MachineSpec::new(Shape::flat(8));
        spec.tasks = 80;
        spec.hz = Hz::Ticks(1000);
        let mut m = Machine::new(&spec, &[], w8());
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
