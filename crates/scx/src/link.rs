// SPDX-License-Identifier: GPL-2.0-only
//! Several compiled objects of one scheduler as one, by libbpf's own linker.
use crate::log::Capture;
use std::path::{Path, PathBuf};

/// Links objects, in this order, to the file `out`.
///
/// # Errors
/// One of them cannot be read, or they do not fit together (a symbol twice, types that differ), in libbpf's words.
pub fn link(out: &Path, objects: &[PathBuf]) -> Result<(), String> {
    let capture = Capture::start();
    let mut linker = libbpf_rs::Linker::new(out).map_err(|e| said(&e, &capture))?;
    for object in objects {
        let added = linker.add_file(object);
        added.map_err(|e| format!("{}: {}", object.display(), said(&e, &capture)))?;
    }
    linker.link().map_err(|e| said(&e, &capture))
}

/// libbpf's error, and what it printed on the way.
fn said(error: &libbpf_rs::Error, capture: &Capture) -> String {
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
