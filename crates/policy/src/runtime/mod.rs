// SPDX-License-Identifier: GPL-2.0-only
//! Helpers and kfuncs that need no machine: maps, masks, memory, strings, iterators over numbers and bits.
//!
//! Functions inlined into translated code (`rt.h`) are here too: the interpreter calls them.
//! Every pointer from a policy is checked before it is followed, except in the operands of the map and
//! mask functions, where the interpreter checks them by the prototype and native code may fault as its
//! own loads and stores do (the fault is then reported as a bad access of the kernel function).
use crate::abi::{Inst, KernelFn};
use crate::instance::Instance;

mod control;
pub mod format;
mod map_calls;
pub mod mask;
mod mask_calls;
mod memory;
pub mod objects;
mod print;

/// What the functions here keep per instance.
pub struct State {
    /// State of `bpf_get_prandom_u32`.
    random: u64,
    /// Masks made by the policy.
    pub masks: mask::Masks,
    /// Other objects made by the policy.
    pub objects: objects::Objects,
    /// Last choice of `bpf_cpumask_any_distribute`, per calling CPU.
    distribute: Vec<u32>,
    /// Bits of running bit iterators that do not fit their on-stack state.
    bits: std::collections::BTreeMap<u64, Box<[u64]>>,
    /// Lines printed by the policy.
    pub prints: u64,
    /// The lines, if they are kept.
    pub print_log: Option<Vec<String>>,
}

impl State {
    pub fn new(nr_cpus: u32, seed: u64) -> Self {
        State {
            random: seed,
            masks: mask::Masks::new(nr_cpus),
            objects: objects::Objects::default(),
            distribute: vec![0; nr_cpus as usize],
            bits: std::collections::BTreeMap::new(),
            prints: 0,
            print_log: None,
        }
    }

    /// SplitMix64, high half.
    fn random_u32(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }
}

/// Defines kernel functions: the body sees the instance, the raw pointer and the named arguments as u64.
macro_rules! kernel_fns {
    ($( $(#[$m:meta])* fn $name:ident ($inst:ident, $raw:ident $(, $a:ident)*) $body:block )*) => {
        $(
            $(#[$m])*
            pub(super) unsafe extern "C" fn $name(
                $raw: *mut $crate::abi::Inst, a1: u64, a2: u64, a3: u64, a4: u64, a5: u64,
            ) -> u64 {
                // SAFETY: called by policy code with its own instance.
                let $inst = unsafe { $crate::instance::Instance::of($raw) };
                let _ = $inst;
                let mut _args = [a1, a2, a3, a4, a5].into_iter();
                $( let $a = _args.next().unwrap_or(0); )*
                $body
            }
        )*
        pub(super) const TABLE: &[(&str, $crate::abi::KernelFn)] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use kernel_fns;

/// The function called `name`.
///
/// # Panics
/// A row of the table says this crate has the function and it has not: found by the test below.
pub fn function(name: &str) -> KernelFn {
    if name == "berth_trap" {
        return crate::native::TRAP_FN;
    }
    tables()
        .find(|(n, _)| *n == name)
        .unwrap_or_else(|| panic!("kernel function {name} has no code in berth-policy"))
        .1
}

fn tables() -> impl Iterator<Item = &'static (&'static str, KernelFn)> {
    [
        control::TABLE,
        map_calls::TABLE,
        mask_calls::TABLE,
        memory::TABLE,
        objects::TABLE,
        print::TABLE,
    ]
    .into_iter()
    .flatten()
}

/// May a policy read these bytes? Its own stack counts: it lies just above this frame.
fn readable(inst: &Instance, address: u64, size: u32) -> bool {
    on_stack(inst, address, size) || inst.may_access(address, size, false)
}

fn writable(inst: &Instance, address: u64, size: u32) -> bool {
    on_stack(inst, address, size) || inst.may_access(address, size, true)
}

/// Most a chain of BPF frames and the runtime's own frames can take, bytes.
const STACK_REACH: u64 = 64 << 10;

fn on_stack(inst: &Instance, address: u64, size: u32) -> bool {
    if let Some(fence) = inst.fence() {
        return fence.on_stack(address, size);
    }
    let here = 0u8;
    let low = (&raw const here) as u64;
    address > low && address.saturating_add(u64::from(size)) < low + STACK_REACH
}

/// What the processor would do with a NULL or nonsensical pointer in the policy's own code: translated code
/// is left with a bad access. (The interpreter has checked before. Nothing between here and the policy needs
/// undoing.)
fn touch(raw: *mut Inst, address: u64, write: bool) {
    /// No program has memory below this (NULL plus a field's offset, small numbers)...
    const LOWEST: u64 = 1 << 16;
    /// ...or from here on.
    const END: u64 = 1 << 48;
    // SAFETY: called by policy code with its own instance.
    unsafe {
        if !(LOWEST..END).contains(&address) && !(*raw).code.is_null() {
            let write = u64::from(write);
            crate::native::TRAP_FN(raw, crate::native::TRAP_ACCESS, address, write, 0, 0);
        }
    }
}

/// The raw instance as a mutable place, for fields like the CPU.
fn cpu(raw: *mut Inst) -> u32 {
    // SAFETY: valid for the whole call; read only.
    unsafe { (*raw).cpu }
}

#[cfg(test)]
mod tests {
    use crate::table::{FUNCS, Home};

    #[test]
    fn table_and_code_agree() {
        let mut expected: Vec<_> = FUNCS
            .iter()
            .skip(1)
            .filter(|f| f.home != Home::Kernel)
            .map(|f| f.name)
            .collect();
        let mut have: Vec<_> = super::tables().map(|(n, _)| *n).collect();
        expected.sort_unstable();
        have.sort_unstable();
        assert_eq!(expected, have);
    }
}
