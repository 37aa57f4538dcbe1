// SPDX-License-Identifier: GPL-2.0-only
//! The folder that holds what was downloaded.
use crate::LabError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The cache, held by this process alone while the value lives.
pub(crate) struct Cache {
    pub root: PathBuf,
    _lock: File,
}

impl Cache {
    /// `$BERTH_CACHE`, `$XDG_CACHE_HOME/berth` or `~/.cache/berth`; made if it is not there.
    pub fn open() -> Result<Cache, LabError> {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let root = match (set("BERTH_CACHE"), set("XDG_CACHE_HOME"), set("HOME")) {
            (Some(c), ..) => PathBuf::from(c),
            (None, Some(x), _) => PathBuf::from(x).join("berth"),
            (None, None, Some(h)) => PathBuf::from(h).join(".cache/berth"),
            (None, None, None) => std::env::temp_dir().join("berth-cache"),
        };
        Cache::at(&root)
    }

    pub fn at(root: &Path) -> Result<Cache, LabError> {
        let fail = |source| LabError::Cache {
            path: root.display().to_string(),
            source,
        };
        fs::create_dir_all(root).map_err(fail)?;
        // apt wants absolute paths.
        let whole = fs::canonicalize(root).map_err(fail)?;
        let lock = File::create(whole.join(".lock")).map_err(fail)?;
        // SAFETY: an open file; the lock ends with it.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(fail(std::io::Error::last_os_error()));
        }
        Ok(Cache {
            root: whole,
            _lock: lock,
        })
    }

    /// Refuses early if the file system has no room.
    pub fn need(&self, what: &str, bytes: u64) -> Result<(), LabError> {
        let free = free_bytes(&self.root)?;
        if free >= bytes {
            return Ok(());
        }
        Err(LabError::DiskSpace {
            what: what.to_string(),
            path: self.root.display().to_string(),
            need_mb: bytes >> 20,
            free_mb: free >> 20,
        })
    }

    /// Contents of a JSON file in the cache; the default if it is missing or of another version's form.
    pub fn load<T: DeserializeOwned + Default>(&self, name: &str) -> T {
        fs::read(self.root.join(name))
            .ok()
            .and_then(|b| serde_json::from_slice(&b).ok())
            .unwrap_or_default()
    }

    pub fn store<T: Serialize>(&self, name: &str, value: &T) -> Result<(), LabError> {
        let path = self.root.join(name);
        let fail = |e: std::io::Error| LabError::io(&path, e);
        let bytes = serde_json::to_vec_pretty(value).map_err(|e| fail(e.into()))?;
        let new = path.with_extension("new");
        fs::write(&new, bytes).map_err(fail)?;
        fs::rename(&new, &path).map_err(fail)
    }
}

fn free_bytes(path: &Path) -> Result<u64, LabError> {
    let fail = || LabError::io(path, std::io::Error::last_os_error());
    let c = std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|e| LabError::io(path, e.into()))?;
    // SAFETY: a valid C string and a place for the result, read only if the call succeeded.
    unsafe {
        let mut s: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(c.as_ptr(), &mut s) != 0 {
            return Err(fail());
        }
        Ok(s.f_bavail * s.f_frsize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn stores_loads_and_refuses_when_full() {
        let d = tempfile::tempdir().unwrap();
        let c = Cache::at(&d.path().join("a/b")).unwrap();
        let empty: BTreeMap<String, u32> = c.load("x.json");
        assert!(empty.is_empty());
        let one = BTreeMap::from([("k".to_string(), 1u32)]);
        c.store("x.json", &one).unwrap();
        assert_eq!(c.load::<BTreeMap<String, u32>>("x.json"), one);
        assert!(c.need("a little", 1).is_ok());
        let e = c.need("too much", u64::MAX).unwrap_err().to_string();
        assert!(e.contains("too much") && e.contains("BERTH_CACHE"), "{e}");
    }
}
