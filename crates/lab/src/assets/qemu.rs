// SPDX-License-Identifier: GPL-2.0-only
//! The emulator: the installed one if it is new enough, else one unpacked in the cache.
use super::apt::{self, Suite};
use super::cache::Cache;
use crate::{LabError, Listener, Progress};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Older versions let one emulated CPU starve the others in virtual time.
const OLDEST: u32 = 9;
const PROGRAM: &str = "qemu-system-x86_64";
/// Relative to an unpacked tree: where QEMU's modules lie.
const MODULES: &str = "usr/lib/x86_64-linux-gnu/qemu";
/// Likewise: its firmware.
const DATA: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

/// An emulator that can be run.
#[derive(Clone, Debug)]
pub struct Qemu {
    program: PathBuf,
    /// Unpacked tree, if it is not the installed one.
    tree: Option<PathBuf>,
    pub version: String,
}

impl Qemu {
    pub(crate) fn command(&self) -> Command {
        let mut c = Command::new(&self.program);
        if let Some(tree) = &self.tree {
            for data in DATA {
                c.arg("-L").arg(tree.join(data));
            }
            c.arg("-L").arg("/usr/share/seabios");
            // Else it loads the modules of the installed version and aborts.
            c.env("QEMU_MODULE_DIR", tree.join(MODULES));
        }
        c
    }

    /// Where the program is, as a file: a VM inside the lab's VM runs the same one.
    pub(crate) fn path(&self) -> Result<PathBuf, LabError> {
        if self.program.is_absolute() {
            return Ok(self.program.clone());
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut places = std::env::split_paths(&folders).map(|f| f.join(&self.program));
        let found = places.find(|p| p.is_file());
        found.ok_or_else(|| LabError::Start(format!("{} is not in PATH", self.program.display())))
    }

    /// A file of its firmware.
    pub(crate) fn data_file(&self, name: &str) -> Result<PathBuf, LabError> {
        let tree = self.tree.clone().unwrap_or_else(|| PathBuf::from("/"));
        let folders = DATA.map(|f| tree.join(f)).into_iter();
        let mut places = folders.chain([PathBuf::from("/usr/share/seabios")]);
        let found = places.find_map(|f| Some(f.join(name)).filter(|p| p.is_file()));
        found.ok_or_else(|| {
            LabError::Start(format!(
                "QEMU's {name} is missing; apt-get install --no-install-recommends seabios qemu-system-x86"
            ))
        })
    }

    /// For messages: version and where it is.
    pub fn describe(&self) -> String {
        format!("QEMU {} ({})", self.version, self.program.display())
    }
}

/// Finds or fetches the emulator.
pub(crate) fn ensure(
    cache: &Cache,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Qemu, LabError> {
    let installed = version(Path::new(PROGRAM));
    if let Ok(v) = &installed
        && major(v) >= OLDEST
    {
        return Ok(Qemu {
            program: PathBuf::from(PROGRAM),
            tree: None,
            version: v.clone(),
        });
    }
    let tree = cache.root.join("qemu");
    let program = tree.join("usr/bin").join(PROGRAM);
    let found = match &installed {
        Ok(v) => format!("{v} is too old"),
        Err(_) => "is not installed".to_string(),
    };
    if !program.exists() {
        fetch(cache, &tree, &found, listener, stop)?;
    }
    match version(&program) {
        Ok(version) => Ok(Qemu {
            program,
            tree: Some(tree),
            version,
        }),
        Err(why) => Err(LabError::Start(format!(
            "{}: {why}; its libraries come with `apt-get install --no-install-recommends qemu-system-x86`",
            program.display()
        ))),
    }
}

fn fetch(
    cache: &Cache,
    tree: &Path,
    found: &str,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<(), LabError> {
    let Some(codename) = apt::codename() else {
        return Err(LabError::NoQemu {
            found: found.to_string(),
            suite: "Debian's backports".to_string(),
            reason: "this machine does not run Debian".to_string(),
        });
    };
    let name = format!("{codename}-backports");
    listener(Progress::Say(format!(
        "QEMU {found}: unpacking a newer one in the cache"
    )));
    let suite = Suite::open(cache, &name, false, listener, stop)?;
    let packages = ["qemu-system-x86", "qemu-system-common", "qemu-system-data"].map(String::from);
    if suite.size(&packages[0])?.is_none() {
        return Err(LabError::NoQemu {
            found: found.to_string(),
            suite: name,
            reason: "it holds none".to_string(),
        });
    }
    // Complete or not there at all, also after an interrupt.
    let new = cache.root.join("qemu.new");
    if new.exists() {
        fs::remove_dir_all(&new).map_err(|e| LabError::io(&new, e))?;
    }
    suite.unpack("QEMU", &packages, &new)?;
    fs::rename(&new, tree).map_err(|e| LabError::io(tree, e))
}

/// `10.0.2` of `QEMU emulator version 10.0.2 (...)`, or why the program does not run.
fn version(program: &Path) -> Result<String, String> {
    let out = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stdout);
    let version = said
        .split_whitespace()
        .skip_while(|w| *w != "version")
        .nth(1)
        .filter(|_| out.status.success());
    match version {
        Some(v) => Ok(v.to_string()),
        None => Err(String::from_utf8_lossy(&out.stderr).trim().to_string()),
    }
}

fn major(version: &str) -> u32 {
    version
        .split('.')
        .next()
        .and_then(|m| m.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_program() {
        let d = tempfile::tempdir().unwrap();
        let fake = d.path().join("q");
        let script = b"#!/bin/sh\necho 'QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)'\n";
        crate::testing::write_program(&fake, script);
        assert_eq!(version(&fake).unwrap(), "10.0.2");
        assert_eq!(major("10.0.2"), 10);
        assert_eq!(major("7.2.9"), 7);
        assert!(version(&d.path().join("none")).is_err());
    }
}
