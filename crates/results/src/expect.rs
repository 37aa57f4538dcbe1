// SPDX-License-Identifier: GPL-2.0-only
//! Whether the bounds that a scenario expects hold.
use crate::experiment::Experiment;
use serde::{Deserialize, Serialize};

/// One bound on one metric of one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    pub metric: String,
    pub arm: String,
    /// `at most`, else `at least`.
    pub at_most: bool,
    pub limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// In the metric's unit.
    Absolute(f64),
    /// Times the baseline's value, paired by seed.
    TimesBaseline(f64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub bound: Bound,
    /// The metric's mean, or its ratio to the baseline's.
    pub value: Option<f64>,
    /// None: it cannot be said here; see `why`.
    pub holds: Option<bool>,
    pub why: Option<String>,
}

/// Checks a bound. `baseline` is the arm that the scenario names, whether it could run here or not.
pub fn check(bound: &Bound, experiment: &Experiment, baseline: Option<&str>) -> Verdict {
    let undecided = |why: String| Verdict {
        bound: bound.clone(),
        value: None,
        holds: None,
        why: Some(why),
    };
    let has_runs = |arm: &str| experiment.runs.iter().any(|r| r.arm == arm);
    if !has_runs(&bound.arm) {
        return undecided(format!("{} has no runs here", bound.arm));
    }
    let value = match bound.limit {
        Limit::Absolute(_) => experiment
            .estimate(&bound.arm, &bound.metric)
            .map(|e| e.mean),
        Limit::TimesBaseline(_) => {
            let Some(baseline) = baseline.filter(|b| has_runs(b)) else {
                return undecided(format!(
                    "the baseline {} has no runs here",
                    baseline.unwrap_or("")
                ));
            };
            experiment
                .ratio(&bound.arm, baseline, &bound.metric)
                .map(|r| r.ratio)
        }
    };
    let Some(value) = value else {
        return undecided(format!("{} was not measured", bound.metric));
    };
    let (Limit::Absolute(limit) | Limit::TimesBaseline(limit)) = bound.limit;
    let holds = if bound.at_most {
        value <= limit
    } else {
        value >= limit
    };
    Verdict {
        bound: bound.clone(),
        value: Some(value),
        holds: Some(holds),
        why: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::experiment;

    #[test]
    fn verdicts() {
        let e = experiment(&[("a", &[10.0, 20.0]), ("b", &[5.0, 10.0]), ("none", &[])]);
        let say = |arm: &str, at_most: bool, limit: Limit| {
            let bound = Bound {
                metric: "web.response.p99".into(),
                arm: arm.into(),
                at_most,
                limit,
            };
            let v = check(&bound, &e, Some("a"));
            (v.holds, v.value)
        };
        assert_eq!(
            say("a", true, Limit::Absolute(15.0)),
            (Some(true), Some(15.0))
        );
        assert_eq!(
            say("a", false, Limit::Absolute(15.1)),
            (Some(false), Some(15.0))
        );
        let (holds, ratio) = say("b", true, Limit::TimesBaseline(0.51));
        assert!(holds == Some(true) && (ratio.unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(say("b", false, Limit::TimesBaseline(0.9)).0, Some(false));
        assert_eq!(say("none", true, Limit::Absolute(1.0)), (None, None));
        let bound = Bound {
            metric: "x.y".into(),
            arm: "a".into(),
            at_most: true,
            limit: Limit::Absolute(1.0),
        };
        assert!(
            check(&bound, &e, None)
                .why
                .unwrap()
                .contains("not measured")
        );
        let bound = Bound {
            limit: Limit::TimesBaseline(1.0),
            metric: "web.response.p99".into(),
            ..bound
        };
        assert_eq!(check(&bound, &e, Some("none")).holds, None);
    }
}
