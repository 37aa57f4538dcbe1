// SPDX-License-Identifier: GPL-2.0-only
//! `berth record`.
use crate::exit::{Done, Failure};
use crate::ls::{HostOptions, unreadable};
use crate::output;
use berth_host::record::record;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// The scenario file to write; none: to the screen
    file: Option<PathBuf>,
    #[command(flatten)]
    host: HostOptions,
    /// Overwrite a file that is there
    #[arg(long)]
    force: bool,
}

pub fn run(args: &Args) -> Done {
    if let Some(file) = &args.file
        && !args.force
        && file.exists()
    {
        return Err(Failure::Input(format!(
            "{} is there already; --force overwrites it",
            file.display()
        )));
    }
    let root = args.host.root();
    let (view, text) = record(&root, args.host.over).map_err(|e| unreadable(&root, &e))?;
    let Some(file) = &args.file else {
        output::print(&text);
        return Ok(());
    };
    std::fs::write(file, text)
        .map_err(|e| Failure::Run(format!("cannot write {}: {e}", file.display())))?;
    let n = view.vms.len();
    let (file, s) = (file.display(), if n == 1 { "" } else { "s" });
    output::print(&format!(
        "{n} VM{s} written to {file}.   berth sim {file}\n"
    ));
    Ok(())
}
