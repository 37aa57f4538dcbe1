// SPDX-License-Identifier: GPL-2.0-only
//! One cgroup per VM below a root of ours, or one that VMs share. All VMs' threads belong to one process, so the groups
//! are *threaded* ones (the `cpu` controller supports them).
use crate::LoadError;
use berth_scenario::model::Scenario;
use berth_scenario::placement;
use std::fs;
use std::path::{Path, PathBuf};

/// The VMs' cgroups; removed again when dropped (their threads must have ended).
#[derive(Debug)]
pub struct Groups {
    root: PathBuf,
    made: Vec<PathBuf>,
    /// The group this process came from, to return to before the root is removed.
    origin: Option<PathBuf>,
}

fn write(path: &Path, value: &str) -> Result<(), LoadError> {
    fs::write(path, value).map_err(|source| LoadError::Cgroup {
        path: path.into(),
        source,
    })
}

fn mount_of(root: &Path) -> Option<PathBuf> {
    root.ancestors()
        .filter(|p| p.join("cgroup.procs").exists())
        .last()
        .map(Path::to_path_buf)
}

impl Groups {
    /// Makes `root` (its parent must be a cgroup v2 folder with the `cpu` controller available), moves
    /// this process there, and makes one group per VM with its weight and cap, and those that VMs share.
    pub fn make(root: &Path, scenario: &Scenario) -> Result<Groups, LoadError> {
        let mut groups = Groups {
            root: root.into(),
            made: Vec::new(),
            origin: None,
        };
        let parent = root.parent().unwrap_or(Path::new("/"));
        write(&parent.join("cgroup.subtree_control"), "+cpu")?;
        groups.folder(root)?;
        let mount = mount_of(parent);
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own
            .lines()
            .find_map(|l| l.strip_prefix("0::/").map(str::to_string));
        groups.origin = mount.zip(own).map(|(mount, own)| mount.join(own));
        write(&root.join("cgroup.procs"), "0")?;
        let instances = placement::instances(scenario);
        for vm in &instances {
            let path = root.join(placement::cgroup_of(&scenario.vms[vm.group], vm));
            groups.folder(&path)?;
            write(&path.join("cgroup.type"), "threaded")?;
        }
        write(&root.join("cgroup.subtree_control"), "+cpu")?;
        for vm in &instances {
            let spec = &scenario.vms[vm.group];
            let path = root.join(placement::cgroup_of(spec, vm));
            write(&path.join("cpu.weight"), &spec.weight.to_string())?;
            if let Some(cap) = spec.cap_milli {
                // Thousandths of a CPU in a period of 100 ms = 100 us each.
                write(&path.join("cpu.max"), &format!("{} 100000", cap * 100))?;
            }
        }
        Ok(groups)
    }

    /// Moves the calling thread into a VM's group.
    pub fn join(&self, name: &str) -> Result<(), LoadError> {
        write(
            &self.root.join(name).join("cgroup.threads"),
            &crate::sys::gettid().to_string(),
        )
    }

    fn folder(&mut self, path: &Path) -> Result<(), LoadError> {
        match fs::create_dir(path) {
            Ok(()) => self.made.push(path.into()),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => (),
            Err(source) => {
                return Err(LoadError::Cgroup {
                    path: path.into(),
                    source,
                });
            }
        }
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        if let Some(origin) = &self.origin {
            // Nothing better can be done where it fails: an empty group then stays behind.
            let _ = fs::write(origin.join("cgroup.procs"), "0");
        }
        for path in self.made.iter().rev() {
            let _ = fs::remove_dir(path);
        }
    }
}
