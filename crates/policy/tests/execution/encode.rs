// SPDX-License-Identifier: GPL-2.0-only
//! Decoded instructions back to BPF bytes, for the kernel's own execution.
use berth_policy::ir::{AluOp, AtomicOp, Cond, Func, Operation, Size, Src};

const STX: u8 = 3;
const ALU: u8 = 4;
const JMP: u8 = 5;
const JMP32: u8 = 6;
const ALU64: u8 = 7;
const X: u8 = 8;

/// One 8-byte instruction.
fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
    let mut b = [0; 8];
    b[0] = code;
    b[1] = dst | src << 4;
    b[2..4].copy_from_slice(&off.to_le_bytes());
    b[4..8].copy_from_slice(&imm.to_le_bytes());
    b
}

fn size_bits(size: Size) -> u8 {
    match size {
        Size::B1 => 0x10,
        Size::B2 => 0x08,
        Size::B4 => 0x00,
        Size::B8 => 0x18,
    }
}

/// Operation bits and offset field.
fn alu_bits(op: AluOp) -> (u8, i16) {
    match op {
        AluOp::Add => (0x00, 0),
        AluOp::Sub => (0x10, 0),
        AluOp::Mul => (0x20, 0),
        AluOp::Div => (0x30, 0),
        AluOp::SDiv => (0x30, 1),
        AluOp::Or => (0x40, 0),
        AluOp::And => (0x50, 0),
        AluOp::Lsh => (0x60, 0),
        AluOp::Rsh => (0x70, 0),
        AluOp::Neg => (0x80, 0),
        AluOp::Mod => (0x90, 0),
        AluOp::SMod => (0x90, 1),
        AluOp::Xor => (0xa0, 0),
        AluOp::Mov => (0xb0, 0),
        AluOp::MovSx(bits) => (0xb0, bits.into()),
        AluOp::Arsh => (0xc0, 0),
    }
}

fn cond_bits(cond: Cond) -> u8 {
    match cond {
        Cond::Eq => 0x10,
        Cond::Gt => 0x20,
        Cond::Ge => 0x30,
        Cond::Set => 0x40,
        Cond::Ne => 0x50,
        Cond::SGt => 0x60,
        Cond::SGe => 0x70,
        Cond::Lt => 0xa0,
        Cond::Le => 0xb0,
        Cond::SLt => 0xc0,
        Cond::SLe => 0xd0,
    }
}

fn source(src: Src) -> (u8, u8, i32) {
    match src {
        Src::Reg(r) => (X, r, 0),
        Src::Imm(i) => (0, 0, i),
    }
}

fn slots(op: &Operation) -> usize {
    match op {
        Operation::LoadImm64 { .. } | Operation::LoadSection { .. } => 2,
        _ => 1,
    }
}

/// Function `entry` with the functions it calls, as one program. Sections are values of the array map `section_fd`.
pub fn program(all: &[Func], entry: usize, section_fd: i32) -> Vec<u8> {
    let mut order = vec![entry];
    let mut seen = 0;
    while let Some(&f) = order.get(seen) {
        seen += 1;
        for i in &all[f].insns {
            if let Operation::CallFunc { func } = i.op
                && !order.contains(&func)
            {
                order.push(func);
            }
        }
    }
    let funcs: Vec<&Func> = order.iter().map(|&f| &all[f]).collect();
    // Position of every instruction, and of every function's start.
    let mut starts = Vec::new();
    let mut at = Vec::new();
    let mut next = 0;
    for f in &funcs {
        starts.push(next);
        let mut positions = Vec::new();
        for i in &f.insns {
            positions.push(next);
            next += slots(&i.op);
        }
        at.push(positions);
    }
    let mut out = Vec::new();
    for (f, positions) in funcs.iter().zip(&at) {
        for (i, &here) in f.insns.iter().zip(positions) {
            let to = |target: u32| (positions[target as usize] as i64 - here as i64 - 1) as i16;
            let place = |func: usize| {
                order
                    .iter()
                    .position(|&f| f == func)
                    .expect("collected above")
            };
            let call = |func: usize| (starts[place(func)] as i64 - here as i64 - 1) as i32;
            encode(&mut out, &i.op, section_fd, to, call);
        }
    }
    out
}

fn encode(
    out: &mut Vec<u8>,
    op: &Operation,
    section_fd: i32,
    to: impl Fn(u32) -> i16,
    call: impl Fn(usize) -> i32,
) {
    let mut put = |code, dst, src, off, imm| out.extend(insn(code, dst, src, off, imm));
    match *op {
        Operation::Alu { wide, op, dst, src } => {
            let class = if wide { ALU64 } else { ALU };
            let (bits, off) = alu_bits(op);
            let (x, r, imm) = source(src);
            put(class | bits | x, dst, r, off, imm);
        }
        Operation::Endian { dst, bits, swap } => {
            put(
                ALU | 0xd0 | if swap { X } else { 0 },
                dst,
                0,
                0,
                bits.into(),
            );
        }
        Operation::Load {
            size,
            signed,
            dst,
            base,
            off,
        } => {
            put(
                1 | size_bits(size) | if signed { 0x80 } else { 0x60 },
                dst,
                base,
                off,
                0,
            );
        }
        Operation::Store {
            size,
            base,
            off,
            src,
        } => match src {
            Src::Reg(r) => put(STX | 0x60 | size_bits(size), base, r, off, 0),
            Src::Imm(i) => put(2 | 0x60 | size_bits(size), base, 0, off, i),
        },
        Operation::Atomic {
            size,
            op,
            fetch,
            base,
            off,
            src,
        } => {
            let code = STX | 0xc0 | size_bits(size);
            let imm = match op {
                AtomicOp::Add => 0x00,
                AtomicOp::Or => 0x40,
                AtomicOp::And => 0x50,
                AtomicOp::Xor => 0xa0,
                AtomicOp::Xchg => 0xe1,
                AtomicOp::CmpXchg => 0xf1,
                AtomicOp::LoadAcquire => return put(code, src, base, off, 0x100),
                AtomicOp::StoreRelease => 0x110,
            };
            put(code, base, src, off, imm | i32::from(fetch));
        }
        Operation::LoadImm64 { dst, value } => {
            put(0x18, dst, 0, 0, value as i32);
            put(0, 0, 0, 0, (value >> 32) as i32);
        }
        Operation::LoadSection { dst, offset, .. } => {
            put(0x18, dst, 2, 0, section_fd);
            put(0, 0, 0, 0, offset as i32);
        }
        Operation::Jump { target } => put(JMP, 0, 0, to(target), 0),
        Operation::JumpIf {
            wide,
            cond,
            dst,
            src,
            target,
        } => {
            let (x, r, imm) = source(src);
            put(
                if wide { JMP } else { JMP32 } | cond_bits(cond) | x,
                dst,
                r,
                to(target),
                imm,
            );
        }
        Operation::MayGoto { target } => put(JMP | 0xe0, 0, 0, to(target), 0),
        Operation::CallFunc { func } => put(0x85, 0, 1, 0, call(func)),
        Operation::Exit => put(0x95, 0, 0, 0, 0),
        ref other => panic!("not for the kernel: {other:?}"),
    }
}
