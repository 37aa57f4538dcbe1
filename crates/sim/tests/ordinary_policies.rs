// SPDX-License-Identifier: GPL-2.0-only
//! Ordinary sched_ext schedulers (the translator's test inputs and the shipped ones) on a machine with everything in
//! it: two nodes, four caches, SMT, costs, VMs in cgroups, threads that sleep, yield, fork, exit, change nice,
//! CPUs and class. Every invariant holds, everybody gets on, and interpreter and machine code do the same.
use berth_policy::abi::Op;
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::model::{Class, HostCost, Hotplug, Hz};
use berth_sim::machine::{MaskId, Shape};
use berth_sim::run::{Options, load_policy};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::{
    Action, Ctx, Nanos, Role, SchedClass, TaskId, TaskSpec, Who, Workload,
};
use berth_sim::{MachineSpec, SimError, Simulation};
use std::collections::BTreeMap;
use std::path::Path;

#[path = "support/shipped.rs"]
mod shipped;

const MS: Nanos = 1_000_000;

/// Threads of all kinds; `turns[token]` counts what each has done.
struct Restless {
    turns: Vec<u64>,
    tasks: BTreeMap<u32, TaskId>,
    half: MaskId,
    one: MaskId,
    /// Threads forked so far get tokens from here on.
    next_child: u32,
    /// May threads change their class?
    classes: bool,
}

const THREADS: u32 = 40;

impl Restless {
    fn new(classes: bool) -> Self {
        Restless {
            turns: vec![0; 4096],
            tasks: BTreeMap::new(),
            half: MaskId::ALL,
            one: MaskId::ALL,
            next_child: THREADS,
            classes,
        }
    }

    fn spec(token: u32) -> TaskSpec {
        TaskSpec {
            token,
            name: format!("t{token}"),
            vm: (token % 3).checked_sub(1),
            role: if token.is_multiple_of(3) {
                Role::Other
            } else {
                Role::Vcpu(token / 3)
            },
            nice: (token % 7) as i32 - 3,
            ..TaskSpec::default()
        }
    }
}

impl Workload for Restless {
    fn start(&mut self, ctx: &mut Ctx) {
        self.half = ctx.mask(&[0, 1, 4, 5]);
        self.one = ctx.mask(&[3]);
        for token in 0..THREADS {
            ctx.at_on(token % ctx.nr_cpus(), token as u64 * 37_000, token as u64);
        }
    }
    fn born(&mut self, token: u32, task: TaskId) {
        self.tasks.insert(token, task);
    }
    fn died(&mut self, token: u32, _: TaskId) {
        self.tasks.remove(&token);
    }
    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        let turn = self.turns[who.token as usize];
        self.turns[who.token as usize] += 1;
        let work = Action::Compute {
            ns: 300_000 + (who.token as u64 * 7919 + turn * 104_729) % 1_500_000,
        };
        let rest = Action::SleepUntil {
            at: now + 1 + (who.token as u64 * 6151 + turn * 15_485_863) % (4 * MS),
        };
        if who.token >= THREADS && turn > 3 {
            return Action::Exit;
        }
        match (who.token % 8, turn % 6) {
            (7, _) => work, // never sleeps
            (_, 0 | 2) => work,
            (0, 1) => Action::Yield,
            (1, 3) => Action::SetNice((turn % 9) as i32 - 4),
            (2, 3) => Action::SetAffinity(if turn % 12 < 6 {
                self.half
            } else {
                MaskId::ALL
            }),
            (2, 5) => Action::SetAffinity(self.one),
            (3, 3) if self.next_child < 4000 => {
                self.next_child += 1;
                Action::Fork(Box::new(Restless::spec(self.next_child - 1)))
            }
            (4, 3) if self.classes => Action::SetClass(SchedClass::Fair),
            (4, 5) if self.classes => Action::SetClass(SchedClass::Ext),
            (5, 1) => {
                // Wakes a neighbour early.
                if let Some(task) = self.tasks.get(&(who.token - 1)) {
                    ctx.wake_sync(*task);
                }
                work
            }
            _ => rest,
        }
    }
    fn event(&mut self, token: u64, _: Nanos, ctx: &mut Ctx) {
        ctx.spawn(&Restless::spec(token as u32));
    }
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}

fn spec() -> MachineSpec {
    let mut spec = MachineSpec::new(Shape {
        nodes: 2,
        packages: 2,
        llcs: 2,
        cores: 2,
        threads: 2,
    });
    spec.hz = Hz::Ticks(250);
    spec.tasks = 128;
    spec.cost = HostCost {
        switch_ns: 1500,
        migrate_same_core_ns: 200,
        migrate_same_llc_ns: 1000,
        migrate_same_package_ns: 2000,
        migrate_same_node_ns: 3000,
        migrate_other_node_ns: 9000,
        wake_ipi_ns: 2000,
        wake_ns: 700,
        preempt_ns: 150,
        tick_ns: 200,
        sleep_ns: 900,
        tick_skew_ns: 300,
        ..HostCost::default()
    };
    spec
}

fn vms() -> Vec<VmSpec> {
    let vm = |name: &str, group, class, weight| VmSpec {
        name: name.into(),
        group,
        class,
        weight,
        cap_milli: None,
        vcpus: 14,
    };
    vec![
        vm("web", 0, Class::Latency, 100),
        vm("batch", 1, Class::Batch, 300),
    ]
}

/// Runs for `ms`; returns the trace's hash, instructions and the turns of the least lucky thread.
fn run(
    policy: &Policy,
    spec: &MachineSpec,
    ms: u64,
    checked: bool,
) -> Result<(u64, u64, u64), SimError> {
    let mut m = Simulation::new(spec, &vms(), Restless::new(true));
    let opts = Options {
        checked,
        ..Options::default()
    };
    load_policy(&mut m, policy, &BTreeMap::new(), &vms(), &opts)?;
    m.start();
    for part in 1..=8 {
        m.run_until(ms * MS * part / 8)?;
        m.check()?;
    }
    let k = m.kernel();
    let least = (0..THREADS)
        .filter(|t| t % 8 != 7)
        .map(|t| m.workload.turns[t as usize])
        .min();
    let result = (k.hash.finish(), k.policy.insns(), least.unwrap_or(0));
    m.unload()?;
    Ok(result)
}

fn ordinary() -> Vec<(String, Policy)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policy/tests/policies");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path())
        .filter(|p| p.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    files.sort();
    let mut all: Vec<(String, Policy)> = files
        .iter()
        .map(|f| {
            let name = f.file_name().unwrap().to_string_lossy().into_owned();
            (name, Policy::from_path(f, &LoadOptions::default()).unwrap())
        })
        .collect();
    for b in berth_builtin::all() {
        all.push((b.name.into(), shipped::policy(b.name)));
    }
    all
}

#[test]
fn ordinary_schedulers_run_unmodified_and_alike_in_both_executors() {
    let mut wrong = Vec::new();
    for (name, policy) in ordinary() {
        match run(&policy, &spec(), 400, false) {
            Err(e) => wrong.push(format!("{name}: {e}")),
            Ok(native) => {
                // Turns of 100 ms are few in this time.
                let least = if name == "o1" { 1 } else { 10 };
                if native.2 < least {
                    wrong.push(format!("{name}: somebody did {} turns only", native.2));
                }
                match run(&policy, &spec(), 400, true) {
                    Ok(checked) if checked == native => (),
                    other => wrong.push(format!("{name}: native {native:?}, checked {other:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_cpu_that_goes_away_ends_a_scheduler_that_does_not_know_of_it() {
    for (name, policy) in ordinary() {
        let mut spec = spec();
        spec.hotplug = vec![
            Hotplug {
                at_ns: 50 * MS,
                cpu: 5,
                online: false,
            },
            Hotplug {
                at_ns: 90 * MS,
                cpu: 5,
                online: true,
            },
        ];
        let ops = &policy.ops_var(None).unwrap().ops;
        let knows = |op| ops.iter().any(|(o, _)| *o == op);
        let result = run(&policy, &spec, 200, false);
        if knows(Op::CpuOffline) && knows(Op::CpuOnline) {
            assert!(result.is_ok(), "{name}: {result:?}");
            continue;
        }
        let Err(SimError::PolicyExit { code, message, .. }) = result else {
            panic!("{name}: {result:?}");
        };
        assert_eq!(code, (1 << 48) | (1 << 32), "{name}");
        assert_eq!(message, "cpu 5 going offline, exiting scheduler", "{name}");
    }
}
