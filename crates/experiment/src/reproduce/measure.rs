// SPDX-License-Identifier: GPL-2.0-only
//! The runs of an experiment: what `berth sim` does with the same arguments.
use super::over_time::{self, Traced};
use super::{Wanted, index, seal, speedup};
use crate::calibrate;
use crate::error::Failure;
use crate::plan::{Lengths, plan};
use crate::policies;
use crate::request::{Request, quote};
use crate::simulator::{Running, whole};
use berth_results::experiment::Experiment as Outcome;
use berth_scenario::paper::{Experiment, Run};
use berth_scenario::shipped;
use berth_scenario::support::Place;

/// A quick run: every table has its rows, and no figure means anything.
pub(super) const QUICK: Lengths = Lengths {
    warmup_ms: 200,
    measure_ms: 1_000,
    seeds: 2,
};

/// An experiment and what was measured.
pub struct Measured<'a> {
    pub experiment: &'a Experiment,
    pub runs: Vec<MeasuredRun<'a>>,
    pub traced: Vec<Traced<'a>>,
}

/// A run and what was measured.
pub struct MeasuredRun<'a> {
    pub run: &'a Run,
    /// The command that gives the same.
    pub command: String,
    pub variants: Vec<Variant>,
}

/// One row of a run's table: what was set for it, and what came out.
pub struct Variant {
    /// `ADDRESS=VALUE`, several with blanks between; empty for a plain run.
    pub label: String,
    pub outcome: Outcome,
    /// The page's seal is of it, too.
    pub sealed: bool,
}

/// Does the runs of an experiment. Those that are kept are not done again.
///
/// # Errors
/// Wrong input, an interrupt, or a run that failed.
pub fn measure<'a>(
    wanted: &Wanted<'a>,
    experiment: &'a Experiment,
    running: &Running,
    say: &dyn Fn(&str),
) -> Result<Measured<'a>, Failure> {
    let mut runs = Vec::new();
    for (i, run) in experiment.runs.iter().enumerate() {
        let command = command(wanted, run);
        let (paper, id) = (&wanted.paper.name, &experiment.id);
        say(&format!(
            "{paper} {id}, {} of {}: {command}",
            i + 1,
            experiment.runs.len()
        ));
        let mut variants = Vec::new();
        // Without settings there is one run, with none.
        let each = run.each.iter().map(Some);
        for setting in each.chain(run.each.is_empty().then_some(None)) {
            let one = |part: &[String]| one(wanted, run, setting, part, &command, running);
            let outcomes = match run.parts.is_empty() {
                true => one(&[])?,
                false => {
                    let parts = run.parts.iter().map(|part| one(&part.set));
                    index::combine(&run.parts, parts.collect::<Result<_, _>>()?)
                }
            };
            // No others are run for a seal.
            let sealed = match wanted.sealed {
                Some(_) => vec![true; outcomes.len()],
                None => seal::chosen(outcomes.iter().map(|o| o.variant.as_slice())),
            };
            variants.extend(outcomes.into_iter().zip(sealed).map(|(outcome, sealed)| {
                Variant {
                    label: setting
                        .into_iter()
                        .chain(&outcome.variant)
                        .cloned()
                        .collect::<Vec<_>>()
                        .join(" "),
                    outcome,
                    sealed,
                }
            }));
        }
        runs.push(MeasuredRun {
            run,
            command,
            variants,
        });
    }
    Ok(Measured {
        experiment,
        runs,
        traced: over_time::trace(wanted, experiment, running, say)?,
    })
}

/// A run with one of its settings, as one part of a benchmark: an outcome for each variant.
fn one(
    wanted: &Wanted<'_>,
    run: &Run,
    setting: Option<&String>,
    part: &[String],
    command: &str,
    running: &Running,
) -> Result<Vec<Outcome>, Failure> {
    let scenario = wanted.paper.folder.join(&run.scenario);
    let mut request = Request {
        scenario: scenario.display().to_string(),
        set: run.set.iter().chain(setting).chain(part).cloned().collect(),
        vary: run.vary.clone(),
        arms: if run.chosen {
            run.arms.clone()
        } else {
            Vec::new()
        },
        seeds: Some(seeds(wanted)),
        ..Request::default()
    };
    let mut notes = Vec::new();
    if run.fit
        && !wanted.quick
        && let Some(fit) = calibrate::fit(&shipped::find(&request.scenario)?, &request, running)?
    {
        request.set.extend(fit.set);
        notes = fit.notes;
    }
    // What is fitted is fitted as for the whole page.
    request.seeds = Some(wanted.sealed.unwrap_or(seeds(wanted)));
    let mut plan = plan(
        &request,
        &policies::shipped(),
        wanted.quick.then_some(QUICK),
    )?;
    plan.fitted = !notes.is_empty();
    plan.notes = notes;
    plan.check(Place::Sim, false)?;
    if wanted.sealed.is_some() {
        let mut chosen = seal::chosen(plan.variants.iter().map(|v| v.set.as_slice())).into_iter();
        plan.variants.retain(|_| chosen.next() == Some(true));
    }
    let mut outcomes = whole(&mut plan, running, command.to_string())?.experiments;
    if let Some(speedup) = &run.speedup {
        outcomes
            .iter_mut()
            .for_each(|outcome| speedup::add(speedup, outcome));
    }
    Ok(outcomes)
}

/// The command line that does a run. `SETTING` stands for each of its settings.
fn command(wanted: &Wanted<'_>, run: &Run) -> String {
    let (paper, file) = (&wanted.paper.name, &run.scenario);
    let mut words = vec![format!(
        "berth sim papers/{paper}/{file} --seeds {}",
        seeds(wanted)
    )];
    if run.chosen {
        words.push(format!("--arm {}", run.arms.join(",")));
    }
    if !run.fit || wanted.quick {
        words.push("--no-calibrate".into());
    }
    words.extend(
        run.vary
            .iter()
            .map(|vary| format!("--vary {}", quote(vary))),
    );
    words.extend(run.set.iter().map(|set| format!("--set {}", quote(set))));
    if !run.each.is_empty() {
        words.push("--set SETTING".into());
    }
    if !run.parts.is_empty() {
        words.push("--set PART".into());
    }
    if wanted.quick {
        let Lengths {
            warmup_ms,
            measure_ms,
            ..
        } = QUICK;
        words.push(format!(
            "--set run.warmup={warmup_ms}ms --set run.measure={measure_ms}ms"
        ));
    }
    words.join(" ")
}

fn seeds(wanted: &Wanted<'_>) -> u32 {
    if wanted.quick {
        QUICK.seeds
    } else {
        wanted.paper.seeds
    }
}
