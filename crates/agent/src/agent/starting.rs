// SPDX-License-Identifier: GPL-2.0-only
//! Which policy acts: it is loaded, changed, put in another's place, comes back, ends, or the optimiser stands in for
//! it.
use super::{Agent, AgentError, Event, Running};
use crate::backend::{Acting, Backend, End, Policy, Ready, Trouble, Way};
use crate::breaker;
use crate::place::Place;
use crate::rules::Rules;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How often in all a policy is loaded that does not begin, for a reason that passes.
const TRIES: u32 = 3;
/// Before each but the first of them.
const PAUSE: Duration = Duration::from_millis(100);

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

/// The policy in whose place the optimiser acts, and why.
pub(super) struct Instead {
    pub(super) policy: Policy,
    pub(super) why: String,
    /// When it is tried again; none: not by itself.
    again: Option<Instant>,
}

impl Agent {
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
                Err(e) => {
                    // It has not been ended: the breaker does not count it.
                    let again = e.is_passing().then(|| self.root.now() + breaker::PAUSE);
                    return self.start_instead(policy, e.to_string(), again);
                }
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
    pub(super) fn say_anew(&mut self) {
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

    pub(super) fn backend(&self, way: Way) -> &dyn Backend {
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
        let ready = self.ready(&policy)?;
        // Two cannot act at a time.
        let before = self.running.take().map(|r| r.policy);
        let switched = before.is_some();
        let (acting, before_it) = match self.begin(&policy, ready) {
            Ok(begun) => begun,
            Err(refused) => return Err(self.bring_back(before, refused)),
        };
        self.running = Some(Running {
            acting,
            wire: self.wire(way),
            policy,
            since: self.root.now(),
            end: None,
            before_it,
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

    /// Loaded, and told of all VMs.
    fn ready(&mut self, policy: &Policy) -> Result<Box<dyn Ready>, AgentError> {
        let ready = self.backend(policy.backend).load(policy);
        let mut ready = ready.map_err(|e| self.failed(policy, e))?;
        self.keeper.forget();
        if let Some(sink) = ready.sink() {
            let told = self.keeper.tell(sink);
            told.map_err(|e| self.failed(policy, e))?;
        }
        Ok(ready)
    }

    /// It begins to act; and what kept it from that before. If it does not, for a reason that passes, it is loaded
    /// anew.
    fn begin(
        &mut self,
        policy: &Policy,
        mut ready: Box<dyn Ready>,
    ) -> Result<(Box<dyn Acting>, Option<String>), AgentError> {
        let mut before = None;
        for _ in 1..TRIES {
            match ready.start() {
                Err(e) if e.is_passing() => {
                    self.root.sleep(PAUSE);
                    before = Some(format!("it did not begin at once: {e}"));
                    ready = match self.ready(policy) {
                        Ok(ready) => ready,
                        Err(anew) => {
                            let both = e.and(&format!("and loaded anew: {anew}"));
                            return Err(self.failed(policy, both));
                        }
                    };
                }
                Err(e) => return Err(self.failed(policy, e)),
                Ok(acting) => return Ok((acting, before)),
            }
        }
        let begun = ready.start().map_err(|e| self.failed(policy, e))?;
        Ok((begun, before))
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
                source: source.and(&gone),
            },
            other => AgentError::Refused(format!("{other}\n{gone}")),
        };
        self.trouble = Some(refused.to_string());
        refused
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

    /// The policy acts no more.
    pub(super) fn ended(&mut self, end: End) -> Event {
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

    pub(super) fn give_up(&mut self, why: String) -> Event {
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
    pub(super) fn try_again(&mut self) -> Option<Event> {
        let now = self.root.now();
        let due = |i: &Instead| i.again.is_some_and(|at| now >= at);
        let Instead { policy, .. } = self.instead.take_if(|i| due(i))?;
        let name = policy.name.clone();
        let why = match self.start_by(policy.clone()) {
            Ok(_) => return Some(Event::Back(name)),
            Err(e) => e.to_string(),
        };
        // Whyever: the optimiser had to go for it, and comes back; that is not to happen for ever.
        let again = self.breaker.tripped(now);
        let e = self.start_instead(policy, why, again).err()?;
        self.trouble = Some(e.to_string());
        Some(Event::Ended(e.to_string()))
    }
}
