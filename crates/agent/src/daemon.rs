// SPDX-License-Identifier: GPL-2.0-only
//! The agent's process: looks after the host, answers requests, reads its configuration again when told to.
use crate::agent::{Agent, AgentError, Event, Policy};
use crate::config::{self, Choice, Config, Mode};
use crate::control::{Answer, Door, Kind, Request};
use crate::keeper::Classes;
use crate::signals::Asked;
use berth_host::root::Root;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two looks at the host: a VM is known a quarter of a second after it came.
const LOOK: Duration = Duration::from_millis(200);
/// A look takes at most this part of one CPU; on hosts with very many VMs looks come less often.
const COST: f64 = 0.05;

/// How to run.
pub struct Options<'a> {
    pub root: Root,
    pub socket: PathBuf,
    /// None: watches until it is told otherwise.
    pub config: Option<PathBuf>,
    /// Ends when its policy is unloaded: the process that `berth start` makes.
    pub ends_with_policy: bool,
    /// Makes a policy of its name.
    pub resolve: &'a dyn Fn(&Choice) -> Result<Policy, String>,
    /// The class of a VM of which the operator says nothing.
    pub classes: &'a Classes<'a>,
    /// Gets a line for each thing worth knowing.
    pub say: &'a dyn Fn(&str),
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    #[error("{}: {source}", socket.display())]
    Socket { socket: PathBuf, source: io::Error },
    #[error(transparent)]
    Agent(#[from] AgentError),
}

struct Daemon<'a> {
    options: &'a Options<'a>,
    agent: Agent,
    over: bool,
}

/// Runs until it is asked to end; a policy that is loaded then is unloaded.
///
/// # Errors
/// The configuration is wrong at the start, another agent runs, or /proc cannot be read.
pub fn run(options: &Options<'_>, asked: Asked) -> Result<(), DaemonError> {
    let config = match &options.config {
        Some(file) => config::read(file)?,
        None => Config::default(),
    };
    let failed = |source| DaemonError::Socket {
        socket: options.socket.clone(),
        source,
    };
    let door = Door::open(&options.socket).map_err(failed)?;
    let mut daemon = Daemon {
        agent: Agent::new(options.root.clone(), config.rules.clone(), config.stall),
        options,
        over: false,
    };
    daemon.apply(&config);
    let mut next = Instant::now();
    while !asked.stop.load(Ordering::Relaxed) && !daemon.over {
        if asked.reload.swap(false, Ordering::Relaxed) {
            daemon.reload();
        }
        let now = Instant::now();
        if now >= next {
            daemon.look()?;
            next = now + LOOK.max(now.elapsed().div_f64(COST));
        }
        let wait = next.saturating_duration_since(Instant::now());
        door.serve(wait, &mut |request| daemon.answer(request))
            .map_err(failed)?;
    }
    if let Ok(name) = daemon.agent.stop() {
        (options.say)(&format!("policy {name} unloaded"));
    }
    Ok(())
}

impl Daemon<'_> {
    fn say(&self, text: &str) {
        (self.options.say)(text);
    }

    fn look(&mut self) -> Result<(), AgentError> {
        let was_running = self.agent.running();
        for event in self.agent.tick(self.options.classes)? {
            let text = match event {
                Event::Ended(why) => format!("{why}; the kernel's own scheduler has taken over"),
                Event::Restarted(why) => format!("{why}; loaded again"),
                Event::LeftOut(out) => format!("VM {} is left alone: {}", out.vm, out.why),
            };
            self.say(&text);
        }
        self.over |= self.options.ends_with_policy && was_running && !self.agent.running();
        Ok(())
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status => {}
            Request::Stop => {
                let stopped = self.agent.stop().ok();
                if let Some(name) = &stopped {
                    self.say(&format!("policy {name} unloaded, as asked"));
                }
                self.over |= self.options.ends_with_policy;
                return Answer {
                    stopped,
                    status: Some(self.agent.status()),
                    ..Answer::default()
                };
            }
            Request::Start { policy, rules, .. } => {
                if let Some(rules) = rules {
                    self.agent.set_rules(rules);
                }
                let name = policy.name.clone();
                match self.agent.start(*policy, self.options.classes) {
                    Ok(started) => {
                        self.say(&format!("policy {name}: {started:?}"));
                        return Answer {
                            started: Some(started),
                            status: Some(self.agent.status()),
                            ..Answer::default()
                        };
                    }
                    Err(e) => {
                        let kind = match e {
                            AgentError::Refused(_) => Kind::Refused,
                            _ => Kind::Failed,
                        };
                        self.over |= self.options.ends_with_policy && !self.agent.running();
                        return Answer::failed(kind, e.to_string());
                    }
                }
            }
        }
        Answer {
            status: Some(self.agent.status()),
            ..Answer::default()
        }
    }

    /// Reads the configuration again; the running one stays if it is wrong.
    fn reload(&mut self) {
        let Some(file) = &self.options.config else {
            return self.say("there is no configuration to read again");
        };
        match config::read(file) {
            Ok(config) => {
                self.say("configuration read again");
                self.apply(&config);
            }
            Err(e) => self.say(&format!("{e}; the running configuration stays")),
        }
    }

    fn apply(&mut self, config: &Config) {
        self.agent.set_rules(config.rules.clone());
        self.agent.set_stall_limit(config.stall);
        let choice = match (&config.choice, config.mode) {
            (Some(choice), Mode::Act) => choice,
            _ => {
                if self.options.config.is_some()
                    && let Ok(name) = self.agent.stop()
                {
                    self.say(&format!("policy {name} unloaded: the mode is observe"));
                }
                return;
            }
        };
        let started = (self.options.resolve)(choice).and_then(|policy| {
            let started = self.agent.start(policy, self.options.classes);
            started.map_err(|e| e.to_string())
        });
        match started {
            Ok(started) => self.say(&format!("policy {}: {started:?}", choice.policy)),
            Err(e) => {
                let stays = if self.agent.running() {
                    "the running policy stays"
                } else {
                    "it only watches"
                };
                self.say(&format!(
                    "policy {} is not started: {e}; {stays}",
                    choice.policy
                ));
                self.agent.set_trouble(e);
            }
        }
    }
}
