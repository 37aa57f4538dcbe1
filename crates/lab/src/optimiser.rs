// SPDX-License-Identifier: GPL-2.0-only
//! The optimiser beside a scenario's micro-VMs: the agent as it acts on any host by cgroups, looking as often as its
//! daemon does, with the scenario's words as its operator's. A thread of the first process.
use crate::kinds::now_ns;
use berth_agent::agent::{Agent, Event};
use berth_agent::backend::Policy;
use berth_agent::backend::cgroup::parameters;
use berth_agent::daemon;
use berth_agent::place::Place;
use berth_agent::rules::{Promised, Rules};
use berth_host::pace::cpu_time;
use berth_host::root::Root;
use berth_optimiser::{Decision, Settings, Spread};
use berth_scenario::model::{Nanos, Optimiser, Scenario};
use berth_scenario::placement;
use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

/// Where it remembers what it changes. Nobody watches over it: the machine ends with it.
const CHANGES: &str = "/run/berth-optimiser";
const CGROUPS: &str = "/sys/fs/cgroup";

/// What it did.
#[derive(Debug, Default)]
pub struct Seen {
    /// The first decision and all that changed something, each with the time of the look (`CLOCK_MONOTONIC`, ns).
    pub decisions: Vec<(Nanos, Decision)>,
    /// What an operator would be told.
    pub warnings: Vec<String>,
}

impl Seen {
    /// Changes in a window of `CLOCK_MONOTONIC`, per second.
    pub fn changes_per_s(&self, (from, to): (Nanos, Nanos)) -> f64 {
        let inside = self
            .decisions
            .iter()
            .filter(|(at, _)| (from..to).contains(at));
        let changes: usize = inside.map(|(_, d)| d.changes.len()).sum();
        changes as f64 / (to.saturating_sub(from).max(1) as f64 / 1e9)
    }
}

/// It acts until it is told to end.
#[derive(Debug)]
pub struct Beside {
    end: Sender<()>,
    thread: JoinHandle<Result<Seen, String>>,
}

impl Beside {
    /// Begins to act; all VMs must be there, below the folder of this name beside the root of cgroups. Returns when it
    /// acts; nothing if the scenario has no optimiser.
    ///
    /// # Errors
    /// A VM is not found, or it cannot act here.
    pub fn start(scenario: &Scenario, below: &str) -> Result<Option<Beside>, String> {
        let Some(asked) = &scenario.optimiser else {
            return Ok(None);
        };
        let (policy, rules) = (policy(&asked.settings)?, rules(scenario, asked));
        for folder in [CGROUPS.to_string(), format!("{CGROUPS}/{below}")] {
            // As systemd and libvirt do on hosts. Where that cannot be, it binds threads.
            let _ = fs::write(format!("{folder}/cgroup.subtree_control"), "+cpuset");
        }
        let (end, told) = channel();
        let (says, begun) = channel();
        let act = move || {
            let place = Place::new(CHANGES.into(), None, None);
            let mut agent = Agent::new(Root::live(), place.clone(), rules, None);
            let started = begin(&mut agent, policy);
            let acts = started.is_ok();
            // It is waited for.
            let _ = says.send(started);
            let seen = if acts {
                follow(&mut agent, &told)
            } else {
                Ok(Seen::default())
            };
            drop(agent);
            match place.undo_left() {
                left if left.is_empty() => seen,
                left => Err(format!(
                    "it did not put everything back: {}",
                    left.join("; ")
                )),
            }
        };
        let thread = std::thread::Builder::new().name("optimiser".into());
        let thread = thread.spawn(act).map_err(|e| format!("no thread: {e}"))?;
        match begun.recv() {
            Ok(Ok(())) => Ok(Some(Beside { end, thread })),
            Ok(Err(why)) => Err(why),
            Err(_) => Err("it ended before it began".into()),
        }
    }

    /// Ends it: everything that it set is put back.
    ///
    /// # Errors
    /// It had ended before, or something could not be put back.
    pub fn finish(self) -> Result<Seen, String> {
        // One that has ended says why below.
        let _ = self.end.send(());
        self.thread.join().map_err(|_| "it panicked")?
    }
}

/// Looks at the VMs, and acts on them from now on.
fn begin(agent: &mut Agent, policy: Policy) -> Result<(), String> {
    agent.tick().map_err(|e| e.to_string())?;
    let there: Vec<String> = agent.status().vms.into_iter().map(|vm| vm.name).collect();
    let wanted = agent.status().only;
    if let Some(missing) = wanted.iter().find(|name| !there.contains(name)) {
        return Err(format!("discovery does not see VM {missing}"));
    }
    agent.start(policy).map(|_| ()).map_err(|e| e.to_string())
}

/// Looks as often as the daemon.
fn follow(agent: &mut Agent, told: &Receiver<()>) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let mut last = None;
    loop {
        let before = cpu_time();
        for event in agent.tick().map_err(|e| e.to_string())? {
            if let Event::Ended(why) = event {
                return Err(why);
            }
        }
        if let Some(decision) = agent.decision().filter(|d| last != Some(d.at_ns)) {
            last = Some(decision.at_ns);
            if seen.decisions.is_empty() || !decision.changes.is_empty() {
                seen.decisions.push((now_ns(), decision.clone()));
            }
        }
        match told.recv_timeout(daemon::pause(cpu_time().saturating_sub(before))) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    seen.warnings = agent.status().policy.map_or(Vec::new(), |p| p.warnings);
    agent.stop().map_err(|e| e.to_string())?;
    Ok(seen)
}

/// The agent's policy with these settings.
///
/// # Errors
/// The agent has no such setting.
pub fn policy(settings: &Settings) -> Result<Policy, String> {
    let means = &settings.means;
    let by = [
        ("sets", means.sets),
        ("weights", means.weights),
        ("caps", means.caps),
        ("freezing", means.freezing),
    ];
    let by: Vec<&str> = by.iter().filter(|(_, on)| *on).map(|(by, _)| *by).collect();
    let spread = match settings.spread {
        Spread::Cpus => "cpus",
        Spread::Pool => "pool",
    };
    let words = [
        ("by", by.join(",")),
        ("reserve", settings.reserve.to_string()),
        ("host_weight", settings.host_weight.to_string()),
        ("alpha", settings.alpha.to_string()),
        ("step", settings.step.to_string()),
        ("hysteresis", settings.hysteresis.to_string()),
        ("imbalance", settings.imbalance.to_string()),
        ("dedicate_from", settings.dedicate_from.to_string()),
        ("dedicate_until", settings.dedicate_until.to_string()),
        ("spread", spread.to_string()),
    ];
    let words: BTreeMap<String, String> = words.map(|(name, word)| (name.into(), word)).into();
    match parameters::settings(&words) {
        Ok(read) if read == *settings => Ok(Policy {
            parameters: words,
            // Only the scenario's VMs: this process holds some, too, for as long as it makes them.
            ..Policy::optimiser(true)
        }),
        Ok(_) => Err(
            "the agent's optimiser has no such settings: period, decide and gap are fixed".into(),
        ),
        Err(why) => Err(format!("the agent's optimiser does not take this: {why}")),
    }
}

/// What the operator of this host would say of its VMs.
fn rules(scenario: &Scenario, asked: &Optimiser) -> Rules {
    let instances = placement::instances(scenario);
    let promised = |vm: &placement::VmInstance| Promised {
        name: vm.name.clone(),
        promise: asked.promise(&scenario.vms[vm.group]),
    };
    Rules {
        only: instances.iter().map(|vm| vm.name.clone()).collect(),
        promises: instances.iter().map(promised).collect(),
        ..Rules::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_optimiser::{Change, Means, Setting};

    #[test]
    fn settings_are_the_agents_to_the_last_digit() {
        let odd = Settings {
            reserve: 0.1 + 0.2,
            alpha: 1.0 / 3.0,
            host_weight: 7,
            spread: Spread::Pool,
            means: Means {
                caps: false,
                freezing: true,
                ..Means::default()
            },
            ..Settings::default()
        };
        for settings in [Settings::default(), odd] {
            let policy = policy(&settings).unwrap();
            assert_eq!(parameters::settings(&policy.parameters).unwrap(), settings);
        }
        let names: Vec<String> = policy(&odd).unwrap().parameters.into_keys().collect();
        let mut all = parameters::NAMES.map(|(name, _)| name.to_string());
        all.sort();
        assert_eq!(names, all, "each is said");
        let quick = Settings {
            gap_ns: 1,
            ..Settings::default()
        };
        assert!(policy(&quick).unwrap_err().contains("gap"));
        let nothing = Settings {
            means: Means {
                sets: false,
                weights: false,
                caps: false,
                freezing: false,
            },
            ..Settings::default()
        };
        assert!(policy(&nothing).unwrap_err().contains("by="));
    }

    #[test]
    fn changes_count_in_the_window() {
        let change = Change {
            vm: "web".into(),
            from: Setting::untouched(100),
            to: Setting::untouched(200),
            reasons: Vec::new(),
        };
        let decision = |changes| Decision {
            changes: vec![change.clone(); changes],
            ..Decision::default()
        };
        let at = [(1, 5), (10, 2), (15, 1), (20, 7)];
        let decisions = at.map(|(s, n)| (s * 1_000_000_000, decision(n))).to_vec();
        let seen = Seen {
            decisions,
            warnings: Vec::new(),
        };
        assert_eq!(seen.changes_per_s((10_000_000_000, 20_000_000_000)), 0.3);
        assert_eq!(seen.changes_per_s((5, 5)), 0.0);
    }
}
