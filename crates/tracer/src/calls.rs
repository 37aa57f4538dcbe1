// SPDX-License-Identifier: GPL-2.0-only
//! How often the kernel's functions on the path of a VM are called. `bpf/calls.bpf.c` counts, this reads.
use berth_host::model::Vm;
use berth_host::profile::{Calls, Count, Functions};
use berth_scx::{ScxError, Watcher};
use std::time::Instant;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/calls.bpf.o"));
// As in the object.
const MAX_THREADS: usize = 32_768;

/// Why calls cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    #[error(
        "this kernel does not count calls of its functions: {0} (it takes root, and Linux 6.5 or newer with \
         CONFIG_FPROBE)"
    )]
    Refused(ScxError),
    #[error(
        "which functions of this kernel can be watched is not to be had: {0} (it takes root, tracefs, and Linux 6.5 or \
         newer)"
    )]
    NoList(std::io::Error),
    #[error(
        "this kernel has no function on the path of VMs that can be watched: is there a bridge, a tap, KVM?"
    )]
    None,
}

/// Counts from its start on; dropping it ends it.
pub struct CallCounter {
    watcher: Watcher,
    functions: Functions,
    vm: String,
    begun: Instant,
}

impl CallCounter {
    /// Begins to count all calls of these functions, and those by threads of the VM.
    ///
    /// # Errors
    /// No functions, no right to, or a kernel that cannot.
    pub fn start(vm: &Vm, functions: Functions) -> Result<CallCounter, CallsError> {
        if functions.names.is_empty() {
            return Err(CallsError::None);
        }
        let watcher = Watcher::on_calls(OBJECT, &functions.addresses, "counts");
        let watcher = watcher.map_err(CallsError::Refused)?;
        for thread in vm.threads.iter().take(MAX_THREADS) {
            let tid = thread.id.tid.to_ne_bytes();
            let told = watcher.set("members", &tid, &1u32.to_ne_bytes());
            told.map_err(CallsError::Refused)?;
        }
        Ok(CallCounter {
            watcher,
            functions,
            vm: vm.name.clone(),
            begun: Instant::now(),
        })
    }

    /// What was counted until now.
    ///
    /// # Errors
    /// The kernel does not give it.
    pub fn read(&self) -> Result<Calls, CallsError> {
        let mut calls = Calls {
            vm: self.vm.clone(),
            seconds: self.begun.elapsed().as_secs_f64(),
            watched: self.functions.names.len(),
            ..Calls::default()
        };
        let whole = self.watcher.per_cpu("counts", self.functions.names.len());
        let whole = whole.map_err(CallsError::Refused)?;
        for (at, cpus) in whole.iter().enumerate() {
            let mut count = Count::default();
            for cpu in cpus {
                count.all += super::word(cpu, 0);
                count.of_vm += super::word(cpu, 8);
            }
            if count.all > 0 {
                let part = calls.calls.entry(self.functions.parts[at].clone());
                // Two modules may have functions of one name.
                let name = calls.functions.entry(self.functions.names[at].clone());
                for sum in [part.or_default(), name.or_default()] {
                    sum.all += count.all;
                    sum.of_vm += count.of_vm;
                }
            }
        }
        calls.lost = self.watcher.missed();
        Ok(calls)
    }
}
