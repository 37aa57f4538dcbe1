// SPDX-License-Identifier: GPL-2.0-only
//! What can be wrong with a policy before it runs. Every message says what, where, and what to do.
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "no clang found (tried {tried}): install clang 16 or newer (Debian: `apt install clang-19`) or name it in \
         BERTH_CLANG"
    )]
    NoClang { tried: String },
    #[error("{path} does not compile:\n{message}")]
    Compile { path: PathBuf, message: String },
    #[error("not a compiled BPF policy: {0}")]
    NotAPolicy(String),
    #[error("broken object: {0}")]
    Broken(String),
    #[error("the simulator does not support {0}")]
    Unsupported(String),
    #[error("the policy needs what the simulator does not have: {} (`berth policy supported` lists what it \
     has)", .names.join(", "))]
    Missing { names: Vec<String> },
    #[error("{0}")]
    Setting(String),
    /// What was asked of a scheduler's loader; `key`: of an arm (`rodata`, `ops_flags`, `resize`).
    #[error("{why}")]
    Setup { key: &'static str, why: String },
    #[error("no C compiler found (tried {tried}): install clang-19 or gcc, or name it in BERTH_CC")]
    NoCc { tried: String },
    #[error("the C compiler failed on translated code ({command}):\n{message}")]
    Cc { command: String, message: String },
    #[error("cannot load translated code: {0}")]
    Dlopen(String),
    #[error("cannot use the cache folder {path}: {source}; set BERTH_CACHE to a writable folder")]
    Cache {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the simulator's table of kernel functions is wrong: {0}")]
    Vtable(String),
}

pub type Result<T> = std::result::Result<T, LoadError>;
