// SPDX-License-Identifier: GPL-2.0-only
//! What build scripts that compile C have in common.
use crate::compile::{self, CompileOptions};
use crate::headers as packed;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Done = Result<(), Box<dyn Error>>;

/// Runs a build script. An error ends the build with its own words: a backtrace would hide what to do.
pub fn run(build: impl FnOnce() -> Done) {
    if let Err(e) = build() {
        for line in e.to_string().lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
}

/// The folder for what is made.
///
/// # Errors
/// This is no build script.
pub fn out() -> Result<PathBuf, Box<dyn Error>> {
    Ok(std::env::var("OUT_DIR")?.into())
}

/// Has cargo run the script again when this file or folder, or a compiler, is another.
pub fn depends_on(source: &Path) {
    println!("cargo::rerun-if-changed={}", source.display());
    for variable in ["BERTH_CLANG", "BERTH_CC", "PATH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
}

/// The folder of the headers, unpacked beside what is made.
///
/// # Errors
/// It cannot be written.
pub fn headers() -> Result<PathBuf, Box<dyn Error>> {
    let folder = out()?.join("headers");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    packed::unpack(&folder)?;
    Ok(folder)
}

/// Compiles `bpf/NAME.bpf.c` of the package to `NAME.bpf.o`.
///
/// # Errors
/// No clang, or its message with file and line.
pub fn bpf_object(name: &str) -> Done {
    let source = PathBuf::from(format!("bpf/{name}.bpf.c"));
    depends_on(&source);
    let object = out()?.join(format!("{name}.bpf.o"));
    let options = CompileOptions {
        headers: Some(headers()?),
        ..CompileOptions::default()
    };
    compile::compile_to(&source, &object, &options)?;
    Ok(())
}

/// Compiles a file of C with the clang of policies, for whatever target the flags say.
///
/// # Errors
/// No clang, or its message with file and line.
pub fn c_object(source: &Path, flags: &[&str], object: &Path) -> Done {
    depends_on(source);
    let done = Command::new(compile::clang()?)
        .args(flags)
        .arg("-c")
        .arg("-o")
        .arg(object)
        .arg(source)
        .output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).into()),
    }
}

/// What builds of all profiles, features and workspaces have in common, in the target folder: the newest of each name.
/// Of what is made the same way in all of them, whoever is first makes it.
pub struct Kept {
    folder: PathBuf,
}

impl Kept {
    /// `out`: the build script's, target/PROFILE/build/PACKAGE/out.
    pub fn beside(out: &Path) -> Kept {
        let target = out.ancestors().nth(4).unwrap_or(out);
        Kept {
            folder: target.join("berth-kept"),
        }
    }

    /// `file` is what `make` writes there, or has written to another place from the same: `made_of` is all that it
    /// depends on. `name`: a file's name.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn or_make<E>(
        &self,
        name: &str,
        made_of: &str,
        file: &Path,
        make: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let key = blake3::hash(made_of.as_bytes()).to_hex();
        let kept = self.folder.join(format!("{name}-{key}"));
        if fs::copy(&kept, file).is_ok() {
            return Ok(());
        }
        make()?;
        // Another build may do the same, and a disk may be full: then it is made again.
        let _ = self.keep(file, name, &kept);
        Ok(())
    }

    /// Whole, whoever looks, and instead of what was kept by this name.
    fn keep(&self, file: &Path, name: &str, kept: &Path) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let part = self
            .folder
            .join(format!("{name}.{}.part", std::process::id()));
        fs::copy(file, &part)?;
        for older in fs::read_dir(&self.folder)?.flatten() {
            let file = older.file_name();
            let rest = file.to_str().and_then(|file| file.strip_prefix(name));
            if rest.is_some_and(|rest| rest.starts_with('-')) {
                fs::remove_file(older.path())?;
            }
        }
        fs::rename(&part, kept)
    }
}

/// Of every file below a folder, its name and what is in it.
///
/// # Errors
/// One cannot be read.
pub fn hash_of(folder: &Path) -> std::io::Result<String> {
    fn add(folder: &Path, below: &str, to: &mut blake3::Hasher) -> std::io::Result<()> {
        let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{below}/{}", entry.file_name().display());
            if entry.file_type()?.is_dir() {
                add(&entry.path(), &name, to)?;
            } else {
                to.update(
                    format!("{name} {}\n", blake3::hash(&fs::read(entry.path())?)).as_bytes(),
                );
            }
        }
        Ok(())
    }
    let mut hasher = blake3::Hasher::new();
    add(folder, "", &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_the_same_is_made_once() {
        let target = tempfile::tempdir().unwrap();
        let make = |profile: &str, name: &str, of: &str| {
            let out = target.path().join(profile).join("build/package/out");
            fs::create_dir_all(&out).unwrap();
            let (file, mut made) = (out.join(name), false);
            Kept::beside(&out)
                .or_make(name, of, &file, || {
                    made = true;
                    fs::write(&file, of)
                })
                .unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), of);
            made
        };
        assert!(make("debug", "one.o", "x"));
        assert!(!make("release", "one.o", "x"));
        assert!(make("release", "one.o", "y"));
        assert!(!make("debug", "one.o", "y"));
        // The newest only, and a name that another begins with is another.
        assert!(make("debug", "one.o", "x"));
        assert!(make("debug", "one", "x"));
        assert!(!make("release", "one.o", "x"));
        assert_eq!(
            fs::read_dir(target.path().join("berth-kept"))
                .unwrap()
                .count(),
            2
        );
    }

    #[test]
    fn what_cannot_be_made_is_not_kept() {
        let target = tempfile::tempdir().unwrap();
        let out = target.path().join("debug/build/package/out");
        fs::create_dir_all(&out).unwrap();
        let failed = Kept::beside(&out).or_make("one.o", "x", &out.join("one.o"), || Err("no"));
        assert_eq!(failed, Err("no"));
        assert!(!target.path().join("berth-kept").exists());
    }

    #[test]
    fn a_folders_hash_is_of_names_and_contents() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let mut seen = std::collections::BTreeSet::new();
        fs::write(path.join("a.h"), "1").unwrap();
        assert!(seen.insert(hash_of(path).unwrap()));
        fs::write(path.join("a.h"), "2").unwrap();
        assert!(seen.insert(hash_of(path).unwrap()));
        fs::rename(path.join("a.h"), path.join("b.h")).unwrap();
        assert!(seen.insert(hash_of(path).unwrap()));
        fs::create_dir(path.join("c")).unwrap();
        fs::rename(path.join("b.h"), path.join("c/b.h")).unwrap();
        assert!(seen.insert(hash_of(path).unwrap()));
        assert!(!seen.insert(hash_of(path).unwrap()));
    }
}
