// SPDX-License-Identifier: GPL-2.0-only
//! `berth explain`.
use crate::exit::{Done, Failure};
use crate::ls::HostOptions;
use crate::output;
use berth_host::explain;
use berth_host::view::View;

#[derive(clap::Args)]
pub struct Args {
    /// Its name as `berth ls` shows it, its manager's number, or its process
    vm: String,
    #[command(flatten)]
    host: HostOptions,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Done {
    let view = args.host.traced()?;
    let Some(vm) = explain::find(&view, &args.vm) else {
        return Err(Failure::Input(no_such(&view, &args.vm)));
    };
    let root = args.host.root();
    let mut explanation = explain::explain(&root, &view, vm);
    explanation.network = explain::network(&root, &vm.vm);
    if args.json {
        return output::json(&explanation);
    }
    let style = output::style();
    #[cfg(feature = "kernel")]
    let decided = crate::agent::decided(&vm.vm.name, &args.host);
    #[cfg(not(feature = "kernel"))]
    let decided = None::<String>;
    let text = berth_report::host::explain(&explanation, view.seconds, &view.notes, &style);
    output::print(&text);
    if let Some(decided) = decided {
        output::print(&format!("\n  Optimiser  {decided}\n"));
    }
    Ok(())
}

/// Not one VM of this name: it has ended, or there are several, or the nearest and what there is.
fn no_such(view: &View, name: &str) -> String {
    const SHOWN: usize = 8;
    let several = explain::namesakes(view, name);
    if !several.is_empty() {
        let names: Vec<&str> = several.iter().map(|v| v.vm.name.as_str()).collect();
        return format!(
            "{} virtual machines are called `{}`: {}; which?",
            names.len(),
            name.escape_debug(),
            names.join(", ")
        );
    }
    if view.ended.iter().any(|ended| ended.is(name)) {
        return format!(
            "virtual machine `{}` ended while it was watched: nothing is left to explain",
            name.escape_debug()
        );
    }
    let names: Vec<&str> = view.vms.iter().map(|v| v.vm.name.as_str()).collect();
    let mut text = format!("no virtual machine `{}` runs here", name.escape_debug());
    if let Some(near) = berth_scenario::diag::nearest(name, names.iter().copied()) {
        text.push_str(&format!("; did you mean `{near}`?"));
    }
    match names.len() {
        0 => text.push_str("\n  None runs at all: berth ls"),
        n if n <= SHOWN => text.push_str(&format!("\n  There are: {}", names.join(", "))),
        n => text.push_str(&format!(
            "\n  There are {n}: {}, ... (berth ls)",
            names[..SHOWN].join(", ")
        )),
    }
    for note in &view.notes {
        text.push_str(&format!("\n  {note}"));
    }
    text
}
