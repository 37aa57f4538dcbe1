// SPDX-License-Identifier: GPL-2.0-only
//! How long tasks wait, by the formulas of M-RSF's paper as they are printed, by the queue that they mean (M/M/c/N),
//! and simulated (Dong, Yang, Li, 2024, section 2.1.3; Berth's specification of M-RSF, sections 5 and 6).
//!
//! Times are in units of the mean service time.
use crate::error::Failure;
use crate::plan::{Plan, planned};
use crate::policies;
use crate::request::Request;
use crate::simulator::{Running, whole};
use berth_results::experiment::Experiment;
use berth_scenario::Input;
use serde::Serialize;

const TEXT: &str = include_str!("mrsf.toml");
/// Mean service time of the scenario.
const SERVICE_NS: f64 = 1e7;
/// The most servers, and the most room.
pub const MOST_SERVERS: u32 = 64;
pub const MOST_ROOM: u32 = 100_000;
/// The highest load: the formulas are of any, a simulation of more says little.
pub const MOST_LOAD: f64 = 2.0;

/// What the paper prints, formulas (8) to (11), for its three servers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Printed {
    /// E(L), the last form of (10).
    pub length: f64,
    /// T = E(L) / rho, (11).
    pub delay: f64,
    /// The sum in (10), with (9) for its terms: what E(L) would be if the step between them were right.
    pub sum: f64,
}

/// Formulas (8) to (11) as printed. `None`: rho is 1, where they are 0 / 0.
pub fn printed(rho: f64, room: u32) -> Option<Printed> {
    if rho == 1.0 {
        return None;
    }
    let n = f64::from(room);
    let (of_n, of_n1) = (rho.powf(n), rho.powf(n + 1.0));
    let length = 3.0 * rho * rho / (1.0 - rho) - (n + 1.0) * of_n1 / (1.0 - of_n1);
    let sum =
        3.0 * rho * rho * (1.0 - (n + 1.0) * of_n + n * of_n1) / ((1.0 - rho) * (1.0 - of_n1));
    Some(Printed {
        length,
        delay: length / rho,
        sum,
    })
}

/// M/M/c/N in steady state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Queue {
    /// Part of the time that nobody is there.
    pub empty: f64,
    /// Part of the arrivals that find no room.
    pub lost: f64,
    /// Mean number of those that wait, and of all.
    pub waiting: f64,
    pub present: f64,
    /// Mean waiting time of those that come in, and with their service.
    pub wait: f64,
    pub stay: f64,
}

/// M/M/c/N: `servers` c, `room` N of them and those that wait together (N >= c), load u = r / (c m). By recursion over
/// the number present, so that nothing overflows.
pub fn mmcn(load: f64, servers: u32, room: u32) -> Queue {
    let c = f64::from(servers);
    let rate = load * c;
    // Weights of the states, the largest so far being at most 1e100.
    let (mut weight, mut total, mut waiting, mut present, mut first) =
        (1.0_f64, 1.0, 0.0, 0.0, 1.0);
    for k in 1..=room {
        weight *= rate / f64::from(k.min(servers));
        total += weight;
        waiting += weight * f64::from(k.saturating_sub(servers));
        present += weight * f64::from(k);
        if total > 1e100 {
            for value in [
                &mut weight,
                &mut total,
                &mut waiting,
                &mut present,
                &mut first,
            ] {
                *value /= 1e100;
            }
        }
    }
    let (lost, waiting, present) = (weight / total, waiting / total, present / total);
    let accepted = rate * (1.0 - lost);
    Queue {
        empty: first / total,
        lost,
        waiting,
        present,
        wait: waiting / accepted,
        stay: present / accepted,
    }
}

/// Mean waiting time of n exponential tasks that are all there at once, on `cpus` CPUs, by who goes first (section
/// 6.1; with several CPUs but for what happens at the end).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Batch {
    /// FCFS and whoever does not look at sizes.
    pub blind: f64,
    /// Shortest first: the least there can be.
    pub shortest: f64,
    /// M-RSF with slices of q, sizes known.
    pub mrsf: f64,
}

/// Section 6.1; `slice` in mean service times.
pub fn batch(tasks: u32, cpus: u32, slice: f64) -> Batch {
    let others = (f64::from(tasks) - 1.0) / f64::from(cpus);
    let [two, four] = [2.0, 4.0].map(|n: f64| slice * (-n * slice).exp());
    Batch {
        blind: others / 2.0,
        shortest: others / 4.0,
        mrsf: others / 2.0 * (0.5 + two + four),
    }
}

/// The rate that per_queue's five CPUs sustain, in tasks per mean service time (section 6.4): the busiest of a CPU of
/// level 1, that of level 2 and that of level 3 decides.
pub fn sustained(slice: f64) -> f64 {
    let left = (-slice).exp();
    let work = [(1.0 - left) / 3.0, left * (1.0 - left), left * left];
    1.0 / work.into_iter().fold(0.0, f64::max)
}

/// The slice at which that is most: ln 3.
pub fn best_slice() -> f64 {
    3.0_f64.ln()
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Loads: above 0, up to [`MOST_LOAD`].
    pub loads: Vec<f64>,
    /// Rooms: from the number of servers.
    pub rooms: Vec<u32>,
    pub servers: u32,
    /// Seeds of each simulation; 0: none is made.
    pub seeds: u32,
}

impl Default for Question {
    /// The specification's table.
    fn default() -> Question {
        Question {
            loads: vec![0.5, 0.8, 0.9, 0.99],
            rooms: vec![10, 100],
            servers: 3,
            seeds: 10,
        }
    }
}

/// A mean over seeds with the half of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    pub mean: f64,
    pub half: f64,
}

/// A line of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    pub load: f64,
    pub room: u32,
    pub servers: u32,
    /// Of the paper's rho = load; none: 0 / 0.
    pub printed: Option<Printed>,
    pub queue: Queue,
    /// Simulated mean waiting time, and part of the arrivals that were lost.
    pub wait: Option<Mean>,
    pub lost: Option<Mean>,
}

impl Point {
    /// The formula's waiting time is in the simulation's interval, which is widened by half: a 95 % interval leaves one
    /// of twenty points out, and one of thirty points in a hundred tests is not to be that.
    pub fn agrees(&self) -> bool {
        let Some(wait) = self.wait else { return true };
        (wait.mean - self.queue.wait).abs() <= 1.5 * wait.half + 1e-9
    }
}

/// All loads with all rooms.
///
/// # Errors
/// A value out of its range, an interrupt, a run that failed.
pub fn answer(question: &Question, running: &Running) -> Result<Vec<Point>, Failure> {
    check(question)?;
    let simulated = match question.seeds {
        0 => None,
        _ => Some(simulate(question, running)?),
    };
    let of = |load: &f64, room: &u32| {
        let at = question.loads.iter().position(|l| l == load).unwrap_or(0) * question.rooms.len()
            + question.rooms.iter().position(|r| r == room).unwrap_or(0);
        let (wait, lost) = simulated.as_ref().map(|all| all[at]).unzip();
        Point {
            load: *load,
            room: *room,
            servers: question.servers,
            printed: printed(*load, *room),
            queue: mmcn(*load, question.servers, *room),
            wait,
            lost,
        }
    };
    let rooms = &question.rooms;
    Ok((question
        .loads
        .iter()
        .flat_map(|load| rooms.iter().map(move |room| of(load, room))))
    .collect())
}

fn check(question: &Question) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::Input(why));
    let servers = question.servers;
    if servers == 0 || servers > MOST_SERVERS {
        return refuse(format!(
            "the number of servers is {servers}: it goes from 1 to {MOST_SERVERS}"
        ));
    }
    for load in &question.loads {
        if !(*load > 0.0 && *load <= MOST_LOAD) {
            return refuse(format!(
                "the load is {load}: it goes from above 0 to {MOST_LOAD}"
            ));
        }
    }
    for room in &question.rooms {
        if *room < servers || *room > MOST_ROOM {
            return refuse(format!(
                "N is {room}: it counts those that are served, too, and goes from the number of servers, {servers}, to \
                 {MOST_ROOM}"
            ));
        }
    }
    match question.seeds {
        0 | 2..=1000 => Ok(()),
        seeds => refuse(format!(
            "{seeds} seeds: an interval needs 2 to 1000, or 0 for no simulation"
        )),
    }
}

fn simulate(question: &Question, running: &Running) -> Result<Vec<(Mean, Mean)>, Failure> {
    let rate = |load: &f64| load * f64::from(question.servers) * 1e9 / SERVICE_NS;
    let listed = |values: Vec<String>| values.join(",");
    let request = Request {
        set: vec![
            format!("host.cores={}", question.servers),
            format!("run.seeds={}", question.seeds),
        ],
        vary: vec![
            format!(
                "client.customers.sends={}",
                listed(
                    question
                        .loads
                        .iter()
                        .map(|l| format!("poisson({:.9}/s)", rate(l)))
                        .collect()
                )
            ),
            format!(
                "client.customers.at_most={}",
                listed(question.rooms.iter().map(u32::to_string).collect())
            ),
        ],
        ..Request::default()
    };
    let input = Input {
        name: "model-mrsf".into(),
        shown: "the model of M-RSF".into(),
        text: TEXT.into(),
        folder: None,
    };
    let mut plan: Plan = planned(&input, &request, &policies::shipped(), None)?;
    let results = whole(&mut plan, running, String::new())?;
    results.experiments.iter().map(measured).collect()
}

fn measured(experiment: &Experiment) -> Result<(Mean, Mean), Failure> {
    let of = |metric: &str, per: f64| -> Result<Mean, Failure> {
        let found = experiment.estimate("fcfs", metric);
        let found = found.ok_or_else(|| Failure::Run(format!("there is no {metric}")))?;
        Ok(Mean {
            mean: found.mean / per,
            half: found.half.unwrap_or(f64::INFINITY) / per,
        })
    };
    Ok((
        of("servers.waiting.mean", SERVICE_NS)?,
        of("servers.response.lost", 1.0)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, told: f64, digits: i32) -> bool {
        (got - told).abs() <= 0.5 * 10_f64.powi(-digits) * 1.02
    }

    /// Section 5's table: load, N; E(L), T and the sum of (10) by the paper; p0, p_N, Lq, Wq, L of M/M/3/N.
    #[test]
    fn the_formulas_are_the_specification_s_table() {
        let table = [
            (
                0.5,
                10,
                [1.4946, 2.9893, 1.4919],
                [0.2107, 0.00093, 0.2287, 0.1526, 1.7273],
            ),
            (
                0.5,
                100,
                [1.5, 3.0, 1.5],
                [0.2105, 0.0, 0.2368, 0.1579, 1.7368],
            ),
            (
                0.8,
                10,
                [8.5663, 10.7079, 7.1192],
                [0.0630, 0.0305, 1.4424, 0.6199, 3.7693],
            ),
            (
                0.8,
                100,
                [9.6, 12.0, 9.6],
                [0.0562, 5e-11, 2.5888, 1.0787, 4.9888],
            ),
            (
                0.9,
                10,
                [19.2694, 21.4105, 10.7175],
                [0.0384, 0.0603, 2.1200, 0.8355, 4.6572],
            ),
            (
                0.9,
                100,
                [24.2976, 26.9973, 24.2935],
                [0.0249, 3e-6, 7.3509, 2.7226, 10.0509],
            ),
        ];
        for (load, room, paper, queue) in table {
            let p = printed(load, room).unwrap();
            for (got, told) in [p.length, p.delay, p.sum].into_iter().zip(paper) {
                assert!(
                    near(got, told, 4),
                    "paper at {load}, {room}: {got} for {told}"
                );
            }
            let q = mmcn(load, 3, room);
            for (got, told) in [q.empty, q.lost, q.waiting, q.wait, q.present]
                .into_iter()
                .zip(queue)
            {
                assert!(
                    near(got, told, 4),
                    "M/M/3/N at {load}, {room}: {got} for {told}"
                );
            }
        }
        let p = printed(0.99, 100).unwrap();
        assert!(near(p.length, 236.63, 2) && near(p.delay, 239.02, 2) && near(p.sum, 123.55, 2));
        let q = mmcn(0.99, 3, 100);
        assert!(
            near(q.waiting, 39.378, 3) && near(q.wait, 13.3365, 4) && near(q.present, 42.331, 3)
        );
        assert!(printed(0.99, 10).unwrap().delay > 10.0, "a delay beyond N");
        assert_eq!(printed(1.0, 10), None);
    }

    /// The closed forms of section 5 beside the recursion: u < 1, u = 1, N = c (nobody waits), N without end.
    #[test]
    fn the_recursion_is_the_closed_form() {
        for (u, c, n) in [(0.3, 3, 7), (0.95, 4, 60), (1.7, 2, 9)] {
            let (a, servers, room) = (u * f64::from(c), f64::from(c), f64::from(n));
            let factorial = |k: u32| (1..=k).map(f64::from).product::<f64>();
            let head: f64 = (0..c).map(|k| a.powi(k as i32) / factorial(k)).sum();
            let top = a.powi(c as i32) / factorial(c);
            let tail: f64 = (0..=n - c).map(|j| u.powi(j as i32)).sum();
            let p0 = 1.0 / (head + top * tail);
            let m = room - servers;
            let inner = 1.0 - u.powf(m + 1.0) - (1.0 - u) * (m + 1.0) * u.powf(m);
            let lq = p0 * top * u / (1.0 - u).powi(2) * inner;
            let q = mmcn(u, c, n);
            assert!((q.empty / p0 - 1.0).abs() < 1e-12 && (q.waiting / lq - 1.0).abs() < 1e-9);
        }
        let even = mmcn(1.0, 3, 10);
        let lq = even.empty * 4.5 * 7.0 * 8.0 / 2.0;
        assert!((even.waiting / lq - 1.0).abs() < 1e-12);
        assert_eq!(mmcn(0.7, 3, 3).waiting, 0.0);
        let erlang = mmcn(0.8, 3, 50_000);
        assert!((erlang.empty - 0.2 / (1.0 + 1.6 + 0.96)).abs() < 1e-12 && erlang.wait.is_finite());
        assert!(mmcn(2.0, 64, MOST_ROOM).wait.is_finite());
    }

    #[test]
    fn batches_and_sustained_rates_are_those_of_section_6() {
        let per = |q: f64| batch(1_000_001, 1, q).mrsf / 1e6;
        for (q, told) in [(0.5, 0.376), (1.0, 0.327), (1.5, 0.289), (2.0, 0.269)] {
            assert!(near(per(q), told, 3), "{q}");
        }
        assert!(near(per(0.38), 0.380, 3) && per(0.38) > per(0.3) && per(0.38) > per(0.46));
        let b = batch(101, 5, 30.0);
        assert_eq!((b.blind, b.shortest), (10.0, 5.0));
        assert!((b.mrsf - b.shortest).abs() < 1e-9);
        for (q, told) in [(0.5, 2.72), (1.0, 4.30), (1.5, 3.86), (2.0, 3.47)] {
            assert!(near(sustained(q), told, 2), "{q}: {}", sustained(q));
        }
        assert!(near(best_slice(), 1.0986, 4) && near(sustained(best_slice()), 4.5, 2));
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
        assert!(wrong(|q| q.servers = 0).starts_with("the number of servers is 0"));
        assert!(wrong(|q| q.rooms = vec![2]).starts_with("N is 2:"));
        assert!(wrong(|q| q.loads = vec![f64::NAN]).starts_with("the load is NaN"));
        assert!(wrong(|q| q.loads = vec![0.0]).starts_with("the load is 0"));
        assert!(wrong(|q| q.seeds = 1).starts_with("1 seeds"));
    }
}
