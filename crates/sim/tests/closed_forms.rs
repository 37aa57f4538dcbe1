// SPDX-License-Identifier: GPL-2.0-only
//! Truths that do not come from the simulator: the convergence of round robin to processor sharing, and weighted
//! max-min shares. Whether intervals cover closed forms: `make oracles`, and over fewer seeds a suite of `make test`.
use berth_policy::policy::Policy;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::Hz;
use berth_sim::machine::Shape;
use berth_sim::oracle::closed_forms::{RoundRobin, Row, closed};
use berth_sim::oracle::share::{Claim, Group, max_min, max_min_nested};
use berth_sim::run::{Options, load_policy, settle};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::{Action, Ctx, Nanos, TaskId, TaskSpec, Who, Workload};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

#[path = "support/shipped.rs"]
mod shipped;

/// The closed network approaches its formula from above, and monotonically, as the quantum shrinks.
#[test]
fn round_robin_converges_to_processor_sharing() {
    let machine = RoundRobin::compile().unwrap();
    let truth = Row::ClosedPs.truth();
    let error = |quantum_us: u64| {
        let all: Vec<f64> = (1..=2)
            .flat_map(|seed| closed(&machine, seed, quantum_us * 1000).unwrap())
            .collect();
        all.iter().sum::<f64>() / all.len() as f64 / truth - 1.0
    };
    let errors = [3000, 1000, 300, 100].map(error);
    assert!(errors.windows(2).all(|e| e[0] > e[1]), "{errors:?}");
    assert!(errors[0] > 0.3 && errors[3].abs() < 0.03, "{errors:?}");
}

/// Threads that burn CPU time without end, each with a nice value, in a VM or not.
struct Hogs {
    /// VM and nice.
    threads: Vec<(Option<u32>, i32)>,
    tasks: Vec<TaskId>,
}

impl Workload for Hogs {
    fn start(&mut self, ctx: &mut Ctx) {
        for (token, (vm, nice)) in (0..).zip(&self.threads) {
            ctx.spawn(&TaskSpec {
                token,
                vm: *vm,
                nice: *nice,
                ..TaskSpec::default()
            });
        }
    }
    fn born(&mut self, token: u32, task: TaskId) {
        self.tasks[token as usize] = task;
    }
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, _: Who, _: Nanos, _: &mut Ctx) -> Action {
        Action::ComputeForever
    }
    fn event(&mut self, _: u64, _: Nanos, _: &mut Ctx) {}
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}

/// Shares (in CPUs) of all threads over `end` ns.
fn shares(
    policy: &Policy,
    cpus: u32,
    vms: &[VmSpec],
    threads: Vec<(Option<u32>, i32)>,
    end: Nanos,
) -> Vec<f64> {
    let tasks = vec![0; threads.len()];
    let spec = MachineSpec {
        hz: Hz::Exact,
        ..MachineSpec::new(Shape::flat(cpus))
    };
    let mut machine = Simulation::new(&spec, vms, Hogs { threads, tasks });
    load_policy(
        &mut machine,
        policy,
        &BTreeMap::new(),
        vms,
        &Options::default(),
    )
    .unwrap();
    machine.start();
    machine.run_until(end).unwrap();
    machine.check().unwrap();
    let k = machine.kernel();
    settle(k);
    let ran = |task: &TaskId| k.tasks.hot[*task as usize].runtime as f64 / end as f64;
    machine.workload.tasks.iter().map(ran).collect()
}

/// Weight of a nice value, as the kernel gives it to sched_ext (cgroup scale, 100 at nice 0).
fn weight(nice: i32) -> f64 {
    // kernel/sched/core.c documents 1.25 per level; its table rounds to integers out of 1024.
    let table = [1024.0, 820.0, 655.0, 526.0, 423.0, 335.0];
    let w: f64 = table[nice as usize];
    (w * 100.0 / 1024.0).round()
}

/// vtime, threads of random weights: every thread's share is its weighted max-min share. On every CPU several
/// threads wait, so that nobody is entitled to more than a third of a CPU: above a half, putting the previous
/// thread back after its successor is chosen limits it (see the policy's own comment).
#[test]
fn vtime_gives_weighted_max_min_shares() {
    let policy = shipped::policy("vtime");
    let mut rng = Rng::new(1, Stream::Thread(0));
    for _ in 0..40 {
        let cpus = 1 + rng.below(4) as u32;
        let n = 5 * cpus as usize + rng.below(6) as usize;
        let nice: Vec<i32> = (0..n).map(|_| rng.below(6) as i32).collect();
        let claims: Vec<Claim> = nice
            .iter()
            .map(|n| Claim {
                weight: weight(*n),
                limit: 1.0,
            })
            .collect();
        let truth = max_min(f64::from(cpus), &claims);
        let end = 20_000_000_000;
        let got = shares(
            &policy,
            cpus,
            &[],
            nice.iter().map(|n| (None, *n)).collect(),
            end,
        );
        // Two slices of 3 ms, and the slice that starts it all.
        for (i, (got, truth)) in got.iter().zip(&truth).enumerate() {
            let error = (got - truth).abs() * end as f64;
            assert!(
                error < 12e6,
                "{cpus} CPUs, nice {nice:?}: thread {i} has {got}, fair is {truth}"
            );
        }
    }
}

/// vmfair, VMs of random weights and sizes: VMs share by weight, then threads of a VM share alike; nobody gets
/// more than a CPU and nothing is left over.
#[test]
fn vmfair_gives_nested_max_min_shares() {
    let policy = shipped::policy("vmfair");
    let mut rng = Rng::new(2, Stream::Thread(0));
    let mut worst: f64 = 0.0;
    for _ in 0..40 {
        let cpus = 1 + rng.below(4) as u32;
        let nr_vms = 2 + rng.below(4) as u32;
        let mut vms = Vec::new();
        let mut groups = Vec::new();
        let mut threads = Vec::new();
        for vm in 0..nr_vms {
            let weight = [50, 100, 100, 200, 300][rng.below(5) as usize];
            let vcpus = 1 + rng.below(2 * u64::from(cpus)) as u32;
            vms.push(VmSpec {
                name: format!("vm{vm}"),
                group: vm,
                class: berth_scenario::model::Class::Batch,
                weight,
                cap_milli: None,
                vcpus,
            });
            threads.extend((0..vcpus).map(|_| (Some(vm), 0)));
            groups.push(Group {
                weight: f64::from(weight),
                members: vec![
                    Claim {
                        weight: 1.0,
                        limit: 1.0,
                    };
                    vcpus as usize
                ],
            });
        }
        let end = 20_000_000_000;
        let truth: Vec<f64> = max_min_nested(f64::from(cpus), &groups).concat();
        let got = shares(&policy, cpus, &vms, threads, end);
        for (got, truth) in got.iter().zip(&truth) {
            worst = worst.max((got - truth).abs());
        }
        let given: f64 = got.iter().sum();
        let limit = f64::from(cpus).min(truth.len() as f64);
        assert!(
            (given - limit).abs() < 1e-3,
            "{given} of {limit} CPUs used: {vms:?} {got:?}"
        );
        let of_vm = |x: &[f64]| {
            let mut rest = x.iter();
            let sizes = groups.iter().map(|g| g.members.len());
            sizes
                .map(|n| rest.by_ref().take(n).sum::<f64>())
                .collect::<Vec<_>>()
        };
        for (got, truth) in of_vm(&got).iter().zip(of_vm(&truth)) {
            assert!(
                (got - truth).abs() < 0.02,
                "{cpus} CPUs, {vms:?}: a VM has {got} CPUs, fair is {truth}"
            );
        }
    }
    assert!(worst < 0.05, "a thread is {worst} CPUs off its fair share");
}
