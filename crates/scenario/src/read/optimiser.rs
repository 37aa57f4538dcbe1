// SPDX-License-Identifier: GPL-2.0-only
//! `[optimiser]` and what it was told of VMs.
use crate::diag::{At, Error, Result};
use crate::keys;
use crate::model::{Optimiser, Vm};
use crate::quantity;
use crate::section::Section;
use berth_optimiser::{Means, Promise, Service, Settings, Spread};
use std::collections::BTreeMap;

/// The optimiser, if the file has one that is on.
///
/// # Errors
/// A setting out of its range, a promise that cannot be kept, a group of VMs that does not exist.
pub fn optimiser(file: &Section<'_>, vms: &[Vm]) -> Result<Option<Optimiser>> {
    if file.table.get("optimiser").is_none() {
        return Ok(None);
    }
    let section = file.table("optimiser", &keys::OPTIMISER)?;
    let on = section.boolean("on")?.unwrap_or(true);
    let part = |key: &str| -> Result<f64> {
        let ppm = section
            .text(key, quantity::percent_ppm)?
            .map_or(0, |(ppm, _)| ppm);
        Ok(f64::from(ppm) / 1e6)
    };
    let settings = Settings {
        means: means(&section)?,
        spread: spread(&section)?,
        period_ns: section.duration("period")?,
        decide_ns: section.duration("decide")?,
        gap_ns: section.duration("gap")?,
        alpha: part("smoothing")?,
        step: part("step")?,
        reserve: part("reserve")?,
        host_weight: section.count("host_weight", 1, 10_000, "as cpu.weight")?,
        hysteresis: part("hysteresis")?,
        imbalance: part("imbalance")?,
        dedicate_from: part("dedicate_from")?,
        dedicate_until: part("dedicate_until")?,
    };
    let at = |key: &str| {
        section
            .table
            .get(key)
            .map_or(&section.at, |e| &e.node.at)
            .clone()
    };
    settings
        .check()
        .map_err(|e| Error::at(&at(""), format!("[optimiser]: {e}")))?;
    if let Some(vm) = vms.iter().find(|vm| on && vm.cgroup.is_some()) {
        let why = format!(
            "the optimiser sets VMs' own cgroups, and vm.{} shares one",
            vm.name
        );
        return Err(Error::at(&at(""), why).label("leave `cgroup` out, or say `on = false`"));
    }
    let mut promises = BTreeMap::new();
    for (name, entry) in section.named("vm", &keys::PROMISE)? {
        let promised = section.open_named("vm", &keys::PROMISE, entry)?;
        let Some(vm) = vms.iter().find(|vm| vm.name == name) else {
            let why = format!("there is no group of VMs `{name}`");
            let groups = vms.iter().map(|vm| vm.name.as_str());
            return Err(Error::at(&promised.at, why).nearest(&name, groups));
        };
        promises.insert(name, promise(&promised, vm)?);
    }
    let optimiser = Optimiser { settings, promises };
    Ok(on.then_some(optimiser))
}

fn means(section: &Section<'_>) -> Result<Means> {
    let mut means = Means {
        sets: false,
        weights: false,
        caps: false,
        freezing: false,
    };
    for (word, at) in section.strings("by")?.unwrap_or_default() {
        match word.as_str() {
            "sets" => means.sets = true,
            "weights" => means.weights = true,
            "caps" => means.caps = true,
            "freezing" => means.freezing = true,
            _ => {
                return Err(unknown(
                    "optimiser.by",
                    &word,
                    &at,
                    &["sets", "weights", "caps", "freezing"],
                ));
            }
        }
    }
    Ok(means)
}

fn spread(section: &Section<'_>) -> Result<Spread> {
    let Some((word, at)) = section.string("spread")? else {
        return Ok(Spread::default());
    };
    Spread::of(&word).ok_or_else(|| unknown("optimiser.spread", &word, &at, &["cpus", "pool"]))
}

fn unknown(key: &str, word: &str, at: &At, words: &[&str]) -> Error {
    let why = format!("`{key}` has no `{}`", word.escape_debug());
    Error::at(at, why)
        .label(format!("it may have: {}", words.join(", ")))
        .nearest(word, words.iter().copied())
}

fn promise(section: &Section<'_>, vm: &Vm) -> Result<Promise> {
    let service = match section.string("service")? {
        None => Service::Normal,
        Some((word, at)) => Service::of(&word).ok_or_else(|| {
            unknown(
                &section.address("service"),
                &word,
                &at,
                &Service::ALL.map(Service::word),
            )
        })?,
    };
    let cpus = |key: &str| -> Result<Option<f64>> {
        let milli = section.text(key, quantity::milli_cpus)?;
        Ok(milli.map(|(milli, _)| milli as f64 / 1e3))
    };
    let promise = Promise {
        service,
        guarantee: cpus("guarantee")?.unwrap_or(0.0),
        limit: cpus("limit")?,
        weight: match section.integer("weight", 1, 10_000, "as cpu.weight")? {
            Some((weight, _)) => u32::try_from(weight).unwrap_or(vm.weight),
            None => vm.weight,
        },
    };
    let checked = promise.check(&vm.name, vm.vcpus);
    checked.map_err(|e| Error::at(&section.at, format!("[{}]: {e}", section.path)))?;
    Ok(promise)
}
