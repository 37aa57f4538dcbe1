// SPDX-License-Identifier: GPL-2.0-only
//! `berth lab`: the same scenario on a real kernel, in a throw-away VM.
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use crate::plan::{Lengths, Plan, plan};
use crate::{interrupt, output, policies};
use berth_lab::assets::{self, KernelRule};
use berth_lab::run::{LabArm, LabOptions, LabPolicy};
use berth_lab::{LabError, Progress, Vcpus};
use berth_report::progress::Bar;
use berth_results::experiment::Results;
use berth_results::schema::{Place, RunRecord};
use berth_scenario::model::Arm;
use berth_scenario::support;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    run: RunOptions,

    /// Kernel of the VM: `newest`, a line such as 7.0, or VMLINUZ,CONFIG
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

Nothing of this machine changes: kernel and emulator go into a cache (about 140 MB), each run into a VM.
Exit status: 0 done, 1 an [[expect]] does not hold, 2 wrong usage or input, 3 a run failed, 130 interrupted
(what was finished is kept).";

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
        let profile = crate::costs::measure(&args.run, &args.kernel, args.jobs)?;
        if file == "-" {
            output::print(&profile);
            return Ok(());
        }
        return berth_results::write::atomic(Path::new(file), profile.as_bytes())
            .map_err(|e| Failure::Run(e.to_string()));
    }
    let lengths = (!args.full).then_some(SHORT);
    let mut plan = plan(&args.run, &policies::shipped(), lengths)?;
    let done = boot(&args.run, &mut plan, &rule, args.refresh, options(args))?;
    report(args, &plan, done)
}

/// What came out of the boots of a plan.
struct Booted {
    kernel: String,
    /// Never `auto`.
    vcpus: Vcpus,
    /// Of each variant of the plan.
    records: Vec<Vec<RunRecord>>,
    outcome: Result<(), LabError>,
}

/// The results of a command line's scenario on a real kernel, for who needs them whole; `seeds`: of these starts only.
///
/// # Errors
/// Wrong input, an interrupt, or a run that failed.
#[allow(clippy::too_many_arguments)] // two callers; a struct of the same fields helps neither
pub fn results(
    run: &RunOptions,
    lengths: Option<Lengths>,
    kernel: &str,
    jobs: Option<usize>,
    timeout_s: u64,
    seeds_per_boot: usize,
    seeds: Option<&[u64]>,
    vcpus: Vcpus,
) -> Result<Results, Failure> {
    let rule = KernelRule::parse(kernel).map_err(input)?;
    let mut plan = plan(run, &policies::shipped(), lengths)?;
    if let Some(seeds) = seeds {
        plan.seeds = seeds.to_vec();
    }
    let mut options = LabOptions {
        vcpus,
        timeout: Duration::from_secs(timeout_s),
        ..LabOptions::default()
    };
    options.jobs = jobs.unwrap_or(options.jobs).max(1);
    options.seeds_per_boot = seeds_per_boot;
    let mut done = boot(run, &mut plan, &rule, false, options)?;
    std::mem::replace(&mut done.outcome, Ok(())).map_err(failed)?;
    Ok(done.results(&plan, run, true))
}

impl Booted {
    fn results(self, plan: &Plan, run: &RunOptions, complete: bool) -> Results {
        let mut results = plan.results(
            Place::Lab,
            &self.kernel,
            run.command(),
            self.records,
            complete,
        );
        results.provenance.vcpus = self.vcpus.word().into();
        results
    }
}

/// Micro-VMs if every arm's scenario fits; else threads, and why, where there are VMs at all.
fn form(arms: &[Vec<LabArm>]) -> (Vcpus, Option<String>) {
    let mut all = arms.iter().flatten().map(|a| &a.scenario);
    if all.clone().all(|s| s.vms.is_empty()) {
        return (Vcpus::Threads, None);
    }
    match all.find_map(|s| berth_lab::fits_micro_vms(s).err()) {
        None => (Vcpus::Kvm, None),
        Some(e) => (Vcpus::Threads, Some(plain_threads(&e))),
    }
}

fn plain_threads(why: &dyn std::fmt::Display) -> String {
    format!("vCPUs are plain threads, not those of real VMs: {why}")
}

/// Boots a VM for each variant, arm and seed.
///
/// # Errors
/// What is found out before the first of them.
fn boot(
    run: &RunOptions,
    plan: &mut Plan,
    rule: &KernelRule,
    refresh: bool,
    mut options: LabOptions,
) -> Result<Booted, Failure> {
    plan.admit_programs();
    let arms = arms(plan)?;
    let choose = options.vcpus == Vcpus::Auto;
    if choose {
        let (vcpus, why) = form(&arms);
        options.vcpus = vcpus;
        plan.warnings.extend(why);
    }
    plan.check(support::Place::Lab, options.vcpus == Vcpus::Kvm)?;
    for arm in arms.iter().flatten() {
        berth_lab::run::check_scenario(&arm.scenario, options.vcpus).map_err(failed)?;
    }
    for warning in &plan.warnings {
        eprintln!("note: {warning}");
    }
    let stop = interrupt::flag();
    let talk = !run.quiet && std::io::stderr().is_terminal();
    let bar = Bar::new(plan.runs() as u64, talk);
    let finished = Mutex::new(Vec::<RunRecord>::new());
    let done = AtomicUsize::new(0);
    let listener = |progress: Progress| match progress {
        Progress::Say(text) => bar.line(&text),
        Progress::Download { what, done, total } => {
            bar.say(format!("{what}: {} of {} MB", done >> 20, total >> 20))
        }
        Progress::Boot { arm, seed, attempt } => {
            let again = if attempt > 1 {
                format!(", attempt {attempt}")
            } else {
                String::new()
            };
            bar.say(format!("{arm}, seed {seed}{again}"));
        }
        Progress::Done { record, .. } => {
            finished
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .push(*record);
            bar.at(done.fetch_add(1, Ordering::Relaxed) as u64 + 1);
        }
    };
    let assets = assets::ensure(rule, refresh, &listener, stop).map_err(failed)?;
    if options.vcpus == Vcpus::Kvm {
        match assets::modules::kvm(&assets.kernel, &listener, stop) {
            Err(e) if choose && !matches!(e, LabError::Interrupted) => {
                options.vcpus = Vcpus::Threads;
                plan.check(support::Place::Lab, false)?;
                let note = plain_threads(&e);
                bar.line(&format!("note: {note}"));
                plan.warnings.push(note);
            }
            other => other.map(|_| ()).map_err(failed)?,
        }
    }
    bar.line(&format!(
        "kernel {}, {}, each in a VM of its own",
        assets.kernel.release,
        output::runs(plan.runs())
    ));
    let mut records = Vec::new();
    let mut outcome = Ok(());
    for arms in &arms {
        if outcome.is_ok() {
            let all = berth_lab::run::run(arms, &plan.seeds, &options, &assets, &listener, stop);
            outcome = all.map(|_| ());
        }
        // What was finished, whatever came then.
        records.push(std::mem::take(
            &mut *finished.lock().unwrap_or_else(|e| e.into_inner()),
        ));
    }
    drop(bar);
    Ok(Booted {
        kernel: assets.kernel.release,
        vcpus: options.vcpus,
        records,
        outcome,
    })
}

/// Emulator and kernel into the cache, so that a later run needs no network.
fn fetch(args: &Args, rule: &KernelRule) -> Done {
    let talk = !args.run.quiet && std::io::stderr().is_terminal();
    let bar = Bar::new(1, talk);
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

fn input(error: LabError) -> Failure {
    Failure::Input(error.to_string())
}

fn failed(error: LabError) -> Failure {
    match error {
        LabError::Interrupted => Failure::Interrupted,
        LabError::Scenario(_) => input(error),
        _ => Failure::Run(error.to_string()),
    }
}

/// Arms of each variant as the lab wants them: the scenario of each, the bytes of its policy.
fn arms(plan: &mut Plan) -> Result<Vec<Vec<LabArm>>, Failure> {
    let mut all = Vec::new();
    for variant in &mut plan.variants {
        let mut arms = Vec::new();
        for planned in &mut variant.arms {
            if planned.absent.is_some() {
                continue;
            }
            let arm = &planned.arm;
            let policy = if arm.policy == "linux" {
                no_params(arm)?;
                None
            } else if support::is_program(&arm.policy) {
                no_params(arm)?;
                let program = policies::program(&arm.policy)?;
                planned.hash = Some(policies::program_hash(&program)?);
                Some(LabPolicy::Program(program))
            } else {
                let object = policies::object(&arm.policy)?;
                planned.hash = Some(berth_policy::identity::hash(&object));
                let mut options = berth_scx::LoadOptions::default();
                for (name, value) in policies::values(arm, &object)? {
                    let value = match value {
                        policies::Set::Number(n) => berth_scx::Value::Number(n.into()),
                        policies::Set::Text(text) => berth_scx::Value::Text(text),
                    };
                    options.variables.insert(name, value);
                }
                Some(LabPolicy::Object { object, options })
            };
            arms.push(LabArm {
                name: arm.name.clone(),
                scenario: variant.scenario.for_arm(arm).clone(),
                policy,
            });
        }
        all.push(arms);
    }
    Ok(all)
}

/// The kernel's own scheduler takes no parameters, nor does a program.
pub fn no_params(arm: &Arm) -> Result<(), Failure> {
    if let Some(preset) = &arm.preset {
        return Err(Failure::Input(format!(
            "arm {}: preset `{preset}` is asked for, but {}, which has none",
            arm.name,
            without_params(arm)
        )));
    }
    match arm.params.keys().next() {
        None => Ok(()),
        Some(name) => Err(Failure::Input(format!(
            "arm {}: `policy.{name}` is set, but {}, which takes no parameters",
            arm.name,
            without_params(arm)
        ))),
    }
}

fn without_params(arm: &Arm) -> String {
    match arm.policy.as_str() {
        "linux" => "`linux` is the kernel's own scheduler".to_string(),
        program => format!("`{program}` is a program of its own"),
    }
}

/// Keeps and shows what there is, whatever else went wrong.
fn report(args: &Args, plan: &Plan, mut done: Booted) -> Done {
    let outcome = std::mem::replace(&mut done.outcome, Ok(()));
    let finished: usize = done.records.iter().map(Vec::len).sum();
    let runs = plan.runs();
    let results = done.results(plan, &args.run, outcome.is_ok());
    if finished > 0 {
        let saved = output::save(&args.run, &plan.name, &results);
        let baseline = plan
            .variants
            .first()
            .and_then(|v| v.scenario.baseline.as_deref());
        output::show(&args.run, &results, baseline)?;
        let saved = saved?;
        if !args.run.json && !args.run.csv {
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
            output::next_steps(&saved, &lines);
        }
    }
    match outcome {
        Ok(()) if output::broken_expectation(&results) => Err(Failure::Expect),
        Ok(()) => Ok(()),
        Err(LabError::Interrupted) => {
            eprintln!("interrupted: {finished} of {runs} runs are kept");
            Err(Failure::Interrupted)
        }
        Err(error) => Err(failed(error)),
    }
}
