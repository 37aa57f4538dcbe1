// SPDX-License-Identifier: GPL-2.0-only
//! Basic blocks: the unit in which both executors count instructions, so that their counts agree at every moment a
//! policy or a trap can observe them.
//!
//! The rule: on entry to a block its number of instructions is added to `Inst.insns`. A block starts at the first
//! instruction, at every jump target and after every jump or exit; calls do not end one. The count is then compared
//! with `Inst.insns_limit` (more than the limit traps) at the start of the first block of a function, on every
//! entry, and before a backward jump (target at or before the jump) is taken.
use crate::ir::{Func, Operation};

/// For each instruction the length of the block that starts there, 0 inside a block.
pub fn lengths(func: &Func) -> Vec<u32> {
    let n = func.insns.len();
    let mut starts = vec![false; n + 1];
    starts[0] = true;
    starts[n] = true;
    for (i, insn) in func.insns.iter().enumerate() {
        if let Some(target) = target(&insn.op) {
            if let Some(start) = starts.get_mut(target as usize) {
                *start = true;
            }
            starts[i + 1] = true;
        }
        if insn.op == Operation::Exit {
            starts[i + 1] = true;
        }
    }
    let mut lengths = vec![0; n];
    let mut first = 0;
    for (i, _) in starts
        .iter()
        .enumerate()
        .skip(1)
        .filter(|&(_, &start)| start)
    {
        lengths[first] = (i - first) as u32;
        first = i;
    }
    lengths
}

/// Where a jump goes.
pub fn target(op: &Operation) -> Option<u32> {
    match *op {
        Operation::Jump { target }
        | Operation::JumpIf { target, .. }
        | Operation::MayGoto { target } => Some(target),
        _ => None,
    }
}
