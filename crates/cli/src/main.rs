// SPDX-License-Identifier: GPL-2.0-only
//! The `berth` command: one file per verb, no logic of its own.
#[cfg(feature = "kernel")]
mod agent;
mod combinations;
mod compare;
mod doctor;
mod exit;
mod explain;
#[cfg(feature = "kernel")]
mod guest_agent;
mod guests;
#[cfg(feature = "kernel")]
mod host;
mod interrupt;
mod job;
#[cfg(feature = "kernel")]
mod lab;
mod ls;
mod model;
#[cfg(feature = "kernel")]
mod optimise;
mod options;
mod output;
#[cfg(feature = "kernel")]
mod pin;
mod policy;
mod profile;
#[cfg(feature = "kernel")]
mod promises;
mod record;
mod reproduce;
#[cfg(feature = "kernel")]
mod restore;
mod results;
mod scenario;
mod sim;
mod top;
mod tracer;
mod vms;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
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
    /// Simulates a scenario: every arm, every seed, in virtual time
    Sim(sim::Args),
    /// Runs a scenario on a real kernel, in a throw-away VM
    #[cfg(feature = "kernel")]
    Lab(lab::Args),
    /// Simulator beside real kernel, judged by bounds written down beforehand
    Compare(compare::Args),
    /// Simulated guests beside real Linux guests under steal, which the lab records
    Guests(guests::Args),
    /// The virtual machines of this host, and who of them waits
    Ls(ls::Args),
    /// The same, live
    Top(top::Args),
    /// One virtual machine of this host: what it waits for, and how it is known
    Explain(explain::Args),
    /// What is seen of this host, as a scenario file
    Record(record::Args),
    /// What Berth can do on this host, and what stands in its way
    Doctor(doctor::Args),
    /// Runs a scenario's load on this machine, under the scheduler that is running
    #[cfg(feature = "kernel")]
    Host(host::Args),
    /// Loads a policy: it schedules this host's virtual machines
    #[cfg(feature = "kernel")]
    Start(agent::StartArgs),
    /// Unloads it: back to the kernel's own scheduler
    #[cfg(feature = "kernel")]
    Stop(agent::StopArgs),
    /// What Berth does on this host
    #[cfg(feature = "kernel")]
    Status(agent::StatusArgs),
    /// Looks after this host, by a configuration
    #[cfg(feature = "kernel")]
    Daemon(agent::DaemonArgs),
    /// What the optimiser would set of each VM of this host, and why; sets nothing
    #[cfg(feature = "kernel")]
    Optimise(optimise::Args),
    /// Puts a VM's threads, interrupts and queues on the right CPUs, and keeps them there
    #[cfg(feature = "kernel")]
    Pin(pin::PinArgs),
    /// Undoes that, exactly
    #[cfg(feature = "kernel")]
    Unpin(pin::UnpinArgs),
    /// Where VMs and their network paths would go, and why; sets nothing
    #[cfg(feature = "kernel")]
    Plan(pin::PlanArgs),
    /// On which modules of the kernel the path of a VM spends its time
    Profile(profile::Args),
    /// Undoes what a killed agent has left set of VMs
    #[cfg(feature = "kernel")]
    Restore(restore::Args),
    /// Policies, shipped and your own: list, show, check
    Policy(policy::Args),
    /// The experiments of papers: run, judged, written down
    Reproduce(reproduce::Args),
    /// Closed forms of papers beside simulation
    Model(model::Args),
    /// Kept results, shown again
    Results(results::Args),
    /// Ready and own scenarios: list, show, check, help
    Scenario(scenario::Args),
    /// Inside a mixed VM: light processes of users go to the reserved CPUs, and back
    #[cfg(feature = "kernel")]
    GuestAgent(guest_agent::Args),
    /// Does one run: reads a job as JSON from standard input, writes its outcome as JSON
    #[command(hide = true)]
    Job(job::Args),
    /// Waits until who started it has ended, then undoes what it set
    #[cfg(feature = "kernel")]
    #[command(hide = true)]
    Guardian(restore::GuardianArgs),
}

const EXAMPLES: &str = "Examples:
  berth sim noisy-neighbour                          simulate a ready scenario
  berth sim noisy-neighbour --set vm.build.count=8   with one value changed
  berth scenario list                                what else there is to run
  berth scenario show noisy-neighbour --full         with every default, and where it comes from
  berth scenario help vm                             what may stand in a file";

fn main() -> ExitCode {
    // The lab starts this same binary as the first process of its VM.
    #[cfg(feature = "kernel")]
    if berth_lab::guest::is_guest() {
        berth_lab::guest::main();
    }
    let matches = exit::explained(Berth::command()).get_matches();
    let berth = Berth::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let done = match berth.verb {
        Verb::Sim(args) => sim::run(&args),
        #[cfg(feature = "kernel")]
        Verb::Lab(args) => lab::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Guests(args) => guests::run(&args),
        Verb::Ls(args) => ls::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Record(args) => record::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        #[cfg(feature = "kernel")]
        Verb::Host(args) => host::run(&args),
        #[cfg(feature = "kernel")]
        Verb::Start(args) => agent::start(&args),
        #[cfg(feature = "kernel")]
        Verb::Stop(args) => agent::stop(&args),
        #[cfg(feature = "kernel")]
        Verb::Status(args) => agent::status(&args),
        #[cfg(feature = "kernel")]
        Verb::Daemon(args) => agent::run_daemon(&args),
        #[cfg(feature = "kernel")]
        Verb::Optimise(args) => optimise::run(&args),
        #[cfg(feature = "kernel")]
        Verb::Pin(args) => pin::pin(&args),
        #[cfg(feature = "kernel")]
        Verb::Unpin(args) => pin::unpin(&args),
        #[cfg(feature = "kernel")]
        Verb::Plan(args) => pin::plan(&args),
        Verb::Profile(args) => profile::run(&args),
        #[cfg(feature = "kernel")]
        Verb::Restore(args) => restore::run(&args),
        #[cfg(feature = "kernel")]
        Verb::GuestAgent(args) => guest_agent::run(&args),
        #[cfg(feature = "kernel")]
        Verb::Guardian(args) => restore::guard(&args),
        Verb::Policy(args) => policy::run(&args),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Model(args) => model::run(&args),
        Verb::Results(args) => results::run(&args),
        Verb::Scenario(args) => scenario::run(&args),
        Verb::Job(args) => job::run(&args),
    };
    exit::code(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_command_line_is_consistent() {
        exit::explained(Berth::command()).debug_assert();
    }

    #[test]
    fn scenarios_and_results_agree_on_units() {
        for (quantity, stats, _, _) in berth_scenario::metrics::QUANTITIES {
            let names = match stats {
                [] => vec![format!("x.{quantity}")],
                _ => stats.iter().map(|s| format!("x.{quantity}.{s}")).collect(),
            };
            for name in names {
                let (_, unit) = berth_scenario::metrics::parse(&name).unwrap();
                assert_eq!(unit, berth_results::schema::unit_of(&name), "{name}");
            }
        }
    }
}
