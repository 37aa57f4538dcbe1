// SPDX-License-Identifier: GPL-2.0-only
//! How functions of the runtime and of the kernel model call back into the policy (`bpf_loop`,
//! `bpf_for_each_map_elem`).
use crate::abi::Inst;

/// Calls the policy function that `value` (`FUNC_TAG | FuncId`) names. Something that is no function gives 1, which
/// every iterating helper takes as "stop".
///
/// # Safety
/// `inst` is the instance whose callback is being executed on this thread.
pub unsafe fn call_back(inst: *mut Inst, value: u64, args: [u64; 5]) -> u64 {
    // SAFETY: the caller's promise; the function number was checked.
    unsafe {
        let Some(func) = crate::instance::Instance::of(inst).function(value) else {
            return 1;
        };
        let [a, b, c, d, e] = args;
        (*(*inst).code.add(func))(inst, a, b, c, d, e)
    }
}
