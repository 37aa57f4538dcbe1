// SPDX-License-Identifier: GPL-2.0-only
//! The functions a policy may call that need the machine, by name. What a pointer from a policy points to
//! is found out by address, never trusted.
//!
//! To add one: its row in `berth_policy::table` with `Home::Kernel`, then the function here.
mod dsq;
mod idle;
mod objects;
mod state;
mod unloaded;

use super::kernel::Handle;
use super::mutation::Mutation;
use crate::words::TaskId;
use berth_policy::abi::{Inst, KernelFn, Op};
use berth_policy::error::LoadError;
use berth_policy::instance::KernelVtable;
use berth_policy::table::contexts;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The machine of a call.
///
/// # Safety
/// Called by policy code of an instance whose machine was set by `Simulation`.
#[inline(always)]
unsafe fn machine(inst: *mut Inst) -> Handle {
    // SAFETY: the caller's promise; the machine outlives its instance.
    unsafe { Handle::new(NonNull::new_unchecked((*inst).machine.cast())) }
}

/// Are calls from this set of operations counted? Those of functions that choose a CPU, or put or move a thread into a
/// queue.
const fn counts(from: u64) -> bool {
    from == contexts("scx_bpf_select_cpu_dfl")
        || from == contexts("scx_bpf_dsq_insert")
        || from == contexts("scx_bpf_dsq_move_to_local")
        || from == contexts("scx_bpf_dsq_move_set_slice")
}

impl Handle {
    /// May this function be called from the operation in progress (by its number)? If not, the policy is ejected.
    #[inline(always)]
    fn allowed(self, name: &str, from: u64, op: u32) -> bool {
        from >> op & 1 != 0 || self.refuse(name, op)
    }

    #[cold]
    fn refuse(self, name: &str, op: u32) -> bool {
        let op = Op::ALL[op as usize];
        if self.wrong(Mutation::MoveAnywhere) && name.starts_with("scx_bpf_dsq_move") {
            return true;
        }
        self.scx_error(format!(
            "{name}() called from ops.{}, where it is not allowed",
            op.name()
        ));
        false
    }

    /// The task at this address; another address ejects the policy.
    #[inline(always)]
    fn task_arg(self, name: &str, addr: u64) -> Option<TaskId> {
        let about = self.policy.about;
        if self.tasks.is_at(about, addr) {
            return Some(about);
        }
        self.other_task(name, addr)
    }

    /// A task that the operation in progress is not about.
    #[cold]
    fn other_task(self, name: &str, addr: u64) -> Option<TaskId> {
        let task = self.tasks.find(addr);
        if task.is_none() {
            self.bad_task(name, addr);
        }
        task
    }

    #[cold]
    fn bad_task(self, name: &str, addr: u64) {
        if addr == 0 {
            self.scx_error(format!("{name}() called with NULL task"));
        } else {
            self.scx_error(format!("{name}() called with {addr:#x}, which is no task"));
        }
    }
}

/// Defines kernel functions: name, the machine, the arguments by name as u64; result u64. From where one may be called
/// stands in its row.
macro_rules! kernel_fns {
    ($( $(#[$m:meta])* fn $name:ident ($k:ident $(, $a:ident)*) $body:block )*) => {
        $(
            $(#[$m])*
            #[allow(non_snake_case)] // the kernel's own names
            unsafe extern "C" fn $name(
                inst: *mut berth_policy::abi::Inst, a1: u64, a2: u64, a3: u64, a4: u64, a5: u64,
            ) -> u64 {
                // SAFETY: policy code calls with its own instance.
                #[allow(unused_mut)] // some kernel functions only read the machine
                let mut $k = unsafe { crate::scx::kfunc::machine(inst) };
                let mut _args = [a1, a2, a3, a4, a5].into_iter();
                $( let $a = _args.next().unwrap_or(0); )*
                const FROM: u64 = berth_policy::table::contexts(stringify!($name));
                // SAFETY: as above.
                if FROM != u64::MAX
                    && !$k.allowed(stringify!($name), FROM, unsafe { (*inst).op })
                {
                    return 0;
                }
                if const { crate::scx::kfunc::counts(FROM) } {
                    $k.code.queue_calls += 1;
                }
                $body
            }
        )*
        pub(super) const FUNCS: &[(&str, berth_policy::abi::KernelFn)] =
            &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use kernel_fns;

fn all() -> impl Iterator<Item = &'static (&'static str, KernelFn)> {
    dsq::FUNCS
        .iter()
        .chain(idle::FUNCS)
        .chain(objects::FUNCS)
        .chain(state::FUNCS)
}

/// May the policy touch this memory of the machine? (Checked mode, probe reads.)
unsafe fn memory_check(machine: *mut std::ffi::c_void, addr: u64, size: u32, write: bool) -> bool {
    let Some(kernel) = NonNull::new(machine.cast()) else {
        return false;
    };
    // SAFETY: the machine of a running instance.
    let k = unsafe { Handle::new(kernel) };
    k.may_touch(addr, size as usize, write)
}

/// What a performance counter of a CPU says now; nobody has multiplexed it.
unsafe fn counter(machine: *mut std::ffi::c_void, cpu: u32, event: usize) -> Option<[u64; 3]> {
    // SAFETY: the machine of a running instance.
    let mut k = unsafe { Handle::new(NonNull::new(machine.cast())?) };
    let now = k.now;
    let pmu = k.hardware.as_mut()?.pmu.as_mut()?;
    Some([pmu.read(cpu, now)[event], now, now])
}

/// The piece of the machine's own memory around an address.
unsafe fn memory_piece(machine: *mut std::ffi::c_void, addr: u64) -> Option<(u64, u64)> {
    // SAFETY: the machine of a running instance.
    let k = unsafe { Handle::new(NonNull::new(machine.cast())?) };
    k.lasting_piece(addr)
}

fn table(list: &[(&'static str, KernelFn)]) -> Result<KernelVtable, String> {
    let table = KernelVtable::new(list).map_err(|e| e.to_string())?;
    Ok(table
        .with_memory(memory_check)
        .with_pieces(memory_piece)
        .with_counters(counter))
}

/// The table for instances in the simulator.
///
/// # Errors
/// Names the functions that the table and this module do not agree on (a mistake of the programmer).
pub fn vtable() -> Result<&'static KernelVtable, LoadError> {
    static TABLE: OnceLock<Result<KernelVtable, String>> = OnceLock::new();
    let made = TABLE.get_or_init(|| table(&all().copied().collect::<Vec<_>>()));
    made.as_ref().map_err(|e| LoadError::Vtable(e.clone()))
}

/// The same while no scheduler is loaded.
///
/// # Errors
/// As [`vtable`].
pub fn unloaded() -> Result<&'static KernelVtable, LoadError> {
    static TABLE: OnceLock<Result<KernelVtable, String>> = OnceLock::new();
    let made = TABLE.get_or_init(|| {
        let of = |name: &str| unloaded::FUNCS.iter().find(|(n, _)| *n == name);
        let list: Vec<_> = all().map(|f| *of(f.0).unwrap_or(f)).collect();
        table(&list)
    });
    made.as_ref().map_err(|e| LoadError::Vtable(e.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete() {
        vtable().unwrap();
        unloaded().unwrap();
        for (name, _) in unloaded::FUNCS {
            assert!(all().any(|(n, _)| n == name), "{name}");
        }
    }
}
