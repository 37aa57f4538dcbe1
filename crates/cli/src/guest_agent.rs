// SPDX-License-Identifier: GPL-2.0-only
//! `berth guest-agent`: inside a mixed VM, light processes of its users go to the CPUs that are reserved for I/O.
use crate::exit::{Done, Failure};
use crate::ls::seconds;
use crate::output;
use berth_actuator::live::Live;
use berth_actuator::{Acting, cpus, list};
use berth_agent::place::{Begun, Place, PlaceError};
use berth_agent::signals;
use berth_guest_agent::{Error, GuestAgent, Line, Moved, Proc, Reserved, Round, Sides};
use berth_host::root::Root;
use berth_mixed::{Reason, Settings, Side};
use berth_report::say;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// CPUs that are reserved for I/O: so many, the last ones; or a list, which has a comma or a dash in it (3 is three
    /// CPUs, `3,` is CPU 3)
    #[arg(long, value_name = "N|LIST", default_value = "1")]
    reserved: Reserved,

    /// Nothing is moved: watches for as long as a decision needs, and shows who would be
    #[arg(long)]
    dry_run: bool,

    /// Watches for as long as a decision needs, moves, shows who, and ends; they stay there (berth restore undoes it)
    #[arg(long, conflicts_with = "dry_run")]
    once: bool,

    /// As JSON; of an agent that goes on: a line for each look at which something happened
    #[arg(long)]
    json: bool,

    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    period: Duration,

    /// A process that uses less of one CPU than this, in percent, is light
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    light: f64,

    /// One that uses more goes back; in between it stays where it is
    #[arg(long, value_name = "PERCENT", default_value_t = 20.0)]
    heavy: f64,

    /// For so many periods, one after the other, before it is moved
    #[arg(long, value_name = "N", default_value_t = 3)]
    periods: u32,

    /// The first user: processes of those below are the system's, and left alone
    #[arg(long, value_name = "UID", default_value_t = 1000)]
    uid_from: u32,

    /// CPUs of a process that nobody has pinned [default: all that a process may have here]
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    unpinned: Option<Cpus>,

    /// Where it is remembered what is moved [default: /run/berth-guest-agent, of other users below /run/user or /tmp]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  berth guest-agent --dry-run             who would go to the last CPU, and why; nothing is moved
  berth guest-agent                       acts until Ctrl-C or SIGTERM, then everything is as it was
  berth guest-agent --reserved 2-3        CPUs 2 and 3 are reserved
  berth guest-agent --once --json         one decision, as JSON; they stay where they are then
  berth restore                           what --once or a killed one has moved goes back

Processes of users start on the CPUs that compute. One that uses less than --light for some periods goes to the reserved
ones, and back when it uses more than --heavy. Who is pinned by somebody else is never touched. Root moves everybody's
processes, another user his own.";

/// Where, in the agent's folder, it is remembered what was moved.
pub const CHANGES: &str = "changes";
/// Between two looks at what was asked meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// CPUs of an argument; clap takes a plain set for several arguments.
#[derive(Clone, Debug)]
pub struct Cpus(BTreeSet<u32>);

fn cpu_list(text: &str) -> Result<Cpus, String> {
    match cpus(text) {
        Some(cpus) if !cpus.is_empty() => Ok(Cpus(cpus)),
        _ => Err("give numbers and ranges, such as 0-2,4".into()),
    }
}

impl Args {
    fn settings(&self) -> Settings {
        Settings {
            period_ns: self.period.as_nanos() as u64,
            uid_from: self.uid_from,
            light: self.light / 100.0,
            heavy: self.heavy / 100.0,
            periods: self.periods,
        }
    }

    fn unpinned(&self) -> Option<BTreeSet<u32>> {
        self.unpinned.as_ref().map(|cpus| cpus.0.clone())
    }
}

/// The user as whom files are made.
fn uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |m| m.uid())
}

/// The folder of this user's agent, if none is said.
pub fn folder(said: Option<&Path>) -> PathBuf {
    const NAME: &str = "berth-guest-agent";
    if let Some(said) = said {
        return said.into();
    }
    let uid = uid();
    let own = PathBuf::from(format!("/run/user/{uid}"));
    let is_own = || std::fs::metadata(&own).is_ok_and(|m| m.is_dir() && m.uid() == uid);
    match uid {
        0 => Path::new("/run").join(NAME),
        _ if is_own() => own.join(NAME),
        _ => PathBuf::from(format!("/tmp/{NAME}-{uid}")),
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Sides(_) | Error::Mixed(_) => Failure::Input(error.to_string()),
        Error::Actuator(berth_actuator::Error::Held { .. }) => Failure::Input(error.to_string()),
        error => Failure::Run(error.to_string()),
    }
}

/// What acts, and is undone if this process is killed, unless it is to stay.
fn begin(args: &Args) -> Result<Begun, Failure> {
    let folder = folder(args.state.as_deref());
    let wrong = |why: &dyn std::fmt::Display| {
        let shown = folder.display();
        Failure::Input(format!(
            "{shown}: {why} (--state FOLDER: remember it elsewhere)"
        ))
    };
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(wrong(&e)),
        _ => {}
    }
    let about = std::fs::symlink_metadata(&folder).map_err(|e| wrong(&e))?;
    if !about.is_dir() || about.uid() != uid() || about.mode() & 0o022 != 0 {
        return Err(wrong(&"it is no folder that this user alone may write to"));
    }
    let guardian = std::env::current_exe().ok().filter(|_| !args.once);
    let place = Place::new(folder.join(CHANGES), guardian, Some(folder.join("lock")));
    place.begin().map_err(|e| match e {
        PlaceError::Actuator(e) => failure(e.into()),
        e => Failure::Run(e.to_string()),
    })
}

type Agent = GuestAgent<Live, Proc>;

fn agent(args: &Args, hands: Option<Acting<Live>>) -> Result<Agent, Failure> {
    let eyes = Proc::new(Root::live());
    GuestAgent::new(
        args.settings(),
        &args.reserved,
        args.unpinned(),
        eyes,
        hands,
    )
    .map_err(failure)
}

pub fn run(args: &Args) -> Done {
    // Whatever is wrong is said before anything is touched.
    let mut dry = agent(args, None)?;
    let sides = dry.sides().map_err(failure)?;
    let asked = signals::take();
    if args.dry_run {
        let (said, over) = watch(args, &mut dry, asked.stop)?;
        return shown(args, &sides, &dry.lines(), over, &said);
    }
    let Begun { hands, hold, left } = begin(args)?;
    for line in left {
        say!("note: {line}");
    }
    let mut agent = agent(args, Some(hands))?;
    if args.once {
        return match watch(args, &mut agent, asked.stop) {
            Ok((said, true)) => {
                let lines = agent.lines();
                agent.leave();
                shown(args, &sides, &lines, true, &said)
            }
            // Asked to end before it was decided.
            Ok((_, false)) => ended(args, agent, None),
            Err(e) => ended(args, agent, Some(e)),
        };
    }
    if !args.json {
        output::print(&format!("{}; Ctrl-C undoes it\n", heading(&sides)));
    }
    let failed = act(args, &mut agent, asked.stop).err();
    let done = ended(args, agent, failed);
    // The guardian has nothing left to do.
    drop(hold);
    done
}

/// Waits for a period; false: it was asked to end.
fn wait(until: Instant, stop: &AtomicBool) -> bool {
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
    false
}

/// Of whom something is to be said after a watch: who was left alone, and who had ended.
#[derive(Default)]
struct Said {
    left: Vec<String>,
    gone: Vec<String>,
}

/// As many looks as a decision needs: what is to be said, and whether it was let finish.
fn watch(args: &Args, agent: &mut Agent, stop: &AtomicBool) -> Result<(Said, bool), Failure> {
    let mut said = Said::default();
    let mut next = Instant::now();
    for look in 0..=args.periods {
        if look > 0 && !wait(next, stop) {
            return Ok((said, false));
        }
        let round = agent.round().map_err(failure)?;
        said.left.extend(round.left);
        said.gone.extend(round.gone);
        next = Instant::now() + args.period;
    }
    Ok((said, true))
}

/// Looks and moves until it is asked to end.
fn act(args: &Args, agent: &mut Agent, stop: &AtomicBool) -> Done {
    let mut first = true;
    loop {
        let round = agent.round().map_err(failure)?;
        let next = Instant::now() + args.period;
        if args.json {
            if !(round.moved.is_empty() && round.left.is_empty() && round.gone.is_empty()) {
                line(&round)?;
            }
        } else {
            output::print(&text(&round));
            if first {
                output::print(&format!("{}\n", counts(&agent.lines())));
            }
        }
        first = false;
        if !wait(next, stop) {
            return Ok(());
        }
    }
}

/// Undoes everything, and says what could not be.
fn ended(args: &Args, agent: Agent, failed: Option<Failure>) -> Done {
    let forbidden = agent.lines().iter().any(|l| l.reason == Reason::Denied);
    let ended = agent.end().map_err(failure);
    if let Some(failed) = failed {
        return Err(failed);
    }
    let ended = ended?;
    if args.json {
        line(&ended)?;
    } else {
        let threads = if ended.back == 1 {
            "thread has"
        } else {
            "threads have"
        };
        output::print(&format!(
            "{} {threads} again the CPUs they had before\n",
            ended.back
        ));
        for left in &ended.left {
            output::print(&format!("  {left}\n"));
        }
    }
    match forbidden || !ended.left.is_empty() {
        true => Err(Failure::Expect),
        false => Ok(()),
    }
}

/// JSON on one line.
fn line(value: &impl Serialize) -> Done {
    let text = serde_json::to_string(value).map_err(|e| Failure::Run(e.to_string()))?;
    output::print(&format!("{text}\n"));
    Ok(())
}

/// What is shown at the end of a watch, as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    whole: String,
    compute: String,
    reserved: String,
    settings: Settings,
    /// It was let watch for as long as a decision needs.
    whole_watch: bool,
    processes: &'a [Line],
    left: &'a [String],
    gone: &'a [String],
}

fn shown(args: &Args, sides: &Sides, lines: &[Line], over: bool, said: &Said) -> Done {
    if args.json {
        output::json(&Shown {
            whole: list(&sides.whole),
            compute: list(&sides.compute),
            reserved: list(&sides.reserved),
            settings: args.settings(),
            whole_watch: over,
            processes: lines,
            left: &said.left,
            gone: &said.gone,
        })?;
    } else {
        output::print(&table(args, sides, lines));
        for sentence in said.left.iter().chain(&said.gone) {
            output::print(&format!("  {sentence}\n"));
        }
    }
    // That one has ended is nobody's failure.
    let forbidden = lines.iter().any(|l| l.reason == Reason::Denied);
    match forbidden || !said.left.is_empty() {
        true => Err(Failure::Expect),
        false => Ok(()),
    }
}

fn heading(sides: &Sides) -> String {
    let (reserved, compute) = (&sides.reserved, &sides.compute);
    let named = |cpus: &BTreeSet<u32>, verb: &str| match cpus.len() {
        1 => format!("CPU {} {verb}s", list(cpus)),
        _ => format!("CPUs {} {verb}", list(cpus)),
    };
    let is = if reserved.len() == 1 { "CPU" } else { "CPUs" };
    let are = if reserved.len() == 1 { "is" } else { "are" };
    format!(
        "{is} {} {are} reserved, {}",
        list(reserved),
        named(compute, "compute")
    )
}

/// How many there are of each kind.
fn counts(lines: &[Line]) -> String {
    let count = |f: &dyn Fn(&Line) -> bool| lines.iter().filter(|l| f(l)).count();
    let users = count(&|l| l.side.is_some());
    let system = count(&|l| matches!(l.reason, Reason::System { .. }));
    let pinned = count(&|l| l.reason == Reason::Pinned);
    let denied = count(&|l| l.reason == Reason::Denied);
    format!(
        "{users} of users' processes are watched; left alone are {system} of the system's, {pinned} pinned by others, \
         {denied} not permitted"
    )
}

/// What happened at a look; that a process starts where it computes is not told.
fn text(round: &Round) -> String {
    let mut out = String::new();
    let starts = |m: &&Moved| m.reason != Reason::Starts;
    for moved in round.moved.iter().filter(starts) {
        let _ = writeln!(
            out,
            "{} ({}) goes to {} {}: it {}",
            moved.pid,
            moved.name,
            moved.to.word(),
            moved.cpus,
            moved.why
        );
    }
    for sentence in round.left.iter().chain(&round.gone) {
        let _ = writeln!(out, "{sentence}");
    }
    out
}

/// Users' processes, a line each.
fn table(args: &Args, sides: &Sides, lines: &[Line]) -> String {
    let goes = if args.once { "IS ON" } else { "GOES TO" };
    let mut out = format!("{}\n{}\n", heading(sides), counts(lines));
    let mut users: Vec<&Line> = (lines.iter())
        .filter(|l| !matches!(l.reason, Reason::System { .. }))
        .collect();
    if users.is_empty() {
        return out;
    }
    users.sort_by_key(|l| (l.side.is_none(), l.side == Some(Side::Compute), l.pid));
    let _ = writeln!(
        out,
        "\n  {:>8}  {:<16} {:>6} {:>7}  {goes:<10} WHY",
        "PID", "NAME", "UID", "USED"
    );
    for l in users {
        let used = l.used.map_or("-".into(), |u| format!("{:.1} %", u * 100.0));
        let side = l.side.map_or("-", Side::word);
        let _ = writeln!(
            out,
            "  {:>8}  {:<16} {:>6} {used:>7}  {side:<10} {}",
            l.pid, l.name, l.uid, l.why
        );
    }
    out
}
