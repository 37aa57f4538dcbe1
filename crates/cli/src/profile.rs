// SPDX-License-Identifier: GPL-2.0-only
//! `berth profile`: on which modules of the kernel the path of a VM spends its time.
use crate::exit::{Done, Failure};
use crate::ls::{seconds, unreadable};
use crate::{interrupt, output, vms};
use berth_host::discover::Scanner;
use berth_host::machine::Machine;
use berth_host::profile::{self, Profile};
use berth_host::root::Root;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Its name as `berth ls` shows it, its manager's number, or its process
    vm: String,

    /// Watch for so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    seconds: Duration,

    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  berth profile web                    samples of ten seconds by module, while traffic flows
  berth profile web --seconds 60 --json > bound.json

Samples are of cycles, or of time on a machine without performance counters; calls are not counted. To compare, the same
traffic before and after berth pin, divided by its packets.";

pub fn run(args: &Args) -> Done {
    let root = Root::live();
    let snapshot = Scanner::new(root.clone())
        .scan()
        .map_err(|e| unreadable(&root, &e))?;
    let vm = vms::named(&snapshot, &args.vm)?;
    let cpus = Machine::read(&root).cpus;
    let stop = || interrupt::flag().load(Ordering::Relaxed);
    let profile = profile::watch(vm, &cpus, args.seconds, &stop)
        .map_err(|e| Failure::Input(e.to_string()))?;
    match args.json {
        true => output::json(&profile)?,
        false => output::print(&text(&profile)),
    }
    match stop() {
        true => Err(Failure::Interrupted),
        false => Ok(()),
    }
}

fn text(profile: &Profile) -> String {
    let mut out = format!(
        "samples of {} for {:.1} s on {} CPUs, {} a second of each that is not idle\n",
        profile.event,
        profile.seconds,
        profile.cpus,
        profile::PER_SECOND
    );
    if profile.event == "cpu-clock" {
        out += "  This machine counts no cycles: these are of time.\n";
    }
    let _ = writeln!(
        out,
        "\n  {:<24} {:>8} {:>6} {:>12}",
        "MODULE", "SAMPLES", "%", "OF ITS OWN"
    );
    let total: u64 = profile.samples.values().map(|c| c.all).sum();
    let mut rows: Vec<_> = profile.samples.iter().collect();
    rows.sort_by_key(|(name, count)| (u64::MAX - count.all, (*name).clone()));
    for (name, count) in rows {
        let percent = count.all as f64 * 100.0 / total.max(1) as f64;
        let _ = writeln!(
            out,
            "  {name:<24} {:>8} {percent:>6.1} {:>12}",
            count.all, count.of_vm
        );
    }
    let _ = writeln!(
        out,
        "\n  `of its own`: while a thread of {} ran. Interrupts are charged to whoever runs: see all.",
        profile.vm
    );
    if profile.lost > 0 {
        let _ = writeln!(out, "  {} samples did not fit and are lost", profile.lost);
    }
    out
}
