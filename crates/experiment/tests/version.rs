// SPDX-License-Identifier: GPL-2.0-only
//! A kept run is not used by another version: the version is a hash of all crates that a run's result depends on.
use std::collections::BTreeSet;
use std::path::Path;

/// The project's crates that this one's manifest names as dependencies (not those of its tests).
fn dependencies(name: &str) -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = std::fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
    let section = manifest
        .split("\n[")
        .find_map(|s| s.strip_prefix("dependencies]"));
    let lines = section.unwrap_or_default().lines();
    let named = lines.filter_map(|line| line.strip_prefix("berth-")?.split([' ', '.', '=']).next());
    named.map(String::from).collect()
}

#[test]
fn all_that_the_simulator_stands_on_is_part_of_the_version() {
    let mut expected = BTreeSet::from(["experiment".to_string()]);
    let mut open = vec!["sim".to_string()];
    while let Some(name) = open.pop() {
        if expected.insert(name.clone()) {
            open.extend(dependencies(&name));
        }
    }
    assert!(expected.len() >= 6, "{expected:?}");
    let hashed: BTreeSet<String> = env!("HASHED_CRATES").split(' ').map(String::from).collect();
    assert_eq!(hashed, expected);
}
