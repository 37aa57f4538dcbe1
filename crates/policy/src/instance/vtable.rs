// SPDX-License-Identifier: GPL-2.0-only
//! The functions that policies call, as one table, and what they ask the machine for.
use crate::abi::KernelFn;
use crate::error::{LoadError, Result};
use crate::table::{FUNCS, Home};
use std::collections::BTreeMap;
use std::ffi::c_void;

/// Answers whether a policy may touch kernel memory: machine, address, size, write.
pub type MemoryCheck = unsafe fn(*mut c_void, u64, u32, bool) -> bool;

/// Which readable piece of kernel memory an address lies in, `[start, end)`: machine, address.
pub type MemoryPiece = unsafe fn(*mut c_void, u64) -> Option<(u64, u64)>;

/// What a performance counter of a CPU says: machine, CPU, which of [`crate::maps::perf::EVENTS`]; counter, ns enabled,
/// ns running. `None`: the machine has no such counters.
pub type CounterRead = unsafe fn(*mut c_void, u32, usize) -> Option<[u64; 3]>;

/// The complete function table: this crate's functions and the simulator's kernel model.
#[derive(Clone, Debug)]
pub struct KernelVtable {
    fns: Vec<KernelFn>,
    pub(super) memory: Option<MemoryCheck>,
    pub(super) pieces: Option<MemoryPiece>,
    pub(super) counters: Option<CounterRead>,
}

impl KernelVtable {
    /// `kernel` has every [`Home::Kernel`] row of the table exactly once.
    ///
    /// # Errors
    /// Names what is missing, double or unknown.
    pub fn new(kernel: &[(&'static str, KernelFn)]) -> Result<KernelVtable> {
        let mut given: BTreeMap<&str, KernelFn> = BTreeMap::new();
        for (name, f) in kernel {
            if given.insert(name, *f).is_some() {
                return Err(LoadError::Vtable(format!("{name} is given twice")));
            }
        }
        let mut missing = Vec::new();
        let fns = FUNCS
            .iter()
            .map(|row| match row.home {
                Home::Kernel => given.remove(row.name).unwrap_or_else(|| {
                    missing.push(row.name);
                    crate::native::TRAP_FN
                }),
                Home::Runtime | Home::Inline => crate::runtime::function(row.name),
            })
            .collect();
        if !missing.is_empty() {
            return Err(LoadError::Vtable(format!(
                "missing: {}",
                missing.join(", ")
            )));
        }
        if let Some(extra) = given.keys().next() {
            return Err(LoadError::Vtable(format!(
                "{extra} is not a kernel function of the table"
            )));
        }
        Ok(KernelVtable {
            fns,
            memory: None,
            pieces: None,
            counters: None,
        })
    }

    /// The machine's performance counters; without, no event is ever open.
    pub fn with_counters(mut self, read: CounterRead) -> Self {
        self.counters = Some(read);
        self
    }

    /// In which piece of the machine's own memory, all of which a policy may read, an address lies: what guarded code
    /// need not ask for again. What it says must be so as long as the machine is.
    pub fn with_pieces(mut self, piece: MemoryPiece) -> Self {
        self.pieces = Some(piece);
        self
    }

    /// Which of the machine's own memory (tasks, masks, arguments) a policy may read and write; asked by
    /// the checked mode and by `bpf_probe_read`. Without it, everything outside the instance is allowed.
    pub fn with_memory(mut self, check: MemoryCheck) -> Self {
        self.memory = Some(check);
        self
    }

    pub(super) fn timer_cancel(&self) -> KernelFn {
        crate::table::by_name("bpf_timer_cancel")
            .map_or(crate::native::TRAP_FN, |row| self.fns[row.id as usize])
    }

    pub(crate) fn fns(&self) -> &[KernelFn] {
        &self.fns
    }
}
