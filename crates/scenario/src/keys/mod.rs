// SPDX-License-Identifier: GPL-2.0-only
//! Every table and key of a scenario: what it takes, its default, what it means.
//!
//! One list serves reading (unknown keys, defaults), `berth scenario help`, `show --full` and the reference.

mod disk;
mod experiment;
mod host;
mod optimiser;
mod stages;
mod vm;
mod work;

pub use disk::DISK;
pub use experiment::{ARM, CALIBRATE, COMPARE, EXPECT, FILE, REPRODUCES, RUN};
pub use host::{CACHE, COST, HOST, HOTPLUG, KIND, MIGRATE};
pub use optimiser::{OPTIMISER, PROMISE};
pub use stages::STAGES;
pub use vm::{GUEST, NET, VM};
pub use work::{CLIENT, TASK};

/// What a key has when the file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// This text, read as if it stood in the file.
    Is(&'static str),
    /// Nothing, or something that depends on other keys; said in words.
    Said(&'static str),
    /// It must be in the file.
    Required,
    /// Part of the grammar that this release cannot run: refused, with these words for the feature.
    Later(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    /// What a value looks like.
    pub takes: &'static str,
    pub default: Default,
    pub says: &'static str,
}

/// A kind of table.
#[derive(Debug)]
pub struct Kind {
    /// `A VM`: subject of "... may have: ...".
    pub label: &'static str,
    /// How its header is written.
    pub header: &'static str,
    /// Word for `berth scenario help WORD`; empty for tables of other files than scenarios.
    pub help: &'static str,
    pub says: &'static str,
    pub keys: &'static [Key],
}

impl Kind {
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }

    /// Where a key is missing or unknown, in words: a header, or the whole file.
    pub fn place(&self, path: &str) -> String {
        match path {
            "" => self.label.replacen("A ", "the ", 1),
            path => format!("[{path}]"),
        }
    }

    /// Keys that this release has.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys
            .iter()
            .filter(|k| !matches!(k.default, Default::Later(_)))
            .map(|k| k.name)
    }
}

pub(crate) const fn key(
    name: &'static str,
    takes: &'static str,
    default: Default,
    says: &'static str,
) -> Key {
    Key {
        name,
        takes,
        default,
        says,
    }
}

const fn later(name: &'static str, feature: &'static str) -> Key {
    Key {
        name,
        takes: "",
        default: Default::Later(feature),
        says: "",
    }
}

/// All kinds of tables, in the order a file has them.
pub static KINDS: [&Kind; 22] = [
    &FILE,
    &RUN,
    &HOST,
    &KIND,
    &COST,
    &MIGRATE,
    &CACHE,
    &HOTPLUG,
    &VM,
    &GUEST,
    &TASK,
    &CLIENT,
    &NET,
    &STAGES,
    &DISK,
    &OPTIMISER,
    &PROMISE,
    &ARM,
    &COMPARE,
    &EXPECT,
    &CALIBRATE,
    &REPRODUCES,
];
