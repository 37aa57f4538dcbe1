// SPDX-License-Identifier: GPL-2.0-only
//! `berth profile`: on which modules of the kernel the path of a VM spends its time, or how often it calls them.
use crate::exit::{Done, Failure};
use crate::ls::{seconds, unreadable};
use crate::{interrupt, output, vms};
use berth_host::discover::Scanner;
use berth_host::machine::Machine;
use berth_host::model::Vm;
use berth_host::profile::{self, Calls, Count, Profile};
use berth_host::root::Root;
use std::collections::BTreeMap;
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

    /// Count calls instead: how often each function on the path is called. It slows what it counts
    #[arg(long)]
    calls: bool,

    /// As JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  berth profile web                    samples of ten seconds by module, while traffic flows
  berth profile web --seconds 60 --json > bound.json
  berth profile web --calls            calls by module, of the functions of bridge, tap, vhost, KVM, ...

Samples are of cycles, or of time on a machine without performance counters. A function that is called as often may take
longer: see both, one after the other. To compare, the same traffic before and after berth pin, divided by its packets.
--calls needs root, Linux 6.5 or newer with CONFIG_FPROBE, and tracefs.";

pub fn run(args: &Args) -> Done {
    let root = Root::live();
    let snapshot = Scanner::new(root.clone())
        .scan()
        .map_err(|e| unreadable(&root, &e))?;
    let vm = vms::named(&snapshot, &args.vm)?;
    let stop = || interrupt::flag().load(Ordering::Relaxed);
    if args.calls {
        let calls = counted(vm, args.seconds, &stop)?;
        return shown(args.json, &calls, calls_text, stop());
    }
    let cpus = Machine::read(&root).cpus;
    let profile = profile::watch(vm, &cpus, args.seconds, &stop)
        .map_err(|e| Failure::Input(e.to_string()))?;
    shown(args.json, &profile, text, stop())
}

fn shown<T: serde::Serialize>(json: bool, seen: &T, text: fn(&T) -> String, over: bool) -> Done {
    match json {
        true => output::json(seen)?,
        false => output::print(&text(seen)),
    }
    match over {
        true => Err(Failure::Interrupted),
        false => Ok(()),
    }
}

/// Between two looks whether somebody wants it to end.
#[cfg(feature = "kernel")]
const LOOK: Duration = Duration::from_millis(100);

#[cfg(feature = "kernel")]
fn counted(vm: &Vm, time: Duration, stop: &dyn Fn() -> bool) -> Result<Calls, Failure> {
    use berth_tracer::{CallCounter, CallsError};
    use std::time::Instant;
    let failed = |e: CallsError| Failure::Input(e.to_string());
    let functions = profile::Functions::on_the_path().map_err(CallsError::NoList);
    let counter = CallCounter::start(vm, functions.map_err(failed)?).map_err(failed)?;
    let begun = Instant::now();
    while begun.elapsed() < time && !stop() {
        std::thread::sleep(time.saturating_sub(begun.elapsed()).min(LOOK));
    }
    counter.read().map_err(failed)
}

#[cfg(not(feature = "kernel"))]
fn counted(_: &Vm, _: Duration, _: &dyn Fn() -> bool) -> Result<Calls, Failure> {
    Err(Failure::Input(
        "this build of Berth loads no BPF programs, so it counts no calls (it is built without the feature `kernel`)"
            .into(),
    ))
}

fn calls_text(calls: &Calls) -> String {
    let mut out = format!(
        "calls of {} functions for {:.1} s\n",
        calls.watched, calls.seconds
    );
    out += &table("CALLS", &calls.calls);
    let _ = writeln!(
        out,
        "\n  `of its own`: while a thread of {} ran. Counting slows what is counted: no latency of now means anything.",
        calls.vm
    );
    if calls.lost > 0 {
        let _ = writeln!(
            out,
            "  {} calls came while others were counted, and are not",
            calls.lost
        );
    }
    out
}

/// By module, the most first.
fn table(what: &str, counts: &BTreeMap<String, Count>) -> String {
    let mut out = format!(
        "\n  {:<24} {:>10} {:>6} {:>12}\n",
        "MODULE", what, "%", "OF ITS OWN"
    );
    let total: u64 = counts.values().map(|c| c.all).sum();
    let mut rows: Vec<_> = counts.iter().collect();
    rows.sort_by_key(|(name, count)| (u64::MAX - count.all, (*name).clone()));
    for (name, count) in rows {
        let percent = count.all as f64 * 100.0 / total.max(1) as f64;
        let _ = writeln!(
            out,
            "  {name:<24} {:>10} {percent:>6.1} {:>12}",
            count.all, count.of_vm
        );
    }
    out
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
    out += &table("SAMPLES", &profile.samples);
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
