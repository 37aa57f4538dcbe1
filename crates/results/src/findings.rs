// SPDX-License-Identifier: GPL-2.0-only
//! What a paper reports beside what came out here.
use crate::experiment::Experiment;
use serde::{Deserialize, Serialize};

/// A claim of a paper, in the terms of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub id: String,
    /// In our words.
    pub says: String,
    /// Section, figure or table.
    pub source: String,
    pub metric: String,
    pub arm: Option<String>,
    /// The arm that `arm` is compared with.
    pub against: Option<String>,
    pub comparison: Option<Comparison>,
    /// The paper's value: in the metric's unit, or a part of one for a comparison.
    pub value: Option<f64>,
    /// Lowest and highest value that count as the paper's finding, stated beforehand.
    pub accept: Option<(f64, f64)>,
    /// The arm was fitted to this very value: it says nothing.
    pub fitted: bool,
    /// What is missing before it can be judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Comparison {
    /// 1 - arm / against.
    Reduction,
    /// arm / against - 1.
    Gain,
}

/// A claim and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub claim: Claim,
    /// Ours, in the unit of the claim's value.
    pub ours: Option<f64>,
    /// 95 % interval of ours over seeds; of comparisons, paired by seed.
    pub interval: Option<(f64, f64)>,
    /// Ours is within what counts as the paper's finding; none if it cannot be said, see `why`.
    pub holds: Option<bool>,
    pub why: Option<String>,
}

/// What came out for a claim.
pub fn find(claim: &Claim, experiment: &Experiment) -> Finding {
    let undecided = |why: String| Finding {
        claim: claim.clone(),
        ours: None,
        interval: None,
        holds: None,
        why: Some(why),
    };
    if let Some(needs) = &claim.needs {
        return undecided(format!("cannot be judged yet: it needs {needs}"));
    }
    let Some(arm) = &claim.arm else {
        return undecided("it is about several runs: see the table".into());
    };
    for arm in [Some(arm), claim.against.as_ref()].into_iter().flatten() {
        if !experiment.runs.iter().any(|r| r.arm == *arm) {
            let absent = experiment.arms.iter().find(|a| a.name == *arm);
            let why = absent.and_then(|a| a.absent.clone());
            return undecided(why.unwrap_or_else(|| format!("arm {arm} was not run")));
        }
    }
    let (ours, interval) = match (&claim.against, claim.comparison) {
        (Some(against), Some(comparison)) => {
            let of = |arm: &str| experiment.estimate(arm, &claim.metric).map(|e| e.mean);
            // With zeros among the values there is no paired ratio: that of the means then, without an interval.
            let paired = experiment.ratio(arm, against, &claim.metric);
            let (ratio, interval) = match (paired, of(arm), of(against)) {
                (Some(r), ..) => (r.ratio, r.interval),
                (None, Some(ours), Some(theirs)) if theirs > 0.0 => (ours / theirs, None),
                _ => return undecided(format!("{} was not measured", claim.metric)),
            };
            match comparison {
                Comparison::Reduction => (1.0 - ratio, interval.map(|(l, h)| (1.0 - h, 1.0 - l))),
                Comparison::Gain => (ratio - 1.0, interval.map(|(l, h)| (l - 1.0, h - 1.0))),
            }
        }
        _ => {
            let Some(e) = experiment.estimate(arm, &claim.metric) else {
                return undecided(format!("{} was not measured", claim.metric));
            };
            (e.mean, e.half.map(|half| (e.mean - half, e.mean + half)))
        }
    };
    let (holds, why) = match (claim.fitted, claim.accept) {
        (true, _) => (None, Some("fitted to this value".to_string())),
        (false, Some((low, high))) => (Some(low <= ours && ours <= high), None),
        (false, None) => (
            None,
            Some("a direction over several runs: see the table".into()),
        ),
    };
    Finding {
        claim: claim.clone(),
        ours: Some(ours),
        interval,
        holds,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::experiment;

    fn claim(arm: &str) -> Claim {
        Claim {
            id: "X".into(),
            says: "x".into(),
            source: "Fig. 1".into(),
            metric: "web.response.p99".into(),
            arm: Some(arm.into()),
            against: None,
            comparison: None,
            value: Some(16.0),
            accept: Some((10.0, 20.0)),
            fitted: false,
            needs: None,
        }
    }

    #[test]
    fn values_and_comparisons() {
        let e = experiment(&[("a", &[10.0, 20.0]), ("b", &[5.0, 10.0]), ("none", &[])]);
        let found = find(&claim("a"), &e);
        assert_eq!((found.ours, found.holds), (Some(15.0), Some(true)));
        assert_eq!(find(&claim("b"), &e).holds, Some(false));
        let reduction = Claim {
            against: Some("a".into()),
            comparison: Some(Comparison::Reduction),
            accept: Some((0.4, 0.6)),
            ..claim("b")
        };
        let found = find(&reduction, &e);
        assert!((found.ours.unwrap() - 0.5).abs() < 1e-12 && found.holds == Some(true));
        let gain = Claim {
            comparison: Some(Comparison::Gain),
            ..reduction
        };
        assert!((find(&gain, &e).ours.unwrap() + 0.5).abs() < 1e-12);
        let zero = experiment(&[("a", &[10.0, 20.0]), ("b", &[0.0, 3.0])]);
        let found = find(&gain, &zero);
        assert!((found.ours.unwrap() + 0.9).abs() < 1e-12 && found.interval.is_none());
    }

    #[test]
    fn what_cannot_be_said() {
        let e = experiment(&[("a", &[10.0, 20.0]), ("none", &[])]);
        assert!(find(&claim("none"), &e).why.is_some());
        let fitted = Claim {
            fitted: true,
            ..claim("a")
        };
        let found = find(&fitted, &e);
        assert_eq!((found.ours, found.holds), (Some(15.0), None));
        let later = Claim {
            needs: Some("a disk".into()),
            ..claim("a")
        };
        let found = find(&later, &e);
        assert_eq!((found.ours, found.holds), (None, None));
        assert!(found.why.unwrap().contains("it needs a disk"));
        let other = Claim {
            metric: "x.y".into(),
            ..claim("a")
        };
        assert!(find(&other, &e).why.unwrap().contains("not measured"));
    }
}
