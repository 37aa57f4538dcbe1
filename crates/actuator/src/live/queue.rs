// SPDX-License-Identifier: GPL-2.0-only
//! CPUs of network queues: `/sys/class/net/DEVICE/queues/rx-N/rps_cpus` (which CPUs go on with what is received) and
//! `tx-N/xps_cpus` (which CPUs send by it). The kernel writes masks; values here are lists, an empty one is none.
use crate::cpus;
use crate::error::Error;
use crate::knob::Knob;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// Bytes of a mask, at most: 8192 CPUs.
const MOST: u64 = 1 << 12;

/// The file of a queue; `device` is that of this index still, which no other has had since boot.
fn file(
    sys: &Path,
    knob: &Knob,
    (device, index, queue): (&str, u32, &str),
    flags: OFlags,
) -> Result<File, Error> {
    let leaf = match queue.split_once('-') {
        Some(("rx", n)) if n.parse::<u32>().is_ok() => "rps_cpus",
        Some(("tx", n)) if n.parse::<u32>().is_ok() => "xps_cpus",
        _ => return Err(Error::refused(knob, "it is no queue")),
    };
    if device.is_empty() || device.contains(['/', '\0']) || device.starts_with('.') {
        return Err(Error::refused(knob, "it is no device"));
    }
    let folder = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    // The link below `class/net` is the kernel's; from there on nothing leads elsewhere.
    let folder = open(sys.join("class/net").join(device), folder, Mode::empty());
    let folder = folder.map_err(|_| Error::gone(knob))?;
    let inside = |path: &str, flags: OFlags| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat2(&folder, path, flags, Mode::empty(), resolve);
        file.map(File::from).map_err(|e| match e {
            Errno::NOENT | Errno::NODEV => Error::gone(knob),
            e => Error::refused(knob, e),
        })
    };
    let mut there = String::new();
    let about = inside("ifindex", OFlags::RDONLY)?;
    let read = about.take(MOST).read_to_string(&mut there);
    if read.is_err() || there.trim().parse() != Ok(index) {
        return Err(Error::gone(knob));
    }
    inside(&format!("queues/{queue}/{leaf}"), flags)
}

pub fn read(sys: &Path, knob: &Knob, which: (&str, u32, &str)) -> Result<String, Error> {
    let mut text = String::new();
    let file = file(sys, knob, which, OFlags::RDONLY)?;
    let read = file.take(MOST).read_to_string(&mut text);
    read.map_err(|e| match e.raw_os_error() {
        // A device with one queue has nothing to choose from.
        Some(libc::ENOENT) => Error::gone(knob),
        _ => Error::refused(knob, e),
    })?;
    let set = cpus::of_mask(&text).ok_or_else(|| Error::refused(knob, "it holds no mask"))?;
    Ok(cpus::list(&set))
}

pub fn write(sys: &Path, knob: &Knob, which: (&str, u32, &str), value: &str) -> Result<(), Error> {
    let set = cpus::read(value);
    let set = set.ok_or_else(|| Error::refused(knob, format!("{value:?} is no list of CPUs")))?;
    let mask = cpus::mask_text(&set);
    let mut file = file(sys, knob, which, OFlags::WRONLY)?;
    let written = file.write_all(format!("{mask}\n").as_bytes());
    written.map_err(|e| match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV) => Error::gone(knob),
        _ => Error::refused(knob, e),
    })
}
