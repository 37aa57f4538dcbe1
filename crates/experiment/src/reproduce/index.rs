// SPDX-License-Identifier: GPL-2.0-only
//! The index of a benchmark of several parts: a run for each part, put together arm by arm and seed by seed.
use berth_results::experiment::Experiment;
use berth_results::findings;
use berth_scenario::paper::Part;

/// The variants of a run with the index as their metrics. `outcomes`: for each part, the variants of its run.
///
/// What else was measured differs from part to part, and is left out.
pub fn combine(parts: &[Part], mut outcomes: Vec<Vec<Experiment>>) -> Vec<Experiment> {
    let Some((first, others)) = outcomes.split_first_mut() else {
        return Vec::new();
    };
    let mut combined = std::mem::take(first);
    for (i, variant) in combined.iter_mut().enumerate() {
        for run in &mut variant.runs {
            let (arm, seed) = (&run.arm, run.seed);
            let of_others = others.iter().map(|variants| &variants[i]).map(|other| {
                let found = other.runs.iter().find(|r| r.arm == *arm && r.seed == seed);
                found.map(|r| &r.metrics)
            });
            let all = std::iter::once(Some(&run.metrics)).chain(of_others);
            let scores: Option<Vec<f64>> = parts
                .iter()
                .zip(all)
                .map(|(part, metrics)| Some(metrics?.get(&part.metric)? / part.per))
                .collect();
            run.metrics.clear();
            let Some(scores) = scores else { continue };
            for (part, score) in parts.iter().zip(&scores) {
                run.metrics.insert(part.of_index(), *score);
            }
            run.metrics.insert(Part::INDEX.into(), mean(parts, &scores));
        }
        let found = variant.findings.iter();
        let anew = found.map(|finding| findings::find(&finding.claim, variant));
        variant.findings = anew.collect();
    }
    combined
}

/// The weighted geometric mean: 0 if one of them is.
fn mean(parts: &[Part], scores: &[f64]) -> f64 {
    let weights: f64 = parts.iter().map(|part| part.weight).sum();
    let logs = parts.iter().zip(scores);
    let sum: f64 = logs.map(|(part, score)| part.weight * score.ln()).sum();
    (sum / weights).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_results::experiment::Setup;
    use berth_results::findings::{Claim, Finding};
    use berth_results::schema::{Place, RunRecord};
    use std::collections::BTreeMap;

    fn part(name: &str, per: f64, weight: f64) -> Part {
        Part {
            name: name.into(),
            set: Vec::new(),
            metric: "web.work".into(),
            per,
            weight,
        }
    }

    /// One variant with two arms and the same work in each seed.
    fn outcome(work: &[(&str, u64, f64)]) -> Experiment {
        let runs = work.iter().map(|(arm, seed, work)| {
            let metrics = BTreeMap::from([("web.work".to_string(), *work)]);
            RunRecord::new(Place::Sim, arm, *seed, metrics)
        });
        let claim = Claim {
            id: "X".into(),
            says: "x".into(),
            source: "1".into(),
            metric: "index".into(),
            arm: Some("a".into()),
            against: None,
            comparison: None,
            value: None,
            accept: Some((1.9, 2.1)),
            fitted: false,
            needs: None,
        };
        let setup = Setup {
            name: "t".into(),
            title: "T".into(),
            cpus: 1,
            groups: Vec::new(),
            warmup_ns: 0,
            measure_ns: 1,
            seeds: vec![1, 2],
        };
        Experiment {
            setup,
            variant: Vec::new(),
            arms: Vec::new(),
            baseline: None,
            runs: runs.collect(),
            expects: Vec::new(),
            findings: vec![Finding {
                claim,
                ours: None,
                interval: None,
                holds: None,
                why: None,
            }],
            notes: Vec::new(),
        }
    }

    #[test]
    fn it_is_the_weighted_geometric_mean_of_arm_and_seed() {
        let parts = [part("one", 10.0, 1.0), part("two", 1.0, 3.0)];
        let one = outcome(&[("a", 1, 160.0), ("a", 2, 160.0), ("b", 1, 10.0)]);
        // In another order, and without a run of b.
        let two = outcome(&[("a", 2, 1.0), ("a", 1, 1.0)]);
        let all = combine(&parts, vec![vec![one], vec![two]]);
        let e = &all[0];
        for seed in [1, 2] {
            assert!((e.values("a", "index")[&seed] - 2.0).abs() < 1e-12);
            assert_eq!(e.values("a", "index.one")[&seed], 16.0);
            assert_eq!(e.values("a", "index.two")[&seed], 1.0);
        }
        assert!(e.values("b", "index").is_empty() && e.values("a", "web.work").is_empty());
        assert_eq!(e.findings[0].holds, Some(true));
    }

    #[test]
    fn a_part_that_gets_nothing_makes_it_nothing() {
        let parts = [part("one", 1.0, 7.0), part("two", 1.0, 1.0)];
        let (one, two) = (outcome(&[("a", 1, 5.0)]), outcome(&[("a", 1, 0.0)]));
        let all = combine(&parts, vec![vec![one], vec![two]]);
        assert_eq!(all[0].values("a", "index")[&1], 0.0);
    }
}
