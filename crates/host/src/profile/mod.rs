// SPDX-License-Identifier: GPL-2.0-only
//! Where the kernel spends its time on the path of a VM: samples by module, on all CPUs, and those in which one of the
//! VM's threads was running.
//!
//! Samples are of time (or of cycles, where the machine counts them), not of calls: a function that is called twice as
//! often for half as long has as many. Calls are counted apart ([`Calls`]), since counting them slows what is counted.
mod functions;
mod ring;
mod symbols;

use crate::model::Vm;
pub use functions::Functions;
use ring::{Mode, Ring};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};
pub use symbols::{OTHER, Symbols};

/// Samples of each CPU in a second.
pub const PER_SECOND: u64 = 997;
/// Between two readings of the rings, which hold some seconds.
const READ: Duration = Duration::from_millis(100);

/// Samples, or calls, of one module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// On all CPUs, whoever ran.
    pub all: u64,
    /// While a thread of the VM ran.
    pub of_vm: u64,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    pub vm: String,
    pub seconds: f64,
    pub cpus: usize,
    /// `cycles`, or `cpu-clock` on a machine without performance counters.
    pub event: &'static str,
    /// By module, or part of the kernel that is built in; `user`: programs; `guest`: guests.
    pub samples: BTreeMap<String, Count>,
    /// Samples that did not fit.
    pub lost: u64,
}

/// Calls that were counted. They are no samples: what is called as often may take longer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Calls {
    pub vm: String,
    pub seconds: f64,
    /// Functions that were watched.
    pub watched: usize,
    /// Calls of all watched functions of a module, or of a part of the kernel that is built in.
    pub calls: BTreeMap<String, Count>,
    /// Of each function that was called.
    pub functions: BTreeMap<String, Count>,
    /// Calls that interrupted the counting of another one on their CPU, and are not counted.
    pub lost: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error(
        "the kernel does not let this user sample all CPUs: {0} (be root, or have CAP_PERFMON)"
    )]
    Refused(io::Error),
    #[error("/proc/kallsyms hides the kernel's addresses from this user: be root (kptr_restrict)")]
    Hidden,
}

/// Watches for so long, or until `stop` says so.
///
/// # Errors
/// This user may not.
pub fn watch(
    vm: &Vm,
    cpus: &[u32],
    time: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<Profile, ProfileError> {
    let text = std::fs::read_to_string("/proc/kallsyms").map_err(ProfileError::Refused)?;
    let symbols = Symbols::read(&text).ok_or(ProfileError::Hidden)?;
    let (event, mut rings) = open(cpus).map_err(ProfileError::Refused)?;
    let threads: BTreeSet<i32> = vm.threads.iter().map(|t| t.id.tid).collect();
    let mut profile = Profile {
        vm: vm.name.clone(),
        seconds: 0.0,
        cpus: rings.len(),
        event,
        samples: BTreeMap::new(),
        lost: 0,
    };
    let begun = Instant::now();
    loop {
        let left = time.saturating_sub(begun.elapsed());
        std::thread::sleep(left.min(READ));
        for ring in &mut rings {
            profile.lost += ring.read(&mut |mode, address, tid| {
                let part = match mode {
                    Mode::Kernel => symbols.part(address),
                    Mode::User => "user",
                    Mode::Guest => "guest",
                };
                // Most samples are of parts that have some.
                let count = match profile.samples.get_mut(part) {
                    Some(count) => count,
                    None => profile.samples.entry(part.to_string()).or_default(),
                };
                count.all += 1;
                count.of_vm += u64::from(threads.contains(&tid));
            });
        }
        if left.is_zero() || stop() {
            break;
        }
    }
    profile.seconds = begun.elapsed().as_secs_f64();
    Ok(profile)
}

/// A ring for each CPU: of cycles, or where there is no counter of them, of time.
fn open(cpus: &[u32]) -> io::Result<(&'static str, Vec<Ring>)> {
    let all = |event| -> io::Result<Vec<Ring>> {
        cpus.iter()
            .map(|cpu| Ring::open(event, *cpu, PER_SECOND))
            .collect()
    };
    match all(ring::Event::Cycles) {
        Ok(rings) => Ok(("cycles", rings)),
        Err(_) => Ok(("cpu-clock", all(ring::Event::CpuClock)?)),
    }
}
