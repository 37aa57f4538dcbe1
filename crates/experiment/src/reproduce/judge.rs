// SPDX-License-Identifier: GPL-2.0-only
//! What came of a claim, by its own words: what it accepts was written down before anything ran.
use super::measure::{Measured, MeasuredRun};
use crate::error::Failure;
use berth_report::findings as text;
use berth_results::findings::Finding;
use berth_results::stats::{BySeed, estimate, paired_difference, paired_ratio};
use berth_scenario::claims::{Claim, Trend, Verdict};
use berth_scenario::value_of;
use serde::Serialize;

/// A claim and what the runs say of it.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    pub id: String,
    pub experiment: String,
    /// The paper's value as text; `-` where it has only words.
    pub paper: String,
    /// Of the arm that the claim is about.
    pub ours: Said,
    /// Of the second reading of the paper, with its arm.
    pub also: Option<(String, Said)>,
    /// As it is kept in the file of claims.
    pub kept: Option<Verdict>,
    pub why: Option<String>,
    /// The line of the claim there.
    pub line: usize,
}

/// What the runs say for one arm.
#[derive(Clone, Debug, Serialize)]
pub struct Said {
    /// The values, as text.
    pub text: String,
    /// None: the claim has nothing that a program could judge by; the kept verdict is a reader's.
    pub verdict: Option<Verdict>,
}

impl Judged {
    /// The verdict: the runs', or a reader's where they have none.
    pub fn verdict(&self) -> Option<Verdict> {
        self.ours.verdict.or(self.kept)
    }

    /// In what the file of claims differs from the runs, if it does.
    pub fn differs(&self, paper: &str) -> Option<String> {
        let (id, file) = (
            &self.id,
            format!("papers/{paper}/claims.toml, line {}", self.line),
        );
        match (self.ours.verdict, self.kept) {
            (Some(ours), Some(kept)) if ours == kept => None,
            (None, Some(_)) => None,
            (Some(ours), Some(kept)) => Some(format!(
                "{id}: this version gives \"{}\", kept is \"{}\" ({file})",
                ours.words(),
                kept.words()
            )),
            (Some(ours), None) => Some(format!(
                "{id}: this version gives \"{}\", and no verdict is kept: add `verdict` and `why` ({file})",
                ours.words()
            )),
            (None, None) => Some(format!(
                "{id}: it has neither `accept` nor `trend`, so that a reader has to judge it: add `verdict` and `why` \
                 ({file})"
            )),
        }
    }
}

/// Judges the claims that the runs of an experiment name, past those that need something.
///
/// # Errors
/// What a claim is about was not measured, or its `accept` is no share.
pub fn judge(claims: &[Claim], measured: &Measured<'_>) -> Result<Vec<Judged>, Failure> {
    let mut judged = Vec::new();
    for run in &measured.runs {
        let named = run.run.judges.iter();
        let found = named.filter_map(|id| claims.iter().find(|claim| claim.id == *id));
        for claim in found.filter(|claim| claim.needs.is_none()) {
            judged.push(of_run(claim, run, &measured.experiment.id)?);
        }
    }
    Ok(judged)
}

fn of_run(claim: &Claim, run: &MeasuredRun<'_>, experiment: &str) -> Result<Judged, Failure> {
    let also = match &claim.also {
        Some(arm) => {
            let second = format!("{}, {arm}", claim.id);
            Some((arm.clone(), said(claim, &findings(run, &second)?, run)?))
        }
        None => None,
    };
    let first = findings(run, &claim.id)?;
    Ok(Judged {
        id: claim.id.clone(),
        experiment: experiment.to_string(),
        paper: first
            .first()
            .map_or("-".into(), |(_, finding)| text::paper(&finding.claim)),
        ours: said(claim, &first, run)?,
        also,
        kept: claim.verdict,
        why: claim.why.clone(),
        line: claim.line,
    })
}

/// What was found for a claim in each variant, with the variant's label.
fn findings<'r>(
    run: &'r MeasuredRun<'_>,
    id: &str,
) -> Result<Vec<(&'r str, &'r Finding)>, Failure> {
    let of = |variant: &'r super::measure::Variant| {
        let mut findings = variant.outcome.findings.iter();
        let found = findings.find(|finding| finding.claim.id == *id)?;
        Some((variant.label.as_str(), found))
    };
    let found: Option<Vec<_>> = run.variants.iter().map(of).collect();
    found.ok_or_else(|| Failure::Run(format!("claim {id} is not among what the run found")))
}

fn said(claim: &Claim, found: &[(&str, &Finding)], run: &MeasuredRun<'_>) -> Result<Said, Failure> {
    if let Some(trend) = claim.trend {
        let values: Vec<BySeed> = found
            .iter()
            .zip(&run.variants)
            .map(|((_, finding), variant)| {
                let claim = &finding.claim;
                let arm = claim.arm.as_deref().unwrap_or_default();
                variant.outcome.values(arm, &claim.metric)
            })
            .collect();
        let shown: Vec<String> = found
            .iter()
            .filter_map(|(_, f)| text::ours_alone(f))
            .collect();
        return Ok(Said {
            text: shown.join(", "),
            verdict: Some(over_variants(trend, claim, &values)?),
        });
    }
    let mut verdict = None;
    let mut shown = Vec::new();
    for (label, finding) in found {
        let of_this = one(finding)?;
        // A claim holds where it holds in every variant.
        verdict = worst(verdict, of_this);
        if let Some(text) = text::ours(finding).filter(|_| of_this.is_some()) {
            shown.push(match found.len() {
                1 => text,
                _ => format!("{text} with {label}"),
            });
        }
    }
    Ok(Said {
        text: match shown.is_empty() {
            true => "see the table".into(),
            false => shown.join("; "),
        },
        verdict,
    })
}

fn worst(a: Option<Verdict>, b: Option<Verdict>) -> Option<Verdict> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// The verdict of one variant; none if there is nothing to judge by.
fn one(finding: &Finding) -> Result<Option<Verdict>, Failure> {
    if finding.ours.is_none() {
        let why = finding.why.as_deref().unwrap_or("nothing was measured");
        return Err(Failure::Run(format!("claim {}: {why}", finding.claim.id)));
    }
    // What was fitted to a value says nothing of it.
    if finding.claim.fitted {
        return Ok(Some(Verdict::NotTestable));
    }
    Ok(finding.holds.map(|holds| match holds {
        true => Verdict::Reproduced,
        false if same_direction(finding) => Verdict::DirectionOnly,
        false => Verdict::NotReproduced,
    }))
}

/// The arms differ as in the paper, with 95 % confidence.
fn same_direction(finding: &Finding) -> bool {
    let claim = &finding.claim;
    let (Some(_), Some((low, high))) = (claim.comparison, finding.interval) else {
        return false;
    };
    let middle = claim.accept.map(|(low, high)| (low + high) / 2.0);
    match claim.value.or(middle) {
        Some(paper) if paper > 0.0 => low > 0.0,
        Some(paper) if paper < 0.0 => high < 0.0,
        _ => false,
    }
}

/// The verdict of a claim on how values go from variant to variant, paired by seed.
fn over_variants(trend: Trend, claim: &Claim, values: &[BySeed]) -> Result<Verdict, Failure> {
    let (Some(first), Some(last), true) = (values.first(), values.last(), values.len() > 1) else {
        return Err(Failure::Input(format!(
            "claim {}: a trend is judged over several variants, and its run has one: give it `vary`",
            claim.id
        )));
    };
    let above = |more: &BySeed, less: &BySeed| {
        paired_difference(more, less).is_some_and(|d| d.mean > 0.0 && d.excludes(0.0))
    };
    Ok(match trend {
        Trend::Rises if values.windows(2).all(|pair| above(&pair[1], &pair[0])) => {
            Verdict::Reproduced
        }
        Trend::Rises if above(last, first) => Verdict::DirectionOnly,
        Trend::Rises => Verdict::NotReproduced,
        Trend::Stays => {
            let (low, high) = accepted(claim)?;
            let change = paired_ratio(last, first).map(|ratio| ratio.ratio - 1.0);
            match change.is_some_and(|change| low <= change && change <= high) {
                true => Verdict::Reproduced,
                false => Verdict::NotReproduced,
            }
        }
        Trend::Ranks => {
            let (low, high) = accepted(claim)?;
            let means: Option<Vec<f64>> = values.iter().map(mean).collect();
            let found = means.and_then(|means| rank_correlation(&means));
            let (more, less) = match low + high > 0.0 {
                true => (last, first),
                false => (first, last),
            };
            match found.is_some_and(|found| low <= found && found <= high) {
                true => Verdict::Reproduced,
                false if above(more, less) => Verdict::DirectionOnly,
                false => Verdict::NotReproduced,
            }
        }
    })
}

fn mean(values: &BySeed) -> Option<f64> {
    let all: Vec<f64> = values.values().copied().collect();
    estimate(&all).map(|e| e.mean)
}

/// Spearman's correlation of the values' ranks with their order; equal values have their mean rank. None if all are
/// equal.
fn rank_correlation(values: &[f64]) -> Option<f64> {
    let rank = |x: f64| {
        let below = values.iter().filter(|y| **y < x).count();
        let equal = values.iter().filter(|y| **y == x).count();
        below as f64 + (equal as f64 - 1.0) / 2.0
    };
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let pairs = values
        .iter()
        .enumerate()
        .map(|(i, x)| (i as f64 - middle, rank(*x) - middle));
    let (mut both, mut orders, mut ranks) = (0.0, 0.0, 0.0);
    for (order, rank) in pairs {
        both += order * rank;
        orders += order * order;
        ranks += rank * rank;
    }
    (ranks > 0.0).then(|| both / f64::sqrt(orders * ranks))
}

/// The values that count, as parts of one.
fn accepted(claim: &Claim) -> Result<(f64, f64), Failure> {
    let wrong = |why: String| Failure::Input(format!("claim {}: `accept`: {why}", claim.id));
    let part = |text: &str| match text.strip_prefix('-') {
        Some(rest) => value_of(rest, "1").map(|x| -x),
        None => value_of(text, "1"),
    };
    let (low, high) = claim
        .accept
        .as_ref()
        .ok_or_else(|| wrong("it is missing".into()))?;
    Ok((part(low).map_err(wrong)?, part(high).map_err(wrong)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_results::findings::{Claim as Found, Comparison};

    fn finding(value: f64, interval: Option<(f64, f64)>, holds: Option<bool>) -> Finding {
        Finding {
            claim: Found {
                id: "X".into(),
                says: "x".into(),
                source: "1".into(),
                metric: "web.response.mean".into(),
                arm: Some("a".into()),
                against: Some("b".into()),
                comparison: Some(Comparison::Reduction),
                value: Some(value),
                accept: Some((0.5, 0.9)),
                fitted: false,
                needs: None,
            },
            ours: interval.map(|(low, high)| (low + high) / 2.0),
            interval,
            holds,
            why: None,
        }
    }

    fn verdict(finding: &Finding) -> Option<Verdict> {
        one(finding).ok().flatten()
    }

    #[test]
    fn a_comparison_keeps_its_direction_only_with_confidence() {
        let within = finding(0.7, Some((0.5, 0.8)), Some(true));
        assert_eq!(verdict(&within), Some(Verdict::Reproduced));
        let less = finding(0.7, Some((0.1, 0.3)), Some(false));
        assert_eq!(verdict(&less), Some(Verdict::DirectionOnly));
        let perhaps = finding(0.7, Some((-0.01, 0.3)), Some(false));
        assert_eq!(verdict(&perhaps), Some(Verdict::NotReproduced));
        let other_way = finding(-0.7, Some((0.1, 0.3)), Some(false));
        assert_eq!(verdict(&other_way), Some(Verdict::NotReproduced));
    }

    #[test]
    fn a_value_alone_has_no_direction_and_a_fitted_one_says_nothing() {
        let mut outside = finding(0.7, Some((0.1, 0.3)), Some(false));
        outside.claim.comparison = None;
        assert_eq!(verdict(&outside), Some(Verdict::NotReproduced));
        outside.claim.fitted = true;
        outside.holds = None;
        assert_eq!(verdict(&outside), Some(Verdict::NotTestable));
        outside.claim.fitted = false;
        assert_eq!(verdict(&outside), None, "a reader's");
        assert!(one(&finding(0.7, None, None)).is_err(), "not measured");
    }

    #[test]
    fn of_several_variants_the_worst_counts() {
        let all = [
            Verdict::Reproduced,
            Verdict::NotReproduced,
            Verdict::DirectionOnly,
        ];
        let all = all.into_iter().map(Some).fold(None, worst);
        assert_eq!(all, Some(Verdict::NotReproduced));
    }

    fn trend(of: Trend, values: &[[f64; 3]]) -> Verdict {
        let accept = match of {
            Trend::Ranks => ("-1", "-0.9"),
            _ => ("-5%", "5%"),
        };
        let values: Vec<BySeed> = values
            .iter()
            .map(|v| v.iter().enumerate().map(|(i, x)| (i as u64, *x)).collect())
            .collect();
        let claim = Claim {
            id: "T".into(),
            says: "t".into(),
            source: "1".into(),
            value: None,
            arm: Some("a".into()),
            against: None,
            comparison: None,
            metric: None,
            accept: Some((accept.0.into(), accept.1.into())),
            also: None,
            trend: Some(of),
            needs: None,
            verdict: None,
            why: None,
            line: 1,
        };
        over_variants(of, &claim, &values).ok().unwrap()
    }

    #[test]
    fn trends() {
        let up = [[1.0, 1.1, 1.2], [2.0, 2.1, 2.3], [3.0, 3.1, 3.3]];
        assert_eq!(trend(Trend::Rises, &up), Verdict::Reproduced);
        let then_stays = [[1.0, 1.1, 1.2], [3.0, 3.1, 3.3], [3.1, 3.0, 3.3]];
        assert_eq!(trend(Trend::Rises, &then_stays), Verdict::DirectionOnly);
        let down = [[3.0, 3.1, 3.3], [1.0, 1.1, 1.2]];
        assert_eq!(trend(Trend::Rises, &down), Verdict::NotReproduced);
        assert_eq!(trend(Trend::Stays, &down), Verdict::NotReproduced);
        let same = [[1.0, 1.1, 1.2], [1.02, 1.12, 1.22]];
        assert_eq!(trend(Trend::Stays, &same), Verdict::Reproduced);
    }

    #[test]
    fn ranks_are_spearman_s() {
        assert_eq!(rank_correlation(&[1.0, 5.0, 5.5]), Some(1.0));
        assert_eq!(rank_correlation(&[3.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(rank_correlation(&[2.0, 2.0]), None);
        // 1 - 6 (1 + 1) / (4 x 15).
        let one_swap = rank_correlation(&[1.0, 3.0, 2.0, 4.0]).unwrap();
        assert!((one_swap - 0.8).abs() < 1e-12);
        // Ranks 1, 2.5, 2.5: 1.5 / sqrt(2 x 1.5).
        let tie = rank_correlation(&[1.0, 2.0, 2.0]).unwrap();
        assert!((tie - 0.75_f64.sqrt()).abs() < 1e-12);
        let down = [[3.0, 3.1, 3.3], [2.0, 2.1, 2.3], [1.0, 1.1, 1.2]];
        assert_eq!(trend(Trend::Ranks, &down), Verdict::Reproduced);
        let with_a_step = [down[1], down[0], down[2]];
        assert_eq!(trend(Trend::Ranks, &with_a_step), Verdict::DirectionOnly);
        let up = [down[2], down[1], down[0]];
        assert_eq!(trend(Trend::Ranks, &up), Verdict::NotReproduced);
    }

    #[test]
    fn what_is_kept_is_held_against_the_runs() {
        let judged = |ours, kept| Judged {
            id: "X".into(),
            experiment: "E1".into(),
            paper: "-".into(),
            ours: Said {
                text: "1".into(),
                verdict: ours,
            },
            also: None,
            kept,
            why: None,
            line: 7,
        };
        let (yes, no) = (Some(Verdict::Reproduced), Some(Verdict::NotReproduced));
        assert_eq!(judged(yes, yes).differs("p"), None);
        assert_eq!(judged(None, no).differs("p"), None);
        assert_eq!(judged(None, no).verdict(), no);
        let said = judged(yes, no).differs("p").unwrap();
        assert!(
            said.contains("line 7") && said.contains("kept is \"not reproduced\""),
            "{said}"
        );
        assert!(
            judged(yes, None)
                .differs("p")
                .unwrap()
                .contains("no verdict is kept")
        );
        assert!(
            judged(None, None)
                .differs("p")
                .unwrap()
                .contains("a reader has to judge")
        );
    }
}
