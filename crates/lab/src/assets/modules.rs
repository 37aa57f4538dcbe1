// SPDX-License-Identifier: GPL-2.0-only
//! What of the kernel is in modules: its KVM, for micro-VMs inside the lab's VM; its network cards, for a guest that is
//! asked over one; bridges, taps and vhost-net, for the path of a VM's packets. They are found or downloaded by a rule
//! like the kernel itself, and kept beside it.
use super::apt::Suite;
use super::cache::Cache;
use super::kernel::{Kernel, SUITES_OF_LINES};
use crate::{LabError, Listener};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Modules that do something together, in the order in which they are loaded, each with its option; the last is what is
/// wanted.
struct Set {
    modules: &'static [(&'static str, &'static str)],
    /// What they are.
    what: &'static str,
    /// What there is none of without them.
    without: &'static str,
}

/// AMD's: that is what the emulator can nest.
const KVM: Set = Set {
    modules: &[
        ("irqbypass", "CONFIG_IRQ_BYPASS_MANAGER"),
        ("kvm", "CONFIG_KVM"),
        ("kvm-amd", "CONFIG_KVM_AMD"),
    ],
    what: "KVM",
    without: "micro-VMs",
};

/// On PCI and on memory-mapped slots.
const NETWORK: Set = Set {
    modules: &[
        ("virtio_mmio", "CONFIG_VIRTIO_MMIO"),
        ("failover", "CONFIG_FAILOVER"),
        ("net_failover", "CONFIG_NET_FAILOVER"),
        ("virtio_net", "CONFIG_VIRTIO_NET"),
    ],
    what: "virtio network cards",
    without: "network",
};

/// What a VM's packets pass on their way from a cable to a guest.
const PATH: Set = Set {
    modules: &[
        ("llc", "CONFIG_LLC"),
        ("stp", "CONFIG_STP"),
        ("bridge", "CONFIG_BRIDGE"),
        ("veth", "CONFIG_VETH"),
        ("tun", "CONFIG_TUN"),
        ("tap", "CONFIG_TAP"),
        ("vhost_iotlb", "CONFIG_VHOST_IOTLB"),
        ("vhost", "CONFIG_VHOST"),
        ("vhost_net", "CONFIG_VHOST_NET"),
    ],
    what: "bridges, taps and vhost-net",
    without: "network path of VMs",
};

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
    modules(&KVM, kernel, listener, stop)
}

/// The modules that drive a virtio network card, in the order in which they are loaded; none where all is built in.
///
/// # Errors
/// The kernel has no such driver, or its modules cannot be had.
pub fn network(
    kernel: &Kernel,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Module>, LabError> {
    modules(&NETWORK, kernel, listener, stop)
}

/// The modules of bridges, cable pairs (veth), taps and vhost-net, in the order in which they are loaded; none where
/// vhost-net is built in.
///
/// # Errors
/// The kernel has none of it, or its modules cannot be had.
pub fn path(
    kernel: &Kernel,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Module>, LabError> {
    modules(&PATH, kernel, listener, stop)
}

fn modules(
    set: &Set,
    kernel: &Kernel,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Vec<Module>, LabError> {
    let config = fs::read_to_string(&kernel.config).map_err(|e| LabError::io(&kernel.config, e))?;
    let is = |name: &str, to: &str| config.lines().any(|l| l == format!("{name}={to}"));
    let Set { what, without, .. } = set;
    let option = set.modules.last().map_or("", |(_, option)| option);
    if is(option, "y") {
        return Ok(Vec::new());
    }
    let unfit = |reason: &str| LabError::UnfitKernel {
        path: format!("kernel {}", kernel.release),
        reason: reason.to_string(),
    };
    if !is(option, "m") {
        return Err(unfit(&format!(
            "it has no {what} ({option}), so no {without}"
        )));
    }
    let names: Vec<&str> = (set.modules.iter())
        .filter(|(_, option)| !is(option, "y"))
        .map(|(name, _)| *name)
        .collect();
    let cache = Cache::open()?;
    let kept = cache
        .root
        .join("kernels")
        .join(&kernel.release)
        .join("modules");
    let places = [kept.clone(), installed(&kernel.release)];
    for place in &places {
        if let Some(all) = read(place, &names)? {
            return packed(all, is("CONFIG_MODULE_DECOMPRESS", "y"), without, &unfit);
        }
    }
    download(&cache, kernel, (set, &names), &kept, listener, stop)?;
    match read(&kept, &names)? {
        Some(all) => packed(all, is("CONFIG_MODULE_DECOMPRESS", "y"), without, &unfit),
        None => Err(unfit(&format!(
            "its package of modules does not hold all of {}",
            names.join(", ")
        ))),
    }
}

/// Refuses packed modules that the kernel cannot unpack.
fn packed(
    all: Vec<Module>,
    unpacks: bool,
    without: &str,
    unfit: &dyn Fn(&str) -> LabError,
) -> Result<Vec<Module>, LabError> {
    if !unpacks && all.iter().any(|m| !m.file.ends_with(".ko")) {
        return Err(unfit(&format!(
            "it cannot unpack its own modules (CONFIG_MODULE_DECOMPRESS), so no {without}"
        )));
    }
    Ok(all)
}

/// Where this machine would have them.
fn installed(release: &str) -> PathBuf {
    Path::new("/lib/modules").join(release)
}

/// The modules of these names below a folder, if it has all.
fn read(folder: &Path, names: &[&str]) -> Result<Option<Vec<Module>>, LabError> {
    let mut found = Vec::new();
    for name in names {
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
    (set, names): (&Set, &[&str]),
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
            let what = format!("{} of Linux {release}", set.what);
            suite.unpack(&what, &[package], dir.path())?;
            let Some(modules) = read(dir.path(), names)? else {
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
            "no archive has its modules any more, so no {}; a newer kernel (--refresh), or the modules of your own in \
             {}",
            set.without,
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
        let names: Vec<_> = KVM.modules.iter().map(|(name, _)| *name).collect();
        assert!(read(d.path(), &names).unwrap().is_none());
        fs::write(d.path().join("irqbypass.ko"), "i").unwrap();
        let all = read(d.path(), &names).unwrap().unwrap();
        let files: Vec<_> = all.iter().map(|m| m.file.as_str()).collect();
        assert_eq!(files, ["irqbypass.ko", "kvm.ko.xz", "kvm-amd.ko.xz"]);
        let unfit = |reason: &str| LabError::Guest(reason.to_string());
        assert!(packed(all.clone(), true, "micro-VMs", &unfit).is_ok());
        let said = packed(all, false, "micro-VMs", &unfit);
        let said = said.unwrap_err().to_string();
        assert!(said.contains("MODULE_DECOMPRESS"), "{said}");
    }
}
