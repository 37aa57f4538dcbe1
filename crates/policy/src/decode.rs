// SPDX-License-Identifier: GPL-2.0-only
//! BPF instructions: bytes to [`crate::ir::Operation`], instruction set versions 1 to 4 (RFC 9669).
use crate::ir::{AluOp, AtomicOp, Cond, Operation, Size, Src};

/// One instruction as encoded; a 16-byte load has the second half's immediate in `next_imm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw {
    pub code: u8,
    pub dst: u8,
    pub src: u8,
    pub off: i16,
    pub imm: i32,
    pub next_imm: i32,
}

pub const CLASS_LD: u8 = 0;
pub const CLASS_LDX: u8 = 1;
pub const CLASS_ST: u8 = 2;
pub const CLASS_STX: u8 = 3;
pub const CLASS_ALU: u8 = 4;
pub const CLASS_JMP: u8 = 5;
pub const CLASS_JMP32: u8 = 6;
pub const CLASS_ALU64: u8 = 7;
/// The 16-byte load of a 64-bit immediate.
pub const LD_IMM64: u8 = 0x18;
/// `call`.
pub const CALL: u8 = 0x85;
/// `call` of a BPF function or of an external one, by relocation.
pub const SRC_CALL: u8 = 1;

/// Bytes of one instruction; `wide` loads use two.
pub const INSN: usize = 8;

impl Raw {
    /// The instruction at `at` (byte offset), `None` at the end.
    pub fn read(code: &[u8], at: usize) -> Option<Raw> {
        let b = code.get(at..at + INSN)?;
        let mut raw = Raw {
            code: b[0],
            dst: b[1] & 15,
            src: b[1] >> 4,
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
            next_imm: 0,
        };
        if raw.is_wide() {
            let n = code.get(at + INSN..at + 2 * INSN)?;
            raw.next_imm = i32::from_le_bytes([n[4], n[5], n[6], n[7]]);
        }
        Some(raw)
    }

    pub fn is_wide(&self) -> bool {
        self.code == LD_IMM64
    }

    pub fn class(&self) -> u8 {
        self.code & 7
    }

    /// Bytes it takes.
    pub fn len(&self) -> usize {
        if self.is_wide() { 2 * INSN } else { INSN }
    }

    fn operand(&self) -> Src {
        if self.code & 8 != 0 {
            Src::Reg(self.src)
        } else {
            Src::Imm(self.imm)
        }
    }
}

/// Where a jump goes, in instruction slots (8 bytes each) after the next one.
pub fn jump_distance(raw: &Raw) -> Option<i32> {
    let class = raw.class();
    match (class, raw.code >> 4) {
        (CLASS_JMP, 8 | 9) | (CLASS_JMP32, 8 | 9) => None,
        // The long jump of version 4.
        (CLASS_JMP32, 0) => Some(raw.imm),
        (CLASS_JMP | CLASS_JMP32, _) => Some(i32::from(raw.off)),
        _ => None,
    }
}

/// Refuses registers that do not exist.
///
/// # Errors
/// In words.
pub fn registers(raw: &Raw) -> Result<(), String> {
    if raw.dst > 10 || raw.src > 10 {
        return Err(format!("a register above r10 (r{}, r{})", raw.dst, raw.src));
    }
    Ok(())
}

/// A cast between the address spaces of an arena: is it one to a user pointer?
///
/// # Errors
/// Between other address spaces.
pub fn cast(raw: &Raw) -> Result<Option<bool>, String> {
    const MOV_REG: u8 = 0xbf;
    match (raw.code, raw.off, raw.imm) {
        (MOV_REG, 1, 1) => Ok(Some(false)),
        (MOV_REG, 1, 0x1_0000) => Ok(Some(true)),
        (MOV_REG, 1, between) => Err(format!("casts between address spaces {between:#x}")),
        _ => Ok(None),
    }
}

/// Decode what needs no relocation. `target` is the index a jump goes to.
///
/// # Errors
/// What is refused, in words.
pub fn decode(raw: &Raw, target: u32) -> Result<Operation, String> {
    registers(raw)?;
    match raw.class() {
        CLASS_ALU | CLASS_ALU64 => alu(raw),
        CLASS_JMP | CLASS_JMP32 => jump(raw, target),
        CLASS_LDX => load(raw),
        CLASS_ST => Ok(Operation::Store {
            size: plain(raw)?,
            base: raw.dst,
            off: raw.off,
            src: Src::Imm(raw.imm),
        }),
        CLASS_STX => store(raw),
        CLASS_LD if raw.is_wide() => Ok(Operation::LoadImm64 {
            dst: raw.dst,
            value: u64::from(raw.imm as u32) | (u64::from(raw.next_imm as u32) << 32),
        }),
        _ => Err(format!(
            "the packet access instruction {:#04x}, which schedulers cannot use",
            raw.code
        )),
    }
}

fn unknown(raw: &Raw) -> String {
    format!(
        "instruction {:#04x} (offset {}, immediate {:#x})",
        raw.code, raw.off, raw.imm
    )
}

fn width(raw: &Raw) -> Size {
    match raw.code & 0x18 {
        0x10 => Size::B1,
        0x08 => Size::B2,
        0x00 => Size::B4,
        _ => Size::B8,
    }
}

/// Mode "memory".
fn plain(raw: &Raw) -> Result<Size, String> {
    if raw.code & 0xe0 == 0x60 {
        Ok(width(raw))
    } else {
        Err(unknown(raw))
    }
}

fn alu(raw: &Raw) -> Result<Operation, String> {
    let wide = raw.class() == CLASS_ALU64;
    let signed = raw.off == 1;
    let op = match (raw.code >> 4, raw.off) {
        (0x0, 0) => AluOp::Add,
        (0x1, 0) => AluOp::Sub,
        (0x2, 0) => AluOp::Mul,
        (0x3, 0 | 1) => {
            if signed {
                AluOp::SDiv
            } else {
                AluOp::Div
            }
        }
        (0x4, 0) => AluOp::Or,
        (0x5, 0) => AluOp::And,
        (0x6, 0) => AluOp::Lsh,
        (0x7, 0) => AluOp::Rsh,
        (0x8, 0) => AluOp::Neg,
        (0x9, 0 | 1) => {
            if signed {
                AluOp::SMod
            } else {
                AluOp::Mod
            }
        }
        (0xa, 0) => AluOp::Xor,
        (0xb, 0) => AluOp::Mov,
        (0xb, 8 | 16) => AluOp::MovSx(raw.off as u8),
        (0xb, 32) if wide => AluOp::MovSx(32),
        (0xc, 0) => AluOp::Arsh,
        (0xd, 0) if matches!(raw.imm, 16 | 32 | 64) => {
            // Class ALU64: always swap. Class ALU: to big endian swaps on this little-endian target.
            let swap = wide || raw.code & 8 != 0;
            return Ok(Operation::Endian {
                dst: raw.dst,
                bits: raw.imm as u8,
                swap,
            });
        }
        _ => return Err(unknown(raw)),
    };
    Ok(Operation::Alu {
        wide,
        op,
        dst: raw.dst,
        src: raw.operand(),
    })
}

fn jump(raw: &Raw, target: u32) -> Result<Operation, String> {
    let wide = raw.class() == CLASS_JMP;
    let cond = match raw.code >> 4 {
        0x0 if raw.code & 8 == 0 => return Ok(Operation::Jump { target }),
        0x0 => return Err("indirect jumps".into()),
        0x1 => Cond::Eq,
        0x2 => Cond::Gt,
        0x3 => Cond::Ge,
        0x4 => Cond::Set,
        0x5 => Cond::Ne,
        0x6 => Cond::SGt,
        0x7 => Cond::SGe,
        0x8 if raw.code & 8 != 0 => return Err("calls through function pointers (callx)".into()),
        0x9 if wide => return Ok(Operation::Exit),
        0xa => Cond::Lt,
        0xb => Cond::Le,
        0xc => Cond::SLt,
        0xd => Cond::SLe,
        0xe if wide && raw.src == 0 => return Ok(Operation::MayGoto { target }),
        _ => return Err(unknown(raw)),
    };
    Ok(Operation::JumpIf {
        wide,
        cond,
        dst: raw.dst,
        src: raw.operand(),
        target,
    })
}

fn load(raw: &Raw) -> Result<Operation, String> {
    let signed = match raw.code & 0xe0 {
        0x60 => false,
        0x80 if width(raw) != Size::B8 => true,
        _ => return Err(unknown(raw)),
    };
    Ok(Operation::Load {
        size: width(raw),
        signed,
        dst: raw.dst,
        base: raw.src,
        off: raw.off,
    })
}

fn store(raw: &Raw) -> Result<Operation, String> {
    if raw.code & 0xe0 == 0x60 {
        return Ok(Operation::Store {
            size: width(raw),
            base: raw.dst,
            off: raw.off,
            src: Src::Reg(raw.src),
        });
    }
    if raw.code & 0xe0 != 0xc0 {
        return Err(unknown(raw));
    }
    const FETCH: i32 = 1;
    let (op, fetch) = match raw.imm {
        0xe1 => (AtomicOp::Xchg, true),
        0xf1 => (AtomicOp::CmpXchg, true),
        0x100 => (AtomicOp::LoadAcquire, true),
        0x110 => (AtomicOp::StoreRelease, false),
        imm => {
            let op = match imm & !FETCH {
                0x00 => AtomicOp::Add,
                0x40 => AtomicOp::Or,
                0x50 => AtomicOp::And,
                0xa0 => AtomicOp::Xor,
                _ => return Err(unknown(raw)),
            };
            (op, imm & FETCH != 0)
        }
    };
    let small = matches!(width(raw), Size::B1 | Size::B2);
    if small && !matches!(op, AtomicOp::LoadAcquire | AtomicOp::StoreRelease) {
        return Err(unknown(raw));
    }
    // A load names the address in the source register and the target in the destination.
    let (base, src) = if op == AtomicOp::LoadAcquire {
        (raw.src, raw.dst)
    } else {
        (raw.dst, raw.src)
    };
    Ok(Operation::Atomic {
        size: width(raw),
        op,
        fetch,
        base,
        off: raw.off,
        src,
    })
}
