// SPDX-License-Identifier: GPL-2.0-only
//! The `berth` command: one file per verb, no logic of its own.
mod exit;
mod scenario;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Gives every vCPU the right place to run: a simulator and a lab for sched_ext policies.
#[derive(Parser)]
#[command(name = "berth", version, arg_required_else_help = true, after_help = EXAMPLES, max_term_width = 100)]
struct Berth {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Ready and own scenarios: list, show, check, help
    Scenario(scenario::Args),
}

const EXAMPLES: &str = "Examples:
  berth scenario list                      what is there to run
  berth scenario show noisy-neighbour --full";

fn main() -> ExitCode {
    let done = match Berth::parse().verb {
        Verb::Scenario(args) => scenario::run(&args),
    };
    exit::code(done)
}
