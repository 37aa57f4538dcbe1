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
            if is(name, &format!("tap{index}")) {
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

/// Whether an open file is a device whose place in `/sys` ends in these parts: `/sys/dev/char/MAJOR:MINOR` is a link
/// there, and nobody but root makes files with such numbers.
fn is_device(pid: i32, fd: &[u8], node: &str) -> bool {
    let Some(fd) = number(fd) else { return false };
    let Ok(about) = std::fs::metadata(format!("/proc/{pid}/fd/{fd}")) else {
        return false;
    };
    let (major, minor) = (libc::major(about.rdev()), libc::minor(about.rdev()));
    let place = std::fs::read_link(format!("/sys/dev/char/{major}:{minor}"));
    about.file_type().is_char_device() && place.is_ok_and(|place| place.ends_with(node))
}

/// The device of a file of `/dev/net/tun`.
fn interface(info: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(info);
    let name = text.lines().find_map(|line| line.strip_prefix("iff:"))?;
    let name = name.trim();
    is_name(name).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    /// What a file is, is by its numbers: a VMM may open anything, and in a namespace of its own call it as it likes.
    #[test]
    fn a_file_is_a_device_by_its_numbers() {
        let us = std::process::id() as i32;
        let is =
            |file: &File, node: &str| is_device(us, file.as_raw_fd().to_string().as_bytes(), node);
        let null = File::open("/dev/null").unwrap();
        assert!(is(&null, "mem/null") && is(&null, "null"));
        // Not a part of a name, and not another device.
        assert!(!is(&null, "em/null") && !is(&null, "ull") && !is(&null, "misc/tun"));
        let plain = tempfile::NamedTempFile::new().unwrap();
        assert!(!is(plain.as_file(), "misc/tun") && !is(plain.as_file(), ""));
        // Nothing, and no number.
        for fd in ["999999", "x", "-1", "", "../fd/0"] {
            assert!(!is_device(us, fd.as_bytes(), "mem/null"), "{fd}");
        }
    }

    /// In a mount namespace of its own a plain file is `/dev/net/tun`, by its link in `/proc`: it is none on this
    /// machine, and would be on a host that was written down, which has no numbers.
    #[test]
    fn a_plain_file_with_a_devices_name_is_none() {
        let found = std::thread::spawn(|| {
            let plain = tempfile::NamedTempFile::new().ok()?;
            let c = |text: &str| std::ffi::CString::new(text).ok();
            let (from, to, root) = (c(plain.path().to_str()?)?, c("/dev/net/tun")?, c("/")?);
            let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
            // SAFETY: C strings that outlive the calls; the namespace is of this thread alone, which ends soon.
            let done = unsafe {
                libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) == 0
                    && libc::mount(none, root.as_ptr(), none, flags, none.cast()) == 0
                    && libc::mount(from.as_ptr(), to.as_ptr(), none, libc::MS_BIND, none.cast())
                        == 0
            };
            let file = File::open("/dev/net/tun").ok().filter(|_| done)?;
            // SAFETY: a number of this thread.
            let tid = unsafe { libc::gettid() };
            let proc = Dir::open(std::path::Path::new("/proc")).ok()?;
            let link = std::fs::read_link(format!("/proc/self/task/{tid}/fd/{}", file.as_raw_fd()));
            let seen = |live| of(&proc, tid, live).map(|f| f.taps.len() + f.vhost as usize);
            let is = is_device(tid, file.as_raw_fd().to_string().as_bytes(), "misc/tun");
            Some((link.ok()?, is, seen(true).ok()?))
        });
        let Some((link, is, taps)) = found.join().unwrap() else {
            return eprintln!("not tried: no mounts of its own can be had here");
        };
        assert_eq!(link, std::path::Path::new("/dev/net/tun"));
        assert!(!is && taps == 0);
    }
}
