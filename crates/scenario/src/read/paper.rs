// SPDX-License-Identifier: GPL-2.0-only
//! `[reproduces]` and `[calibrate]`: what ties a scenario to a paper.
use super::Context;
use super::arms::check_arm;
use super::expect::{absolute, check_metric};
use crate::claims;
use crate::diag::{Error, Result};
use crate::edit;
use crate::keys;
use crate::model::{Calibrate, Reproduces, Scenario};
use crate::section::Section;
use crate::tree::{Node, Value};
use std::collections::BTreeMap;

/// The most combinations of values that are tried.
const MOST_POINTS: usize = 1_000;

pub fn reproduces(
    context: &Context<'_>,
    file: &Section<'_>,
    scenario: &Scenario,
) -> Result<Option<Reproduces>> {
    if file.table.get("reproduces").is_none() {
        return Ok(None);
    }
    let section = file.table("reproduces", &keys::REPRODUCES)?;
    let text = |key: &str| -> Result<String> {
        Ok(section.string(key)?.map_or_else(String::new, |(s, _)| s))
    };
    let paper = text("paper")?;
    let experiment = text("experiment")?;
    let (metric, metric_at) = section
        .string("metric")?
        .unwrap_or_else(|| (String::new(), section.at.clone()));
    check_metric(&metric, &metric_at, scenario)?;
    let mut claims = Vec::new();
    let known = claims::beside(context.folder)?;
    for (pattern, at) in section.strings("claims")?.unwrap_or_default() {
        if let Some(known) = &known
            && claims::matching(known, &pattern).is_empty()
        {
            return Err(Error::at(
                &at,
                format!("claims.toml has no claim `{}`", pattern.escape_debug()),
            )
            .nearest(&pattern, known.iter().map(|c| c.id.as_str())));
        }
        claims.push(pattern);
    }
    Ok(Some(Reproduces {
        paper,
        experiment,
        metric,
        claims,
    }))
}

pub fn calibrate(
    context: &Context<'_>,
    file: &Section<'_>,
    root: &Node,
    scenario: &Scenario,
) -> Result<Option<Calibrate>> {
    let Some(entry) = file.table.get("calibrate") else {
        return Ok(None);
    };
    let section = file.table("calibrate", &keys::CALIBRATE)?;
    let (arm, arm_at) = section
        .string("arm")?
        .unwrap_or_else(|| (String::new(), section.at.clone()));
    check_arm(&arm, &arm_at, &scenario.arms)?;
    if let Some(baseline) = &scenario.baseline
        && *baseline != arm
    {
        return Err(Error::at(
            &arm_at,
            format!("`{arm}` is an arm under test: fitting on it would decide what it is to show"),
        )
        .label(format!(
            "only the baseline may be fitted: arm = \"{baseline}\""
        )));
    }
    if let Some(own) = scenario.arms.iter().find(|a| a.name == arm)
        && !own.set.is_empty()
    {
        return Err(Error::at(
            &arm_at,
            format!(
                "arm `{arm}` changes the scenario itself; what is fitted on it would not be the others' scenario"
            ),
        ));
    }
    let claim = section.string("claim")?;
    let metric = match section.string("metric")? {
        Some(metric) => Some(metric),
        None => scenario
            .reproduces
            .as_ref()
            .map(|r| (r.metric.clone(), entry.key_at.clone())),
    };
    let Some((metric, metric_at)) = metric else {
        return Err(Error::at(&section.at, "[calibrate] needs `metric`")
            .label("or a [reproduces] that has one"));
    };
    let unit = check_metric(&metric, &metric_at, scenario)?;
    let target = section.text("target", |text| absolute(text, unit))?;
    let target = match (target, &claim) {
        (Some((target, _)), _) => target,
        (None, None) => {
            return Err(Error::at(&section.at, "[calibrate] needs `target`")
                .label("or a `claim` that has a value"));
        }
        (None, Some((id, at))) => {
            let Some(known) = claims::beside(context.folder)? else {
                return Err(Error::at(
                    at,
                    format!("the value of `{}` is looked for in claims.toml beside the scenario, which is not \
                     there", id.escape_debug()),
                )
                .label("say the value with `target`"));
            };
            let Some(found) = known.iter().find(|c| c.id == *id) else {
                return Err(Error::at(
                    at,
                    format!("claims.toml has no claim `{}`", id.escape_debug()),
                )
                .nearest(id, known.iter().map(|c| c.id.as_str())));
            };
            match (
                &found.value,
                absolute(found.value.as_deref().unwrap_or(""), unit),
            ) {
                (None, _) => {
                    return Err(Error::at(at, format!("the claim `{id}` has no value")));
                }
                (Some(_), Ok(value)) => value,
                (Some(text), Err(why)) => {
                    return Err(Error::at(
                        at,
                        format!("the claim's value `{text}` is not one of {metric}: {why}"),
                    ));
                }
            }
        }
    };
    let search = search(&section, root)?;
    Ok(Some(Calibrate {
        arm,
        claim: claim.map(|(id, _)| id),
        metric,
        target,
        search,
    }))
}

/// The values to try, each address being one that the scenario could be changed at.
fn search(section: &Section<'_>, root: &Node) -> Result<BTreeMap<String, Vec<String>>> {
    let Some(node) = section.node("search")? else {
        return Ok(BTreeMap::new());
    };
    let Value::Table(table) = &node.value else {
        return Err(section.wrong_type("search", &node));
    };
    let mut search = BTreeMap::new();
    let mut points = 1_usize;
    for entry in super::arms::flat(table, "") {
        let first = entry.key.split('.').next().unwrap_or("");
        if !matches!(first, "host" | "vm" | "task" | "client" | "net") {
            return Err(Error::at(
                &entry.key_at,
                format!("`{}` cannot be fitted", entry.key.escape_debug()),
            )
            .label(
                "only host, vm, task, client and net: a policy's parameters are what is tested",
            ));
        }
        let Value::Array(values) = &entry.node.value else {
            return Err(Error::at(
                &entry.node.at,
                format!(
                    "`{}` takes a list of values to try",
                    entry.key.escape_debug()
                ),
            ));
        };
        if values.is_empty() {
            return Err(Error::at(&entry.node.at, "an empty list: nothing to try"));
        }
        points = points.saturating_mul(values.len());
        let mut texts = Vec::new();
        for value in values {
            let mut tree = root.clone();
            edit::set(&mut tree, &entry.key, &entry.key_at, value.clone())?;
            texts.push(value.value.to_toml());
        }
        search.insert(entry.key, texts);
    }
    if search.is_empty() {
        return Err(Error::at(&node.at, "`search` names nothing to fit"));
    }
    if points > MOST_POINTS {
        return Err(Error::at(
            &node.at,
            format!("{points} combinations of values, more than {MOST_POINTS}"),
        ));
    }
    Ok(search)
}
