// SPDX-License-Identifier: GPL-2.0-only
//! CPUs of interrupts: `/proc/irq/N/smp_affinity_list`.
//!
//! A number is used again when a device goes and another one comes. What tells them apart is what the interrupt is for
//! (`/sys/kernel/irq/N/actions`, as in the last column of `/proc/interrupts`).
use crate::error::Error;
use crate::knob::Knob;
use std::io::Write;
use std::path::Path;

/// What an interrupt is for; none: there is no such interrupt.
pub fn name_of(sys: &Path, irq: u32) -> Option<String> {
    let text = std::fs::read(sys.join(format!("kernel/irq/{irq}/actions"))).ok()?;
    Some(String::from_utf8_lossy(&text).trim().to_string())
}

fn is_it(sys: &Path, knob: &Knob, irq: u32, name: &str) -> Result<(), Error> {
    match name_of(sys, irq) {
        Some(there) if there == name => Ok(()),
        _ => Err(Error::gone(knob)),
    }
}

pub fn read(proc: &Path, sys: &Path, knob: &Knob, irq: u32, name: &str) -> Result<String, Error> {
    is_it(sys, knob, irq, name)?;
    let file = proc.join(format!("irq/{irq}/smp_affinity_list"));
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text.trim().into()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(Error::gone(knob)),
        Err(e) => Err(Error::refused(knob, e)),
    }
}

pub fn write(
    proc: &Path,
    sys: &Path,
    knob: &Knob,
    (irq, name): (u32, &str),
    value: &str,
) -> Result<(), Error> {
    is_it(sys, knob, irq, name)?;
    let file = proc.join(format!("irq/{irq}/smp_affinity_list"));
    // Not cut short first, and in one piece.
    let opened = std::fs::OpenOptions::new().write(true).open(file);
    let written = opened.and_then(|mut f| f.write_all(format!("{value}\n").as_bytes()));
    written.map_err(|e| match e.raw_os_error() {
        Some(libc::ENOENT) => Error::gone(knob),
        Some(libc::EIO) => Error::refused(
            knob,
            "the kernel manages it itself, and takes nobody's wishes",
        ),
        Some(libc::EINVAL) => Error::refused(knob, format!("none of the CPUs {value} is online")),
        _ => Error::refused(knob, e),
    })
}
