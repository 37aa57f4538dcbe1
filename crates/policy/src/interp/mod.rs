// SPDX-License-Identifier: GPL-2.0-only
//! Executes an [`ir::Program`](crate::ir::Program) instruction by instruction and checks every access: the oracle of
//! the translator, and the *checked mode* that names function, file and line of what a policy does wrong.
//!
//! It works on the very memory translated code works on (sections, maps and kernel objects by their addresses), calls
//! kernel functions through the same table, and counts instructions by the rule of [`crate::blocks`], so a run can
//! change executor between two callbacks without any other difference.
mod alu;
mod exec;
mod operands;

pub use alu::{alu, endian, holds};

use crate::abi::{Inst, Trap};
use crate::blocks;
use crate::ir::{FuncId, Program};
use crate::table::FUNCS;
pub(crate) use operands::Operands;
use std::cell::{Cell, RefCell};

/// What a policy may touch apart from its own stacks: sections, maps, storages, kernel objects.
pub trait Regions {
    /// Whether the policy may read (or, with `write`, write) `size` bytes at `address`.
    fn check(&self, address: u64, size: u32, write: bool) -> bool;
}

/// Memory of one call that belongs to nobody else: the argument array of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arguments {
    pub address: u64,
    /// Bytes.
    pub size: u64,
    pub writable: bool,
}

/// Deepest nesting of BPF functions in one callback, as in the kernel; callbacks of helpers count.
pub const MAX_FRAMES: usize = 8;
/// Stack of one BPF function, bytes.
pub const STACK: usize = 512;
/// Times a function may pass `may_goto` before it jumps.
pub const MAY_GOTO_ROUNDS: u32 = 8 << 20;

/// A program with what the interpreter knows about it beforehand. Made once, shared by instances.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// [`blocks::lengths`] of each function.
    blocks: Vec<Vec<u32>>,
    /// By [`crate::table::KernelFunc::id`].
    operands: Vec<Operands>,
}

impl Prepared {
    pub fn new(program: &Program) -> Prepared {
        Prepared {
            blocks: program.funcs.iter().map(blocks::lengths).collect(),
            operands: FUNCS.iter().map(Operands::of).collect(),
        }
    }

    /// Runs a function of the program this was made from. `Inst.code` must be NULL while it runs, so that helpers
    /// with callbacks come back here (see [`crate::callback`]).
    ///
    /// # Errors
    /// The policy did what it must not do; its data is as it was at that moment.
    ///
    /// # Safety
    /// `inst` and everything it points to is valid and used by this thread alone; `regions` allows valid memory only.
    pub unsafe fn run(
        &self,
        program: &Program,
        inst: *mut Inst,
        func: FuncId,
        args: [u64; 5],
        arguments: Arguments,
        regions: &dyn Regions,
    ) -> Result<u64, Trap> {
        let run = Run {
            program,
            prepared: self,
            inst,
            arguments,
            regions,
            stacks: RefCell::new(Vec::with_capacity(MAX_FRAMES)),
            pending: RefCell::new(None),
            calling: Cell::new((func, 0)),
        };
        let _current = Current::enter(&run);
        // SAFETY: the caller's promise.
        unsafe { run.call(func, args) }
    }
}

/// Runs a function without preparation; see [`Prepared::run`].
///
/// # Errors
/// As [`Prepared::run`].
///
/// # Safety
/// As [`Prepared::run`].
pub unsafe fn run(
    program: &Program,
    inst: *mut Inst,
    func: FuncId,
    args: [u64; 5],
    arguments: Arguments,
    regions: &dyn Regions,
) -> Result<u64, Trap> {
    // SAFETY: the caller's promise.
    unsafe { Prepared::new(program).run(program, inst, func, args, arguments, regions) }
}

/// One callback being executed, with everything it has called.
struct Run<'a> {
    program: &'a Program,
    prepared: &'a Prepared,
    inst: *mut Inst,
    arguments: Arguments,
    regions: &'a dyn Regions,
    /// Lowest addresses of the live stacks, outermost first.
    stacks: RefCell<Vec<u64>>,
    /// Trap inside a helper's callback, waiting for the helper to return.
    pending: RefCell<Option<Trap>>,
    /// Function and instruction of the kernel function call that is under way.
    calling: Cell<(FuncId, usize)>,
}

/// A place in a policy's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub function: String,
    /// `None` if the object has no line information there.
    pub file: Option<String>,
    pub line: Option<u32>,
}

impl std::fmt::Display for Position {
    /// `function f, file.bpf.c:12`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "function {}", self.function)?;
        if let Some(file) = &self.file {
            write!(f, ", {file}")?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
        }
        Ok(())
    }
}

/// Where the policy calls the kernel function that is being executed now, for messages such as "called from a
/// forbidden operation". `None` outside checked mode.
pub fn position(inst: *const Inst) -> Option<Position> {
    let current = CURRENT.get();
    if current.is_null() {
        return None;
    }
    // SAFETY: `Current` removes a run before it ends.
    let run = unsafe { &*current };
    let (func, pc) = run.calling.get();
    std::ptr::eq(run.inst, inst).then(|| run.position(&run.program.funcs[func], pc))
}

thread_local! {
    /// The innermost run of this thread. Runs nest: a kernel function may wake a task, which calls a policy.
    static CURRENT: Cell<*const Run<'static>> = const { Cell::new(std::ptr::null()) };
}

/// Makes a run the innermost one until dropped.
struct Current(*const Run<'static>);

impl Current {
    fn enter(run: &Run) -> Current {
        let run: *const Run = run;
        // The lifetime is erased; the guard ends before the run does.
        Current(CURRENT.replace(run.cast()))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Calls a function of the policy from a kernel function that the interpreter is calling: [`crate::callback`].
///
/// # Safety
/// As [`crate::callback::call_back`].
pub(crate) unsafe fn call_back(inst: *mut Inst, func: FuncId, args: [u64; 5]) -> u64 {
    const STOP: u64 = 1;
    let current = CURRENT.get();
    if current.is_null() {
        return STOP;
    }
    // SAFETY: `Current` removes a run before it ends.
    let run = unsafe { &*current };
    if !std::ptr::eq(run.inst, inst) || run.pending.borrow().is_some() {
        return STOP;
    }
    // SAFETY: the run's own promise.
    match unsafe { run.call(func, args) } {
        Ok(result) => result,
        Err(trap) => {
            *run.pending.borrow_mut() = Some(trap);
            STOP
        }
    }
}
