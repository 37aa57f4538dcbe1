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
/// The least load and the highest: the formulas are of any, a simulation of less or more says little.
pub const LEAST_LOAD: f64 = 0.001;
pub const MOST_LOAD: f64 = 2.0;
/// A run warms up for so many relaxation times, and is measured for so many.
const WARM: f64 = 5.0;
const MEASURED: f64 = 200.0;
/// It measures at least so many mean service times, and arrivals; and no more arrivals are simulated, warm-up and all.
const LEAST_SERVICES: f64 = 5000.0;
const LEAST_ARRIVALS: f64 = 1000.0;
const MOST_ARRIVALS: f64 = 1e6;
/// An interval that is wider than this part of the value is no check of it.
pub const WIDE: f64 = 0.1;
/// A formula's value differs if it is off by more than so many half widths: a 95 % interval leaves one of twenty points
/// out, and one of thirty points in a hundred tests is not to be that.
pub const WIDENED: f64 = 1.5;

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
    // rho^(N+1) / (1 - rho^(N+1)), of what does not overflow.
    let log = (n + 1.0) * rho.ln();
    let part = if log > 0.0 {
        1.0 / (-log).exp_m1()
    } else {
        log.exp() / -log.exp_m1()
    };
    let length = 3.0 * rho * rho / (1.0 - rho) - (n + 1.0) * part;
    // (9) is 3 rho^k over the sum of all rho^j up to N; weights as in `mmcn`.
    let (mut weight, mut total, mut sum) = (1.0_f64, 1.0, 0.0);
    for k in 1..=room {
        weight *= rho;
        total += weight;
        sum += f64::from(k) * weight * rho;
        if total > 1e100 {
            for value in [&mut weight, &mut total, &mut sum] {
                *value /= 1e100;
            }
        }
    }
    Some(Printed {
        length,
        delay: length / rho,
        sum: 3.0 * sum / total,
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

/// How fast M/M/c/N forgets where it began, in mean service times: one over its spectral gap, which is that of the
/// queue beyond c with reflecting ends, or of a single service if that is less.
pub fn relaxation(load: f64, servers: u32, room: u32) -> f64 {
    let c = f64::from(servers);
    let states = f64::from((room - servers).max(1)) + 1.0;
    let root = load.sqrt();
    let gap =
        c * ((1.0 - root).powi(2) + 2.0 * root * (1.0 - (std::f64::consts::PI / states).cos()));
    1.0 / gap.min(1.0)
}

/// How long a run has to be, in mean service times: to warm up, and to be measured.
fn needed(load: f64, servers: u32, room: u32) -> (f64, f64) {
    let rate = load * f64::from(servers);
    let forgets = relaxation(load, servers, room);
    // Above saturation an empty queue fills first.
    let fills = if load > 1.0 {
        f64::from(room) / (rate - f64::from(servers))
    } else {
        0.0
    };
    // Near saturation it fills by chance, which the relaxation time has in it.
    let warm = WARM * forgets + fills.min(WARM * forgets * f64::from(room));
    let measured = (MEASURED * forgets)
        .max(LEAST_SERVICES)
        .max(LEAST_ARRIVALS / rate);
    (warm.max(0.1 * LEAST_SERVICES), measured)
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
    pub rooms: Vec<i64>,
    pub servers: i64,
    /// Seeds of each simulation; 0: none is made.
    pub seeds: i64,
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
    pub verdict: Verdict,
}

/// What a simulation says of a formula's waiting time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is in the simulation's interval, widened by [`WIDENED`].
    Agrees,
    /// It is not.
    Differs,
    /// The interval is so large a part of the value that it is no check ([`WIDE`]).
    TooWide { part: f64 },
    /// The queue forgets its beginning so slowly that a run would need so many arrivals: it was not simulated.
    TooLong { arrivals: f64 },
    /// No simulation was asked for.
    None,
}

impl Verdict {
    fn of(formula: f64, wait: Mean) -> Verdict {
        if (wait.mean - formula).abs() > WIDENED * wait.half + 1e-9 {
            Verdict::Differs
        } else if wait.half > WIDE * formula {
            Verdict::TooWide {
                part: wait.half / formula,
            }
        } else {
            Verdict::Agrees
        }
    }
}

impl Point {
    /// No simulation says otherwise.
    pub fn agrees(&self) -> bool {
        self.verdict != Verdict::Differs
    }
}

/// All loads with all rooms.
///
/// # Errors
/// A value out of its range, an interrupt, a run that failed.
pub fn answer(question: &Question, running: &Running) -> Result<Vec<Point>, Failure> {
    check(question)?;
    let servers = question.servers as u32;
    let mut points = Vec::new();
    for load in &question.loads {
        for room in question.rooms.iter().map(|room| *room as u32) {
            let queue = mmcn(*load, servers, room);
            let (warm, measured) = needed(*load, servers, room);
            let arrivals = (warm + measured) * load * f64::from(servers);
            let (simulated, verdict) = if question.seeds == 0 {
                (None, Verdict::None)
            } else if arrivals > MOST_ARRIVALS {
                (None, Verdict::TooLong { arrivals })
            } else {
                let (wait, lost) = simulate(*load, room, (warm, measured), question, running)?;
                (Some((wait, lost)), Verdict::of(queue.wait, wait))
            };
            let (wait, lost) = simulated.unzip();
            points.push(Point {
                load: *load,
                room,
                servers,
                printed: printed(*load, room),
                queue,
                wait,
                lost,
                verdict,
            });
        }
    }
    Ok(points)
}

fn check(question: &Question) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::Input(why));
    let servers = question.servers;
    if !(1..=i64::from(MOST_SERVERS)).contains(&servers) {
        return refuse(format!(
            "the number of servers is {servers}: it goes from 1 to {MOST_SERVERS}"
        ));
    }
    for load in &question.loads {
        if !(LEAST_LOAD..=MOST_LOAD).contains(load) {
            return refuse(format!(
                "the load is {load:?}: it goes from {LEAST_LOAD} to {MOST_LOAD}"
            ));
        }
    }
    for room in &question.rooms {
        if !(servers..=i64::from(MOST_ROOM)).contains(room) {
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

fn simulate(
    load: f64,
    room: u32,
    (warm, measured): (f64, f64),
    question: &Question,
    running: &Running,
) -> Result<(Mean, Mean), Failure> {
    let rate = load * question.servers as f64 * 1e9 / SERVICE_NS;
    let ms = |services: f64| (services * SERVICE_NS / 1e6).ceil();
    let request = Request {
        set: vec![
            format!("host.cores={}", question.servers),
            format!("run.seeds={}", question.seeds),
            format!("run.warmup={}ms", ms(warm)),
            format!("run.measure={}ms", ms(measured)),
            format!("client.customers.sends=poisson({rate:.9}/s)"),
            format!("client.customers.at_most={room}"),
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
    let [experiment] = results.experiments.as_slice() else {
        return Err(Failure::Run("there is no result".into()));
    };
    measurements(experiment)
}

fn measurements(experiment: &Experiment) -> Result<(Mean, Mean), Failure> {
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

    /// Section 5's table: load, N; E(L), T and the sum of (10) by the paper; p0, Lq, Wq, L of M/M/3/N; and p_N
    /// with the digits after the point that the table has of it.
    #[test]
    fn the_formulas_are_the_specification_s_table() {
        let table = [
            (
                (0.5, 10),
                [1.4946, 2.9893, 1.4919],
                [0.2107, 0.2287, 0.1526, 1.7273],
                (0.00093, 5),
            ),
            (
                (0.5, 100),
                [1.5, 3.0, 1.5],
                [0.2105, 0.2368, 0.1579, 1.7368],
                (0.0, 20),
            ),
            (
                (0.8, 10),
                [8.5663, 10.7079, 7.1192],
                [0.0630, 1.4424, 0.6199, 3.7693],
                (0.0305, 4),
            ),
            (
                (0.8, 100),
                [9.6, 12.0, 9.6],
                [0.0562, 2.5888, 1.0787, 4.9888],
                (5e-11, 11),
            ),
            (
                (0.9, 10),
                [19.2694, 21.4105, 10.7175],
                [0.0384, 2.1200, 0.8355, 4.6572],
                (0.0603, 4),
            ),
            (
                (0.9, 100),
                [24.2976, 26.9973, 24.2935],
                [0.0249, 7.3509, 2.7226, 10.0509],
                (3e-6, 6),
            ),
        ];
        for ((load, room), paper, queue, (lost, digits)) in table {
            let p = printed(load, room).unwrap();
            for (got, told) in [p.length, p.delay, p.sum].into_iter().zip(paper) {
                assert!(
                    near(got, told, 4),
                    "paper at {load}, {room}: {got} for {told}"
                );
            }
            let q = mmcn(load, 3, room);
            for (got, told) in [q.empty, q.waiting, q.wait, q.present]
                .into_iter()
                .zip(queue)
            {
                assert!(
                    near(got, told, 4),
                    "M/M/3/N at {load}, {room}: {got} for {told}"
                );
            }
            assert!(
                near(q.lost, lost, digits),
                "p_N at {load}, {room}: {} for {lost}",
                q.lost
            );
        }
        let p = printed(0.99, 100).unwrap();
        assert!(near(p.length, 236.63, 2) && near(p.delay, 239.02, 2) && near(p.sum, 123.55, 2));
        let q = mmcn(0.99, 3, 100);
        assert!(near(q.empty, 0.0035, 4) && near(q.lost, 0.0058, 4), "{q:?}");
        assert!(
            near(q.waiting, 39.378, 3) && near(q.wait, 13.3365, 4) && near(q.present, 42.331, 3)
        );
        let full = printed(0.99, 10).unwrap().delay;
        assert!(near(full, 201.9, 1), "a delay beyond N: {full}");
        assert_eq!(printed(1.0, 10), None);
    }

    /// Where rho^(N+1) is beyond all numbers, and where it is all but 1.
    #[test]
    fn what_is_printed_is_a_number_everywhere() {
        let p = printed(2.0, MOST_ROOM).unwrap();
        let n = f64::from(MOST_ROOM);
        // -12 + N + 1; and 3 rho times the mean of k, which is N - 1 / (rho - 1).
        assert!((p.length - (n - 11.0)).abs() < 1e-6, "{p:?}");
        assert!((p.sum - 6.0 * (n - 1.0)).abs() < 1e-3, "{p:?}");
        for rho in [LEAST_LOAD, 1.0 - 1e-9, 1.0 + 1e-9, 1.0001, 1.5] {
            for room in [1, 10, MOST_ROOM] {
                let p = printed(rho, room).unwrap();
                assert!(
                    p.length.is_finite() && p.delay.is_finite(),
                    "{rho}, {room}: {p:?}"
                );
                assert!(
                    p.sum > 0.0 && p.sum <= 3.0 * f64::from(room) * rho,
                    "{rho}, {room}: {p:?}"
                );
            }
        }
    }

    /// The gap against the decay of the difference from the steady state, by the master equation.
    #[test]
    fn relaxation_is_how_fast_a_beginning_is_forgotten() {
        for (load, servers, room) in [
            (0.5, 1, 10),
            (0.9, 3, 30),
            (1.0, 3, 20),
            (1.2, 2, 20),
            (0.3, 3, 10),
        ] {
            let (c, rate) = (f64::from(servers), load * f64::from(servers));
            let states = room as usize + 1;
            let mut p = vec![0.0; states];
            p[0] = 1.0;
            let steady = mmcn(load, servers, room).present;
            let step = 0.02 / (c + rate);
            let off = |p: &[f64]| {
                p.iter()
                    .zip(0..)
                    .map(|(w, k)| w * f64::from(k))
                    .sum::<f64>()
                    - steady
            };
            let up = |k: usize| if k + 1 < states { rate } else { 0.0 };
            let down = |k: usize| (k as f64).min(c);
            let advance = |p: &mut Vec<f64>, time: f64| {
                for _ in 0..(time / step) as usize {
                    let old = p.clone();
                    for (k, weight) in p.iter_mut().enumerate() {
                        let mut flow = -(up(k) + down(k)) * old[k];
                        if k > 0 {
                            flow += up(k - 1) * old[k - 1];
                        }
                        if k + 1 < states {
                            flow += down(k + 1) * old[k + 1];
                        }
                        *weight += step * flow;
                    }
                }
            };
            let told = relaxation(load, servers, room);
            advance(&mut p, 8.0 * told);
            let before = off(&p);
            advance(&mut p, told);
            let found = told / (before / off(&p)).ln();
            assert!(
                (0.6..1.7).contains(&(found / told)),
                "{load}, {servers}, {room}: {found} and {told}"
            );
        }
    }

    #[test]
    fn a_wide_interval_is_no_check_but_a_difference_is_one() {
        let of = |mean, half| Verdict::of(1.0, Mean { mean, half });
        assert_eq!(of(1.1, 0.09), Verdict::Agrees);
        assert_eq!(of(1.2, 0.2), Verdict::TooWide { part: 0.2 });
        assert_eq!(of(1.14, 0.09), Verdict::Differs);
        assert_eq!(of(1.5, 0.2), Verdict::Differs);
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
        for load in [0.0, 1e-6, 1e-320, -1.0, 2.1] {
            let question = Question {
                loads: vec![load],
                ..Question::default()
            };
            let Err(Failure::Input(text)) = check(&question) else {
                panic!("{load}")
            };
            assert!(text.ends_with("it goes from 0.001 to 2"), "{text}");
        }
        assert!(wrong(|q| q.servers = -1).starts_with("the number of servers is -1"));
        assert!(wrong(|q| q.rooms = vec![-5]).starts_with("N is -5:"));
        assert!(wrong(|q| q.seeds = -2).starts_with("-2 seeds"));
        assert!(wrong(|q| q.seeds = 1).starts_with("1 seeds"));
    }
}
