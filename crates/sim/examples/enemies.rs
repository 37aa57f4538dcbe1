// SPDX-License-Identifier: GPL-2.0-only
//! What VMs that mean the others no good come to under every policy for hosts.
//!
//! `cargo run --release -p berth-sim --example enemies -- [--cores N,N] [POLICY ...]`
//!
//! By default on 1, 2, 4 and 8 CPUs, under `linux` (its model) and all shipped policies that are no studies. For each
//! attack the worst of both classes that the attacker may claim and of all numbers of CPUs. The table goes to standard
//! output, progress to standard error.
use berth_policy::policy::{LoadOptions, Policy};
use berth_sim::oracle::enemies::{ATTACKS, run};
use berth_sim::replicate::{Job, Replicate, jobs};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

const DEFAULT: [&str; 7] = ["linux", "vmfair", "credit", "flms", "amp", "vtime", "gfifo"];

struct Arguments {
    cores: Vec<u32>,
    policies: Vec<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        cores: vec![1, 2, 4, 8],
        policies: Vec::new(),
    };
    let mut rest = std::env::args().skip(1);
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--cores" => {
                let list = rest.next().unwrap_or_default();
                let numbers = list.split(',').map(str::parse::<u32>);
                parsed.cores = numbers
                    .collect::<Result<_, _>>()
                    .ok()
                    .filter(|c: &Vec<u32>| c.iter().all(|c| (1..=64).contains(c)))
                    .ok_or(format!("--cores needs numbers from 1 to 64, not `{list}`"))?;
            }
            option if option.starts_with('-') => {
                return Err(format!("unknown option {option}: --cores N,N [POLICY ...]"));
            }
            name => parsed.policies.push(name.into()),
        }
    }
    if parsed.policies.is_empty() {
        parsed.policies = DEFAULT.map(String::from).into();
    }
    Ok(parsed)
}

fn policy(name: &str) -> Result<Policy, String> {
    let builtin = match name {
        "linux" => Some(berth_builtin::linux_model()),
        _ => berth_builtin::find(name),
    };
    let builtin = builtin.ok_or(format!("no shipped policy {name}"))?;
    builtin
        .load(&LoadOptions::default())
        .map_err(|e| format!("{name}: {e}"))
}

/// The worst of one attack under one policy.
#[derive(Clone, Copy)]
struct Worst {
    gain: f64,
    lack: f64,
    victim_p99_us: f64,
}

fn table() -> Result<(), String> {
    let Arguments { cores, policies } = arguments()?;
    let loaded: Vec<Policy> = policies
        .iter()
        .map(|p| policy(p))
        .collect::<Result<_, _>>()?;
    let talk = std::io::stderr().is_terminal();
    let cancel = AtomicBool::new(false);
    let replicate = Replicate {
        workers: 0,
        cancel: &cancel,
        progress: &|p| {
            if talk {
                eprint!("\r{} of {} ", p.done, p.of);
            }
        },
    };
    // A "seed" is an attack.
    let jobs = jobs(policies.len(), 0..ATTACKS.len() as u64);
    let outcome = replicate.run(&jobs, |job: Job| {
        let attack = &ATTACKS[job.seed as usize];
        let mut worst = Worst {
            gain: f64::NEG_INFINITY,
            lack: 0.0,
            victim_p99_us: 0.0,
        };
        for &cores in &cores {
            for class in ["latency", "batch"] {
                let policy = (policies[job.arm].as_str(), &loaded[job.arm]);
                let o = run(policy, cores, attack, class, 1)
                    .map_err(|e| format!("{} on {cores} CPUs: {e}", attack.name))?;
                worst.gain = worst.gain.max(o.gain);
                worst.lack = worst.lack.max(o.lack);
                worst.victim_p99_us = worst.victim_p99_us.max(o.victim_p99_us);
            }
        }
        Ok::<Worst, String>(worst)
    });
    if talk {
        eprint!("\r{:20}\r", "");
    }
    if let Some((job, error)) = outcome.errors().next() {
        return Err(format!("{}: {error}", policies[job.arm]));
    }
    let results: Vec<(&Job, &Worst)> = outcome.results().collect();
    print!("| attack |");
    policies.iter().for_each(|p| print!(" {p} |"));
    println!("\n|---|{}", "---|".repeat(policies.len()));
    for (i, attack) in ATTACKS.iter().enumerate() {
        print!("| {} |", attack.name);
        for arm in 0..policies.len() {
            let found = results
                .iter()
                .find(|(job, _)| job.arm == arm && job.seed == i as u64);
            let w = found.expect("every job has a result").1;
            let p99 = match w.victim_p99_us {
                us if us < 1_000.0 => format!("{us:.0} us"),
                us => format!("{:.1} ms", us / 1e3),
            };
            print!(
                " {:+.0} %, {:.0} %, {p99} |",
                100.0 * w.gain,
                100.0 * w.lack
            );
        }
        println!();
    }
    Ok(())
}

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("enemies: {e}");
            ExitCode::FAILURE
        }
    }
}
