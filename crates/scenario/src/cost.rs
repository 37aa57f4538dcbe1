// SPDX-License-Identifier: GPL-2.0-only
//! Costs of a host by name: assumed, measured in the lab's virtual machine, or measured on this very machine.
use crate::model::{Cache, HostCost};
use crate::profile::Profile;
use std::path::PathBuf;

/// Names that `host.cost.profile` takes.
pub const NAMES: [&str; 3] = ["default", "lab", "this-host"];

/// What a scenario gets that says nothing: the size of such figures on servers of today, assumed, not measured.
pub fn assumed() -> HostCost {
    HostCost {
        switch_ns: 1_000,
        wake_ipi_ns: 1_000,
        tick_ns: 1_000,
        tick_jitter_ns: 250,
        vm_entry_ns: 500,
        vm_exit_ns: 700,
        smt_ppm: 620_000,
        cache: Some(Cache::default()),
        ..HostCost::default()
    }
}

impl Default for Cache {
    /// A core's 1 MiB below 32 MiB, and 128 KiB for each task.
    fn default() -> Cache {
        Cache {
            core_bytes: 1 << 20,
            llc_bytes: 32 << 20,
            from_llc: 20_000,
            from_memory: 8_000,
            from_other_node: 4_000,
            working_set: 128 << 10,
        }
    }
}

/// What is known of this host: `berth/this-host.toml` in the user's configuration folder, a file as [`Profile`] reads
/// it. None if the user has no home.
pub fn this_host() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let folder = match set("XDG_CONFIG_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(set("HOME")?).join(".config"),
    };
    Some(folder.join("berth").join("this-host.toml"))
}

/// The costs of a name.
///
/// # Errors
/// One sentence: no such name, or this host has not been measured, or its file is damaged.
pub fn named(name: &str) -> Result<HostCost, String> {
    match name {
        "default" => Ok(assumed()),
        "this-host" => {
            let path = this_host()
                .ok_or("this user has no home folder, so nothing is known of this host")?;
            let text = std::fs::read_to_string(&path).map_err(|_| {
                format!(
                    "nothing is known of this host yet: `berth host --measure-costs` measures it and writes {}",
                    path.display()
                )
            })?;
            let profile = Profile::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok(profile.cost)
        }
        "lab" => Ok(Profile::named(name)?.cost),
        _ => Err(format!(
            "there is no cost profile `{}`; there are {}",
            name.escape_debug(),
            NAMES.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_and_others_refused() {
        assert_eq!(named("default").unwrap(), assumed());
        named("lab").unwrap();
        assert!(
            named("fast")
                .unwrap_err()
                .contains("default, lab, this-host")
        );
    }
}
