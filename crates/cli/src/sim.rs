// SPDX-License-Identifier: GPL-2.0-only
//! `berth sim`: every arm with every seed in the simulator.
use crate::exit::{Done, Failure};
use crate::options::RunOptions;
use crate::{combinations, output};
use berth_experiment::calibrate::{self, Fit};
use berth_experiment::kept::Kept;
use berth_experiment::plan::{Plan, in_words, plan};
use berth_experiment::request::quote;
use berth_experiment::runner::Elsewhere;
use berth_experiment::simulator::{Running, Simulator};
use berth_experiment::trace::{self, Trace, Window};
use berth_experiment::{policies, replications, save};
use berth_report::progress::Bar;
use berth_report::say;
use berth_results::experiment::Results;
use berth_results::schema::{Place, RunRecord};
use berth_scenario::shipped;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    run: RunOptions,

    /// Runs at once [default: one per CPU of this machine]; results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    workers: usize,

    /// Each run is done by this command, which reads a job and writes its outcome, e.g. "ssh big berth job"
    #[arg(long, value_name = "COMMAND", value_parser = Elsewhere::command, conflicts_with = "trace")]
    runner: Option<Elsewhere>,

    /// Interpret policies and check each of their accesses: slow, for a policy that misbehaves
    #[arg(long)]
    checked: bool,

    /// Keep each run as it is finished, also for later commands; without it they are kept at Ctrl-C, so that the same
    /// command goes on where it stopped
    #[arg(long)]
    resume: bool,

    /// The folder of kept runs [default: runs in berth's cache folder]
    #[arg(long, value_name = "FOLDER", requires = "resume")]
    kept: Option<PathBuf>,

    /// Take the file's values for what [calibrate] would fit
    #[arg(long)]
    no_calibrate: bool,

    /// Write what happens to a file for ui.perfetto.dev: a span of the run's time, or `all`; one arm, one seed
    #[arg(long, value_name = "FROM..TO", value_parser = Window::parse)]
    trace: Option<Window>,

    /// The trace's file, which must not be there yet [default: ARM-SEED.pftrace in the run's folder of results]
    #[arg(long, value_name = "FILE", requires = "trace")]
    trace_out: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  berth sim noisy-neighbour                                 a ready scenario, all its arms
  berth sim noisy-neighbour --set vm.build.count=8          with one value changed
  berth sim weights --vary vm.gold.weight=100,400,1600      once for each value
  berth sim noisy-neighbour --policy my.bpf.c               your own policy beside the others
  berth sim noisy-neighbour --arm vmfair --set policy.slice_us=1000 --seed 7
  berth sim my-scenario.toml --json | jq .";

pub fn run(args: &Args) -> Done {
    let options = &mut args.run.clone();
    let running = &running(args)?;
    if let Some(file) = &args.trace_out {
        trace::may_be_named(file)?;
    }
    output::ready(options)?;
    combinations::ask(&options.request()?, running, options.yes)?;
    let mut notes = Vec::new();
    if !args.no_calibrate
        && let Some(fit) = fit(options, running)?
    {
        options.set.extend(fit.set);
        notes = fit.notes;
    }
    let mut plan = plan(&options.request()?, &policies::shipped(), None)?;
    plan.fitted = !notes.is_empty();
    plan.notes = notes;
    let mut simulator = Simulator::prepare(&mut plan, running)?;
    plan.check(berth_scenario::support::Place::Sim, false)?;
    let folder = berth_results::write::folder(&args.run.out, &plan.name);
    let open = |window| Trace::of_run(&plan, window, args.trace_out.as_deref(), &folder);
    let trace = args.trace.map(open).transpose()?;
    if let Some(trace) = &trace {
        simulator.tell(trace.sink());
    }
    let run = |variant, arm, seed| simulator.run(variant, arm, seed);
    let interrupted = |records: &[Vec<RunRecord>]| simulator.interrupted(&plan, records);
    let done = execute(options, &plan, running, run, interrupted, trace);
    let kept = running.kept.iter().flat_map(Kept::notes);
    kept.for_each(|note| say!("note: {note}"));
    done
}

/// Brings the trace to the results, and says how large it is.
fn keep(trace: Trace, numbered: Option<&Path>) -> Result<String, Failure> {
    let (path, written) = trace.keep(numbered)?;
    let per_switch = written.bytes as f64 / written.switches.max(1) as f64;
    Ok(format!(
        "trace {}: {} switches, {} KB, {per_switch:.1} bytes each; open it at https://ui.perfetto.dev",
        path.display(),
        written.switches,
        written.bytes.div_ceil(1000)
    ))
}

/// What the scenario asks to be fitted.
fn fit(options: &RunOptions, running: &Running) -> Result<Option<Fit>, Failure> {
    let request = options.request()?;
    calibrate::fit(&shipped::find(&request.scenario)?, &request, running)
}

/// How runs are done. Each is kept only if that is asked for, since results of a short run are made again sooner than
/// they are read; at an interrupt all are, if there is a folder for it.
fn running(args: &Args) -> Result<Running, Failure> {
    let kept = match (&args.kept, args.resume) {
        (Some(folder), _) => Some(Kept::at(folder)),
        (None, true) => Some(Kept::of_user()?),
        (None, false) => Kept::of_user().ok().map(Kept::at_interrupt),
    };
    Ok(Running {
        kept,
        elsewhere: args.runner.clone(),
        ..args.run.running(args.workers, args.checked)
    })
}

/// Runs the plan, keeps and shows what comes out.
fn execute(
    options: &RunOptions,
    plan: &Plan,
    running: &Running,
    run: impl Fn(usize, usize, u64) -> Result<RunRecord, String> + Sync,
    interrupted: impl FnOnce(&[Vec<RunRecord>]),
    trace: Option<Trace>,
) -> Done {
    for warning in &plan.warnings {
        say!("note: {warning}");
    }
    let runs = plan.runs();
    if runs == 0 {
        return Err(Failure::Input(plan.nothing_to_run()));
    }
    if running.talk && plan.variants.len() > 1 {
        say!("{} variants, {runs} runs", plan.variants.len());
    }
    let bar = Bar::new(runs as u64, running.talk);
    let started = std::time::Instant::now();
    let outcome = replications::run(plan, running, &bar, run);
    drop(bar);
    if outcome.cancelled {
        interrupted(&outcome.records);
    }
    let took = started.elapsed().as_secs_f64();

    let finished: usize = outcome.records.iter().map(Vec::len).sum();
    let complete = !outcome.cancelled && outcome.failures.is_empty();
    let kernel = plan
        .variants
        .first()
        .map_or("", |v| v.scenario.host.kernel.as_str());
    let results = plan.results(
        Place::Sim,
        kernel,
        options.command(),
        outcome.records,
        complete,
    );
    // What there is, is kept and shown, whatever else went wrong.
    let saved = (finished > 0).then(|| save::save(&options.out, &plan.name, &results));
    let numbered = saved.as_ref().and_then(|s| s.as_ref().ok()?.parent());
    let traced = trace.map(|trace| keep(trace, numbered));
    let shown = saved.map_or(Ok(()), |saved| {
        let next = next(plan, options, &results, finished, took);
        output::kept(options, plan, &results, saved, &next)
    });
    let traced = traced.map_or(Ok(()), |traced| traced.map(|line| say!("{line}")));
    for failure in &outcome.failures {
        say!("error: {failure}");
    }
    shown?;
    if outcome.cancelled {
        let next = match running.kept {
            Some(_) => "; the same command goes on from there",
            None => "",
        };
        say!("interrupted: {finished} of {runs} runs are kept{next}");
        return traced.and(Err(Failure::Interrupted));
    }
    traced?;
    if !outcome.failures.is_empty() {
        let n = outcome.failures.len();
        let arms = if n == 1 {
            "1 arm".into()
        } else {
            format!("{n} arms")
        };
        return Err(Failure::Run(format!(
            "{arms} failed; {finished} of {runs} runs are kept"
        )));
    }
    if output::broken_expectation(&results) {
        return Err(Failure::Expect);
    }
    Ok(())
}

/// What the lab would refuse is not proposed.
#[cfg(feature = "kernel")]
fn fits_the_lab(plan: &Plan) -> bool {
    let mut scenarios = plan.variants.iter().flat_map(|variant| {
        let arms = variant.arms.iter();
        arms.map(|planned| variant.scenario.for_arm(&planned.arm))
    });
    let fits = |scenario: &berth_scenario::model::Scenario| {
        let host = &scenario.host;
        berth_lab::vm::check_host(host).is_ok()
            && berth_lab::kinds::check(host).is_ok()
            // It acts on micro-VMs only.
            && (scenario.optimiser.is_none() || berth_lab::fits_micro_vms(scenario).is_ok())
    };
    let place = berth_scenario::support::Place::Lab;
    plan.check(place, true).is_ok() && scenarios.all(fits)
}

#[cfg(not(feature = "kernel"))]
fn fits_the_lab(_plan: &Plan) -> bool {
    false
}

/// What to do next, and how fast it was.
fn next(
    plan: &Plan,
    options: &RunOptions,
    results: &Results,
    finished: usize,
    took: f64,
) -> Vec<(&'static str, String)> {
    let simulated = plan.variants.first().map_or(0.0, |v| {
        (v.scenario.run.warmup_ns + v.scenario.run.measure_ns) as f64 / 1e9 * finished as f64
    });
    let speed = berth_report::text::number(simulated / took.max(1e-3));
    let mut lines = vec![(
        "Took",
        format!(
            "{took:.1} s for {}: {speed} × real time",
            in_words(finished)
        ),
    )];
    if let Some((which, look)) = berth_report::waiting::look(&results.experiments) {
        let scenario = options.scenario.as_deref().unwrap_or(&plan.name);
        let varied = plan.variants.get(which).map_or(&[][..], |v| &v.set);
        let what = [
            options_of("set", &options.set),
            options_of("set", varied),
            options_of("policy", &options.policy),
        ]
        .concat();
        lines.push((
            "Look",
            format!("berth sim {}{what} {look}", quote(scenario)),
        ));
    }
    if fits_the_lab(plan) {
        let lab = format!(
            "berth lab {}{}",
            quote(options.scenario.as_deref().unwrap_or(&plan.name)),
            asked(options)
        );
        lines.push(("Verify", format!("{lab}   the same on a real kernel")));
    }
    lines
}

/// What was asked of the scenario, as options; how many seeds there are hangs on the place.
fn asked(options: &RunOptions) -> String {
    let arms = match options.arm.as_slice() {
        [] => String::new(),
        arms => format!(" --arm {}", quote(&arms.join(","))),
    };
    [
        options_of("set", &options.set),
        options_of("vary", &options.vary),
        arms,
        options_of("policy", &options.policy),
    ]
    .concat()
}

fn options_of(option: &str, values: &[String]) -> String {
    let each = values.iter().map(|v| format!(" --{option} {}", quote(v)));
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn execute(
        options: &RunOptions,
        plan: &Plan,
        running: &Running,
        run: impl Fn(usize, usize, u64) -> Result<RunRecord, String> + Sync,
    ) -> Done {
        super::execute(options, plan, running, run, |_| (), None)
    }

    fn at_once(workers: usize) -> Running {
        Running::new(workers, &NEVER)
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunOptions,
    }

    fn options(out: &std::path::Path, arguments: &[&str]) -> RunOptions {
        let out = out.display().to_string();
        let head = [
            "berth",
            "noisy-neighbour",
            "--quiet",
            "--json",
            "--set",
            "compare.policies=[\"linux\", \"gfifo\", \"vmfair\"]",
            "--out",
            out.as_str(),
        ];
        Line::parse_from(head.iter().chain(arguments)).run
    }

    #[test]
    fn what_was_asked_is_asked_again() {
        let question = [
            "berth",
            "mine.toml",
            "--set",
            "vm.a.count=2",
            "--vary",
            "vm.b.count=1..3",
            "--arm",
            "linux,vmfair",
            "--policy",
            "my policy.bpf.c",
            "--seeds",
            "3",
        ];
        let said = asked(&Line::parse_from(question).run);
        assert_eq!(
            said,
            " --set vm.a.count=2 --vary vm.b.count=1..3 --arm linux,vmfair --policy 'my policy.bpf.c'"
        );
        assert_eq!(asked(&Line::parse_from(["berth"]).run), "");
    }

    fn ready(options: &RunOptions) -> Plan {
        let mut plan = plan(
            &options.request().unwrap(),
            &["vmfair", "gfifo", "vtime"],
            None,
        )
        .unwrap();
        for arm in plan
            .variants
            .iter_mut()
            .flat_map(|v| &mut v.arms)
            .filter(|a| a.arm.policy == "linux")
        {
            arm.absent = Some("no model".into());
        }
        plan
    }

    fn record(plan: &Plan, variant: usize, arm: usize, seed: u64) -> RunRecord {
        let arm = plan.variants[variant].arms[arm].arm.name.clone();
        let better = if arm == "vmfair" { 0.1 } else { 1.0 };
        let metrics = BTreeMap::from([
            ("web.response.p99".to_string(), 2e7 * better + seed as f64),
            ("build.work".to_string(), 3e10 + seed as f64),
        ]);
        RunRecord::new(Place::Sim, &arm, seed, metrics)
    }

    fn kept(out: &std::path::Path) -> berth_results::experiment::Results {
        berth_results::write::read(&out.join("noisy-neighbour"), Place::Sim)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn a_whole_run() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), &["--seeds", "3"]);
        let plan = ready(&options);
        assert_eq!(plan.runs(), 6);
        execute(&options, &plan, &at_once(2), |v, a, s| {
            Ok(record(&plan, v, a, s))
        })
        .unwrap();
        let results = kept(dir.path());
        assert!(results.complete);
        let experiment = &results.experiments[0];
        assert_eq!(
            experiment.baseline.as_deref(),
            Some("gfifo"),
            "linux cannot run: the next one"
        );
        assert!(experiment.notes[0].contains("compared with gfifo"));
        assert_eq!(experiment.runs.len(), 6);
        // vmfair's p99 is decided; work against linux is not.
        assert_eq!(
            experiment
                .expects
                .iter()
                .map(|v| v.holds)
                .collect::<Vec<_>>(),
            [Some(true), None]
        );
        assert!(results.provenance.scenario.contains("seeds = 3"));
    }

    #[test]
    fn a_broken_expectation_is_status_1() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), &["--seeds", "2"]);
        let plan = ready(&options);
        let slow = |v, a, s| {
            let mut record = record(&plan, v, a, s);
            record.metrics.insert("web.response.p99".into(), 1e9);
            Ok(record)
        };
        assert!(matches!(
            execute(&options, &plan, &at_once(1), slow),
            Err(Failure::Expect)
        ));
    }

    #[test]
    fn failures_keep_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), &["--seeds", "3"]);
        let plan = ready(&options);
        let done = execute(&options, &plan, &at_once(1), |v, a, s| match (a, s) {
            (2, 2..) => Err("the policy stalled".into()),
            _ => Ok(record(&plan, v, a, s)),
        });
        let Err(Failure::Run(message)) = done else {
            panic!("{done:?}")
        };
        assert!(
            message.contains("1 arm failed; 4 of 6 runs are kept"),
            "{message}"
        );
        assert!(!kept(dir.path()).complete);
    }

    #[test]
    fn an_interrupt_keeps_what_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path(), &["--seeds", "5"]);
        let plan = ready(&options);
        let cancel: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let one = Running {
            cancel,
            ..at_once(1)
        };
        let done = execute(&options, &plan, &one, |v, a, s| {
            if s == 2 {
                cancel.store(true, Ordering::Relaxed);
            }
            Ok(record(&plan, v, a, s))
        });
        assert!(matches!(done, Err(Failure::Interrupted)));
        let results = kept(dir.path());
        assert!(!results.complete && results.experiments[0].runs.len() >= 2);
    }

    #[test]
    fn variants_and_arms() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(
            dir.path(),
            &[
                "--seeds",
                "1",
                "--vary",
                "vm.build.count=1,2",
                "--vary",
                "vm.web.weight=50,100",
                "--arm",
                "vtime",
            ],
        );
        let plan = ready(&options);
        assert_eq!((plan.variants.len(), plan.runs()), (4, 4));
        assert_eq!(plan.variants[2].scenario.vms[1].count, 2);
        execute(&options, &plan, &at_once(2), |v, a, s| {
            Ok(record(&plan, v, a, s))
        })
        .unwrap();
        let results = kept(dir.path());
        assert_eq!(
            results.experiments[1].variant,
            ["vm.build.count=1", "vm.web.weight=100"]
        );
        assert_eq!(results.experiments[1].runs[0].arm, "vtime");
    }

    #[test]
    fn wrong_arms_are_input_errors() {
        let dir = tempfile::tempdir().unwrap();
        let wrong = plan(
            &options(dir.path(), &["--arm", "vmfare"]).request().unwrap(),
            &["vmfair"],
            None,
        )
        .err()
        .unwrap();
        let Failure::Input(message) = wrong else {
            panic!("{wrong:?}")
        };
        assert!(message.contains("did you mean `vmfair`?"), "{message}");
        let own = options(
            dir.path(),
            &["--policy", "x/my.bpf.c", "--arm", "gfifo", "--seed", "9"],
        );
        let plan = ready(&own);
        let names: Vec<_> = plan.variants[0]
            .arms
            .iter()
            .map(|a| a.arm.name.as_str())
            .collect();
        assert_eq!((names, plan.seeds.clone()), (vec!["gfifo", "my"], vec![9]));
        let none = ready(&options(dir.path(), &["--arm", "linux"]));
        let done = execute(&own, &none, &at_once(1), |_, _, _| Err("x".into()));
        assert!(matches!(done, Err(Failure::Input(m)) if m.contains("linux: no model")));
    }
}
