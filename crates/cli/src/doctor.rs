// SPDX-License-Identifier: GPL-2.0-only
//! `berth doctor`.
use crate::exit::{Done, Failure};
use crate::{ls, output};
use berth_host::discover::Scanner;
use berth_host::doctor;
use berth_host::root::Root;
use std::path::PathBuf;

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
    match args.json {
        true => output::json(&checks)?,
        false => output::print(&berth_report::host::doctor(&checks, &output::style())),
    }
    match doctor::allowed(&checks) {
        true => Ok(()),
        false => Err(Failure::Expect),
    }
}
