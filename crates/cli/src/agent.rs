// SPDX-License-Identifier: GPL-2.0-only
//! `berth start`, `stop`, `status`, `daemon`: acting on this host.
use crate::exit::{Done, Failure};
use crate::ls::HostOptions;
use crate::output;
use crate::promises::Promises;
use berth_agent::agent::{AgentError, Started};
use berth_agent::backend::cgroup::OPTIMISER;
use berth_agent::backend::cgroup::parameters::settings;
use berth_agent::backend::{Policy, Value, Way, Ways};
use berth_agent::config::{self, Choice};
use berth_agent::control::{self, Answer, Kind, Request};
use berth_agent::daemon::{self, DaemonError, Options};
use berth_agent::pins::observe::possible;
use berth_agent::place::Place;
use berth_agent::rules::{Gains, Rule, Rules};
use berth_agent::signals;
use berth_experiment::foreign;
use berth_experiment::policies::{self, Asked};
use berth_host::root::Root;
use berth_report::say;
use berth_scenario::model::{Arm, Loader};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

mod status;

/// The daemon's configuration, if none is named.
const CONFIG: &str = "/etc/berth/config.toml";
/// How long the agent may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub struct SocketOption {
    /// The agent's control socket
    #[arg(long, value_name = "PATH", default_value = control::SOCKET, hide_default_value = true)]
    socket: PathBuf,
}

impl SocketOption {
    pub fn path(&self) -> &Path {
        &self.socket
    }
}

/// Asks the agent; what it refuses is an error.
pub fn ask(socket: &Path, request: &Request) -> Result<Answer, Failure> {
    done(control::ask(socket, request, &[]).map_err(|e| gone(socket, &e))?)
}

#[derive(clap::Args)]
#[command(after_help = START_EXAMPLES)]
pub struct StartArgs {
    /// A shipped policy (berth policy list), a .bpf.c or .bpf.o file, or `optimiser`: CPU sets, weights and caps, on
    /// any kernel
    policy: String,

    /// A parameter of the policy: NAME=VALUE (berth policy show POLICY)
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// Values for all parameters, by name
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Only these VMs have a class; `*` stands for any text [default: all]
    #[arg(long, value_name = "VM,VM", value_delimiter = ',')]
    only: Vec<String>,

    /// What a VM does: NAME=latency, batch, mixed or none; `*` stands for any text
    #[arg(long, value_name = "VM=CLASS")]
    class: Vec<String>,

    /// How much faster a VM's vCPUs are on a fast core than on a slow one, for a policy that asks (amp): 1 to 100, one
    /// for all or one for each; not measured then
    #[arg(long, value_name = "VM=SCORE[,SCORE]")]
    score: Vec<String>,

    #[command(flatten)]
    promises: Promises,

    /// Where the policy cannot act, or is ended, the optimiser acts in its place
    #[arg(long)]
    auto: bool,

    /// Give the policy only the threads of the VMs in --only; all else stays with the kernel's own scheduler,
    /// which goes first: where other threads want all CPUs, these VMs wait
    #[arg(long)]
    partial: bool,

    /// What is loaded now, as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    agent: SocketOption,
}

const START_EXAMPLES: &str = "Examples:
  berth start vmfair --class 'web*=latency'      every ordinary thread of this host is scheduled by vmfair
  berth start vmfair --set slice_us=2000         the same with another slice; once more changes what runs
  berth start optimiser --target 'web*=0.95'     CPU sets, weights and caps of VMs, without sched_ext
  berth start amp --score 'hpc*=1.8'             fast cores to who gains most; what these gain is said, not measured
  berth start vmfair --auto                      the optimiser where vmfair cannot act
  berth stop                                     back to the kernel's own scheduler; all is put back

A process of its own holds the policy; if it ends, however it ends, the kernel takes its own scheduler back. Where
`berth daemon` runs, that holds it. Another policy in place of a running one: the old one stays if the new is refused.";

#[derive(clap::Args)]
pub struct StopArgs {
    #[command(flatten)]
    agent: SocketOption,
}

#[derive(clap::Args)]
pub struct StatusArgs {
    /// All VMs, however many there are
    #[arg(long)]
    all: bool,

    /// As JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    agent: SocketOption,
}

#[derive(clap::Args)]
#[command(after_help = DAEMON_EXAMPLES)]
pub struct DaemonArgs {
    /// Configuration [default: /etc/berth/config.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Only check the configuration
    #[arg(long)]
    check: bool,

    /// End when the policy is unloaded
    #[arg(long, hide = true)]
    held: bool,

    #[command(flatten)]
    agent: SocketOption,
}

const DAEMON_EXAMPLES: &str =
    "Without a configuration, or with mode = \"observe\", nothing is scheduled. A configuration:
  mode = \"act\"
  policy = \"vmfair\"
  only = [\"web*\"]          # only these have a class, the others get their share
  [[vm]]
  name = \"web*\"
  class = \"latency\"
SIGHUP reads it again; the running one stays if it is wrong. SIGTERM unloads the policy and ends.";

pub fn start(args: &StartArgs) -> Done {
    let choice = Choice {
        policy: args.policy.clone(),
        preset: args.preset.clone(),
        set: parameters(&args.set)?,
        partial: args.partial,
        backend: match (args.policy == OPTIMISER, args.auto) {
            (true, _) => Way::Cgroup,
            (false, true) => Way::Auto,
            (false, false) => Way::Scx,
        },
    };
    if args.partial && args.only.is_empty() {
        return Err(Failure::Input("--partial needs --only: which VMs?".into()));
    }
    let policy = resolve(&choice)?;
    if !args.score.is_empty()
        && (policy.object.is_empty() || !policies::takes_scores(&policy.object))
    {
        return Err(Failure::Input(format!(
            "--score: {} does not ask what VMs gain from fast cores; amp does",
            policy.name
        )));
    }
    let rules = Rules {
        only: args.only.clone(),
        vms: args
            .class
            .iter()
            .map(|c| rule(c))
            .collect::<Result<_, _>>()?,
        promises: args.promises.all()?,
        scores: args
            .score
            .iter()
            .map(|s| gains(s))
            .collect::<Result<_, _>>()?,
    };
    let socket = &args.agent.socket;
    let object = policy.object.clone();
    let request = Request::Start {
        policy: Box::new(policy),
        rules: (rules != Rules::default()).then_some(rules),
    };
    if !listening(socket)? {
        hold(socket, choice.backend)?;
    }
    let answer = control::ask(socket, &request, &object).map_err(|e| gone(socket, &e))?;
    let answer = done(answer)?;
    if args.json {
        return output::json(&answer.status);
    }
    let acting = answer.status.as_ref().and_then(|s| s.policy.as_ref());
    let name = acting.map_or(&args.policy, |p| &p.name);
    let acts = match name == OPTIMISER {
        true => {
            let by = acting.and_then(|p| p.parameters.get("by"));
            let by = by.map_or("sets,weights,caps".into(), |by| by.to_string());
            format!("acts on this host's VMs by {}", by.replace(',', ", "))
        }
        false => "schedules this host".into(),
    };
    let said = match answer.started {
        Some(Started::Changed) => format!("{name}: parameters changed while it runs"),
        Some(Started::Switched) => {
            format!("{name} {acts} now, in place of what was loaded before")
        }
        _ => format!("{name} {acts} now"),
    };
    output::print(&format!("{said}\n"));
    if let Some(status) = &answer.status {
        output::print(&status::text(status, false));
    }
    output::print("\n  Stop     berth stop\n  Look     berth status\n");
    Ok(())
}

pub fn stop(args: &StopArgs) -> Done {
    let socket = &args.agent.socket;
    if !listening(socket)? {
        output::print("nothing to stop: no agent of Berth is running\n");
        return Ok(());
    }
    let answer = control::ask(socket, &Request::Stop, &[]).map_err(|e| gone(socket, &e))?;
    let answer = done(answer)?;
    let (pins, complaints) = answer.unpinned.unwrap_or_default();
    match answer.stopped {
        Some(name) => output::print(&format!(
            "{name} is unloaded; {}\n",
            match name == OPTIMISER {
                true => "CPUs, weights and caps of VMs are what they were",
                false => "the kernel's own scheduler has taken over",
            }
        )),
        None if pins == 0 => output::print("nothing to stop: no policy of Berth is loaded\n"),
        None => {}
    }
    if pins > 0 {
        output::print(&format!("{pins} pinned VMs are what they were\n"));
    }
    for complaint in complaints {
        output::print(&format!("  {complaint}\n"));
    }
    Ok(())
}

/// The agent's status; none: there is no agent, or it has ended while it was asked.
fn asked(socket: &Path) -> Result<Option<Answer>, Failure> {
    /// One that ends is gone sooner.
    const ENDS: Duration = Duration::from_secs(5);
    let end = Instant::now() + ENDS;
    while listening(socket)? {
        match control::ask(socket, &Request::Status, &[]) {
            Ok(answer) => return done(answer).map(Some),
            Err(e) if Instant::now() > end => return Err(gone(socket, &e)),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Ok(None)
}

pub fn status(args: &StatusArgs) -> Done {
    let socket = &args.agent.socket;
    let status = asked(socket)?.and_then(|a| a.status);
    match &status {
        _ if args.json => output::json(&status)?,
        Some(status) => output::print(&status::text(status, args.all)),
        None => {
            let scheduler = berth_host::machine::Machine::read(&Root::live()).scheduler;
            output::print(&format!(
                "no agent of Berth is running; scheduler {}\n",
                scheduler.name()
            ));
        }
    }
    match status.is_some_and(|status| status.trouble.is_none()) {
        true => Ok(()),
        false => Err(Failure::Expect),
    }
}

pub fn run_daemon(args: &DaemonArgs) -> Done {
    let usual = Path::new(CONFIG);
    let config = args
        .config
        .clone()
        .or_else(|| (!args.held && usual.exists()).then(|| usual.into()));
    if args.check {
        let Some(file) = config else {
            return Err(Failure::Input(format!(
                "there is no {CONFIG}; name one with --config"
            )));
        };
        let wrong = |e: config::ConfigError| Failure::Input(e.to_string());
        let config = config::read(&file).map_err(wrong)?;
        config
            .check(&file, &|c| known(c).map(|_| ()))
            .map_err(wrong)?;
        config
            .check_cpus(&file, possible(&Root::live()).as_ref())
            .map_err(wrong)?;
        output::print(&format!("ok   {}\n", file.display()));
        return Ok(());
    }
    let options = Options {
        root: Root::live(),
        socket: args.agent.socket.clone(),
        config,
        ends_with_policy: args.held,
        resolve: &known,
        say: &|line| say!("berth: {line}"),
    };
    daemon::run(&options, signals::take()).map_err(|e| match e {
        DaemonError::Config(_)
        | DaemonError::Socket { .. }
        | DaemonError::Start(AgentError::Refused(_)) => Failure::Input(e.to_string()),
        DaemonError::Start(_) | DaemonError::Agent(_) => Failure::Run(e.to_string()),
    })
}

/// `NAME=VALUE`, also as scenarios write it: `policy.NAME=VALUE`.
pub fn parameters(set: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let one = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            let name = name.trim();
            let name = name.strip_prefix("policy.").unwrap_or(name);
            Ok((name.to_string(), value.trim().to_string()))
        }
        _ => Err(Failure::Input(format!(
            "--set {text}: NAME=VALUE, such as slice_us=2000"
        ))),
    };
    set.iter().map(one).collect()
}

fn gains(text: &str) -> Result<Gains, Failure> {
    let wrong = |why: &str| Failure::Input(format!("--score {text}: {why}"));
    let usage = "VM=SCORE, such as 'hpc*=1.8', or one for each vCPU: db=1.8,1.2";
    let (name, scores) = text.split_once('=').ok_or_else(|| wrong(usage))?;
    let scores: Result<Vec<f64>, _> = scores.split(',').map(|s| s.trim().parse()).collect();
    match scores {
        Ok(scores) if !name.is_empty() => Gains::new(name, &scores).map_err(|e| wrong(&e)),
        _ => Err(wrong(usage)),
    }
}

fn rule(text: &str) -> Result<Rule, Failure> {
    match text.split_once('=') {
        Some((name, class)) if !name.is_empty() && berth_identity::Class::of(class).is_some() => {
            Ok(Rule {
                name: name.into(),
                class: Some(class.into()),
                io_vcpus: 0,
            })
        }
        _ => Err(Failure::Input(format!(
            "--class {text}: VM=latency, VM=batch, VM=mixed or VM=none"
        ))),
    }
}

/// The policy of an arm.
pub fn choice(arm: &Arm) -> Choice {
    Choice {
        policy: arm.policy.clone(),
        preset: arm.preset.clone(),
        set: arm.params.clone(),
        partial: false,
        backend: Way::Scx,
    }
}

/// The object and the checked parameters of a policy.
pub fn resolve(choice: &Choice) -> Result<Policy, Failure> {
    resolve_as(choice, &Loader::default())
}

/// [`resolve`], with what a scheduler's own loader would set.
pub fn resolve_as(choice: &Choice, loader: &Loader) -> Result<Policy, Failure> {
    if choice.policy == OPTIMISER {
        if choice.preset.is_some() {
            return Err(Failure::Input(
                "the optimiser has no presets: set what you want".into(),
            ));
        }
        settings(&choice.set).map_err(Failure::Input)?;
        return Ok(Policy {
            parameters: choice.set.clone(),
            ..Policy::optimiser(choice.partial)
        });
    }
    let object = match policies::is_file(&choice.policy) {
        true => {
            let ready = foreign::ready(&choice.policy, loader, &foreign::Machine::here())?;
            ready.notes.iter().for_each(|note| say!("note: {note}"));
            ready.object
        }
        false => policies::object(&choice.policy)?,
    };
    let value = |value| match value {
        policies::Set::Number(n) => Value::Number(n.into()),
        policies::Set::Text(text) => Value::Text(text),
    };
    let asked = Asked {
        who: None,
        policy: &choice.policy,
        preset: choice.preset.as_deref(),
        set: &choice.set,
        facts: &[],
        preset_address: String::new(),
        set_address: String::new(),
    };
    let values = policies::values(&asked, &object)?.into_iter();
    Ok(Policy {
        name: choice.policy.clone(),
        hash: berth_policy::identity::hash(&object),
        parameters: choice.set.clone(),
        values: values.map(|(name, v)| (name, value(v))).collect(),
        partial: choice.partial,
        backend: choice.backend,
        object,
    })
}

/// [`resolve`] for a configuration, where its error has a place.
fn known(choice: &Choice) -> Result<Policy, String> {
    resolve(choice).map_err(|e| match e {
        Failure::Input(why) | Failure::Run(why) => why,
        _ => "interrupted".into(),
    })
}

/// Whether an agent listens there.
///
/// # Errors
/// One may, and this user is not let in.
pub fn listening(socket: &Path) -> Result<bool, Failure> {
    match std::os::unix::net::UnixStream::connect(socket) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(Failure::Input(format!(
            "{}: you may not ask the agent: be root, or have it let your group in (socket_group in its configuration)",
            socket.display()
        ))),
        Err(_) => Ok(false),
    }
}

/// Starts the process that holds the policy; what it says goes into a file beside the socket.
pub fn hold(socket: &Path, way: Way) -> Result<(), Failure> {
    // Said here, not in a log that nobody reads.
    if way == Way::Scx {
        let able = Ways::here(&Root::live(), Place::beside(socket)).scx.able();
        able.map_err(|e| {
            Failure::Input(format!(
                "{e}\n  Without it: berth start optimiser (docs/any-kernel.md)"
            ))
        })?;
    }
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let unusable = |e: io::Error| {
        Failure::Input(
            DaemonError::Socket {
                socket: socket.into(),
                source: e,
            }
            .to_string(),
        )
    };
    control::folder(socket).map_err(unusable)?;
    let log = folder.join("agent.log");
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_err(unusable)?;
    let mut child = Command::new(std::env::current_exe().map_err(unusable)?)
        .args(["daemon", "--held", "--socket"])
        .arg(socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // Ctrl-C in this terminal is not for it.
        .process_group(0)
        .spawn()
        .map_err(|e| Failure::Run(format!("the agent cannot be started: {e}")))?;
    let end = Instant::now() + PATIENCE;
    while !listening(socket)? {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(Failure::Run(format!(
                "the agent ended at once ({status}); {} says why",
                folder.join("agent.log").display()
            )));
        }
        if Instant::now() > end {
            let _ = child.kill();
            return Err(Failure::Run("the agent does not answer".into()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What this machine's agent has decided for a VM, if it decides that VM by VM and this user may ask it.
pub fn decided(vm: &str, host: &HostOptions) -> Option<String> {
    let socket = Path::new(control::SOCKET);
    if host.root.is_some() || !listening(socket).unwrap_or(false) {
        return None;
    }
    let status = control::ask(socket, &Request::Status, &[]).ok()?.status?;
    let vm = status.vms.into_iter().find(|v| v.name == vm)?;
    Some(output::decided(&vm.decided?))
}

fn gone(socket: &Path, error: &io::Error) -> Failure {
    Failure::Run(format!(
        "the agent at {} went away: {error}",
        socket.display()
    ))
}

fn done(answer: Answer) -> Result<Answer, Failure> {
    match answer.error {
        Some((Kind::Refused, why)) => Err(Failure::Input(why)),
        Some((Kind::Failed, why)) => Err(Failure::Run(why)),
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_of_its_name_with_checked_parameters() {
        let choice = |policy: &str, set: &[&str]| Choice {
            policy: policy.into(),
            preset: None,
            set: parameters(&set.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap(),
            partial: false,
            backend: Way::Scx,
        };
        let policy = resolve(&choice("vmfair", &["policy.slice_us=2000"])).unwrap();
        assert_eq!(policy.values["slice_us"], Value::Number(2000));
        let wrong = |c: Choice| match resolve(&c) {
            Err(Failure::Input(why)) => why,
            other => panic!("{:?}", other.map(|p| p.name)),
        };
        assert!(wrong(choice("vmfare", &[])).contains("did you mean `vmfair`"));
        assert!(wrong(choice("vmfair", &["slice=1"])).contains("slice_us"));
        assert!(parameters(&["x".to_string()]).is_err());
        assert!(rule("web*=latency").is_ok() && rule("web*=fast").is_err());
    }

    #[test]
    fn scores_are_said_of_vms() {
        let scores = |text| gains(text).map(|g| (g.name, g.score_milli));
        assert_eq!(
            scores("db=1.8, 1.25").unwrap(),
            ("db".into(), vec![1800, 1250])
        );
        for wrong in [
            "db", "=1.5", "db=", "db=fast", "db=0.5", "db=1.5,", "db=1e9",
        ] {
            match scores(wrong) {
                Err(Failure::Input(why)) => assert!(why.contains(wrong), "{why}"),
                other => panic!("{wrong}: {:?}", other.ok()),
            }
        }
    }
}
