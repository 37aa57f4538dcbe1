// SPDX-License-Identifier: GPL-2.0-only
//! `[calibrate]`: the free parameters of a scenario, fitted on its baseline before anything is compared.
//!
//! Every combination of the values to try is run with the baseline alone; the one whose metric comes nearest to the
//! target stands for the rest, as if the user had set it. No other arm runs before that, so no other arm can have a
//! say.
use crate::error::Failure;
use crate::plan::{Plan, Variant, planned};
use crate::request::Request;
use crate::simulator::{Running, Simulator};
use crate::{policies, replications};
use berth_report::progress::Bar;
use berth_report::text::value as shown;
use berth_results::schema::RunRecord;
use berth_results::stats;
use berth_scenario::model::Calibrate;
use berth_scenario::{Edit, Input, read};

/// Seeds for each combination: enough to tell combinations apart, which differ by far more than seeds do.
const SEEDS: u32 = 3;

/// Combinations that the notes list, the nearest first.
const LISTED: usize = 12;

/// What came out of a fit.
pub struct Fit {
    /// To be set in every arm, as `ADDRESS=VALUE`.
    pub set: Vec<String>,
    /// How it came about, for the results.
    pub notes: Vec<String>,
}

/// One combination of values.
struct Point {
    set: Vec<String>,
    /// Mean over seeds; none if the metric was not measured.
    value: Option<f64>,
}

/// Fits what the scenario asks to be fitted; none if it asks for nothing, or the user has set it all. The request's
/// name is not looked at.
///
/// # Errors
/// The scenario or an option is wrong, the baseline cannot run here, a run fails, or nothing was measured.
pub fn fit(input: &Input, request: &Request, running: &Running) -> Result<Option<Fit>, Failure> {
    let edits: Vec<Edit> = request.set.iter().cloned().map(Edit::Set).collect();
    let scenario = read(input, &edits)?.scenario;
    let Some(calibrate) = scenario.calibrate else {
        return Ok(None);
    };
    let vary = search(&calibrate, request);
    if vary.is_empty() {
        return Ok(None);
    }
    let fitting = Request {
        vary,
        arms: vec![calibrate.arm.clone()],
        policies: Vec::new(),
        seed: None,
        seeds: Some(scenario.run.seeds.min(SEEDS)),
        ..request.clone()
    };
    let mut plan = planned(input, &fitting, &policies::shipped(), None)?;
    let simulator = Simulator::prepare(&mut plan, running)?;
    plan.check(berth_scenario::support::Place::Sim, false)?;
    if let Some(why) = plan.variants.iter().find_map(absent) {
        return Err(Failure::Input(format!(
            "[calibrate] fits arm {}, which has no runs here: {why}\n  Without fitting, with the file's own values: \
             --no-calibrate",
            calibrate.arm
        )));
    }
    let bar = Bar::new(plan.runs() as u64, running.talk);
    bar.line(&format!(
        "fitting on {} alone: {} combinations, {} seeds each",
        calibrate.arm,
        plan.variants.len(),
        plan.seeds.len()
    ));
    let outcome = replications::run(&plan, running, &bar, |variant, arm, seed| {
        simulator.run(variant, arm, seed)
    });
    drop(bar);
    if outcome.cancelled {
        simulator.interrupted(&plan, &outcome.records);
        return Err(Failure::Interrupted);
    }
    if let Some(failure) = outcome.failures.first() {
        return Err(Failure::Run(format!("while fitting: {failure}")));
    }
    let values: Vec<Option<f64>> = outcome
        .records
        .iter()
        .map(|runs| {
            let of = |run: &RunRecord| run.metrics.get(&calibrate.metric).copied();
            let values: Option<Vec<f64>> = runs.iter().map(of).collect();
            Some(stats::estimate(&values?)?.mean)
        })
        .collect();
    choose(&calibrate, &plan, &values).map(Some)
}

fn absent(variant: &Variant) -> Option<String> {
    variant.arms.iter().find_map(|a| a.absent.clone())
}

/// What is to be tried, as `--vary` would say it: what the user has set or varies is not fitted.
fn search(calibrate: &Calibrate, request: &Request) -> Vec<String> {
    calibrate
        .search
        .iter()
        .filter(|(address, _)| !request.says(address))
        .map(|(address, values)| format!("{address}={}", values.join(",")))
        .collect()
}

/// The combination nearest to the target, the first of equally near ones. `values`: means over seeds, of each variant.
fn choose(calibrate: &Calibrate, plan: &Plan, values: &[Option<f64>]) -> Result<Fit, Failure> {
    let mut points: Vec<Point> = plan
        .variants
        .iter()
        .zip(values)
        .map(|(variant, value)| Point {
            set: variant.set.clone(),
            value: *value,
        })
        .collect();
    let distance = |point: &Point| {
        point
            .value
            .map_or(f64::INFINITY, |v| (v - calibrate.target).abs())
    };
    points.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let Some((best, value)) = points.first().and_then(|p| Some((p, p.value?))) else {
        return Err(Failure::Run(format!(
            "while fitting: {} was not measured with arm {}",
            calibrate.metric, calibrate.arm
        )));
    };
    let unit = berth_results::schema::unit_of(&calibrate.metric);
    let claim = calibrate
        .claim
        .as_ref()
        .map_or(String::new(), |id| format!(" ({id})"));
    let mut notes = vec![format!(
        "fitted on {} alone, before any other arm ran: {} = {} with {}, nearest to {}{claim} of {} combinations",
        calibrate.arm,
        calibrate.metric,
        shown(value, unit),
        best.set.join(", "),
        shown(calibrate.target, unit),
        points.len(),
    )];
    let others = points.iter().skip(1).take(LISTED);
    notes.extend(others.map(|p| {
        let value = p.value.map_or("not measured".into(), |v| shown(v, unit));
        format!("also tried: {}: {value}", p.set.join(", "))
    }));
    if points.len() > LISTED + 1 {
        notes.push(format!(
            "and {} combinations farther away",
            points.len() - LISTED - 1
        ));
    }
    Ok(Fit {
        set: best.set.clone(),
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn request(set: &[&str], vary: &[&str]) -> Request {
        let all = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect();
        Request {
            set: all(set),
            vary: all(vary),
            ..Request::default()
        }
    }

    fn calibrate() -> Calibrate {
        Calibrate {
            arm: "base".into(),
            claim: Some("C-1".into()),
            metric: "web.response.mean".into(),
            target: 100.0,
            search: BTreeMap::from([
                ("host.cores".to_string(), vec!["1".into(), "2".into()]),
                (
                    "task.t.period".to_string(),
                    vec!["\"1ms\"".into(), "\"2ms\"".into()],
                ),
            ]),
        }
    }

    #[test]
    fn what_the_user_says_is_not_fitted() {
        let all = search(&calibrate(), &request(&[], &[]));
        assert_eq!(all, ["host.cores=1,2", "task.t.period=\"1ms\",\"2ms\""]);
        let set = search(&calibrate(), &request(&["host.cores=4"], &[]));
        assert_eq!(set, ["task.t.period=\"1ms\",\"2ms\""]);
        let both = request(&["host.cores=4"], &["task.t.period=1ms,3ms"]);
        assert!(search(&calibrate(), &both).is_empty());
    }

    #[test]
    fn the_nearest_combination_is_taken() {
        let plan = Plan {
            name: "x".into(),
            seeds: vec![1, 2],
            variants: ["a=1", "a=2", "a=3"]
                .iter()
                .map(|set| Variant {
                    set: vec![set.to_string()],
                    ..Variant::default()
                })
                .collect(),
            ..Plan::default()
        };
        let values = [Some(85.0), Some(110.0), None];
        let fit = choose(&calibrate(), &plan, &values).ok().unwrap();
        assert_eq!(
            fit.set,
            ["a=2"],
            "110 is nearer than 85; the third was not measured"
        );
        assert!(fit.notes[0].contains("(C-1) of 3 combinations"));
        assert!(fit.notes[1].contains("a=1: "), "{}", fit.notes[1]);
        assert!(matches!(
            choose(&calibrate(), &plan, &[None, None, None]),
            Err(Failure::Run(_))
        ));
    }
}
