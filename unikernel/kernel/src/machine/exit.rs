// SPDX-License-Identifier: GPL-2.0-only
//! The end, told to QEMU by its isa-debug-exit device at port 0xf4: QEMU's exit status is twice the code and one.
use super::{port, serial};
use core::panic::PanicInfo;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// Done (QEMU: 1).
    Done = 0,
    /// A check did not hold (QEMU: 3).
    Failed = 1,
    /// A boot option is wrong (QEMU: 5).
    Options = 2,
    /// This machine cannot run it, or lacks what it was to use (QEMU: 7).
    Machine = 3,
    /// It panicked (QEMU: 9).
    Panic = 4,
}

/// Ends everything. Without the device the CPU stops.
pub fn exit(code: Code) -> ! {
    port::interrupts_off();
    // SAFETY: the device's register; where there is none, nothing listens.
    unsafe { port::out32(0xf4, code as u32) }
    loop {
        port::interrupts_off();
        port::halt();
    }
}

/// One line that says why not, then the end.
pub fn refuse(code: Code, why: core::fmt::Arguments<'_>) -> ! {
    serial::line(format_args!("refused: {why}"));
    exit(code)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    port::interrupts_off();
    serial::last_line(format_args!("panic: {info}"));
    exit(Code::Panic)
}

// The precompiled `core` and `alloc` name both; in a kernel that aborts on panics nobody calls them.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() {}
