// SPDX-License-Identifier: GPL-2.0-only
//! The recorder policy: compiled from the source tree, and what a row sets in it.
use crate::row::{MAX_RULES, Row};
use berth_policy::compile::{CompileOptions, compile};
use berth_policy::error::LoadError;
use std::path::{Path, PathBuf};

/// The recorder's source, in the source tree this was built from.
pub fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recorder.bpf.c")
}

/// The compiled object: the same bytes for the kernel and for the simulator.
///
/// # Errors
/// No clang, or a compiler error.
pub fn object() -> Result<Vec<u8>, LoadError> {
    compile(&source(), &CompileOptions::default())
}

/// The row's script as the recorder's variable `rules`.
pub fn rules(row: &Row) -> Vec<u8> {
    let mut bytes = vec![0; 40 * MAX_RULES];
    for (slot, rule) in bytes.chunks_exact_mut(40).zip(&row.rules) {
        slot.copy_from_slice(&rule.bytes());
    }
    bytes
}
