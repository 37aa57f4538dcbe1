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
#[command(after_help = "Exit status: 0 done, 1 a check does not hold, 2 wrong usage, 3 it failed")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Boot it and show what it says, until it ends or Ctrl-C
    ///
    /// Example: unikernel-bench run --udp 7777 sched=fcfs, and elsewhere: echo hello | nc -u -w 1 127.0.0.1 7777
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

fn run(verb: Verb) -> Result<bool> {
    match verb {
        Verb::Run {
            machine,
            cpus,
            memory,
            accel,
            deterministic,
            udp,
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
            let mut running = guest.network(network).start()?;
            while let Ok(line) = running.wait_for("", Duration::MAX / 4) {
                println!("{line}");
            }
            let ended = running.end(Duration::from_secs(10))?;
            match ended.code {
                Some(0) => Ok(true),
                Some(code) => bail!("the unikernel ended with code {code}"),
                None => bail!("QEMU failed: {}", ended.qemu.trim()),
            }
        }
        Verb::Show => {
            println!("image: {}", image::image()?.display());
            page::show()
        }
        Verb::Beside {
            linux,
            runs,
            replies,
        } => {
            let linux = Linux::new(&linux)?;
            println!("Linux {}", linux.release());
            print!("{}", page::beside_linux(&linux, runs, replies)?);
            Ok(true)
        }
        Verb::Table { effort, out } => {
            let table = page::table(&effort)?;
            std::fs::write(&out, table)
                .with_context(|| format!("{} cannot be written", out.display()))?;
            println!("{} is written", out.display());
            Ok(true)
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.verb) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("unikernel-bench: {error:#}");
            ExitCode::from(3)
        }
    }
}
