// SPDX-License-Identifier: GPL-2.0-only
//! `berth record`.
use crate::exit::{Done, Failure};
use crate::ls::{HostOptions, unreadable};
use crate::output;
use berth_host::record::record;
use std::path::{Path, PathBuf};

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

/// What keeps a file from being written there, as far as that can be known before the host is watched.
fn writable(file: &Path, force: bool) -> Done {
    let shown = file.display();
    let folder = file.parent().filter(|f| !f.as_os_str().is_empty());
    let why = match folder {
        _ if file.is_dir() => format!(
            "{shown} is a folder; name a file in it, such as {}",
            file.join("host.toml").display()
        ),
        _ if file.exists() && !force => format!("{shown} is there already; --force overwrites it"),
        Some(folder) if !folder.is_dir() => {
            format!(
                "{}: there is no such folder; make it first",
                folder.display()
            )
        }
        _ => return Ok(()),
    };
    Err(Failure::Input(why))
}

pub fn run(args: &Args) -> Done {
    if let Some(file) = &args.file {
        writable(file, args.force)?;
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
