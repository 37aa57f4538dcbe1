// SPDX-License-Identifier: GPL-2.0-only
//! The agent: one policy on one host, from loading it to the way back.
use crate::backend::{Acting, Backend, Decided, End, Policy, Trouble, Way, Ways};
use crate::breaker::Breaker;
use crate::describe::Remark;
use crate::keeper::Keeper;
use crate::pinning::Held;
use crate::pins::standing::{Due, PinRule, Ruled};
use crate::pins::{PinError, Pinned, Pinning};
use crate::place::Place;
use crate::register::{Entry, VmKey};
use crate::rules::Rules;
use crate::tripwire::{Stall, Tripwire};
use berth_actuator::lock::Lock;
use berth_host::model::Snapshot;
use berth_host::procfile::cpu_list;
use berth_host::root::Root;
use berth_identity::Scored;
use berth_optimiser::Decision;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
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
    #[error(transparent)]
    Pin(#[from] PinError),
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
    /// The same, and the optimiser acts in its place.
    FellBack(String),
    /// The policy acts again in place of the optimiser.
    Back(String),
    /// It ended because a CPU came or went, and was loaded again.
    Restarted(String),
    /// A VM is known by its process only, and why.
    ByProcess(Remark),
    /// A VM cannot be told to the policy.
    LeftOut(Remark),
    /// Something about pinned VMs.
    Pins(String),
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
    /// Where the kernel's own scheduler schedules, nobody is starved by a policy.
    wire: Option<Tripwire>,
    since: Instant,
    /// It has ended by itself, and nothing has been done about that yet.
    end: Option<End>,
    /// Keeps other agents from acting, after this one does no more.
    _alone: Option<Arc<Lock>>,
}

/// How many CPUs are online.
fn online(root: &Root) -> Option<usize> {
    let list = root.sys_text("devices/system/cpu/online")?;
    let cpus = cpu_list(list.as_bytes())?;
    (!cpus.is_empty()).then_some(cpus.len())
}

/// The policy in whose place the optimiser acts, and why.
struct Instead {
    policy: Policy,
    why: String,
    /// When it is tried again; none: not by itself.
    again: Option<Instant>,
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
    /// What was decided for it, where that is decided VM by VM.
    #[serde(default)]
    pub decided: Option<Decided>,
    /// What the policy reckons that it gains from fast cores, and whence it knows.
    #[serde(default)]
    pub scored: Option<Scored>,
}

/// The policy in a status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyStatus {
    pub name: String,
    pub hash: String,
    pub parameters: BTreeMap<String, String>,
    pub partial: bool,
    /// By what it acts.
    #[serde(default)]
    pub backend: Way,
    /// The policy in whose place this one acts, and why.
    #[serde(default)]
    pub instead_of: Option<(String, String)>,
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
    /// VMs that the operator has pinned.
    #[serde(default)]
    pub pins: Vec<Pinned>,
    /// What has become of the configuration's pins.
    #[serde(default)]
    pub ruled: Ruled,
}

/// Looks after one host.
pub struct Agent {
    root: Root,
    ways: Ways,
    keeper: Keeper,
    running: Option<Running>,
    /// Only while the optimiser runs.
    instead: Option<Instead>,
    breaker: Breaker,
    stall_limit: Option<Duration>,
    trouble: Option<String>,
    /// What is to be said of VMs.
    remarks: BTreeMap<Event, Remarked>,
    cpus: usize,
    /// None: this host is on paper.
    pins: Option<Held>,
    place: Option<Place>,
    /// What earlier agents had left.
    left: Vec<String>,
}

impl Agent {
    /// `place`: where the optimiser remembers what it changed; `stall_limit`: how long a thread may be starved; none:
    /// for ever (the kernel's own watchdog remains). Undoes what earlier agents that were killed have left, whatever
    /// this one will do, if only watch.
    pub fn new(root: Root, place: Place, rules: Rules, stall_limit: Option<Duration>) -> Agent {
        let left = match root.is_live() {
            true => place.undo_left(),
            false => Vec::new(),
        };
        Agent {
            pins: Some(Held::new(root.clone(), &place)),
            place: Some(place.clone()),
            left,
            ..Agent::by(Ways::here(&root, place), root, rules, stall_limit)
        }
    }

    /// What earlier agents had left and has been undone, or could not be; told once.
    pub fn take_left(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left)
    }

    /// The same, acting by other ways than those of this host.
    pub fn by(ways: Ways, root: Root, rules: Rules, stall_limit: Option<Duration>) -> Agent {
        let mut keeper = Keeper::new(root.clone(), rules);
        keeper.watch_classes(root.clone());
        Agent {
            cpus: online(&root).unwrap_or(1),
            ways,
            keeper,
            root,
            running: None,
            instead: None,
            breaker: Breaker::default(),
            stall_limit,
            trouble: None,
            remarks: BTreeMap::new(),
            pins: None,
            place: None,
            left: Vec::new(),
        }
    }

    /// Loads a policy, or changes the parameters of the one that runs, or puts another in its place. The one that runs
    /// stays if the new one is refused. With [`Way::Auto`] the optimiser acts in the place of one that cannot.
    ///
    /// # Errors
    /// What stands in the way, all of it; or the kernel refuses the policy.
    pub fn start(&mut self, policy: Policy) -> Result<Started, AgentError> {
        self.keeper.look()?;
        let started = match policy.backend {
            Way::Auto if self.breaker.is_open(self.root.now()) => {
                let why = "it has been ended too often".to_string();
                return self.start_instead(policy, why, None);
            }
            Way::Auto => match self.start_by(policy.clone()) {
                Err(AgentError::Look(e)) => return Err(AgentError::Look(e)),
                Err(e) => return self.start_instead(policy, e.to_string(), None),
                Ok(started) => started,
            },
            Way::Scx | Way::Cgroup => self.start_by(policy)?,
        };
        self.instead = None;
        Ok(started)
    }

    /// The same by these rules, which stay as they were if it is refused; none: by those there are.
    ///
    /// # Errors
    /// As [`Agent::start`].
    pub fn start_with(
        &mut self,
        policy: Policy,
        rules: Option<Rules>,
    ) -> Result<Started, AgentError> {
        let before = rules.map(|rules| {
            let before = self.keeper.rules().clone();
            self.keeper.set_rules(rules);
            before
        });
        let started = self.start(policy);
        if let (Err(_), Some(before)) = (&started, before) {
            self.keeper.set_rules(before);
            self.say_anew();
        }
        started
    }

    /// Who the VMs are by the rules that hold now; what fails, the next look finds.
    fn say_anew(&mut self) {
        if self.keeper.look().is_err() {
            return;
        }
        if let Some(sink) = self.running.as_mut().and_then(|r| r.acting.sink()) {
            let _ = self.keeper.tell(sink);
        }
        self.tell_of_host();
    }

    /// The optimiser in the place of a policy that cannot act.
    fn start_instead(
        &mut self,
        policy: Policy,
        why: String,
        again: Option<Instant>,
    ) -> Result<Started, AgentError> {
        let optimiser = Policy::optimiser(policy.partial);
        if self
            .running
            .as_ref()
            .is_some_and(|r| r.policy.backend == Way::Cgroup)
        {
            self.instead = Some(Instead { policy, why, again });
            return Ok(Started::Changed);
        }
        let started = self.start_by(optimiser).map_err(|e| {
            let both = format!("{why}\nnor can the optimiser act in its place: {e}");
            AgentError::Refused(both)
        })?;
        self.instead = Some(Instead { policy, why, again });
        Ok(started)
    }

    fn backend(&self, way: Way) -> &dyn Backend {
        match way {
            Way::Cgroup => &*self.ways.cgroup,
            Way::Scx | Way::Auto => &*self.ways.scx,
        }
    }

    fn start_by(&mut self, policy: Policy) -> Result<Started, AgentError> {
        let way = policy.backend;
        let ours = self.running();
        let cgroup = |way: Way| way == Way::Cgroup;
        let same = self
            .running
            .as_ref()
            .is_some_and(|r| cgroup(r.policy.backend) == cgroup(way));
        let in_the_way = self.backend(way).obstacles(self.keeper.snapshot(), same);
        if !in_the_way.is_empty() {
            return Err(AgentError::Refused(in_the_way.join("\n")));
        }
        if ours && self.change(&policy)? {
            return Ok(Started::Changed);
        }
        // Another agent, with another socket, would fight this one.
        let alone = self.place.as_ref().map(Place::alone).transpose();
        let alone = alone.map_err(|e| AgentError::Refused(e.to_string()))?;
        // It is judged while the old one still acts.
        let ready = self.backend(way).load(&policy);
        let mut ready = ready.map_err(|e| self.failed(&policy, e))?;
        self.keeper.forget();
        if let Some(sink) = ready.sink() {
            let told = self.keeper.tell(sink);
            told.map_err(|e| self.failed(&policy, e))?;
        }
        // Two cannot act at a time.
        let before = self.running.take().map(|r| r.policy);
        let switched = before.is_some();
        let acting = match ready.start() {
            Ok(acting) => acting,
            Err(e) => {
                let refused = self.failed(&policy, e);
                return Err(self.bring_back(before, refused));
            }
        };
        self.running = Some(Running {
            acting,
            wire: self.wire(way),
            policy,
            since: self.root.now(),
            end: None,
            _alone: alone.flatten(),
        });
        self.trouble = None;
        self.tell_of_host();
        Ok(if switched {
            Started::Switched
        } else {
            Started::Loaded
        })
    }

    /// Another was to act in this one's place, and did not begin.
    fn bring_back(&mut self, before: Option<Policy>, refused: AgentError) -> AgentError {
        let Some(before) = before else {
            return refused;
        };
        let name = before.name.clone();
        let Err(e) = self.start_by(before) else {
            return refused;
        };
        // Nor is it tried again by itself.
        self.instead = None;
        let gone = format!("policy {name}, which had to end for it, did not begin again: {e}");
        let refused = match refused {
            AgentError::Policy {
                policy,
                hash,
                kernel,
                source,
            } => AgentError::Policy {
                policy,
                hash,
                kernel,
                source: Trouble::new(format!("{source}\n{gone}")),
            },
            other => AgentError::Refused(format!("{other}\n{gone}")),
        };
        self.trouble = Some(refused.to_string());
        refused
    }

    fn wire(&self, way: Way) -> Option<Tripwire> {
        let limit = self.stall_limit.unwrap_or(Duration::MAX);
        (way != Way::Cgroup).then(|| Tripwire::new(self.root.clone(), limit))
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
        let other = |a: &Policy| (a.hash.clone(), a.partial, a.backend);
        if other(now) != other(wanted) {
            return Ok(false);
        }
        // The optimiser's are fixed when it begins.
        if now.backend == Way::Cgroup && now.parameters != wanted.parameters {
            return Ok(false);
        }
        // A parameter that is no longer set goes back to its default, which only loading gives.
        if now.values.keys().any(|k| !wanted.values.contains_key(k)) {
            return Ok(false);
        }
        let different = wanted.values.iter();
        let different = different.filter(|(k, v)| now.values.get(*k) != Some(v));
        let different: Vec<_> = different.map(|(k, v)| (k.clone(), v.clone())).collect();
        // Nothing is set before it is clear that all can be.
        if different.iter().any(|(k, _)| running.acting.is_fixed(k)) {
            return Ok(false);
        }
        for (name, value) in different {
            if let Err(e) = running.acting.change(&name, &value) {
                return Err(self.failed(wanted, e));
            }
            // What is refused later leaves this as it is.
            if let Some(text) = wanted.parameters.get(&name) {
                running.policy.parameters.insert(name.clone(), text.clone());
            }
            running.policy.values.insert(name, value);
        }
        running.policy = wanted.clone();
        Ok(true)
    }

    /// Unloads the policy: the kernel's own scheduler takes over.
    ///
    /// # Errors
    /// None is loaded.
    pub fn stop(&mut self) -> Result<String, AgentError> {
        self.instead = None;
        let running = self.running.take().ok_or(AgentError::Idle)?;
        running.acting.end();
        self.keeper.forget();
        Ok(running.policy.name)
    }

    fn pins(&mut self) -> Result<&mut Held, AgentError> {
        let why = "this host is on paper: nothing is pinned";
        self.pins
            .as_mut()
            .ok_or_else(|| AgentError::Refused(why.into()))
    }

    /// Binds the network path of a VM, or binds it otherwise.
    ///
    /// # Errors
    /// It has ended, or cannot be placed as asked: all is as it was then.
    pub fn pin(&mut self, vm: VmKey, pinning: Pinning) -> Result<Pinned, AgentError> {
        self.keeper.look()?;
        // Whoever acts lets go of it first, so that what is remembered is what was there before either.
        let mut held = self.pins()?.held();
        held.entry(vm).or_default();
        self.keeper.set_pinned(held);
        self.tell_of_host();
        let pins = self.pins.as_mut();
        let done = pins.map(|pins| pins.pin(&self.keeper, vm, pinning));
        let held = self.pins()?.held();
        self.keeper.set_pinned(held);
        match done {
            Some(done) => Ok(done?),
            None => Err(AgentError::Idle),
        }
    }

    /// Undoes the pin of a VM, or all of them; how many, and what of them could not be undone.
    ///
    /// # Errors
    /// What was set cannot be forgotten; what could be undone is.
    pub fn unpin(&mut self, vm: Option<VmKey>) -> Result<(usize, Vec<String>), AgentError> {
        let Some(pins) = &mut self.pins else {
            return Ok((0, Vec::new()));
        };
        let done = pins.unpin(&self.keeper, vm)?;
        let held = pins.held();
        self.keeper.set_pinned(held);
        Ok(done)
    }

    fn follow_pins(&mut self) -> Result<Vec<Event>, AgentError> {
        let Some(pins) = &mut self.pins else {
            return Ok(Vec::new());
        };
        let mut said = pins.look(&self.keeper)?;
        let (due, refused) = pins.due(&self.keeper);
        said.extend(refused);
        let mut held = pins.held();
        if due != Due::default() {
            // As when it is pinned by hand.
            for (vm, _) in &due.pin {
                held.entry(*vm).or_default();
            }
            self.keeper.set_pinned(held);
            self.tell_of_host();
            let pins = self.pins.as_mut();
            held = BTreeMap::new();
            if let Some(pins) = pins {
                said.extend(pins.follow_rules(&self.keeper, due)?);
                held = pins.held();
            }
        }
        self.keeper.set_pinned(held);
        Ok(said.into_iter().map(Event::Pins).collect())
    }

    /// VMs that are pinned when they appear, in place of those before.
    ///
    /// # Errors
    /// Another agent acts on this host: who.
    pub fn set_pin_rules(&mut self, rules: Vec<PinRule>) -> Result<(), AgentError> {
        if !rules.is_empty()
            && let Some(place) = &self.place
        {
            let alone = place.alone();
            alone.map_err(|e| AgentError::Refused(e.to_string()))?;
        }
        if let Some(pins) = &mut self.pins {
            pins.set_rules(rules);
        }
        Ok(())
    }

    /// Whether VMs are pinned.
    pub fn has_pins(&self) -> bool {
        self.pins.as_ref().is_some_and(|p| !p.is_empty())
    }

    /// Somebody waits for what is seen: something acts, or will as soon as there is a VM for it.
    pub fn acts(&self) -> bool {
        let ruled = |held: &Held| !held.ruled().rules.is_empty();
        self.is_needed() || self.pins.as_ref().is_some_and(ruled)
    }

    /// A policy acts, or VMs are pinned.
    pub fn is_needed(&self) -> bool {
        self.running() || self.has_pins()
    }

    /// Other rules from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.keeper.set_rules(rules);
    }

    /// How long a thread may be starved from now on; none: for ever.
    pub fn set_stall_limit(&mut self, limit: Option<Duration>) {
        self.stall_limit = limit;
        let way = self.running.as_ref().map(|r| r.policy.backend);
        let wire = way.and_then(|way| self.wire(way));
        if let Some(running) = &mut self.running {
            running.wire = wire;
        }
    }

    /// Why no policy, or not the wanted one, is loaded.
    pub fn set_trouble(&mut self, why: String) {
        self.trouble = Some(why);
    }

    /// Whether what acts has ended by itself, which costs next to nothing to ask: the next [`Agent::tick`] acts on it.
    ///
    /// # Errors
    /// That cannot be found out.
    pub fn notices_end(&mut self) -> Result<bool, AgentError> {
        let Some(running) = &mut self.running else {
            return Ok(false);
        };
        if running.end.is_none() {
            running.end = running.acting.poll().map_err(AgentError::Poll)?;
        }
        Ok(running.end.is_some())
    }

    /// Looks after everything once: VMs and threads that came and went, what the kernel says of the policy, stalls.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn tick(&mut self) -> Result<Vec<Event>, AgentError> {
        self.keeper.set_acting(self.acts());
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
        events.extend(self.follow_pins()?);
        if let Some(event) = self.judge()? {
            events.push(event);
        }
        events.extend(self.try_again());
        Ok(events)
    }

    fn judge(&mut self) -> Result<Option<Event>, AgentError> {
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        let name = running.policy.name.clone();
        let noticed = running.end.take();
        if let Some(end) = noticed
            .map_or_else(|| running.acting.poll(), |end| Ok(Some(end)))
            .map_err(AgentError::Poll)?
        {
            return Ok(Some(self.ended(end)));
        }
        if let Some(sink) = running.acting.sink()
            && let Err(e) = self.keeper.tell(sink)
        {
            return Ok(Some(self.give_up(format!(
                "policy {name} was unloaded: it could not be told who its threads are: {e}"
            ))));
        }
        let way = running.policy.backend;
        self.tell_of_host();
        if let Some(why) = self.backend(way).danger(self.keeper.snapshot()) {
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
        // A policy may stay while CPUs come and go.
        self.cpus = online(&self.root).unwrap_or(self.cpus);
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        match (&mut running.wire, self.stall_limit) {
            (Some(wire), Some(_)) => {
                let named: Vec<_> = self.keeper.description().entries.clone();
                let partial = running.policy.partial;
                let named: Vec<_> = named
                    .into_iter()
                    .filter(|e| !partial || self.keeper.rules().names(&e.name))
                    .collect();
                wire.watch(&named, self.cpus)
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
        let who = match policy.backend {
            Way::Cgroup => "the agent",
            Way::Scx | Way::Auto => "the kernel",
        };
        let said = format!("{who} ended policy {}: {}", policy.name, end.why);
        if end.again && self.start_by(policy.clone()).is_ok() {
            return Event::Restarted(said);
        }
        self.fall_back(policy, said)
    }

    fn give_up(&mut self, why: String) -> Event {
        let Some(running) = self.running.take() else {
            return Event::Ended(why);
        };
        let policy = running.policy.clone();
        running.acting.end();
        self.keeper.forget();
        self.fall_back(policy, why)
    }

    /// A policy was ended. Where it may be, the optimiser acts in its place, and it is tried again after a while; not
    /// any more when that has happened too often.
    fn fall_back(&mut self, policy: Policy, why: String) -> Event {
        self.instead = None;
        if policy.backend != Way::Auto {
            self.trouble = Some(why.clone());
            return Event::Ended(why);
        }
        let again = self.breaker.tripped(self.root.now());
        match self.start_instead(policy, why.clone(), again) {
            Ok(_) => Event::FellBack(why),
            Err(e) => {
                self.trouble = Some(e.to_string());
                Event::Ended(e.to_string())
            }
        }
    }

    /// The policy in whose place the optimiser acts, if it is time.
    fn try_again(&mut self) -> Option<Event> {
        let now = self.root.now();
        let due = |i: &Instead| i.again.is_some_and(|at| now >= at);
        let Instead { policy, .. } = self.instead.take_if(|i| due(i))?;
        let name = policy.name.clone();
        let why = match self.start_by(policy.clone()) {
            Ok(_) => return Some(Event::Back(name)),
            Err(e) => e.to_string(),
        };
        let again = self.breaker.tripped(now);
        // If the optimiser had to go for it, it comes back.
        let e = self.start_instead(policy, why, again).err()?;
        self.trouble = Some(e.to_string());
        Some(Event::Ended(e.to_string()))
    }

    fn tell_of_host(&mut self) {
        if let Some(running) = &mut self.running {
            running.acting.look(&self.keeper);
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

    /// The optimiser's last decision, if it acts and has decided.
    pub fn decision(&self) -> Option<&Decision> {
        self.running.as_ref()?.acting.decision()
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
            decided: self
                .running
                .as_ref()
                .and_then(|r| r.acting.decided(&e.name)),
            scored: self.running.as_ref().and_then(|r| {
                let slot = self.keeper.slot(e.key)?;
                r.acting.scored(slot)
            }),
        };
        let policy = self.running.as_ref().map(|a| PolicyStatus {
            name: a.policy.name.clone(),
            hash: a.policy.hash.clone(),
            parameters: a.policy.parameters.clone(),
            partial: a.policy.partial,
            backend: match a.policy.backend {
                Way::Cgroup => Way::Cgroup,
                Way::Scx | Way::Auto => Way::Scx,
            },
            instead_of: self
                .instead
                .as_ref()
                .map(|i| (i.policy.name.clone(), i.why.clone())),
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
            pins: self.pins.as_ref().map_or(Vec::new(), Held::status),
            ruled: self.pins.as_ref().map_or(Ruled::default(), Held::ruled),
        }
    }
}
