// SPDX-License-Identifier: GPL-2.0-only
//! `berth policy list|show|check`.
use crate::exit::{Done, Failure};
use crate::{output, policies};
use berth_policy::policy::{LoadOptions, Policy};
use berth_policy::table::{FUNCS, Home, Kind};
use berth_report::text::{left, width};
use clap::Subcommand;

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The shipped policies
    List {
        /// The kernel functions that a policy may call in the simulator, instead
        #[arg(long)]
        kfuncs: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// A policy's idea and its parameters
    Show {
        /// A shipped policy's name, or a .bpf.c or .bpf.o file
        policy: String,
        /// Its C source instead (shipped policies)
        #[arg(long, conflicts_with = "json")]
        source: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Compiles and loads policies, and says what is wrong
    Check {
        /// .bpf.c or .bpf.o files, or shipped names
        #[arg(required = true)]
        policies: Vec<String>,
        /// The kernel line they are meant for
        #[arg(long, value_name = "VERSION", default_value = "7.2")]
        kernel: String,
    },
}

pub fn run(args: &Args) -> Done {
    match &args.verb {
        Verb::List { kfuncs: true, json } => kfuncs(*json),
        Verb::List {
            kfuncs: false,
            json,
        } => list(*json),
        Verb::Show {
            policy,
            source: true,
            ..
        } => source(policy),
        Verb::Show { policy, json, .. } => show(policy, *json),
        Verb::Check { policies, kernel } => check(policies, kernel),
    }
}

fn json(value: &serde_json::Value) {
    output::print(&format!("{value:#}\n"));
}

fn list(as_json: bool) -> Done {
    let mut rows = Vec::new();
    for builtin in berth_builtin::all() {
        let policy = policies::load(builtin.name, &LoadOptions::default())?;
        rows.push((builtin, policies::description(&policy).1));
    }
    if as_json {
        let rows = rows
            .iter()
            .map(|(b, help)| serde_json::json!({ "name": b.name, "study": b.study, "help": help }));
        json(&rows.collect());
        return Ok(());
    }
    let wide = rows.iter().map(|(b, _)| width(b.name)).max().unwrap_or(0);
    let mut text = String::new();
    for (builtin, help) in &rows {
        let kind = if builtin.study { "study" } else { "supported" };
        text.push_str(&format!(
            "{}  {kind:<9}  {help}\n",
            left(builtin.name, wide)
        ));
    }
    text.push_str("\n  Parameters of one   berth policy show NAME\n  Your own            cp policies/vmfair.bpf.c my.bpf.c; berth policy check my.bpf.c\n");
    output::print(&text);
    Ok(())
}

fn kfuncs(as_json: bool) -> Done {
    let home = |home: Home| match home {
        Home::Inline | Home::Runtime => "runtime",
        Home::Kernel => "kernel model",
    };
    if as_json {
        let rows = FUNCS.iter().map(
            |f| serde_json::json!({ "name": f.name, "prototype": f.proto, "home": home(f.home) }),
        );
        json(&rows.collect());
        return Ok(());
    }
    let mut text = String::new();
    for (title, helpers) in [("Helpers", true), ("Kernel functions", false)] {
        text.push_str(&format!("{title}\n"));
        for f in FUNCS
            .iter()
            .filter(|f| matches!(f.kind, Kind::Helper(_)) == helpers)
        {
            let version = |(major, minor): (u16, u16)| format!("{major}.{minor}");
            let mut when = String::new();
            if f.since != (0, 0) {
                when = format!("  (from {})", version(f.since));
            }
            if f.until != (0, 0) {
                when.push_str(&format!("  (before {})", version(f.until)));
            }
            text.push_str(&format!("  {}{when}\n", f.proto));
        }
    }
    output::print(&text);
    Ok(())
}

fn source(name: &str) -> Done {
    match berth_builtin::find(name) {
        Some(builtin) => {
            output::print(builtin.source);
            Ok(())
        }
        None => Err(policies::unknown(name)),
    }
}

fn show(name: &str, as_json: bool) -> Done {
    let policy = policies::load(name, &LoadOptions::default())?;
    let (charges, help) = policies::description(&policy);
    if as_json {
        json(&serde_json::json!({
            "name": name, "help": help, "charges": charges, "hash": policy.hash(), "parameters": policy.params(),
        }));
        return Ok(());
    }
    let mut text = format!("{name}: {help}\n");
    if !charges.is_empty() {
        let words = match charges.as_str() {
            "task" => "the task clock, without interrupts and stolen time",
            "wall" => "wall time, with interrupts and stolen time",
            "slice" => "what is gone of the slice",
            other => other,
        };
        text.push_str(&format!("  charges  {words}\n"));
    }
    text.push_str(&format!(
        "  object   {}\n  ops      {}\n",
        policy.hash(),
        ops(&policy)
    ));
    if policy.params().is_empty() {
        text.push_str("\n  It has no parameters.\n");
    } else {
        text.push_str("\n  Parameters (--set policy.NAME=VALUE, or set = { \"policy.NAME\" = VALUE } in an arm)\n\n");
        let wide = policy
            .params()
            .iter()
            .map(|p| width(&p.name))
            .max()
            .unwrap_or(0);
        for p in policy.params() {
            let live = if p.live { ", live" } else { "" };
            let range = format!("{} {}  ({} to {}{live})", p.default, p.unit, p.min, p.max);
            text.push_str(&format!(
                "  {}  {range}\n  {}  {}\n",
                left(&p.name, wide),
                left("", wide),
                p.help
            ));
        }
    }
    output::print(&text);
    Ok(())
}

/// The callbacks of its scheduler, or of each if the object has several.
fn ops(policy: &Policy) -> String {
    let one = |var: &berth_policy::ir::OpsVar| {
        var.ops
            .iter()
            .map(|(op, _)| op.name())
            .collect::<Vec<_>>()
            .join(" ")
    };
    policy
        .program()
        .structs
        .iter()
        .map(one)
        .collect::<Vec<_>>()
        .join("; ")
}

fn check(names: &[String], kernel: &str) -> Done {
    let options = policies::options(kernel)?;
    for name in names {
        let policy = policies::load(name, &options)?;
        if policy.program().structs.is_empty() {
            return Err(Failure::Input(format!(
                "policy {name}: it defines no struct sched_ext_ops"
            )));
        }
        let functions = policy.program().funcs.len();
        let parameters = policy.params().len();
        output::print(&format!(
            "ok   {name} · kernel {kernel} · {functions} functions, {parameters} parameters · {}\n",
            &policy.hash()[..16.min(policy.hash().len())]
        ));
    }
    Ok(())
}
