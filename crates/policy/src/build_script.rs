// SPDX-License-Identifier: GPL-2.0-only
//! What build scripts that compile C have in common.
use crate::compile::{self, CompileOptions};
use crate::headers;
use std::error::Error;
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

/// How to compile BPF objects in a build script: with the headers unpacked beside what is made.
///
/// # Errors
/// The folder cannot be written.
pub fn bpf_options() -> Result<CompileOptions, Box<dyn Error>> {
    let folder = out()?.join("headers");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    headers::unpack(&folder)?;
    Ok(CompileOptions {
        headers: Some(folder),
        ..CompileOptions::default()
    })
}

/// Compiles `bpf/NAME.bpf.c` of the package to `NAME.bpf.o`.
///
/// # Errors
/// No clang, or its message with file and line.
pub fn bpf_object(name: &str) -> Done {
    let source = PathBuf::from(format!("bpf/{name}.bpf.c"));
    depends_on(&source);
    let object = out()?.join(format!("{name}.bpf.o"));
    compile::compile_to(&source, &object, &bpf_options()?)?;
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
