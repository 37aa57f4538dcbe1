// SPDX-License-Identifier: GPL-2.0-only
//! The kernel that a policy believes to run on: version, configuration values.
use std::collections::BTreeMap;

/// Value of a `__kconfig` external.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kconfig {
    Bool(bool),
    Int(i64),
    Text(String),
}

/// A kernel line. Which kfuncs, enum constants and structure members exist follows from its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelProfile {
    /// Major and minor version.
    pub version: (u16, u16),
    /// CONFIG_* values visible to policies; scenario values (tick rate) are put in by the caller.
    pub config: BTreeMap<String, Kconfig>,
}

impl KernelProfile {
    /// Known profiles, oldest first.
    pub const NAMES: &'static [&'static str] = &["6.18", "7.0", "7.2", "7.3"];

    /// The profile called `name`, `None` if unknown.
    pub fn named(name: &str) -> Option<KernelProfile> {
        let version = match name {
            "6.18" => (6, 18),
            "7.0" => (7, 0),
            "7.2" => (7, 2),
            "7.3" => (7, 3),
            _ => return None,
        };
        let mut config = BTreeMap::new();
        for (key, value) in [
            ("CONFIG_HZ", Kconfig::Int(250)),
            (
                "CONFIG_NR_CPUS",
                Kconfig::Int(crate::kview::NR_CPUS_MAX as i64),
            ),
            ("CONFIG_PREEMPT_RCU", Kconfig::Bool(true)),
            ("CONFIG_SMP", Kconfig::Bool(true)),
            ("CONFIG_NUMA", Kconfig::Bool(true)),
            ("CONFIG_SCHED_CLASS_EXT", Kconfig::Bool(true)),
            ("CONFIG_CGROUPS", Kconfig::Bool(true)),
            ("CONFIG_X86_64", Kconfig::Bool(true)),
            ("CONFIG_LOCALVERSION", Kconfig::Text("-berth".into())),
            (
                "CONFIG_CC_VERSION_TEXT",
                Kconfig::Text("berth simulator".into()),
            ),
        ] {
            config.insert(key.to_string(), value);
        }
        Some(KernelProfile { version, config })
    }

    /// `6.18`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// `LINUX_KERNEL_VERSION`: major, minor, patch packed as the kernel packs them.
    pub fn version_code(&self) -> u32 {
        (u32::from(self.version.0) << 16) | (u32::from(self.version.1) << 8)
    }
}

impl Default for KernelProfile {
    fn default() -> Self {
        KernelProfile::named("7.2").expect("the default profile is in the list")
    }
}
