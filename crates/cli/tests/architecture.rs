// SPDX-License-Identifier: GPL-2.0-only
//! ARCHITECTURE.md is true: what it says each crate stands on is what the crate's manifest says.
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, Value};

/// Per kind of dependency the crates.
type Needs = BTreeMap<&'static str, BTreeSet<String>>;

const PLAIN: &str = "";
const BUILD: &str = "build";
const TEST: &str = "to test";
const FEATURE: &str = "with a feature";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn crates() -> BTreeSet<String> {
    let folders = std::fs::read_dir(root().join("crates")).unwrap();
    let names = folders.map(|f| f.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// What the manifest of a crate names of ours.
fn manifest(name: &str) -> Needs {
    let path = root().join("crates").join(name).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let manifest: DocumentMut = text.parse().unwrap();
    let mut needs = Needs::new();
    for (section, kind) in [
        ("dependencies", PLAIN),
        ("build-dependencies", BUILD),
        ("dev-dependencies", TEST),
    ] {
        let Some(table) = manifest.get(section).and_then(Item::as_table_like) else {
            continue;
        };
        for (crate_name, item) in table.iter() {
            let optional = item.get("optional").and_then(Item::as_value);
            let optional = optional.and_then(Value::as_bool) == Some(true);
            if let Some(short) = crate_name.strip_prefix("berth-") {
                let kind = if optional { FEATURE } else { kind };
                needs.entry(kind).or_default().insert(short.to_string());
            }
        }
    }
    needs
}

/// What ARCHITECTURE.md says: "*stands on*: a, b; build: c; to test: d; with `kernel`: e". Words that are no crates'
/// names are not looked at.
fn told(item: &str, crates: &BTreeSet<String>) -> Needs {
    let (_, text) = item
        .split_once("*stands on*:")
        .unwrap_or_else(|| panic!("what does it stand on? {item}"));
    let mut needs = Needs::new();
    for part in text.split(';') {
        let (kind, names) = match part.split_once(':') {
            None => (PLAIN, part),
            Some((kind, names)) if kind.trim() == BUILD => (BUILD, names),
            Some((kind, names)) if kind.trim() == TEST => (TEST, names),
            Some((_, names)) => (FEATURE, names),
        };
        let named = names.split(',').map(|n| n.trim().to_string());
        let named: BTreeSet<String> = named.filter(|n| crates.contains(n)).collect();
        if !named.is_empty() {
            needs.entry(kind).or_default().extend(named);
        }
    }
    needs
}

#[test]
fn every_crate_has_a_room_and_stands_on_what_is_said() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rooms = text
        .split("\n## ")
        .find(|s| s.starts_with("Rooms"))
        .unwrap();
    let crates = crates();
    let mut seen = BTreeSet::new();
    for item in rooms.split("\n- ").skip(1) {
        let item = item.split("\n\n").next().unwrap().replace('\n', " ");
        let Some(name) = item
            .strip_prefix("`crates/")
            .and_then(|i| i.split('`').next())
        else {
            continue;
        };
        seen.insert(name.to_string());
        assert_eq!(told(&item, &crates), manifest(name), "crates/{name}");
    }
    assert_eq!(seen, crates, "crates with a room, crates that are there");
}

/// `eprintln!` ends the program where standard error cannot be written; `berth_report::say!` does not.
#[test]
fn nothing_that_a_run_goes_through_writes_to_standard_error_by_itself() {
    let mut folders: Vec<PathBuf> = [
        "cli",
        "experiment",
        "report",
        "results",
        "scenario",
        "sim",
        "lab",
        "policy",
    ]
    .iter()
    .map(|name| root().join("crates").join(name).join("src"))
    .collect();
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let uses = text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("//"));
                let uses: Vec<&str> = uses.filter(|l| l.contains("eprint")).collect();
                assert!(uses.is_empty(), "{}: {uses:?}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen}");
}
