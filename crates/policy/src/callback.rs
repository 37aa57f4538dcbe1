// SPDX-License-Identifier: GPL-2.0-only
//! How functions of the runtime and of the kernel model call back into the policy (`bpf_loop`,
//! `bpf_for_each_map_elem`), whichever executor runs it.
use crate::abi::Inst;
use crate::instance::Instance;
use crate::interp;

/// Calls the policy function that `value` (`FUNC_TAG | FuncId`) names. Something that is no function gives 1, which
/// every iterating helper takes as "stop".
///
/// In checked mode (`Inst.code` is NULL) the callback may trap: then this returns 1 as well, and the interpreter
/// raises the trap as soon as the helper returns.
///
/// # Safety
/// `inst` is the instance whose callback is being executed on this thread.
pub unsafe fn call_back(inst: *mut Inst, value: u64, args: [u64; 5]) -> u64 {
    // SAFETY: the caller's promise; the function number was checked.
    unsafe {
        let Some(func) = Instance::of(inst).function(value) else {
            return 1;
        };
        let code = (*inst).code;
        if code.is_null() {
            return interp::call_back(inst, func, args);
        }
        let [a, b, c, d, e] = args;
        (*code.add(func))(inst, a, b, c, d, e)
    }
}
