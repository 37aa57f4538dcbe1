// SPDX-License-Identifier: GPL-2.0-only
//! The claims of a paper that a scenario reproduces, in the words of the results.
use crate::error::Failure;
use berth_results::findings::{Claim, Comparison};
use berth_scenario::claims;
use berth_scenario::model::Scenario;
use berth_scenario::{metrics, value_of};
use std::path::Path;

/// The claims that a scenario's `[reproduces]` names, from the file beside it; none if there is no such file.
///
/// # Errors
/// The file cannot be read, or a value is not one of its metric.
pub fn of(scenario: &Scenario, folder: Option<&Path>) -> Result<Vec<Claim>, Failure> {
    let Some(reproduces) = &scenario.reproduces else {
        return Ok(Vec::new());
    };
    let all = claims::beside(folder)?.unwrap_or_default();
    let mut found: Vec<Claim> = Vec::new();
    for claim in reproduces
        .claims
        .iter()
        .flat_map(|pattern| claims::matching(&all, pattern))
    {
        if found.iter().any(|other| other.id == claim.id) {
            continue;
        }
        let translated = translate(claim, scenario, &reproduces.metric)?;
        let second = claim.also.as_ref().map(|arm| Claim {
            id: format!("{}, {arm}", claim.id),
            arm: Some(arm.clone()),
            ..translated.clone()
        });
        found.push(translated);
        found.extend(second);
    }
    Ok(found)
}

fn translate(claim: &claims::Claim, scenario: &Scenario, metric: &str) -> Result<Claim, Failure> {
    let metric = claim.metric.as_deref().unwrap_or(metric);
    // Comparisons are parts of one, whatever they compare.
    let unit = match claim.comparison {
        Some(_) => "1",
        None => metrics::parse(metric).map_or("1", |(_, unit)| unit),
    };
    let number = |text: &String| {
        let text = text.trim();
        // Only a change may be below nothing.
        let (sign, size) = match text.strip_prefix('-') {
            Some(size) if claim.comparison.is_some() => (-1.0, size),
            _ => (1.0, text),
        };
        let zero = size.trim_end_matches('%') == "0";
        if zero { Ok(0.0) } else { value_of(size, unit) }
            .map(|size| sign * size)
            .map_err(|why| Failure::Input(format!("claim {}: `{text}`: {why}", claim.id)))
    };
    let accept = match &claim.accept {
        // A trend's is a change over several variants.
        Some((low, high)) if claim.trend.is_none() => Some((number(low)?, number(high)?)),
        _ => None,
    };
    let fitted = scenario
        .calibrate
        .as_ref()
        .is_some_and(|c| c.claim.as_ref() == Some(&claim.id));
    Ok(Claim {
        id: claim.id.clone(),
        says: claim.says.clone(),
        source: claim.source.clone(),
        metric: metric.to_string(),
        arm: claim.arm.clone(),
        against: claim.against.clone(),
        comparison: claim.comparison.map(|c| match c {
            claims::Comparison::Reduction => Comparison::Reduction,
            claims::Comparison::Gain => Comparison::Gain,
        }),
        value: claim.value.as_ref().map(number).transpose()?,
        accept,
        fitted,
        needs: claim.needs.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::{Input, read};

    #[test]
    fn all_papers_have_their_claims() {
        let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers");
        let mut ids = std::collections::BTreeSet::new();
        let mut of = std::collections::BTreeMap::new();
        for entry in std::fs::read_dir(papers).unwrap() {
            let folder = entry.unwrap().path();
            let all = claims::read(&folder.join("claims.toml")).unwrap();
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            for claim in &all {
                let id = &claim.id;
                assert!(ids.insert(id.clone()), "{id} is in two papers");
            }
            of.insert(name, all.len());
        }
        let numbers: Vec<(&str, usize)> = of.iter().map(|(n, k)| (n.as_str(), *k)).collect();
        let known = [
            ("affinity", 19),
            ("amp", 48),
            ("flms", 42),
            ("mrsf", 38),
            ("schedulers", 9),
        ];
        for (name, least) in known {
            let found = numbers.iter().find(|(n, _)| *n == name).map_or(0, |n| n.1);
            assert!(found >= least, "{name}: {found} of {least}");
        }
    }

    #[test]
    fn a_change_may_be_negative_and_a_value_may_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("claims.toml");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/amp/single.toml");
        let mut scenario = read(&Input::from_file(&path).unwrap(), &[])
            .unwrap()
            .scenario;
        if let Some(reproduces) = &mut scenario.reproduces {
            reproduces.claims = vec!["X".into()];
        }
        let found = |against: &str| {
            let head = "[[claim]]\nid = \"X\"\nsays = \"x\"\nwhere = \"1\"\narm = \"amp-vm\"\n";
            let text =
                format!("{head}accept = \"-10% to 2%\"\nmetric = \"speedup.mean\"\n{against}");
            std::fs::write(&file, text).unwrap();
            of(&scenario, Some(folder.path()))
        };
        let change = found("against = \"credit\"\nas = \"gain\"\n").ok().unwrap();
        assert_eq!(change[0].accept, Some((-0.1, 0.02)));
        assert!(found("").is_err());
    }

    #[test]
    fn every_claim_of_the_papers_has_values_of_its_metric() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/flms");
        let mut number = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_string_lossy();
            if !file.starts_with("ef") {
                continue;
            }
            let scenario = read(&Input::from_file(&path).unwrap(), &[])
                .unwrap()
                .scenario;
            let found = of(&scenario, Some(&folder)).ok().unwrap();
            assert!(!found.is_empty(), "{}", path.display());
            number += found.len();
        }
        assert!(number > 15, "{number}");
        let ping = Input::from_file(&folder.join("ef6-ping.toml")).unwrap();
        let found = of(&read(&ping, &[]).unwrap().scenario, Some(&folder))
            .ok()
            .unwrap();
        let of = |id: &str| found.iter().find(|c| c.id == id).unwrap();
        assert_eq!(of("F-T1-LAT-CREDIT").value, Some(16_853_000.0));
        assert!(of("F-T1-LAT-CREDIT").fitted && !of("F-T1-LAT-FLMS").fitted);
        let second = of("F-LAT-VS-CREDIT, flms-direct");
        assert_eq!(second.arm.as_deref(), Some("flms-direct"));
        assert_eq!(of("F-LAT-VS-VTURBO").against.as_deref(), Some("vturbo"));
        let reduction = of("F-LAT-VS-CREDIT");
        assert!((reduction.value.unwrap() - 0.7663).abs() < 1e-9);
        assert_eq!(reduction.accept, Some((0.5, 0.95)));
    }
}
