// SPDX-License-Identifier: GPL-2.0-only
//! `berth ls`.
use crate::exit::{Done, Failure};
use crate::{output, tracer};
use berth_host::root::Root;
use berth_host::view::{self, View};
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub host: HostOptions,
    /// As JSON: every VM and thread, with the evidence for its role
    #[arg(long)]
    json: bool,
}

/// Which host, and for how long it is watched.
#[derive(clap::Args)]
pub struct HostOptions {
    /// Watch for so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub over: Duration,
    /// A folder with a recorded `proc` and `sys`, instead of this machine
    #[arg(long, value_name = "FOLDER")]
    pub root: Option<PathBuf>,
}

/// A time of 0.01 s to a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let text = text.strip_suffix('s').unwrap_or(text);
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    match (0.01..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("between 0.01 s and a day".into()),
    }
}

impl HostOptions {
    pub fn root(&self) -> Root {
        self.root.as_deref().map_or_else(Root::live, Root::at)
    }

    /// Looks at the host twice.
    pub fn view(&self) -> Result<View, Failure> {
        let root = self.root();
        view::look(&root, self.over).map_err(|e| unreadable(&root, &e))
    }

    /// The same with a tracer, where there is one.
    pub fn traced(&self) -> Result<View, Failure> {
        let root = self.root();
        let view = view::look_with(&root, self.over, tracer::start(&root));
        view.map_err(|e| unreadable(&root, &e))
    }
}

/// /proc itself cannot be read: nothing can be shown.
pub fn unreadable(root: &Root, error: &std::io::Error) -> Failure {
    Failure::Input(format!(
        "{} cannot be read: {error}. Virtual machines are found there.",
        root.proc_path().display()
    ))
}

pub fn run(args: &Args) -> Done {
    let view = args.host.view()?;
    match args.json {
        true => output::json(&view),
        false => {
            output::print(&berth_report::host::list(&view, &output::style()));
            Ok(())
        }
    }
}
