// SPDX-License-Identifier: GPL-2.0-only
//! Hosts with guests, real policies on both levels: events per CPU-second, and memory per vCPU.
//!
//! Per VM 4 vCPUs, 8 tasks that compute 1 ms and sleep 4 ms, and 2 that only compute; as many VMs as CPUs (small), or
//! 2.5 VMs per CPU and 8 + 2 tasks in each (large). Statistics and invariants on, trace not kept.
use crate::{Fallible, timed};
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::model::{Class, Hz};
use berth_sim::guest::GuestSpec;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_guest_policy, load_policy};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::{Action, Ctx, Nanos, Role, TaskId, TaskSpec, Who, Workload};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

pub const VCPUS: u32 = 4;
const WORKERS: u32 = 8;
const HOGS: u32 = 2;

/// What is run.
#[derive(Clone, Copy)]
pub struct Case {
    pub cpus: u32,
    pub vms: u32,
    pub hz: Option<u32>,
    pub host: &'static str,
    pub guest: &'static str,
    pub end_ns: Nanos,
}

impl Case {
    pub fn name(&self) -> String {
        let ticks = self.hz.map_or("exact".to_string(), |hz| format!("{hz} Hz"));
        format!(
            "{} on {} CPUs, {} VMs with {}, {ticks}",
            self.host, self.cpus, self.vms, self.guest
        )
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ran {
    pub sim_seconds: f64,
    pub seconds: f64,
    pub events: u64,
    pub switches: u64,
    /// Resident memory the machine took, per vCPU: when it had started, and at the end; bytes.
    pub built: f64,
    pub grown: f64,
    /// Of everything that happened: speed may not change it.
    pub hash: u64,
}

impl Ran {
    /// A row of the table; `bare_rate`: events per CPU-second of the bare loop in the same run.
    pub fn markdown(&self, what: &str, bare_rate: f64) -> String {
        let rate = self.events as f64 / self.seconds;
        format!(
            "| {what} | {:.2} | {:.2} | 1/{:.1} | {:.0} | {:.2} | {:.0} | {:.0} | {:016x} |",
            self.sim_seconds / self.seconds,
            rate / 1e6,
            bare_rate / rate,
            1e9 * self.seconds / self.events as f64,
            self.switches as f64 / self.seconds / 1e6,
            self.built,
            self.grown,
            self.hash
        )
    }

    pub fn json(&self, what: &str, bare_rate: f64) -> String {
        format!(
            "{{\"what\": \"{what}\", \"sim_s_per_cpu_s\": {:.4}, \"events_per_cpu_s\": {:.0}, \
             \"ratio_to_bare\": {:.4}, \"switches_per_cpu_s\": {:.0}, \"bytes_per_vcpu\": {:.0}, \
             \"bytes_per_vcpu_at_end\": {:.0}}}",
            self.sim_seconds / self.seconds,
            self.events as f64 / self.seconds,
            self.events as f64 / self.seconds / bare_rate,
            self.switches as f64 / self.seconds,
            self.built,
            self.grown
        )
    }
}

struct Work {
    vms: u32,
    computed: Vec<bool>,
}

impl Workload for Work {
    fn start(&mut self, ctx: &mut Ctx) {
        for vm in 0..self.vms {
            ctx.start_vm(vm);
            for i in 0..u64::from(WORKERS + HOGS) {
                let token = u64::from(vm) * u64::from(WORKERS + HOGS) + i;
                ctx.at_in(vm + 1, 0, token % 1_000 * 61_000 / 8, token);
            }
        }
    }
    fn born(&mut self, _: u32, _: TaskId) {}
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, who: Who, now: Nanos, _: &mut Ctx) -> Action {
        if who.token % (WORKERS + HOGS) >= WORKERS {
            return Action::ComputeForever;
        }
        let computed = &mut self.computed[who.token as usize];
        *computed = !*computed;
        if *computed {
            Action::Compute { ns: 1_000_000 }
        } else {
            let at = now + 4_000_000;
            Action::SleepUntil { at }
        }
    }
    fn event(&mut self, token: u64, _: Nanos, ctx: &mut Ctx) {
        ctx.spawn(&TaskSpec {
            token: token as u32,
            ..TaskSpec::default()
        });
    }
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}

/// Resident memory of this process, bytes.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|p| p.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}

fn policy(name: &str) -> Fallible<Policy> {
    let builtin = berth_builtin::find(name).ok_or(format!("no shipped policy {name}"))?;
    Ok(builtin.load(&LoadOptions::default())?)
}

/// One run.
pub fn run(case: &Case) -> Fallible<Ran> {
    let (host, guest) = (policy(case.host)?, policy(case.guest)?);
    let slice = |p: &Policy| {
        let has = p.params().iter().any(|p| p.name == "slice_us");
        let slice = has.then(|| ("slice_us".to_string(), "3000".to_string()));
        slice.into_iter().collect::<BTreeMap<_, _>>()
    };
    let before = resident();
    let spec = MachineSpec {
        hz: case.hz.map_or(Hz::Exact, Hz::Ticks),
        tasks: (case.vms * VCPUS) as usize,
        needs: host.needs(),
        ..MachineSpec::new(Shape::flat(case.cpus))
    };
    let vms: Vec<VmSpec> = (0..case.vms)
        .map(|vm| VmSpec {
            name: format!("vm{vm}"),
            group: 0,
            class: Class::Batch,
            weight: 100,
            cap_milli: None,
            vcpus: VCPUS,
        })
        .collect();
    let tasks = WORKERS + HOGS;
    let work = Work {
        vms: case.vms,
        computed: vec![false; (case.vms * tasks) as usize],
    };
    let mut m = Simulation::new(&spec, &vms, work);
    for vm in 0..case.vms {
        let inside = MachineSpec {
            hz: spec.hz,
            tasks: tasks as usize,
            needs: guest.needs(),
            seed: u64::from(vm),
            ..MachineSpec::new(Shape::flat(VCPUS))
        };
        let threads = (0..VCPUS)
            .map(|vcpu| TaskSpec {
                vm: Some(vm),
                role: Role::Vcpu(vcpu),
                ..TaskSpec::default()
            })
            .collect();
        m.add_guest(vm, &vms[vm as usize].name, &GuestSpec::new(inside, threads));
    }
    let opts = Options::default();
    load_policy(&mut m, &host, &slice(&host), &vms, &opts)?;
    let params = slice(&guest);
    for vm in 0..case.vms {
        load_guest_policy(&mut m, vm, &guest, &params, &opts)?;
    }
    m.start();
    m.run_until(20_000_000)?;
    let vcpus = f64::from(case.vms * VCPUS);
    let built = (resident() - before) / vcpus;
    let events = m.world().events;
    let (done, seconds) = timed(|| m.run_until(case.end_ns));
    done?;
    m.check()?;
    let machines = m.world().machines.clone();
    let switches = |k: &berth_sim::scx::Handle| k.cpus.iter().map(|c| c.switches).sum::<u64>();
    Ok(Ran {
        sim_seconds: (case.end_ns - 20_000_000) as f64 / 1e9,
        seconds,
        events: m.world().events - events,
        switches: machines.iter().flatten().map(switches).sum(),
        built,
        hash: m.trace_hash(),
        grown: (resident() - before) / vcpus,
    })
}
