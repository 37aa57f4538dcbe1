// SPDX-License-Identifier: GPL-2.0-only
//! Logs of real kernels, stored in the repository: `golden/LINE/ROW.log`, LINE being `7.2`.
use crate::log::{BadLog, Log};
use crate::row::Row;
use std::io;
use std::path::{Path, PathBuf};

/// Kernel lines with stored logs, oldest first. The first number pair is what `--kernel` of the lab takes.
pub const LINES: [&str; 4] = ["6.18", "7.0", "7.2", "7.3"];

/// A row's stored recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Golden {
    /// `uname -r` of the kernel.
    pub kernel: String,
    pub log: Log,
}

/// Why a stored recording cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Bad { path: PathBuf, source: BadLog },
}

/// Folder of the stored logs, in the source tree this was built from.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn path(line: &str, row: &Row) -> PathBuf {
    folder().join(line).join(format!("{}.log", row.name))
}

/// The recording of a row on a kernel line; `None` if there is none.
///
/// # Errors
/// It exists but cannot be read.
pub fn load(line: &str, row: &Row) -> Result<Option<Golden>, GoldenError> {
    let path = path(line, row);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(GoldenError::Io { path, source }),
    };
    let log = Log::parse(&text).map_err(|source| GoldenError::Bad { path, source })?;
    let kernel = text
        .lines()
        .find_map(|l| l.strip_prefix("# kernel "))
        .unwrap_or("unknown");
    Ok(Some(Golden {
        kernel: kernel.to_string(),
        log,
    }))
}

/// Stores a recording, with comments on where it comes from.
///
/// # Errors
/// The file cannot be written.
pub fn store(
    line: &str,
    row: &Row,
    golden: &Golden,
    agreement: &str,
) -> Result<PathBuf, GoldenError> {
    let path = path(line, row);
    let io = |source| GoldenError::Io {
        path: path.clone(),
        source,
    };
    std::fs::create_dir_all(folder().join(line)).map_err(io)?;
    let machine = row.machine.name();
    let head = format!(
        "# {}\n# kernel {}\n# machine {machine} (cores x threads), {agreement}\n",
        row.title, golden.kernel
    );
    std::fs::write(&path, format!("{head}{}", golden.log)).map_err(io)?;
    Ok(path)
}
