// SPDX-License-Identifier: GPL-2.0-only
//! Every helper and kfunc that policies may call in the simulator, in one table. The documentation page
//! "what the simulator supports" is generated from it; a call to anything else is refused by name.
use crate::abi::Op;

/// Where the function's code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In `rt.h`, inlined into translated code, and in the interpreter.
    Inline,
    /// In this crate (maps, masks, strings, memory): needs no machine.
    Runtime,
    /// In the simulator's kernel model.
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// BPF helper with its number.
    Helper(u32),
    /// Kernel function found by name (after the last `___suffix` is cut off).
    Kfunc,
}

/// Contexts in which a call is legal; elsewhere the kernel ejects the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contexts {
    Any,
    Only(&'static [Op]),
    Except(&'static [Op]),
}

impl Contexts {
    pub fn allows(self, op: Op) -> bool {
        match self {
            Contexts::Any => true,
            Contexts::Only(ops) => ops.contains(&op),
            Contexts::Except(ops) => !ops.contains(&op),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct KernelFunc {
    /// Index into the function table of [`crate::abi::Inst::fns`].
    pub id: u16,
    pub name: &'static str,
    pub kind: Kind,
    pub home: Home,
    pub contexts: Contexts,
    /// Kernel lines that have it: first (inclusive) and last (exclusive) version, `(0, 0)` = always / still.
    pub since: (u16, u16),
    pub until: (u16, u16),
    /// C prototype, kernel's names, for the docs page and the comparison of flavours.
    pub proto: &'static str,
}
