// SPDX-License-Identifier: GPL-2.0-only
//! Files that one process holds at a time, and who that is.
//!
//! ```text
//! 4711 83412                  the process that holds it or held it last, and its start
//! /run/berth                  folders in which holders remember what they change, a line each
//! ```
//! The kernel lets go of the lock when its holder ends, however that is; what is written there stays, so that whoever
//! comes next finds what a killed one has left.
use crate::error::Error;
use crate::live::start_of;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes of such a file, at most.
const MOST: u64 = 1 << 14;
/// Folders that are remembered, at most; the oldest go.
const FOLDERS: usize = 16;
/// Characters of a command line that are told.
const COMMAND: usize = 160;

/// Held as long as it is there.
#[derive(Debug)]
pub struct Lock {
    file: File,
    folders: Mutex<Vec<PathBuf>>,
}

impl Lock {
    /// Takes the lock of this path, for somebody who remembers what he changes in `folder`.
    ///
    /// # Errors
    /// Another process has it; it cannot be made, or is somebody else's file.
    pub fn take(path: &Path, folder: &Path) -> Result<Lock, Error> {
        let wrong = |e: &dyn std::fmt::Display| Error::ledger(path, e);
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(path, flags, Mode::from_raw_mode(0o600)).map_err(|e| wrong(&e))?;
        let file = File::from(file);
        let ours = ours(&file).map_err(|e| wrong(&e))?;
        if !ours {
            return Err(wrong(
                &"it is not this user's file: look at it, and remove it",
            ));
        }
        hold(&file, path)?;
        let mut folders = told(&file).1;
        folders.retain(|f| f != folder);
        folders.push(folder.into());
        let lock = Lock {
            file,
            folders: Mutex::new(folders),
        };
        lock.write().map_err(|e| wrong(&e))?;
        Ok(lock)
    }

    /// Folders of those who held it before, and may have left something there.
    pub fn others(&self) -> Vec<PathBuf> {
        let mut folders = self.folders().clone();
        folders.pop();
        folders
    }

    /// Nothing is left there any more.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn forget(&self, folder: &Path) -> std::io::Result<()> {
        self.folders().retain(|f| f != folder);
        self.write()
    }

    fn folders(&self) -> std::sync::MutexGuard<'_, Vec<PathBuf>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::io::Result<()> {
        let folders = self.folders();
        write(
            &self.file,
            &folders[folders.len().saturating_sub(FOLDERS)..],
        )
    }
}

/// Folders that are remembered by the lock of this path, whoever has it.
pub fn folders(path: &Path) -> Vec<PathBuf> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = open(path, flags, Mode::empty()) else {
        return Vec::new();
    };
    let file = File::from(file);
    match ours(&file) {
        Ok(true) => told(&file).1,
        _ => Vec::new(),
    }
}

/// Takes the lock of an open file.
pub(crate) fn hold(file: &File, path: &Path) -> Result<(), Error> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|_| Error::Held {
        path: path.into(),
        by: told(file).0,
    })
}

/// Says whose it is now.
pub(crate) fn write(file: &File, folders: &[PathBuf]) -> std::io::Result<()> {
    let pid = std::process::id() as i32;
    let start = start_of(Path::new("/proc"), pid, pid).unwrap_or(0);
    let mut text = format!("{pid} {start}\n").into_bytes();
    // One that cannot be written as a line is not found again: `berth restore --state` names it.
    let lines = folders.iter().map(|f| f.as_os_str().as_bytes());
    for line in lines.filter(|line| !line.contains(&b'\n')) {
        text.extend(line.iter().chain(b"\n"));
    }
    // In one piece, and what is behind it is cut off after: what was there is never lost.
    file.write_all_at(&text, 0)?;
    file.set_len(text.len() as u64)
}

/// A plain file of this user's that nobody else may write.
fn ours(file: &File) -> std::io::Result<bool> {
    let about = file.metadata()?;
    let own = about.uid() == rustix::process::geteuid().as_raw();
    Ok(about.is_file() && own && about.mode() & 0o022 == 0)
}

/// Who has it, in words, if he is still there; and the folders.
fn told(file: &File) -> (Option<String>, Vec<PathBuf>) {
    let mut text = Vec::new();
    let mut from_start = file;
    let read = std::io::Seek::rewind(&mut from_start)
        .and_then(|()| from_start.take(MOST).read_to_end(&mut text));
    if read.is_err() {
        return (None, Vec::new());
    }
    let mut lines = text.split(|b| *b == b'\n');
    let first = lines
        .next()
        .and_then(|l| std::str::from_utf8(l).ok())
        .unwrap_or("");
    let mut words = first.split(' ').map(str::parse::<u64>);
    let holder = match (words.next(), words.next()) {
        (Some(Ok(pid)), Some(Ok(start))) => i32::try_from(pid).ok().and_then(|pid| who(pid, start)),
        _ => None,
    };
    let folders = lines
        .filter(|l| l.first() == Some(&b'/'))
        .map(|l| PathBuf::from(std::ffi::OsStr::from_bytes(l)));
    (holder, folders.collect())
}

/// `process 4711 (berth daemon --socket /run/berth/control.sock)`; none: it has ended, or is about to (what it was
/// begun with goes before its files do).
fn who(pid: i32, start: u64) -> Option<String> {
    if start_of(Path::new("/proc"), pid, pid)? != start {
        return None;
    }
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line
        .split(|b| *b == 0)
        .filter(|w| !w.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    if words.is_empty() {
        return None;
    }
    let command: String = words.join(" ").chars().take(COMMAND).collect();
    Some(format!("process {pid} ({})", command.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::take(&path, Path::new("/a")).unwrap();
        let why = Lock::take(&path, Path::new("/b")).unwrap_err().to_string();
        let us = format!("process {} (", std::process::id());
        assert!(
            why.contains(&us) && why.contains("acts on this host"),
            "{why}"
        );
        drop(first);
        let second = Lock::take(&path, Path::new("/b")).unwrap();
        assert_eq!(second.others(), [PathBuf::from("/a")]);
        assert_eq!(folders(&path), [PathBuf::from("/a"), "/b".into()]);
        second.forget(Path::new("/a")).unwrap();
        assert_eq!(folders(&path), [PathBuf::from("/b")]);
        drop(second);
        // The same again has nobody before it.
        let third = Lock::take(&path, Path::new("/b")).unwrap();
        assert!(third.others().is_empty());
    }

    #[test]
    fn whoever_has_ended_is_not_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        for text in [
            "",
            "x",
            "1",
            "1 0\n",
            "-1 4\n",
            "99999999999999999999 1\n",
            "\u{0}\u{0}",
        ] {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let file = File::open(&path).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
            let why = Lock::take(&path, Path::new("/b")).unwrap_err().to_string();
            assert!(why.contains("another process acts"), "{text:?}: {why}");
        }
        // It has ended, and its number is not free yet.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let begun = start_of(Path::new("/proc"), pid, pid).unwrap();
        let line = format!("/proc/{pid}/cmdline");
        while !std::fs::read(&line).unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(start_of(Path::new("/proc"), pid, pid), Some(begun));
        assert_eq!(who(pid, begun), None);
        child.wait().unwrap();
    }

    #[test]
    fn files_of_others_and_links_are_no_locks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        std::fs::write(&path, "1 1\n/etc\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(Lock::take(&path, Path::new("/b")).is_err());
        assert!(folders(&path).is_empty());
        std::fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(Lock::take(&path, Path::new("/b")).is_err());
        assert!(folders(&path).is_empty());
        assert!(folders(&folder.path().join("nowhere")).is_empty());
    }
}
