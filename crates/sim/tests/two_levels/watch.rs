// SPDX-License-Identifier: GPL-2.0-only
//! A witness of a run with guests: how long each task of a guest waits for its turn, in run time of its vCPU. It sees
//! switches and wake-ups of all machines and counts for itself; it asks the simulator for nothing.
use berth_sim::machine::task::Life;
use berth_sim::trace::{Event, Kind, SharedSink, Sink};
use berth_sim::workload::api::{CpuId, MachineId, Nanos, TaskId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Run time of one vCPU.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// Up to `since`.
    ran: Nanos,
    /// Running since then.
    since: Option<Nanos>,
}

impl Clock {
    fn at(&self, now: Nanos) -> Nanos {
        self.ran + self.since.map_or(0, |since| now - since)
    }
}

/// A guest's task that waits: since when, on which vCPU, and what each vCPU's clock said then.
#[derive(Clone, Debug)]
struct Wait {
    at: Nanos,
    cpu: CpuId,
    clocks: Vec<Nanos>,
}

#[derive(Default)]
pub struct Watch {
    /// Host thread -> machine and CPU of its guest.
    vcpus: BTreeMap<TaskId, (MachineId, CpuId)>,
    clocks: BTreeMap<(MachineId, CpuId), Clock>,
    /// What runs on each CPU of each machine.
    curr: BTreeMap<(MachineId, CpuId), TaskId>,
    waits: BTreeMap<(MachineId, TaskId), Wait>,
    /// Per machine and task: the longest wait in run time of its vCPU (if it was moved meanwhile, of that which ran
    /// less of the first and the last one), and by the wall; ns.
    pub longest: BTreeMap<(MachineId, TaskId), (Nanos, Nanos)>,
}

impl Watch {
    /// A watch and the sink to give to the run.
    pub fn new() -> (Arc<Mutex<Watch>>, SharedSink) {
        let watch = Arc::new(Mutex::new(Watch::default()));
        (watch.clone(), SharedSink::new(watch))
    }

    fn clocks_of(&self, machine: MachineId, now: Nanos) -> Vec<Nanos> {
        let of = self.clocks.range((machine, 0)..(machine + 1, 0));
        of.map(|(_, c)| c.at(now)).collect()
    }

    fn begins(&mut self, machine: MachineId, task: TaskId, cpu: CpuId, at: Nanos) {
        let clocks = self.clocks_of(machine, at);
        self.waits
            .entry((machine, task))
            .or_insert(Wait { at, cpu, clocks });
    }

    fn ends(&mut self, machine: MachineId, task: TaskId, cpu: CpuId, now: Nanos) {
        let Some(wait) = self.waits.remove(&(machine, task)) else {
            return;
        };
        let after = self.clocks_of(machine, now);
        let ran = |cpu: CpuId| after[cpu as usize] - wait.clocks[cpu as usize];
        let seen = self.longest.entry((machine, task)).or_default();
        seen.0 = seen.0.max(ran(cpu).min(ran(wait.cpu)));
        seen.1 = seen.1.max(now - wait.at);
    }

    /// Whoever still waits has waited until now.
    pub fn close(&mut self, now: Nanos) {
        for (machine, task) in self.waits.keys().copied().collect::<Vec<_>>() {
            let cpu = self.waits[&(machine, task)].cpu;
            self.ends(machine, task, cpu, now);
        }
    }
}

impl Sink for Watch {
    fn born(&mut self, machine: MachineId, task: TaskId, name: &str, _entry: u32) {
        // The stage names vCPU threads vmN/CPU.
        let of_vcpu = name.strip_prefix("vm").and_then(|n| n.split_once('/'));
        if machine == 0
            && let Some((vm, cpu)) = of_vcpu
        {
            let key = (vm.parse::<u32>().unwrap() + 1, cpu.parse().unwrap());
            self.vcpus.insert(task, key);
            self.clocks.insert(key, Clock::default());
        }
    }

    fn event(&mut self, machine: MachineId, e: &Event, life: &dyn Fn(TaskId) -> Life) {
        match e.kind {
            Kind::Switch => {
                let before = self.curr.insert((machine, e.cpu), e.task);
                if machine == 0 {
                    if let Some(clock) = before
                        .and_then(|t| self.vcpus.get(&t))
                        .and_then(|v| self.clocks.get_mut(v))
                        && let Some(since) = clock.since.take()
                    {
                        clock.ran += e.at_ns - since;
                    }
                    if let Some(clock) =
                        self.vcpus.get(&e.task).and_then(|v| self.clocks.get_mut(v))
                    {
                        clock.since = Some(e.at_ns);
                    }
                    return;
                }
                self.ends(machine, e.task, e.cpu, e.at_ns);
                if let Some(t) = before
                    && t != e.task
                    && life(t) == Life::Runnable
                {
                    self.begins(machine, t, e.cpu, e.at_ns);
                }
            }
            Kind::Wake | Kind::Fork if machine != 0 => self.begins(machine, e.task, e.cpu, e.at_ns),
            _ => (),
        }
    }
}
