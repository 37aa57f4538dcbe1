// SPDX-License-Identifier: GPL-2.0-only
//! Two VMs of one vCPU that always run, one fast core and one slow one: what `amp` with R % shared in equal parts
//! achieves, and what it costs the VM that gains less (ISCA 2011, Fig. 4; Berth's specification of AMP, section 7).
//!
//! A VM's efficiency e is its speed on the fast core, a slow core's being 1. VM one has e1, VM two e2 <= e1.
use crate::error::Failure;
use crate::plan::{Plan, planned};
use crate::policies;
use crate::request::Request;
use crate::simulator::{Running, whole};
use berth_report::plot::{self, Plot, Series};
use berth_results::experiment::Experiment;
use berth_scenario::Input;
use serde::Serialize;

/// Speed of the fast core, for who never waits for memory: the highest efficiency there can be.
pub const FASTEST: f64 = 2.375;
/// A simulated value this far from its closed form is a finding: part of the throughput; of the slowdown, which is a
/// part already, the difference.
pub const TOLERANCE: f64 = 0.005;
const TEXT: &str = include_str!("amp.toml");
/// Adaptive R moves ten points a plan, and plans are 2.5 s apart. Its limit is one of a mean over plans, so that 6 s,
/// which are two of them, say nothing of it where noise makes VMs change places.
const ADAPTED: [&str; 2] = ["run.warmup=40s", "run.measure=60s"];

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Efficiency of VM one: 1 to [`FASTEST`].
    pub e1: f64,
    /// Efficiencies of VM two: 1 to `e1`.
    pub e2: Vec<f64>,
    /// R, in %: 0 to 100.
    pub r_percent: Vec<f64>,
    /// The slowdown that adaptive R allows, in %: 0 to 100.
    pub limit_percent: f64,
    /// Deviation of a task's instructions per cycle, drawn anew every 2.5 s, in %: 0 to 100. The closed forms know
    /// none.
    pub noise_percent: f64,
}

impl Default for Question {
    /// The specification's table.
    fn default() -> Question {
        Question {
            e1: 2.0,
            e2: vec![1.0, 1.25, 1.5, 1.75, 2.0],
            r_percent: vec![0.0, 50.0, 100.0],
            limit_percent: 10.0,
            noise_percent: 0.0,
        }
    }
}

/// Throughput and slowdown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Work of both VMs, that of two slow cores being 1.
    pub throughput: f64,
    /// Of the VM that loses most against equal parts (R = 100 %), as a part; 0 if none does.
    pub max_slowdown: f64,
}

/// One line of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    pub e1: f64,
    pub e2: f64,
    /// Of adaptive R what its closed form gives.
    pub r_percent: f64,
    pub adaptive: bool,
    pub closed_form: Outcome,
    pub simulated: Outcome,
}

impl Point {
    /// The simulation is the closed form, within [`TOLERANCE`]. Of two VMs that gain the same either may go first, or
    /// they may take turns: nobody loses more than the closed form says.
    pub fn agrees(&self) -> bool {
        let throughput = self.simulated.throughput / self.closed_form.throughput - 1.0;
        let slowdown = self.simulated.max_slowdown - self.closed_form.max_slowdown;
        let tie = self.e1 == self.e2;
        throughput.abs() <= TOLERANCE && (slowdown.abs() <= TOLERANCE || tie && slowdown < 0.0)
    }
}

/// Section 7, `R%-fair` and its general form: VM one has 1 - r/2 of the fast core, VM two r/2.
pub fn closed_form(e1: f64, e2: f64, r_percent: f64) -> Outcome {
    let r = r_percent / 100.0;
    Outcome {
        throughput: (1.0 + e1 - r / 2.0 * (e1 - e2)) / 2.0,
        max_slowdown: (1.0 - r) * (e2 - 1.0) / (e2 + 1.0),
    }
}

/// The smallest R, in %, at which VM two loses no more than the limit (section 7; D14 for one core of each kind).
pub fn smallest_r_percent(e2: f64, limit_percent: f64) -> f64 {
    let most = closed_form(e2, e2, 0.0).max_slowdown;
    match most > 0.0 {
        true => (100.0 - limit_percent / most).max(0.0),
        false => 0.0,
    }
}

/// Closed forms and simulations: every R with every e2, then adaptive R with every e2.
///
/// # Errors
/// A value out of its range, an interrupt, a run that failed.
pub fn answer(question: &Question, running: &Running) -> Result<Vec<Point>, Failure> {
    check(question)?;
    let Question { e1, e2, .. } = question;
    let mut of_r = question.r_percent.clone();
    // What slowdowns are told against.
    of_r.push(100.0);
    let listed: Vec<String> = of_r.iter().map(f64::to_string).collect();
    let fixed = Request {
        vary: vec![varied(e2), format!("policy.r={}", listed.join(","))],
        ..request(question)
    };
    let adaptive = Request {
        set: [
            request(question).set,
            vec![
                ADAPTED[0].into(),
                ADAPTED[1].into(),
                "policy.adaptive=1".into(),
                format!("policy.limit_percent={}", question.limit_percent),
            ],
        ]
        .concat(),
        vary: vec![varied(e2)],
        ..Request::default()
    };
    let (fixed, adaptive) = (simulate(&fixed, running)?, simulate(&adaptive, running)?);
    let mut points = Vec::new();
    for ((e2, of_e2), adapted) in e2.iter().zip(fixed.chunks(of_r.len())).zip(&adaptive) {
        let fair = of_e2[of_r.len() - 1];
        let point = |r_percent, speeds: &[f64; 2], adaptive| Point {
            e1: *e1,
            e2: *e2,
            r_percent,
            adaptive,
            closed_form: closed_form(*e1, *e2, r_percent),
            simulated: outcome(speeds, &fair),
        };
        let asked = question.r_percent.iter().zip(of_e2);
        points.extend(asked.map(|(r, speeds)| point(*r, speeds, false)));
        let r = smallest_r_percent(*e2, question.limit_percent);
        points.push(point(r, adapted, true));
    }
    points.sort_by_key(|p| p.adaptive);
    Ok(points)
}

/// Throughput over e2, a line for each R.
pub fn plot(points: &[Point]) -> String {
    let fixed: Vec<&Point> = points.iter().filter(|p| !p.adaptive).collect();
    let mut categories: Vec<String> = Vec::new();
    let mut series: Vec<Series> = Vec::new();
    for p in &fixed {
        let category = p.e2.to_string();
        if !categories.contains(&category) {
            categories.push(category);
        }
        for (what, outcome) in [("closed form", p.closed_form), ("simulated", p.simulated)] {
            let name = format!("R = {} %, {what}", p.r_percent);
            let point = Some(plot::Point {
                mean: outcome.throughput,
                half: 0.0,
            });
            match series.iter_mut().find(|s| s.name == name) {
                Some(of) => of.points.push(point),
                None => series.push(Series {
                    name,
                    points: vec![point],
                }),
            }
        }
    }
    plot::lines(&Plot {
        title: "Two VMs on a fast and a slow core under amp".into(),
        x: "e2, efficiency of VM two".into(),
        y: "throughput (two slow cores = 1)".into(),
        categories,
        series,
        ..Plot::default()
    })
}

fn check(question: &Question) -> Result<(), Failure> {
    let within = |what: &str, value: f64, low: f64, high: f64| {
        if (low..=high).contains(&value) {
            return Ok(());
        }
        Err(Failure::Input(format!(
            "{what} is {value}: it goes from {low} to {high}"
        )))
    };
    within("e1", question.e1, 1.0, FASTEST)?;
    for e2 in &question.e2 {
        within("e2", *e2, 1.0, question.e1)?;
    }
    for r in &question.r_percent {
        within("R", *r, 0.0, 100.0)?;
        if r.fract() != 0.0 {
            return Err(Failure::Input(format!(
                "R is {r}: amp takes whole percents"
            )));
        }
    }
    within("the limit", question.limit_percent, 0.0, 100.0)?;
    within("the noise", question.noise_percent, 0.0, 20.0)?;
    if question.limit_percent.fract() != 0.0 {
        return Err(Failure::Input(format!(
            "the limit is {}: amp takes whole percents",
            question.limit_percent
        )));
    }
    Ok(())
}

/// The part of its time that a task of efficiency e waits for memory, in %.
fn stall_percent(e: f64) -> f64 {
    100.0 * (1.0 / e - 1.0 / FASTEST) / (1.0 - 1.0 / FASTEST)
}

fn request(question: &Question) -> Request {
    Request {
        set: vec![
            format!("task.one.stall={:.6}%", stall_percent(question.e1)),
            format!("host.pmu_noise={}%", question.noise_percent),
        ],
        ..Request::default()
    }
}

fn varied(e2: &[f64]) -> String {
    let stalls: Vec<String> = e2
        .iter()
        .map(|e| format!("{:.6}%", stall_percent(*e)))
        .collect();
    format!("task.two.stall={}", stalls.join(","))
}

/// Speeds of VM one and two, of each variant in order.
fn simulate(request: &Request, running: &Running) -> Result<Vec<[f64; 2]>, Failure> {
    let input = Input {
        name: "model-amp".into(),
        shown: "the model of amp".into(),
        text: TEXT.into(),
        folder: None,
    };
    let mut plan: Plan = planned(&input, request, &policies::shipped(), None)?;
    let results = whole(&mut plan, running, String::new())?;
    results.experiments.iter().map(speeds).collect()
}

fn speeds(experiment: &Experiment) -> Result<[f64; 2], Failure> {
    let window_ns = experiment.setup.measure_ns as f64;
    let speed = |vm: &str| -> Result<f64, Failure> {
        let work = experiment.estimate("amp", &format!("{vm}.work"));
        let work = work.ok_or_else(|| Failure::Run(format!("VM {vm} has no work")))?;
        Ok(work.mean / window_ns)
    };
    Ok([speed("one")?, speed("two")?])
}

fn outcome(speeds: &[f64; 2], fair: &[f64; 2]) -> Outcome {
    let slowdowns = speeds
        .iter()
        .zip(fair)
        .map(|(speed, fair)| 1.0 - speed / fair);
    Outcome {
        throughput: speeds.iter().sum::<f64>() / 2.0,
        max_slowdown: slowdowns.fold(0.0, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closed_forms_are_the_specification_s_tables() {
        let throughput = [
            [1.5, 1.375, 1.25],
            [1.5, 1.4063, 1.3125],
            [1.5, 1.4375, 1.375],
            [1.5, 1.4688, 1.4375],
            [1.5, 1.5, 1.5],
        ];
        let slowdown = [
            [0.0, 0.0],
            [0.1111, 0.0556],
            [0.2, 0.1],
            [0.2727, 0.1364],
            [0.3333, 0.1667],
        ];
        for (i, e2) in [1.0, 1.25, 1.5, 1.75, 2.0].into_iter().enumerate() {
            for (j, r) in [0.0, 50.0, 100.0].into_iter().enumerate() {
                let got = closed_form(2.0, e2, r);
                assert!(
                    (got.throughput - throughput[i][j]).abs() < 6e-5,
                    "T({e2}) at {r}"
                );
                let told = slowdown[i].get(j).copied().unwrap_or(0.0);
                assert!((got.max_slowdown - told).abs() < 6e-5, "S({e2}) at {r}");
            }
        }
        // A limit of 10 %: R = 70 % for e = 2, 10 % for e = 1.25; who gains nothing loses nothing.
        assert!((smallest_r_percent(2.0, 10.0) - 70.0).abs() < 1e-9);
        assert!((smallest_r_percent(1.25, 10.0) - 10.0).abs() < 1e-9);
        assert_eq!(smallest_r_percent(1.0, 10.0), 0.0);
    }

    #[test]
    fn a_value_out_of_its_range_is_named() {
        let wrong = |change: fn(&mut Question)| {
            let mut question = Question::default();
            change(&mut question);
            match check(&question) {
                Err(Failure::Input(text)) => text,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(wrong(|q| q.e1 = 2.4), "e1 is 2.4: it goes from 1 to 2.375");
        assert_eq!(
            wrong(|q| q.e2 = vec![2.1]),
            "e2 is 2.1: it goes from 1 to 2"
        );
        assert_eq!(
            wrong(|q| q.r_percent = vec![101.0]),
            "R is 101: it goes from 0 to 100"
        );
        assert_eq!(
            wrong(|q| q.r_percent = vec![f64::NAN]),
            "R is NaN: it goes from 0 to 100"
        );
        assert_eq!(
            wrong(|q| q.r_percent = vec![2.5]),
            "R is 2.5: amp takes whole percents"
        );
    }

    #[test]
    fn the_most_that_is_lost_is_told_of_whoever_loses_it() {
        // The second gains 0.1, the first loses a fifth.
        let got = outcome(&[1.2, 1.1], &[1.5, 1.0]);
        assert!((got.max_slowdown - 0.2).abs() < 1e-12 && (got.throughput - 1.15).abs() < 1e-12);
        assert_eq!(outcome(&[1.5, 1.0], &[1.5, 1.0]).max_slowdown, 0.0);
    }
}
