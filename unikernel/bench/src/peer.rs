// SPDX-License-Identifier: GPL-2.0-only
//! What the unikernel is compared with: a Linux guest on the same virtual machine, whose only process echoes.
use crate::guest::Guest;
use crate::image;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const PROGRAM: u32 = 0o100_755;
const FOLDER: u32 = 0o040_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// A Linux guest before it is started.
#[derive(Clone, Debug)]
pub struct Linux {
    kernel: PathBuf,
    release: String,
    initrd: PathBuf,
}

/// A `newc` cpio archive.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.entries += 1;
        let size = contents.len() as u32;
        let (major, minor) = device;
        let length = name.len() as u32 + 1;
        // Number, mode, owner, group, links, time, size, device of the file system, device, length of the name, sum.
        let numbers = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            major,
            minor,
            length,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes
                .extend_from_slice(format!("{number:08X}").as_bytes());
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

/// The program that is its first process.
fn program() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        // With all it needs in one file.
        image::build("unikernel-peer", "-C target-feature=+crt-static")
            .map_err(|error| format!("{error:#}"))
    });
    built.clone().map_err(anyhow::Error::msg)
}

impl Linux {
    /// From a folder with `vmlinuz`, `release` and, in `modules`, what drives its network card, in the order of their
    /// names; its file system is written there.
    ///
    /// # Errors
    /// Something is missing, or the program in it does not build.
    pub fn new(folder: &Path) -> Result<Linux> {
        let kernel = folder.join("vmlinuz");
        ensure!(
            kernel.is_file(),
            "{} is not there (cargo run -p berth-lab --example network_guest -- FOLDER)",
            kernel.display()
        );
        let mut archive = Archive::default();
        archive.entry("dev", FOLDER, (0, 0), &[]);
        archive.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        archive.entry("init", PROGRAM, (0, 0), &fs::read(program()?)?);
        archive.entry("modules", FOLDER, (0, 0), &[]);
        let modules = folder.join("modules");
        let entries = fs::read_dir(&modules).with_context(|| modules.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let name = format!("modules/{}", entry.file_name().to_string_lossy());
            archive.entry(&name, PROGRAM, (0, 0), &fs::read(entry.path())?);
        }
        archive.entry("TRAILER!!!", 0, (0, 0), &[]);
        let initrd = folder.join("initrd");
        fs::write(&initrd, archive.bytes).with_context(|| initrd.display().to_string())?;
        let release = fs::read_to_string(folder.join("release")).unwrap_or_default();
        Ok(Linux {
            kernel,
            initrd,
            release: release.trim().to_string(),
        })
    }

    /// Its kernel's release.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// It, with so many vCPUs, on a q35: a microvm has nothing by which Linux could measure its clocks without KVM.
    pub fn guest(&self, cpus: usize) -> Guest {
        let options = "console=ttyS0 quiet loglevel=1 panic=-1 no_timer_check mitigations=off";
        Guest {
            image: Some(self.kernel.clone()),
            more: vec!["-initrd".to_string(), self.initrd.display().to_string()],
            ..Guest::new("q35", cpus, options)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_headers_names_and_contents_in_words() {
        let mut archive = Archive::default();
        archive.entry("init", PROGRAM, (0, 0), b"abc");
        let text = String::from_utf8(archive.bytes.clone()).unwrap();
        assert!(text.starts_with("07070100000001000081ED"), "{text}");
        assert_eq!(archive.bytes.len(), 110 + 6 + 4);
        assert_eq!(&archive.bytes[110..119], b"init\0\0abc");
    }
}
