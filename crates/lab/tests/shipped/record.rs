// SPDX-License-Identifier: GPL-2.0-only
//! Which policies ran on which kernel already: `ran.json` beside this file. The same bytes, loaded by the same loader
//! into the same kernel, are judged by its verifier as before, and that is what takes long. Whatever has changed since
//! is loaded; `make ran` loads all of them and writes the record anew.
use berth_lab::assets::Assets;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Hexadecimal digits of a hash.
const DIGITS: usize = 16;
/// Of Cargo.lock: what opens and loads objects.
const LIBRARIES: [&str; 2] = ["libbpf-rs", "libbpf-sys"];

/// By kernel and possible CPUs: a policy's name, and the hash of its object and its loader.
type Ran = BTreeMap<String, BTreeMap<String, String>>;

/// Two kernels may be done at the same time.
static FILE: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    FILE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shipped")
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// A record that is not there has nothing in it.
fn ran() -> Result<Ran, String> {
    let path = here().join("ran.json");
    if !path.exists() {
        return Ok(Ran::new());
    }
    serde_json::from_str(&read(&path)?).map_err(|e| format!("{}: {e}", path.display()))
}

/// A kernel that counts on so many CPUs, and what shipped policies are now.
pub struct Record {
    kernel: String,
    now: BTreeMap<String, String>,
}

impl Record {
    pub fn new(assets: &Assets, possible_cpus: u32) -> Result<Record, String> {
        let loader = loader(assets)?;
        let of = |builtin: &berth_builtin::Builtin| {
            let mut hasher = loader.clone();
            hasher.update(builtin.object());
            let hash = hasher.finalize().to_hex();
            (
                builtin.name.to_string(),
                hash.as_str()[..DIGITS].to_string(),
            )
        };
        Ok(Record {
            kernel: format!("{}, {possible_cpus} CPUs", assets.kernel.release),
            now: berth_builtin::all().iter().map(of).collect(),
        })
    }

    /// Policies that ran there as they are now.
    pub fn known(&self) -> Result<Vec<String>, String> {
        let _locked = lock();
        let ran = ran()?.remove(&self.kernel).unwrap_or_default();
        let same = |(name, hash): &(String, String)| self.now.get(name) == Some(hash);
        Ok(ran.into_iter().filter(same).map(|(name, _)| name).collect())
    }

    /// These ran now; whatever the record had of this kernel line is forgotten.
    pub fn write<'a>(&self, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
        let _locked = lock();
        let mut ran = ran()?;
        // Of this kernel line with so many CPUs.
        let line = |kernel: &str| {
            let (release, cpus) = kernel.split_once(", ").unwrap_or_default();
            let line: Vec<&str> = release.split('.').take(2).collect();
            format!("{}, {cpus}", line.join("."))
        };
        ran.retain(|kernel, _| line(kernel) != line(&self.kernel));
        let of = |name: &String| Some((name.clone(), self.now.get(name)?.clone()));
        ran.insert(self.kernel.clone(), names.filter_map(of).collect());
        let path = here().join("ran.json");
        let text = serde_json::to_string_pretty(&ran).map_err(|e| e.to_string())?;
        fs::write(&path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// What a policy goes through on its way into the kernel, and what judges it there. What it meets while it runs is held
/// by those that run there each time.
fn loader(assets: &Assets) -> Result<blake3::Hasher, String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = crates.join("scx/src");
    let entries = fs::read_dir(&sources).map_err(|e| format!("{}: {e}", sources.display()))?;
    let mut files = vec![here().join("mod.rs")];
    for entry in entries {
        files.push(entry.map_err(|e| e.to_string())?.path());
    }
    files.retain(|file| file.extension().is_some_and(|e| e == "rs"));
    files.sort();
    // A package may be built anew and keep its name.
    files.extend([assets.kernel.image.clone(), assets.kernel.config.clone()]);
    let mut hasher = blake3::Hasher::new();
    for file in files {
        let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(&bytes);
    }
    let lock = read(&crates.join("../Cargo.lock"))?;
    for library in LIBRARIES {
        let name = format!("name = \"{library}\"\n");
        let (_, rest) = lock
            .split_once(&name)
            .ok_or(format!("no {library} in Cargo.lock"))?;
        hasher.update(rest.lines().next().unwrap_or("").as_bytes());
    }
    Ok(hasher)
}
