// SPDX-License-Identifier: GPL-2.0-only
//! `berth doctor`.
use crate::exit::{Done, Failure};
use crate::{ls, output};
use berth_host::discover::Scanner;
use berth_host::doctor;
use berth_host::machine::Machine;
use berth_host::root::Root;
use berth_host::view;
use std::path::PathBuf;
use std::time::Duration;

/// For so long VMs are watched on a host with several kinds of cores.
const WATCHED: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Args {
    /// A folder with a recorded `proc` and `sys`, instead of this machine
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Done {
    let root = args.root.as_deref().map_or_else(Root::live, Root::at);
    let vms = Scanner::new(root.clone()).scan();
    let vms = vms.map_err(|e| ls::unreadable(&root, &e))?;
    let nobody = |_| None;
    let mut checks = match root.is_live() {
        true => doctor::examine(&root, &vms, &doctor::core_cookie),
        // A recorded tree has no threads to ask.
        false => doctor::examine(&root, &vms, &nobody),
    };
    checks.push(doctor::networks(&root, &vms));
    // In a recorded tree nobody runs.
    if root.is_live() && !vms.vms.is_empty() && Machine::read(&root).kinds.len() > 1 {
        let view = view::look(&root, WATCHED).map_err(|e| ls::unreadable(&root, &e))?;
        checks.push(doctor::whereabouts(&view.vms));
    }
    match args.json {
        true => output::json(&checks)?,
        false => output::print(&berth_report::host::doctor(&checks, &output::style())),
    }
    match doctor::allowed(&checks) {
        true => Ok(()),
        false => Err(Failure::Expect),
    }
}
