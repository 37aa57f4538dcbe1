// SPDX-License-Identifier: GPL-2.0-only
//! A hash of the sources that a run's result depends on, for the version that kept runs carry. Policies are no part
//! of it: a run names theirs by their own hash. What shows and judges runs that are done is none either.
use std::path::{Path, PathBuf};

/// The simulator and all that it stands on, and this crate (tests/version.rs holds the list to their manifests).
const CRATES: [&str; 8] = [
    "experiment",
    "identity",
    "mixed",
    "optimiser",
    "policy",
    "results",
    "scenario",
    "sim",
];

/// What they have packed in that is no source.
const PACKED: [&str; 1] = ["scenario/profiles"];

/// Folders of these crates that no run's result depends on.
const AFTER_RUNS: [&str; 1] = ["experiment/src/reproduce"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if AFTER_RUNS.iter().any(|after| path.ends_with(after)) {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn main() {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("..");
    let mut found = Vec::new();
    println!("cargo::rustc-env=HASHED_CRATES={}", CRATES.join(" "));
    let sources = CRATES.iter().map(|name| format!("{name}/src"));
    for folder in sources.chain(PACKED.map(String::from)) {
        let folder = root.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        files(&folder, &mut found);
    }
    found.sort();
    let mut hasher = blake3::Hasher::new();
    for path in &found {
        let name = path.strip_prefix(&root).unwrap_or(path);
        hasher.update(name.to_string_lossy().as_bytes());
        let bytes = std::fs::read(path).unwrap_or_default();
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(&bytes);
    }
    let hash = hasher.finalize().to_hex();
    println!("cargo::rustc-env=BERTH_SOURCES={}", &hash[..12]);
}
