// SPDX-License-Identifier: GPL-2.0-only
//! Spinning until released, and interrupts that take a CPU's time: exact to the nanosecond.
use berth_scenario::model::Hz;
use berth_sim::machine::Shape;
use berth_sim::scx::ops::Policy;
use berth_sim::workload::api::{Action, Ctx, Nanos, TaskId, TaskSpec, Who, Workload};
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

/// What a thread of the script does.
#[derive(Clone, Copy)]
enum Do {
    Compute(Nanos),
    Spin,
    Release(usize),
}

/// Threads with scripts, and interrupts: (when, CPU, how long).
#[derive(Default)]
struct Script {
    threads: Vec<(u32, Vec<Do>)>,
    interrupts: Vec<(Nanos, u32, Nanos)>,
    at: Vec<usize>,
    ids: Vec<TaskId>,
    /// When each thread had done its script.
    ends: Vec<Nanos>,
}

impl Workload for Script {
    fn start(&mut self, ctx: &mut Ctx) {
        let n = self.threads.len();
        (self.at, self.ids, self.ends) = (vec![0; n], vec![0; n], vec![0; n]);
        for (token, (cpu, _)) in self.threads.clone().into_iter().enumerate() {
            let affinity = ctx.mask(&[cpu]);
            ctx.spawn(&TaskSpec {
                token: token as u32,
                affinity,
                ..TaskSpec::default()
            });
        }
        for (i, (at, cpu, _)) in self.interrupts.iter().enumerate() {
            ctx.at_on(*cpu, *at, i as u64);
        }
    }
    fn born(&mut self, token: u32, task: TaskId) {
        self.ids[token as usize] = task;
    }
    fn died(&mut self, _token: u32, _task: TaskId) {}
    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        let me = who.token as usize;
        loop {
            let step = self.threads[me].1.get(self.at[me]).copied();
            self.at[me] += 1;
            match step {
                Some(Do::Compute(ns)) => return Action::Compute { ns },
                Some(Do::Spin) => return Action::Spin,
                Some(Do::Release(other)) => {
                    assert!(ctx.release(self.ids[other]), "it was spinning");
                    assert!(!ctx.release(self.ids[other]), "and is no longer");
                }
                None => {
                    self.ends[me] = now;
                    return Action::Exit;
                }
            }
        }
    }
    fn event(&mut self, token: u64, now: Nanos, ctx: &mut Ctx) {
        let (_, _, ns) = self.interrupts[token as usize];
        assert!(ctx.interrupt(ns) >= now + ns);
    }
    fn measure_from(&mut self, _now: Nanos) {}
    fn metrics(&self, _now: Nanos, _out: &mut BTreeMap<String, f64>) {}
}

/// When each thread ends, and the useful work and CPU time of all.
fn run(cpus: u32, work: Script) -> (Vec<Nanos>, u64, u64) {
    let spec = MachineSpec {
        hz: Hz::Ticks(1000),
        ..MachineSpec::new(Shape::flat(cpus))
    };
    let mut m = Simulation::new(&spec, &[], work);
    m.load(Policy::default());
    m.start();
    m.run_until(1_000_000_000).unwrap();
    m.check().unwrap();
    let stats = &m.kernel().stats.vms[0];
    (m.workload.ends.clone(), stats.work_ns, stats.ran_ns)
}

#[test]
fn a_spinner_burns_until_released_and_that_is_no_work() {
    let script = Script {
        threads: vec![
            (0, vec![Do::Spin, Do::Compute(500_000)]),
            (1, vec![Do::Compute(1_000_000), Do::Release(0)]),
        ],
        ..Script::default()
    };
    assert_eq!(
        run(2, script),
        (vec![1_500_000, 1_000_000], 1_500_000, 2_500_000)
    );
}

/// One CPU: the spinner holds it for a whole slice (20 ms) before the other one can release it; released while
/// it waits, it goes on when it gets the CPU next.
#[test]
fn a_waiter_for_a_preempted_holder_wastes_its_slice() {
    let script = Script {
        threads: vec![
            (0, vec![Do::Spin, Do::Compute(500_000)]),
            (0, vec![Do::Compute(1_000_000), Do::Release(0)]),
        ],
        ..Script::default()
    };
    assert_eq!(
        run(1, script),
        (vec![21_500_000, 21_000_000], 1_500_000, 21_500_000)
    );
}

#[test]
fn interrupts_put_work_off() {
    let script = Script {
        threads: vec![(0, vec![Do::Compute(1_000_000)])],
        // Two at once serve one after the other; one on another CPU does not matter.
        interrupts: vec![(300_000, 0, 100_000), (300_000, 0, 50_000), (300_000, 1, 7)],
        ..Script::default()
    };
    assert_eq!(run(2, script), (vec![1_150_000], 1_000_000, 1_150_000));
}

/// The interrupt comes to an idle CPU; a task that starts there meanwhile has to wait for its end.
#[test]
fn a_task_waits_for_the_interrupt_of_an_idle_cpu() {
    let script = Script {
        threads: vec![
            (0, vec![Do::Spin, Do::Compute(1)]),
            (1, vec![Do::Compute(1_000_000), Do::Release(0)]),
            (1, vec![Do::Compute(10)]),
        ],
        interrupts: vec![(1_000_000, 1, 100_000)],
        ..Script::default()
    };
    let (ends, work, _) = run(2, script);
    assert_eq!(ends, [1_000_001, 1_000_000, 1_100_010]);
    assert_eq!(work, 1_000_011);
}
