// SPDX-License-Identifier: GPL-2.0-only
//! Arithmetic of the BPF instruction set (RFC 9669) on plain numbers.
use crate::ir::{AluOp, Cond};

/// Result of `dst = dst op src`. `wide` = 64 bits; else the operation has 32 bits and the upper half of the
/// result is zero. An immediate source comes sign-extended to 64 bits.
pub fn alu(wide: bool, op: AluOp, dst: u64, src: u64) -> u64 {
    if wide {
        alu64(op, dst, src)
    } else {
        u64::from(alu32(op, dst as u32, src as u32))
    }
}

fn alu64(op: AluOp, dst: u64, src: u64) -> u64 {
    match op {
        AluOp::Add => dst.wrapping_add(src),
        AluOp::Sub => dst.wrapping_sub(src),
        AluOp::Mul => dst.wrapping_mul(src),
        AluOp::Div => dst.checked_div(src).unwrap_or(0),
        AluOp::SDiv if src == 0 => 0,
        AluOp::SDiv => (dst as i64).wrapping_div(src as i64) as u64,
        AluOp::Mod => dst.checked_rem(src).unwrap_or(dst),
        AluOp::SMod if src == 0 => dst,
        AluOp::SMod => (dst as i64).wrapping_rem(src as i64) as u64,
        AluOp::Or => dst | src,
        AluOp::And => dst & src,
        AluOp::Xor => dst ^ src,
        AluOp::Lsh => dst.wrapping_shl(src as u32),
        AluOp::Rsh => dst.wrapping_shr(src as u32),
        AluOp::Arsh => (dst as i64).wrapping_shr(src as u32) as u64,
        AluOp::Neg => dst.wrapping_neg(),
        AluOp::Mov => src,
        AluOp::MovSx(8) => src as i8 as u64,
        AluOp::MovSx(16) => src as i16 as u64,
        AluOp::MovSx(_) => src as i32 as u64,
    }
}

fn alu32(op: AluOp, dst: u32, src: u32) -> u32 {
    match op {
        AluOp::Add => dst.wrapping_add(src),
        AluOp::Sub => dst.wrapping_sub(src),
        AluOp::Mul => dst.wrapping_mul(src),
        AluOp::Div => dst.checked_div(src).unwrap_or(0),
        AluOp::SDiv if src == 0 => 0,
        AluOp::SDiv => (dst as i32).wrapping_div(src as i32) as u32,
        AluOp::Mod => dst.checked_rem(src).unwrap_or(dst),
        AluOp::SMod if src == 0 => dst,
        AluOp::SMod => (dst as i32).wrapping_rem(src as i32) as u32,
        AluOp::Or => dst | src,
        AluOp::And => dst & src,
        AluOp::Xor => dst ^ src,
        AluOp::Lsh => dst.wrapping_shl(src),
        AluOp::Rsh => dst.wrapping_shr(src),
        AluOp::Arsh => (dst as i32).wrapping_shr(src) as u32,
        AluOp::Neg => dst.wrapping_neg(),
        AluOp::Mov => src,
        AluOp::MovSx(8) => src as i8 as u32,
        AluOp::MovSx(16) => src as i16 as u32,
        AluOp::MovSx(_) => src,
    }
}

/// Whether a conditional jump is taken; narrow conditions look at the lower halves.
pub fn holds(wide: bool, cond: Cond, dst: u64, src: u64) -> bool {
    let (dst, src, signed_dst, signed_src) = if wide {
        (dst, src, dst as i64, src as i64)
    } else {
        let narrow = |v: u64| (u64::from(v as u32), i64::from(v as i32));
        let ((d, sd), (s, ss)) = (narrow(dst), narrow(src));
        (d, s, sd, ss)
    };
    match cond {
        Cond::Eq => dst == src,
        Cond::Ne => dst != src,
        Cond::Gt => dst > src,
        Cond::Ge => dst >= src,
        Cond::Lt => dst < src,
        Cond::Le => dst <= src,
        Cond::Set => dst & src != 0,
        Cond::SGt => signed_dst > signed_src,
        Cond::SGe => signed_dst >= signed_src,
        Cond::SLt => signed_dst < signed_src,
        Cond::SLe => signed_dst <= signed_src,
    }
}

/// Byte swap (`swap`) or truncation to the low `bits` (16, 32 or 64).
pub fn endian(value: u64, bits: u8, swap: bool) -> u64 {
    match (bits, swap) {
        (16, true) => (value as u16).swap_bytes().into(),
        (16, false) => (value as u16).into(),
        (32, true) => (value as u32).swap_bytes().into(),
        (32, false) => (value as u32).into(),
        (_, true) => value.swap_bytes(),
        (_, false) => value,
    }
}
