// SPDX-License-Identifier: GPL-2.0-only
//! The host's C compiler: finding it, and turning a translation into an object or a shared library.
use crate::elf::Aligned;
use crate::emit::{MISSING, Translation};
use crate::error::{LoadError, Result};
use object::{Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags of every translation. Semantics of BPF, not of C: wrapping arithmetic, any aliasing, a NULL check
/// after a load stays; no calls of library functions made up by the compiler.
pub const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-delete-null-pointer-checks",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fvisibility=hidden",
    "-w",
];

/// Environment variable that names the compiler.
const ENV: &str = "BERTH_CC";
const CANDIDATES: &[&str] = &["clang-19", "clang", "cc", "gcc"];

/// A program found in PATH (or named by a path).
#[derive(Clone, Debug)]
pub struct Compiler {
    pub path: PathBuf,
}

/// Find a program by name in PATH; a name with a slash is a path.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let is_file = |p: &Path| p.metadata().is_ok_and(|m| m.is_file());
    if name.contains('/') {
        let path = PathBuf::from(name);
        return is_file(&path).then_some(path);
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|p| is_file(p))
}

/// Changes whenever a program changes, without starting it.
pub fn identity(path: &Path) -> String {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let stamp = real.metadata().ok().map(|m| {
        let modified = m
            .modified()
            .ok()
            .and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        (m.len(), modified.map_or(0, |d| d.as_nanos()))
    });
    format!("{} {stamp:?}", real.display())
}

impl Compiler {
    /// The compiler named by BERTH_CC, or the first usual one.
    pub fn find() -> Result<Compiler> {
        let tried = match std::env::var(ENV) {
            Ok(name) if !name.is_empty() => vec![name],
            _ => CANDIDATES.iter().map(|s| s.to_string()).collect(),
        };
        tried
            .iter()
            .find_map(|name| find_program(name))
            .map(|path| Compiler { path })
            .ok_or_else(|| LoadError::NoCc {
                tried: tried.join(", "),
            })
    }

    /// Changes whenever the compiler changes, without starting it.
    pub fn identity(&self) -> String {
        identity(&self.path)
    }

    /// Compile the translation to the object `out`.
    ///
    /// # Errors
    /// The compiler's message; or, by name, what the policy can reach and the simulator does not have.
    pub fn object(&self, translation: &Translation, source: &Path, out: &Path) -> Result<()> {
        write(source, &translation.text)?;
        self.run(
            Command::new(&self.path)
                .args(FLAGS)
                .arg("-c")
                .arg(source)
                .arg("-o")
                .arg(out),
        )?;
        reachable_missing(out, translation)
    }

    /// Link an object to the shared library `out`.
    pub fn shared(&self, object: &Path, out: &Path) -> Result<()> {
        self.run(
            Command::new(&self.path)
                .args(["-shared", "-nostdlib", "-Wl,-z,now"])
                .arg(object)
                .arg("-o")
                .arg(out),
        )
    }

    fn run(&self, command: &mut Command) -> Result<()> {
        let text = format!("{command:?}");
        let failed = |message: String| LoadError::Cc {
            command: text.clone(),
            message,
        };
        let output = command.output().map_err(|e| failed(e.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(failed(
            String::from_utf8_lossy(&output.stderr)
                .trim_end()
                .to_string(),
        ))
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|source| LoadError::Cache {
        path: path.to_path_buf(),
        source,
    })
}

/// Refuse what the optimised object still calls and nobody has.
pub fn reachable_missing(object: &Path, translation: &Translation) -> Result<()> {
    let bytes = std::fs::read(object).map_err(|source| LoadError::Read {
        path: object.to_path_buf(),
        source,
    })?;
    let bytes = Aligned::new(&bytes);
    let file = object::File::parse(bytes.bytes()).map_err(|e| LoadError::Broken(e.to_string()))?;
    let mut names: Vec<String> = file
        .symbols()
        .filter(|s| s.is_undefined())
        .filter_map(|s| {
            let number: usize = s.name().ok()?.strip_prefix(MISSING)?.parse().ok()?;
            translation.missing.get(number).cloned()
        })
        .collect();
    names.sort();
    if names.is_empty() {
        Ok(())
    } else {
        Err(LoadError::Missing { names })
    }
}
