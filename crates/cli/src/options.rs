// SPDX-License-Identifier: GPL-2.0-only
//! Options that every place of running a scenario shares.
use crate::exit::Failure;
use crate::interrupt;
use berth_experiment::request::{Request, quote};
use berth_experiment::simulator::Running;
use std::io::IsTerminal;
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug)]
pub struct RunOptions {
    /// A ready scenario's name (berth scenario list), or a file
    pub scenario: Option<String>,

    /// Change a value: ADDRESS=VALUE, e.g. vm.web.count=4, task.worker.threads=8, policy.slice_us=1000
    #[arg(long, value_name = "ADDRESS=VALUE")]
    pub set: Vec<String>,

    /// Run once for each value: ADDRESS=A,B,C; several of them: all combinations
    #[arg(long, value_name = "ADDRESS=A,B,C")]
    pub vary: Vec<String>,

    /// Run very many combinations of --vary without asking
    #[arg(long)]
    pub yes: bool,

    /// Only these arms; also a shipped policy that the scenario does not name
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub arm: Vec<String>,

    /// Compare one more policy: a .bpf.c or .bpf.o file, or a shipped name
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<String>,

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

    /// Folder for results; they go into a folder of the scenario's name in it
    #[arg(long, value_name = "FOLDER", default_value = "berth-out")]
    pub out: PathBuf,

    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
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
    /// No scenario was named.
    pub fn request(&self) -> Result<Request, Failure> {
        let scenario = self.scenario()?.to_string();
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
