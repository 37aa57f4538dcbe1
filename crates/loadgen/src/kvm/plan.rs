// SPDX-License-Identifier: GPL-2.0-only
//! Which vCPU of which micro-VM does what.
//!
//! A VM whose tasks fold onto its vCPU threads ([`berth_scenario::placement`]) has the same threads as without KVM,
//! each vCPU with one task. Any other VM has its tasks' threads dealt to its vCPUs in turn, in the order of its list;
//! the guest's scheduler then shares each vCPU among them.
use berth_identity::Role;
use berth_scenario::model::{Scenario, Step};
use berth_scenario::placement::{self, HostThread, PlacementError, Work};
use berth_scenario::step::Named;

/// One host thread; of a vCPU, with the tasks that its guest runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub thread: HostThread,
    /// Empty for threads of the host.
    pub tasks: Vec<Work>,
}

/// The threads of a scenario whose VMs are micro-VMs, in the order of [`placement::threads`].
///
/// # Errors
/// What leads nowhere, or is folded and does not fit.
pub fn plan(scenario: &Scenario) -> Result<Vec<Placed>, PlacementError> {
    let shared: Vec<bool> = (0..scenario.vms.len())
        .map(|g| placement::threads_where(scenario, &|other| other != g).is_err())
        .collect();
    let inside = placement::threads_where(scenario, &|g| shared[g])?;
    let mut all: Vec<Placed> = Vec::new();
    // Number of the VM's next task.
    let mut next = 0;
    let mut vm = None;
    for thread in inside {
        let Some(instance) = &thread.vm else {
            all.push(Placed {
                thread,
                tasks: Vec::new(),
            });
            continue;
        };
        if !shared[instance.group] {
            let tasks = vec![thread.work.clone()];
            all.push(Placed { thread, tasks });
            continue;
        }
        if vm != Some(instance.ordinal) {
            (vm, next) = (Some(instance.ordinal), 0);
        }
        let spec = &scenario.vms[instance.group];
        let vcpu = next % spec.vcpus.max(1);
        next += 1;
        let here = all.iter_mut().find(|p| {
            p.thread.role == Role::Vcpu(vcpu)
                && p.thread.vm.as_ref().map(|v| v.ordinal) == Some(instance.ordinal)
        });
        if let Some(placed) = here {
            placed.tasks.push(thread.work);
            continue;
        }
        all.push(Placed {
            tasks: vec![thread.work.clone()],
            thread: HostThread {
                name: format!("{}/{vcpu}", instance.name),
                role: Role::Vcpu(vcpu),
                // The tasks' own are the guest's business.
                affinity: spec.affinity.clone(),
                nice: spec.nice,
                ..thread.clone()
            },
        });
    }
    Ok(all)
}

/// What a micro-VM cannot do, in the middle of a sentence; `None` if it can do the whole scenario.
pub fn unfit(scenario: &Scenario, plan: &[Placed]) -> Option<String> {
    for name in scenario.vms.iter().flat_map(|vm| &vm.tasks) {
        let Some(task) = scenario.tasks.get(name) else {
            continue;
        };
        if task.per_request {
            return Some(format!("the threads for each request of task.{name}"));
        }
        if task.estimate.is_some() {
            return Some(format!("the sizes told of task.{name}"));
        }
    }
    if let Some((vm, task)) = meets_others(scenario) {
        return Some(format!(
            "vm.{vm}: what task.{task} shares with threads of other VMs of its cgroup"
        ));
    }
    for placed in plan {
        let Some(vm) = &placed.thread.vm else {
            continue;
        };
        if placed
            .thread
            .role
            .vcpu()
            .is_some_and(|v| v >= super::layout::MAX_VCPUS)
        {
            return Some(format!(
                "vm.{}: more than {} vCPUs",
                scenario.vms[vm.group].name,
                super::layout::MAX_VCPUS
            ));
        }
        for name in placed.tasks.iter().flat_map(names) {
            let Some(task) = scenario.tasks.get(name) else {
                continue;
            };
            for step in task.first.iter().chain(&task.steps) {
                match step {
                    Step::Fork(_) | Step::Read { .. } | Step::Write { .. } => {
                        return Some(format!("the step `{}` of task.{name}", step.word()));
                    }
                    Step::Chunks { .. } if placed.tasks.len() > 1 => {
                        return Some(format!(
                            "the step `chunks` of task.{name}, which shares a vCPU with other tasks"
                        ));
                    }
                    Step::Timer { grid, .. } if !grid.is_random() => {
                        return Some(format!("the timers from the start of task.{name}"));
                    }
                    Step::Compute(_)
                    | Step::Busy
                    | Step::Sleep(_)
                    | Step::Timer { .. }
                    | Step::Receive(_)
                    | Step::Reply
                    | Step::Send { .. }
                    | Step::Yield
                    | Step::SetNice(_)
                    | Step::SetAffinity(_)
                    | Step::Stall(_)
                    | Step::Exit
                    | Step::Lock { .. }
                    | Step::Spin { .. }
                    | Step::Unlock { .. }
                    | Step::Barrier { .. }
                    | Step::Wait { .. }
                    | Step::Signal { .. }
                    | Step::Broadcast { .. }
                    | Step::Chunks { .. } => (),
                }
            }
        }
    }
    None
}

/// A VM and a task of it that shares locks and the like with threads of another one.
fn meets_others(scenario: &Scenario) -> Option<(&str, &str)> {
    let meets = |name: &&String| {
        let task = scenario.tasks.get(*name);
        let mut steps = task
            .into_iter()
            .flat_map(|t| t.first.iter().chain(&t.steps));
        steps.any(|step| {
            !matches!(
                step.named(),
                Named::Nothing | Named::Takes(_) | Named::SendsTo(_) | Named::Disk(_)
            )
        })
    };
    let sharing = scenario.vms.iter().filter(|vm| {
        let cgroup = placement::shared(vm);
        let with = scenario
            .vms
            .iter()
            .filter(|v| placement::shared(v) == cgroup);
        cgroup.is_some() && with.map(|v| v.count).sum::<u32>() > 1
    });
    let mut found = sharing.filter_map(|vm| Some((&*vm.name, &**vm.tasks.iter().find(meets)?)));
    found.next()
}

/// The names of the tasks that a thread does.
pub fn names(work: &Work) -> &[String] {
    match work {
        Work::Task(name) => std::slice::from_ref(name),
        Work::Pools(names) => names,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::model::{Dist, Task, Vm};

    fn scenario(vcpus: u32, threads: u32, steps: Vec<Step>) -> Scenario {
        let task = Task {
            name: "t".into(),
            threads: Some(threads),
            steps,
            ..Task::default()
        };
        let vm = Vm {
            name: "v".into(),
            vcpus,
            count: 2,
            tasks: vec!["t".into()],
            ..Vm::default()
        };
        Scenario {
            vms: vec![vm],
            tasks: [("t".to_string(), task)].into(),
            ..Scenario::default()
        }
    }

    #[test]
    fn vms_that_fold_have_the_threads_of_the_other_form() {
        let s = scenario(2, 2, vec![Step::Busy]);
        let threads: Vec<_> = plan(&s).unwrap().into_iter().map(|p| p.thread).collect();
        assert_eq!(threads, placement::threads(&s).unwrap());
    }

    #[test]
    fn others_have_their_tasks_dealt() {
        let s = scenario(2, 5, vec![Step::Sleep(Dist::Const(1_000)), Step::Busy]);
        assert!(placement::threads(&s).is_err());
        let plan = plan(&s).unwrap();
        let seen: Vec<_> = plan
            .iter()
            .map(|p| (p.thread.name.as_str(), p.tasks.len()))
            .collect();
        assert_eq!(
            seen,
            [("v-1/0", 3), ("v-1/1", 2), ("v-2/0", 3), ("v-2/1", 2)]
        );
        assert_eq!(unfit(&s, &plan), None);
    }

    #[test]
    fn what_a_guest_cannot_do_is_named() {
        let s = scenario(1, 1, vec![Step::Busy, Step::Fork("t".into())]);
        let said = unfit(&s, &plan(&s).unwrap()).unwrap();
        assert!(said.contains("`fork` of task.t"), "{said}");
    }
}
