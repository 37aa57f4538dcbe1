// SPDX-License-Identifier: GPL-2.0-only
//! `berth optimise --dry-run`: what the optimiser would do on a host, and why.
use crate::agent::parameters;
use crate::exit::{Done, Failure};
use crate::ls::{seconds, unreadable};
use crate::promises::Promises;
use crate::{interrupt, output};
use berth_actuator::live::Live;
use berth_agent::backend::Decided;
use berth_agent::backend::cgroup::manager::Manager;
use berth_agent::backend::cgroup::parameters::settings;
use berth_agent::config;
use berth_agent::keeper::Keeper;
use berth_agent::rules::{Rules, fits};
use berth_host::root::Root;
use berth_optimiser::{Decision, Observation, Optimiser, Settings};
use berth_report::progress::Bar;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Nothing is set, it is only said (to act: berth start optimiser)
    #[arg(long, required = true)]
    dry_run: bool,

    /// Watch for so many seconds; the last decision is shown
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    over: Duration,

    #[command(flatten)]
    promises: Promises,

    /// Promises and settings of an agent's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// A setting of the optimiser: NAME=VALUE (docs/optimiser.md)
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// Write what is seen there, an observation as JSON per line
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Decide on what was recorded so, here or on another machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["over", "record", "config", "root"])]
    from: Option<PathBuf>,

    /// A folder with a recorded `proc` and `sys`, instead of this machine
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,

    /// The decision as JSON
    #[arg(long)]
    json: bool,

    /// No progress bar
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "Examples:
  berth optimise --dry-run --target 'web*=0.95'     what each VM would be set to, and why
  berth optimise --dry-run --config config.toml     with the promises of an agent's configuration
  berth optimise --dry-run --record seen.json       and what was seen is kept
  berth optimise --dry-run --from seen.json         decided again, on any machine";

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

pub fn run(args: &Args) -> Done {
    let (rules, mut set) = configured(args)?;
    set.extend(parameters(&args.set)?);
    let settings = settings(&set).map_err(Failure::Input)?;
    let would = match &args.from {
        Some(file) => replayed(file, settings)?,
        None => watched(args, rules, settings)?,
    };
    if args.json {
        return output::json(&would);
    }
    output::print(&text(&would));
    Ok(())
}

/// What would be done.
#[derive(serde::Serialize)]
struct Would {
    /// What was seen last.
    seen: Observation,
    /// The last decision.
    decision: Decision,
    /// What each VM would be set to by then.
    vms: BTreeMap<String, Decided>,
    warnings: Vec<String>,
}

/// What is promised, and the settings of the configuration.
fn configured(args: &Args) -> Result<(Rules, BTreeMap<String, String>), Failure> {
    let mut rules = Rules::default();
    let mut set = BTreeMap::new();
    if let Some(file) = &args.config {
        let config = config::read(file).map_err(|e| Failure::Input(e.to_string()))?;
        rules = config.rules;
        let ours = config
            .choice
            .filter(|c| c.policy == berth_agent::backend::cgroup::OPTIMISER);
        set = ours.map(|c| c.set).unwrap_or_default();
    }
    // What the command line says comes first.
    let mut promises = args.promises.all()?;
    promises.append(&mut rules.promises);
    rules.promises = promises;
    Ok((rules, set))
}

fn watched(args: &Args, rules: Rules, settings: Settings) -> Result<Would, Failure> {
    let root = args.root.as_deref().map_or_else(Root::live, Root::at);
    let mut file =
        match &args.record {
            Some(path) => Some(std::fs::File::create_new(path).map_err(|e| {
                Failure::Input(format!("{} cannot be written: {e}", path.display()))
            })?),
            None => None,
        };
    let eyes = root.is_live().then(Live::new);
    let mut manager =
        Manager::dry(root.clone(), settings, eyes).map_err(|e| Failure::Input(e.to_string()))?;
    let promised: Vec<String> = rules.promises.iter().map(|p| p.name.clone()).collect();
    let mut keeper = Keeper::new(root.clone(), rules);
    keeper.watch_classes(root.clone());
    let visible = !args.quiet && std::io::stderr().is_terminal();
    let bar = Bar::new(args.over.as_millis() as u64, visible);
    bar.say("watching");
    let start = Instant::now();
    let mut kept = None;
    // A reading a second: the first says nothing yet, with the second there are rates.
    while start.elapsed() < args.over.max(Duration::from_millis(2500)) {
        if interrupt::flag().load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        keeper.look().map_err(|e| unreadable(&root, &e))?;
        manager.look(&keeper);
        let seen = manager.seen().map(|s| s.at_ns);
        if seen != kept
            && let (Some(file), Some(seen)) = (&mut file, manager.seen())
        {
            let line = serde_json::to_string(seen).map_err(|e| Failure::Run(e.to_string()))?;
            writeln!(file, "{line}")
                .map_err(|e| Failure::Run(format!("what is seen cannot be written: {e}")))?;
        }
        kept = seen;
        bar.at(start.elapsed().as_millis() as u64);
        std::thread::sleep(LOOK);
    }
    drop(bar);
    let mut warnings = manager.warnings().to_vec();
    let vms = &keeper.snapshot().vms;
    let nobody = |name: &&String| !vms.iter().any(|vm| fits(name, &vm.name));
    for name in promised.iter().filter(nobody) {
        warnings.push(format!(
            "no VM is called {}, to which something is promised (berth ls)",
            name.escape_debug()
        ));
    }
    match (manager.seen(), manager.decision()) {
        (Some(seen), Some(decision)) => Ok(Would {
            seen: seen.clone(),
            decision: decision.clone(),
            vms: manager.all_decided(),
            warnings,
        }),
        _ => Err(Failure::Run(match warnings.first() {
            Some(why) => format!("nothing could be decided: {why}"),
            None => "nothing was seen of this host in that time: watch longer (--over 10)".into(),
        })),
    }
}

fn replayed(file: &Path, settings: Settings) -> Result<Would, Failure> {
    let wrong = |what: String| Failure::Input(format!("{}: {what}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    let mut optimiser = Optimiser::new(settings).map_err(|e| Failure::Input(e.to_string()))?;
    let mut last = None;
    for (line, text) in text
        .lines()
        .enumerate()
        .filter(|(_, t)| !t.trim().is_empty())
    {
        let wrong = |e: &dyn std::fmt::Display| wrong(format!("line {}: {e}", line + 1));
        let seen: Observation = serde_json::from_str(text).map_err(|e| wrong(&e))?;
        let decision = optimiser.observe(&seen).map_err(|e| wrong(&e))?;
        last = decision.map(|d| (seen, d)).or(last);
    }
    let (seen, decision) = last.ok_or_else(|| wrong("there is no observation in it".into()))?;
    let one = |name: &String| Some((name.clone(), Decided::of(&optimiser, &decision, name)?));
    Ok(Would {
        vms: seen.vms.iter().filter_map(|vm| one(&vm.name)).collect(),
        seen,
        decision,
        warnings: Vec::new(),
    })
}

fn text(would: &Would) -> String {
    let Would {
        seen,
        decision,
        vms,
        warnings,
    } = would;
    let mut out = format!(
        "{} CPUs, {:.2} of them to be divided; what is no VM gets {:.2}\n",
        decision.online, decision.capacity, decision.host
    );
    if let Some(pressure) = decision.pressure {
        let _ = writeln!(
            out,
            "some thread waits for a CPU for {:.0} % of the time",
            pressure * 100.0
        );
    }
    if seen.vms.is_empty() {
        out += "no virtual machines run here\n";
    } else {
        let _ = writeln!(
            out,
            "\n  {:<24} {:<11} {:>9} {:>6} {:>7} {:>6}  BOUND BY",
            "VM", "SERVICE", "GUARANTEE", "LIMIT", "WANTS", "GETS"
        );
    }
    for a in &decision.allotments {
        let promise = seen
            .vms
            .iter()
            .find(|vm| vm.name == a.vm)
            .map(|vm| vm.promise)
            .unwrap_or_default();
        let limit = promise.limit.map_or("-".into(), |l| format!("{l:.2}"));
        let _ = writeln!(
            out,
            "  {:<24} {:<11} {:>9.2} {limit:>6} {:>7.2} {:>6.2}  {}",
            a.vm,
            promise.service.word(),
            promise.guarantee,
            a.demand,
            a.share,
            serde_json::to_string(&a.bound)
                .unwrap_or_default()
                .trim_matches('"')
        );
    }
    for misfit in &decision.misfits {
        let _ = writeln!(out, "\n  {misfit}");
    }
    for (vm, decided) in vms {
        let set = &decided.setting;
        let cpus = set
            .cpus
            .as_ref()
            .map_or("all CPUs".into(), |c| format!("CPUs {c}"));
        let cap = set
            .cap
            .map_or(String::new(), |c| format!(", at most {c:.2} CPUs"));
        let _ = writeln!(
            out,
            "\n  {vm} would have {cpus}, weight {}{cap}",
            set.weight
        );
        for reason in &decided.reasons {
            let _ = writeln!(out, "    {reason}");
        }
    }
    for warning in warnings {
        let _ = writeln!(out, "\n  note: {warning}");
    }
    out
}
