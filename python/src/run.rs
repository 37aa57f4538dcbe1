// SPDX-License-Identifier: GPL-2.0-only
//! `berth.run`: what `berth sim` does.
use crate::attended::{Cancel, Counts, attended};
use crate::errors;
use crate::results::Results;
use crate::scenario::Scenario;
use berth_experiment::calibrate;
use berth_experiment::kept::Kept;
use berth_experiment::plan::{Plan, planned};
use berth_experiment::request::{Request, quote};
use berth_experiment::simulator::{Running, Simulator};
use berth_experiment::trace::{Trace, Window};
use berth_experiment::{Failure, policies, replications};
use berth_report::progress::Bar;
use berth_results::schema::Place;
use berth_scenario::Input;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// How it is run.
#[derive(FromPyObject)]
pub struct Options {
    #[pyo3(item)]
    arms: Vec<String>,
    #[pyo3(item)]
    policies: Vec<String>,
    #[pyo3(item)]
    seeds: Option<u32>,
    #[pyo3(item)]
    seed: Option<u64>,
    /// Runs at once; 0: one per CPU.
    #[pyo3(item)]
    workers: usize,
    #[pyo3(item)]
    checked: bool,
    #[pyo3(item)]
    calibrate: bool,
    #[pyo3(item)]
    kept: Option<PathBuf>,
    #[pyo3(item)]
    trace: Option<PathBuf>,
    /// The trace's span of the run's time.
    #[pyo3(item)]
    span: String,
}

/// What came out.
struct Done {
    results: berth_results::experiment::Results,
    plan: Plan,
    failures: Vec<String>,
    cancelled: bool,
}

/// Runs a scenario. `options`: a dict with the fields of [`Options`].
#[pyfunction]
pub fn run(
    py: Python<'_>,
    scenario: &Scenario,
    options: Options,
    progress: Option<Py<PyAny>>,
) -> PyResult<Results> {
    let (cancel, counts) = (Cancel::new(), Counts::default());
    let request = scenario.request(
        options.arms.clone(),
        options.policies.clone(),
        options.seeds,
        options.seed,
    );
    let input = &scenario.input;
    let work = || done(input, &request, &options, cancel.flag(), &counts);
    let (done, stopped) = attended(py, &cancel, &counts, progress.as_ref(), work)?;
    if let Some(stopped) = stopped {
        return Err(stopped);
    }
    let done = done.map_err(errors::raised)?;
    if done.cancelled {
        return Err(errors::raised(Failure::Interrupted));
    }
    let results = Results::new(done.results, &done.plan);
    if done.failures.is_empty() {
        return Ok(results);
    }
    let error = errors::failed(format!(
        "{}\n  {} of {} runs are kept: the exception's `results`",
        done.failures.join("\n"),
        results.runs(),
        done.plan.runs()
    ));
    error.value(py).setattr("results", Py::new(py, results)?)?;
    Err(error)
}

fn done(
    input: &Input,
    request: &Request,
    options: &Options,
    cancel: &'static AtomicBool,
    counts: &Counts,
) -> Result<Done, Failure> {
    let kept = match &options.kept {
        Some(folder) => Some(Kept::at(folder)),
        None => Kept::of_user().ok().map(Kept::at_interrupt),
    };
    let running = Running {
        checked: options.checked,
        kept,
        ..Running::new(options.workers, cancel)
    };
    let command = command(request, options);
    let mut request = request.clone();
    let mut notes = Vec::new();
    if options.calibrate
        && let Some(fit) = calibrate::fit(input, &request, &running)?
    {
        request.set.extend(fit.set);
        notes = fit.notes;
    }
    let mut plan = planned(input, &request, &policies::shipped(), None)?;
    plan.fitted = !notes.is_empty();
    plan.notes = notes;
    let mut simulator = Simulator::prepare(&mut plan, &running)?;
    plan.check(berth_scenario::support::Place::Sim, false)?;
    let window = Window::parse(&options.span).map_err(Failure::Input)?;
    let file = options.trace.as_deref();
    let trace = file
        .map(|file| Trace::of_run(&plan, window, Some(file), file))
        .transpose()?;
    if let Some(trace) = &trace {
        simulator.tell(trace.sink());
    }
    if plan.runs() == 0 {
        return Err(Failure::Input(plan.nothing_to_run()));
    }
    counts.all.store(plan.runs() as u64, Ordering::Relaxed);
    let bar = Bar::new(plan.runs() as u64, false);
    let finished = replications::run(&plan, &running, &bar, |variant, arm, seed| {
        let record = simulator.run(variant, arm, seed);
        counts.done.fetch_add(1, Ordering::Relaxed);
        record
    });
    if finished.cancelled {
        simulator.interrupted(&plan, &finished.records);
    }
    let complete = !finished.cancelled && finished.failures.is_empty();
    let variant = plan.variants.first();
    let kernel = variant.map_or("", |v| v.scenario.host.kernel.as_str());
    let results = plan.results(Place::Sim, kernel, command, finished.records, complete);
    if let Some(trace) = trace {
        trace.finish()?;
    }
    Ok(Done {
        results,
        plan,
        failures: finished.failures,
        cancelled: finished.cancelled,
    })
}

/// The command that makes the same results again.
fn command(request: &Request, options: &Options) -> String {
    if request.scenario.is_empty() {
        return "berth.run of a scenario made in Python, as it is below".into();
    }
    let mut words = vec![format!("berth sim {}", quote(&request.scenario))];
    let each = |option: &str, all: &[String]| -> Vec<String> {
        all.iter()
            .map(|text| format!("{option} {}", quote(text)))
            .collect()
    };
    words.extend(each("--set", &request.set));
    words.extend(each("--arm", &request.arms));
    words.extend(each("--policy", &request.policies));
    words.extend(request.seeds.map(|n| format!("--seeds {n}")));
    words.extend(request.seed.map(|n| format!("--seed {n}")));
    words.extend(options.checked.then(|| "--checked".to_string()));
    words.extend((!options.calibrate).then(|| "--no-calibrate".to_string()));
    words.join(" ")
}
