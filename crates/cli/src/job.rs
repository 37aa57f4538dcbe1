// SPDX-License-Identifier: GPL-2.0-only
//! `berth job`: one run for somebody else, who started this process here or on another machine.
use crate::exit::Done;
use berth_experiment::runner;

#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {}

const HELP: &str =
    "The job is what berth_experiment::job::Job is as JSON; who makes it and who does it
must be of the same version.";

pub fn run(_: &Args) -> Done {
    runner::serve(std::io::stdin().lock(), std::io::stdout().lock())
}
