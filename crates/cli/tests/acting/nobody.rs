// SPDX-License-Identifier: GPL-2.0-only
//! Somebody who has no rights.
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user who owns nothing.
pub const NOBODY: u32 = 65_534;

/// A copy of `berth` that [`NOBODY`] can begin, wherever this one was built, in a folder that is his from now on.
pub fn berth_for_nobody(folder: &Path) -> PathBuf {
    let program = folder.join("berth");
    std::fs::copy(env!("CARGO_BIN_EXE_berth"), &program).unwrap();
    std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    program
}

/// It is begun as by [`NOBODY`].
pub fn as_nobody(command: &mut Command) {
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
}
