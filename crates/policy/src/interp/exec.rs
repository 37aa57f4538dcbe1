// SPDX-License-Identifier: GPL-2.0-only
//! The instruction loop.
use super::{MAX_FRAMES, MAY_GOTO_ROUNDS, Position, Run, STACK, alu, endian, holds};
use crate::abi::{FUNC_TAG, Trap, TrapKind};
use crate::ir::{AtomicOp, Func, FuncId, Insn, Operation, Size, Src};

/// Registers; the index of an instruction has four bits, so every index is inside.
type Regs = [u64; 16];

fn reg(regs: &Regs, r: u8) -> u64 {
    regs[usize::from(r & 15)]
}

fn set(regs: &mut Regs, r: u8, value: u64) {
    regs[usize::from(r & 15)] = value;
}

fn source(regs: &Regs, src: Src) -> u64 {
    match src {
        Src::Reg(r) => reg(regs, r),
        Src::Imm(i) => i64::from(i) as u64,
    }
}

fn bytes(size: Size) -> u32 {
    match size {
        Size::B1 => 1,
        Size::B2 => 2,
        Size::B4 => 4,
        Size::B8 => 8,
    }
}

fn zero_extended(value: u64, size: Size) -> u64 {
    match size {
        Size::B1 => u64::from(value as u8),
        Size::B2 => u64::from(value as u16),
        Size::B4 => u64::from(value as u32),
        Size::B8 => value,
    }
}

fn sign_extended(value: u64, size: Size) -> u64 {
    match size {
        Size::B1 => value as i8 as u64,
        Size::B2 => value as i16 as u64,
        Size::B4 => value as i32 as u64,
        Size::B8 => value,
    }
}

/// # Safety
/// The bytes are readable.
unsafe fn read(address: u64, size: Size) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            Size::B1 => (address as *const u8).read().into(),
            Size::B2 => (address as *const u16).read_unaligned().into(),
            Size::B4 => (address as *const u32).read_unaligned().into(),
            Size::B8 => (address as *const u64).read_unaligned(),
        }
    }
}

/// # Safety
/// The bytes are writable.
unsafe fn write(address: u64, size: Size, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        match size {
            Size::B1 => (address as *mut u8).write(value as u8),
            Size::B2 => (address as *mut u16).write_unaligned(value as u16),
            Size::B4 => (address as *mut u32).write_unaligned(value as u32),
            Size::B8 => (address as *mut u64).write_unaligned(value),
        }
    }
}

impl Run<'_> {
    /// Calls a BPF function with a fresh stack.
    ///
    /// # Safety
    /// The run's promise.
    pub(super) unsafe fn call(&self, func: FuncId, args: [u64; 5]) -> Result<u64, Trap> {
        let Some(f) = self.program.funcs.get(func) else {
            return Err(self.trap_outside(TrapKind::Unrunnable {
                what: format!("function number {func}, which does not exist"),
            }));
        };
        // In this Rust frame, as translated code has it in its C frame: what lies on a policy's stack is above
        // every frame of the kernel functions it calls.
        let mut stack = [0u64; STACK / 8];
        let base = stack.as_mut_ptr() as u64;
        if self.stacks.borrow().len() >= MAX_FRAMES {
            return Err(self.trap(
                f,
                0,
                TrapKind::CallDepth {
                    frames: MAX_FRAMES as u32,
                },
            ));
        }
        self.stacks.borrow_mut().push(base);
        let mut regs: Regs = [0; 16];
        regs[1..=5].copy_from_slice(&args);
        regs[10] = base + STACK as u64;
        // SAFETY: the run's promise.
        let result = unsafe { self.execute(func, f, &mut regs) };
        self.stacks.borrow_mut().pop();
        result
    }

    /// # Safety
    /// The run's promise.
    unsafe fn execute(&self, func: FuncId, f: &Func, regs: &mut Regs) -> Result<u64, Trap> {
        let blocks = &self.prepared.blocks[func];
        let mut rounds = MAY_GOTO_ROUNDS;
        let mut entered = false;
        let mut pc = 0;
        while let Some(insn) = f.insns.get(pc) {
            if blocks[pc] != 0 {
                // SAFETY: the run's promise.
                unsafe { (*self.inst).insns += u64::from(blocks[pc]) };
                if !entered {
                    entered = true;
                    self.budget(f, pc)?;
                }
            }
            let jump = match insn.op {
                Operation::Jump { target } => Some(target),
                Operation::JumpIf {
                    wide,
                    cond,
                    dst,
                    src,
                    target,
                } => holds(wide, cond, reg(regs, dst), source(regs, src)).then_some(target),
                Operation::MayGoto { target } => {
                    if rounds == 0 {
                        Some(target)
                    } else {
                        rounds -= 1;
                        None
                    }
                }
                Operation::Exit => return Ok(regs[0]),
                _ => {
                    // SAFETY: the run's promise.
                    unsafe { self.step(func, pc, insn, regs) }?;
                    None
                }
            };
            pc = match jump {
                Some(target) => {
                    let target = target as usize;
                    if target <= pc {
                        self.budget(f, pc)?;
                    }
                    target
                }
                None => pc + 1,
            };
        }
        Err(self.trap(
            f,
            f.insns.len().saturating_sub(1),
            TrapKind::Unrunnable {
                what: "a function without exit".into(),
            },
        ))
    }

    fn budget(&self, f: &Func, pc: usize) -> Result<(), Trap> {
        // SAFETY: the run's promise.
        let (insns, limit) = unsafe { ((*self.inst).insns, (*self.inst).insns_limit) };
        if insns > limit {
            return Err(self.trap(f, pc, TrapKind::Budget { insns }));
        }
        Ok(())
    }

    /// An instruction that does not jump.
    ///
    /// # Safety
    /// The run's promise.
    unsafe fn step(
        &self,
        func: FuncId,
        pc: usize,
        insn: &Insn,
        regs: &mut Regs,
    ) -> Result<(), Trap> {
        let f = &self.program.funcs[func];
        match &insn.op {
            &Operation::Alu { wide, op, dst, src } => {
                let value = alu(wide, op, reg(regs, dst), source(regs, src));
                set(regs, dst, value);
            }
            &Operation::Endian { dst, bits, swap } => {
                let value = endian(reg(regs, dst), bits, swap);
                set(regs, dst, value);
            }
            &Operation::Load {
                size,
                signed,
                dst,
                base,
                off,
            } => {
                let address = self.address(f, pc, regs, (base, off), size, false)?;
                // SAFETY: just checked.
                let value = unsafe { read(address, size) };
                set(
                    regs,
                    dst,
                    if signed {
                        sign_extended(value, size)
                    } else {
                        value
                    },
                );
            }
            &Operation::Store {
                size,
                base,
                off,
                src,
            } => {
                let address = self.address(f, pc, regs, (base, off), size, true)?;
                // SAFETY: just checked.
                unsafe { write(address, size, source(regs, src)) };
            }
            &Operation::Atomic {
                size,
                op,
                fetch,
                base,
                off,
                src,
            } => {
                let writes = op != AtomicOp::LoadAcquire;
                let address = self.address(f, pc, regs, (base, off), size, writes)?;
                // SAFETY: just checked.
                unsafe { atomic(regs, size, op, fetch, address, src) };
            }
            &Operation::LoadImm64 { dst, value } => set(regs, dst, value),
            // SAFETY: section and map numbers of a program are inside the instance's tables.
            &Operation::LoadSection {
                dst,
                section,
                offset,
            } => unsafe {
                set(
                    regs,
                    dst,
                    (*(*self.inst).sec.add(section) as u64).wrapping_add(offset),
                );
            },
            // SAFETY: as above.
            &Operation::LoadMap { dst, map } => unsafe {
                set(regs, dst, (*self.inst).map.add(map) as u64);
            },
            &Operation::LoadFunc { dst, func } => set(regs, dst, FUNC_TAG | func as u64),
            &Operation::ArenaCast {
                dst,
                src,
                arena,
                user,
            } => {
                let pointer = reg(regs, src);
                let lower = u64::from(pointer as u32);
                // SAFETY: as above.
                let base = || unsafe { (*(*self.inst).map.add(arena)).data as u64 };
                let value = match user {
                    None if pointer == 0 => 0,
                    None => base() + lower,
                    Some(_) if lower == 0 => 0,
                    Some(upper) => upper + lower,
                };
                set(regs, dst, value);
            }
            &Operation::CallFunc { func } => {
                // SAFETY: the run's promise.
                regs[0] =
                    unsafe { self.call(func, [regs[1], regs[2], regs[3], regs[4], regs[5]]) }?;
            }
            &Operation::CallKernel { id } => {
                let args = [regs[1], regs[2], regs[3], regs[4], regs[5]];
                // SAFETY: the run's promise.
                regs[0] = unsafe { self.call_kernel(func, pc, id, args) }?;
            }
            Operation::CallMissing { name } => {
                return Err(self.trap(
                    f,
                    pc,
                    TrapKind::Unrunnable {
                        what: format!("a call of {name}"),
                    },
                ));
            }
            Operation::Unresolved { what } => {
                return Err(self.trap(f, pc, TrapKind::Unrunnable { what: what.clone() }));
            }
            // The loop's business.
            Operation::Jump { .. }
            | Operation::JumpIf { .. }
            | Operation::MayGoto { .. }
            | Operation::Exit => {}
        }
        Ok(())
    }

    /// Address of an access, if it is allowed.
    fn address(
        &self,
        f: &Func,
        pc: usize,
        regs: &Regs,
        (base, off): (u8, i16),
        size: Size,
        write: bool,
    ) -> Result<u64, Trap> {
        let address = reg(regs, base).wrapping_add(i64::from(off) as u64);
        let size = bytes(size);
        if self.allowed(address, size, write) {
            return Ok(address);
        }
        Err(self.trap(
            f,
            pc,
            TrapKind::BadAccess {
                address,
                size,
                write,
            },
        ))
    }

    fn allowed(&self, address: u64, size: u32, write: bool) -> bool {
        let within = |start: u64, len: u64| {
            address >= start
                && (address - start)
                    .checked_add(size.into())
                    .is_some_and(|end| end <= len)
        };
        let a = &self.arguments;
        self.stacks
            .borrow()
            .iter()
            .rev()
            .any(|&stack| within(stack, STACK as u64))
            || within(a.address, a.size) && (a.writable || !write)
            || self.regions.check(address, size, write)
    }

    /// Calls a kernel function after looking at the pointers it gets.
    ///
    /// # Safety
    /// The run's promise; the instance's table has every function of the kernel table.
    unsafe fn call_kernel(
        &self,
        func: FuncId,
        pc: usize,
        id: u16,
        args: [u64; 5],
    ) -> Result<u64, Trap> {
        let id = usize::from(id);
        if let Some(operands) = self.prepared.operands.get(id) {
            let allowed = |address, size, write| self.allowed(address, size, write);
            // SAFETY: the instance has the program's maps.
            let refused =
                unsafe { operands.refused(self.inst, self.program.maps.len(), &args, allowed) };
            if let Some((address, size, write)) = refused {
                return Err(self.trap(
                    &self.program.funcs[func],
                    pc,
                    TrapKind::BadAccess {
                        address,
                        size,
                        write,
                    },
                ));
            }
        }
        let outer = self.calling.replace((func, pc));
        let [a, b, c, d, e] = args;
        // SAFETY: the run's promise.
        let result = unsafe { (*(*self.inst).fns.add(id))(self.inst, a, b, c, d, e) };
        self.calling.set(outer);
        match self.pending.borrow_mut().take() {
            Some(trap) => Err(trap),
            None => Ok(result),
        }
    }

    fn trap(&self, f: &Func, pc: usize, kind: TrapKind) -> Trap {
        let Position {
            function,
            file,
            line,
        } = self.position(f, pc);
        Trap {
            kind,
            function: Some(function),
            file,
            line,
        }
    }

    pub(super) fn position(&self, f: &Func, pc: usize) -> Position {
        let insn = f.insns.get(pc).filter(|i| i.line != 0);
        Position {
            function: f.name.clone(),
            file: insn
                .and_then(|i| self.program.files.get(i.file as usize))
                .cloned(),
            line: insn.map(|i| i.line),
        }
    }

    fn trap_outside(&self, kind: TrapKind) -> Trap {
        Trap {
            kind,
            function: None,
            file: None,
            line: None,
        }
    }
}

/// One thread per instance: an atomic is a load, an operation and a store.
///
/// # Safety
/// The bytes are readable, and writable unless the operation is a load.
unsafe fn atomic(regs: &mut Regs, size: Size, op: AtomicOp, fetch: bool, address: u64, src: u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if op == AtomicOp::LoadAcquire {
            let value = read(address, size);
            return set(regs, src, value);
        }
        let operand = reg(regs, src);
        if op == AtomicOp::StoreRelease {
            return write(address, size, operand);
        }
        let old = read(address, size);
        if op == AtomicOp::CmpXchg {
            if old == zero_extended(regs[0], size) {
                write(address, size, operand);
            }
            regs[0] = old;
            return;
        }
        let new = match op {
            AtomicOp::Add => old.wrapping_add(operand),
            AtomicOp::Or => old | operand,
            AtomicOp::And => old & operand,
            AtomicOp::Xor => old ^ operand,
            _ => operand,
        };
        write(address, size, new);
        if fetch || op == AtomicOp::Xchg {
            set(regs, src, old);
        }
    }
}
