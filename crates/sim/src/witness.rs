// SPDX-License-Identifier: GPL-2.0-only
//! What the lab's real guests note of themselves, noted of a simulated one: how long each request took, what the
//! guest's busy threads ran while the task that answers waited, and who had how much of the vCPUs.
//!
//! A [`Sink`]: it follows which vCPU has a CPU of the host and which task the guest has on it. A task runs where both
//! hold. Requests that find others unanswered are taken as answered when the task next sleeps.
use crate::machine::task::Life;
use crate::trace::{Event, Kind, SharedSink, Sink};
use crate::words::Nanos;
use berth_results::guest::{Answer, Seen};
use berth_results::schema::RunRecord;
use berth_scenario::dist::Arrivals;
use berth_scenario::model::{Scenario, Step};
use berth_scenario::placement::instances;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::{Arc, Mutex, PoisonError};

/// A run's witness: its [`Witness::sink`] goes into the options of the run, its record into [`Witness::finish`].
pub struct Witness {
    watch: Arc<Mutex<Watch>>,
    vm: String,
}

impl Witness {
    /// Of the VM that the scenario's first client sends to.
    ///
    /// # Errors
    /// There is none, or its requests wait for answers: one sentence.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Witness, String> {
        let client = scenario
            .clients
            .first()
            .ok_or("the scenario has no client")?;
        let all = instances(scenario);
        let found = all.iter().find(|i| scenario.vms[i.group].name == client.to);
        let instance = found.ok_or("the scenario's client sends to no VM")?;
        let vm = &scenario.vms[instance.group];
        let arrivals = Arrivals::new(&client.sends, seed, 0, instance.ordinal)
            .ok_or("the scenario's client waits for answers")?;
        let of = |name: &String| scenario.tasks.get(name);
        let busy = vm.tasks.iter().filter_map(of);
        let busy = busy.filter(|t| matches!(t.steps[..], [Step::Busy]));
        let hears = |step: &Step| matches!(step, Step::Receive(q) if *q == client.name);
        let echo = vm.tasks.iter().filter_map(of);
        let echo = echo.filter(|t| t.steps.iter().any(hears)).map(|t| &t.name);
        let run = &scenario.run;
        let watch = Watch {
            guest: instance.ordinal + 1,
            thread: format!("{}/", instance.name),
            echo: echo.cloned().collect(),
            busy: busy.map(|t| t.name.clone()).collect(),
            window: (run.warmup_ns, run.warmup_ns + run.measure_ns),
            due: arrivals.peekable(),
            starts: vm.start_ns,
            vcpus: vec![Vcpu::default(); vm.all_vcpus() as usize],
            threads: BTreeMap::new(),
            on_host: BTreeMap::new(),
            tasks: BTreeMap::new(),
            waiting: Vec::new(),
            now: 0,
            seen: Seen::default(),
        };
        Ok(Witness {
            watch: Arc::new(Mutex::new(watch)),
            vm: instance.name.clone(),
        })
    }

    /// For [`crate::run::Options::sink`].
    pub fn sink(&self) -> SharedSink {
        SharedSink::new(self.watch.clone())
    }

    /// What was seen, when the run is over; steal is that of the record.
    pub fn finish(self, record: &RunRecord) -> Seen {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let end = watch.window.1;
        watch.advance(end);
        let mut seen = std::mem::take(&mut watch.seen);
        for task in watch.tasks.values() {
            let name = task.name.clone();
            *seen.ran_ns.entry(name).or_default() += task.in_window as f64;
        }
        let metric = |what: &str| record.metrics.get(&format!("{}.{what}", self.vm)).copied();
        seen.steal = match (metric("steal"), metric("run")) {
            (Some(steal), Some(run)) if steal + run > 0.0 => Some(steal / (steal + run)),
            _ => None,
        };
        seen
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Vcpu {
    on_host: bool,
    /// The guest's task on it; none: idle.
    task: Option<u32>,
}

#[derive(Clone, Debug)]
struct Task {
    /// Without the thread's number.
    name: String,
    ran: Nanos,
    in_window: Nanos,
}

/// A request that has not been answered.
#[derive(Clone, Debug)]
struct Waiting {
    due: Nanos,
    /// When its work began.
    began: Option<Nanos>,
    /// What each busy thread had run when it was due; then, from its beginning on, what the busiest ran meanwhile.
    ran: BTreeMap<u32, Nanos>,
    hog_ran: Nanos,
}

struct Watch {
    /// Number of the guest's machine.
    guest: u32,
    /// Beginning of the names of its vCPUs' threads.
    thread: String,
    echo: Vec<String>,
    busy: Vec<String>,
    window: (Nanos, Nanos),
    due: Peekable<Arrivals>,
    /// When the VM starts.
    starts: Nanos,
    vcpus: Vec<Vcpu>,
    /// Thread of the host -> vCPU.
    threads: BTreeMap<u32, usize>,
    /// CPU of the host -> its thread.
    on_host: BTreeMap<u32, u32>,
    /// Of the guest.
    tasks: BTreeMap<u32, Task>,
    waiting: Vec<Waiting>,
    now: Nanos,
    seen: Seen,
}

impl Watch {
    /// Accounts up to a time, at which nothing changes.
    fn account(&mut self, to: Nanos) {
        let (from, window) = (self.now, self.window);
        for vcpu in self.vcpus.iter().filter(|v| v.on_host) {
            if let Some(task) = vcpu.task.and_then(|t| self.tasks.get_mut(&t)) {
                task.ran += to - from;
                let inside = to.min(window.1).saturating_sub(from.max(window.0));
                task.in_window += inside;
            }
        }
        self.now = to;
    }

    /// As `account`, with the requests that are due until then.
    fn advance(&mut self, to: Nanos) {
        while let Some(due) = self.due.peek().map(|at| at + self.starts) {
            if due > to {
                break;
            }
            self.due.next();
            self.account(due.max(self.now));
            let busy = |t: &&Task| self.busy.contains(&t.name);
            let hogs = self.tasks.iter().filter(|(_, t)| busy(t));
            let waiting = Waiting {
                due,
                began: None,
                ran: hogs.map(|(id, t)| (*id, t.ran)).collect(),
                hog_ran: 0,
            };
            self.waiting.push(waiting);
            self.begin();
        }
        self.account(to.max(self.now));
    }

    fn is_echo(&self, task: u32) -> bool {
        let task = self.tasks.get(&task);
        task.is_some_and(|t| self.echo.contains(&t.name))
    }

    /// Whoever waits for the task that answers, if it runs now.
    fn begin(&mut self) {
        let runs = |v: &Vcpu| v.on_host && v.task.is_some_and(|t| self.is_echo(t));
        if !self.vcpus.iter().any(runs) {
            return;
        }
        for w in self.waiting.iter_mut().filter(|w| w.began.is_none()) {
            w.began = Some(self.now);
            let ran = w.ran.iter().filter_map(|(id, before)| {
                let task = self.tasks.get(id)?;
                Some(task.ran - before)
            });
            w.hog_ran = ran.max().unwrap_or(0);
        }
    }

    /// The task that answers went to sleep: what it had begun is done.
    fn answered(&mut self) {
        let (now, window) = (self.now, self.window);
        let answers = &mut self.seen.answers;
        self.waiting.retain(|w| {
            let Some(began) = w.began else { return true };
            if (window.0..window.1).contains(&w.due) {
                answers.push(Answer {
                    latency_ns: now - w.due,
                    work_ns: now - began,
                    hog_ran_ns: w.hog_ran,
                });
            }
            false
        });
    }
}

impl Sink for Watch {
    fn born(&mut self, machine: u32, task: u32, name: &str, _: u32) {
        if machine == 0 {
            let number = name.strip_prefix(self.thread.as_str());
            if let Some(vcpu) = number.and_then(|n| n.parse().ok())
                && vcpu < self.vcpus.len()
            {
                self.threads.insert(task, vcpu);
            }
        } else if machine == self.guest {
            let name = name.split('/').next().unwrap_or(name).to_string();
            let new = Task {
                name,
                ran: 0,
                in_window: 0,
            };
            self.tasks.insert(task, new);
        }
    }

    fn event(&mut self, machine: u32, e: &Event, life: &dyn Fn(u32) -> Life) {
        let ours = machine == 0 || machine == self.guest;
        if e.kind != Kind::Switch || !ours {
            return;
        }
        self.advance(e.at_ns.max(self.now));
        if machine == 0 {
            let last = self.on_host.insert(e.cpu, e.task);
            if let Some(vcpu) = last.and_then(|t| self.threads.get(&t)) {
                self.vcpus[*vcpu].on_host = false;
            }
            if let Some(vcpu) = self.threads.get(&e.task) {
                self.vcpus[*vcpu].on_host = true;
            }
        } else if let Some(vcpu) = self.vcpus.get_mut(e.cpu as usize) {
            // A CPU's idle task has its number.
            let next = (e.task != e.cpu).then_some(e.task);
            let last = std::mem::replace(&mut vcpu.task, next);
            if let Some(last) = last
                && self.is_echo(last)
                && life(last) == Life::Asleep
            {
                self.answered();
            }
        }
        self.begin();
    }
}
