// SPDX-License-Identifier: GPL-2.0-only
//! The scx project's headers of another version than the one that Berth carries, for schedulers written for it: from
//! the packages of the crate registry (`scx_cargo`, before that `scx_utils`), by cargo.
use crate::cache;
use crate::cc::find_program;
use crate::error::{LoadError, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages that have had the headers, newest first.
const PACKAGES: [&str; 2] = ["scx_cargo", "scx_utils"];

/// The folder with the headers of a version, e.g. `1.0.14`. What cargo has unpacked once is used without a network.
///
/// # Errors
/// It is no version, neither package has it or had headers then, or there is no cargo.
pub fn of_version(version: &str) -> Result<PathBuf> {
    let parts: Vec<&str> = version.split('.').collect();
    let number = |part: &&str| {
        !part.is_empty() && part.len() < 6 && part.bytes().all(|b| b.is_ascii_digit())
    };
    if parts.len() != 3 || !parts.iter().all(number) {
        return Err(LoadError::Setting(format!(
            "headers `{}`: a version of the scx project's packages, such as 1.0.14",
            version.escape_debug()
        )));
    }
    if let Some(found) = unpacked(version) {
        return Ok(found);
    }
    let mut said = String::new();
    for package in PACKAGES {
        match fetch(package, version) {
            Ok(()) => (),
            Err(e) => said.push_str(&format!("\n  {package}: {e}")),
        }
        if let Some(found) = unpacked(version) {
            return Ok(found);
        }
    }
    Err(LoadError::Setting(format!(
        "there are no headers of scx {version} in the crate registry ({}){said}",
        PACKAGES.join(", ")
    )))
}

/// Where cargo has unpacked them.
fn unpacked(version: &str) -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")))?;
    let registries = std::fs::read_dir(home.join("registry/src")).ok()?;
    registries.flatten().find_map(|registry| {
        let mut folders = PACKAGES.iter().map(|package| {
            let folder = registry.path().join(format!("{package}-{version}"));
            folder.join("bpf_h")
        });
        folders.find(|folder| folder.join("scx/common.bpf.h").is_file())
    })
}

/// Lets cargo fetch a package.
fn fetch(package: &str, version: &str) -> std::result::Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let cargo = find_program(&cargo).ok_or("no cargo in PATH to fetch it with")?;
    let folder = cache::folder().map_err(|e| e.to_string())?;
    let folder = folder.join(format!("fetch-{package}-{version}-{}", std::process::id()));
    let result = manifest(&folder, package, version).and_then(|manifest| {
        let mut command = Command::new(cargo);
        command
            .args(["fetch", "--quiet", "--manifest-path"])
            .arg(manifest);
        let out = command.output().map_err(|e| e.to_string())?;
        match out.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&out.stderr);
                Err(said
                    .lines()
                    .next()
                    .unwrap_or("cargo fetch failed")
                    .trim()
                    .to_string())
            }
        }
    });
    // Only made to ask.
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn manifest(folder: &Path, package: &str, version: &str) -> std::result::Result<PathBuf, String> {
    let text = format!(
        "[package]\nname = \"headers\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n[dependencies]\n\
         {package} = \"={version}\"\n"
    );
    let path = folder.join("Cargo.toml");
    let make = || {
        std::fs::create_dir_all(folder.join("src"))?;
        std::fs::write(folder.join("src/lib.rs"), "")?;
        std::fs::write(&path, text)
    };
    make().map_err(|e: std::io::Error| e.to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_versions() {
        for wrong in [
            "",
            "1",
            "1.0",
            "1.0.x",
            "../../../etc",
            "1.0.0\"\n",
            "1..2",
            "1.0.1234567",
        ] {
            let said = super::of_version(wrong).unwrap_err().to_string();
            assert!(said.contains("such as 1.0.14"), "{wrong}: {said}");
        }
    }
}
