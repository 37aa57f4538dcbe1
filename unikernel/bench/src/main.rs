// SPDX-License-Identifier: GPL-2.0-only
//! `unikernel-bench`: boots the unikernel, measures it, writes its page's tables.
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use unikernel_bench::guest::{Guest, Network};
use unikernel_bench::image;
use unikernel_bench::peer::Linux;

mod page;

/// The unikernel in QEMU: run it, measure it.
#[derive(Parser)]
#[command(
    after_help = "Exit status: 0 done, 1 a check does not hold, 2 wrong usage (of boot options, too), 3 it failed"
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Boot it and show what it says, until it ends or Ctrl-C
    ///
    /// Example: unikernel-bench run --udp 7777 sched=fcfs, and elsewhere, in bash: exec 3<>/dev/udp/127.0.0.1/7777;
    /// echo hello >&3; head -n 1 <&3
    Run {
        /// QEMU's machine: microvm, q35 or pc
        #[arg(long, default_value = "microvm")]
        machine: String,
        /// vCPUs, of which at most 8 are used
        #[arg(long, default_value_t = 1)]
        cpus: usize,
        /// Memory, MB
        #[arg(long, default_value_t = 128)]
        memory: usize,
        /// tcg or kvm
        #[arg(long, default_value = "tcg")]
        accel: String,
        /// Deterministic emulation: time is instructions
        #[arg(long)]
        deterministic: bool,
        /// UDP port of 127.0.0.1 that is its port of requests (7777)
        #[arg(long, default_value_t = 7777)]
        udp: u16,
        /// Seconds within which it must say its first word
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        limit: u64,
        /// Boot options, such as mode=batch sched=rr
        options: Vec<String>,
    },
    /// Boot it, run small experiments, judge them: what `make unikernel` shows
    Show,
    /// The unikernel's echo beside that of a Linux guest, in turn
    Beside {
        /// The folder that berth-lab's example network_guest makes
        #[arg(long)]
        linux: PathBuf,
        /// Boots of each
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// Replies that the client waits for
        #[arg(long, default_value_t = 50_000)]
        replies: usize,
    },
    /// Measure everything and write the tables of docs/unikernel.md (half an hour)
    Table {
        #[command(flatten)]
        effort: page::Effort,
        /// The file
        #[arg(long)]
        out: PathBuf,
    },
}

/// How a verb ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Well,
    CheckFailed,
    WrongUsage,
}

impl From<bool> for Done {
    fn from(holds: bool) -> Done {
        if holds { Done::Well } else { Done::CheckFailed }
    }
}

fn run(verb: Verb) -> Result<Done> {
    match verb {
        Verb::Run {
            machine,
            cpus,
            memory,
            accel,
            deterministic,
            udp,
            limit,
            options,
        } => {
            let options = options.join(" ");
            let serves = !options.contains("mode=") || options.contains("mode=serve");
            let guest = Guest {
                memory_mb: memory,
                accel,
                deterministic,
                ..Guest::new(&machine, cpus, &options)
            };
            let network = if serves {
                Network::Forwarded(udp)
            } else {
                Network::None
            };
            let running = guest.network(network).start()?;
            let ended = running.follow(Duration::from_secs(limit), |line| println!("{line}"))?;
            match ended.code {
                Some(0) => Ok(Done::Well),
                Some(1) => Ok(Done::CheckFailed),
                Some(2) => Ok(Done::WrongUsage),
                Some(code) => bail!("the unikernel ended with code {code}"),
                None => bail!("QEMU failed: {}", ended.qemu.trim()),
            }
        }
        Verb::Show => {
            println!("image: {}", image::image()?.display());
            page::show().map(Done::from)
        }
        Verb::Beside {
            linux,
            runs,
            replies,
        } => {
            let linux = Linux::new(&linux)?;
            println!("Linux {}", linux.release());
            print!("{}", page::beside_linux(&linux, runs, replies)?);
            Ok(Done::Well)
        }
        Verb::Table { effort, out } => {
            let table = page::table(&effort)?;
            std::fs::write(&out, table)
                .with_context(|| format!("{} cannot be written", out.display()))?;
            println!("{} is written", out.display());
            Ok(Done::Well)
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.verb) {
        Ok(Done::Well) => ExitCode::SUCCESS,
        Ok(Done::CheckFailed) => ExitCode::from(1),
        Ok(Done::WrongUsage) => ExitCode::from(2),
        Err(error) => {
            eprintln!("unikernel-bench: {error:#}");
            ExitCode::from(3)
        }
    }
}
