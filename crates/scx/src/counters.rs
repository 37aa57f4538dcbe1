// SPDX-License-Identifier: GPL-2.0-only
//! Performance counters for policies that ask for them (`policies/include/berth/pmu.bpf.h`): an event per CPU, put into
//! the map at the CPU's number. Where there is none the place stays empty, and the policy's reads say so.
use crate::ScxError;
use crate::load::Loaded;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Maps, and the hardware event of each (`PERF_COUNT_HW_*`).
const EVENTS: [(&str, u64); 2] = [("berth_instructions_by_cpu", 1), ("berth_cycles_by_cpu", 0)];

/// The first version of the kernel's structure: all that is needed here.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    config1: u64,
}

/// A hardware event of everything that runs on a CPU.
fn open(cpu: u32, config: u64) -> std::io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: 0, // PERF_TYPE_HARDWARE
        size: size_of::<Attributes>() as u32,
        config,
        ..Attributes::default()
    };
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let (everybody, no_group) = (-1, -1);
    // SAFETY: the structure is as large as it says; the other arguments are numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            everybody,
            cpu as libc::c_int,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, of nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Opens the events of the maps that a policy has.
///
/// # Errors
/// The kernel refuses an event that it has opened itself. That it opens none is a warning of the policy's.
pub fn fill(loaded: &mut Loaded, cpus: impl Iterator<Item = u32> + Clone) -> Result<(), ScxError> {
    for (map, config) in EVENTS {
        if loaded.map_size(map).is_none() {
            continue;
        }
        let mut refused = None;
        for cpu in cpus.clone() {
            match open(cpu, config) {
                // The map keeps the event once it has it.
                Ok(fd) => {
                    loaded.set_map_value(map, &cpu.to_ne_bytes(), &fd.as_raw_fd().to_ne_bytes())?
                }
                Err(error) => refused = refused.or(Some((cpu, error))),
            }
        }
        if let Some((cpu, error)) = refused {
            loaded.warn(format!(
                "no performance counter for {map} on CPU {cpu}: {error}"
            ));
        }
    }
    Ok(())
}
