// SPDX-License-Identifier: GPL-2.0-only
//! `berth lab`: the same scenario on a real kernel, in a throw-away VM.
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use crate::{interrupt, output};
use berth_experiment::lab::{Booted, Boots, boot, failed, input};
use berth_experiment::plan::{Lengths, Plan, plan};
use berth_experiment::{costs, policies};
use berth_lab::assets::{self, KernelRule};
use berth_lab::run::LabOptions;
use berth_lab::{LabError, Progress, Vcpus};
use berth_report::progress::Bar;
use berth_report::say;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    run: RunOptions,

    /// Kernel of the VM: `newest` (in Debian forky, else sid, else trixie-backports, of those whose configuration is
    /// there too; of the line that the scenario names, if it does), a line such as 7.3, or VMLINUZ,CONFIG
    #[arg(long, value_name = "RULE", default_value = "newest")]
    kernel: String,

    /// What vCPUs are: `kvm`, those of real micro-VMs inside the VM (nested KVM), `threads`, or `auto`: micro-VMs where
    /// the scenario and the kernel can have them
    #[arg(long, value_name = "FORM", default_value = "auto", value_parser = Vcpus::parse)]
    vcpus: Vcpus,

    /// Only fetch what a VM needs (emulator, kernel) into the cache; no scenario is run
    #[arg(long)]
    fetch: bool,

    /// Measure what events cost in the VM, and print (or write) the simulator's cost profile `lab`; no scenario is run
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    measure_costs: Option<String>,

    /// Look for newer kernels and emulators, even if there are some in the cache
    #[arg(long)]
    refresh: bool,

    /// As long and as often as the scenario says; else at most 0.5 s + 2 s and 2 seeds, unless set here
    #[arg(long)]
    full: bool,

    /// Runs of an arm with so many seeds share a VM, one after the other: quicker, but later ones find a used kernel
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds_per_boot: u64,

    /// VMs at the same time [default: one per CPU of this machine]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    /// Every run twice, which must give the same
    #[arg(long)]
    verify: bool,

    /// Longest time for one VM, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// Keep the VMs' console output in this folder
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  berth lab noisy-neighbour --arm linux,vmfair      two schedulers on a real kernel
  berth lab noisy-neighbour --kernel 7.0            on another kernel line
  berth lab noisy-neighbour --policy my.bpf.c       your own policy beside the others
  berth lab noisy-neighbour --vcpus threads         threads in the place of VMs' vCPUs
  berth lab noisy-neighbour --arm linux,scx_cosmos  another scheduler (cargo install scx_cosmos)

Nothing of this machine changes: kernel and emulator go into a cache (about 140 MB), each run into a VM.";

/// What an emulated machine does in a bearable time.
const SHORT: Lengths = Lengths {
    warmup_ms: 500,
    measure_ms: 2_000,
    seeds: 2,
};

pub fn run(args: &Args) -> Done {
    let rule = KernelRule::parse(&args.kernel).map_err(input)?;
    if args.fetch {
        return fetch(args, &rule);
    }
    if let Some(file) = &args.measure_costs {
        let boots = boots(
            &args.run,
            &args.kernel,
            LabOptions {
                jobs: args.jobs.unwrap_or(LabOptions::default().jobs).max(1),
                timeout: Duration::from_secs(600),
                vcpus: Vcpus::Threads,
                ..LabOptions::default()
            },
        )?;
        // The cases bring their own scenarios.
        let request = args.run.besides();
        let running = args.run.running(0, false);
        let profile = costs::measure(&request, &boots, &running, &args.run.out)?;
        if file == "-" {
            output::print(&profile);
            return Ok(());
        }
        return berth_results::write::atomic(Path::new(file), profile.as_bytes())
            .map_err(|e| Failure::Run(e.to_string()));
    }
    let lengths = (!args.full).then_some(SHORT);
    let mut plan = plan(&args.run.request()?, &policies::shipped(), lengths)?;
    output::ready(&args.run)?;
    let boots = Boots {
        refresh: args.refresh,
        ..boots(&args.run, &args.kernel, options(args))?
    };
    let done = boot(&mut plan, &boots)?;
    report(args, &plan, done)
}

/// What VMs are booted for, by a command line; no newer kernel is looked for.
///
/// # Errors
/// There is no such rule for a kernel.
pub fn boots(run: &RunOptions, kernel: &str, options: LabOptions) -> Result<Boots, Failure> {
    Ok(Boots {
        rule: KernelRule::parse(kernel).map_err(input)?,
        refresh: false,
        options,
        cancel: interrupt::flag(),
        talk: run.talk(),
    })
}

/// Emulator and kernel into the cache, so that a later run needs no network.
fn fetch(args: &Args, rule: &KernelRule) -> Done {
    let bar = Bar::new(1, args.run.talk());
    let listener = |progress: Progress| match progress {
        Progress::Say(text) => bar.line(&text),
        Progress::Download { what, done, total } => {
            bar.say(format!("{what}: {} of {} MB", done >> 20, total >> 20));
        }
        Progress::Boot { .. } | Progress::Done { .. } => {}
    };
    let stop = interrupt::flag();
    let assets = assets::ensure(rule, args.refresh, &listener, stop).and_then(|assets| {
        // What micro-VMs need; a kernel without it runs threads.
        match assets::modules::kvm(&assets.kernel, &listener, stop) {
            Ok(_) | Err(LabError::UnfitKernel { .. }) => Ok(assets),
            Err(e) => Err(e),
        }
    });
    drop(bar);
    let assets = assets.map_err(failed)?;
    output::print(&format!(
        "ready: kernel {}, QEMU {}\n",
        assets.kernel.release, assets.qemu.version
    ));
    Ok(())
}

fn options(args: &Args) -> LabOptions {
    let mut options = LabOptions {
        timeout: Duration::from_secs(args.timeout),
        verify: args.verify,
        vcpus: args.vcpus,
        keep_logs: args.logs.clone(),
        seeds_per_boot: usize::try_from(args.seeds_per_boot).unwrap_or(usize::MAX),
        ..LabOptions::default()
    };
    if let Some(jobs) = args.jobs {
        options.jobs = jobs.max(1);
    }
    options
}

/// Keeps and shows what there is, whatever else went wrong.
fn report(args: &Args, plan: &Plan, mut done: Booted) -> Done {
    let outcome = std::mem::replace(&mut done.outcome, Ok(()));
    let finished: usize = done.records.iter().map(Vec::len).sum();
    let runs = plan.runs();
    let results = done.results(plan, args.run.command(), outcome.is_ok());
    if finished > 0 {
        let name = args.run.scenario.as_deref().unwrap_or(&plan.name);
        let lines = [
            (
                "Simulate",
                format!("berth sim {name}   the same, simulated"),
            ),
            (
                "Compare",
                format!("berth compare {name}   both, judged by bounds"),
            ),
        ];
        output::keep(&args.run, plan, &results, &lines)?;
    }
    match outcome {
        Ok(()) if output::broken_expectation(&results) => Err(Failure::Expect),
        Ok(()) => Ok(()),
        Err(LabError::Interrupted) => {
            say!("interrupted: {finished} of {runs} runs are kept");
            Err(Failure::Interrupted)
        }
        Err(error) => Err(failed(error)),
    }
}
