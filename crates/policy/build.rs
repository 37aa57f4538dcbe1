// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the trampoline through which translated policies are entered and left, and packs the headers
//! policies are compiled against: sched_ext's and `vmlinux.h` from package scx_cargo, libbpf's from
//! libbpf-sys (neither is compiled here), Berth's own from `policies/include` and the folders of
//! single policies.
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Architecture whose `vmlinux.h` is packed: the one lab and simulator use.
const ARCH: &str = "x86";

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/trampoline.c");
    println!("cargo::rerun-if-changed=src/enter_x86_64.S");
    let mut trampoline = cc::Build::new();
    trampoline
        .file("src/trampoline.c")
        .std("gnu11")
        .opt_level(2)
        .warnings(true);
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        trampoline.file("src/enter_x86_64.S");
    }
    trampoline.compile("berth_trampoline");

    let files = headers()?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("headers.tar.zst");
    std::fs::write(out, pack(&files)?)?;
    Ok(())
}

/// All header files by their path in the archive.
fn headers() -> Result<BTreeMap<String, Vec<u8>>> {
    let scx = package("scx_cargo")?;
    let libbpf = package("libbpf-sys")?;
    let mut files = BTreeMap::new();
    add_tree(&scx.join("bpf_h"), "scx", &mut files)?;
    add_vmlinux(&scx.join("vmlinux.tar.zst"), &mut files)?;
    for entry in std::fs::read_dir(libbpf.join("libbpf/src"))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        if name.starts_with("bpf") && name.ends_with(".h") {
            files.insert(format!("libbpf/bpf/{name}"), std::fs::read(&path)?);
        }
    }
    let policies = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../policies");
    add_folder(&policies.join("include/berth"), "berth/berth", &mut files)?;
    // What stands beside one policy (`policies/NAME/`), so that a copy of the policy finds it anywhere.
    for place in [policies.clone(), policies.join("study")] {
        for entry in std::fs::read_dir(&place)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|n| n.to_str());
            match name {
                Some(name) if path.is_dir() && !["include", "study"].contains(&name) => {
                    add_folder(&path, &format!("berth/{name}"), &mut files)?;
                }
                _ => (),
            }
        }
    }
    Ok(files)
}

/// As [`add_tree`], for a folder of this repository.
fn add_folder(from: &Path, to: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    println!("cargo::rerun-if-changed={}", from.display());
    add_tree(from, to, files)
}

/// The unpacked source of a dependency.
fn package(name: &str) -> Result<PathBuf> {
    let manifest = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("Cargo.toml");
    let run = |offline: bool| {
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        command
            .args(["metadata", "--format-version", "1", "--manifest-path"])
            .arg(&manifest);
        if offline {
            command.arg("--offline");
        }
        command.output()
    };
    let mut output = run(true)?;
    if !output.status.success() {
        // The packages are not compiled, so a first build may not have fetched them.
        output = run(false)?;
    }
    if !output.status.success() {
        return Err(format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|p| p["name"] == name)
        .and_then(|p| {
            Some(
                Path::new(p["manifest_path"].as_str()?)
                    .parent()?
                    .to_path_buf(),
            )
        })
        .ok_or_else(|| format!("package {name} is not among the dependencies").into())
}

fn add_tree(from: &Path, to: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let name = format!(
            "{to}/{}",
            path.file_name()
                .and_then(|n| n.to_str())
                .unwrap_or_default()
        );
        if path.is_dir() {
            add_tree(&path, &name, files)?;
        } else if name.ends_with(".h") {
            files.insert(name, std::fs::read(&path)?);
        }
    }
    Ok(())
}

/// `vmlinux.h` of one architecture; links in the archive are resolved to the file they end at.
fn add_vmlinux(archive: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let compressed = std::fs::read(archive)?;
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(compressed.as_slice())?;
    let mut plain = Vec::new();
    decoder.read_to_end(&mut plain)?;
    let wanted = format!("arch/{ARCH}/");
    let mut best: Option<Vec<u8>> = None;
    for entry in tar::Archive::new(plain.as_slice()).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        if entry.header().entry_type().is_file() && path.contains(&wanted) && path.ends_with(".h") {
            let mut data = Vec::new();
            entry.read_to_end(&mut data)?;
            if best.as_ref().is_none_or(|b| b.len() < data.len()) {
                best = Some(data);
            }
        }
    }
    let data = best.ok_or_else(|| format!("no vmlinux.h for {ARCH} in {}", archive.display()))?;
    files.insert("vmlinux/vmlinux.h".into(), data);
    Ok(())
}

/// A compressed archive whose bytes depend on the files only.
fn pack(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_cksum();
        tar.append_data(&mut header, name, data.as_slice())?;
    }
    let plain = tar.into_inner()?;
    Ok(ruzstd::encoding::compress_to_vec(
        plain.as_slice(),
        ruzstd::encoding::CompressionLevel::Fastest,
    ))
}
