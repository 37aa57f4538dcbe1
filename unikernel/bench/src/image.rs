// SPDX-License-Identifier: GPL-2.0-only
//! The unikernel's image, and other programs that are built to be booted.
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the image of this workspace, or takes the one that `UNIKERNEL` names; where it is.
///
/// # Errors
/// It does not build, or is not there.
pub fn image() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| named_or_built().map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

fn named_or_built() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("UNIKERNEL") {
        let path = PathBuf::from(named);
        ensure!(path.is_file(), "UNIKERNEL: {} is no file", path.display());
        return Ok(path);
    }
    // Registers that the kernel does not save must not be used in it.
    build("unikernel", "")
}

/// Builds a package of this workspace, optimised, with these flags of the compiler and no others; where its program is.
///
/// # Errors
/// It does not build.
pub fn build(package: &str, flags: &str) -> Result<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "--package",
            package,
            "--manifest-path",
        ])
        .arg(workspace.join("Cargo.toml"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", flags)
        .status()
        .context("cargo cannot be run")?;
    ensure!(
        status.success(),
        "{package} does not build ({status}); cargo says why above"
    );
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), PathBuf::from);
    Ok(target.join("release").join(package))
}
