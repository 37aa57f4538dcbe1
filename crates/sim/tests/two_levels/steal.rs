// SPDX-License-Identifier: GPL-2.0-only
//! Guests that are stolen from: in the run time of a vCPU, steal is invisible to fairness. Random guests on random
//! hosts, without costs; the host deals exact turns, so that absence is what the arithmetic says.
use crate::play::{Act, Part, Room, Stage, had};
use crate::watch::Watch;
use berth_scenario::model::Hz;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        max_shrink_iters: 40,
        ..ProptestConfig::default()
    }
}

/// A guest with a CPU of the host for each vCPU, on which `others` vCPUs of other VMs compute, in turns of `turn_us`.
/// With fewer CPUs than vCPUs, the vCPUs run where there is room.
#[derive(Clone, Debug)]
struct Stolen {
    vcpus: u32,
    cpus: u32,
    hz: u32,
    others: u32,
    turn_us: u64,
    steal_accounting: bool,
    guest: &'static str,
    /// Tasks that compute all the time: nice value, and the only vCPU of it, if it has just one.
    hogs: Vec<(i32, Option<u32>)>,
    /// Tasks that compute and sleep, us.
    sleepers: Vec<(u64, u64)>,
}

/// What became of the tasks of the guest, each in ns.
struct Seen {
    /// CPU time.
    had: Vec<u64>,
    /// The longest wait for a turn, in run time of its vCPU.
    waited_run: Vec<u64>,
    /// By the clock on the wall, from the wake-up as the guest sees it.
    waited: Vec<u64>,
}

impl Stolen {
    fn parts(&self) -> Vec<Part> {
        let hogs = self.hogs.iter();
        let mut parts: Vec<Part> = hogs
            .map(|(nice, pin)| {
                let cpus: Vec<u32> = pin.iter().map(|v| v % self.vcpus).collect();
                Part::new(Some(0), &[Act::Busy]).nice(*nice).on(&cpus)
            })
            .collect();
        let sleepers = self.sleepers.iter();
        parts.extend(sleepers.map(|(run, sleep)| {
            let acts = [Act::Compute(run * 1_000), Act::Sleep(sleep * 1_000)];
            Part::new(Some(0), &acts)
        }));
        parts
    }

    fn tasks(&self) -> usize {
        self.hogs.len() + self.sleepers.len()
    }

    fn run(&self, for_ns: u64) -> Result<Seen, String> {
        let pin = |cpu: u32| vec![vec![cpu]];
        let mut rooms = vec![Room::new(self.vcpus)];
        if self.cpus >= self.vcpus {
            rooms[0].pins = (0..self.vcpus).map(|v| vec![v]).collect();
        }
        let mut parts = self.parts();
        for cpu in 0..self.cpus {
            for _ in 0..self.others {
                parts.push(Part::new(Some(rooms.len() as u32), &[Act::Busy]));
                rooms.push(Room {
                    pins: pin(cpu),
                    ..Room::new(1)
                });
            }
        }
        let mut stage = Stage::new(self.cpus, rooms);
        stage.host = "gfifo";
        stage.host_params = vec![("slice_us", self.turn_us.to_string())];
        stage.guest = self.guest;
        stage.guest_hz = Hz::Ticks(self.hz);
        stage.steal_accounting = self.steal_accounting;
        let (watch, sink) = Watch::new();
        let mut m = stage.open_watched(parts, &sink);
        m.run_until(for_ns).map_err(|e| e.to_string())?;
        m.check().map_err(|e| e.to_string())?;
        let mut watch = watch.lock().unwrap();
        watch.close(for_ns);
        let tasks = 0..self.tasks();
        let wait = |i: usize| {
            let waits = watch.longest.get(&(1, m.workload.task(i)));
            waits.copied().unwrap_or_default()
        };
        Ok(Seen {
            had: tasks.clone().map(|i| had(&m, i)).collect(),
            waited_run: tasks.clone().map(|i| wait(i).0).collect(),
            waited: tasks.map(|i| wait(i).1).collect(),
        })
    }

    /// The longest absence of a vCPU that has a CPU, ns.
    fn absence(&self) -> u64 {
        u64::from(self.others) * self.turn_us * 1_000
    }

    /// A slice of the model of Linux, and a tick, ns.
    fn slice_and_tick(&self) -> u64 {
        let factor = 1 + u64::from(self.vcpus.min(8).ilog2());
        700_000 * factor + 1_000_000_000 / u64::from(self.hz)
    }
}

fn stolen(sleepers: usize) -> impl Strategy<Value = Stolen> {
    let hz = prop_oneof![Just(100u32), Just(250), Just(300), Just(1000)];
    let sleepers = prop::collection::vec((50u64..4_000, 500u64..30_000), 0..=sleepers);
    (1u32..=8, hz, 0u32..=9, 300u64..40_000, sleepers).prop_map(
        |(vcpus, hz, others, turn_us, sleepers)| Stolen {
            vcpus,
            cpus: vcpus,
            hz,
            others,
            turn_us,
            steal_accounting: true,
            guest: "eevdf",
            hogs: Vec::new(),
            sleepers,
        },
    )
}

/// Tasks that compute have the shares that they have without steal, within 2 points of the guest's run time: of any
/// weights where each has its vCPU, and of one weight where they move between vCPUs. (Who moves, and when, is
/// balancing, which Linux does by the clock on the wall.)
#[test]
fn shares_are_those_without_steal() {
    let placed = prop::collection::vec((-10i32..=10, (0u32..8).prop_map(Some)), 1..=12);
    let free = (1usize..=3).prop_map(|each| vec![(0, None); each]);
    TestRunner::new(cases(32))
        .run(
            &(stolen(0), prop_oneof![placed, free]),
            |(mut case, hogs)| {
                let times = if hogs[0].1.is_none() { case.vcpus } else { 1 };
                case.hogs = hogs.repeat(times as usize);
                let alone = Stolen {
                    others: 0,
                    ..case.clone()
                };
                // The same run time.
                let run_ns = 8 * SECOND;
                let share = |had: &[u64]| -> Vec<f64> {
                    let all: u64 = had.iter().sum();
                    had.iter().map(|h| *h as f64 / all as f64).collect()
                };
                let with = case.run(run_ns * u64::from(case.others + 1)).unwrap().had;
                let without = alone.run(run_ns).unwrap().had;
                for (a, b) in share(&with).iter().zip(share(&without)) {
                    prop_assert!(
                        (a - b).abs() < 0.02,
                        "{:?}: {:.3?} with steal, {:.3?} without",
                        case,
                        share(&with),
                        share(&without)
                    );
                }
                Ok(())
            },
        )
        .unwrap();
}

/// A runnable task of equal weight has its turn within (tasks) x (slice + tick) of run time.
#[test]
fn turns_come_in_run_time() {
    TestRunner::new(cases(32))
        .run(&(stolen(4), 1usize..=6), |(mut case, hogs)| {
            case.hogs = vec![(0, None); hogs];
            let waits = case.run(20 * SECOND).unwrap().waited_run;
            let bound = case.tasks() as u64 * case.slice_and_tick();
            let longest = waits.iter().max().copied().unwrap_or(0);
            prop_assert!(
                longest <= bound,
                "{case:?}: waited {longest} ns of run time, bound {bound}"
            );
            Ok(())
        })
        .unwrap();
}

/// An echo beside tasks that compute: each may have the vCPU once before it, for (slice + tick) of run time, stretched
/// by the vCPU's absences; the absence in which its timer goes off is not part of it.
#[test]
fn an_echo_waits_no_longer_than_can_be_said_on_paper() {
    TestRunner::new(cases(32))
        .run(&(stolen(0), 1usize..=3), |(mut case, hogs)| {
            (case.vcpus, case.cpus) = (1, 1);
            case.hogs = vec![(0, None); hogs];
            case.sleepers = vec![(50, 50_011)];
            let waited = case.run(40 * SECOND).unwrap().waited[hogs];
            let run = hogs as u64 * case.slice_and_tick();
            let turns = run.div_ceil(case.turn_us * 1_000);
            let bound = run + turns * case.absence();
            prop_assert!(
                waited <= bound,
                "{case:?}: waited {waited} ns, bound {bound}"
            );
            Ok(())
        })
        .unwrap();
}

/// In a guest that does not account for steal, an absence is charged to who runs when it begins, like run time. So a
/// task may have had (slice + tick + absence) too much, which it waits for (tasks) times by the clock on the wall, and
/// who runs then may have as much too much again. Nobody starves.
#[test]
fn without_steal_accounting_the_absence_is_charged_to_who_ran() {
    TestRunner::new(cases(32))
        .run(&(stolen(2), 2usize..=6), |(mut case, hogs)| {
            (case.vcpus, case.cpus) = (1, 1);
            case.hogs = vec![(0, None); hogs];
            case.steal_accounting = false;
            let seen = case.run(60 * SECOND).unwrap();
            let once = case.slice_and_tick() + case.absence();
            let bound = (case.tasks() as u64 + 1) * once;
            let longest = seen.waited.iter().max().copied().unwrap_or(0);
            prop_assert!(
                longest <= bound,
                "{case:?}: waited {longest} ns, bound {bound}"
            );
            Ok(())
        })
        .unwrap();
}

/// Each task that computes has at least a tenth of an equal part of what the guest ran.
fn all_progress(case: &Stolen) -> Result<(), TestCaseError> {
    let run = case.run(60 * SECOND);
    let had = run.unwrap_or_else(|e| panic!("{case:?}: {e}")).had;
    let all: u64 = had.iter().sum();
    let hogs = case.hogs.len();
    let least = had[..hogs].iter().min().copied().unwrap_or(0);
    let part = all / had.len() as u64;
    prop_assert!(
        least * 10 >= part,
        "{case:?}: {} ms of {} ms",
        least / MS,
        all / MS
    );
    Ok(())
}

/// Nobody starves in 60 s, whatever schedules inside.
#[test]
fn nobody_starves() {
    for builtin in berth_builtin::all() {
        TestRunner::new(cases(6))
            .run(&(stolen(3), 1usize..=8), |(mut case, hogs)| {
                case.guest = builtin.name;
                case.hogs = vec![(0, None); hogs];
                all_progress(&case)
            })
            .unwrap();
    }
}

/// The same on fewer CPUs than vCPUs: at no time do all vCPUs run.
#[test]
fn nobody_starves_on_fewer_cpus_than_vcpus() {
    for builtin in berth_builtin::all() {
        let case = (stolen(2), 1usize..=12, 1u32..=3, 0u32..=2);
        TestRunner::new(cases(6))
            .run(&case, |(mut case, hogs, cpus, others)| {
                case.guest = builtin.name;
                case.hogs = vec![(0, None); hogs];
                case.vcpus = case.vcpus.max(2);
                case.cpus = cpus.min(case.vcpus - 1);
                case.others = others;
                all_progress(&case)
            })
            .unwrap();
    }
}
