// SPDX-License-Identifier: GPL-2.0-only
//! Two places side by side: every arm, VM group and quantity, and whether the bounds hold.
use crate::bounds::Bounds;
use crate::ranking::{self, Ranking};
use berth_results::experiment::Experiment;
use berth_results::requests::Requests;
use serde::Serialize;
use std::fmt;

/// What is compared, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// CPU time of the group, in percent of all CPUs of the host.
    Share,
    /// Times that one of its threads was switched in, per second.
    Switches,
    /// Of these, on another CPU than last, per second.
    Migrations,
    RunDelayP50,
    RunDelayP99,
    WakeupP50,
    WakeupP99,
}

impl Quantity {
    pub const ALL: [Quantity; 7] = [
        Quantity::Share,
        Quantity::Switches,
        Quantity::Migrations,
        Quantity::RunDelayP50,
        Quantity::RunDelayP99,
        Quantity::WakeupP50,
        Quantity::WakeupP99,
    ];

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Share => "share",
            Quantity::Switches => "switches",
            Quantity::Migrations => "migrations",
            Quantity::RunDelayP50 => "run delay p50",
            Quantity::RunDelayP99 => "run delay p99",
            Quantity::WakeupP50 => "wake-up p50",
            Quantity::WakeupP99 => "wake-up p99",
        }
    }

    /// A time: compared by its factor.
    pub fn is_latency(self) -> bool {
        self >= Quantity::RunDelayP50
    }

    /// The metric of the results it is read from.
    pub fn metric(self, group: &str) -> String {
        let rest = match self {
            Quantity::Share => "cpu",
            Quantity::Switches => "switches",
            Quantity::Migrations => "migrations",
            Quantity::RunDelayP50 => "run_delay.p50",
            Quantity::RunDelayP99 => "run_delay.p99",
            Quantity::WakeupP50 => "wakeup.p50",
            Quantity::WakeupP99 => "wakeup.p99",
        };
        format!("{group}.{rest}")
    }

    /// The metric that says how many values a percentile is made of.
    pub fn count(self, group: &str) -> Option<String> {
        match self {
            Quantity::RunDelayP50 | Quantity::RunDelayP99 => {
                Some(format!("{group}.run_delay.count"))
            }
            Quantity::WakeupP50 | Quantity::WakeupP99 => Some(format!("{group}.wakeup.count")),
            _ => None,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a bound holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Within,
    Broken,
    /// Nothing can be said, and why.
    NotJudged(String),
}

/// One quantity of one group under one arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub arm: String,
    pub group: String,
    pub quantity: Quantity,
    /// Means over seeds: percent, events per second, or ns.
    pub sim: Option<f64>,
    pub lab: Option<f64>,
    /// Half of each one's 95 % interval over its seeds.
    pub half: (Option<f64>, Option<f64>),
    /// Broken, but the two intervals have values within the bound: more seeds could say otherwise.
    pub open: bool,
    /// Percentage points for shares, else the factor between the two places (at least 1).
    pub off: Option<f64>,
    /// In the unit of `off`.
    pub bound: f64,
    pub verdict: Verdict,
}

/// A scenario in both places.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub scenario: String,
    pub title: String,
    pub cpus: u32,
    /// Starts simulated of each arm.
    pub simulated: usize,
    /// Arms that ran in both places, and how many starts of each are recorded.
    pub arms: Vec<(String, usize)>,
    /// Costs of the simulated machine that were measured with this scenario: then its rows do not count.
    pub measured: Vec<String>,
    pub rows: Vec<Row>,
    /// Of all arms.
    pub ranking: Ranking,
    /// Requests by arm and VM group, where there are clients.
    pub answered: Vec<Answered>,
}

/// How many of a group's requests were answered, of those that were due: all starts together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answered {
    pub arm: String,
    pub group: String,
    /// None: not recorded.
    pub sim: Option<Requests>,
    pub lab: Option<Requests>,
}

impl Comparison {
    /// Rows that break their bound.
    pub fn broken(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| r.verdict == Verdict::Broken)
    }

    /// The order of these arms by these quantities.
    pub fn order(
        &self,
        arms: &[&str],
        ranked: impl Fn(Quantity) -> bool,
        bounds: &Bounds,
    ) -> Ranking {
        ranking::rank(&self.rows, arms, ranked, bounds)
    }

    /// The most starts of an arm on the kernel, and the fewest.
    pub fn recorded(&self) -> (usize, usize) {
        let counts = || self.arms.iter().map(|(_, n)| *n);
        (counts().max().unwrap_or(0), counts().min().unwrap_or(0))
    }

    /// Some bound is broken, the ranking's included.
    pub fn is_broken(&self) -> bool {
        self.broken().next().is_some() || self.ranking.verdict == Verdict::Broken
    }
}

/// Compares the arms that ran in both places.
pub fn compare(sim: &Experiment, lab: &Experiment, bounds: &Bounds) -> Comparison {
    let ran = |e: &Experiment, arm: &str| e.runs.iter().any(|r| r.arm == arm);
    let arms: Vec<String> = lab
        .arms
        .iter()
        .map(|a| a.name.clone())
        .filter(|a| ran(sim, a) && ran(lab, a))
        .collect();
    let cpus = lab.setup.cpus;
    let groups: Vec<&str> = lab.setup.groups.iter().map(|g| g.name.as_str()).collect();
    let mut rows = Vec::new();
    for arm in &arms {
        for group in &groups {
            for quantity in Quantity::ALL {
                if quantity == Quantity::Migrations && cpus == 1 {
                    continue;
                }
                let case = Case {
                    sim,
                    lab,
                    bounds,
                    group,
                    quantity,
                    cpus,
                };
                rows.extend(case.row(arm));
            }
        }
    }
    let names: Vec<&str> = arms.iter().map(String::as_str).collect();
    let starts = |arm: &str| lab.runs.iter().filter(|r| r.arm == arm).count();
    Comparison {
        scenario: lab.setup.name.clone(),
        title: lab.setup.title.clone(),
        cpus,
        simulated: sim.setup.seeds.len(),
        measured: Vec::new(),
        ranking: ranking::rank(&rows, &names, |_| true, bounds),
        answered: answered(sim, lab, &names, &groups),
        arms: arms.iter().map(|a| (a.clone(), starts(a))).collect(),
        rows,
    }
}

impl Answered {
    /// Less than 99 % in one of the places.
    pub fn too_few(&self) -> bool {
        let few = |r: Option<Requests>| r.is_some_and(Requests::too_few);
        few(self.sim) || few(self.lab)
    }
}

/// Every group that has clients in one of the places.
fn answered(sim: &Experiment, lab: &Experiment, arms: &[&str], groups: &[&str]) -> Vec<Answered> {
    let all = arms.iter().flat_map(|a| groups.iter().map(move |g| (a, g)));
    let of = |(arm, group): (&&str, &&str)| {
        let (sim, lab) = (sim.requests(arm, group), lab.requests(arm, group));
        (sim.is_some() || lab.is_some()).then(|| Answered {
            arm: arm.to_string(),
            group: group.to_string(),
            sim,
            lab,
        })
    };
    all.filter_map(of).collect()
}

struct Case<'a> {
    sim: &'a Experiment,
    lab: &'a Experiment,
    bounds: &'a Bounds,
    group: &'a str,
    quantity: Quantity,
    cpus: u32,
}

impl Case<'_> {
    fn value(&self, e: &Experiment, arm: &str) -> Option<f64> {
        let mean = e.estimate(arm, &self.quantity.metric(self.group))?.mean;
        Some(self.scaled(mean))
    }

    fn half(&self, e: &Experiment, arm: &str) -> Option<f64> {
        let estimate = e.estimate(arm, &self.quantity.metric(self.group))?;
        estimate.half.map(|half| self.scaled(half))
    }

    fn scaled(&self, value: f64) -> f64 {
        match self.quantity {
            Quantity::Share => value / f64::from(self.cpus) * 100.0,
            _ => value,
        }
    }

    /// Do the two intervals have values within the bound?
    fn could_hold(&self, (sim, lab): (f64, f64), (s, l): (f64, f64)) -> bool {
        if (sim - lab).abs() <= s + l {
            return true;
        }
        // The ends that are closest.
        let (low, high) = if sim < lab {
            (sim + s, lab - l)
        } else {
            (lab + l, sim - s)
        };
        match self.quantity {
            Quantity::Share => high - low <= self.bound(),
            _ => factor(low, high) <= self.bound(),
        }
    }

    fn bound(&self) -> f64 {
        let b = self.bounds;
        match self.quantity {
            Quantity::Share => b.share.points,
            Quantity::Switches => b.switches.ratio,
            Quantity::Migrations => b.migrations.ratio,
            Quantity::RunDelayP50 => b.run_delay.p50,
            Quantity::RunDelayP99 => b.run_delay.p99,
            Quantity::WakeupP50 => b.wakeup.p50,
            Quantity::WakeupP99 => b.wakeup.p99,
        }
    }

    /// Too few values for this percentile, and where.
    fn too_few(&self, arm: &str) -> Option<String> {
        let metric = self.quantity.count(self.group)?;
        let needed = match self.quantity {
            Quantity::RunDelayP50 | Quantity::WakeupP50 => self.bounds.samples.p50,
            _ => self.bounds.samples.p99,
        };
        let count = |e: &Experiment| e.values(arm, &metric).values().sum::<f64>();
        let (sim, lab) = (count(self.sim), count(self.lab));
        let fewest = sim.min(lab);
        (fewest < needed as f64).then(|| format!("{fewest} values, {needed} needed"))
    }

    /// None where neither place has the quantity.
    fn row(&self, arm: &str) -> Option<Row> {
        let (sim, lab) = (self.value(self.sim, arm), self.value(self.lab, arm));
        if sim.is_none() && lab.is_none() {
            return None;
        }
        let bound = self.bound();
        let (off, verdict) = self.judge(arm, sim, lab);
        let half = (self.half(self.sim, arm), self.half(self.lab, arm));
        let open = match (sim, lab, half) {
            (Some(sim), Some(lab), (Some(s), Some(l))) => {
                verdict == Verdict::Broken && self.could_hold((sim, lab), (s, l))
            }
            _ => false,
        };
        Some(Row {
            arm: arm.to_string(),
            group: self.group.to_string(),
            quantity: self.quantity,
            sim,
            lab,
            half,
            open,
            off,
            bound,
            verdict,
        })
    }

    fn judge(&self, arm: &str, sim: Option<f64>, lab: Option<f64>) -> (Option<f64>, Verdict) {
        let no = |why: &str| (None, Verdict::NotJudged(why.to_string()));
        if let Some(few) = self.too_few(arm) {
            return no(&few);
        }
        let (Some(sim), Some(lab)) = (sim, lab) else {
            return no("not measured in one of the places");
        };
        let off = match self.quantity {
            Quantity::Share => (sim - lab).abs(),
            _ => factor(sim, lab),
        };
        let few = match self.quantity {
            Quantity::Switches => self.bounds.switches.few,
            Quantity::Migrations => self.bounds.migrations.few,
            _ => 0.0,
        };
        let within = off <= self.bound() || (sim < few && lab < few);
        let verdict = if within {
            Verdict::Within
        } else {
            Verdict::Broken
        };
        (Some(off), verdict)
    }
}

/// How many times the larger value is the smaller one; both zero is 1.
pub fn factor(a: f64, b: f64) -> f64 {
    if a == b {
        return 1.0;
    }
    (a / b).max(b / a)
}
