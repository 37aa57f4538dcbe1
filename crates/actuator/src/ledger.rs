// SPDX-License-Identifier: GPL-2.0-only
//! What was changed, in a file that outlives whoever changed it.
//!
//! It is written and on disk before the first change that it tells of, so that whatever happens after,
//! `restore` knows what was there. It lies in a folder that only its owner may write to, and is of one boot of
//! one machine.
use crate::cpus::same;
use crate::error::Error;
use crate::knob::Knob;
use crate::lock;
use rustix::fs::{Mode, OFlags, fsync, open, openat, renameat, unlinkat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NAME: &str = "changes.json";
const NEW: &str = "changes.json.new";
const LOCK: &str = "lock";
/// Bytes of a ledger, at most: some 100,000 changes.
const MOST: u64 = 32 << 20;
const FORMAT: u32 = 1;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub knob: Knob,
    /// Before the first change: what is to be there in the end.
    pub was: String,
    /// What was written last, and read back.
    pub now: Option<String>,
    /// What is about to be written. Whoever is killed meanwhile leaves this value, or what the kernel made of it.
    pub next: Option<String>,
    /// What was written earlier, the last first: threads may have been born with it.
    #[serde(default)]
    pub past: Vec<String>,
    /// Between which it goes back and forth.
    #[serde(default)]
    pub between: Vec<String>,
}

/// So many earlier values are remembered.
const PAST: usize = 8;

impl Entry {
    /// Whether this value is one that we wrote, or may have written.
    pub fn ours(&self, value: &str) -> bool {
        [&self.now, &self.next]
            .into_iter()
            .flatten()
            .chain(&self.between)
            .any(|v| same(v, value))
    }

    /// Whether something born since may have this value from here.
    pub fn may_be_inherited(&self, value: &str) -> bool {
        !same(value, &self.was) && (self.ours(value) || self.past.iter().any(|v| same(v, value)))
    }

    /// It has been written and is `there`.
    pub fn written(&mut self, there: String) {
        self.next = None;
        if let Some(before) = self.now.replace(there) {
            self.past.retain(|v| *v != before);
            self.past.insert(0, before);
            self.past.truncate(PAST);
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    /// Of the boot (`/proc/sys/kernel/random/boot_id`): after the next one nothing of it is so any more.
    boot: String,
    entries: Vec<Entry>,
}

/// The ledger, held by one process at a time.
#[derive(Debug)]
pub struct Ledger {
    folder: OwnedFd,
    path: PathBuf,
    boot: String,
    /// In the order of the first changes.
    entries: Vec<Entry>,
    at: BTreeMap<Knob, usize>,
    /// Changes of another boot, which are forgotten.
    of_another_boot: usize,
    /// Held as long as it is open; the kernel lets go of it if this process is killed.
    _lock: File,
}

impl Ledger {
    /// Opens the ledger of a folder, which is made if it is not there (its parent has to be). One of another boot is
    /// forgotten: nothing that it tells of outlived that.
    ///
    /// # Errors
    /// Another process holds it; others than this user may write there; the file is none of ours.
    pub fn open(folder: &Path, boot: &str) -> Result<Ledger, Error> {
        let wrong = |why: &dyn std::fmt::Display| Error::ledger(folder, why);
        match rustix::fs::mkdir(folder, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => (),
            Err(e) => return Err(wrong(&e)),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = open(folder, flags, Mode::empty()).map_err(|e| wrong(&e))?;
        let about = File::from(held.try_clone().map_err(|e| wrong(&e))?);
        let about = about.metadata().map_err(|e| wrong(&e))?;
        if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o022 != 0 {
            return Err(wrong(
                &"others may write there: it has to belong to this user, with mode 0700",
            ));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&held, LOCK, flags, Mode::from_raw_mode(0o600)).map_err(|e| wrong(&e))?;
        let lock = File::from(lock);
        lock::hold(&lock, folder)?;
        lock::write(&lock, &[]).map_err(|e| wrong(&e))?;
        let path = folder.join(NAME);
        let (entries, of_another_boot) = match read(&held, &path)? {
            Some(content) if content.boot == boot => (content.entries, 0),
            Some(content) => (Vec::new(), content.entries.len()),
            None => (Vec::new(), 0),
        };
        Ok(Ledger {
            folder: held,
            path,
            boot: boot.into(),
            at: entries
                .iter()
                .zip(0..)
                .map(|(e, i)| (e.knob.clone(), i))
                .collect(),
            entries,
            of_another_boot,
            _lock: lock,
        })
    }

    /// Whether something is remembered in a folder.
    pub fn is_there(folder: &Path) -> bool {
        std::fs::symlink_metadata(folder.join(NAME)).is_ok()
    }

    /// Writes it, and returns when it is on disk. Without entries the file is removed.
    ///
    /// # Errors
    /// The disk is full, or something like it; what was there before is there still.
    pub fn save(&self) -> Result<(), Error> {
        let wrong = |e: &dyn std::fmt::Display| Error::ledger(&self.path, e);
        if self.entries.is_empty() {
            return match unlinkat(&self.folder, NAME, rustix::fs::AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {
                    fsync(&self.folder).map_err(|e| wrong(&e))
                }
                Err(e) => Err(wrong(&e)),
            };
        }
        let content = Content {
            format: FORMAT,
            boot: self.boot.clone(),
            entries: self.entries.clone(),
        };
        let text = serde_json::to_vec(&content).map_err(|e| wrong(&e))?;
        if text.len() as u64 > MOST {
            return Err(wrong(&"more changes than could be read again"));
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&self.folder, NEW, flags, Mode::from_raw_mode(0o600)).map_err(|e| wrong(&e))?;
        let mut file = File::from(file);
        file.write_all(&text).map_err(|e| wrong(&e))?;
        file.sync_all().map_err(|e| wrong(&e))?;
        renameat(&self.folder, NEW, &self.folder, NAME).map_err(|e| wrong(&e))?;
        fsync(&self.folder).map_err(|e| wrong(&e))
    }

    /// How many changes of another boot it told of when it was opened: they are not undone, since nothing of them
    /// outlived that boot, and what has their names now is something else.
    pub fn of_another_boot(&self) -> usize {
        self.of_another_boot
    }

    /// All that is remembered, in the order of the first changes.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a knob.
    pub fn of(&mut self, knob: &Knob) -> Option<&mut Entry> {
        let at = *self.at.get(knob)?;
        self.entries.get_mut(at)
    }

    pub fn get(&self, knob: &Knob) -> Option<&Entry> {
        self.entries.get(*self.at.get(knob)?)
    }

    /// Nothing of what was about to be written is.
    pub fn take_back(&mut self) {
        for entry in &mut self.entries {
            entry.next = None;
        }
        self.keep(|e| e.now.is_some());
    }

    /// One more; the knob has none yet.
    pub fn add(&mut self, entry: Entry) {
        self.at.insert(entry.knob.clone(), self.entries.len());
        self.entries.push(entry);
    }

    /// Forgets those that are not to be kept.
    pub fn keep(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        if self.entries.iter().all(&mut keep) {
            return;
        }
        self.entries.retain(keep);
        self.at = self
            .entries
            .iter()
            .zip(0..)
            .map(|(e, i)| (e.knob.clone(), i))
            .collect();
    }
}

fn read(folder: &OwnedFd, path: &Path) -> Result<Option<Content>, Error> {
    let wrong = |why: &dyn std::fmt::Display| Error::ledger(path, why);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, NAME, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(e) => return Err(wrong(&e)),
    };
    let about = file.metadata().map_err(|e| wrong(&e))?;
    if !about.is_file() || about.uid() != rustix::process::geteuid().as_raw() || about.len() > MOST
    {
        return Err(wrong(
            &"it is not what Berth wrote: look at it, and remove it",
        ));
    }
    let mut text = Vec::new();
    file.take(MOST)
        .read_to_end(&mut text)
        .map_err(|e| wrong(&e))?;
    let content: Content = serde_json::from_slice(&text).map_err(|e| wrong(&e))?;
    match content.format {
        FORMAT => Ok(Some(content)),
        other => Err(wrong(&format!(
            "it is of format {other}, and this version reads {FORMAT}: undo with the version that wrote it"
        ))),
    }
}

/// This boot's name.
///
/// # Errors
/// There is no `/proc`.
pub fn this_boot() -> Result<String, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).map_err(|e| Error::ledger(path, e))?;
    Ok(text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    const BOOT: &str = "b";

    fn entry(tid: i32, was: &str) -> Entry {
        let knob = Knob::Affinity {
            pid: 7,
            tid,
            start: 1,
        };
        Entry {
            knob,
            was: was.into(),
            now: Some("1".into()),
            next: Some("0-1".into()),
            past: vec!["2".into()],
            between: Vec::new(),
        }
    }

    proptest! {
        /// Whatever became of the file: it is read or refused, and stays as it is, for whoever looks at it. (A digit of
        /// a value that is another one is not seen: the folder is the user's alone.)
        #[test]
        fn a_damaged_ledger_is_read_or_left_alone(
            hits in vec((any::<Index>(), any::<u8>()), 0..4),
            cut in proptest::option::of(any::<Index>()),
            more in vec(any::<u8>(), 0..8),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut ledger = Ledger::open(folder.path(), BOOT).unwrap();
            ledger.add(entry(7, "0-3"));
            ledger.add(entry(8, "0,2"));
            ledger.save().unwrap();
            let sound = ledger.entries().to_vec();
            drop(ledger);
            let path = folder.path().join(NAME);
            let mut bytes = std::fs::read(&path).unwrap();
            let untouched = bytes.clone();
            for (at, by) in &hits {
                let at = at.index(bytes.len());
                bytes[at] ^= by;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            bytes.extend(&more);
            std::fs::write(&path, &bytes).unwrap();
            let whole = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).is_ok();
            match Ledger::open(folder.path(), BOOT) {
                Ok(ledger) => {
                    prop_assert!(whole(&bytes));
                    prop_assert!(bytes != untouched || ledger.entries() == sound);
                }
                Err(e) => {
                    prop_assert!(bytes != untouched, "{e}");
                    prop_assert!(e.to_string().contains(NAME), "{e}");
                }
            }
            prop_assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }
}
