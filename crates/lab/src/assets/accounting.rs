// SPDX-License-Identifier: GPL-2.0-only
//! A guest kernel that accounts for stolen time (`CONFIG_PARAVIRT_TIME_ACCOUNTING`), which the distribution's do not:
//! built once from the distribution's own source package, kept in the cache.
use super::apt::Suite;
use super::cache::Cache;
use super::kernel::{Kernel, SUITES_OF_LINES};
use crate::{LabError, Listener, Progress};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is set on top of `make allnoconfig`.
const FRAGMENT: &str = include_str!("accounting.config");
/// Without this there is no reason to build it.
const NEEDED: &str = "CONFIG_PARAVIRT_TIME_ACCOUNTING=y";
/// Programs of the build, each with the package that has it.
const TOOLS: [(&str, &str); 7] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
];
/// A header that the build needs, and its package.
const HEADER: (&str, &str) = ("/usr/include/libelf.h", "libelf-dev");
/// Disk that source and build take.
const ROOM: u64 = 4 << 30;

/// The kernel's image if the cache has it; asks no network.
///
/// # Errors
/// The cache cannot be used.
pub fn kept(kernel: &Kernel) -> Result<Option<PathBuf>, LabError> {
    let image = folder(&Cache::open()?, kernel).join("vmlinuz");
    Ok(image.is_file().then_some(image))
}

/// The image, built if the cache has none: about 160 MB are downloaded, and two processors have some 4 to 10 minutes to
/// do.
///
/// # Errors
/// No source to be had, a tool missing (by its package's name), no room, or the build's last words.
pub fn ensure(
    kernel: &Kernel,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<PathBuf, LabError> {
    let cache = Cache::open()?;
    let to = folder(&cache, kernel);
    let image = to.join("vmlinuz");
    if image.is_file() {
        return Ok(image);
    }
    let missing = missing_packages(&|tool| {
        let mut found = Command::new(tool);
        // All of them know this option.
        found.arg("--version").stdin(Stdio::null());
        found.stdout(Stdio::null()).stderr(Stdio::null());
        found.status().is_ok()
    });
    if !missing.is_empty() {
        return Err(unfit(
            kernel,
            &format!(
                "its build needs more of this machine: apt-get install {}",
                missing.join(" ")
            ),
        ));
    }
    let package = format!("linux-source-{}", line(&kernel.release));
    cache.need(&package, ROOM)?;
    let dir = tempfile::Builder::new()
        .prefix("accounting-")
        .tempdir_in(&cache.root)
        .map_err(|e| LabError::io(&cache.root, e))?;
    fetch(&cache, kernel, &package, dir.path(), listener, stop)?;
    let source = dir.path().join("source");
    unpack(&dir.path().join("usr/src"), &source)?;
    listener(Progress::Say(format!(
        "building a guest kernel that accounts for steal from {package} (once; 4 to 10 minutes on two processors)"
    )));
    let started = Instant::now();
    let log = dir.path().join("build.log");
    let fragment = dir.path().join("fragment");
    fs::write(&fragment, FRAGMENT).map_err(|e| LabError::io(&fragment, e))?;
    let all = format!("KCONFIG_ALLCONFIG={}", fragment.display());
    make(&source, &[&all, "allnoconfig"], &log, stop)?;
    let config = source.join(".config");
    let text = fs::read_to_string(&config).map_err(|e| LabError::io(&config, e))?;
    if !text.lines().any(|l| l == NEEDED) {
        return Err(unfit(
            kernel,
            &format!("its configuration refuses {NEEDED}"),
        ));
    }
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    make(
        &source,
        &[&format!("-j{processors}"), "bzImage"],
        &log,
        stop,
    )?;
    let new = cache.root.join("accounting.new");
    fs::create_dir_all(&new).map_err(|e| LabError::io(&new, e))?;
    for (from, name) in [
        (source.join("arch/x86/boot/bzImage"), "vmlinuz"),
        (config, "config"),
    ] {
        fs::copy(&from, new.join(name)).map_err(|e| LabError::io(&from, e))?;
    }
    // Complete or not there at all, also after an interrupt.
    fs::rename(&new, &to).map_err(|e| LabError::io(&to, e))?;
    listener(Progress::Say(format!(
        "guest kernel built in {} s, kept in {}",
        started.elapsed().as_secs(),
        to.display()
    )));
    Ok(image)
}

fn folder(cache: &Cache, kernel: &Kernel) -> PathBuf {
    let name = format!("accounting-{}", line(&kernel.release));
    cache.root.join("kernels").join(name)
}

/// `7.2` of `7.2.12+deb14-cloud-amd64`.
fn line(release: &str) -> String {
    let mut parts = release.split(['.', '+', '-']);
    let (major, minor) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    format!("{major}.{minor}")
}

fn unfit(kernel: &Kernel, reason: &str) -> LabError {
    LabError::UnfitKernel {
        path: format!(
            "a guest kernel {} with steal accounting",
            line(&kernel.release)
        ),
        reason: reason.to_string(),
    }
}

fn missing_packages(has: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    let tools = TOOLS.iter().filter(|(tool, _)| !has(tool));
    let header = (!Path::new(HEADER.0).exists()).then_some(HEADER.1);
    tools.map(|(_, package)| *package).chain(header).collect()
}

fn fetch(
    cache: &Cache,
    kernel: &Kernel,
    package: &str,
    to: &Path,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<(), LabError> {
    for suite in SUITES_OF_LINES {
        let suite = Suite::open(cache, suite, false, listener, stop)?;
        if suite.size(package)?.is_some() {
            return suite.unpack("the kernel's source", &[package.to_string()], to);
        }
    }
    Err(unfit(
        kernel,
        &format!(
            "no suite has {package} any more (asked: {})",
            SUITES_OF_LINES.join(", ")
        ),
    ))
}

/// The only archive in the folder.
fn unpack(from: &Path, to: &Path) -> Result<(), LabError> {
    let archive = fs::read_dir(from)
        .map_err(|e| LabError::io(from, e))?
        .flatten()
        .map(|e| e.path())
        .find(|p| p.to_string_lossy().ends_with(".tar.xz"));
    let archive =
        archive.ok_or_else(|| LabError::Start(format!("{}: no source in it", from.display())))?;
    fs::create_dir_all(to).map_err(|e| LabError::io(to, e))?;
    let out = Command::new("tar")
        .args(["--strip-components=1", "-xJf"])
        .arg(&archive)
        .arg("-C")
        .arg(to)
        .output()
        .map_err(|e| LabError::Start(format!("tar: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    Err(LabError::Start(format!("tar: {}", said.trim())))
}

fn make(source: &Path, arguments: &[&str], log: &Path, stop: &AtomicBool) -> Result<(), LabError> {
    let open = || File::create(log).map_err(|e| LabError::io(log, e));
    let (out, err) = (open()?, File::options().append(true).open(log));
    let mut child = Command::new("make")
        .arg("-s")
        .args(arguments)
        .current_dir(source)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err.map_err(|e| LabError::io(log, e))?)
        .spawn()
        .map_err(|e| LabError::Start(format!("make: {e}")))?;
    loop {
        match child.try_wait() {
            Ok(None) => (),
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                let said = fs::read_to_string(log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(8).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                return Err(LabError::Start(format!(
                    "the guest kernel's build failed ({status}); its last lines:\n{}",
                    last.join("\n")
                )));
            }
            Err(e) => return Err(LabError::Start(format!("make: {e}"))),
        }
        if stop.load(Ordering::Relaxed) {
            // Already gone is as good.
            let _ = child.kill();
            let _ = child.wait();
            return Err(LabError::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_release() {
        assert_eq!(line("7.2.12+deb14-cloud-amd64"), "7.2");
        assert_eq!(line("7.3-rc1"), "7.3");
    }

    #[test]
    fn what_the_build_lacks_is_named_by_package() {
        let missing = missing_packages(&|tool| tool != "xz" && tool != "flex");
        assert!(missing.starts_with(&["flex", "xz-utils"]), "{missing:?}");
    }
}
