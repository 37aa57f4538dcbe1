// SPDX-License-Identifier: GPL-2.0-only
//! What the open files of a VMM tell of its network.
use super::is_name;
use crate::dir::Dir;
use crate::procfile::number;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// A device that is passed through, as it is opened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Passed {
    /// `/dev/vfio/N`: all devices of an IOMMU group.
    Group(String),
    /// `/dev/vfio/devices/vfioN`.
    Device(String),
}

impl Passed {
    /// Addresses of the devices.
    pub fn devices(&self, sys: &Dir) -> Vec<String> {
        match self {
            Passed::Group(group) => {
                super::names(sys, &format!("kernel/iommu_groups/{group}/devices"))
            }
            Passed::Device(name) => {
                super::last_of_link(sys, &format!("class/vfio-dev/{name}/device"))
                    .into_iter()
                    .collect()
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Files {
    /// Taps by name, and how many files of each are open: one for each pair of queues.
    pub taps: BTreeMap<String, u32>,
    /// Macvtaps by index.
    pub macvtaps: BTreeMap<u32, u32>,
    pub vhost: u32,
    pub passed: Vec<Passed>,
}

/// Looks through them. What a link says is only text: whoever has a user namespace names plain files so. With
/// `live`, this machine's `/proc` and `/sys`, a file counts only if it is that device by its numbers, too.
///
/// # Errors
/// They are not ours to see, or the process has ended.
pub fn of(proc: &Dir, pid: i32, live: bool) -> io::Result<Files> {
    let process = proc.dir(&pid.to_string())?;
    let folder = process.dir("fd")?;
    let mut found = Files::default();
    let mut link = [0; 4096];
    let mut refused = None;
    let mut tuns = Vec::new();
    let is = |fd: &[u8], node: &str| !live || is_device(pid, fd, node);
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
        let index = |text: &[u8]| number(text).and_then(|n| u32::try_from(n).ok());
        if target == b"/dev/net/tun" {
            tuns.extend(number(name).filter(|_| is(name, "misc/tun")));
        } else if target == b"/dev/vhost-net" {
            found.vhost += u32::from(is(name, "misc/vhost-net"));
        } else if let Some(index) = target.strip_prefix(b"/dev/tap").and_then(index) {
            if is(name, &format!("/tap{index}")) {
                *found.macvtaps.entry(index).or_default() += 1;
            }
        } else if let Some(device) = target.strip_prefix(b"/dev/vfio/devices/") {
            let device = String::from_utf8_lossy(device).into_owned();
            let it_is = is_name(&device) && is(name, &format!("vfio-dev/{device}"));
            found.passed.extend(it_is.then_some(Passed::Device(device)));
        } else if let Some(group) = target.strip_prefix(b"/dev/vfio/").and_then(index)
            && is(name, &format!("vfio/{group}"))
        {
            found.passed.push(Passed::Group(group.to_string()));
        }
    })?;
    if let Some(error) = refused {
        return Err(error);
    }
    let mut buf = [0; 4096];
    for fd in tuns {
        let info = process.read_record(&format!("fdinfo/{fd}"), &mut buf);
        // Opened, and not a device's yet.
        let name = info.ok().and_then(interface);
        if let Some(name) = name {
            *found.taps.entry(name).or_default() += 1;
        }
    }
    found.passed.sort_unstable();
    found.passed.dedup();
    Ok(found)
}

/// Whether an open file is a device whose place in `/sys` ends so: `/sys/dev/char/MAJOR:MINOR` is a link there, and
/// nobody but root makes files with such numbers.
fn is_device(pid: i32, fd: &[u8], node: &str) -> bool {
    let Some(fd) = number(fd) else { return false };
    let Ok(about) = std::fs::metadata(format!("/proc/{pid}/fd/{fd}")) else {
        return false;
    };
    let (major, minor) = (libc::major(about.rdev()), libc::minor(about.rdev()));
    let place = std::fs::read_link(format!("/sys/dev/char/{major}:{minor}"));
    let ends = |place: std::path::PathBuf| place.to_string_lossy().ends_with(node);
    about.file_type().is_char_device() && place.is_ok_and(ends)
}

/// The device of a file of `/dev/net/tun`.
fn interface(info: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(info);
    let name = text.lines().find_map(|line| line.strip_prefix("iff:"))?;
    let name = name.trim();
    is_name(name).then(|| name.to_string())
}
