// SPDX-License-Identifier: GPL-2.0-only
//! KVM inside the lab's VM: its modules in the initramfs, and how the first process loads them.
use crate::assets::modules::Module;
use crate::initramfs::Archive;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Folder of the modules in the VM.
const FOLDER: &str = "/modules";
/// `MODULE_INIT_COMPRESSED_FILE`: the kernel unpacks.
const COMPRESSED: libc::c_int = 4;

/// Adds the modules; gives their paths in the order in which they are loaded.
pub(crate) fn add(archive: &mut Archive, modules: &[Module]) -> Vec<String> {
    let mut paths = Vec::new();
    for module in modules {
        let path = format!("{FOLDER}/{}", module.file);
        archive.file(&path, &module.bytes);
        paths.push(path);
    }
    paths
}

/// Loads a module; one that is there already is well.
///
/// # Errors
/// The kernel refuses it, in one sentence.
pub(crate) fn load(path: &str) -> Result<(), String> {
    let refused = |e: io::Error| format!("{path}: the kernel does not load it: {e}");
    let file = File::open(Path::new(path)).map_err(refused)?;
    let flags = if path.ends_with(".ko") { 0 } else { COMPRESSED };
    let parameters = CString::default();
    // SAFETY: an open file and a C string that outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            file.as_raw_fd(),
            parameters.as_ptr(),
            flags,
        )
    };
    match io::Error::last_os_error() {
        _ if done == 0 => Ok(()),
        e if e.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        e => Err(refused(e)),
    }
}
