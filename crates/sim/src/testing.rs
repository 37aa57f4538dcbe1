// SPDX-License-Identifier: GPL-2.0-only
//! Workloads and doubles for the model's own tests.
use crate::machine::Shape;
use crate::scx::Handle;
use crate::scx::ops::{Policy, Port};
use crate::scx::spec::MachineSpec;
use crate::sim::Simulation;
use crate::words::{Nanos, TaskId, TaskSpec, Who};
use crate::workload::api::{Action, Ctx, Workload};
use berth_policy::abi::Op;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Threads that each follow a list of actions, over and over.
#[derive(Default)]
pub struct Cast {
    pub scripts: Vec<Script>,
    pub ids: Vec<TaskId>,
    pub died: u32,
}

#[derive(Default, Clone)]
pub struct Script {
    pub spec: TaskSpec,
    pub start_ns: Nanos,
    pub actions: Vec<Action>,
    at: usize,
    /// Actions done.
    pub done: u64,
    /// Start again at the end of the list (else exit).
    pub repeat: bool,
}

/// `SleepUntil { at: x }` in a script means: sleep this long.
impl Cast {
    pub fn add(&mut self, name: &str, start_ns: Nanos, actions: &[Action], repeat: bool) -> u32 {
        let token = self.scripts.len() as u32;
        self.scripts.push(Script {
            spec: TaskSpec {
                token,
                name: name.into(),
                ..TaskSpec::default()
            },
            start_ns,
            actions: actions.to_vec(),
            repeat,
            ..Script::default()
        });
        self.ids.push(u32::MAX);
        token
    }
}

impl Workload for Cast {
    fn start(&mut self, ctx: &mut Ctx) {
        for (i, s) in self.scripts.iter().enumerate() {
            ctx.at_on(0, s.start_ns, i as u64);
        }
    }
    fn born(&mut self, token: u32, task: TaskId) {
        self.ids[token as usize] = task;
    }
    fn died(&mut self, _token: u32, _task: TaskId) {
        self.died += 1;
    }
    fn next(&mut self, who: Who, now: Nanos, _ctx: &mut Ctx) -> Action {
        let s = &mut self.scripts[who.token as usize];
        if s.at == s.actions.len() {
            if !s.repeat {
                return Action::Exit;
            }
            s.at = 0;
        }
        s.at += 1;
        s.done += 1;
        match &s.actions[s.at - 1] {
            Action::SleepUntil { at } => Action::SleepUntil { at: now + at },
            other => other.clone(),
        }
    }
    fn event(&mut self, token: u64, _now: Nanos, ctx: &mut Ctx) {
        let spec = self.scripts[token as usize].spec.clone();
        ctx.spawn(&spec);
    }
    fn measure_from(&mut self, _now: Nanos) {}
    fn metrics(&self, _now: Nanos, _out: &mut BTreeMap<String, f64>) {}
}

/// W8 of the notes: 8 CPUs, 64 tasks that compute 1 ms and sleep 4 ms, 16 that only compute.
pub fn w8() -> Cast {
    let mut cast = Cast::default();
    for i in 0..64u64 {
        let work = [
            Action::Compute { ns: 1_000_000 },
            Action::SleepUntil { at: 4_000_000 },
        ];
        cast.add("worker", i * 61_000, &work, true);
    }
    for i in 0..16u64 {
        cast.add("hog", i * 61_000, &[Action::ComputeForever], true);
    }
    cast
}

/// What a policy double saw: operation and arguments, tasks by token.
pub type Log = Rc<RefCell<Vec<(Op, i64, u64)>>>;

/// A machine with a double that logs every call (task = number, or -1) and answers as `answer` says.
pub fn with_double(
    spec: &MachineSpec,
    cast: Cast,
    ops: &[Op],
    flags: u64,
    mut answer: impl FnMut(Handle, Op, &[u64]) -> u64 + 'static,
) -> (Simulation<Cast>, Log) {
    let log: Log = Rc::default();
    let seen = log.clone();
    let mut m = Simulation::new(spec, &[], cast);
    let double = move |k: Handle, op: Op, args: &[u64]| {
        let first = args.first().copied().unwrap_or(0);
        let task = k.tasks.find(first).map_or(first as i64, i64::from);
        seen.borrow_mut()
            .push((op, task, args.get(1).copied().unwrap_or(0)));
        answer(k, op, args)
    };
    m.load(Policy::new(
        Port::Double(Box::new(double)),
        "double",
        ops,
        flags,
        0,
        0,
    ));
    (m, log)
}

/// One CPU without costs.
pub fn one_cpu() -> MachineSpec {
    MachineSpec::new(Shape::flat(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::model::Hz;

    #[test]
    fn w8_under_the_kernels_own_fifo() {
        let mut spec = MachineSpec::new(Shape::flat(8));
        spec.tasks = 80;
        spec.hz = Hz::Ticks(250);
        let run = |spec: &MachineSpec| {
            let mut m = Simulation::new(spec, &[], w8());
            m.load(Policy::default());
            m.start();
            m.run_until(2_000_000_000).unwrap();
            m.check().unwrap();
            let done: u64 = m.workload.scripts[..64].iter().map(|s| s.done / 2).sum();
            (done, m.kernel().hash.finish())
        };
        let (done, hash) = run(&spec);
        assert_eq!(run(&spec), (done, hash));
        assert!(done > 1000, "{done} cycles");
        spec.hz = Hz::Ticks(1000);
        assert_ne!(run(&spec).1, hash);
    }

    /// One CPU, two hogs, one double that queues everything first in, first out.
    #[test]
    fn callbacks_of_two_hogs_on_one_cpu() {
        let mut cast = Cast::default();
        cast.add("a", 0, &[Action::ComputeForever], true);
        cast.add("b", 0, &[Action::ComputeForever], true);
        let ops = [
            Op::Enqueue,
            Op::Dispatch,
            Op::Running,
            Op::Stopping,
            Op::Runnable,
        ];
        let (mut m, log) = with_double(&one_cpu(), cast, &ops, 0, |_, _, _| 0);
        m.start();
        m.run_until(0).unwrap();
        let (a, b) = (m.workload.ids[0] as i64, m.workload.ids[1] as i64);
        // Nobody dispatches: both wait in the policy's custody.
        let seen: Vec<(Op, i64)> = log.borrow().iter().map(|(o, t, _)| (*o, *t)).collect();
        assert_eq!(
            seen,
            [
                (Op::Runnable, a),
                (Op::Enqueue, a),
                (Op::Dispatch, 0),
                (Op::Runnable, b),
                (Op::Enqueue, b),
                (Op::Dispatch, 0),
            ]
        );
        let e = m.run_until(60_000_000_000).unwrap_err();
        assert!(e.to_string().contains("failed to run for 45.000s"), "{e}");
    }
}
