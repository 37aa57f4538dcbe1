// SPDX-License-Identifier: GPL-2.0-only
//! Kernel and emulator: found or downloaded by a rule, kept in a cache, nothing installed. The second use needs no
//! network.
pub mod accounting;
mod apt;
mod cache;
mod kernel;
pub mod modules;
pub mod probe;
mod qemu;

pub use kernel::{Kernel, KernelRule};
pub use qemu::Qemu;

use crate::{LabError, Listener};
use std::sync::atomic::AtomicBool;

/// What a boot needs from outside.
#[derive(Clone, Debug)]
pub struct Assets {
    pub qemu: Qemu,
    pub kernel: Kernel,
}

/// Finds or fetches emulator and kernel, saying what is downloaded and how large it is. Several processes may ask at
/// once; one fetches, the others wait.
///
/// # Errors
/// No network, no room, nothing that fits the rule: each says what to do.
pub fn ensure(
    rule: &KernelRule,
    refresh: bool,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Assets, LabError> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err(LabError::Machine(std::env::consts::ARCH.to_string()));
    }
    let cache = cache::Cache::open()?;
    Ok(Assets {
        qemu: qemu::ensure(&cache, listener, stop)?,
        kernel: kernel::ensure(&cache, rule, refresh, listener, stop)?,
    })
}
