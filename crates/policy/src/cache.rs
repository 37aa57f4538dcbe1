// SPDX-License-Identifier: GPL-2.0-only
//! Compiled translations on disk and in the process: one per content.
use crate::cc::Compiler;
use crate::emit::Translation;
use crate::error::{LoadError, Result};
use crate::native::{self, NativeTable};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Berth's cache folder, as the lab's: `$BERTH_CACHE`, `$XDG_CACHE_HOME/berth` or `~/.cache/berth`.
pub fn folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    Ok(
        match (set("BERTH_CACHE"), set("XDG_CACHE_HOME"), set("HOME")) {
            (Some(whole), ..) => PathBuf::from(whole),
            (None, Some(base), _) => PathBuf::from(base).join("berth"),
            (None, None, Some(home)) => PathBuf::from(home).join(".cache/berth"),
            (None, None, None) => std::env::temp_dir().join("berth-cache"),
        },
    )
}

/// Create a folder with its parents.
pub fn create(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|source| LoadError::Cache {
        path: path.to_path_buf(),
        source,
    })
}

/// Name under which a loaded translation exports its table.
pub const TABLE_NAME: &str = "policy";

/// The machine code of a translation, compiled if it is not in the cache, loaded once per process.
/// Libraries stay loaded: instances point into them.
pub fn native(translation: &Translation) -> Result<NativeTable> {
    static LOADED: LazyLock<Mutex<BTreeMap<String, NativeTable>>> = LazyLock::new(Mutex::default);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(table) = loaded.get(&translation.key) {
        return Ok(*table);
    }
    let compiler = Compiler::find()?;
    let name = format!("{}\n{}", translation.key, compiler.identity());
    let name = blake3::hash(name.as_bytes()).to_hex().to_string();
    let dir = folder()?.join("native");
    create(&dir)?;
    let library = dir.join(format!("{name}.so"));
    let table = match load(&library, translation) {
        Some(table) => table,
        None => {
            build(&compiler, translation, &dir, &name, &library)?;
            load(&library, translation).ok_or_else(|| {
                LoadError::Dlopen(format!("{}: not what was just compiled", library.display()))
            })?
        }
    };
    native::register(&table);
    loaded.insert(translation.key.clone(), table);
    Ok(table)
}

/// Compile beside the target and move it there whole: other processes may do the same.
fn build(
    compiler: &Compiler,
    translation: &Translation,
    dir: &Path,
    name: &str,
    library: &Path,
) -> Result<()> {
    let stem = format!("{name}.{}", std::process::id());
    let path = |end: &str| dir.join(format!("{stem}.{end}"));
    let (source, object, temporary) = (path("c"), path("o"), path("so"));
    let result = compiler
        .object(translation, &source, &object)
        .and_then(|()| compiler.shared(&object, &temporary))
        .and_then(|()| {
            std::fs::rename(&temporary, library).map_err(|source| LoadError::Cache {
                path: library.to_path_buf(),
                source,
            })
        });
    for file in [&source, &object, &temporary] {
        // Left-overs are only a matter of tidiness; the file moved away is expected to be gone.
        let _ = std::fs::remove_file(file);
    }
    result
}

/// The table of a library in the cache; `None` if it is absent, damaged or something else.
fn load(path: &Path, translation: &Translation) -> Option<NativeTable> {
    if !path.exists() {
        return None;
    }
    // SAFETY: a library this crate compiled: no constructors, one data symbol.
    let library = unsafe { libloading::Library::new(path) }.ok()?;
    let symbol = format!("berth_native_{TABLE_NAME}");
    // SAFETY: the symbol is a `struct native_table`, the C side of NativeTable.
    let table = unsafe {
        library
            .get::<*const NativeTable>(symbol.as_bytes())
            .ok()
            .map(|t| **t)
    }?;
    if table.key_text() != translation.key {
        return None;
    }
    // Stays loaded for the life of the process.
    std::mem::forget(library);
    Some(table)
}
