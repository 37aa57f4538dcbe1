// SPDX-License-Identifier: GPL-2.0-only
//! The ready scenarios of `scenarios/`, found by name without any file.
use crate::diag::{Error, Result, nearest};
use crate::read::Input;
use crate::rtapp;
use std::path::Path;

/// Name and text of each.
pub const SHIPPED: [(&str, &str); 10] = [
    (
        "noisy-neighbour",
        include_str!("../../../scenarios/noisy-neighbour.toml"),
    ),
    (
        "consolidation",
        include_str!("../../../scenarios/consolidation.toml"),
    ),
    ("weights", include_str!("../../../scenarios/weights.toml")),
    (
        "boot-storm",
        include_str!("../../../scenarios/boot-storm.toml"),
    ),
    (
        "mixed-host",
        include_str!("../../../scenarios/mixed-host.toml"),
    ),
    ("hotplug", include_str!("../../../scenarios/hotplug.toml")),
    (
        "fast-and-slow",
        include_str!("../../../scenarios/fast-and-slow.toml"),
    ),
    (
        "hybrid-host",
        include_str!("../../../scenarios/hybrid-host.toml"),
    ),
    ("promised", include_str!("../../../scenarios/promised.toml")),
    (
        "unikernels",
        include_str!("../../../scenarios/unikernels.toml"),
    ),
];

/// The scenario a user means: a file if there is one of that path (an rt-app file is imported), else a shipped one.
///
/// # Errors
/// Neither; with the nearest name.
pub fn find(what: &str) -> Result<Input> {
    let path = Path::new(what);
    if path.is_file() {
        return imported(Input::from_file(path)?);
    }
    if let Some((name, text)) = SHIPPED.iter().find(|(name, _)| *name == what) {
        let shown = format!("{name}.toml");
        return Ok(Input {
            name: name.to_string(),
            shown,
            text: text.to_string(),
            folder: None,
        });
    }
    if what.ends_with(".toml") || what.contains('/') || path.exists() {
        return Input::from_file(path);
    }
    let names: Vec<_> = SHIPPED.iter().map(|s| s.0).collect();
    let near = nearest(what, names.iter().copied())
        .map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    Err(Error::new(format!(
        "there is no scenario `{}`, neither as a file nor shipped{near}",
        what.escape_debug()
    ))
    .note(format!("Shipped: {}", names.join(", "))))
}

/// An rt-app file as the scenario that it is imported as; a scenario as it is.
fn imported(input: Input) -> Result<Input> {
    if input.text.trim().is_empty() {
        return Err(
            Error::new(format!("{} is empty: it has no scenario", input.shown))
                .note("One to begin with: berth scenario show noisy-neighbour"),
        );
    }
    if !rtapp::is_json(&input.text) {
        return Ok(input);
    }
    let text = rtapp::import(&input)?;
    Ok(Input {
        shown: format!("{} as a scenario", input.shown),
        text,
        ..input
    })
}

/// The first comment lines of a scenario: what it asks.
pub fn question(text: &str) -> String {
    let lines = text
        .lines()
        .take_while(|l| l.starts_with('#'))
        .map(|l| l.trim_start_matches('#').trim());
    lines.collect::<Vec<_>>().join(" ")
}
