// SPDX-License-Identifier: GPL-2.0-only
//! Running translated code: the table a translation exports, and entering it so that a trap comes back
//! as a value (`trampoline.c`).
use crate::abi::{Inst, KernelFn, NativeFn, Trap, TrapKind};
use std::ffi::{c_char, c_int};
use std::sync::Once;

/// What every translation exports as `berth_native_NAME` (see `emit.rs`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NativeTable {
    /// Functions by [`crate::ir::FuncId`].
    pub code: *const NativeFn,
    pub count: u64,
    /// The translated code itself: `[start, end)`.
    pub text_start: *const u8,
    pub text_end: *const u8,
    /// Hash of the C text this was compiled from, NUL-terminated.
    pub key: *const c_char,
}

// SAFETY: immutable data and code.
unsafe impl Send for NativeTable {}
// SAFETY: as above.
unsafe impl Sync for NativeTable {}

impl NativeTable {
    /// Functions by [`crate::ir::FuncId`].
    pub fn functions(&self) -> &[NativeFn] {
        // SAFETY: the emitter writes `count` entries.
        unsafe { std::slice::from_raw_parts(self.code, self.count as usize) }
    }

    /// The hash it was compiled under.
    pub fn key_text(&self) -> &str {
        // SAFETY: NUL-terminated text of the emitter.
        let text = unsafe { std::ffi::CStr::from_ptr(self.key) };
        text.to_str().unwrap_or("")
    }

    /// Index of the function whose code is nearest below `pc`.
    fn nearest(&self, pc: u64) -> Option<usize> {
        self.functions()
            .iter()
            .enumerate()
            .map(|(i, f)| (*f as usize as u64, i))
            .filter(|(start, _)| *start <= pc)
            .max()
            .map(|(_, i)| i)
    }
}

/// Why translated code was left.
#[repr(C)]
struct Outcome {
    kind: u64,
    a: u64,
    b: u64,
    pc: u64,
}

/// What came of entering it: `result`, or an outcome.
#[repr(C)]
struct Answer {
    result: u64,
    trapped: u64,
}
const TRAP_BUDGET: u64 = 1;
pub(crate) const TRAP_ACCESS: u64 = 2;
const TRAP_DEPTH: u64 = 3;

unsafe extern "C" {
    fn berth_enter(inst: *mut Inst, args: *const u64, f: NativeFn) -> Answer;
    fn berth_enter_op(inst: *mut Inst, args: *const u64, f: NativeFn) -> Answer;
    fn berth_outcome() -> Outcome;
    fn berth_trap(inst: *mut Inst, kind: u64, a: u64, b: u64, pc: u64, unused: u64) -> u64;
    fn berth_install_handler();
    fn berth_register_code(start: u64, end: u64) -> c_int;
}

/// Entry 0 of every function table: translated code leaves through it.
pub const TRAP_FN: KernelFn = berth_trap;

/// Faults in this translation's code become traps from now on. Call once per loaded translation.
pub fn register(table: &NativeTable) {
    static HANDLER: Once = Once::new();
    // SAFETY: installs process-wide handlers that pass on what is not a policy's.
    HANDLER.call_once(|| unsafe { berth_install_handler() });
    // SAFETY: the range is the translation's own text and stays mapped.
    let failed = unsafe { berth_register_code(table.text_start as u64, table.text_end as u64) };
    assert_eq!(failed, 0, "out of memory");
}

/// How the arguments of translated code are passed.
#[derive(Clone, Copy)]
pub enum Passed<'a> {
    /// One: the address of these, which are an operation's.
    Context(&'a [u64; 6]),
    Registers(&'a [u64; 5]),
}

/// Run `f`. `names` gives the name of a function by its number, for the report of a trap.
///
/// # Safety
/// `f` belongs to `table`, `inst` to an instance of the same policy.
#[inline(always)]
pub unsafe fn enter(
    table: &NativeTable,
    f: NativeFn,
    inst: *mut Inst,
    args: Passed,
    names: impl Fn(usize) -> String,
) -> Result<u64, Box<Trap>> {
    // SAFETY: the caller's promise.
    let answer = unsafe {
        match args {
            Passed::Context(args) => berth_enter_op(inst, args.as_ptr(), f),
            Passed::Registers(args) => berth_enter(inst, args.as_ptr(), f),
        }
    };
    if answer.trapped == 0 {
        return Ok(answer.result);
    }
    // SAFETY: a copy of what this thread wrote last.
    Err(trap(table, &unsafe { berth_outcome() }, names))
}

#[cold]
fn trap(table: &NativeTable, outcome: &Outcome, names: impl Fn(usize) -> String) -> Box<Trap> {
    let kind = match outcome.kind {
        TRAP_BUDGET => TrapKind::Budget { insns: outcome.a },
        TRAP_DEPTH => TrapKind::CallDepth {
            frames: outcome.a as u32,
        },
        // How wide the access was is not known here; the checked mode says it.
        _ => TrapKind::BadAccess {
            address: outcome.a,
            size: 0,
            write: outcome.b != 0,
        },
    };
    Box::new(Trap {
        kind,
        function: table.nearest(outcome.pc).map(names),
        file: None,
        line: None,
    })
}
