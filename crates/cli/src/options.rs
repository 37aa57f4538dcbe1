// SPDX-License-Identifier: GPL-2.0-only
//! Options that every place of running a scenario shares.
use crate::exit::Failure;
use crate::interrupt;
use berth_experiment::request::{Request, quote};
use berth_experiment::simulator::Running;
use berth_scenario::edit::{self, LoaderEdit};
use berth_scenario::model::Loader;
use std::io::IsTerminal;
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug)]
pub struct RunOptions {
    /// A ready scenario's name (berth scenario list), or a file
    pub scenario: Option<String>,

    /// Change a value: ADDRESS=VALUE, e.g. vm.web.count=4, task.worker.threads=8, policy.slice_us=1000
    #[arg(long, value_name = "ADDRESS=VALUE")]
    pub set: Vec<String>,

    /// Run once for each value: ADDRESS=A,B,C, or 1..5, 8..64..8, 1..64..x2, 1ms..5ms; several: all combinations
    #[arg(long, value_name = "ADDRESS=A,B,C")]
    pub vary: Vec<String>,

    /// Run very many combinations of --vary, or what takes minutes, without asking
    #[arg(long)]
    pub yes: bool,

    /// Only these arms; also a shipped policy that the scenario does not name
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub arm: Vec<String>,

    /// Compare one more policy: a .bpf.c or .bpf.o file, or a shipped name
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<String>,

    #[command(flatten)]
    pub loader: LoaderOptions,

    /// Runs of each arm, with random seeds 1 to N
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    pub seeds: Option<u32>,

    /// One run of each arm, with this random seed
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,

    /// Results as JSON on standard output, instead of the table
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// Results as CSV on standard output, instead of the table
    #[arg(long)]
    pub csv: bool,

    /// Folder for results; they go into SCENARIO/1, SCENARIO/2, ... in it, and SCENARIO/latest is the newest
    #[arg(long, value_name = "FOLDER", default_value = "berth-out")]
    pub out: PathBuf,

    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

/// What the loaders of schedulers in files (.bpf.c, .bpf.o) set, and how those are compiled.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Schedulers in files")]
pub struct LoaderOptions {
    /// Give a global variable the value that its own loader would: slice_ns=5ms, layers\[0\].weight=2, cpus=0,2,4
    #[arg(
        long,
        value_name = "NAME=VALUE",
        help = "Give a global variable the value that its own loader would: slice_ns=5ms, layers[0].weight=2, \
                cpus=0,2,4"
    )]
    pub rodata: Vec<String>,

    /// All flags of the scheduler, e.g. ENQ_LAST,SWITCH_PARTIAL, or none
    #[arg(long, value_name = "NAME,NAME")]
    pub ops_flags: Option<String>,

    /// Elements of an array that has a section of its own [default: CPUs, if it has one element]
    #[arg(long, value_name = "NAME=COUNT")]
    pub resize: Vec<String>,

    /// Look for headers here first
    #[arg(short = 'I', long = "include", value_name = "FOLDER")]
    pub include: Vec<String>,

    /// Compile with the scx project's headers of this version, e.g. 1.0.14, which cargo fetches
    #[arg(long, value_name = "VERSION")]
    pub headers: Option<String>,
}

impl LoaderOptions {
    /// As changes of a scenario's arms.
    pub fn edits(&self) -> Vec<LoaderEdit> {
        let mut edits: Vec<_> = self
            .rodata
            .iter()
            .cloned()
            .map(LoaderEdit::Rodata)
            .collect();
        edits.extend(self.ops_flags.iter().cloned().map(LoaderEdit::OpsFlags));
        edits.extend(self.resize.iter().cloned().map(LoaderEdit::Resize));
        edits.extend(self.include.iter().cloned().map(LoaderEdit::Include));
        edits.extend(self.headers.iter().cloned().map(LoaderEdit::Headers));
        edits
    }

    /// How sources are compiled, without a scenario.
    pub fn compiling(&self) -> Loader {
        Loader {
            include: self.include.clone(),
            headers: self.headers.clone(),
            ..Loader::default()
        }
    }
}

impl RunOptions {
    /// The scenario that the user named.
    ///
    /// # Errors
    /// None was named.
    pub fn scenario(&self) -> Result<&str, Failure> {
        self.scenario.as_deref().ok_or_else(|| {
            Failure::Input(
                "which scenario? A file, or a ready one: berth scenario list shows them".into(),
            )
        })
    }

    /// What is to be run.
    ///
    /// # Errors
    /// No scenario was named; something is set twice.
    pub fn request(&self) -> Result<Request, Failure> {
        let scenario = self.scenario()?.to_string();
        edit::once(&self.set, &self.vary)?;
        Ok(Request {
            scenario,
            ..self.besides()
        })
    }

    /// The same without a scenario.
    pub fn besides(&self) -> Request {
        Request {
            scenario: String::new(),
            set: self.set.clone(),
            vary: self.vary.clone(),
            arms: self.arm.clone(),
            policies: self.policy.clone(),
            loader: self.loader.edits(),
            seeds: self.seeds,
            seed: self.seed,
        }
    }

    /// How it is run in the simulator, stopped by Ctrl-C; nothing is kept.
    pub fn running(&self, workers: usize, checked: bool) -> Running {
        Running {
            checked,
            talk: self.talk(),
            ..Running::new(workers, interrupt::flag())
        }
    }

    /// There is somebody who wants to see progress.
    pub fn talk(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// The command that makes the same results again: the arguments of this one, quoted for a shell.
    pub fn command(&self) -> String {
        let arguments = std::env::args().skip(1).map(|a| quote(&a));
        std::iter::once("berth".to_string())
            .chain(arguments)
            .collect::<Vec<_>>()
            .join(" ")
    }
}
