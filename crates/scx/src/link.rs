// SPDX-License-Identifier: GPL-2.0-only
//! Several compiled objects of one scheduler as one, by libbpf's own linker.
use crate::log::Capture;
use libbpf_rs::{AsRawLibbpf, libbpf_sys};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Links objects, in this order, to the file `out`.
///
/// # Errors
/// One of them cannot be read, or they do not fit together (a symbol twice, types that differ), in libbpf's words.
pub fn link(out: &Path, objects: &[PathBuf]) -> Result<(), String> {
    let capture = Capture::start();
    let mut linker = libbpf_rs::Linker::new(out).map_err(|e| said(&e, &capture))?;
    for object in objects {
        let added = add(&mut linker, object);
        added.map_err(|e| format!("{}: {}", object.display(), said(&e, &capture)))?;
    }
    linker.link().map_err(|e| said(&e, &capture))
}

/// Not by libbpf-rs's own function: of 0.27.2 it takes libbpf's negative numbers of errors for positive ones.
fn add(linker: &mut libbpf_rs::Linker, object: &Path) -> std::io::Result<()> {
    let path = CString::new(object.as_os_str().as_bytes())?;
    // SAFETY: a linker that lives, a string that ends, and no options.
    let status = unsafe {
        libbpf_sys::bpf_linker__add_file(
            linker.as_libbpf_object().as_ptr(),
            path.as_ptr(),
            std::ptr::null(),
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(std::io::Error::from_raw_os_error(status.abs())),
    }
}

/// libbpf's error, and what it printed on the way.
fn said(error: &dyn std::fmt::Display, capture: &Capture) -> String {
    let log = capture.text();
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    match lines.is_empty() {
        true => error.to_string(),
        false => format!("{error}\n  {}", lines.join("\n  ")),
    }
}
