// SPDX-License-Identifier: GPL-2.0-only
//! The headers policies are compiled against, carried in this library, unpacked once into the cache folder.
use crate::cache;
use crate::error::{LoadError, Result};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Packed by build.rs.
static ARCHIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/headers.tar.zst"));

/// Include folders, in order, below the unpacked archive.
pub const INCLUDE: &[&str] = &["berth", "scx", "scx/bpf-compat", "vmlinux", "libbpf"];

/// The same of another version of the scx project's headers, below its folder.
pub const INCLUDE_OF_VERSION: &[&str] = &[".", "bpf-compat", "arch/x86"];

/// Changes whenever a header does.
pub fn identity() -> String {
    blake3::hash(ARCHIVE).to_hex().to_string()
}

/// The folder with the unpacked headers.
///
/// # Errors
/// The cache folder cannot be written.
pub fn folder() -> Result<PathBuf> {
    // One thread of this process unpacks; the others would write into the same temporary folder.
    static UNPACKING: Mutex<()> = Mutex::new(());
    let _one = UNPACKING.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = cache::folder()?.join(format!("headers-{}", &identity()[..16]));
    if dir.is_dir() {
        return Ok(dir);
    }
    // Unpack beside the target and move it there whole: other processes may do the same.
    let temporary = dir.with_extension(format!("{}.tmp", std::process::id()));
    let failed = |path: &Path, source| LoadError::Cache {
        path: path.to_path_buf(),
        source,
    };
    let unpacked = cache::create(&temporary)
        .and_then(|()| unpack(&temporary).map_err(|e| failed(&temporary, e)));
    if unpacked.is_err() {
        // A full disk, mostly: half of the headers would only take more of it.
        let _ = std::fs::remove_dir_all(&temporary);
    }
    unpacked?;
    if let Err(e) = std::fs::rename(&temporary, &dir) {
        // Best effort: what was unpacked is of no use now.
        let _ = std::fs::remove_dir_all(&temporary);
        if !dir.is_dir() {
            return Err(failed(&dir, e));
        }
    }
    Ok(dir)
}

/// Unpack the headers to the folder `to`.
pub fn unpack(to: &Path) -> std::io::Result<()> {
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(ARCHIVE)
        .map_err(|e| std::io::Error::other(e.to_string()))?;
    let mut plain = Vec::new();
    decoder.read_to_end(&mut plain)?;
    tar::Archive::new(plain.as_slice()).unpack(to)
}
