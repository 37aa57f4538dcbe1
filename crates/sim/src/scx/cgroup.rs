// SPDX-License-Identifier: GPL-2.0-only
//! What a policy hears of cgroups: that they exist, that their settings change, that tasks move from one to another.
//! The controller calls these operations whether or not the tasks concerned are the policy's.
use super::consts::*;
use super::kernel::Handle;
use super::mutation::Mutation;
use crate::machine::cgroup::CgroupError;
use crate::machine::cgroup::{Bandwidth, MACHINE, ROOT};
use crate::machine::task::Life;
use crate::words::{SchedClass, TaskId, VmId};
use berth_policy::abi::Op;
use berth_policy::kview::ScxCgroupInitArgs;

/// What a quota or a period may be, µs (`cpu.max`).
const MIN_US: u64 = 1_000;
const MAX_PERIOD_US: u64 = 1_000_000;
const MAX_RUNTIME_US: u64 = (1 << 44) - 1;
/// What a move ends with when the policy refuses it with something that is no error number.
const EPROTO: i32 = -71;

impl Handle {
    /// ops.cgroup_init for every group, parents first.
    pub fn cgroups_init(self) {
        let groups = self.cgroups.indices();
        if self.wrong(Mutation::ChildrenFirst) {
            return groups.rev().for_each(|g| self.cgroup_init(g));
        }
        groups.for_each(|g| self.cgroup_init(g));
    }

    /// ops.cgroup_init for a group.
    fn cgroup_init(mut self, index: u32) {
        if self.cgroups.groups[index as usize].inited {
            return;
        }
        self.cgroups.groups[index as usize].inited = true;
        if !self.policy.has(Op::CgroupInit) {
            return;
        }
        let g = &self.cgroups.groups[index as usize];
        let args = std::cell::UnsafeCell::new(ScxCgroupInitArgs {
            weight: g.weight,
            bw_period_us: g.bandwidth.period_us,
            bw_quota_us: g.bandwidth.quota_us.unwrap_or(u64::MAX),
            bw_burst_us: g.bandwidth.burst_us,
        });
        let cgrp = self.cgroups.ptr(index) as u64;
        let ret = self.with_args(args.get() as u64, size_of::<ScxCgroupInitArgs>(), |k| {
            k.op_unlocked(Op::CgroupInit, [cgrp, args.get() as u64])
        }) as i32;
        if ret != 0 {
            self.scx_error(format!("ops.cgroup_init() failed ({ret})"));
        }
    }

    /// ops.cgroup_exit for every group, children first.
    pub fn cgroups_exit(mut self) {
        for g in self.cgroups.children_first() {
            let ptr = self.cgroups.ptr(g) as u64;
            if std::mem::take(&mut self.cgroups.groups[g as usize].inited) {
                self.op_unlocked(Op::CgroupExit, [ptr]);
            }
        }
    }

    /// Does the policy hear of cgroups now? From its enabling until its groups' cgroup_exit.
    fn cgroups_enabled(self) -> bool {
        self.cgroups.groups[ROOT as usize].inited
    }

    pub(super) fn group_of_vm(self, vm: VmId) -> Result<u32, CgroupError> {
        match self.cgroups.of_vm(vm) {
            ROOT => Err(CgroupError::NoSuchVm(vm)),
            index => Ok(index),
        }
    }

    /// A number is written to `cpu.weight` of a VM's cgroup: told if it is another one than before.
    pub fn set_vm_weight(mut self, vm: VmId, weight: u32) -> Result<(), CgroupError> {
        let index = self.group_of_vm(vm)?;
        if !(1..=10_000).contains(&weight) {
            return Err(CgroupError::Weight(weight));
        }
        let g = &self.cgroups.groups[index as usize];
        if g.idle {
            return Err(CgroupError::Idle(vm));
        }
        let other = g.weight != weight || self.wrong(Mutation::WeightAlwaysTold);
        if self.cgroups_enabled() && other {
            let cgrp = self.cgroups.ptr(index) as u64;
            self.op_unlocked(Op::CgroupSetWeight, [cgrp, weight.into()]);
        }
        if self.wrong(Mutation::WeightOfTasks) {
            for task in self.members_of(index) {
                self.op_task(Op::SetWeight, task, weight.into());
            }
        }
        self.cgroups.groups[index as usize].weight = weight;
        self.irq_work();
        Ok(())
    }

    /// `cpu.max` and `cpu.max.burst` of a VM's cgroup: told if they are others than before.
    pub fn set_vm_bandwidth(mut self, vm: VmId, to: Bandwidth) -> Result<(), CgroupError> {
        let index = self.group_of_vm(vm)?;
        let quota = to.quota_us.unwrap_or(u64::MAX);
        let limited = to.quota_us.is_some();
        if quota < MIN_US
            || !(MIN_US..=MAX_PERIOD_US).contains(&to.period_us)
            || limited && quota > MAX_RUNTIME_US
            || limited && (to.burst_us > quota || to.burst_us + quota > MAX_RUNTIME_US)
        {
            return Err(CgroupError::Bandwidth(to));
        }
        let other = self.cgroups.groups[index as usize].bandwidth != to
            || self.wrong(Mutation::LimitAlwaysTold);
        if self.cgroups_enabled() && other {
            let cgrp = self.cgroups.ptr(index) as u64;
            self.op_unlocked(
                Op::CgroupSetBandwidth,
                [cgrp, to.period_us, quota, to.burst_us],
            );
        }
        self.cgroups.groups[index as usize].bandwidth = to;
        if limited && self.wrong(Mutation::LimitEndsSlices) {
            for task in self.members_of(index) {
                self.tasks.ts(task).scx.slice = 0;
            }
        }
        self.irq_work();
        Ok(())
    }

    /// The policy's tasks in a group; for models that are wrong on purpose.
    fn members_of(self, index: u32) -> Vec<TaskId> {
        let hot = |task: &TaskId| &self.tasks.hot[*task as usize];
        self.task_ids()
            .filter(|t| hot(t).class == SchedClass::Ext && hot(t).cgroup == index)
            .collect()
    }

    /// `cpu.idle` of a VM's cgroup: told each time, changed or not.
    pub fn set_vm_idle(mut self, vm: VmId, idle: bool) -> Result<(), CgroupError> {
        let index = self.group_of_vm(vm)?;
        let same = self.cgroups.groups[index as usize].idle == idle;
        if self.cgroups_enabled() && !(same && self.wrong(Mutation::IdleToldOnce)) {
            let cgrp = self.cgroups.ptr(index) as u64;
            self.op_unlocked(Op::CgroupSetIdle, [cgrp, idle.into()]);
        }
        self.cgroups.groups[index as usize].idle = idle;
        self.irq_work();
        Ok(())
    }

    /// Does a task go along to this group? Exiting ones stay, and one that is there already has nothing to do.
    fn goes(self, task: TaskId, to: u32) -> bool {
        let Some(hot) = self.tasks.hot.get(task as usize) else {
            return false;
        };
        let (life, from, class) = (hot.life, hot.cgroup, hot.class);
        let exiting = self.tasks.ts(task).flags & (PF_EXITING | PF_IDLE) != 0;
        let lives = !matches!(life, Life::Free | Life::Dead) && class != SchedClass::Stop;
        lives && !exiting && from != to
    }

    /// These tasks are written to `cgroup.threads` of a VM's cgroup (none: of the root) in one go. All are prepared
    /// first; if the policy refuses one, those before it are told that nothing comes of it, and all stay.
    pub fn move_to_vm(self, tasks: &[TaskId], vm: Option<VmId>) -> Result<(), CgroupError> {
        let to = match vm {
            Some(vm) => self.group_of_vm(vm)?,
            None => ROOT,
        };
        debug_assert_ne!(to, MACHINE);
        let one_by_one = self.wrong(Mutation::MoveOneByOne);
        if self.cgroups_enabled() && self.policy.has(Op::CgroupPrepMove) && !one_by_one {
            for (i, task) in tasks.iter().enumerate() {
                if self.goes(*task, to) {
                    let ret = self.about_move(Op::CgroupPrepMove, *task, to) as i32;
                    if ret != 0 && !self.wrong(Mutation::MoveDespiteRefusal) {
                        let all = self.wrong(Mutation::CancelAll);
                        let told = if all { tasks } else { &tasks[..i] };
                        return Err(self.cancel_move(told, *task, to, ret));
                    }
                }
            }
        }
        let (tg, set) = self.cgroups.views(to);
        for task in tasks {
            if self.goes(*task, to)
                && let Some(rest) = self.tasks.rest(*task)
            {
                rest.cgroups = set;
            }
        }
        for task in tasks {
            if !self.goes(*task, to) {
                continue;
            }
            let from = self.tasks.hot[*task as usize].cgroup;
            if one_by_one {
                self.about_move(Op::CgroupPrepMove, *task, to);
            }
            let join = |mut k: Handle| {
                k.tasks.hot[*task as usize].cgroup = to;
                if let Some(rest) = k.tasks.rest(*task) {
                    rest.sched_task_group = tg;
                }
                if k.cgroups_enabled() && k.policy.has(Op::CgroupMove) {
                    k.call_cgroup_move(*task, from, to);
                }
            };
            if self.wrong(Mutation::MoveInPlace) {
                join(self);
            } else {
                self.move_group(*task, join);
            }
            self.freeze_as_group(*task);
        }
        self.irq_work();
        Ok(())
    }

    /// The policy refused `task`: the ones before it, which it had accepted, do not move either.
    fn cancel_move(self, before: &[TaskId], task: TaskId, to: u32, ret: i32) -> CgroupError {
        for earlier in before {
            if self.goes(*earlier, to) {
                self.about_move(Op::CgroupCancelMove, *earlier, to);
            }
        }
        let mut errno = ret;
        if !(-4095..0).contains(&ret) {
            self.scx_error(format!(
                "ops.cgroup_prep_move() returned an invalid errno {ret}"
            ));
            errno = EPROTO;
        }
        self.irq_work();
        CgroupError::Refused { task, errno }
    }

    /// prep_move and cancel_move.
    fn about_move(self, op: Op, task: TaskId, to: u32) -> u64 {
        if self.not_told(task) {
            return 0;
        }
        let from = self.tasks.hot[task as usize].cgroup;
        let p = self.tasks.ptr(task) as u64;
        let (from, to) = (self.cgroups.ptr(from) as u64, self.cgroups.ptr(to) as u64);
        self.op_unlocked(op, [p, from, to])
    }

    /// Does a model that is wrong on purpose keep a task's moves from the policy?
    fn not_told(self, task: TaskId) -> bool {
        let hot = &self.tasks.hot[task as usize];
        let (own, queued) = (hot.class == SchedClass::Ext, hot.life == Life::Runnable);
        !own && self.wrong(Mutation::MoveOwnOnly) || !queued && self.wrong(Mutation::MoveQueuedOnly)
    }

    /// ops.cgroup_move, with the task's run queue locked.
    fn call_cgroup_move(mut self, task: TaskId, from: u32, to: u32) {
        if self.not_told(task) {
            return;
        }
        let rq = self.tasks.hot[task as usize].cpu;
        let p = self.tasks.ptr(task) as u64;
        let (from, to) = (self.cgroups.ptr(from) as u64, self.cgroups.ptr(to) as u64);
        let outer = self.policy.locked_rq.replace(rq);
        self.call(Op::CgroupMove, [p, from, to]);
        self.policy.locked_rq = outer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scx::identity::VmSpec;
    use crate::scx::ops::{Policy, Port};
    use crate::sim::Simulation;
    use crate::testing::{Cast, one_cpu};
    use crate::workload::api::{Action, Ctx};
    use std::cell::RefCell;
    use std::rc::Rc;

    const HEARD: [Op; 12] = [
        Op::Dequeue,
        Op::Quiescent,
        Op::Runnable,
        Op::Running,
        Op::Stopping,
        Op::CgroupInit,
        Op::CgroupPrepMove,
        Op::CgroupMove,
        Op::CgroupCancelMove,
        Op::CgroupSetWeight,
        Op::CgroupSetBandwidth,
        Op::CgroupSetIdle,
    ];

    type Seen = Rc<RefCell<Vec<(Op, Vec<u64>)>>>;

    /// Two VMs on one CPU; thread 0 runs, thread 1 waits, thread 2 sleeps, all in VM 0, and the policy refuses the
    /// move of thread `refused` with this number.
    fn machine(refused: Option<(u32, i32)>) -> (Simulation<Cast>, Seen) {
        let mut cast = Cast::default();
        let nap = Action::SleepUntil { at: 1 << 60 };
        for (name, start_ns, does) in [
            ("runs", 1000, Action::ComputeForever),
            ("waits", 2000, Action::ComputeForever),
            ("sleeps", 0, nap),
        ] {
            let token = cast.add(name, start_ns, &[does], true);
            cast.scripts[token as usize].spec.vm = Some(0);
        }
        let vm = |name: &str| VmSpec {
            name: name.into(),
            group: 0,
            class: berth_scenario::model::Class::Batch,
            weight: 100,
            cap_milli: None,
            vcpus: 1,
        };
        let mut m = Simulation::new(&one_cpu(), &[vm("a"), vm("b")], cast);
        let seen = Seen::default();
        let log = seen.clone();
        let double = move |k: Handle, op: Op, args: &[u64]| {
            log.borrow_mut().push((op, args.to_vec()));
            match (op, refused) {
                (Op::CgroupPrepMove, Some((token, ret))) => {
                    let task = k.tasks.find(args[0]).unwrap();
                    let it = k.tasks.hot[task as usize].token == token;
                    if it { ret as u64 } else { 0 }
                }
                _ => 0,
            }
        };
        let port = Port::Double(Box::new(double));
        m.load(Policy::new(port, "double", &HEARD, 0, 0, 0));
        m.start();
        m.run_until(5_000_000).unwrap();
        (m, seen)
    }

    /// What is heard while `f` acts on the machine: operations and their arguments.
    fn heard(
        m: &mut Simulation<Cast>,
        seen: &Seen,
        f: impl FnOnce(&mut Ctx, &[TaskId]),
    ) -> Vec<(Op, Vec<u64>)> {
        seen.borrow_mut().clear();
        m.with(0, |cast, ctx| f(ctx, &cast.ids.clone()));
        std::mem::take(&mut *seen.borrow_mut())
    }

    fn names(calls: &[(Op, Vec<u64>)]) -> Vec<&'static str> {
        calls.iter().map(|(op, _)| op.name()).collect()
    }

    #[test]
    fn a_move_is_told_between_leaving_the_queue_and_coming_back() {
        let (mut m, seen) = machine(None);
        let told = |m: &mut Simulation<Cast>, i: usize| {
            heard(m, &seen, |ctx, ids| {
                ctx.move_to_vm(&[ids[i]], Some(1)).unwrap();
            })
        };
        let queued = told(&mut m, 1);
        assert_eq!(
            names(&queued),
            ["cgroup_prep_move", "quiescent", "cgroup_move", "runnable"]
        );
        let k = m.kernel();
        let task = m.workload.ids[1];
        let (from, to) = (k.cgroups.of_vm(0), k.cgroups.of_vm(1));
        let args = [
            k.tasks.ptr(task) as u64,
            k.cgroups.ptr(from) as u64,
            k.cgroups.ptr(to) as u64,
        ];
        assert_eq!(queued[0].1, args);
        assert_eq!(queued[2].1, args);
        assert_eq!(
            k.tasks.rest(task).unwrap().sched_task_group,
            k.cgroups.views(to).0
        );
        assert_eq!(k.tasks.rest(task).unwrap().cgroups, k.cgroups.views(to).1);
        // The running one stays where it is.
        assert_eq!(
            names(&told(&mut m, 0)),
            [
                "cgroup_prep_move",
                "stopping",
                "quiescent",
                "cgroup_move",
                "runnable",
                "running"
            ]
        );
        assert_eq!(names(&told(&mut m, 2)), ["cgroup_prep_move", "cgroup_move"]);
        // They are there.
        for i in 0..3 {
            assert_eq!(told(&mut m, i), []);
        }
        m.run_until(100_000_000).unwrap();
        m.check().unwrap();
    }

    #[test]
    fn a_refused_move_leaves_everybody_where_they_were() {
        let (mut m, seen) = machine(Some((2, -22)));
        let calls = heard(&mut m, &seen, |ctx, ids| {
            let got = ctx.move_to_vm(ids, Some(1));
            let want = CgroupError::Refused {
                task: ids[2],
                errno: -22,
            };
            assert_eq!(got, Err(want));
        });
        assert_eq!(
            names(&calls),
            [
                "cgroup_prep_move",
                "cgroup_prep_move",
                "cgroup_prep_move",
                "cgroup_cancel_move",
                "cgroup_cancel_move"
            ]
        );
        let k = m.kernel();
        let home = k.cgroups.of_vm(0);
        for id in &m.workload.ids {
            assert_eq!(k.tasks.hot[*id as usize].cgroup, home);
            assert_eq!(k.tasks.rest(*id).unwrap().cgroups, k.cgroups.views(home).1);
        }
        m.run_until(10_000_000).unwrap();
    }

    #[test]
    fn a_refusal_must_be_an_error_number() {
        let (mut m, _) = machine(Some((0, 7)));
        m.with(0, |cast, ctx| {
            let got = ctx.move_to_vm(&cast.ids[..1], Some(1));
            assert!(matches!(got, Err(CgroupError::Refused { errno: -71, .. })));
        });
        let e = m.run_until(10_000_000).unwrap_err().to_string();
        assert!(
            e.contains("ops.cgroup_prep_move() returned an invalid errno 7"),
            "{e}"
        );
    }

    #[test]
    fn settings_are_told_when_they_change_and_refused_as_by_the_kernel() {
        let (mut m, seen) = machine(None);
        let cgrp = {
            let k = m.kernel();
            k.cgroups.ptr(k.cgroups.of_vm(1)) as u64
        };
        let calls = heard(&mut m, &seen, |ctx, _| {
            ctx.set_vm_weight(1, 300).unwrap();
            ctx.set_vm_weight(1, 300).unwrap();
            for weight in [0, 10_001] {
                assert_eq!(
                    ctx.set_vm_weight(1, weight),
                    Err(CgroupError::Weight(weight))
                );
            }
            assert_eq!(ctx.set_vm_weight(2, 1), Err(CgroupError::NoSuchVm(2)));
        });
        assert_eq!(calls, [(Op::CgroupSetWeight, vec![cgrp, 300])]);
        let limit = |quota_us, burst_us| Bandwidth {
            quota_us,
            burst_us,
            ..Bandwidth::default()
        };
        let calls = heard(&mut m, &seen, |ctx, _| {
            ctx.set_vm_bandwidth(1, limit(None, 0)).unwrap();
            ctx.set_vm_bandwidth(1, limit(Some(50_000), 10_000))
                .unwrap();
            ctx.set_vm_bandwidth(1, limit(Some(50_000), 10_000))
                .unwrap();
            ctx.set_vm_bandwidth(1, limit(None, 0)).unwrap();
            for bad in [limit(Some(999), 0), limit(Some(2_000), 3_000)] {
                assert_eq!(
                    ctx.set_vm_bandwidth(1, bad),
                    Err(CgroupError::Bandwidth(bad))
                );
            }
        });
        let told = |quota, burst| (Op::CgroupSetBandwidth, vec![cgrp, 100_000, quota, burst]);
        assert_eq!(calls, [told(50_000, 10_000), told(u64::MAX, 0)]);
        let calls = heard(&mut m, &seen, |ctx, _| {
            ctx.set_vm_idle(1, true).unwrap();
            ctx.set_vm_idle(1, true).unwrap();
            assert_eq!(ctx.set_vm_weight(1, 5), Err(CgroupError::Idle(1)));
            ctx.set_vm_idle(1, false).unwrap();
        });
        let told = |idle| (Op::CgroupSetIdle, vec![cgrp, idle]);
        assert_eq!(calls, [told(1), told(1), told(0)]);
    }
}
