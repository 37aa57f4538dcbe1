// SPDX-License-Identifier: GPL-2.0-only
//! Performance counters for policies that ask for them (`policies/include/berth/pmu.bpf.h`, `memory.bpf.h`): an event
//! per CPU, put into the map at the CPU's number. Where there is none the place stays empty, the policy's reads say so,
//! and a warning says what stands in the way.
use crate::ScxError;
use crate::load::Loaded;
use crate::machine::{Machine, list};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// `PERF_TYPE_*`.
const HARDWARE: u32 = 0;
const HW_CACHE: u32 = 3;
/// `PERF_COUNT_HW_CACHE_NODE`, read; those that miss are at another node's memory.
const NODE_LOADS: u64 = 6;
const MISSES: u64 = 1 << 16;

/// Maps, and the event of each: its type and number (`PERF_COUNT_HW_*`).
const EVENTS: [(&str, u32, u64); 4] = [
    ("berth_instructions_by_cpu", HARDWARE, 1),
    ("berth_cycles_by_cpu", HARDWARE, 0),
    ("berth_node_loads_by_cpu", HW_CACHE, NODE_LOADS),
    (
        "berth_node_load_misses_by_cpu",
        HW_CACHE,
        NODE_LOADS | MISSES,
    ),
];

/// Units of hybrid x86, one for each kind of cores: an event of another kind's unit does not count there.
const HYBRID: [&str; 3] = ["cpu_core", "cpu_atom", "cpu_lowpower"];
/// Where a hardware event names its unit (`PERF_PMU_TYPE_SHIFT`).
const UNIT_SHIFT: u32 = 32;

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

/// An event of everything that runs on a CPU.
fn open(cpu: u32, kind: u32, config: u64) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind,
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
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, of nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// By CPU, the number of its unit, on machines where CPUs have different ones.
fn units(devices: &Path) -> BTreeMap<u32, u64> {
    let mut all = BTreeMap::new();
    for name in HYBRID {
        let file = |file: &str| std::fs::read_to_string(devices.join(name).join(file)).ok();
        let unit = file("type").and_then(|t| t.trim().parse().ok());
        if let (Some(unit), Some(cpus)) = (unit, file("cpus")) {
            all.extend(list(&cpus).into_iter().map(|cpu| (cpu, unit)));
        }
    }
    all
}

/// Why there is no counter, and what to do. `paranoid`: `kernel.perf_event_paranoid`, if it can be read.
fn advice(error: &io::Error, paranoid: Option<i32>) -> String {
    let level = paranoid.map_or("as it is".into(), |p| p.to_string());
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "not permitted: give this process the capability CAP_PERFMON, or set the sysctl \
             kernel.perf_event_paranoid to 0 (it is {level})"
        ),
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP | libc::ENXIO) => {
            "there is none: a virtual machine without a PMU, or one that is switched off in the firmware".into()
        }
        Some(libc::ENOSYS) => "this kernel has none (CONFIG_PERF_EVENTS)".into(),
        Some(libc::EMFILE | libc::ENFILE) => format!(
            "{error}: up to four files for each CPU; raise the limit (ulimit -n, LimitNOFILE of the unit)"
        ),
        Some(libc::EBUSY) => "another user has them all (a watchdog, another profiler)".into(),
        _ => error.to_string(),
    }
}

/// What was refused, by reason: on which CPUs.
fn warning(refused: &BTreeMap<String, Vec<u32>>, cpus: usize) -> Option<String> {
    if refused.is_empty() {
        return None;
    }
    let of = |(why, on): (&String, &Vec<u32>)| match on.len() == cpus {
        true => why.clone(),
        false => {
            let on: Vec<String> = on.iter().map(u32::to_string).collect();
            format!("on CPUs {}: {why}", on.join(","))
        }
    };
    let all: Vec<String> = refused.iter().map(of).collect();
    Some(format!(
        "no performance counters, what VMs gain is reckoned without them: {}",
        all.join("; ")
    ))
}

/// Opens the events of the maps that a policy has, on all CPUs that are online.
///
/// # Errors
/// The kernel refuses an event that it has opened itself. That it opens none is a warning of the policy's.
pub(crate) fn fill(loaded: &mut Loaded, machine: &Machine) -> Result<(), ScxError> {
    let mut wanted = EVENTS.to_vec();
    wanted.retain(|(map, ..)| loaded.map_size(map).is_some());
    if wanted.is_empty() {
        return Ok(());
    }
    let units = units(Path::new("/sys/bus/event_source/devices"));
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let paranoid = paranoid.and_then(|text| text.trim().parse().ok());
    let mut refused: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for cpu in machine.online() {
        let unit = units.get(&cpu).copied().unwrap_or(0);
        let event = |(map, kind, number): &(&'static str, u32, u64)| {
            (*map, open(cpu, *kind, unit << UNIT_SHIFT | number))
        };
        let opened: Vec<_> = wanted.iter().map(event).collect();
        // One without the others is of no use.
        if let Some(error) = opened.iter().find_map(|(_, event)| event.as_ref().err()) {
            let why = advice(error, paranoid);
            refused.entry(why).or_default().push(cpu);
            continue;
        }
        for (map, event) in opened {
            // The map keeps the event once it has it.
            if let Ok(event) = event {
                let event = event.as_raw_fd().to_ne_bytes();
                loaded.set_map_value(map, &cpu.to_ne_bytes(), &event)?;
            }
        }
    }
    if let Some(warning) = warning(&refused, machine.online().count()) {
        loaded.warn(warning);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_hybrid_x86_each_kind_of_core_has_its_own_unit() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(units(folder.path()), BTreeMap::new());
        for (name, number, cpus) in [("cpu_core", "4\n", "0-3\n"), ("cpu_atom", "10\n", "4,6\n")] {
            let unit = folder.path().join(name);
            std::fs::create_dir(&unit).unwrap();
            std::fs::write(unit.join("type"), number).unwrap();
            std::fs::write(unit.join("cpus"), cpus).unwrap();
        }
        // One that cannot be read is none.
        std::fs::create_dir(folder.path().join("cpu_lowpower")).unwrap();
        let expected = [(0, 4), (1, 4), (2, 4), (3, 4), (4, 10), (6, 10)];
        assert_eq!(units(folder.path()), expected.into());
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let said = |code| advice(&io::Error::from_raw_os_error(code), Some(2));
        for (code, words) in [
            (libc::EACCES, "kernel.perf_event_paranoid to 0 (it is 2)"),
            (libc::EPERM, "CAP_PERFMON"),
            (libc::ENOENT, "virtual machine without a PMU"),
            (libc::EMFILE, "LimitNOFILE"),
            (libc::EBUSY, "another"),
            (libc::EIO, "os error 5"),
        ] {
            assert!(said(code).contains(words), "{}", said(code));
        }
    }

    #[test]
    fn refusals_are_told_once_each() {
        let refused = |list: &[(&str, &[u32])]| {
            let own = list.iter().map(|(why, on)| (why.to_string(), on.to_vec()));
            warning(&own.collect(), 3).map(|w| w.rsplit_once("them: ").unwrap().1.to_string())
        };
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&[("no", &[0, 1, 2])]).as_deref(), Some("no"));
        let two = refused(&[("busy", &[2]), ("no", &[0, 1])]);
        assert_eq!(two.as_deref(), Some("on CPUs 2: busy; on CPUs 0,1: no"));
    }
}
