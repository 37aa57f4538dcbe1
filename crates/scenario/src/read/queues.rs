// SPDX-License-Identifier: GPL-2.0-only
//! Who sends to whom: every request and message needs a task that takes it.
use super::tasks::Places;
use crate::diag::{At, Error, Result};
use crate::model::{Scenario, Step};
use crate::placement::{self, PlacementError, queue_of};
use crate::step::Named;
use std::collections::BTreeSet;

/// Checks queues and forks of every VM and of the host.
pub fn check(scenario: &Scenario, places: &Places, warnings: &mut Vec<String>) -> Result<()> {
    let place = |task: &str, step: usize| -> Option<At> {
        places.steps.get(task).and_then(|s| s.get(step)).cloned()
    };
    let wrong = |task: &str, step: usize, message: String| match place(task, step) {
        Some(at) => Error::at(&at, message),
        None => Error::new(format!("[task.{task}]: {message}")),
    };

    // Names that exist at all.
    let tasks: BTreeSet<&str> = scenario.tasks.keys().map(String::as_str).collect();
    let mut sent: BTreeSet<&str> = BTreeSet::new();
    for task in scenario.tasks.values() {
        let to = task.steps.iter().filter_map(Step::sends_to);
        sent.extend(to.map(|to| queue_of(scenario, to).unwrap_or(to)));
    }
    let mut queues: BTreeSet<&str> = scenario.clients.iter().map(|c| c.name.as_str()).collect();
    queues.extend(&sent);
    for task in scenario.tasks.values() {
        for (i, step) in task.steps.iter().enumerate() {
            if let Some(name) = step.takes().filter(|name| !queues.contains(name)) {
                let what = format!(
                    "nobody sends to `{name}`: there is no such client, and no `send {name}`"
                );
                return Err(wrong(&task.name, i, what).nearest(name, queues.iter().copied()));
            }
            if let Named::Disk(name) = step.named()
                && !scenario.disks.iter().any(|d| d.name == name)
            {
                let what = format!("there is no disk `{name}`");
                let disks = scenario.disks.iter().map(|d| d.name.as_str());
                return Err(wrong(&task.name, i, what)
                    .nearest(name, disks)
                    .note(format!("A table [disk.{name}] makes one")));
            }
            if let Some(name) = step.starts().filter(|name| !tasks.contains(name)) {
                let what = format!("there is no task `{name}` to fork");
                return Err(wrong(&task.name, i, what).nearest(name, tasks.iter().copied()));
            }
        }
    }

    // What runs in each VM, and on the host itself.
    let everywhere: BTreeSet<&str> = scenario
        .vms
        .iter()
        .map(|vm| &vm.tasks)
        .chain([&scenario.host.tasks])
        .flat_map(|named| receives(scenario, &with_forks(scenario, named)))
        .collect();
    for vm in &scenario.vms {
        let running = with_forks(scenario, &vm.tasks);
        let receives = receives(scenario, &running);
        for client in scenario.clients.iter().filter(|c| c.to == vm.name) {
            if !receives.contains(client.name.as_str()) {
                let message = format!(
                    "no task of vm.{} takes the requests of client.{}",
                    vm.name, client.name
                );
                let error = match places.clients.get(&client.name) {
                    Some(at) => Error::at(at, message),
                    None => Error::new(message),
                };
                return Err(error.label(format!(
                    "a task in it needs the step `receive {}`",
                    client.name
                )));
            }
        }
        let from_clients: BTreeSet<&str> = scenario
            .clients
            .iter()
            .filter(|c| c.to == vm.name)
            .map(|c| c.name.as_str())
            .collect();
        for queue in receives
            .difference(&from_clients)
            .filter(|q| !sent.contains(*q))
        {
            warnings.push(format!(
                "in vm.{} a task waits for `{queue}`, which nobody sends there",
                vm.name
            ));
        }
    }
    for task in scenario.tasks.values() {
        for (i, step) in task.steps.iter().enumerate() {
            if let Some(to) = step.sends_to()
                && !everywhere.contains(queue_of(scenario, to).unwrap_or(to))
            {
                return Err(wrong(
                    &task.name,
                    i,
                    format!("nobody takes what is sent to `{to}`"),
                )
                .label(format!("a task that runs needs the step `receive {to}`")));
            }
        }
    }
    folded(scenario, places)
}

/// The vCPU threads that VMs without a guest come down to must be possible (see [`crate::placement`]).
fn folded(scenario: &Scenario, places: &Places) -> Result<()> {
    let Err(error) = placement::check(scenario) else {
        return Ok(());
    };
    let place = match &error {
        PlacementError::TooManyThreads { task, .. }
        | PlacementError::NoVcpuForPool { task, .. }
        | PlacementError::ReceiveInside { task }
        | PlacementError::FirstOfPool { task }
        | PlacementError::NoSuchDisk { task, .. }
        | PlacementError::Sync { task, .. }
        | PlacementError::SleepingPool { task, .. }
        | PlacementError::MixedPools { first: task, .. } => places.headers.get(task),
        PlacementError::NobodyReceives { from, .. } => places.headers.get(from),
        PlacementError::ClientUnheard { client, .. } => places.clients.get(client),
        PlacementError::UnknownTask { .. }
        | PlacementError::Network(_)
        | PlacementError::Disk(_) => None,
    };
    Err(match place {
        Some(at) => Error::at(at, error.to_string()),
        None => Error::new(error.to_string()),
    })
}

/// The tasks named, and all that they fork.
fn with_forks<'a>(scenario: &'a Scenario, named: &'a [String]) -> BTreeSet<&'a str> {
    let mut all = BTreeSet::new();
    let mut open: Vec<&str> = named.iter().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        if !all.insert(name) {
            continue;
        }
        if let Some(task) = scenario.tasks.get(name) {
            open.extend(task.steps.iter().filter_map(Step::starts));
        }
    }
    all
}

fn receives<'a>(scenario: &'a Scenario, tasks: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    let steps = tasks
        .iter()
        .filter_map(|t| scenario.tasks.get(*t))
        .flat_map(|t| &t.steps);
    steps.filter_map(Step::takes).collect()
}
