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

/// Variables that compilers read.
const COMPILERS_READ: [&str; 3] = ["CPATH", "C_INCLUDE_PATH", "CCC_OVERRIDE_OPTIONS"];

/// Has cargo run the script again when this file or folder, or a compiler, is another.
pub fn depends_on(source: &Path) {
    println!("cargo::rerun-if-changed={}", source.display());
    for variable in ["BERTH_CLANG", "BERTH_CC", "PATH"]
        .iter()
        .chain(&COMPILERS_READ)
    {
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

/// Files that builds of all profiles, features and workspaces share, in the target folder. Of each name the newest is
/// kept.
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

    /// Copies the kept file to `file`, or has `make` write it there and keeps it. `name`: a file's name; `made_of`: all
    /// that the file depends on.
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
        let is_copied = || whole(&kept).is_some_and(|bytes| fs::write(file, bytes).is_ok());
        if is_copied() {
            return Ok(());
        }
        // Another build that makes it now is waited for: both would take their time.
        let _made_here = self.lock(name);
        if is_copied() {
            return Ok(());
        }
        make()?;
        // A disk may be full: then it is made again.
        let part = self
            .folder
            .join(format!("{name}.{}.part", std::process::id()));
        if self.keep(file, name, &part, &kept).is_err() {
            let _ = fs::remove_file(part);
        }
        Ok(())
    }

    /// Held by one build at a time; none where files cannot be locked.
    fn lock(&self, name: &str) -> Option<fs::File> {
        fs::create_dir_all(&self.folder).ok()?;
        let lock = fs::File::create(self.folder.join(format!("{name}.lock"))).ok()?;
        lock.lock().ok()?;
        Some(lock)
    }

    /// At once, whoever looks, and instead of what was kept by this name.
    fn keep(&self, file: &Path, name: &str, part: &Path, kept: &Path) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let bytes = fs::read(file)?;
        let hash = blake3::hash(&bytes);
        fs::write(part, [hash.as_bytes(), bytes.as_slice()].concat())?;
        for older in fs::read_dir(&self.folder)?.flatten() {
            let file = older.file_name();
            let rest = file.to_str().and_then(|file| file.strip_prefix(name));
            if rest.is_some_and(|rest| rest.starts_with('-')) {
                // Another build may have removed it first.
                let _ = fs::remove_file(older.path());
            }
        }
        fs::rename(part, kept)
    }
}

/// What is in a kept file, if it is as it was written: its hash is at its head.
fn whole(kept: &Path) -> Option<Vec<u8>> {
    let all = fs::read(kept).ok()?;
    let (hash, bytes) = all.split_at_checked(blake3::OUT_LEN)?;
    (blake3::hash(bytes).as_bytes() == hash).then(|| bytes.to_vec())
}

/// Of the C files and headers below a folder, the names and what is in them.
///
/// # Errors
/// One cannot be read; with its name.
pub fn hash_of(folder: &Path) -> std::io::Result<String> {
    fn add(folder: &Path, below: &str, to: &mut blake3::Hasher) -> std::io::Result<()> {
        let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (
                entry.path(),
                format!("{below}/{}", entry.file_name().display()),
            );
            if path.is_dir() {
                add(&path, &name, to)?;
            } else if path.extension().is_some_and(|e| e == "c" || e == "h") {
                let bytes = fs::read(&path).map_err(|e| {
                    std::io::Error::new(e.kind(), format!("{}: {e}", path.display()))
                })?;
                to.update(format!("{name} {}\n", blake3::hash(&bytes)).as_bytes());
            }
        }
        Ok(())
    }
    let mut hasher = blake3::Hasher::new();
    add(folder, "", &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// What a compiler says of its version: the program itself may be a few kilobytes before its libraries. And what it
/// takes from the environment.
///
/// # Errors
/// It cannot be started.
pub fn version(compiler: &Path) -> std::io::Result<String> {
    let said = Command::new(compiler).arg("--version").output()?;
    let of = COMPILERS_READ.map(std::env::var_os);
    Ok(format!("{} {of:?}", String::from_utf8_lossy(&said.stdout)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// What is kept in a target folder.
    fn kept(target: &Path) -> Vec<PathBuf> {
        let all = fs::read_dir(target.join("berth-kept")).unwrap();
        let all = all.map(|file| file.unwrap().path());
        all.filter(|file| file.extension().is_none_or(|e| e != "lock"))
            .collect()
    }

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
        // One that is damaged is made again.
        for path in kept(target.path()) {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        }
        assert!(make("debug", "one.o", "y"));
        assert!(!make("release", "one.o", "y"));
        // The newest only, and a name that another begins with is another.
        assert!(make("debug", "one.o", "x"));
        assert!(make("debug", "one", "x"));
        assert!(!make("release", "one.o", "x"));
        assert_eq!(kept(target.path()).len(), 2);
    }

    #[test]
    fn builds_side_by_side_make_it_once() {
        let target = tempfile::tempdir().unwrap();
        let (made, both) = (AtomicUsize::new(0), Barrier::new(2));
        let build = |profile: &str| {
            let out = target.path().join(profile).join("build/package/out");
            fs::create_dir_all(&out).unwrap();
            let file = out.join("one.o");
            both.wait();
            let make = || {
                made.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(200));
                fs::write(&file, "x")
            };
            Kept::beside(&out)
                .or_make("one.o", "x", &file, make)
                .unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), "x");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| build("debug"));
            build("release");
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_cannot_be_made_is_not_kept() {
        let target = tempfile::tempdir().unwrap();
        let out = target.path().join("debug/build/package/out");
        fs::create_dir_all(&out).unwrap();
        let failed = Kept::beside(&out).or_make("one.o", "x", &out.join("one.o"), || Err("no"));
        assert_eq!(failed, Err("no"));
        assert!(kept(target.path()).is_empty());
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
        fs::write(path.join("README.md"), "no source").unwrap();
        assert!(!seen.insert(hash_of(path).unwrap()));
    }
}
