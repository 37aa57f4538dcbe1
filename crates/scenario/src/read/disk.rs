// SPDX-License-Identifier: GPL-2.0-only
//! `[disk.NAME]`.
use super::net::duration_or;
use super::tasks::Places;
use crate::diag::{At, Error, Result};
use crate::edit::names;
use crate::keys;
use crate::model::{Access, Disk, DiskPath, Scenario, Step};
use crate::placement;
use crate::quantity;
use crate::section::Section;
use crate::step::Named;
use crate::tree::Value;

/// The paths by the names that files use, and what a request costs there: a task, the host's thread.
const PATHS: [(&str, DiskPath, &str, &str); 4] = [
    ("virtio", DiskPath::Virtio, "2us", "4us"),
    ("emulated", DiskPath::Emulated, "20us", "10us"),
    ("direct", DiskPath::Direct, "1us", "0us"),
    ("driver-domain", DiskPath::DriverDomain, "3us", "5us"),
];

const ACCESSES: [(&str, Access); 2] = [
    ("sequential", Access::Sequential),
    ("random", Access::Random),
];

/// Blocks of all caches of a disk: what is known of each takes memory.
const MOST_BLOCKS: u64 = 4 << 20;

/// The smallest block and request.
const LEAST_BYTES: u64 = 512;

/// One of these words, or the default of the key.
fn word<T: Copy>(section: &Section<'_>, key: &str, all: &[(&str, T)]) -> Result<T> {
    let Some((word, at)) = section.string(key)? else {
        return Ok(all[0].1);
    };
    if let Some((_, found)) = all.iter().find(|(name, _)| *name == word) {
        return Ok(*found);
    }
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let text = format!(
        "`{}` is not one of: {}",
        word.escape_debug(),
        names.join(", ")
    );
    Err(Error::at(&at, format!("`{}`: {text}", section.address(key))).nearest(&word, names))
}

/// A size, whose default depends on other keys.
fn bytes_or(section: &Section<'_>, key: &str, default: &str) -> Result<u64> {
    if section.table.get(key).is_some() {
        return section.bytes(key);
    }
    match section.node_or(key, default).value {
        Value::Str(text) => quantity::bytes(&text).map_err(Error::new),
        _ => Ok(0),
    }
}

fn key_at(section: &Section<'_>, key: &str) -> At {
    let entry = section.table.get(key);
    entry.map_or_else(|| section.at.clone(), |entry| entry.node.at.clone())
}

/// All disks, in the order of the file.
///
/// # Errors
/// A value out of its range, what does not fit together.
pub fn disks(file: &Section<'_>) -> Result<Vec<Disk>> {
    let mut all = Vec::new();
    for (name, entry) in file.named("disk", &keys::DISK)? {
        let section = file.open_named("disk", &keys::DISK, entry)?;
        all.push(disk(&section, name)?);
    }
    Ok(all)
}

fn disk(section: &Section<'_>, name: String) -> Result<Disk> {
    let wrong = |key: &str, text: String, label: &str| {
        Err(Error::at(&key_at(section, key), text).label(label.to_string()))
    };
    let paths: Vec<(&str, DiskPath)> = PATHS.iter().map(|p| (p.0, p.1)).collect();
    let path = word(section, "path", &paths)?;
    let (_, _, submit, host) = PATHS[paths.iter().position(|p| p.1 == path).unwrap_or(0)];
    let size_bytes = section.bytes("size")?;
    let file_bytes = section.bytes("file")?;
    let access = word(section, "access", &ACCESSES)?;
    let bit_s = section
        .text("bandwidth", quantity::bits_per_second)?
        .map_or(1, |(bits, _)| bits);
    let seek_near_ns = section.duration("seek")?;
    let seek_far_ns = match section.table.get("seek_far") {
        Some(_) => section.duration("seek_far")?,
        None => {
            section.node("seek_far")?;
            seek_near_ns
        }
    };
    if seek_far_ns < seek_near_ns {
        let text = "a seek to the other end of the disk that is shorter than one to the next place";
        return wrong("seek_far", text.into(), "`seek` is longer");
    }
    let request_bytes = section.bytes("request")?;
    let cache_bytes = section.bytes("cache")?;
    let block_bytes = section.bytes("block")?;
    for (key, bytes) in [("request", request_bytes), ("block", block_bytes)] {
        if bytes < LEAST_BYTES {
            let text = format!("`{}` is {bytes} bytes", section.address(key));
            return wrong(key, text, "at least 512B");
        }
    }
    if file_bytes == 0 {
        return wrong(
            "file",
            "a file of 0 bytes has no records".into(),
            "give it a size",
        );
    }
    if file_bytes > size_bytes {
        let text =
            format!("the file of {file_bytes} bytes is larger than the disk of {size_bytes}");
        return wrong("file", text, "a smaller file, or a larger `size`");
    }
    let cached = cache_bytes > 0;
    if !cached {
        // What only a cache can do.
        for (key, does) in [
            ("read_ahead", "fetches into the cache"),
            ("write_back", "writes back from the cache"),
            ("dirty", "is a part of the cache"),
        ] {
            let off = |text: &str| matches!(text, "0B" | "0s" | "0us" | "0%");
            let said = section.table.get(key).map(|entry| &entry.node.value);
            if said.is_some_and(|value| !matches!(value, Value::Str(text) if off(text))) {
                let text = format!("`{}` {does}, and there is none", section.address(key));
                return wrong(key, text, "give `cache` a size, or leave this out");
            }
        }
    } else if cache_bytes < block_bytes {
        let text =
            format!("a cache of {cache_bytes} bytes has no room for a block of {block_bytes}");
        return wrong(
            "cache",
            text,
            "a larger cache, a smaller `block`, or \"0B\"",
        );
    } else if request_bytes < block_bytes {
        let text = format!("a block of {block_bytes} bytes is larger than a request");
        return wrong("block", text, "a smaller block, or a larger `request`");
    }
    let read_ahead_bytes = bytes_or(section, "read_ahead", if cached { "128KiB" } else { "0B" })?;
    if read_ahead_bytes > cache_bytes / 2 && read_ahead_bytes > 0 {
        let text = format!(
            "`{}` is more than half of the cache",
            section.address("read_ahead")
        );
        return wrong("read_ahead", text, "less of it, or a larger `cache`");
    }
    let write_back_ns = duration_or(section, "write_back", if cached { "5s" } else { "0s" })?;
    let dirty_ppm = dirty(section, cached)?;
    Ok(Disk {
        name,
        path,
        size_bytes,
        file_bytes,
        access,
        bit_s,
        seek_near_ns,
        seek_far_ns,
        request_bytes,
        cache_bytes,
        block_bytes,
        read_ahead_bytes,
        write_back_ns,
        dirty_ppm,
        syscall_ns: section.duration("syscall")?,
        copy_ns: section.duration("copy")?,
        submit_ns: duration_or(section, "submit", submit)?,
        per_request_host_ns: duration_or(section, "per_request_host", host)?,
        irq_ns: section.duration("irq")?,
    })
}

fn dirty(section: &Section<'_>, cached: bool) -> Result<u32> {
    if section.table.get("dirty").is_none() {
        section.node_or("dirty", if cached { "20%" } else { "0%" });
        return Ok(if cached { 200_000 } else { 0 });
    }
    match section.text("dirty", quantity::percent_ppm)? {
        Some((ppm, at)) if ppm > 900_000 || (ppm == 0 && cached) => {
            let why = format!(
                "`{}` should be above 0%, at most 90%",
                section.address("dirty")
            );
            Err(Error::at(&at, why).label("the rest is for what is read"))
        }
        said => Ok(said.map_or(0, |(ppm, _)| ppm)),
    }
}

/// Files and records fit, once it is known who has which.
///
/// # Errors
/// The first that does not.
pub fn check(file: &Section<'_>, scenario: &Scenario, places: &Places) -> Result<()> {
    let header = |name: &str, key: &str| -> At {
        let group = file.table.get("disk").map(|group| &group.node.value);
        let Some(Value::Table(disks)) = group else {
            return file.at.clone();
        };
        let Some(entry) = disks.get(name) else {
            return file.at.clone();
        };
        match &entry.node.value {
            Value::Table(table) => table
                .get(key)
                .map_or_else(|| entry.key_at.clone(), |entry| entry.node.at.clone()),
            _ => entry.key_at.clone(),
        }
    };
    for disk in &scenario.disks {
        let users = placement::users_of_disk(scenario, &disk.name).len() as u64;
        if disk.file_bytes.saturating_mul(users) > disk.size_bytes {
            let text = format!(
                "{users} files of {} bytes, one for each VM that uses disk.{}, are larger than the disk of {}",
                disk.file_bytes, disk.name, disk.size_bytes
            );
            return Err(Error::at(&header(&disk.name, "file"), text)
                .label("smaller files, or a larger `size`"));
        }
        let blocks = disk
            .file_bytes
            .div_ceil(disk.block_bytes)
            .saturating_mul(users);
        if disk.cache_bytes > 0 && blocks > MOST_BLOCKS {
            let text = format!(
                "the files on disk.{} have {blocks} blocks of {} bytes, more than {MOST_BLOCKS}",
                disk.name, disk.block_bytes
            );
            return Err(Error::at(&header(&disk.name, "block"), text).label("a larger `block`"));
        }
    }
    for task in scenario.tasks.values() {
        let at = |i: usize| {
            places
                .steps
                .get(&task.name)
                .and_then(|all| all.get(i))
                .cloned()
        };
        let first = task.first.iter().map(|step| (None, step));
        let steps = task.steps.iter().enumerate().map(|(i, step)| (at(i), step));
        for (at, step) in first.chain(steps) {
            let (Named::Disk(name), Step::Read { bytes, .. } | Step::Write { bytes, .. }) =
                (step.named(), step)
            else {
                continue;
            };
            let Some(disk) = scenario.disks.iter().find(|d| d.name == name) else {
                continue;
            };
            if *bytes > disk.file_bytes {
                let text = format!(
                    "a record of {bytes} bytes is larger than the file of {} on disk.{name}",
                    disk.file_bytes
                );
                let error = match at.or_else(|| places.headers.get(&task.name).cloned()) {
                    Some(at) => Error::at(&at, text),
                    None => Error::new(text),
                };
                return Err(error.label(format!("a larger disk.{name}.file, or a smaller record")));
            }
        }
    }
    Ok(())
}

/// The one disk of a file, for models that do not say which.
pub fn only(root: &crate::tree::Node) -> Option<String> {
    match &names(root, "disk")[..] {
        [one] => Some(one.clone()),
        _ => None,
    }
}
