// SPDX-License-Identifier: GPL-2.0-only
//! `berth scenario list|show|import|check|help`.
use crate::exit::{self, Done, Failure};
use crate::output::print;
use crate::{combinations, interrupt};
use berth_experiment::plan::{Plan, plan};
use berth_experiment::simulator::{Running, Simulator, placed};
use berth_experiment::{Request, estimate, policies};
use berth_report::text::count;
use berth_scenario::model::Vm;
use berth_scenario::support::Place;
use berth_scenario::{Edit, Input, edit, help, place_of, read, rtapp, shipped, show};
use clap::Subcommand;

#[derive(clap::Args)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The ready scenarios and what each asks
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Prints a scenario
    Show {
        /// A ready scenario's name, or a file
        scenario: String,
        /// With every default filled in, and where each value comes from
        #[arg(long)]
        full: bool,
        /// Change a value first: ADDRESS=VALUE
        #[arg(long, value_name = "ADDRESS=VALUE")]
        set: Vec<String>,
        /// As JSON, as the simulator sees it: times in nanoseconds, sizes in bytes
        #[arg(long)]
        json: bool,
    },
    /// Prints an rt-app file (JSON) as a scenario
    Import {
        /// The file
        file: std::path::PathBuf,
    },
    /// Reads scenarios and says what is wrong
    Check {
        /// Ready scenarios or files
        #[arg(required = true)]
        scenarios: Vec<String>,
        /// Change a value first: ADDRESS=VALUE
        #[arg(long, value_name = "ADDRESS=VALUE")]
        set: Vec<String>,
    },
    /// The reference: tables, keys, steps, units, metrics
    Help {
        /// E.g. vm, task, steps, sends, metrics, places
        #[arg(default_value = "scenario")]
        word: String,
        /// Everything, as a page of the book
        #[arg(long)]
        markdown: bool,
    },
}

pub fn run(args: &Args) -> Done {
    match &args.verb {
        Verb::List { json } => list(*json),
        Verb::Show {
            scenario,
            full,
            set,
            json,
        } => show_one(scenario, *full, set, *json),
        Verb::Import { file } => {
            let input = Input::from_file(file)?;
            print(&rtapp::import(&input)?);
            Ok(())
        }
        Verb::Check { scenarios, set } => check(scenarios, set),
        Verb::Help { markdown: true, .. } => {
            print(&help::markdown());
            Ok(())
        }
        Verb::Help { word, .. } => {
            let mut text = help::page(word).map_err(Failure::Input)?;
            if word == "scenario" {
                let topics = help::topics()[1..].join("|");
                text.push_str(&format!("\n  More: berth scenario help {topics}\n"));
            }
            print(&text);
            Ok(())
        }
    }
}

fn list(json: bool) -> Done {
    if json {
        let rows = shipped::SHIPPED.iter().map(|(name, text)| {
            let title = shipped::find(name).and_then(|input| read(&input, &[])).map(|l| l.scenario.title);
            serde_json::json!({ "name": name, "title": title.unwrap_or_default(), "question": shipped::question(text) })
        });
        print(&format!("{:#}\n", serde_json::Value::Array(rows.collect())));
        return Ok(());
    }
    let mut out = String::new();
    for (name, text) in shipped::SHIPPED {
        out.push_str(&format!("{name}\n"));
        for line in wrap(&shipped::question(text), 94) {
            out.push_str(&format!("    {line}\n"));
        }
    }
    out.push_str(&format!(
        "\n  Run one    berth sim {}\n",
        shipped::SHIPPED[0].0
    ));
    print(&out);
    Ok(())
}

/// Words in lines of at most `width`.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines
            .last_mut()
            .filter(|l| l.is_empty() || l.chars().count() + word.chars().count() < width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_string()),
        }
    }
    lines
}

fn edits(set: &[String]) -> Vec<Edit> {
    set.iter().cloned().map(Edit::Set).collect()
}

fn show_one(what: &str, full: bool, set: &[String], json: bool) -> Done {
    let input = shipped::find(what)?;
    edit::once(set, &[])?;
    if !full && !json && set.is_empty() {
        print(&input.text);
        return Ok(());
    }
    let loaded = read(&input, &edits(set))?;
    if json {
        let text = serde_json::to_string_pretty(&loaded.scenario)
            .map_err(|e| Failure::Input(e.to_string()))?;
        print(&format!("{text}\n"));
    } else {
        print(&show::full(&loaded.facts));
    }
    Ok(())
}

fn check(scenarios: &[String], set: &[String]) -> Done {
    exit::each(scenarios, |what| {
        let input = shipped::find(what)?;
        edit::once(set, &[])?;
        let request = Request {
            scenario: what.clone(),
            set: set.to_vec(),
            ..Request::default()
        };
        let mut plan = plan(&request, &policies::shipped(), None)?;
        // All that `berth sim` would refuse before it runs anything, policies that do not load among it.
        let running = Running::new(1, interrupt::flag());
        let simulator = Simulator::prepare(&mut plan, &running)?;
        let only = plan.check(Place::Sim, false).err();
        if let Some(error) = &only
            && plan.check(Place::Lab, true).is_err()
        {
            return Err(Failure::Input(why(error)));
        }
        if only.is_none() {
            begin(&plan, &simulator)?;
        }
        let Some(scenario) = plan.variants.first().map(|v| &v.scenario) else {
            return Ok(());
        };
        let vms: u32 = scenario.vms.iter().map(|v| v.count).sum();
        print(&format!(
            "ok   {} · {} · {} · {}\n",
            input.shown,
            count(scenario.host.nr_cpus(), "CPU"),
            count(vms, "VM"),
            count(scenario.arms.len() as u32, "arm")
        ));
        if let Some(error) = only {
            print(&format!("     note: only in the lab: {}\n", why(&error)));
        }
        let least = estimate::least_seconds(&plan);
        if least >= combinations::LONG_S {
            print(&format!(
                "     note: berth sim takes {} or more\n",
                combinations::long(least)
            ));
        }
        for warning in &plan.warnings {
            print(&format!("     note: {warning}\n"));
        }
        Ok(())
    })
}

/// Whether schedulers in files begin, on the host and in guests: loading them does not tell.
fn begin(plan: &Plan, simulator: &Simulator) -> Done {
    for (v, variant) in plan.variants.iter().enumerate() {
        for (a, planned) in variant.arms.iter().enumerate() {
            let arm = &planned.arm;
            let vms = &variant.scenario.for_arm(arm).vms;
            let guests = vms.iter().map(|vm| &vm.guest.policy);
            let mut all = guests.chain([&arm.policy]);
            if !all.any(|policy| policies::is_file(policy)) {
                continue;
            }
            simulator.begins(v, a).map_err(|why| {
                // What happens inside a VM says so first, one of several by its number.
                let inside = why.strip_prefix("VM ").and_then(|w| w.split_once(": "));
                let is = |vm: &&Vm| {
                    let rest = inside.and_then(|(name, _)| name.strip_prefix(&vm.name));
                    rest.is_some_and(|r| r.is_empty() || r.parse::<i64>().is_ok_and(|n| n < 0))
                };
                let vm = vms.iter().find(is);
                let key = match vm.filter(|vm| policies::is_file(&vm.guest.policy)) {
                    Some(vm) => format!("vm.{}.guest", vm.name),
                    None => format!("arm.{}.policy", arm.name),
                };
                let at = place_of(&variant.facts, &key);
                let said = format!("arm {}: in its first millisecond: {why}", arm.name);
                placed(at, Failure::Input(said))
            })?;
        }
    }
    Ok(())
}

fn why(error: &Failure) -> String {
    match error {
        Failure::Input(why) | Failure::Run(why) => why.clone(),
        other => format!("{other:?}"),
    }
}
