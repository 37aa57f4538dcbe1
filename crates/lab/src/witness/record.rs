// SPDX-License-Identifier: GPL-2.0-only
//! A recording, seen from this machine: what goes into the two file systems, one boot, and the answer.
use super::job::{GUEST_JOB, GuestJob, WitnessAnswer, WitnessJob};
use super::watched::Watched;
use crate::assets::{Assets, modules};
use crate::initramfs::Archive;
use crate::job::{JOB, Job, Work};
use crate::run::base_archive;
use crate::vm::{Mode, Vm};
use crate::{LabError, Listener, nested};
use berth_scenario::model::{Nanos, Scenario};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The guest and all that it needs, in the VM around it.
const PROGRAM: &str = "/guest/qemu";
const FIRMWARE: &str = "/guest/firmware";
const KERNEL: &str = "/guest/vmlinuz";
const INITRD: &str = "/guest/initrd";
/// What the guest's emulator reads besides its libraries.
const FIRMWARE_FILES: [&str; 4] = [
    "bios-256k.bin",
    "kvmvapic.bin",
    "linuxboot_dma.bin",
    "linuxboot.bin",
];
/// Room for the file system with two programs and a guest.
const MEMORY_MB: u32 = 3072;
/// Uptime of the VM before anything begins: its kernel's own boot work.
const SETTLE_MS: u64 = 3_000;

/// How to record.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Of the guest; none: the lab's.
    pub kernel: Option<PathBuf>,
    /// HRTICK of the guest's kernel, and of that of the VM around it.
    pub guest_hrtick: bool,
    pub host_hrtick: bool,
    /// How long the guest answers before there are competitors, and before each of the two windows.
    pub floor_ns: Nanos,
    pub settle_ns: Nanos,
    /// The guest must be ready after so long; a busy machine takes minutes.
    pub boot: Duration,
    /// All of it.
    pub timeout: Duration,
}

/// Records the guest that the scenario's client sends to, for `scenario.run.measure`.
///
/// # Errors
/// The scenario does not fit, nested KVM cannot be had, or the guest does not boot (with its last lines).
pub fn record(
    scenario: &Scenario,
    seed: u64,
    setting: &Setting,
    assets: &Assets,
    program: &Path,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<WitnessAnswer, LabError> {
    Watched::of(scenario)?;
    let modules = modules::kvm(&assets.kernel, listener, stop)?;
    let json = |what: &GuestJob| {
        serde_json::to_vec(what).map_err(|e| LabError::Start(format!("the guest's job: {e}")))
    };
    let guest = GuestJob {
        scenario: scenario.clone(),
        seed,
        hrtick: setting.guest_hrtick,
        floor_ns: setting.floor_ns,
        settle_ns: setting.settle_ns,
    };
    let mut inner = Archive::new();
    inner.device("/dev/console", 5, 1);
    inner.directory("/tmp");
    inner.file(GUEST_JOB, &json(&guest)?);
    inner.installed("/init", program)?;

    let read = |p: &Path| fs::read(p).map_err(|e| LabError::io(p, e));
    let mut outer = Archive::new();
    outer.installed(PROGRAM, &assets.qemu.path()?)?;
    for name in FIRMWARE_FILES {
        outer.file(
            &format!("{FIRMWARE}/{name}"),
            &read(&assets.qemu.data_file(name)?)?,
        );
    }
    let kernel = setting.kernel.as_ref().unwrap_or(&assets.kernel.image);
    outer.file(KERNEL, &read(kernel)?);
    outer.file(INITRD, &inner.finish());
    let job = Job {
        settle_ms: SETTLE_MS,
        modules: nested::add(&mut outer, &modules),
        policy: None,
        work: Work::Witness(Box::new(WitnessJob {
            guest,
            hrtick: setting.host_hrtick,
            program: PROGRAM.to_string(),
            firmware: FIRMWARE.to_string(),
            kernel: KERNEL.to_string(),
            initrd: INITRD.to_string(),
            boot_ns: setting.boot.as_nanos() as u64,
        })),
    };
    let text = serde_json::to_vec(&job).map_err(|e| LabError::Start(e.to_string()))?;
    outer.file(JOB, &text);
    let boot = Vm {
        qemu: &assets.qemu,
        kernel: &assets.kernel,
        host: &scenario.host,
        mode: Mode::Fast,
        possible_cpus: None,
        nested: true,
        memory_mb: MEMORY_MB,
        timeout: setting.timeout,
        stop,
    }
    .boot(&[&base_archive(program, assets)?, &outer.finish()])?;
    if let Some(e) = boot.answer.error {
        return Err(LabError::Guest(e));
    }
    serde_json::from_value(boot.answer.result)
        .map_err(|e| LabError::Guest(format!("its answer cannot be read: {e}")))
}
