// SPDX-License-Identifier: GPL-2.0-only
//! `[[expect]]`.
use super::arms::check_arm;
use crate::diag::{At, Error, Result};
use crate::keys;
use crate::metrics;
use crate::model::{Bound, Expect, Scenario};
use crate::quantity;
use crate::section::Section;
use crate::tree::Value;

pub fn expects(file: &Section<'_>, scenario: &Scenario) -> Result<Vec<Expect>> {
    file.tables("expect", &keys::EXPECT, |section| {
        let (metric, metric_at) = section
            .string("metric")?
            .unwrap_or_else(|| (String::new(), section.at.clone()));
        let unit = check_metric(&metric, &metric_at, scenario)?;
        let (arm, arm_at) = section
            .string("arm")?
            .unwrap_or_else(|| (String::new(), section.at.clone()));
        check_arm(&arm, &arm_at, &scenario.arms)?;
        let at_most = bound(&section, "at_most", unit, scenario)?;
        let at_least = bound(&section, "at_least", unit, scenario)?;
        if at_most.is_none() && at_least.is_none() {
            return Err(Error::at(
                &section.at,
                "an expectation needs `at_most` or `at_least`",
            ));
        }
        Ok(Expect {
            metric,
            arm,
            at_most,
            at_least,
        })
    })
}

pub fn check_metric(metric: &str, at: &At, scenario: &Scenario) -> Result<&'static str> {
    let (object, unit) = metrics::parse(metric).map_err(|(part, possible)| {
        let error = Error::at(
            &at.narrow(metric, part),
            format!("there is no metric `{}`", metric.escape_debug()),
        );
        let error = error.nearest(part, possible.iter().copied());
        if possible.is_empty() {
            error
        } else {
            error.note(format!("Here may stand: {}", possible.join(", ")))
        }
    })?;
    let is_vm = |name: &str| {
        scenario.vms.iter().any(|vm| {
            let number = name
                .strip_prefix(vm.name.as_str())
                .and_then(|rest| rest.strip_prefix('-'));
            vm.name == name
                || (vm.count > 1
                    && number
                        .is_some_and(|n| n.parse::<u32>().is_ok_and(|n| n >= 1 && n <= vm.count)))
        })
    };
    if !matches!(object, "host" | "policy") && !is_vm(object) {
        let mut names: Vec<&str> = scenario.vms.iter().map(|vm| vm.name.as_str()).collect();
        names.extend(["host", "policy"]);
        return Err(Error::at(
            &at.narrow(metric, object),
            format!("there is no VM `{}`", object.escape_debug()),
        )
        .nearest(object, names.iter().copied())
        .note(format!("A metric begins with one of: {}", names.join(", "))));
    }
    Ok(unit)
}

fn bound(
    section: &Section<'_>,
    key: &str,
    unit: &str,
    scenario: &Scenario,
) -> Result<Option<Bound>> {
    if section.table.get(key).is_none() {
        return Ok(None);
    }
    let Some(node) = section.node(key)? else {
        return Ok(None);
    };
    let value = match &node.value {
        Value::Str(text) => {
            let parsed = match times_baseline(text) {
                Some(_) if scenario.baseline.is_none() => {
                    return Err(Error::at(
                        &node.at,
                        "there is no baseline: the scenario has one arm only",
                    ));
                }
                Some(factor) => factor.map(Bound::TimesBaseline),
                None => absolute(text, unit).map(Bound::Absolute),
            };
            parsed.map_err(|message| {
                Error::at(&node.at, format!("`{key}`: {message}"))
                    .note("A bound is for instance \"5ms\" or \"0.2 x baseline\"")
            })?
        }
        Value::Int(i) if unit == "1" => Bound::Absolute(*i as f64),
        Value::Float(x) if unit == "1" && x.is_finite() => Bound::Absolute(*x),
        _ => {
            return Err(section
                .wrong_type(key, &node)
                .label(format!("the metric is in {}", words(unit))));
        }
    };
    Ok(Some(value))
}

/// `0.2 x baseline`; none if it is something else.
fn times_baseline(text: &str) -> Option<std::result::Result<f64, String>> {
    let factor = text.trim().strip_suffix("baseline")?.trim();
    let factor = factor
        .strip_suffix('x')
        .or_else(|| factor.strip_suffix('×'))
        .or_else(|| factor.strip_suffix('*'));
    Some(match factor {
        Some(factor) => quantity::plain(factor),
        None => Err(format!("`{}` lacks a factor", text.trim())),
    })
}

/// A quantity with its unit as a value of a metric with that unit.
///
/// # Errors
/// It is no such quantity.
pub fn absolute(text: &str, unit: &str) -> std::result::Result<f64, String> {
    match unit {
        "ns" => quantity::duration(text).map(|ns| ns as f64),
        "CPU" => quantity::milli_cpus(text).map(|milli| milli as f64 / 1e3),
        "1/s" => quantity::per_second(text),
        "bit/s" => quantity::bits_per_second(text).map(|bits| bits as f64),
        _ if text.contains('%') => quantity::percent_ppm(text).map(|ppm| f64::from(ppm) / 1e6),
        _ => quantity::plain(text),
    }
}

fn words(unit: &str) -> &'static str {
    match unit {
        "ns" => "time, e.g. \"5ms\"",
        "CPU" => "CPUs, e.g. \"1.5 CPUs\"",
        "1/s" => "events a second, e.g. \"400/s\"",
        "bit/s" => "bits a second, e.g. \"1.5Gbit/s\"",
        _ => "bare numbers, e.g. 0.2, or percent, e.g. \"20%\"",
    }
}
