// SPDX-License-Identifier: GPL-2.0-only
//! A policy after loading: functions of decoded BPF instructions whose relocations are resolved to
//! sections, maps, functions and kernel functions. Translator and interpreter both run exactly this.
use crate::abi::Op;
use crate::loader::calls::Call;
use crate::maps::kind;
use crate::needs::Needs;
use std::collections::BTreeMap;

pub type FuncId = usize;
pub type MapId = usize;
pub type SectionId = usize;

/// Everything needed to run a policy, independent of any machine. Immutable, shared by all instances.
#[derive(Clone, Debug)]
pub struct Program {
    pub funcs: Vec<Func>,
    pub maps: Vec<MapDef>,
    pub sections: Vec<Section>,
    pub structs: Vec<OpsVar>,
    /// SEC("syscall") programs by name.
    pub syscalls: Vec<(String, FuncId)>,
    /// Runs of those by its own loader.
    pub calls: Vec<Call>,
    /// Declarations of its presets ([`crate::presets`]).
    pub presets: Vec<String>,
    /// Source files named by line information.
    pub files: Vec<String>,
    /// What its code can reach of the kernel's objects.
    pub needs: Needs,
    /// Sizes of the types that its code names by number, for objects of its own.
    pub types: BTreeMap<u32, u32>,
}

impl Program {
    /// Does a kernel's verifier look at all that it touches? Not at what is added to a pointer into an arena: kernels
    /// only use its lower half.
    pub fn verified(&self) -> bool {
        self.maps.iter().all(|m| m.kind != kind::ARENA)
    }
}

#[derive(Clone, Debug)]
pub struct Func {
    pub name: String,
    pub insns: Vec<Insn>,
    /// struct_ops and syscall programs get their arguments as one array pointer in r1.
    pub is_entry: bool,
}

/// One decoded instruction. Jump targets are indices into the same function's `insns`;
/// a 16-byte load-immediate is ONE entry here (the translator renumbers targets).
#[derive(Clone, Debug, PartialEq)]
pub struct Insn {
    pub op: Operation,
    /// Index into [`Program::files`] and line; 0 = unknown.
    pub file: u32,
    pub line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Src {
    Reg(u8),
    Imm(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    B1,
    B2,
    B4,
    B8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AluOp {
    Add,
    Sub,
    Mul,
    Div,
    SDiv,
    Mod,
    SMod,
    Or,
    And,
    Xor,
    Lsh,
    Rsh,
    Arsh,
    Neg,
    Mov,
    /// Sign-extending move from 8, 16 or 32 bits.
    MovSx(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cond {
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
    Set,
    SGt,
    SGe,
    SLt,
    SLe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    Add,
    Or,
    And,
    Xor,
    Xchg,
    CmpXchg,
    LoadAcquire,
    StoreRelease,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Alu {
        wide: bool,
        op: AluOp,
        dst: u8,
        src: Src,
    },
    /// Byte swap: `to_be` swaps on little-endian hosts, `to_le` truncates, `swap` always swaps; bits 16, 32, 64.
    Endian {
        dst: u8,
        bits: u8,
        swap: bool,
    },
    Load {
        size: Size,
        signed: bool,
        dst: u8,
        base: u8,
        off: i16,
    },
    Store {
        size: Size,
        base: u8,
        off: i16,
        src: Src,
    },
    /// `base` holds the address, `src` the operand; of a load-acquire, `src` is the destination.
    Atomic {
        size: Size,
        op: AtomicOp,
        fetch: bool,
        base: u8,
        off: i16,
        src: u8,
    },
    LoadImm64 {
        dst: u8,
        value: u64,
    },
    LoadSection {
        dst: u8,
        section: SectionId,
        offset: u64,
    },
    LoadMap {
        dst: u8,
        map: MapId,
    },
    LoadFunc {
        dst: u8,
        func: FuncId,
    },
    /// A pointer into an arena: to the address where it leads, or back to the user pointer with this upper half.
    ArenaCast {
        dst: u8,
        src: u8,
        arena: MapId,
        user: Option<u64>,
    },
    Jump {
        target: u32,
    },
    JumpIf {
        wide: bool,
        cond: Cond,
        dst: u8,
        src: Src,
        target: u32,
    },
    /// may_goto: falls through until the budget of this function's loop is used up (8 Mi), then jumps.
    MayGoto {
        target: u32,
    },
    CallFunc {
        func: FuncId,
    },
    /// Id of [`crate::table::KernelFunc`].
    CallKernel {
        id: u16,
    },
    /// A call to something this runtime does not have. An error only if it can be reached.
    CallMissing {
        name: String,
    },
    /// A CO-RE record that does not resolve. An error only if it can be reached.
    Unresolved {
        what: String,
    },
    Exit,
}

impl Operation {
    /// The register it writes, calls aside.
    pub fn destination(&self) -> Option<u8> {
        match *self {
            Operation::Alu { dst, .. }
            | Operation::Endian { dst, .. }
            | Operation::Load { dst, .. }
            | Operation::LoadImm64 { dst, .. }
            | Operation::LoadSection { dst, .. }
            | Operation::LoadMap { dst, .. }
            | Operation::LoadFunc { dst, .. }
            | Operation::ArenaCast { dst, .. } => Some(dst),
            Operation::Atomic {
                op: AtomicOp::CmpXchg | AtomicOp::StoreRelease,
                ..
            } => None,
            Operation::Atomic { op, fetch, src, .. } => {
                let writes = fetch || matches!(op, AtomicOp::Xchg | AtomicOp::LoadAcquire);
                writes.then_some(src)
            }
            Operation::Store { .. }
            | Operation::Jump { .. }
            | Operation::JumpIf { .. }
            | Operation::MayGoto { .. }
            | Operation::CallFunc { .. }
            | Operation::CallKernel { .. }
            | Operation::CallMissing { .. }
            | Operation::Unresolved { .. }
            | Operation::Exit => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct MapDef {
    pub name: String,
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    pub flags: u32,
    /// Offsets in the value of bpf_timer, bpf_spin_lock and kptr fields.
    pub timers: Vec<u32>,
    pub kptrs: Vec<u32>,
    /// Members of the value, if it is a structure.
    pub fields: Vec<ValueField>,
    /// Of a map of maps: those that its elements lead to at first, by their number.
    pub inner: Vec<(u32, MapId)>,
    /// `map_extra`: of an arena, its first user pointer.
    pub extra: u64,
}

/// A member of a map's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueField {
    pub name: String,
    /// In bytes.
    pub offset: u32,
    /// In bytes.
    pub size: u32,
}

#[derive(Clone, Debug)]
pub struct Section {
    /// `.rodata`, `.data`, `.bss`, `.data.X`, `.bss.X`, `.kconfig`, ...
    pub name: String,
    pub data: Vec<u8>,
    pub readonly: bool,
    pub vars: Vec<Var>,
}

impl Section {
    /// Variables in an arena, which code reaches by user pointers.
    pub const ARENA: &'static str = ".addr_space.1";

    pub fn in_arena(&self) -> bool {
        self.name == Self::ARENA
    }
}

/// A global variable, from BTF.
#[derive(Clone, Debug)]
pub struct Var {
    pub name: String,
    pub offset: u32,
    pub size: u32,
    pub signed: bool,
    /// BTF declaration tags on it (`berth:param ...`).
    pub tags: Vec<String>,
}

/// One `struct sched_ext_ops` variable.
#[derive(Clone, Debug)]
pub struct OpsVar {
    pub var: String,
    pub name: String,
    pub flags: u64,
    pub timeout_ms: u32,
    pub dispatch_max_batch: u32,
    pub exit_dump_len: u32,
    pub hotplug_seq: u64,
    pub ops: Vec<(Op, FuncId)>,
}
