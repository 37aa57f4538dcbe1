// SPDX-License-Identifier: GPL-2.0-only
//! The agent of a mixed VM looks at the tasks of its guest once a period, and moves them. It is a timer of the guest,
//! which fires on a reserved vCPU and comes late if that has no physical CPU; beside its interrupt it takes no CPU
//! time. Once a period it allocates, which nothing else does on the event path.
use super::agents::Agent;
use super::api::{Ctx, Nanos, TaskId};
use super::events::Event;
use super::scenario::ScenarioWorkload;
use crate::error::SimError;
use crate::guest::machine_of;
use berth_mixed::{Observation, Process, Seen, Settings, Sorter, Standing};
use std::collections::BTreeMap;

/// A task of the scenario as a process of the guest.
struct Found {
    ran_ns: Nanos,
    standing: Standing,
    threads: Vec<TaskId>,
}

impl ScenarioWorkload {
    /// The guest has booted: its agent, if it has one, looks for the first time.
    pub(super) fn start_agent(&mut self, home: u32, ctx: &mut Ctx) {
        let Some(vm) = self.homes.vm(home).filter(|vm| vm.guest_agent) else {
            return;
        };
        let sorter = match Sorter::new(Settings::default()) {
            Ok(sorter) => sorter,
            Err(e) => return ctx.fail(SimError::Setting(e.to_string())),
        };
        let compute: Vec<u32> = (0..vm.compute_vcpus()).collect();
        let reserved: Vec<u32> = (vm.compute_vcpus()..vm.vcpus).collect();
        let agent = Agent {
            sorter,
            compute: ctx.mask(&compute),
            reserved: ctx.mask(&reserved),
            cpu: vm.compute_vcpus(),
            born: BTreeMap::new(),
            ended_ns: BTreeMap::new(),
            moved: 0,
        };
        self.agents.start(home, agent);
        self.look_inside(home, ctx);
    }

    /// The agent of a VM looks, moves whom it is time to move, and sets its timer again.
    pub(super) fn look_inside(&mut self, home: u32, ctx: &mut Ctx) {
        let found = self.found(home, ctx);
        let Some(agent) = self.agents.get(home) else {
            return;
        };
        let (scenario, programs) = (&self.homes.scenario, &self.programs.all);
        let seen = |(program, found): (&u32, &Found)| Seen {
            process: process(*program),
            uid: (scenario.tasks.get(&programs[*program as usize].task)).map_or(0, |t| t.uid),
            ran_ns: found.ran_ns,
            standing: found.standing,
        };
        let observation = Observation {
            at_ns: ctx.now(),
            processes: found.iter().map(seen).collect(),
        };
        let decision = match agent.sorter.observe(&observation) {
            Ok(decision) => decision,
            Err(e) => return ctx.fail(SimError::Setting(format!("a guest's agent: {e}"))),
        };
        for change in &decision.changes {
            let program = change.process.number;
            let Some(to) = change.to else {
                agent.born.remove(&program);
                continue;
            };
            let mask = agent.mask(to);
            agent.born.insert(program, mask);
            agent.moved += u64::from(change.from.is_some());
            for task in found.get(&program).iter().flat_map(|f| &f.threads) {
                if ctx.affinity(*task) != mask {
                    ctx.set_affinity(*task, mask);
                }
            }
        }
        let next = ctx.now() + agent.sorter.settings().period_ns;
        let cpu = agent.cpu;
        ctx.at_on(cpu, next, Event::Look(home).token());
    }

    /// The processes of a guest, by program. One whose threads have all ended has ended, unless it starts some for
    /// requests.
    fn found(&mut self, home: u32, ctx: &Ctx) -> BTreeMap<u32, Found> {
        let mut all: BTreeMap<u32, Found> = BTreeMap::new();
        let Some(agent) = self.agents.get(home) else {
            return all;
        };
        let (scenario, programs) = (&self.homes.scenario, &self.programs.all);
        let new = |program: u32| {
            let task = scenario.tasks.get(&programs[program as usize].task);
            Found {
                ran_ns: agent.ended_ns.get(&program).copied().unwrap_or(0),
                standing: match task.is_some_and(|t| !t.affinity.is_empty()) {
                    true => Standing::Pinned,
                    false => Standing::Free,
                },
                threads: Vec::new(),
            }
        };
        let tasks = self.homes.vm(home).into_iter().flat_map(|vm| &vm.tasks);
        let waits = tasks.map(|name| self.programs.number(name));
        let waits = waits.filter(|p| programs[*p as usize].per_request);
        all.extend(waits.map(|p| (p, new(p))));
        for t in self.threads.all.iter() {
            if !t.alive || t.home != home || t.machine != machine_of(home) || t.post.is_some() {
                continue;
            }
            let program = self.threads.hosts[t.host as usize].program;
            let found = all.entry(program).or_insert_with(|| new(program));
            // It is about to be born.
            if t.task == TaskId::MAX {
                continue;
            }
            found.ran_ns += ctx.ran(t.task);
            found.threads.push(t.task);
            if ![agent.compute, agent.reserved].contains(&ctx.affinity(t.task)) {
                found.standing = Standing::Pinned;
            }
        }
        all
    }

    /// Changes of side by agents so far, by VM; none: it has no agent now.
    pub(crate) fn moved(&self) -> Vec<Option<u64>> {
        self.agents.moved()
    }
}

fn process(program: u32) -> Process {
    Process {
        number: program,
        start: 0,
    }
}
