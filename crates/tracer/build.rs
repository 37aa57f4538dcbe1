// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the tracer, `bpf/tracer.bpf.c`.
use berth_policy::compile::{self, CompileOptions};
use berth_policy::headers;
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() {
    if let Err(e) = build() {
        for line in e.to_string().lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let source = Path::new("bpf/tracer.bpf.c");
    println!("cargo::rerun-if-changed={}", source.display());
    for variable in ["BERTH_CLANG", "PATH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let folder = out.join("headers");
    std::fs::create_dir_all(&folder)?;
    headers::unpack(&folder)?;
    let options = CompileOptions {
        headers: Some(folder),
        ..CompileOptions::default()
    };
    compile::compile_to(source, &out.join("tracer.bpf.o"), &options)?;
    Ok(())
}
