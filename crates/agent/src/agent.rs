// SPDX-License-Identifier: GPL-2.0-only
//! The agent: one policy on one host, from loading it to the way back.
mod starting;
mod status;

pub use starting::Started;
pub use status::{ClassFrom, PolicyStatus, Status, VmStatus};

use crate::backend::{Acting, End, Policy, Trouble, Way, Ways};
use crate::breaker::Breaker;
use crate::describe::Remark;
use crate::keeper::Keeper;
use crate::pinning::Held;
use crate::pins::standing::{Due, PinRule};
use crate::pins::would::Plan;
use crate::pins::{PinError, Pinned, Pinning};
use crate::place::Place;
use crate::register::VmKey;
use crate::rules::Rules;
use crate::tripwire::{Stall, Tripwire};
use berth_actuator::lock::Lock;
use berth_host::model::Snapshot;
use berth_host::procfile::cpu_list;
use berth_host::root::Root;
use berth_optimiser::Decision;
use serde::Serialize;
use starting::Instead;
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

impl AgentError {
    /// The same may succeed in a moment.
    fn is_passing(&self) -> bool {
        matches!(self, AgentError::Policy { source, .. } if source.is_passing())
    }
}

/// Enough of a hash to tell objects apart.
pub fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
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
    /// Why it did not begin at once.
    before_it: Option<String>,
    /// Keeps other agents from acting, after this one does no more.
    _alone: Option<Arc<Lock>>,
}

/// How many CPUs are online.
fn online(root: &Root) -> Option<usize> {
    let list = root.sys_text("devices/system/cpu/online")?;
    let cpus = cpu_list(list.as_bytes())?;
    (!cpus.is_empty()).then_some(cpus.len())
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

    fn wire(&self, way: Way) -> Option<Tripwire> {
        let limit = self.stall_limit.unwrap_or(Duration::MAX);
        (way != Way::Cgroup).then(|| Tripwire::new(self.root.clone(), limit))
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

    /// What pinning these VMs would do, beside those that are pinned.
    ///
    /// # Errors
    /// The host cannot be read, or is on paper.
    pub fn would_pin(&mut self, vms: &[VmKey], pinning: &Pinning) -> Result<Plan, AgentError> {
        self.keeper.look()?;
        self.pins()?;
        let running = self.running.as_ref();
        let lent = running.map_or(BTreeMap::new(), |r| r.acting.cpu_sets());
        match &mut self.pins {
            Some(pins) => Ok(pins.would(&self.keeper, vms, pinning, lent)),
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
        let running = self.running.as_ref();
        let lent = || running.map_or(BTreeMap::new(), |r| r.acting.cpu_sets());
        let (due, refused) = pins.due(&self.keeper, &lent);
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
}
