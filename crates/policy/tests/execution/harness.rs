// SPDX-License-Identifier: GPL-2.0-only
//! One program, one input, several executors. Every tested function has the same shape: it gets a context of
//! [`CONTEXT`] words, loads its registers from the first ten, does its work, and stores the registers to the next ten.
use berth_policy::abi::{Inst, KernelFn, NativeFn, Trap};
use berth_policy::interp::{Arguments, Prepared, Regions};
use berth_policy::ir::{AluOp, Func, Insn, Operation, Program, Section, Size, Src};
use berth_policy::needs::Needs;

/// Registers in, registers out.
pub const CONTEXT: usize = 20;
/// Bytes of the data section.
pub const SECTION: usize = 64;
/// The register that holds the context; not the work's.
pub const CONTEXT_REG: u8 = 6;
/// Registers that the work may use.
pub const WORK_REGS: [u8; 9] = [0, 1, 2, 3, 4, 5, 7, 8, 9];
/// Bytes of stack that are set before the work.
pub const STACK_USED: i16 = 64;

/// Instructions that no test program needs.
pub const LIMIT: u64 = 100_000_000;

/// What a run leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub registers: [u64; 10],
    pub section: Vec<u8>,
    /// Instructions counted; 0 where the executor does not count.
    pub insns: u64,
}

/// What a run starts with.
#[derive(Clone, Debug)]
pub struct Input {
    pub registers: [u64; 10],
    pub section: Vec<u8>,
}

impl Input {
    pub fn new(registers: [u64; 10]) -> Input {
        Input {
            registers,
            section: (0..SECTION as u8).collect(),
        }
    }
}

/// A function of the common shape; jump targets of `work` count from its own start.
pub fn function(name: String, work: &[Operation]) -> Func {
    let word = |n: u8| i16::from(n) * 8;
    let mut ops = vec![Operation::Alu {
        wide: true,
        op: AluOp::Mov,
        dst: CONTEXT_REG,
        src: Src::Reg(1),
    }];
    for slot in 1..=STACK_USED / 8 {
        ops.push(Operation::Store {
            size: Size::B8,
            base: 10,
            off: -8 * slot,
            src: Src::Imm(i32::from(slot) * 0x0101_0101),
        });
    }
    for r in WORK_REGS {
        ops.push(Operation::Load {
            size: Size::B8,
            signed: false,
            dst: r,
            base: CONTEXT_REG,
            off: word(r),
        });
    }
    let start = ops.len() as u32;
    ops.extend(work.iter().cloned().map(|op| moved(op, start)));
    for r in WORK_REGS {
        ops.push(Operation::Store {
            size: Size::B8,
            base: CONTEXT_REG,
            off: word(10 + r),
            src: Src::Reg(r),
        });
    }
    ops.push(Operation::Alu {
        wide: true,
        op: AluOp::Mov,
        dst: 0,
        src: Src::Imm(0),
    });
    ops.push(Operation::Exit);
    plain(name, ops)
}

/// A function of exactly these operations.
pub fn plain(name: String, ops: Vec<Operation>) -> Func {
    Func {
        name,
        insns: ops
            .into_iter()
            .enumerate()
            .map(|(i, op)| Insn {
                op,
                file: 0,
                line: i as u32 + 1,
            })
            .collect(),
        is_entry: false,
    }
}

/// An operation whose jump target counts from `by` further up.
pub fn moved(mut op: Operation, by: u32) -> Operation {
    match &mut op {
        Operation::Jump { target }
        | Operation::JumpIf { target, .. }
        | Operation::MayGoto { target } => *target += by,
        _ => {}
    }
    op
}

/// A program of these functions with the one section.
pub fn program(funcs: Vec<Func>) -> Program {
    Program {
        funcs,
        maps: Vec::new(),
        sections: vec![Section {
            name: ".data".into(),
            data: vec![0; SECTION],
            readonly: false,
            vars: Vec::new(),
        }],
        structs: Vec::new(),
        syscalls: Vec::new(),
        calls: Vec::new(),
        presets: Vec::new(),
        files: vec!["test.bpf.c".into()],
        needs: Needs::default(),
        types: Default::default(),
    }
}

/// An `Inst` made by hand, with everything it points to.
pub struct Host {
    pub inst: Box<Inst>,
    section: Box<[u64; SECTION / 8]>,
    _sections: Box<[*mut u8]>,
    _fns: Box<[KernelFn]>,
}

impl Host {
    pub fn new(input: &Input, code: *const NativeFn, fns: &[KernelFn]) -> Host {
        let mut section = Box::new([0u64; SECTION / 8]);
        for (word, bytes) in section.iter_mut().zip(input.section.chunks(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("whole words"));
        }
        let sections: Box<[*mut u8]> = Box::new([section.as_mut_ptr().cast()]);
        let fns: Box<[KernelFn]> = fns.into();
        Host {
            inst: Box::new(Inst {
                insns: 0,
                insns_limit: LIMIT,
                now: 0,
                ktime: 0,
                cpu: 0,
                op: 0,
                machine: std::ptr::null_mut(),
                fns: fns.as_ptr(),
                sec: sections.as_ptr(),
                map: std::ptr::null_mut(),
                code,
                nr_cpus: 1,
                guard: std::ptr::null_mut(),
            }),
            section,
            _sections: sections,
            _fns: fns,
        }
    }

    pub fn section(&self) -> Vec<u8> {
        self.section.iter().flat_map(|w| w.to_le_bytes()).collect()
    }
}

impl Regions for Host {
    fn check(&self, address: u64, size: u32, _write: bool) -> bool {
        let start = self.section.as_ptr() as u64;
        address >= start && address - start + u64::from(size) <= SECTION as u64
    }
}

pub fn context(input: &Input) -> [u64; CONTEXT] {
    let mut context = [0; CONTEXT];
    context[..10].copy_from_slice(&input.registers);
    context
}

pub fn registers(context: &[u64; CONTEXT]) -> [u64; 10] {
    let mut out: [u64; 10] = context[10..].try_into().expect("ten registers");
    out[usize::from(CONTEXT_REG)] = 0;
    out
}

/// The interpreter.
pub fn interpret(
    prepared: &Prepared,
    program: &Program,
    func: usize,
    input: &Input,
    limit: u64,
) -> Result<Outcome, Trap> {
    let mut host = Host::new(input, std::ptr::null(), &[]);
    host.inst.insns_limit = limit;
    let mut context = context(input);
    let arguments = Arguments {
        address: context.as_mut_ptr() as u64,
        size: size_of_val(&context) as u64,
        writable: true,
    };
    let inst: *mut Inst = &mut *host.inst;
    // SAFETY: the context and the host's section are all the program may touch.
    unsafe {
        prepared.run(
            program,
            inst,
            func,
            [arguments.address, 0, 0, 0, 0],
            arguments,
            &host,
        )
    }?;
    Ok(Outcome {
        registers: registers(&context),
        section: host.section(),
        insns: host.inst.insns,
    })
}

/// The kernel.
pub fn in_kernel(funcs: &[Func], func: usize, input: &Input) -> Result<Outcome, String> {
    let section = crate::kernel::Section::new(SECTION).map_err(|e| e.to_string())?;
    section.set(&input.section).map_err(|e| e.to_string())?;
    let loaded = crate::kernel::Program::load(&crate::encode::program(funcs, func, section.fd()))?;
    let mut context = context(input);
    loaded.run(&mut context).map_err(|e| e.to_string())?;
    Ok(Outcome {
        registers: registers(&context),
        section: section.get().map_err(|e| e.to_string())?,
        insns: 0,
    })
}
