// SPDX-License-Identifier: GPL-2.0-only
//! What can be said about locks, barriers and conditions before anything runs. A task's steps have no branches,
//! so this finds every lock that is not given back; deadlocks between tasks are found when they happen.
use crate::model::{Scenario, Step, Task, Vm};
use crate::placement::shared;
use crate::step::Named;
use std::collections::BTreeMap;

/// A task, and what is wrong with it: one sentence.
pub type Wrong = (String, String);

/// Checks all tasks.
///
/// # Errors
/// The task that is wrong, its lock, barrier or condition, and what to do.
pub fn check(scenario: &Scenario) -> Result<(), Wrong> {
    let mut kinds: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
    for task in scenario.tasks.values() {
        let own = |what| (task.name.clone(), what);
        locks(task).map_err(own)?;
        reachable(task).map_err(own)?;
        for step in task.first.iter().chain(&task.steps) {
            let Named::Locks { name, spins } = step.named() else {
                continue;
            };
            let (other, kind) = *kinds.entry(name).or_insert((&task.name, spins));
            if kind != spins {
                let what = format!(
                    "`{name}` is a lock to sleep for and a spin lock at once (task.{other} and task.{}): give them \
                     different names",
                    task.name
                );
                return Err((task.name.clone(), what));
            }
        }
    }
    for vm in &scenario.vms {
        match shared(vm) {
            None => signalled(scenario, &vm.tasks, &format!("vm.{}", vm.name))?,
            Some(cgroup) => {
                let all = scenario.vms.iter().filter(|v| shared(v) == Some(cgroup));
                let tasks: Vec<String> = all.flat_map(|v| &v.tasks).cloned().collect();
                signalled(scenario, &tasks, &format!("cgroup {cgroup}"))?;
                stays(scenario, vm, &tasks)?;
            }
        }
    }
    signalled(scenario, &scenario.host.tasks, "the host")
}

/// A VM that shares locks and the like with others does not stop while they go on.
fn stays(scenario: &Scenario, vm: &Vm, tasks: &[String]) -> Result<(), Wrong> {
    let tasks = tasks.iter().filter_map(|name| scenario.tasks.get(name));
    let meets = |step: &&Step| {
        matches!(
            step.named(),
            Named::Locks { .. } | Named::MeetsAt(_) | Named::WaitsFor(_) | Named::Shares(_)
        )
    };
    for task in tasks {
        let mut steps = task.first.iter().chain(&task.steps);
        if let (Some(_), Some(step)) = (vm.stop_ns, steps.find(meets)) {
            let what = format!(
                "vm.{} stops, and shares what task.{} has a step `{}` for with the other VMs of its cgroup, which may \
                 not go on without it: leave `stop` out",
                vm.name,
                task.name,
                step.word()
            );
            return Err((task.name.clone(), what));
        }
    }
    Ok(())
}

/// Every lock is taken when free (as far as this task goes) and given back.
fn locks(task: &Task) -> Result<(), String> {
    // Locks held, and at which step each was taken.
    let mut held: Vec<(&str, usize)> = Vec::new();
    let me = format!("task.{}", task.name);
    let all = task.first.iter().chain(&task.steps);
    let mut at_loop = Vec::new();
    for (i, step) in (1..).zip(all) {
        if i == task.first.len() + 1 {
            at_loop = held.clone();
        }
        if let Some((name, at)) = held.first().filter(|_| step.is_last()) {
            return Err(format!(
                "{me} takes lock `{name}` (step {at}) and never gives it back: step {i} is `{}`; put `unlock \
                         {name}` before that",
                step.word()
            ));
        }
        match step.named() {
            Named::Locks { name, .. } => {
                if held.iter().any(|(h, _)| *h == name) {
                    return Err(format!(
                        "{me} takes lock `{name}` (step {i}) while it holds it already: it would wait for itself"
                    ));
                }
                held.push((name, i));
            }
            Named::Unlocks(name) => match held.iter().position(|(h, _)| *h == name) {
                Some(at) => {
                    held.remove(at);
                }
                None => {
                    return Err(format!(
                        "{me} unlocks `{name}` (step {i}), which it does not hold there: put `lock {name}` before it"
                    ));
                }
            },
            Named::Nothing
            | Named::Takes(_)
            | Named::SendsTo(_)
            | Named::Starts(_)
            | Named::MeetsAt(_)
            | Named::WaitsFor(_)
            | Named::Wakes(_)
            | Named::Shares(_)
            | Named::Disk(_) => (),
        }
    }
    let names = |l: &[(&str, usize)]| {
        let mut names: Vec<String> = l.iter().map(|(n, _)| n.to_string()).collect();
        names.sort();
        names
    };
    let given_back = |name: &str| {
        let unlocks = |s: &Step| s.named() == Named::Unlocks(name);
        task.steps.iter().any(unlocks)
    };
    if let Some((name, at)) = held.iter().find(|(n, _)| !given_back(n)) {
        return Err(format!(
            "{me} takes lock `{name}` (step {at}) and never gives it back: add `unlock {name}`"
        ));
    }
    if names(&held) == names(&at_loop) {
        return Ok(());
    }
    let kept = held
        .iter()
        .find(|(n, _)| !at_loop.iter().any(|(a, _)| a == n));
    Err(match kept {
        Some((name, at)) => format!(
            "{me} takes lock `{name}` (step {at}) and never gives it back: put `unlock {name}` at the end of its loop"
        ),
        None => format!(
            "{me} begins its loop with a lock that the loop gives back only once: take it inside the loop"
        ),
    })
}

/// No barrier behind a step that never ends.
fn reachable(task: &Task) -> Result<(), String> {
    let all = || task.first.iter().chain(&task.steps);
    let Some(end) = all().position(Step::is_last) else {
        return Ok(());
    };
    for step in all().skip(end) {
        if let Named::MeetsAt(name) = step.named() {
            return Err(format!(
                "nobody can reach barrier `{name}` of task.{}: it is behind `{}`, after which no step follows",
                task.name,
                all().nth(end).map_or("", Step::word)
            ));
        }
    }
    Ok(())
}

/// Who waits for a condition is signalled by somebody of the same place.
fn signalled(scenario: &Scenario, tasks: &[String], place: &str) -> Result<(), Wrong> {
    let mut here: Vec<&Task> = Vec::new();
    let mut open: Vec<&str> = tasks.iter().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        let Some(task) = scenario.tasks.get(name) else {
            continue;
        };
        if here.iter().any(|t| t.name == task.name) {
            continue;
        }
        here.push(task);
        open.extend(
            task.first
                .iter()
                .chain(&task.steps)
                .filter_map(Step::starts),
        );
    }
    let steps = || {
        here.iter()
            .flat_map(|t| t.first.iter().chain(&t.steps).map(move |s| (t, s)))
    };
    for (task, step) in steps() {
        let Named::WaitsFor(name) = step.named() else {
            continue;
        };
        let wakes = |s: &Step| s.named() == Named::Wakes(name);
        if !steps().any(|(_, s)| wakes(s)) {
            let what = format!(
                "task.{} waits for `{name}`, which no task of {place} signals: add `signal {name}` to one",
                task.name
            );
            return Err((task.name.clone(), what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Dist, Vm};

    /// One task with these steps in one VM.
    fn told(first: Vec<Step>, steps: Vec<Step>) -> String {
        let task = Task {
            name: "t".into(),
            first,
            steps,
            ..Task::default()
        };
        let vm = Vm {
            name: "v".into(),
            tasks: vec!["t".into()],
            ..Vm::default()
        };
        let scenario = Scenario {
            vms: vec![vm],
            tasks: [("t".to_string(), task)].into(),
            ..Scenario::default()
        };
        check(&scenario).err().unwrap_or_default().1
    }

    fn lock(name: &str) -> Step {
        Step::Lock { name: name.into() }
    }
    fn unlock(name: &str) -> Step {
        Step::Unlock { name: name.into() }
    }

    #[test]
    fn locks_are_given_back() {
        let work = || Step::Compute(Dist::Const(1));
        assert_eq!(
            told(
                vec![],
                vec![lock("a"), lock("b"), unlock("a"), work(), unlock("b")]
            ),
            ""
        );
        // Handed from round to round.
        assert_eq!(
            told(vec![lock("a")], vec![unlock("a"), work(), lock("a")]),
            ""
        );
        let e = told(vec![], vec![lock("a"), work()]);
        assert!(
            e.contains("task.t takes lock `a` (step 1) and never gives it back"),
            "{e}"
        );
        let e = told(vec![lock("a")], vec![work()]);
        assert!(
            e.contains("(step 1) and never gives it back: add `unlock a`"),
            "{e}"
        );
        let e = told(vec![], vec![lock("a"), unlock("a"), lock("a")]);
        assert!(
            e.contains("(step 3) and never gives it back: put `unlock a` at the end"),
            "{e}"
        );
        let e = told(vec![lock("a")], vec![work(), unlock("a")]);
        assert!(e.contains("begins its loop with a lock"), "{e}");
        let e = told(vec![], vec![lock("a"), lock("a"), unlock("a")]);
        assert!(e.contains("(step 2) while it holds it"), "{e}");
        let e = told(vec![], vec![work(), unlock("a")]);
        assert!(
            e.contains("unlocks `a` (step 2), which it does not hold"),
            "{e}"
        );
        let e = told(vec![], vec![lock("a"), Step::Busy]);
        assert!(e.contains("step 2 is `busy`"), "{e}");
        let spin = Step::Spin { name: "a".into() };
        let e = told(vec![], vec![lock("a"), unlock("a"), spin, unlock("a")]);
        assert!(e.contains("a spin lock at once"), "{e}");
    }

    #[test]
    fn barriers_are_reached_and_waiters_signalled() {
        let barrier = || Step::Barrier { name: "b".into() };
        assert_eq!(told(vec![], vec![barrier(), Step::Busy]), "");
        let e = told(vec![], vec![Step::Exit, barrier()]);
        assert!(
            e.contains("nobody can reach barrier `b` of task.t: it is behind `exit`"),
            "{e}"
        );
        let wait = || Step::Wait { name: "c".into() };
        let e = told(vec![], vec![wait()]);
        assert!(
            e.contains("waits for `c`, which no task of vm.v signals"),
            "{e}"
        );
        let signal = Step::Signal { name: "c".into() };
        assert_eq!(told(vec![], vec![signal, wait()]), "");
    }
}
