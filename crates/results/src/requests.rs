// SPDX-License-Identifier: GPL-2.0-only
//! Offered and answered requests: a percentile of the answered ones says nothing of those that still wait.
use crate::experiment::Experiment;
use serde::Serialize;

/// Metrics of a VM group: requests answered in the measured time, and those that were due in it.
pub const METRICS: [&str; 2] = ["response.count", "response.offered"];

/// Below this share of answered requests a percentile is no figure of the service.
pub const ENOUGH: f64 = 0.99;

/// Requests of a VM group under one arm, all runs together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Requests {
    pub answered: f64,
    pub offered: f64,
}

impl Requests {
    /// Answered of those that were due. Above 1 where requests of the warm-up were answered later.
    pub fn share(self) -> f64 {
        if self.offered > 0.0 {
            self.answered / self.offered
        } else {
            1.0
        }
    }

    /// Less than 99 % were answered.
    pub fn too_few(self) -> bool {
        self.share() < ENOUGH
    }
}

impl Experiment {
    /// Of the runs that counted both; none where nobody asks this group for anything.
    pub fn requests(&self, arm: &str, group: &str) -> Option<Requests> {
        let [count, due] = METRICS.map(|m| self.values(arm, &format!("{group}.{m}")));
        let mut sum = Requests {
            answered: 0.0,
            offered: 0.0,
        };
        for (seed, offered) in &due {
            sum.offered += offered;
            sum.answered += count.get(seed).copied().unwrap_or(0.0);
        }
        (sum.offered > 0.0).then_some(sum)
    }

    /// Arms and groups that answered less than 99 % of their requests.
    pub fn unanswered(&self) -> Vec<(&str, &str, Requests)> {
        let groups = &self.setup.groups;
        let pairs = self
            .arms
            .iter()
            .flat_map(|a| groups.iter().map(move |g| (a, g)));
        pairs
            .filter_map(|(a, g)| Some((&*a.name, &*g.name, self.requests(&a.name, &g.name)?)))
            .filter(|(.., r)| r.too_few())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::tests::experiment;

    #[test]
    fn requests_are_those_of_all_runs_that_counted_them() {
        let mut e = experiment(&[("a", &[1.0, 2.0]), ("b", &[1.0, 2.0])]);
        assert_eq!(e.requests("a", "web"), None);
        for (run, (answered, offered)) in
            e.runs
                .iter_mut()
                .zip([(90.0, 100.0), (109.0, 100.0), (98.0, 100.0)])
        {
            run.metrics.insert("web.response.count".into(), answered);
            run.metrics.insert("web.response.offered".into(), offered);
        }
        let a = e.requests("a", "web").unwrap();
        assert_eq!((a.answered, a.offered), (199.0, 200.0));
        assert!(!a.too_few());
        // The other run of b counted nothing.
        let b = e.requests("b", "web").unwrap();
        assert_eq!(b.offered, 100.0);
        assert_eq!(e.unanswered(), [("b", "web", b)]);
    }
}
