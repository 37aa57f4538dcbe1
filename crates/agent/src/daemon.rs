// SPDX-License-Identifier: GPL-2.0-only
//! The agent's process: looks after the host, answers requests, reads its configuration again when told to.
use crate::agent::{Agent, AgentError, Event};
use crate::arrivals::Arrivals;
use crate::backend::Policy;
use crate::config::{self, Choice, Config, ConfigError, Mode};
use crate::control::{Answer, Kind, Request};
use crate::describe::Remark;
use crate::door::Door;
use crate::pins::observe::possible;
use crate::pins::{PinError, Pinned};
use crate::place::Place;
use crate::remarks::in_few_lines;
use crate::signals::Asked;
use berth_host::model::{Snapshot, Vm};
use berth_host::pace::cpu_time;
use berth_host::root::Root;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two looks at the host: whatever came is known a quarter of a second later.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is asked whether what acts has ended: something else is to be in its place within 200 ms.
const ENDED: Duration = Duration::from_millis(50);
/// Between two looks while something happens.
const SOON: Duration = Duration::from_millis(20);
/// After it was told that something happened, the agent listens again so much later: who makes a VM makes many threads.
const QUIET: Duration = Duration::from_millis(5);
/// Looks take at most this part of one CPU while something acts; on hosts with very many VMs they come less often.
const COST: f64 = 0.05;
/// The same while nothing does: nobody waits then for what is seen, and all that the agent does is to take less than a
/// hundredth of one.
const COST_WATCHING: f64 = 0.005;

/// But never later than this: the first look takes much more than those that follow.
const LONGEST: Duration = Duration::from_secs(5);
const LONGEST_WATCHING: Duration = Duration::from_secs(10);
/// Its nice value where it was given none: beside threads that always run it needs more than an equal share for the
/// moments in which it does something. Its looks are bounded above.
const NICE: i32 = -10;

/// From the beginning of a look that took so much CPU time to the next one, if nothing happens and something acts.
pub fn pause(took: Duration) -> Duration {
    LOOK.max(rest(took, true))
}

/// From the beginning of a look to the next one that its cost allows.
fn rest(took: Duration, acts: bool) -> Duration {
    match acts {
        true => took.div_f64(COST).min(LONGEST),
        false => took.div_f64(COST_WATCHING).min(LONGEST_WATCHING),
    }
}

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
    /// Gets a line for each thing worth knowing.
    pub say: &'a dyn Fn(&str),
}

impl Options<'_> {
    /// Reads a configuration whose policy there is.
    fn read(&self, file: &Path) -> Result<Config, ConfigError> {
        let config = config::read(file)?;
        config.check(file, &|choice| (self.resolve)(choice).map(|_| ()))?;
        config.check_cpus(file, possible(&self.root).as_ref())?;
        Ok(config)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the agent cannot listen at {}: {source}{}", socket.display(), advice(source))]
    Socket { socket: PathBuf, source: io::Error },
    /// The configuration says to act.
    #[error("mode = \"act\", and nothing is done: {0}")]
    Start(AgentError),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// What to do about a socket that cannot be made.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "; be root, or name a socket in a folder of your own (--socket): it then watches what you may see"
        }
        io::ErrorKind::NotFound => "; make it, or name a socket elsewhere (--socket)",
        io::ErrorKind::AddrInUse => "; stop that one, or name another socket (--socket)",
        _ => "",
    }
}

/// Which VMs there are, and how many of their vCPUs are known.
fn outline(vms: &Snapshot) -> Vec<(i32, u64, u32, u32)> {
    let one = |vm: &Arc<Vm>| (vm.pid, vm.start, vm.vcpus, vm.known_vcpus());
    vms.vms.iter().map(one).collect()
}

/// Whose it is to solve.
fn kind(error: &AgentError) -> Kind {
    match error {
        AgentError::Refused(_) | AgentError::Pin(PinError::Refused(_)) => Kind::Refused,
        _ => Kind::Failed,
    }
}

/// Gives this thread the agent's nice value, unless somebody has chosen one (`nice`, systemd's `Nice=`) or another
/// class (`chrt`), or it may not. What it starts, such as a compiler, does not inherit it.
fn hurry() {
    // SAFETY: numbers in and out, and a structure that outlives the call.
    unsafe {
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER
            && libc::getpriority(libc::PRIO_PROCESS, 0) == 0
            && libc::setpriority(libc::PRIO_PROCESS, 0, NICE) == 0
        {
            let how: libc::sched_param = std::mem::zeroed();
            let class = libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK;
            libc::sched_setscheduler(0, class, &raw const how);
        }
    }
}

struct Daemon<'a> {
    options: &'a Options<'a>,
    agent: Agent,
    over: bool,
}

/// Runs until it is asked to end; a policy that is loaded then is unloaded.
///
/// # Errors
/// The configuration is wrong at the start, or says to act where that cannot be; another agent runs, or /proc cannot be
/// read.
pub fn run(options: &Options<'_>, asked: Asked) -> Result<(), DaemonError> {
    let config = match &options.config {
        Some(file) => options.read(file)?,
        None => Config::default(),
    };
    let failed = |source| DaemonError::Socket {
        socket: options.socket.clone(),
        source,
    };
    let mut door = Door::open(&options.socket, &config.access).map_err(failed)?;
    hurry();
    let mut daemon = Daemon {
        agent: Agent::new(
            options.root.clone(),
            Place::beside(&options.socket),
            config.rules.clone(),
            config.stall,
        ),
        options,
        over: false,
    };
    for what in daemon.agent.take_left() {
        (options.say)(&what);
    }
    daemon.apply(&config)?;
    let mut arrivals = Arrivals::new().map_err(AgentError::Look)?;
    if let Some(why) = arrivals.blind() {
        let ms = LOOK.as_millis();
        (options.say)(&format!(
            "this host does not tell of new threads ({why}): VMs are looked for every {ms} ms"
        ));
    }
    // When to look, how soon at the earliest, and when to listen again.
    let (mut next, mut soonest, mut listen) = (Instant::now(), Instant::now(), Instant::now());
    while !asked.stop.load(Ordering::Relaxed) && !daemon.over {
        let acted = daemon.agent.acts();
        if asked.reload.swap(false, Ordering::Relaxed)
            && let Some(config) = daemon.reload()
            && let Err(e) = door.admit(&config.access)
        {
            let socket = options.socket.display();
            (options.say)(&format!("{socket} stays as it is: {e}"));
        }
        let now = Instant::now();
        if now >= next || daemon.agent.notices_end()? {
            let before = cpu_time();
            let changed = daemon.look()?;
            arrivals.follow(daemon.agent.vms());
            let took = cpu_time().saturating_sub(before);
            let rest = rest(took, daemon.agent.acts());
            soonest = now + SOON.max(rest);
            // What has just come goes on changing.
            next = match changed {
                true => soonest,
                false => now + LOOK.max(rest),
            };
        }
        let listens = now >= listen;
        let until = if listens { next } else { next.min(listen) };
        let until = match daemon.agent.running() {
            true => until.min(now + ENDED),
            false => until,
        };
        let wait = until.saturating_duration_since(Instant::now());
        let news = door
            .serve(wait, listens.then(|| arrivals.as_fd()), &mut |request| {
                daemon.answer(request)
            })
            .map_err(failed)?;
        if !acted && daemon.agent.acts() {
            // What was seen so far was seen at leisure.
            (next, soonest) = (Instant::now(), Instant::now());
        }
        if news {
            let news = arrivals.news(&options.root, daemon.agent.vms());
            listen = Instant::now() + QUIET;
            if news.look {
                daemon.agent.suspect(&news.suspects);
                next = next.min(soonest);
            }
        }
    }
    if let Ok(name) = daemon.agent.stop() {
        (options.say)(&format!("policy {name} unloaded"));
    }
    let (pins, complaints) = daemon.agent.unpin(None)?;
    if pins > 0 {
        (options.say)(&format!("{pins} pins undone"));
    }
    complaints.iter().for_each(|c| (options.say)(c));
    // Not before all is undone: who asks may be slow to listen.
    door.finish();
    Ok(())
}

impl Daemon<'_> {
    fn say(&self, text: &str) {
        (self.options.say)(text);
    }

    /// True if VMs or vCPUs came or went.
    fn look(&mut self) -> Result<bool, AgentError> {
        let was_running = self.agent.is_needed();
        let before = outline(self.agent.vms());
        let (mut by_process, mut left_out) = (Vec::new(), Vec::new());
        for event in self.agent.tick()? {
            let text = match event {
                Event::Ended(why) => format!("{why}; the kernel's own scheduler has taken over"),
                Event::FellBack(why) => format!("{why}; the optimiser acts in its place"),
                Event::Back(name) => format!("policy {name} acts again"),
                Event::Restarted(why) => format!("{why}; loaded again"),
                Event::ByProcess(vm) => {
                    by_process.push(vm);
                    continue;
                }
                Event::LeftOut(vm) => {
                    left_out.push(vm);
                    continue;
                }
                Event::Pins(what) => what,
            };
            self.say(&text);
        }
        for line in in_few_lines(by_process.iter().map(Remark::pair)) {
            self.say(&line.known_by_process());
        }
        for line in in_few_lines(left_out.iter().map(Remark::pair)) {
            self.say(&line.left_alone());
        }
        self.over |= self.options.ends_with_policy && was_running && !self.agent.is_needed();
        Ok(before != outline(self.agent.vms()))
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status => {}
            Request::Stop => {
                let stopped = self.agent.stop().ok();
                if let Some(name) = &stopped {
                    self.say(&format!("policy {name} unloaded, as asked"));
                }
                let unpinned = match self.agent.unpin(None) {
                    Ok(unpinned) => unpinned,
                    Err(e) => return Answer::failed(Kind::Failed, e.to_string()),
                };
                if unpinned.0 > 0 {
                    self.say(&format!("{} pins undone, as asked", unpinned.0));
                }
                self.over |= self.options.ends_with_policy;
                return Answer {
                    stopped,
                    unpinned: Some(unpinned),
                    status: Some(self.agent.status()),
                    ..Answer::default()
                };
            }
            Request::Pin { vm, pinning } => {
                let answer = match self.agent.pin(vm, pinning) {
                    Ok(pinned) => {
                        let Pinned { vm, acts, set, .. } = &pinned;
                        self.say(&format!("VM {vm} pinned ({acts}): {set} values set"));
                        Answer {
                            pinned: Some(pinned),
                            ..Answer::default()
                        }
                    }
                    Err(e) => Answer::failed(kind(&e), e.to_string()),
                };
                self.over |= self.options.ends_with_policy && !self.agent.is_needed();
                return answer;
            }
            Request::Plan { vms, pinning } => {
                return match self.agent.would_pin(&vms, &pinning) {
                    Ok(plan) => Answer {
                        plan: Some(plan),
                        ..Answer::default()
                    },
                    Err(e) => Answer::failed(kind(&e), e.to_string()),
                };
            }
            Request::Unpin { vm } => {
                let answer = match self.agent.unpin(vm) {
                    Ok(unpinned) => Answer {
                        unpinned: Some(unpinned),
                        ..Answer::default()
                    },
                    Err(e) => Answer::failed(kind(&e), e.to_string()),
                };
                self.over |= self.options.ends_with_policy && !self.agent.is_needed();
                return answer;
            }
            Request::Start { policy, rules, .. } => {
                let name = policy.name.clone();
                match self.agent.start_with(*policy, rules) {
                    Ok(started) => {
                        self.say(&format!("policy {name}: {started:?}"));
                        return Answer {
                            started: Some(started),
                            status: Some(self.agent.status()),
                            ..Answer::default()
                        };
                    }
                    Err(e) => {
                        self.over |= self.options.ends_with_policy && !self.agent.is_needed();
                        return Answer::failed(kind(&e), e.to_string());
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
    fn reload(&mut self) -> Option<Config> {
        let Some(file) = &self.options.config else {
            self.say("there is no configuration to read again");
            return None;
        };
        match self.options.read(file) {
            Ok(config) => {
                self.say("configuration read again");
                if let Err(e) = self.apply(&config) {
                    let stays = match self.agent.running() {
                        true => "the running policy stays",
                        false => "it only watches",
                    };
                    self.say(&format!("{e}; {stays}"));
                    self.agent.set_trouble(e.to_string());
                }
                Some(config)
            }
            Err(e) => {
                self.say(&format!("{e}; the running configuration stays"));
                None
            }
        }
    }

    /// All of it, or nothing if the policy that it names cannot act.
    fn apply(&mut self, config: &Config) -> Result<(), DaemonError> {
        let rules = config.rules.clone();
        let pins = match (&config.choice, config.mode) {
            (Some(choice), Mode::Act) => {
                let policy = (self.options.resolve)(choice);
                let policy = policy.map_err(|why| DaemonError::Start(AgentError::Refused(why)))?;
                let started = self.agent.start_with(policy, Some(rules));
                let started = started.map_err(DaemonError::Start)?;
                self.say(&format!("policy {}: {started:?}", choice.policy));
                config.pins.clone()
            }
            (_, mode) => {
                let pins = match mode {
                    Mode::Act => config.pins.clone(),
                    Mode::Observe => Vec::new(),
                };
                // The one thing that can fail.
                let set = self.agent.set_pin_rules(pins.clone());
                set.map_err(DaemonError::Start)?;
                self.agent.set_rules(rules);
                if self.options.config.is_some()
                    && let Ok(name) = self.agent.stop()
                {
                    let why = match mode {
                        Mode::Observe => "the mode is observe",
                        Mode::Act => "the configuration names none",
                    };
                    self.say(&format!("policy {name} unloaded: {why}"));
                }
                pins
            }
        };
        self.agent.set_stall_limit(config.stall);
        self.agent.set_pin_rules(pins).map_err(DaemonError::Start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nice values of a thread that is given one and then hurries, and of one that it starts; none: it may not have
    /// it.
    fn hurried(given: Option<i32>) -> Option<(i32, i32)> {
        // SAFETY: numbers in, a number out.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let one = move || {
            if let Some(given) = given {
                // SAFETY: as above.
                if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, given) } != 0 {
                    return None;
                }
            }
            hurry();
            Some((nice(), std::thread::spawn(nice).join().unwrap()))
        };
        std::thread::spawn(one).join().unwrap()
    }

    #[test]
    fn it_hurries_unless_somebody_chose_a_nice_value_and_what_it_starts_does_not() {
        // SAFETY: numbers in, numbers out.
        let (class, nice) = unsafe {
            let class = libc::sched_getscheduler(0);
            (class, libc::getpriority(libc::PRIO_PROCESS, 0))
        };
        if class != libc::SCHED_OTHER || nice != 0 {
            // Somebody chose how the tests run.
            assert_eq!(hurried(None), Some((nice, nice)));
            return;
        }
        assert_eq!(hurried(Some(5)), Some((5, 5)));
        // Who may not be less nice stays as it is.
        let may = hurried(Some(NICE)) == Some((NICE, NICE));
        assert_eq!(hurried(None), Some((if may { NICE } else { 0 }, 0)));
    }
}
