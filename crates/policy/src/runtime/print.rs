// SPDX-License-Identifier: GPL-2.0-only
//! `bpf_printk` and friends: counted, formatted only when somebody keeps the lines.
use super::{format, kernel_fns};
use crate::instance::Instance;
use crate::maps::EINVAL;

fn print(inst: &Instance, text: impl FnOnce() -> Option<String>) -> u64 {
    // SAFETY: two separate operations; formatting asks `may_access`, which looks at the state as well.
    let keep = unsafe {
        let state = inst.state();
        state.prints += 1;
        state.print_log.is_some()
    };
    if !keep {
        return 0;
    }
    match text() {
        Some(line) => {
            let len = line.len() as u64;
            // SAFETY: one operation.
            if let Some(log) = unsafe { inst.state() }.print_log.as_mut() {
                log.push(line);
            }
            len
        }
        None => EINVAL as u64,
    }
}

kernel_fns! {
    fn bpf_trace_printk(inst, _raw, fmt, _size, a, b, c) {
        print(inst, || format::format_with(inst, fmt, &[a, b, c]))
    }
    fn bpf_trace_vprintk(inst, _raw, fmt, _size, data, data_len) {
        print(inst, || format::format(inst, fmt, data, data_len as u32))
    }
}
