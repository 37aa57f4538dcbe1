// SPDX-License-Identifier: GPL-2.0-only
//! Speeds, SMT siblings and caches, held against closed forms and small solvers that share nothing with the engine.
use berth_policy::policy::LoadOptions;
use berth_scenario::model::{Cache, CoreKind, HostCost, Hz};
use berth_sim::machine::{MaskId, Shape};
use berth_sim::run::{Options, load_policy, settle};
use berth_sim::workload::api::{Action, Ctx, Nanos, TaskId, TaskSpec, Who, Workload};
use berth_sim::{MachineSpec, Simulation};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// What a part does, over and over; `Sleep` until that long after now, `On` the CPU of that number alone.
#[derive(Clone, Copy, Debug)]
enum Act {
    Compute(Nanos),
    Busy,
    Sleep(Nanos),
    On(u32),
    /// Write down the present instant.
    Mark,
    Exit,
}

#[derive(Clone, Debug, Default)]
struct Part {
    acts: Vec<Act>,
    cpus: Vec<u32>,
    working_set: Option<u64>,
    at: usize,
    marks: Vec<Nanos>,
    task: TaskId,
}

#[derive(Default)]
struct Parts(Vec<Part>, Vec<MaskId>);

impl Workload for Parts {
    fn start(&mut self, ctx: &mut Ctx) {
        self.1 = (0..ctx.nr_cpus()).map(|c| ctx.mask(&[c])).collect();
        for token in 0..self.0.len() {
            let affinity = ctx.mask(&self.0[token].cpus);
            ctx.spawn(&TaskSpec {
                token: token as u32,
                affinity,
                working_set: self.0[token].working_set,
                ..TaskSpec::default()
            });
        }
    }
    fn born(&mut self, token: u32, task: TaskId) {
        self.0[token as usize].task = task;
    }
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, who: Who, now: Nanos, _: &mut Ctx) -> Action {
        let p = &mut self.0[who.token as usize];
        loop {
            let act = p.acts[p.at % p.acts.len()];
            p.at += 1;
            return match act {
                Act::Compute(ns) => Action::Compute { ns },
                Act::Busy => Action::ComputeForever,
                Act::Sleep(ns) => Action::SleepUntil { at: now + ns },
                Act::On(cpu) => Action::SetAffinity(self.1[cpu as usize]),
                Act::Exit => Action::Exit,
                Act::Mark => {
                    p.marks.push(now);
                    continue;
                }
            };
        }
    }
    fn event(&mut self, _: u64, _: Nanos, _: &mut Ctx) {}
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}

fn part(acts: &[Act], cpus: &[u32]) -> Part {
    Part {
        acts: acts.to_vec(),
        cpus: cpus.to_vec(),
        ..Part::default()
    }
}

fn machine(shape: Shape, cost: HostCost, parts: Vec<Part>, slice_us: u64) -> Simulation<Parts> {
    let spec = MachineSpec {
        hz: Hz::Exact,
        cost,
        ..MachineSpec::new(shape)
    };
    let policy = berth_builtin::find("gfifo").expect("shipped");
    let policy = policy.load(&LoadOptions::default()).unwrap();
    let mut m = Simulation::new(&spec, &[], Parts(parts, Vec::new()));
    let params = BTreeMap::from([("slice_us".to_string(), slice_us.to_string())]);
    load_policy(&mut m, &policy, &params, &[], &Options::default()).unwrap();
    // The kernel's own slice, for tasks that go on alone: 20 of the policy's.
    m.kernel().slice_dfl = 20_000 * slice_us;
    m.start();
    m
}

/// Work done so far by all, ns at full speed.
fn work(m: &Simulation<Parts>) -> u64 {
    let k = m.kernel();
    settle(k);
    k.stats.vms.iter().map(|c| c.work_ns).sum()
}

fn marks(m: &Simulation<Parts>, part: usize) -> Vec<Nanos> {
    m.workload.0[part].marks.clone()
}

fn smt() -> Shape {
    Shape {
        threads: 2,
        ..Shape::flat(1)
    }
}

#[test]
fn a_migration_penalty_m_at_rate_r_leaves_one_in_1_plus_mr() {
    // Back and forth between two cores after each 2 ms of work: r = 500 a second of work, m = 300 us.
    let acts = [
        Act::Compute(2 * MS),
        Act::On(1),
        Act::Compute(2 * MS),
        Act::On(0),
    ];
    let flat = HostCost {
        migrate_same_llc_ns: 300_000,
        ..HostCost::default()
    };
    let warmth = HostCost {
        // 300 KiB at 1024 bytes a microsecond: 300 us.
        cache: Some(Cache {
            from_llc: 1024,
            working_set: 300 << 10,
            ..Cache::default()
        }),
        ..HostCost::default()
    };
    for cost in [flat, warmth] {
        let mut m = machine(
            Shape::flat(2),
            cost.clone(),
            vec![part(&acts, &[0])],
            100_000,
        );
        m.run_until(20 * S).unwrap();
        m.check().unwrap();
        let share = work(&m) as f64 / 20e9;
        let truth = 1.0 / (1.0 + 300e-6 * 500.0);
        // One round more or less of 20 s.
        assert!(
            (share - truth).abs() < 4e6 / 20e9,
            "{cost:?}: {share} {truth}"
        );
    }
}

#[test]
fn a_migration_costs_what_its_distance_says() {
    // Two nodes of two packages, each with two caches of two cores of two threads.
    let shape = Shape {
        nodes: 2,
        packages: 4,
        llcs: 2,
        cores: 4,
        threads: 2,
    };
    let cost = HostCost {
        migrate_same_core_ns: 1_000,
        migrate_same_llc_ns: 20_000,
        migrate_same_package_ns: 300_000,
        migrate_same_node_ns: 4_000_000,
        migrate_other_node_ns: 50_000_000,
        ..HostCost::default()
    };
    for (to, ns) in [
        (0, 0),
        (1, 1_000),
        (3, 20_000),
        (4, 300_000),
        (8, 4_000_000),
        (16, 50_000_000),
    ] {
        for (from, to) in [(0, to), (to, 0)] {
            let acts = [Act::Compute(MS), Act::On(to), Act::Compute(MS), Act::Mark];
            let parts = vec![part(&acts, &[from])];
            let mut m = machine(shape, cost.clone(), parts, 1_000_000);
            m.run_until(60 * MS).unwrap();
            m.check().unwrap();
            assert_eq!(marks(&m, 0)[0], 2 * MS + ns, "from {from} to {to}");
        }
    }
}

#[test]
fn two_smt_threads_do_twice_s() {
    for ppm in [500_000, 623_457, 900_000] {
        let cost = HostCost {
            smt_ppm: ppm,
            ..HostCost::default()
        };
        let hog = |cpu| part(&[Act::Busy], &[cpu]);
        let mut m = machine(smt(), cost.clone(), vec![hog(0), hog(1)], 20_000);
        m.run_until(S).unwrap();
        m.check().unwrap();
        assert_eq!(work(&m), 2 * u64::from(ppm) * 1000, "{ppm}");
        let mut alone = machine(smt(), cost, vec![hog(0)], 20_000);
        alone.run_until(S).unwrap();
        assert_eq!(work(&alone), S);
    }
}

#[test]
fn work_in_progress_is_timed_anew_when_the_sibling_comes_and_goes() {
    // The sibling computes 1 ms and sleeps 1 ms: at 0.8, it is busy for 1.25 ms of each 2.25 ms.
    let cost = HostCost {
        smt_ppm: 800_000,
        ..HostCost::default()
    };
    let parts = vec![
        part(&[Act::Mark, Act::Compute(10 * MS)], &[0]),
        part(&[Act::Mark, Act::Compute(MS), Act::Sleep(MS)], &[1]),
    ];
    let mut m = machine(smt(), cost, parts, 100_000);
    m.run_until(90 * MS).unwrap();
    m.check().unwrap();
    let sibling: Vec<u64> = (0..40).map(|i| i * 2_250_000).collect();
    assert_eq!(marks(&m, 1)[..40], sibling[..]);
    // In each 2.25 ms the first does 1.25 x 0.8 + 1 = 2 ms: five rounds for 10 ms.
    assert_eq!(
        marks(&m, 0)[..8],
        [0, 5, 10, 15, 20, 25, 30, 35].map(|i| i * 2_250_000)
    );
}

#[test]
fn warming_is_paid_for_by_what_was_pushed_out() {
    // Tasks of 400 KiB take turns of 1 ms on a core with 1 MiB: two fit. Of three, each finds y KiB and brings
    // x = 400 - y, of all that the others have: y = 400 (1 - x / (1024 - y))^2. 1 KiB takes 1 us.
    let cost = HostCost {
        cache: Some(Cache {
            core_bytes: 1024 << 10,
            from_llc: 1024,
            working_set: 400 << 10,
            ..Cache::default()
        }),
        ..HostCost::default()
    };
    let hog = || part(&[Act::Busy], &[0]);
    let share = |n: usize| {
        let hogs = (0..n).map(|_| hog()).collect();
        let mut m = machine(Shape::flat(1), cost.clone(), hogs, 1000);
        m.run_until(S).unwrap();
        let before = work(&m);
        m.run_until(3 * S).unwrap();
        m.check().unwrap();
        (work(&m) - before) as f64 / 2e9
    };
    assert_eq!(share(1), 1.0);
    assert_eq!(share(2), 1.0);
    let found = (0..200).fold(300.0, |y: f64, _| {
        let next = 400.0 * (1.0 - (400.0 - y) / (1024.0 - y)).powi(2);
        (y + next.min(350.0)) / 2.0
    });
    let truth = 1.0 - (400.0 - found) / 1000.0;
    let three = share(3);
    assert!((three - truth).abs() < 0.001, "{three} {truth}");
}

/// Jobs in order to whichever core is free first (of those free at once, as the machine would choose), no
/// preemption: when each ends.
fn list_schedule(jobs: &[u64], speeds: &[u32]) -> Vec<u64> {
    let mut free = vec![0u64; speeds.len()];
    jobs.iter()
        .map(|job| {
            let core = (0..free.len()).min_by_key(|c| (free[*c], *c)).unwrap_or(0);
            let need = u128::from(*job) * 1_000_000;
            free[core] += need.div_ceil(u128::from(speeds[core])) as u64;
            free[core]
        })
        .collect()
}

fn kind(cores: &[u32], speed_ppm: u32, frequency_ppm: u32) -> CoreKind {
    CoreKind {
        name: format!("at {speed_ppm}"),
        cores: cores.to_vec(),
        speed_ppm,
        frequency_ppm,
        smt_ppm: 0,
        llcs: 0,
        steps_khz: Vec::new(),
    }
}

/// Work of a second, of a task on each of these CPUs of a host with two fast and two slow cores, the last of which is
/// slow by its frequency; one more kind's cores are of full speed.
fn two_kinds() -> HostCost {
    HostCost {
        kinds: vec![
            kind(&[0, 2], 2_375_000, 1_000_000),
            kind(&[1], 800_000, 1_000_000),
            kind(&[3], 2_000_000, 400_000),
        ],
        ..HostCost::default()
    }
}

#[test]
fn hogs_work_in_the_ratio_of_their_cores_speeds() {
    // Cores 0 to 3 are of these kinds, core 4 of none.
    for (cpu, speed) in [(0, 2_375), (1, 800), (2, 2_375), (3, 800), (4, 1_000)] {
        let mut m = machine(
            Shape::flat(5),
            two_kinds(),
            vec![part(&[Act::Busy], &[cpu])],
            1000,
        );
        m.run_until(S).unwrap();
        assert_eq!(work(&m), speed * MS, "CPU {cpu}");
    }
    let hogs = (0..5).map(|cpu| part(&[Act::Busy], &[cpu])).collect();
    let mut m = machine(Shape::flat(5), two_kinds(), hogs, 1000);
    m.run_until(S).unwrap();
    assert_eq!(work(&m), (2 * 2_375 + 2 * 800 + 1_000) * MS);
}

#[test]
fn a_task_that_migrates_does_the_sum() {
    // 19 ms of work on a fast core take 8 ms, 8 ms on a slow one 10 ms, 5 ms on one of full speed 5 ms.
    let acts = [
        Act::Compute(19 * MS),
        Act::On(1),
        Act::Compute(8 * MS),
        Act::On(4),
        Act::Compute(5 * MS),
        Act::Mark,
        Act::On(0),
    ];
    let mut m = machine(Shape::flat(5), two_kinds(), vec![part(&acts, &[0])], 1000);
    m.run_until(S).unwrap();
    let rounds: Vec<_> = (1..=S / (23 * MS)).map(|round| round * 23 * MS).collect();
    assert_eq!(marks(&m, 0), rounds);
    // 43 rounds of 32 ms of work in 989 ms, then 19 in 8 and 2.4 in 3.
    assert_eq!(work(&m), 43 * 32 * MS + 19 * MS + 2_400_000);
}

#[test]
fn policies_are_told_what_each_core_can_do() {
    let m = machine(Shape::flat(5), two_kinds(), Vec::new(), 1000);
    let told = |cpu| (m.kernel().capacity(cpu), m.kernel().frequency(cpu));
    let all: Vec<_> = (0..5).map(told).collect();
    assert_eq!(
        all,
        [
            (1024, 1024),
            (344, 1024),
            (1024, 1024),
            (862, 409),
            (431, 1024)
        ]
    );
    let alike = machine(Shape::flat(2), HostCost::default(), Vec::new(), 1000);
    assert_eq!(
        (alike.kernel().capacity(1), alike.kernel().frequency(1)),
        (1024, 1024)
    );
}

/// Two classic cores below one last-level cache, four dense ones below two.
fn caches_of_kinds() -> HostCost {
    let of = |cores: &[u32], llcs| CoreKind {
        llcs,
        ..kind(cores, 1_000_000, 1_000_000)
    };
    HostCost {
        migrate_same_llc_ns: 20_000,
        migrate_same_package_ns: 300_000,
        kinds: vec![of(&[0, 1], 1), of(&[2, 3, 4, 5], 2)],
        ..HostCost::default()
    }
}

#[test]
fn kinds_have_caches_of_their_own() {
    for (from, to, ns) in [
        (0, 1, 20_000),
        (0, 2, 300_000),
        (2, 3, 20_000),
        (3, 4, 300_000),
        (5, 4, 20_000),
        (5, 1, 300_000),
    ] {
        let acts = [Act::Compute(MS), Act::On(to), Act::Compute(MS), Act::Mark];
        let parts = vec![part(&acts, &[from])];
        let mut m = machine(Shape::flat(6), caches_of_kinds(), parts, 1_000_000);
        m.run_until(60 * MS).unwrap();
        m.check().unwrap();
        assert_eq!(marks(&m, 0)[0], 2 * MS + ns, "from {from} to {to}");
    }
    // Another machine of the same shape keeps its one cache.
    let alike = machine(Shape::flat(6), HostCost::default(), Vec::new(), 1000);
    assert_eq!(alike.kernel().topo.llcs.len(), 1);
}

/// What a policy is told: cache, and the next CPU below it.
#[test]
fn policies_see_caches_of_kinds() {
    let spec = MachineSpec {
        cost: caches_of_kinds(),
        ..MachineSpec::new(Shape::flat(6))
    };
    let policy = berth_builtin::find("vmfair").expect("shipped");
    let policy = policy.load(&LoadOptions::default()).unwrap();
    let mut m = Simulation::new(&spec, &[], Parts(Vec::new(), Vec::new()));
    load_policy(&mut m, &policy, &BTreeMap::new(), &[], &Options::default()).unwrap();
    m.start();
    let k = m.kernel();
    let map = k
        .policy
        .instance()
        .and_then(|i| i.map("berth_topology_by_cpu"));
    let map = map.expect("vmfair asks");
    let told: Vec<(u32, u32)> = (0..6u32)
        .map(|cpu| {
            let record = map.lookup(&cpu.to_ne_bytes()).expect("every CPU");
            let word = |i: usize| u32::from_ne_bytes(record[4 * i..4 * i + 4].try_into().unwrap());
            (word(0), word(3))
        })
        .collect();
    assert_eq!(told, [(0, 1), (0, 0), (1, 3), (1, 2), (2, 5), (2, 4)]);
    assert_eq!(k.topo.llcs.len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Fast and slow cores: every job ends when list scheduling says; the makespan is within the bounds of the fluid.
    #[test]
    fn fast_and_slow_cores(
        jobs in proptest::collection::vec(100_000u64..9_000_000, 3..30),
        speeds in proptest::collection::vec(200_000u32..3_000_000, 1..5),
    ) {
        let cost = HostCost { kinds: CoreKind::by_speed(&speeds), ..HostCost::default() };
        let parts = jobs.iter().map(|j| part(&[Act::Compute(*j), Act::Mark, Act::Exit], &[])).collect();
        let cores = speeds.len() as u32;
        let mut m = machine(Shape::flat(cores), cost, parts, 1_000_000);
        m.run_until(10 * S).unwrap();
        m.check().unwrap();
        let mut ends: Vec<u64> = (0..jobs.len()).map(|i| marks(&m, i)[0]).collect();
        prop_assert_eq!(work(&m), jobs.iter().sum::<u64>());
        let mut truth = list_schedule(&jobs, &speeds);
        let makespan = *ends.iter().max().unwrap() as f64;
        let fluid = jobs.iter().sum::<u64>() as f64 * 1e6 / speeds.iter().map(|s| f64::from(*s)).sum::<f64>();
        let slowest = f64::from(*speeds.iter().min().unwrap());
        let longest = *jobs.iter().max().unwrap() as f64 * 1e6 / slowest;
        prop_assert!(makespan + 1.0 >= fluid && makespan <= fluid + longest + 30.0);
        // Which of several free cores takes the first jobs is the policy's choice: compared where it has none.
        if cores == 1 {
            ends.sort_unstable();
            truth.sort_unstable();
            prop_assert_eq!(ends, truth);
        }
    }

    /// All times times k: all instants times k.
    #[test]
    fn scaled_by_k(k in 2u64..9, speed in 0usize..3, seed in 0u64..1000) {
        let speed = [250_000, 500_000, 2_000_000][speed];
        let run = |k: u64| {
            let cost = HostCost {
                switch_ns: 1000 * k,
                smt_ppm: 500_000,
                kinds: CoreKind::by_speed(&[speed, 1_000_000]),
                ..HostCost::default()
            };
            let us = |i: u64| (100 + (seed * 37 + i * 61) % 400) * 10_000 * k;
            let parts = (0..6)
                .map(|i| part(&[Act::Mark, Act::Compute(us(i)), Act::Sleep(us(i + 9))], &[]))
                .collect();
            let shape = Shape { threads: 2, ..Shape::flat(2) };
            let mut m = machine(shape, cost, parts, 1000 * k);
            m.run_until(100 * MS * k).unwrap();
            m.check().unwrap();
            (0..6).map(|i| marks(&m, i)).collect::<Vec<_>>()
        };
        let (one, many) = (run(1), run(k));
        // A computation ends with a whole ns, of which there are k times as many.
        for (a, b) in one.iter().flatten().zip(many.iter().flatten()) {
            prop_assert!((a * k).abs_diff(*b) <= 100 * k, "{} {}", a * k, b);
        }
    }

    /// Cores renamed, tasks with them: nothing else changes.
    #[test]
    fn renamed_cores(a in 100_000u32..2_000_000, b in 100_000u32..2_000_000, work in 1u64..30) {
        let run = |flip: bool| {
            let on = |c: u32| if flip { 1 - c } else { c };
            let mut speeds = vec![a, b];
            if flip {
                speeds.reverse();
            }
            let kinds = CoreKind::by_speed(&speeds);
            let cost = HostCost { kinds, cache: Some(Cache::default()), ..HostCost::default() };
            let w = work * 100_000;
            let parts = vec![
                part(&[Act::Mark, Act::Compute(w), Act::Sleep(MS)], &[on(0)]),
                part(&[Act::Mark, Act::Compute(w), Act::On(on(1)), Act::Compute(w), Act::On(on(0))], &[on(0)]),
                part(&[Act::Mark, Act::Compute(2 * w), Act::Sleep(3 * MS)], &[on(1)]),
            ];
            let mut m = machine(Shape::flat(2), cost, parts, 1000);
            m.run_until(300 * MS).unwrap();
            m.check().unwrap();
            (0..3).map(|i| marks(&m, i)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(false), run(true));
    }
}
