// SPDX-License-Identifier: GPL-2.0-only
//! `berth policy list|show|check`.
use crate::exit::{self, Done};
use crate::interrupt;
use crate::options::LoaderOptions;
use crate::output;
use berth_experiment::simulator::Running;
use berth_experiment::trial::{Trial, WHAT, trial};
use berth_experiment::{foreign, policies};
use berth_policy::policy::{LoadOptions, Policy};
use berth_policy::table::{FUNCS, Home, Kind};
use berth_report::text::{count, left, width};
#[cfg(feature = "kernel")]
use berth_scenario::model::Loader;
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
        /// As JSON
        #[arg(long, conflicts_with = "markdown")]
        json: bool,
        /// With all parameters, as a page of the book
        #[arg(long)]
        markdown: bool,
    },
    /// What a policy may use in the simulator: helpers, kernel functions, maps, fields
    Supported {
        /// Kernel functions and helpers as JSON
        #[arg(long, conflicts_with = "markdown")]
        json: bool,
        /// As a page of the book
        #[arg(long)]
        markdown: bool,
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
        #[command(flatten)]
        loader: LoaderOptions,
    },
    /// Compiles and loads policies, runs init and a second of a small host, and says what is wrong
    #[command(after_help = CHECKS)]
    Check {
        /// .bpf.c or .bpf.o files, or shipped names
        #[arg(required = true)]
        policies: Vec<String>,
        /// The kernel line they are meant for
        #[arg(long, value_name = "VERSION", default_value = "7.2")]
        kernel: String,
        #[command(flatten)]
        loader: LoaderOptions,
    },
    /// Links the objects of a scheduler that has several source files to one, as libbpf does
    #[cfg(feature = "kernel")]
    #[command(after_help = LINKS)]
    Link {
        /// .bpf.c or .bpf.o files
        #[arg(required = true)]
        files: Vec<String>,
        /// The object that is made
        #[arg(long, short, value_name = "FILE")]
        output: std::path::PathBuf,
        /// Look for headers here first
        #[arg(short = 'I', long = "include", value_name = "FOLDER")]
        include: Vec<String>,
        /// Compile with the scx project's headers of this version, e.g. 1.0.14, which cargo fetches
        #[arg(long, value_name = "VERSION")]
        headers: Option<String>,
    },
}

const CHECKS: &str = "Examples:
  berth policy check my.bpf.c
  berth policy check main.bpf.o --rodata slice_ns=5ms --ops-flags ENQ_LAST
  berth policy check old.bpf.c --headers 1.0.14
  berth policy check scx_mine/src/bpf/main.bpf.c -I scx/scheds/include";

#[cfg(feature = "kernel")]
const LINKS: &str = "Examples:
  berth policy link main.bpf.c lib/pmu.bpf.c -o mine.bpf.o
  berth sim noisy-neighbour --policy mine.bpf.o";

pub fn run(args: &Args) -> Done {
    match &args.verb {
        Verb::List { markdown: true, .. } => book(),
        Verb::List { json, .. } => list(*json),
        Verb::Supported { markdown: true, .. } => {
            output::print(&berth_policy::supported::page());
            Ok(())
        }
        Verb::Supported { json, .. } => supported(*json),
        Verb::Show {
            policy,
            source: true,
            ..
        } => source(policy),
        Verb::Show {
            policy,
            json,
            loader,
            ..
        } => show(policy, *json, loader),
        Verb::Check {
            policies,
            kernel,
            loader,
        } => check(policies, kernel, loader),
        #[cfg(feature = "kernel")]
        Verb::Link {
            files,
            output,
            include,
            headers,
        } => {
            let loader = Loader {
                include: include.clone(),
                headers: headers.clone(),
                ..Loader::default()
            };
            link(files, output, &loader)
        }
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
    text.push_str("\n  Parameters of one   berth policy show NAME\n  Your own            cp policies/vmfair.bpf.c \
     my.bpf.c; berth policy check my.bpf.c\n");
    output::print(&text);
    Ok(())
}

fn supported(as_json: bool) -> Done {
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
    let lacking = berth_policy::supported::lacking_maps();
    let lacking = lacking
        .iter()
        .map(|(number, name)| format!("{name} ({number})"));
    let lacking = lacking.collect::<Vec<_>>().join(", ");
    text.push_str(&format!(
        "Map types that kernels have and the simulator lacks\n  {lacking}\n\
         Kernel functions that a scheduler might call and the simulator lacks\n  {}\n",
        berth_policy::supported::lacking_functions().join(", ")
    ));
    output::print(&text);
    Ok(())
}

/// All shipped policies with their parameters, in Markdown.
fn book() -> Done {
    let mut text = String::from("# Policies\n\nGenerated by `berth policy list --markdown`.\n");
    for builtin in berth_builtin::all() {
        let policy = policies::load(builtin.name, &LoadOptions::default())?;
        let kind = if builtin.study { "study" } else { "supported" };
        let help = policies::description(&policy).1;
        text.push_str(&format!("\n## {} ({kind})\n\n{help}.\n", builtin.name));
        for p in policy.presets() {
            text.push_str(&format!("\nPreset `{}`: {}.\n", p.name, p.help));
        }
        if policy.params().is_empty() {
            continue;
        }
        text.push_str("\n| parameter | default | from | to | | |\n|---|---|---|---|---|---|\n");
        for p in policy.params() {
            let live = if p.live { "live" } else { "at load" };
            let (name, default, help) = (&p.name, p.written(p.default), p.help.replace('|', "\\|"));
            let range = if p.words.is_empty() {
                format!("{} | {}", p.min, p.max)
            } else {
                format!("{} |", p.words.join(", "))
            };
            text.push_str(&format!(
                "| `{name}` | {default} | {range} | {live} | {help} |\n"
            ));
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

fn show(name: &str, as_json: bool, loader: &LoaderOptions) -> Done {
    let policy = match policies::is_file(name) {
        true => {
            let object = foreign::object(name, &loader.compiling())?;
            policies::from_object(name, &object, &LoadOptions::default())?
        }
        false => policies::load(name, &LoadOptions::default())?,
    };
    let (charges, help) = policies::description(&policy);
    let memory = policies::memory(&policy);
    if as_json {
        json(&serde_json::json!({
            "name": name, "help": help, "charges": charges, "hash": policy.hash(), "bytes": memory,
            "parameters": policy.params(), "presets": policy.presets(),
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
        "  object   {}\n  ops      {}\n  keeps    {} bytes of each thread, {} of each CPU, {} besides\n",
        policy.hash(),
        ops(&policy),
        memory.thread,
        memory.cpu,
        memory.once
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
            let range = if p.words.is_empty() {
                format!("{} to {}", p.min, p.max)
            } else {
                p.words.join(", ")
            };
            let range = format!("{}  ({range}{live})", p.written(p.default));
            text.push_str(&format!(
                "  {}  {range}\n  {}  {}\n",
                left(&p.name, wide),
                left("", wide),
                p.help
            ));
        }
    }
    if !policy.presets().is_empty() {
        text.push_str("\n  Presets (preset = \"NAME\" in an arm)\n\n");
    }
    let wide = policy.presets().iter().map(|p| width(&p.name)).max();
    for p in policy.presets() {
        let wide = wide.unwrap_or(0);
        text.push_str(&format!("  {}  {}\n", left(&p.name, wide), p.help));
        if !p.values.is_empty() {
            let values: Vec<_> = p.values.iter().map(|(k, v)| format!("{k}={v}")).collect();
            text.push_str(&format!("  {}  {}\n", left("", wide), values.join(" ")));
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

fn check(names: &[String], kernel: &str, loader: &LoaderOptions) -> Done {
    let running = Running::new(1, interrupt::flag());
    if !loader.edits().is_empty() && !names.iter().any(|name| policies::is_file(name)) {
        return Err(exit::Failure::Input(
            "--rodata, --ops-flags, --resize, --include and --headers are for schedulers in files, and none is named"
                .into(),
        ));
    }
    exit::each(names, |name| {
        let Trial { policy, notes } = trial(name, &loader.edits(), kernel, &running)?;
        let functions = policy.program().funcs.len();
        let parameters = policy.params().len();
        output::print(&format!(
            "ok   {name} · kernel {kernel} · {}, {} · {}\n     ran {WHAT}\n",
            count(functions as u32, "function"),
            count(parameters as u32, "parameter"),
            &policy.hash()[..16.min(policy.hash().len())]
        ));
        for note in notes {
            output::print(&format!("     note: {note}\n"));
        }
        Ok(())
    })
}

/// Compiles what is not compiled and links all.
#[cfg(feature = "kernel")]
fn link(files: &[String], out: &std::path::Path, loader: &Loader) -> Done {
    let failed =
        |e: std::io::Error| exit::Failure::Run(format!("cannot write {}: {e}", out.display()));
    may_be_written(files, out)?;
    let beside = out.with_extension(format!("{}.link", std::process::id()));
    std::fs::create_dir(&beside).map_err(failed)?;
    let linked = (|| {
        let mut objects = Vec::new();
        for (i, file) in files.iter().enumerate() {
            let path = beside.join(format!("{i}.bpf.o"));
            std::fs::write(&path, foreign::object(file, loader)?).map_err(failed)?;
            objects.push(path);
        }
        let whole = beside.join("all.bpf.o");
        berth_scx::link(&whole, &objects).map_err(|why| {
            let named = (0..).zip(files).fold(why, |why, (i, file)| {
                why.replace(
                    &beside.join(format!("{i}.bpf.o")).display().to_string(),
                    file,
                )
            });
            exit::Failure::Input(format!("these do not fit together: {named}"))
        })?;
        std::fs::rename(&whole, out).map_err(failed)
    })();
    // What is left in it is of no use.
    let _ = std::fs::remove_dir_all(&beside);
    linked?;
    let object = std::fs::read(out).map_err(failed)?;
    let name = berth_policy::loader::scheduler(&object);
    let name = name.map_or("no scheduler in it".to_string(), |n| {
        format!("scheduler {n}")
    });
    output::print(&format!(
        "{} · {} · {name}\n",
        out.display(),
        count(files.len() as u32, "file")
    ));
    Ok(())
}

/// What is to be linked is not written over, nor a source, nor anything that is no file; an object of before may be.
#[cfg(feature = "kernel")]
fn may_be_written(files: &[String], out: &std::path::Path) -> Done {
    let refused = |why: &str| {
        Err(exit::Failure::Input(format!(
            "--output {}: {why}\n  Name a file for the linked object, for instance all.bpf.o",
            out.display()
        )))
    };
    if out.extension().is_some_and(|e| e == "c" || e == "h") {
        return refused("that is the name of a source");
    }
    let Ok(there) = std::fs::metadata(out) else {
        return Ok(());
    };
    if !there.is_file() {
        return refused("that is there, and no file");
    }
    let same = |file: &String| std::fs::canonicalize(file).ok() == std::fs::canonicalize(out).ok();
    if files.iter().any(same) {
        return refused("that is one of the files to link");
    }
    let start =
        std::fs::read(out).map_err(|e| exit::Failure::Run(format!("{}: {e}", out.display())))?;
    if !start.is_empty() && !start.starts_with(b"\x7fELF") {
        return refused("that is there, and no object");
    }
    Ok(())
}
