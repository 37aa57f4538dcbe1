// SPDX-License-Identifier: GPL-2.0-only
//! The agent: one policy on one host, from loading it to the way back.
use crate::backend::{self, Acting, Backend, End, Policy, Trouble};
use crate::describe::Remark;
use crate::keeper::Keeper;
use crate::register::Entry;
use crate::rules::Rules;
use crate::tripwire::{Stall, Tripwire};
use berth_host::machine::Machine;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("{0}")]
    Refused(String),
    #[error("policy {policy} (object {}) on Linux {kernel}: {source}", short(.hash))]
    Policy {
        policy: String,
        hash: String,
        kernel: String,
        source: Trouble,
    },
    #[error("what the policy does cannot be found out: {0}")]
    Poll(Trouble),
    #[error("no policy is loaded")]
    Idle,
    #[error("/proc cannot be read: {0}")]
    Look(#[from] io::Error),
}

/// Enough of a hash to tell objects apart.
pub fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// How a policy came to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Started {
    /// Nothing was loaded before.
    Loaded,
    /// It runs already; parameters were changed while it runs.
    Changed,
    /// In place of another, or anew with other parameters that are fixed at load.
    Switched,
}

/// What happened on its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The policy no longer runs, and why; the kernel's own scheduler has taken over.
    Ended(String),
    /// It ended because a CPU came or went, and was loaded again.
    Restarted(String),
    /// A VM is known by its process only, and why.
    ByProcess(Remark),
    /// A VM cannot be told to the policy.
    LeftOut(Remark),
}

/// A remark on a VM becomes an event when it has been so for that long. Who tries what KVM can do, or makes VMs for
/// others, holds one for a moment; a manager puts its VM into a cgroup only after it has started.
pub const LASTING: Duration = Duration::from_secs(2);

/// Since when something is so, and whether it has been said.
struct Remarked {
    since: Instant,
    said: bool,
}

struct Running {
    acting: Box<dyn Acting>,
    policy: Policy,
    wire: Tripwire,
    since: Instant,
}

/// Who said of which class a VM is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassFrom {
    /// The operator.
    Configuration,
    /// What the VM does.
    Automatic,
    /// Nobody yet: batch. Or it is not among those named: none.
    Default,
}

impl ClassFrom {
    /// For tables.
    pub fn word(self) -> &'static str {
        match self {
            ClassFrom::Configuration => "said",
            ClassFrom::Automatic => "seen",
            ClassFrom::Default => "-",
        }
    }
}

/// One VM in a status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmStatus {
    pub name: String,
    pub class: String,
    pub class_from: ClassFrom,
    /// The class that it seems to be of by what it does, and the evidence; none before it has been watched for a while.
    pub seems: Option<(String, String)>,
    pub weight: u32,
    /// In CPUs.
    pub cap: Option<f64>,
    pub vcpus: u32,
    pub threads: usize,
    /// Milliseconds from the start of its process until the policy knew all its vCPUs; none if it was there before the
    /// policy.
    pub known_after_ms: Option<u64>,
    /// Among those that the policy acts on by name.
    pub named: bool,
}

/// The policy in a status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyStatus {
    pub name: String,
    pub hash: String,
    pub parameters: BTreeMap<String, String>,
    pub partial: bool,
    pub seconds: f64,
    /// The policy's own counters since it was loaded.
    pub counters: BTreeMap<String, u64>,
    pub warnings: Vec<String>,
}

/// What the agent does now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// None: it only watches.
    pub policy: Option<PolicyStatus>,
    pub vms: Vec<VmStatus>,
    /// VMs that are known by their process only, and why.
    pub by_process: Vec<(String, String)>,
    /// VMs that no policy can be told of, and why.
    pub left_out: Vec<(String, String)>,
    pub only: Vec<String>,
    /// Why the last policy ended, if it did not end by request.
    pub trouble: Option<String>,
}

/// Looks after one host.
pub struct Agent {
    root: Root,
    backend: Box<dyn Backend>,
    keeper: Keeper,
    running: Option<Running>,
    stall_limit: Option<Duration>,
    trouble: Option<String>,
    /// What is to be said of VMs.
    remarks: BTreeMap<Event, Remarked>,
    cpus: usize,
}

impl Agent {
    /// `stall_limit`: how long a thread may be starved; none: for ever (the kernel's own watchdog remains).
    pub fn new(root: Root, rules: Rules, stall_limit: Option<Duration>) -> Agent {
        Agent::by(backend::here(&root), root, rules, stall_limit)
    }

    /// The same, acting by another backend than that of this host.
    pub fn by(
        backend: Box<dyn Backend>,
        root: Root,
        rules: Rules,
        stall_limit: Option<Duration>,
    ) -> Agent {
        let mut keeper = Keeper::new(root.clone(), rules);
        keeper.watch_classes(root.clone());
        Agent {
            cpus: Machine::read(&root).cpus.len().max(1),
            backend,
            keeper,
            root,
            running: None,
            stall_limit,
            trouble: None,
            remarks: BTreeMap::new(),
        }
    }

    /// Loads a policy, or changes the parameters of the one that runs, or puts another in its place. The one that runs
    /// stays if the new one is refused.
    ///
    /// # Errors
    /// What stands in the way, all of it; or the kernel refuses the policy.
    pub fn start(&mut self, policy: Policy) -> Result<Started, AgentError> {
        self.keeper.look()?;
        let ours = self.running();
        let in_the_way = self.backend.obstacles(self.keeper.snapshot(), ours);
        if !in_the_way.is_empty() {
            return Err(AgentError::Refused(in_the_way.join("\n")));
        }
        if ours && self.change(&policy)? {
            return Ok(Started::Changed);
        }
        // It is judged while the old one still acts.
        let ready = self.backend.load(&policy);
        let mut ready = ready.map_err(|e| self.failed(&policy, e))?;
        self.keeper.forget();
        if let Some(sink) = ready.sink() {
            let told = self.keeper.tell(sink);
            told.map_err(|e| self.failed(&policy, e))?;
        }
        let before = self.running.take();
        let switched = before.is_some();
        drop(before);
        let acting = ready.start().map_err(|e| self.failed(&policy, e))?;
        let limit = self.stall_limit.unwrap_or(Duration::MAX);
        self.running = Some(Running {
            acting,
            policy,
            wire: Tripwire::new(self.root.clone(), limit),
            since: self.root.now(),
        });
        self.trouble = None;
        self.give();
        Ok(if switched {
            Started::Switched
        } else {
            Started::Loaded
        })
    }

    fn failed(&self, policy: &Policy, source: Trouble) -> AgentError {
        let kernel = self.root.proc_text("sys/kernel/osrelease");
        AgentError::Policy {
            policy: policy.name.clone(),
            hash: policy.hash.clone(),
            kernel: kernel.unwrap_or_default(),
            source,
        }
    }

    /// Sets what is different in the parameters of the policy that runs; false if it has to be loaded anew.
    fn change(&mut self, wanted: &Policy) -> Result<bool, AgentError> {
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        let now = &running.policy;
        if now.hash != wanted.hash || now.partial != wanted.partial {
            return Ok(false);
        }
        // A parameter that is no longer set goes back to its default, which only loading gives.
        if now.values.keys().any(|k| !wanted.values.contains_key(k)) {
            return Ok(false);
        }
        let different = wanted.values.iter();
        let different = different.filter(|(k, v)| now.values.get(*k) != Some(v));
        for (name, value) in different {
            match running.acting.change(name, value) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(e) => return Err(self.failed(wanted, e)),
            }
        }
        running.policy = wanted.clone();
        Ok(true)
    }

    /// Unloads the policy: the kernel's own scheduler takes over.
    ///
    /// # Errors
    /// None is loaded.
    pub fn stop(&mut self) -> Result<String, AgentError> {
        let running = self.running.take().ok_or(AgentError::Idle)?;
        running.acting.end();
        self.keeper.forget();
        Ok(running.policy.name)
    }

    /// Other rules from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.keeper.set_rules(rules);
    }

    /// How long a thread may be starved from now on; none: for ever.
    pub fn set_stall_limit(&mut self, limit: Option<Duration>) {
        self.stall_limit = limit;
        if let Some(running) = &mut self.running {
            running.wire = Tripwire::new(self.root.clone(), limit.unwrap_or(Duration::MAX));
        }
    }

    /// Why no policy, or not the wanted one, is loaded.
    pub fn set_trouble(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Looks after everything once: VMs and threads that came and went, what the kernel says of the policy, stalls.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn tick(&mut self) -> Result<Vec<Event>, AgentError> {
        self.keeper.look()?;
        let found = self.keeper.description();
        let by_process = found.by_process.iter().cloned().map(Event::ByProcess);
        let left_out = found.left_out.iter().cloned().map(Event::LeftOut);
        let (now, mut before) = (self.root.now(), std::mem::take(&mut self.remarks));
        let mut events = Vec::new();
        for event in by_process.chain(left_out) {
            let mut remark = before.remove(&event).unwrap_or(Remarked {
                since: now,
                said: false,
            });
            if !remark.said && now - remark.since >= LASTING {
                remark.said = true;
                events.push(event.clone());
            }
            self.remarks.insert(event, remark);
        }
        if let Some(event) = self.judge()? {
            events.push(event);
        }
        Ok(events)
    }

    fn judge(&mut self) -> Result<Option<Event>, AgentError> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let name = running.policy.name.clone();
        if let Some(end) = running.acting.poll().map_err(AgentError::Poll)? {
            return Ok(Some(self.ended(end)));
        }
        if let Some(sink) = running.acting.sink()
            && let Err(e) = self.keeper.tell(sink)
        {
            return Ok(Some(self.give_up(format!(
                "policy {name} was unloaded: it could not be told who its threads are: {e}"
            ))));
        }
        self.give();
        if let Some(why) = self.backend.danger(self.keeper.snapshot()) {
            return Ok(Some(
                self.give_up(format!("policy {name} was unloaded: {why}")),
            ));
        }
        if let Some(stall) = self.stalled()? {
            return Ok(Some(
                self.give_up(format!("policy {name} was unloaded: {stall}")),
            ));
        }
        Ok(None)
    }

    fn stalled(&mut self) -> io::Result<Option<Stall>> {
        match (&mut self.running, self.stall_limit) {
            (Some(running), Some(_)) => {
                let named: Vec<_> = self.keeper.description().entries.clone();
                let named: Vec<_> = named
                    .into_iter()
                    .filter(|e| !running.policy.partial || self.keeper.rules().names(&e.name))
                    .collect();
                running.wire.watch(&named, self.cpus)
            }
            _ => Ok(None),
        }
    }

    /// The policy acts no more.
    fn ended(&mut self, end: End) -> Event {
        let Some(running) = self.running.take() else {
            return Event::Ended("no policy was loaded".into());
        };
        let policy = running.policy.clone();
        drop(running);
        self.keeper.forget();
        let said = format!("the kernel ended policy {}: {}", policy.name, end.why);
        if end.again {
            self.cpus = Machine::read(&self.root).cpus.len().max(1);
            if self.start(policy).is_ok() {
                return Event::Restarted(said);
            }
        }
        self.trouble = Some(said.clone());
        Event::Ended(said)
    }

    fn give_up(&mut self, why: String) -> Event {
        // It is loaded, so it can be stopped.
        let _ = self.stop();
        self.trouble = Some(why.clone());
        Event::Ended(why)
    }

    /// In partial mode: the named VMs to the policy.
    fn give(&mut self) {
        if let Some(running) = &mut self.running
            && running.policy.partial
        {
            let rules = self.keeper.rules();
            let entries = self.keeper.description().entries.iter();
            let named: Vec<_> = entries.filter(|e| rules.names(&e.name)).collect();
            running.acting.act_on(&named);
        }
    }

    /// The VMs, as of the last look.
    pub fn vms(&self) -> &Snapshot {
        self.keeper.snapshot()
    }

    /// These processes may be VMs now.
    pub fn suspect(&mut self, processes: &BTreeSet<i32>) {
        self.keeper.suspect(processes);
    }

    /// Whether a policy of ours is loaded.
    pub fn running(&self) -> bool {
        self.running.is_some()
    }

    /// What it does now.
    pub fn status(&self) -> Status {
        let rules = self.keeper.rules();
        let class_from = |e: &Entry| match (rules.names(&e.name), rules.class(&e.name)) {
            (false, _) => ClassFrom::Default,
            (true, Some(_)) => ClassFrom::Configuration,
            (true, None) if self.keeper.guess(e.key).is_some() => ClassFrom::Automatic,
            (true, None) => ClassFrom::Default,
        };
        let vm = |e: &Entry| VmStatus {
            name: e.name.clone(),
            class: e.class.word().into(),
            class_from: class_from(e),
            known_after_ms: self.keeper.known_after(e.key).map(|d| d.as_millis() as u64),
            seems: self
                .keeper
                .guess(e.key)
                .map(|g| (g.class.word().into(), g.why.clone())),
            weight: e.weight,
            cap: e.cap_milli.map(|c| f64::from(c) / 1000.0),
            vcpus: e.vcpus,
            threads: e.threads.len(),
            named: rules.names(&e.name),
        };
        let policy = self.running.as_ref().map(|a| PolicyStatus {
            name: a.policy.name.clone(),
            hash: a.policy.hash.clone(),
            parameters: a.policy.parameters.clone(),
            partial: a.policy.partial,
            seconds: (self.root.now() - a.since).as_secs_f64(),
            counters: a.acting.counters(),
            warnings: a.acting.warnings().to_vec(),
        });
        let found = self.keeper.description();
        let pairs = |of: &[Remark]| of.iter().map(|r| (r.vm.clone(), r.why.clone())).collect();
        Status {
            policy,
            vms: found.entries.iter().map(vm).collect(),
            by_process: pairs(&found.by_process),
            left_out: pairs(&found.left_out),
            only: rules.only.clone(),
            trouble: self.trouble.clone(),
        }
    }
}
