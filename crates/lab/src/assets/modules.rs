// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's KVM, for micro-VMs inside the lab's VM: where it is modules, they are found or downloaded by a rule
//! like the kernel itself, and kept beside it.
use super::apt::Suite;
use super::cache::Cache;
use super::kernel::{Kernel, SUITES_OF_LINES};
use crate::{LabError, Listener};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// In the order in which they are loaded. AMD's: that is what the emulator can nest.
const MODULES: [&str; 3] = ["irqbypass", "kvm", "kvm-amd"];

/// A module file: its name, and its bytes as the distribution packs them.
#[derive(Clone, Debug)]
pub struct Module {
    pub file: String,
    pub bytes: Vec<u8>,
}

/// The modules that make `/dev/kvm`, in the order in which they are loaded; none where the kernel has it built in.
///
/// # Errors
/// The kernel has no KVM, or its modules cannot be had.
pub fn kvm(
    kernel: &Kernel,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Module>, LabError> {
    let config = fs::read_to_string(&kernel.config).map_err(|e| LabError::io(&kernel.config, e))?;
    let set = |name: &str, to: &str| config.lines().any(|l| l == format!("{name}={to}"));
    if set("CONFIG_KVM_AMD", "y") {
        return Ok(Vec::new());
    }
    let unfit = |reason: &str| LabError::UnfitKernel {
        path: format!("kernel {}", kernel.release),
        reason: reason.to_string(),
    };
    if !set("CONFIG_KVM_AMD", "m") {
        return Err(unfit("it has no KVM (CONFIG_KVM_AMD), so no micro-VMs"));
    }
    let cache = Cache::open()?;
    let kept = cache
        .root
        .join("kernels")
        .join(&kernel.release)
        .join("modules");
    let places = [kept.clone(), installed(&kernel.release)];
    for place in &places {
        if let Some(all) = read(place)? {
            return packed(all, set("CONFIG_MODULE_DECOMPRESS", "y"), &unfit);
        }
    }
    download(&cache, kernel, &kept, listener, stop)?;
    match read(&kept)? {
        Some(all) => packed(all, set("CONFIG_MODULE_DECOMPRESS", "y"), &unfit),
        None => Err(unfit("its package of modules holds no kvm-amd")),
    }
}

/// Refuses packed modules that the kernel cannot unpack.
fn packed(
    all: Vec<Module>,
    unpacks: bool,
    unfit: &dyn Fn(&str) -> LabError,
) -> Result<Vec<Module>, LabError> {
    if !unpacks && all.iter().any(|m| !m.file.ends_with(".ko")) {
        return Err(unfit(
            "it cannot unpack its own modules (CONFIG_MODULE_DECOMPRESS), so no micro-VMs",
        ));
    }
    Ok(all)
}

/// Where this machine would have them.
fn installed(release: &str) -> PathBuf {
    Path::new("/lib/modules").join(release)
}

/// All modules below a folder, if it has all.
fn read(folder: &Path) -> Result<Option<Vec<Module>>, LabError> {
    let mut found = Vec::new();
    for name in MODULES {
        let Some(path) = find(folder, name) else {
            return Ok(None);
        };
        let file = path
            .file_name()
            .map(|f| f.to_string_lossy().into_owned())
            .unwrap_or_default();
        let bytes = fs::read(&path).map_err(|e| LabError::io(&path, e))?;
        found.push(Module { file, bytes });
    }
    Ok(Some(found))
}

/// A module's file in a folder or below it.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|e| e.path())
        .collect();
    entries.sort();
    let here = |p: &PathBuf| {
        let file = p.file_name().and_then(|f| f.to_str()).unwrap_or_default();
        file.strip_prefix(name)
            .is_some_and(|end| [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].contains(&end))
    };
    entries.iter().find(|p| here(p)).cloned().or_else(|| {
        entries
            .iter()
            .filter(|p| p.is_dir())
            .find_map(|p| find(p, name))
    })
}

fn download(
    cache: &Cache,
    kernel: &Kernel,
    to: &Path,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<(), LabError> {
    let release = &kernel.release;
    for suite in SUITES_OF_LINES {
        let suite = Suite::open(cache, suite, false, listener, stop)?;
        for package in [
            format!("linux-modules-{release}"),
            format!("linux-image-{release}"),
        ] {
            if suite.size(&package)?.is_none() {
                continue;
            }
            let dir = tempfile::Builder::new()
                .prefix("modules-")
                .tempdir_in(&cache.root)
                .map_err(|e| LabError::io(&cache.root, e))?;
            suite.unpack(&format!("KVM of Linux {release}"), &[package], dir.path())?;
            let Some(modules) = read(dir.path())? else {
                continue;
            };
            fs::create_dir_all(to).map_err(|e| LabError::io(to, e))?;
            for module in modules {
                let path = to.join(&module.file);
                let part = to.join(format!("part-{}", module.file));
                fs::write(&part, &module.bytes).map_err(|e| LabError::io(&part, e))?;
                fs::rename(&part, &path).map_err(|e| LabError::io(&path, e))?;
            }
            return Ok(());
        }
    }
    Err(LabError::UnfitKernel {
        path: format!("kernel {release}"),
        reason: format!(
            "no archive has its modules any more, so no micro-VMs; a newer kernel (--refresh), or the modules of your \
             own in {}",
            to.display()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_wherever_they_lie_and_all_or_none() {
        let d = tempfile::tempdir().unwrap();
        let deep = d.path().join("lib/modules/7/kernel/arch/x86/kvm");
        fs::create_dir_all(&deep).unwrap();
        for file in ["kvm.ko.xz", "kvm-amd.ko.xz", "kvm-intel.ko.xz"] {
            fs::write(deep.join(file), file).unwrap();
        }
        assert!(read(d.path()).unwrap().is_none());
        fs::write(d.path().join("irqbypass.ko"), "i").unwrap();
        let all = read(d.path()).unwrap().unwrap();
        let files: Vec<_> = all.iter().map(|m| m.file.as_str()).collect();
        assert_eq!(files, ["irqbypass.ko", "kvm.ko.xz", "kvm-amd.ko.xz"]);
        let unfit = |reason: &str| LabError::Guest(reason.to_string());
        assert!(packed(all.clone(), true, &unfit).is_ok());
        let said = packed(all, false, &unfit).unwrap_err().to_string();
        assert!(said.contains("MODULE_DECOMPRESS"), "{said}");
    }
}
