// SPDX-License-Identifier: GPL-2.0-only
//! What VMs got done: their work, or, where that says nothing, the CPU time that they had.
//!
//! In the lab one thread of the emulator runs all CPUs by turns and counts instructions for time. A CPU that idles
//! leaves its turns to the others, which then do more work in the same time: work there rises when somebody else idles.
use crate::text::fixed;
use berth_results::experiment::{Experiment, Group};
use berth_results::schema::Place;

/// The largest idle share at which work in the lab still counts.
const IDLE: f64 = 0.02;

/// Two arms do as much work if the whole interval is within this of none, percent: less than runs of one arm differ by
/// from version to version, and nobody would change a scheduler for it.
pub const AS_MUCH: f64 = 0.5;

/// How it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The quantity in the results: `work`, or `cpu`.
    pub quantity: &'static str,
    /// In tables.
    pub word: &'static str,
}

/// The arm that idles most on several CPUs of the lab, and how much, if it is too much for work to be compared.
fn idle(e: &Experiment) -> Option<(&str, f64)> {
    let lab = e.runs.iter().any(|r| r.place == Place::Lab);
    let arms = e.arms.iter().map(|a| a.name.as_str());
    let shares = arms.filter_map(|a| Some((a, e.estimate(a, "host.idle")?.mean)));
    let most = shares.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (lab && e.setup.cpus > 1 && most.1 > IDLE).then_some(most)
}

/// For all arms of an experiment alike.
pub fn of(e: &Experiment) -> Effort {
    let (quantity, word) = match idle(e) {
        None => ("work", "work"),
        Some(_) => ("cpu", "CPU time"),
    };
    Effort { quantity, word }
}

/// Why it is CPU time, if it is.
pub fn why(e: &Experiment) -> Option<String> {
    let (arm, share) = idle(e)?;
    Some(format!(
        "CPU time instead of work: the CPUs idle up to {} % of the time ({arm}), and in the lab an idle CPU makes the \
         others faster",
        fixed(share * 100.0, 1)
    ))
}

/// `within 0.02 %`: how far the ends of an interval of a ratio are from 1 at most, rounded up, so that the interval is
/// no wider than what is said.
pub fn within(low: f64, high: f64) -> String {
    let percent = |r: f64| ((r - 1.0) * 100.0).abs();
    let most = percent(low).max(percent(high)).max(0.01);
    format!("within {} %", (most * 100.0 - 1e-6).ceil() / 100.0)
}

impl Effort {
    /// `does`, `gets`.
    pub fn verb(self) -> &'static str {
        match self.quantity {
            "cpu" => "gets",
            _ => "does",
        }
    }

    /// Of one seed, which has no interval: `does 1.2 % more work`.
    pub fn alone(self, ratio: f64) -> String {
        let (does, what) = (self.verb(), self.word);
        let percent = fixed(((ratio - 1.0) * 100.0).abs(), 1);
        match percent.as_str() {
            "0.0" => format!("{does} as much {what}"),
            _ if ratio > 1.0 => format!("{does} {percent} % more {what}"),
            _ => format!("{does} {percent} % less {what}"),
        }
    }

    /// The metric of a group.
    pub fn metric(self, group: &Group) -> String {
        format!("{}.{}", group.name, self.quantity)
    }
}
