// SPDX-License-Identifier: GPL-2.0-only
//! The VM's file system: a `newc` cpio archive in memory. Same files, same bytes: entries in the order given, no
//! times, no owners, numbered from one. The kernel accepts several archives one after the other, so that what all
//! boots share is packed once and each boot adds its job.
use crate::LabError;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const PLAIN: u32 = 0o100_644;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    pub fn new() -> Archive {
        Archive::default()
    }

    /// Adds a file; its directories come first. `path` is absolute.
    pub fn file(&mut self, path: &str, contents: &[u8]) {
        self.parents(path);
        self.entry(path, PLAIN, (0, 0), contents);
    }

    /// Adds an executable file.
    pub fn program(&mut self, path: &str, contents: &[u8]) {
        self.parents(path);
        self.entry(path, PROGRAM, (0, 0), contents);
    }

    /// Adds an empty directory.
    pub fn directory(&mut self, path: &str) {
        self.parents(path);
        if self.directories.insert(path.to_string()) {
            self.entry(path, DIRECTORY, (0, 0), &[]);
        }
    }

    /// Adds the node of a character device.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.parents(path);
        self.entry(path, CHARACTER_DEVICE, (major, minor), &[]);
    }

    /// Adds a program of this machine with its shared libraries, debug information left out.
    ///
    /// # Errors
    /// A file cannot be read, or `ldd` does not know the program's libraries.
    pub fn installed(&mut self, path: &str, program: &Path) -> Result<(), LabError> {
        let read = |p: &Path| fs::read(p).map_err(|e| LabError::io(p, e));
        for library in libraries(program)? {
            let contents = read(&library)?;
            self.program(&library.display().to_string(), &without_debug(contents));
        }
        self.program(path, &without_debug(read(program)?));
        Ok(())
    }

    /// The archive, ended and padded so that another may follow.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        let ends: Vec<usize> = path.match_indices('/').map(|(i, _)| i).collect();
        for end in ends.into_iter().skip(1) {
            if self.directories.insert(path[..end].to_string()) {
                self.entry(&path[..end], DIRECTORY, (0, 0), &[]);
            }
        }
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        let name = path.trim_start_matches('/');
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let fields = [
            self.entries,
            mode,
            0, // owner
            0, // group
            links,
            0, // time
            contents.len() as u32,
            0, // device that holds the file
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0, // checksum: none in this variant of the format
        ];
        self.bytes.extend_from_slice(b"070701");
        for f in fields {
            self.bytes.extend_from_slice(format!("{f:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

/// Shared libraries and dynamic loader of a program, by absolute path; none for a static one.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>, LabError> {
    let out = Command::new("ldd")
        .arg(program)
        .output()
        .map_err(|e| LabError::Start(format!("ldd: {e}")))?;
    let text = String::from_utf8_lossy(&out.stdout);
    if let Some(missing) = text.lines().find(|l| l.contains("not found")) {
        return Err(LabError::Start(format!(
            "{} does not find a library: {}",
            program.display(),
            missing.trim()
        )));
    }
    Ok(text
        .split_whitespace()
        .filter(|w| w.starts_with('/'))
        .map(PathBuf::from)
        .filter(|p| p.is_file())
        .collect())
}

/// An ELF file cut after its last loadable byte, its section table dropped: debug information of an unstripped
/// build is ten times the program. Other files come back unchanged.
fn without_debug(mut elf: Vec<u8>) -> Vec<u8> {
    let Some(end) = loadable_end(&elf) else {
        return elf;
    };
    elf.truncate(end);
    elf[0x28..0x30].fill(0); // e_shoff
    elf[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
    elf
}

/// Offset behind everything that the program headers of a 64-bit little-endian ELF file name.
fn loadable_end(elf: &[u8]) -> Option<usize> {
    let half = |at: usize| -> Option<usize> {
        Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?).into())
    };
    let long = |at: usize| -> Option<usize> {
        usize::try_from(u64::from_le_bytes(elf.get(at..at + 8)?.try_into().ok()?)).ok()
    };
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size, count) = (long(0x20)?, half(0x36)?, half(0x38)?);
    let mut end = table + size * count;
    for i in 0..count {
        let at = table + i * size;
        end = end.max(long(at + 8)?.checked_add(long(at + 0x20)?)?);
    }
    (end <= elf.len() && end >= 0x40).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut a = Archive::new();
        a.file("/boot/config-1", b"CONFIG_X=y\n");
        a.file("/boot/b", b"");
        a.device("/dev/console", 5, 1);
        a.directory("/dev");
        a.finish()
    }

    #[test]
    fn bytes_depend_on_contents_only() {
        assert_eq!(sample(), sample());
        assert!(sample().len().is_multiple_of(4));
    }

    #[test]
    fn cpio_reads_it_back() {
        let d = tempfile::tempdir().unwrap();
        let archive = d.path().join("a");
        fs::write(&archive, sample()).unwrap();
        let listing = Command::new("cpio")
            .arg("-it")
            .stdin(fs::File::open(&archive).unwrap())
            .output();
        let Ok(out) = listing else {
            println!("skipped: no cpio on this machine");
            return;
        };
        assert_eq!(
            String::from_utf8(out.stdout).unwrap(),
            "boot\nboot/config-1\nboot/b\ndev\ndev/console\n"
        );
    }

    #[test]
    fn a_trimmed_program_still_runs() {
        let d = tempfile::tempdir().unwrap();
        let me = std::env::current_exe().unwrap();
        let whole = fs::read(&me).unwrap();
        let trimmed = without_debug(whole.clone());
        assert!(trimmed.len() < whole.len());
        let to = d.path().join("t");
        crate::testing::write_program(&to, &trimmed);
        let out = Command::new(&to).arg("--list").output().unwrap();
        assert!(out.status.success());
        assert_eq!(without_debug(b"#!/bin/sh\n".to_vec()), b"#!/bin/sh\n");
    }
}
