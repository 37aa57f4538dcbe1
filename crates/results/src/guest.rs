// SPDX-License-Identifier: GPL-2.0-only
//! What was seen inside one guest while its vCPUs were stolen from: the same of a real guest and of a simulated one.
//! Times are nanoseconds.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One answer of the task that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// From when it was due to when its work was done.
    pub latency_ns: u64,
    /// From when the task began its work to when that was done.
    pub work_ns: u64,
    /// The most that one busy thread of the guest ran between the due time and the beginning.
    pub hog_ran_ns: u64,
}

/// Of one guest, in the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub answers: Vec<Answer>,
    /// Share of the time that its vCPUs wanted to run, and did not; none: they never wanted to, or nobody looked.
    pub steal: Option<f64>,
    /// CPU time of each task of the guest, all of its threads: shares are parts of the sum.
    pub ran_ns: BTreeMap<String, f64>,
}

/// Of all answers, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
    /// The most of all [`Answer::hog_ran_ns`].
    pub hog_ran_max: f64,
}

impl Seen {
    /// Adds what another run of the same case saw; its steal counts as much as its answers.
    pub fn add(&mut self, other: Seen) {
        let (mine, others) = (self.answers.len() as f64, other.answers.len() as f64);
        self.steal = match (self.steal, other.steal) {
            (Some(a), Some(b)) if mine + others > 0.0 => {
                Some((a * mine + b * others) / (mine + others))
            }
            (a, b) => b.or(a),
        };
        self.answers.extend(other.answers);
        for (task, ns) in other.ran_ns {
            *self.ran_ns.entry(task).or_default() += ns;
        }
    }

    /// None: nobody was answered.
    pub fn response(&self) -> Option<Response> {
        let mut sorted: Vec<u64> = self.answers.iter().map(|a| a.latency_ns).collect();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        // The value that at least this part of all values do not exceed.
        let at = |part: f64| {
            let rank = (part * sorted.len() as f64).ceil() as usize;
            sorted[rank.saturating_sub(1).min(last)] as f64
        };
        let sum: f64 = sorted.iter().map(|ns| *ns as f64).sum();
        let ran = self.answers.iter().map(|a| a.hog_ran_ns).max();
        Some(Response {
            mean: sum / sorted.len() as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: sorted[last] as f64,
            hog_ran_max: ran.unwrap_or(0) as f64,
        })
    }

    /// A task's part of the CPU time of all tasks; none where nothing ran.
    pub fn share(&self, task: &str) -> Option<f64> {
        let all: f64 = self.ran_ns.values().sum();
        let own = self.ran_ns.get(task)?;
        (all > 0.0).then_some(own / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(latencies: &[u64], steal: Option<f64>, hog: f64) -> Seen {
        let answer = |ns: &u64| Answer {
            latency_ns: *ns,
            work_ns: 1,
            hog_ran_ns: ns / 10,
        };
        Seen {
            answers: latencies.iter().map(answer).collect(),
            steal,
            ran_ns: [("hog".to_string(), hog), ("echo".to_string(), 10.0)].into(),
        }
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let r = seen(&[40, 10, 30, 20], None, 0.0).response().unwrap();
        assert_eq!(
            (r.mean, r.p50, r.p90, r.max, r.hog_ran_max),
            (25.0, 20.0, 40.0, 40.0, 4.0)
        );
        assert_eq!(Seen::default().response(), None);
    }

    #[test]
    fn runs_add_up() {
        let mut all = Seen::default();
        all.add(seen(&[10], Some(0.5), 90.0));
        all.add(seen(&[20, 30, 40], Some(0.9), 90.0));
        assert!((all.steal.unwrap() - 0.8).abs() < 1e-9);
        assert_eq!(all.share("hog"), Some(0.9));
        assert_eq!(all.share("nobody"), None);
        assert_eq!(Seen::default().share("hog"), None);
    }
}
