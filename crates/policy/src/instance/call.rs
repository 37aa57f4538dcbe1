// SPDX-License-Identifier: GPL-2.0-only
//! How a policy's code is called: translated, guarded or interpreted.
use super::{Instance, Mode, NO_FUNC};
use crate::abi::{FUNC_TAG, NativeFn, Op, Trap};
use crate::error::{LoadError, Result};
use crate::interp::Arguments;
use crate::ir::FuncId;
use crate::maps::memory::Block;
use crate::native::Passed;

/// Bytes on both sides of a program's context where nothing lies: so far a constant offset reaches (as in the kernel,
/// where a context has at most 65,535 bytes), so that what is read beyond it is refused whatever the heap has there.
const ALONE: usize = 64 << 10;

/// The call that a call interrupts, and the instructions it may still execute.
struct Outer {
    op: u32,
    left: u64,
}

/// The argument array of an entry, as the interpreter sees it.
fn arguments(context: &[u64], writable: bool) -> Arguments {
    Arguments {
        address: context.as_ptr() as u64,
        size: size_of_val(context) as u64,
        writable,
    }
}

impl Instance {
    /// Does the policy implement `op`?
    #[inline]
    pub fn has(&self, op: Op) -> bool {
        self.ops[op as usize] != NO_FUNC
    }

    /// Call the policy's `op` (0 if it has none). `args` are the operation's arguments, at most six.
    ///
    /// # Errors
    /// The policy trapped; its data is as the trap left it.
    ///
    /// # Safety
    /// Pointers among `args` are what the operation's prototype says and stay valid during the call.
    #[inline(always)]
    pub unsafe fn call(&self, op: Op, args: &[u64]) -> std::result::Result<u64, Trap> {
        let mut context = [0u64; 6];
        for (to, from) in context.iter_mut().zip(args) {
            *to = *from;
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_with(op, &context) }.map_err(|trap| *trap)
    }

    /// [`Instance::call`] with the arguments in place, the rest zero.
    ///
    /// # Errors
    /// As [`Instance::call`].
    ///
    /// # Safety
    /// As [`Instance::call`].
    #[inline(always)]
    pub unsafe fn call_with(&self, op: Op, args: &[u64; 6]) -> std::result::Result<u64, Box<Trap>> {
        let func = self.ops[op as usize];
        if func == NO_FUNC {
            return Ok(0);
        }
        if op == Op::Exit {
            self.complete();
        }
        // SAFETY: the caller's promise; an entry reads its arguments through r1.
        unsafe { self.enter(func as usize, op, Passed::Context(args)) }
    }

    /// Make what only `ops.exit` needs.
    #[cold]
    fn complete(&self) {
        for (i, section) in self.sections.iter().enumerate() {
            // SAFETY: the table is the arena's, and has room for all of them; no code of the policy runs now.
            unsafe {
                let table = (*self.raw.get()).sec.cast_mut();
                table.add(i).write(section.base());
            }
        }
    }

    /// Call a BPF function by its value (a timer's callback), in the context `op`.
    ///
    /// # Errors
    /// As [`Instance::call`]; a value that is no function is a bad access.
    ///
    /// # Safety
    /// As [`Instance::call`].
    pub unsafe fn call_func(
        &self,
        value: u64,
        op: Op,
        args: &[u64],
    ) -> std::result::Result<u64, Trap> {
        let Some(func) = self.function(value) else {
            return Err(Trap {
                kind: crate::abi::TrapKind::BadAccess {
                    address: value,
                    size: 8,
                    write: false,
                },
                function: None,
                file: None,
                line: None,
            });
        };
        let mut registers = [0u64; 5];
        registers[..args.len()].copy_from_slice(args);
        // SAFETY: the caller's promise.
        unsafe { self.enter(func, op, Passed::Registers(&registers)) }.map_err(|trap| *trap)
    }

    /// Run the SEC("syscall") program `name` on `context`, which it may read and write.
    ///
    /// # Errors
    /// No such program, or it trapped.
    ///
    /// # Safety
    /// As [`Instance::call`].
    pub unsafe fn syscall(
        &self,
        name: &str,
        context: &mut [u64],
    ) -> Result<std::result::Result<u64, Trap>> {
        let program = self.policy.program();
        let Some((_, func)) = program.syscalls.iter().find(|(n, _)| n == name) else {
            return Err(LoadError::Setting(format!(
                "the policy has no syscall program `{name}`"
            )));
        };
        let bytes = size_of_val(context);
        let alone = Block::zeroed(bytes + 2 * ALONE)
            .ok_or_else(|| LoadError::Setting("no memory for a program's context".into()))?;
        // SAFETY: inside the block, which is aligned for words, nobody else refers to, and lives as long as the call.
        let copy = unsafe {
            let start = alone.base().add(ALONE).cast::<u64>();
            std::slice::from_raw_parts_mut(start, context.len())
        };
        copy.copy_from_slice(context);
        let (args, whole) = (
            [copy.as_mut_ptr() as u64, 0, 0, 0, 0],
            arguments(copy, true),
        );
        // SAFETY: the caller's promise.
        let result = unsafe {
            match self.mode {
                Mode::Native => {
                    let outer = self.fence.as_ref().map(|f| f.enter(whole));
                    let result = self.enter(*func, Op::Syscall, Passed::Registers(&args));
                    if let (Some(fence), Some(outer)) = (&self.fence, outer) {
                        fence.leave(outer);
                    }
                    result
                }
                Mode::Checked => {
                    let outer = self.begin(Op::Syscall);
                    let result = self.interpret(*func, &args, whole);
                    self.end(outer);
                    result
                }
            }
        };
        context.copy_from_slice(copy);
        Ok(result.map_err(|trap| *trap))
    }

    /// The function a `FUNC_TAG` value stands for.
    pub fn function(&self, value: u64) -> Option<FuncId> {
        let id = (value ^ FUNC_TAG) as usize;
        (id < self.policy.program().funcs.len()).then_some(id)
    }

    #[inline(always)] // as `call`
    unsafe fn enter(
        &self,
        func: FuncId,
        op: Op,
        args: Passed,
    ) -> std::result::Result<u64, Box<Trap>> {
        let raw = self.raw.get();
        // SAFETY: `raw` is valid as long as the instance; no reference into it is held.
        unsafe {
            let outer = self.begin(op);
            let code = (*raw).code;
            let result = if !(*raw).guard.is_null() {
                self.enter_guarded(func, args)
            } else if !code.is_null() {
                let f: NativeFn = *code.add(func);
                crate::native::enter(self.policy.native(), f, raw, args, |i| {
                    self.policy.program().funcs[i].name.clone()
                })
            } else {
                match args {
                    Passed::Context(context) => {
                        let args = [context.as_ptr() as u64, 0, 0, 0, 0];
                        self.interpret(func, &args, arguments(context, false))
                    }
                    Passed::Registers(args) => self.interpret(func, args, Arguments::default()),
                }
            };
            self.end(outer);
            result
        }
    }

    /// # Safety
    /// As [`Instance::call`].
    #[cold]
    unsafe fn enter_guarded(
        &self,
        func: FuncId,
        args: Passed,
    ) -> std::result::Result<u64, Box<Trap>> {
        let fence = self.fence.as_ref().expect("guarded code has one");
        let readable = match args {
            Passed::Context(context) => arguments(context, false),
            // Those of the call around this one, if it is a program's own context.
            Passed::Registers(_) => fence.arguments(),
        };
        let outer = fence.enter(readable);
        let raw = self.raw.get();
        // SAFETY: the caller's promise.
        let result = unsafe {
            let f: NativeFn = *(*raw).code.add(func);
            crate::native::enter(self.policy.native(), f, raw, args, |i| {
                self.policy.program().funcs[i].name.clone()
            })
        };
        fence.leave(outer);
        result
    }

    /// The policy's code runs in the context of `op`, with a budget of its own, until [`Instance::end`].
    #[inline(always)] // as `call`
    fn begin(&self, op: Op) -> Outer {
        let raw = self.raw.get();
        // SAFETY: `raw` is valid as long as the instance; no reference into it is held.
        unsafe {
            let outer = Outer {
                op: (*raw).op,
                left: (*raw).insns_limit.wrapping_sub((*raw).insns),
            };
            (*raw).op = op as u32;
            (*raw).insns_limit = (*raw).insns + self.budget;
            outer
        }
    }

    #[inline(always)] // as `call`
    fn end(&self, outer: Outer) {
        let raw = self.raw.get();
        // SAFETY: as `begin`.
        unsafe {
            (*raw).op = outer.op;
            (*raw).insns_limit = (*raw).insns.wrapping_add(outer.left);
        }
    }

    #[cold]
    unsafe fn interpret(
        &self,
        func: FuncId,
        args: &[u64; 5],
        arguments: Arguments,
    ) -> std::result::Result<u64, Box<Trap>> {
        let (program, raw) = (self.policy.program(), self.raw.get());
        // SAFETY: the caller's promise.
        let result = unsafe {
            let prepared = self.policy.prepared();
            prepared.run(program, raw, func, *args, arguments, self)
        };
        result.map_err(Box::new)
    }
}
