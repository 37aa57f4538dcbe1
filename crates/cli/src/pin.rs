// SPDX-License-Identifier: GPL-2.0-only
//! `berth pin`, `unpin` and `plan`: the whole network path of VMs on the right CPUs.
use crate::agent::{SocketOption, ask, hold, listening};
use crate::exit::{Done, Failure};
use crate::ls::{seconds, unreadable};
use crate::{output, vms};
use berth_actuator::live::Live;
use berth_affinity::{Ask, Policy};
use berth_agent::backend::Way;
use berth_agent::control::Request;
use berth_agent::keeper::Keeper;
use berth_agent::pins::would::Plan;
use berth_agent::pins::{Method, Pinned, Pinning, Pins};
use berth_agent::register::VmKey;
use berth_agent::rules::Rules;
use berth_host::discover::Scanner;
use berth_host::model::Vm;
use berth_host::network::Network;
use berth_host::root::Root;
use berth_report::say;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How it is to be bound.
#[derive(clap::Args, Clone)]
pub struct How {
    /// What goes where: auto, full (the whole path on one CPU), l2 (guest and path on two cores below one cache), paper
    /// (the VM's process on one CPU, interrupts stay), none
    #[arg(long, value_name = "POLICY", default_value = "auto", value_parser = policy)]
    policy: Policy,

    /// By what: taskset (each thread's affinity), cgroup (its CPU set), auto (that of its own cgroup, where nobody
    /// manages it)
    #[arg(long, value_name = "METHOD", default_value = "auto", value_parser = method)]
    method: Method,

    /// The CPU of its first vCPU [default: chosen by node, load, cores and what others have]
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,

    /// CPUs that are isolated (isolcpus=) may be taken
    #[arg(long)]
    isolated: bool,

    /// The path may be on the other thread of a vCPU's core
    #[arg(long)]
    smt: bool,
}

impl How {
    fn pinning(&self) -> Pinning {
        Pinning {
            ask: Ask {
                policy: self.policy,
                cpu: self.cpu,
                isolated: self.isolated,
                smt: self.smt,
            },
            method: self.method,
        }
    }
}

fn policy(word: &str) -> Result<Policy, String> {
    let words: Vec<&str> = Policy::ALL.iter().map(|p| p.word()).collect();
    Policy::of(word).ok_or(format!("one of {}", words.join(", ")))
}

fn method(word: &str) -> Result<Method, String> {
    Method::of(word).ok_or(format!("one of {}", Method::WORDS.join(", ")))
}

#[derive(clap::Args)]
#[command(after_help = PIN_EXAMPLES)]
pub struct PinArgs {
    /// Its name as `berth ls` shows it, its manager's number, or its process
    vm: String,

    #[command(flatten)]
    how: How,

    /// Only say what would be set
    #[arg(long)]
    dry_run: bool,

    /// As JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    agent: SocketOption,
}

const PIN_EXAMPLES: &str = "Examples:
  berth pin web --dry-run               what would be set, and why
  berth pin web                         its whole network path on one CPU; on two where one is too busy
  berth pin web --policy l2 --cpu 4     its vCPU on CPU 4, its path on a core below the same cache
  berth pin web --policy paper          as `taskset -ap` would: all threads of its process on one CPU
  berth unpin web                       all is what it was before

A process of its own follows what changes (threads, CPUs, interrupts) until berth unpin or berth stop, and puts
everything back when it ends, however it ends. Where an agent runs (berth start, berth daemon), that does it, and
leaves the CPUs of pinned VMs alone otherwise.";

#[derive(clap::Args)]
#[command(after_help = UNPIN_EXAMPLES)]
pub struct UnpinArgs {
    /// Its name as `berth ls` shows it, its manager's number, or its process
    #[arg(required_unless_present = "all")]
    vm: Option<String>,

    /// All that are pinned
    #[arg(long, conflicts_with = "vm")]
    all: bool,

    #[command(flatten)]
    agent: SocketOption,
}

const UNPIN_EXAMPLES: &str = "Examples:
  berth unpin web      its threads, cgroup, interrupts and queues are what they were
  berth unpin --all    those of all pinned VMs

What somebody else has set since is left alone, and said.";

#[derive(clap::Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub struct PlanArgs {
    /// These VMs [default: all]
    vms: Vec<String>,

    #[command(flatten)]
    how: How,

    /// Watch how busy CPUs are for so many seconds first; a running agent has watched for five
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    over: Duration,

    /// A folder with a recorded `proc` and `sys`, instead of this machine
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,

    /// As JSON: also each value that would be set
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    agent: SocketOption,
}

const PLAN_EXAMPLES: &str = "Examples:
  berth plan                         where all VMs would go together, and their network paths
  berth plan web db --policy l2      these two
  berth plan --json | jq .vms        every thread, interrupt and queue with its CPU

Nothing is set. Where an agent runs, VMs that are pinned and not named stay where they are, and keep their CPUs.";

fn key(vm: &Vm) -> VmKey {
    VmKey {
        pid: vm.pid,
        start: vm.start,
    }
}

/// The VMs of a host, and those of these names; none: all.
fn found(root: &Root, names: &[String]) -> Result<(Keeper, Vec<std::sync::Arc<Vm>>), Failure> {
    let mut keeper = Keeper::new(root.clone(), Rules::default());
    keeper.look().map_err(|e| unreadable(root, &e))?;
    let all = keeper.snapshot().vms.clone();
    let chosen = match names.is_empty() {
        true => all,
        false => {
            let one = |name: &String| vms::named(keeper.snapshot(), name).cloned();
            names.iter().map(one).collect::<Result<_, _>>()?
        }
    };
    Ok((keeper, chosen))
}

/// By the agent, which knows what is pinned, or here. `agent`: its socket; none: this is not the host itself.
fn planned(
    root: &Root,
    names: &[String],
    pinning: &Pinning,
    over: Duration,
    agent: Option<&SocketOption>,
) -> Result<Plan, Failure> {
    let (keeper, chosen) = found(root, names)?;
    let vms: Vec<VmKey> = chosen.iter().map(|vm| key(vm)).collect();
    if let Some(agent) = agent {
        let request = Request::Plan {
            vms: vms.clone(),
            pinning: pinning.clone(),
        };
        let asked = match listening(agent.path()) {
            Ok(true) => ask(agent.path(), &request).map(Some),
            Ok(false) => Ok(None),
            Err(e) => Err(e),
        };
        match asked {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let none = || Failure::Run("the agent does not say what it would do".into());
                return answer.plan.ok_or_else(none);
            }
            // It does not tell everybody, and one of an older version does not know the question.
            Err(Failure::Input(why)) => {
                say!(
                    "note: planned as if nothing were pinned, since the agent does not say ({why})"
                );
            }
            Err(e) => return Err(e),
        }
    }
    let mut pins: Pins<Live> = Pins::new(root.clone());
    pins.watch();
    root.sleep(over.max(Duration::from_millis(500)));
    pins.watch();
    Ok(pins.would(&keeper, &vms, pinning, BTreeMap::new()))
}

pub fn plan(args: &PlanArgs) -> Done {
    let root = args.root.as_deref().map_or_else(Root::live, Root::at);
    let plan = planned(
        &root,
        &args.vms,
        &args.how.pinning(),
        args.over,
        args.root.is_none().then_some(&args.agent),
    )?;
    match args.json {
        true => output::json(&plan)?,
        false => output::print(&table(&plan)),
    }
    match plan.vms.iter().any(|vm| vm.refused.is_some()) {
        true => Err(Failure::Expect),
        false => Ok(()),
    }
}

/// All VMs, a line each, then what there is to say of them.
fn table(plan: &Plan) -> String {
    if plan.vms.is_empty() {
        return "no virtual machines run here\n".into();
    }
    let mut out = format!(
        "  {:<24} {:<6} {:<12} {:<12} {:<24} {:>6}\n",
        "VM", "POLICY", "VCPUS ON", "PATH ON", "NETWORK", "VALUES"
    );
    for vm in &plan.vms {
        let list = |cpus: &[u32]| match cpus.is_empty() {
            true => "-".to_string(),
            false => cpus
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(","),
        };
        let (acts, on, path) = match &vm.pinned {
            Some(p) => {
                let path = if p.seat.path.is_empty() {
                    &p.seat.vcpus
                } else {
                    &p.seat.path
                };
                (p.acts.word(), list(&p.seat.vcpus), list(path))
            }
            None => ("-", "-".into(), "-".into()),
        };
        let network = vm.network.as_ref().map_or("-".into(), route);
        let _ = writeln!(
            out,
            "  {:<24} {acts:<6} {on:<12} {path:<12} {network:<24} {:>6}",
            vm.vm,
            vm.values.len()
        );
    }
    for vm in &plan.vms {
        let mut lines = Vec::new();
        lines.extend(vm.refused.clone());
        if let Some(p) = &vm.pinned {
            lines.push(p.why.clone());
            lines.extend(remarks(p));
        }
        // Of one that is placed it is among what is left.
        if let (None, Some(network)) = (&vm.pinned, &vm.network) {
            lines.extend(network.not_seen());
        }
        let _ = writeln!(out, "\n  {}", vm.vm);
        for line in lines {
            let _ = writeln!(out, "    {line}");
        }
    }
    if plan.networks.balance.is_some() {
        out += "\n  irqbalance runs: it is told to leave alone the interrupts that are set\n";
    }
    out
}

/// `tap0 > br0 > eth0`.
fn route(network: &Network) -> String {
    let one = |link: &berth_host::network::Link| {
        let mut parts = vec![link.name.clone()];
        parts.extend(link.bridge.clone());
        let uplinks = link.uplinks.join("+");
        parts.extend(Some(uplinks).filter(|u| !u.is_empty() && *u != link.name));
        parts.join(" > ")
    };
    match network.links.is_empty() {
        true => "-".into(),
        false => network.links.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

/// What an operator should know of a pin; what is left of a kind is told once with its number.
fn remarks(pinned: &Pinned) -> Vec<String> {
    let mut lines: Vec<String> = pinned.because.iter().cloned().collect();
    lines.extend(pinned.warnings.iter().map(|w| format!("warning: {w}")));
    lines.extend(pinned.complaints.iter().map(|c| format!("not done: {c}")));
    lines.extend(pinned.left.iter().cloned());
    lines
}

pub fn pin(args: &PinArgs) -> Done {
    let root = Root::live();
    let pinning = args.how.pinning();
    let names = [args.vm.clone()];
    if args.dry_run {
        let plan = planned(
            &root,
            &names,
            &pinning,
            Duration::from_secs(1),
            Some(&args.agent),
        )?;
        if let Some(why) = plan.vms.iter().find_map(|vm| vm.refused.clone()) {
            return Err(Failure::Input(format!("{}: {why}", args.vm.escape_debug())));
        }
        if args.json {
            return output::json(&plan);
        }
        output::print(&table(&plan));
        for vm in &plan.vms {
            let lines = vm
                .values
                .iter()
                .map(|(what, value)| format!("    {what}: {value}\n"));
            output::print(&format!("\n  would be set\n{}", lines.collect::<String>()));
        }
        return Ok(());
    }
    let (_, chosen) = found(&root, &names)?;
    let socket = args.agent.path();
    if !listening(socket)? {
        hold(socket, Way::Cgroup)?;
    }
    let request = Request::Pin {
        vm: key(&chosen[0]),
        pinning,
    };
    let answer = ask(socket, &request)?;
    let Some(pinned) = answer.pinned else {
        return Err(Failure::Run("the agent does not say what it did".into()));
    };
    match args.json {
        true => output::json(&pinned)?,
        false => {
            output::print(&text(&pinned));
            output::print(&format!(
                "\n  Undo     berth unpin {}\n  Look     berth status\n",
                pinned.vm
            ));
        }
    }
    match pinned.complaints.is_empty() {
        true => Ok(()),
        false => Err(Failure::Expect),
    }
}

/// One pin, for people.
pub fn text(pinned: &Pinned) -> String {
    let list = |cpus: &[u32]| {
        cpus.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let seat = &pinned.seat;
    let what = match (pinned.acts, seat.vcpus.is_empty()) {
        (_, true) => "is not bound".to_string(),
        (Policy::Paper, _) => format!(
            "has all threads of its process on CPU {}",
            list(&seat.vcpus)
        ),
        (_, _) if seat.path.is_empty() => {
            format!("has its whole path on CPU {}", list(&seat.vcpus))
        }
        _ => format!(
            "has its vCPUs on CPUs {}, its path on {}",
            list(&seat.vcpus),
            list(&seat.path)
        ),
    };
    let by = match pinned.policy == pinned.acts {
        true => pinned.policy.word().to_string(),
        false => format!("{}, now {}", pinned.policy, pinned.acts),
    };
    let rule = pinned.rule.as_deref();
    let rule = rule.map_or(String::new(), |name| {
        format!(", as the rule for {name} says")
    });
    let mut out = format!(
        "{} {what} ({by}, by {}{rule}): {} values set\n  {}\n",
        pinned.vm,
        pinned.method.word(),
        pinned.set,
        pinned.why
    );
    for line in remarks(pinned) {
        let _ = writeln!(out, "  {line}");
    }
    out
}

pub fn unpin(args: &UnpinArgs) -> Done {
    let socket = args.agent.path();
    let nothing = |what: &str| {
        output::print(&format!("nothing to undo: {what}\n"));
        Ok(())
    };
    let vm = match &args.vm {
        None => None,
        Some(name) => {
            let root = Root::live();
            let snapshot = Scanner::new(root.clone())
                .scan()
                .map_err(|e| unreadable(&root, &e))?;
            Some(key(vms::named(&snapshot, name)?))
        }
    };
    if !listening(socket)? {
        return nothing(
            "no agent of Berth is running, so nothing is pinned (after a kill: berth restore)",
        );
    }
    let answer = ask(socket, &Request::Unpin { vm })?;
    let (undone, complaints) = answer.unpinned.unwrap_or_default();
    match (undone, &args.vm) {
        (0, Some(name)) => return nothing(&format!("{} is not pinned", name.escape_debug())),
        (0, None) => return nothing("no VM is pinned"),
        (_, Some(name)) => {
            output::print(&format!("{} is what it was before\n", name.escape_debug()))
        }
        (n, None) => output::print(&format!("{n} VMs are what they were before\n")),
    }
    for complaint in &complaints {
        output::print(&format!("  {complaint}\n"));
    }
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(Failure::Expect),
    }
}
