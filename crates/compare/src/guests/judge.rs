// SPDX-License-Identifier: GPL-2.0-only
//! A simulated guest beside a real one: every quantity, and whether the bound holds.
use crate::guests::bounds::GuestBounds;
use crate::guests::record::GuestRecord;
use crate::judge::Verdict;
use berth_results::guest::{Response, Seen};
use serde::Serialize;

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Mean,
    P50,
    P90,
    /// Shown, and judged by nothing: rare events of few hundred answers.
    P99,
    /// The most that a busy thread of the guest ran in a wait.
    HogRan,
    Steal,
    /// A task's part of the guest's CPU time.
    Share(String),
}

impl What {
    /// As tables call it.
    pub fn name(&self) -> String {
        match self {
            What::Mean => "response mean".into(),
            What::P50 => "response p50".into(),
            What::P90 => "response p90".into(),
            What::P99 => "response p99".into(),
            What::HogRan => "hog ran in a wait".into(),
            What::Steal => "steal".into(),
            What::Share(task) => format!("share of {task}"),
        }
    }

    /// A value with its unit.
    pub fn shown(&self, value: Option<f64>) -> String {
        let Some(v) = value else { return "-".into() };
        match self {
            What::Steal | What::Share(_) => format!("{:.1} %", v * 100.0),
            _ => crate::table::time(v),
        }
    }
}

/// One quantity: nanoseconds, or a share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub what: What,
    pub sim: Option<f64>,
    pub real: Option<f64>,
    pub verdict: Verdict,
}

/// A case, both places.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    pub case: String,
    pub title: String,
    /// VMs that compete with it.
    pub competitors: u32,
    pub steal_accounting: bool,
    pub hrtick: bool,
    /// The case that has the like of this guest with nobody beside it.
    pub alone: Option<String>,
    /// Why there is no row.
    pub absent: Option<String>,
    /// Answers simulated and real.
    pub answers: (usize, usize),
    pub rows: Vec<Row>,
    /// Of the record.
    pub note: Option<String>,
}

impl Beside {
    pub fn broken(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| r.verdict == Verdict::Broken)
    }

    fn row(&self, what: &What) -> Option<(f64, f64)> {
        let row = self.rows.iter().find(|r| r.what == *what)?;
        Some((row.sim?, row.real?))
    }

    /// The mean response that arithmetic expects of the real guest, ns: the simulated one, and what the real guest
    /// takes longer than simulated with nobody beside it, in the run time of its vCPU, which has 1 - steal of a CPU.
    pub fn expected(&self, all: &[Beside]) -> Option<f64> {
        let alone = all.iter().find(|b| Some(&b.case) == self.alone.as_ref())?;
        let (sim, real) = alone.row(&What::Mean)?;
        let (_, steal) = self.row(&What::Steal)?;
        Some(self.row(&What::Mean)?.0 + (real - sim) / (1.0 - steal))
    }
}

/// What the bounds on a busy thread need to know of the guest.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    pub vcpus: u32,
    pub tick_ns: f64,
    /// Has a task that is busy without end.
    pub busy: bool,
}

/// All rows of a case.
pub fn judge(sim: &Seen, record: &GuestRecord, guest: Guest, bounds: &GuestBounds) -> Vec<Row> {
    let real = record.seen();
    let few = |seen: &Seen| seen.answers.len() < bounds.samples.least;
    let rare = (few(sim) || few(&real))
        .then(|| Verdict::NotJudged(format!("fewer than {} answers", bounds.samples.least)));
    let (a, b) = (sim.response(), real.response());
    let value = |of: fn(&Response) -> f64| (a.as_ref().map(of), b.as_ref().map(of));
    let mut rows = Vec::new();
    let within = |ok: bool| if ok { Verdict::Within } else { Verdict::Broken };
    for (what, of) in [
        (What::Mean, (|r| r.mean) as fn(&Response) -> f64),
        (What::P50, |r| r.p50),
        (What::P90, |r| r.p90),
        (What::P99, |r| r.p99),
    ] {
        let (sim, real) = value(of);
        let verdict = match (sim, real) {
            _ if what == What::P99 => Verdict::NotJudged("rare".into()),
            _ if rare.is_some() => rare.clone().unwrap_or(Verdict::Within),
            (Some(s), Some(r)) => {
                let close = s <= r * bounds.response.ratio && r <= s * bounds.response.ratio;
                let equal = what != What::Mean && (s - r).abs() <= bounds.response.equal_ms * 1e6;
                within(close || equal)
            }
            // Nobody was answered in one of the places, which `rare` has said.
            _ => Verdict::Broken,
        };
        rows.push(Row {
            what,
            sim,
            real,
            verdict,
        });
    }
    if guest.busy {
        let (sim, real) = value(|r| r.hog_ran_max);
        let most =
            bounds.hog_ran.ticks * guest.tick_ns + bounds.hog_ran.slices * record.slice_ns as f64;
        let verdict = match (&rare, guest.vcpus) {
            (Some(verdict), _) => verdict.clone(),
            (None, 1) => within(sim.is_some_and(|ns| ns <= most)),
            // The busy thread of another vCPU is in nobody's way.
            _ => Verdict::NotJudged("several vCPUs".into()),
        };
        rows.push(Row {
            what: What::HogRan,
            sim,
            real,
            verdict,
        });
    }
    let shares = |what: What, sim: Option<f64>, real: Option<f64>, points: f64| {
        let verdict = match (sim, real) {
            (Some(s), Some(r)) => within((s - r).abs() * 100.0 <= points),
            _ => Verdict::NotJudged("not recorded".into()),
        };
        Row {
            what,
            sim,
            real,
            verdict,
        }
    };
    // A guest that sleeps wants to run for microseconds at a time: what it waits for then is its response.
    let mut steal = shares(What::Steal, sim.steal, real.steal, bounds.steal.points);
    if !guest.busy && steal.verdict != Verdict::Within {
        steal.verdict = Verdict::NotJudged("the guest sleeps".into());
    }
    rows.push(steal);
    for task in sim.ran_ns.keys() {
        rows.push(shares(
            What::Share(task.clone()),
            sim.share(task),
            real.share(task),
            bounds.share.points,
        ));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_results::guest::Answer;

    const GUEST: Guest = Guest {
        vcpus: 1,
        tick_ns: 4e6,
        busy: true,
    };

    /// A hundred answers around this latency, milliseconds; what the hog ran; steal; its share.
    fn seen(ms: f64, hog_ms: f64, steal: f64, share: f64) -> Seen {
        let answer = |i: u64| Answer {
            latency_ns: (ms * 1e6) as u64 + i,
            work_ns: 75_000,
            hog_ran_ns: (hog_ms * 1e6) as u64,
        };
        Seen {
            answers: (0..100).map(answer).collect(),
            steal: Some(steal),
            ran_ns: [
                ("hog".to_string(), share * 1e9),
                ("echo".to_string(), (1.0 - share) * 1e9),
            ]
            .into(),
        }
    }

    fn verdicts(sim: &Seen, guest: Guest) -> Vec<(String, Verdict)> {
        let mut record = GuestRecord::of(&seen(2.0, 1.0, 0.5, 0.9));
        record.slice_ns = 700_000;
        let rows = judge(sim, &record, guest, &GuestBounds::built_in().unwrap());
        rows.into_iter()
            .map(|r| (r.what.name(), r.verdict))
            .collect()
    }

    fn broken(sim: &Seen) -> Vec<String> {
        let all = verdicts(sim, GUEST).into_iter();
        all.filter(|(_, v)| *v == Verdict::Broken)
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn every_quantity_can_break_its_bound() {
        assert_eq!(broken(&seen(3.9, 4.6, 0.52, 0.88)), [""; 0]);
        let response = ["response mean", "response p50", "response p90"];
        assert_eq!(broken(&seen(4.1, 1.0, 0.5, 0.9)), response);
        assert_eq!(broken(&seen(0.9, 1.0, 0.5, 0.9)), response);
        assert_eq!(broken(&seen(2.0, 4.8, 0.5, 0.9)), ["hog ran in a wait"]);
        assert_eq!(broken(&seen(2.0, 1.0, 0.54, 0.9)), ["steal"]);
        assert_eq!(
            broken(&seen(2.0, 1.0, 0.5, 0.86)),
            ["share of echo", "share of hog"]
        );
    }

    #[test]
    fn small_percentiles_are_equal_and_small_means_are_not() {
        let record = GuestRecord::of(&seen(0.6, 0.0, 0.5, 0.9));
        let sim = seen(0.15, 0.0, 0.5, 0.9);
        let rows = judge(&sim, &record, GUEST, &GuestBounds::built_in().unwrap());
        let of = |what: What| {
            rows.iter()
                .find(|r| r.what == what)
                .unwrap()
                .verdict
                .clone()
        };
        assert_eq!(of(What::Mean), Verdict::Broken);
        assert_eq!(
            (of(What::P50), of(What::P90)),
            (Verdict::Within, Verdict::Within)
        );
    }

    #[test]
    fn what_cannot_be_judged_says_why() {
        let mut sim = seen(9.0, 9.0, 0.5, 0.9);
        let several = Guest { vcpus: 2, ..GUEST };
        let not = |all: &[(String, Verdict)], name: &str| {
            let found = all.iter().find(|(n, _)| n == name);
            matches!(found, Some((_, Verdict::NotJudged(_))))
        };
        assert!(not(&verdicts(&sim, several), "hog ran in a wait"));
        sim.answers.truncate(19);
        let all = verdicts(&sim, GUEST);
        assert!(
            not(&all, "response mean") && not(&all, "hog ran in a wait"),
            "{all:?}"
        );
        sim.steal = None;
        assert!(not(&verdicts(&sim, GUEST), "steal"));
    }
}
