// SPDX-License-Identifier: GPL-2.0-only
//! What a process's open files tell of KVM.
use crate::dir::Dir;
use crate::procfile::number;
use std::collections::BTreeMap;
use std::io;

/// KVM's files among those of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvmFiles {
    /// `/dev/kvm` itself is open: a VM may follow.
    pub device: bool,
    /// VMs: files of `anon_inode:kvm-vm`.
    pub vms: u32,
    /// Index of the vCPU behind each file descriptor of `anon_inode:kvm-vcpu:N`.
    pub vcpus: BTreeMap<i32, u32>,
}

/// Looks through the open files of a process.
///
/// # Errors
/// `EACCES` without the right to trace the process.
pub fn of(process: &Dir) -> io::Result<KvmFiles> {
    let folder = process.dir("fd")?;
    let mut found = KvmFiles::default();
    let mut link = [0; 4096];
    let mut refused = None;
    folder.list(|name, _| {
        let target = match folder.link(name, &mut link) {
            Ok(target) => target,
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                refused = Some(e);
                return;
            }
            // Closed meanwhile.
            Err(_) => return,
        };
        if target == b"/dev/kvm" {
            found.device = true;
        } else if target == b"anon_inode:kvm-vm" {
            found.vms += 1;
        } else if let Some(index) = target.strip_prefix(b"anon_inode:kvm-vcpu:")
            && let Some(index) = number(index).and_then(|n| u32::try_from(n).ok())
            && let Some(fd) = number(name).and_then(|n| i32::try_from(n).ok())
        {
            found.vcpus.insert(fd, index);
        }
    })?;
    match refused {
        Some(error) => Err(error),
        None => Ok(found),
    }
}
