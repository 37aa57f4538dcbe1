// SPDX-License-Identifier: GPL-2.0-only
//! One row per instruction and interesting input, with the result that RFC 9669 asks for, written down by hand.
use berth_policy::ir::{AluOp, AtomicOp, Cond, Operation, Size, Src};

/// A piece of work on registers, and what it leaves in them.
pub struct Case {
    pub name: String,
    pub work: Vec<Operation>,
    pub input: [u64; 10],
    /// Registers that change; all others keep their value.
    pub expected: Vec<(u8, u64)>,
    /// The verifier refuses it, or one kernel treats it unlike another.
    pub kernel: bool,
}

const MIN64: u64 = 1 << 63;
const MIN32: u64 = 1 << 31;
const ALL: u64 = u64::MAX;
const LOW: u64 = u32::MAX as u64;
const MIX: u64 = 0x8123_4567_89ab_cdef;

/// Two's complement.
const fn neg(v: i64) -> u64 {
    v as u64
}

/// 64-bit operation, destination, source, result.
const WIDE: &[(AluOp, u64, u64, u64)] = &[
    (AluOp::Add, 1, 2, 3),
    (AluOp::Add, ALL, 1, 0),
    (AluOp::Add, MIX, neg(-1), MIX - 1),
    (AluOp::Sub, 1, 2, ALL),
    (AluOp::Sub, MIN64, 1, MIN64 - 1),
    (AluOp::Mul, 7, neg(-3), neg(-21)),
    (AluOp::Mul, MIX, 16, 0x1234_5678_9abc_def0),
    (AluOp::Div, 7, 2, 3),
    (AluOp::Div, ALL, 10, 1_844_674_407_370_955_161),
    (AluOp::Div, 7, 0, 0),
    (AluOp::Div, 7, neg(-1), 0),
    (AluOp::SDiv, neg(-7), 2, neg(-3)),
    (AluOp::SDiv, 7, neg(-2), neg(-3)),
    (AluOp::SDiv, neg(-7), 0, 0),
    (AluOp::SDiv, MIN64, neg(-1), MIN64),
    (AluOp::Mod, 7, 4, 3),
    (AluOp::Mod, ALL, 10, 5),
    (AluOp::Mod, MIX, 0, MIX),
    (AluOp::SMod, neg(-7), 4, neg(-3)),
    (AluOp::SMod, 7, neg(-4), 3),
    (AluOp::SMod, neg(-7), 0, neg(-7)),
    (AluOp::SMod, MIN64, neg(-1), 0),
    (AluOp::Or, 0xf0, 0x0f, 0xff),
    (AluOp::Or, 0, neg(-16), neg(-16)),
    (AluOp::And, MIX, 0xffff, 0xcdef),
    (AluOp::And, MIX, neg(-16), MIX - 15),
    (AluOp::Xor, MIX, neg(-1), !MIX),
    (AluOp::Lsh, 1, 63, MIN64),
    (AluOp::Lsh, MIX, 4, 0x1234_5678_9abc_def0),
    (AluOp::Rsh, MIN64, 63, 1),
    (AluOp::Rsh, MIX, 32, 0x8123_4567),
    (AluOp::Arsh, MIN64, 63, ALL),
    (AluOp::Arsh, neg(-16), 2, neg(-4)),
    (AluOp::Arsh, 16, 2, 4),
    (AluOp::Mov, 1, MIX, MIX),
    (AluOp::Mov, 1, neg(-5), neg(-5)),
    (AluOp::MovSx(8), 1, MIX, neg(-0x11)),
    (AluOp::MovSx(8), 1, 0x7f, 0x7f),
    (AluOp::MovSx(16), 1, MIX, neg(-0x3211)),
    (AluOp::MovSx(32), 1, MIX, 0xffff_ffff_89ab_cdef),
    (AluOp::MovSx(32), 1, 0x7fff_ffff, 0x7fff_ffff),
];

/// 64-bit shifts by more than the width: the count is masked. The verifier refuses them as immediates.
const WIDE_MASKED: &[(AluOp, u64, u64, u64)] = &[
    (AluOp::Lsh, 3, 65, 6),
    (AluOp::Rsh, 6, 65, 3),
    (AluOp::Arsh, MIN64, 127, ALL),
    (AluOp::Lsh, MIX, 64, MIX),
];

/// 32-bit operations: the upper half of the result is zero.
const NARROW: &[(AluOp, u64, u64, u64)] = &[
    (AluOp::Add, LOW, 1, 0),
    (AluOp::Add, MIX, MIX, 0x1357_9bde),
    (AluOp::Sub, 0, 1, LOW),
    (AluOp::Sub, MIX, 0xcdef, 0x89ab_0000),
    (AluOp::Mul, MIX, 16, 0x9abc_def0),
    (AluOp::Mul, LOW, LOW, 1),
    (AluOp::Div, MIX, 0x100, 0x0089_abcd),
    (AluOp::Div, MIX, MIN64, 0),
    (AluOp::Div, neg(-7), 0, 0),
    (
        AluOp::SDiv,
        0x1_0000_0000 | (neg(-7) & LOW),
        2,
        neg(-3) & LOW,
    ),
    (AluOp::SDiv, MIN32, neg(-1), MIN32),
    (AluOp::SDiv, 5, MIN64, 0),
    (AluOp::Mod, MIX, 0x100, 0xef),
    (AluOp::Mod, MIX, 0, 0x89ab_cdef),
    (AluOp::SMod, neg(-7), 4, neg(-3) & LOW),
    (AluOp::SMod, MIN32, neg(-1), 0),
    (AluOp::SMod, MIX, 0, 0x89ab_cdef),
    (AluOp::Or, MIX, 0x10, 0x89ab_cdff),
    (AluOp::And, MIX, neg(-1), 0x89ab_cdef),
    (AluOp::Xor, MIX, neg(-1), 0x7654_3210),
    (AluOp::Lsh, 3, 31, MIN32),
    (AluOp::Rsh, MIX, 31, 1),
    (AluOp::Arsh, MIN32, 31, LOW),
    (AluOp::Arsh, MIX, 4, 0xf89a_bcde),
    (AluOp::Mov, ALL, MIX, 0x89ab_cdef),
    (AluOp::Mov, ALL, neg(-1), LOW),
    (AluOp::MovSx(8), 1, MIX, 0xffff_ffef),
    (AluOp::MovSx(16), 1, MIX, 0xffff_cdef),
    (AluOp::MovSx(16), 1, 0x1234, 0x1234),
];

const NARROW_MASKED: &[(AluOp, u64, u64, u64)] = &[
    (AluOp::Lsh, 3, 33, 6),
    (AluOp::Rsh, 6, 33, 3),
    (AluOp::Arsh, MIN32, 63, LOW),
    (AluOp::Lsh, MIX, 32, 0x89ab_cdef),
];

/// Condition, 64 bits, destination, source, taken.
const JUMPS: &[(Cond, bool, u64, u64, bool)] = &[
    (Cond::Eq, true, MIX, MIX, true),
    (Cond::Eq, true, MIX, 0x89ab_cdef, false),
    (Cond::Eq, false, MIX, 0x89ab_cdef, true),
    (Cond::Eq, true, ALL, neg(-1), true),
    (Cond::Ne, true, 1, 2, true),
    (Cond::Ne, false, MIX, 0x89ab_cdef, false),
    (Cond::Gt, true, neg(-1), 1, true),
    (Cond::Gt, true, 1, 1, false),
    (Cond::Gt, false, 0x1_0000_0000, 0, false),
    (Cond::Ge, true, 1, 1, true),
    (Cond::Ge, true, 1, neg(-1), false),
    (Cond::Ge, false, LOW, neg(-1), true),
    (Cond::Lt, true, 1, neg(-1), true),
    (Cond::Lt, true, 2, 2, false),
    (Cond::Lt, false, MIN64, 1, true),
    (Cond::Le, true, 2, 2, true),
    (Cond::Le, true, 3, 2, false),
    (Cond::Le, false, neg(-2), neg(-1), true),
    (Cond::Set, true, MIX, MIN64, true),
    (Cond::Set, true, 6, 1, false),
    (Cond::Set, false, MIX, MIN64, false),
    (Cond::Set, true, MIN64, neg(-1), true),
    (Cond::SGt, true, 1, neg(-1), true),
    (Cond::SGt, true, neg(-1), 1, false),
    (Cond::SGt, false, LOW, 0, false),
    (Cond::SGe, true, neg(-1), neg(-1), true),
    (Cond::SGe, true, MIN64, 0, false),
    (Cond::SGe, false, 0x8000_0000_0000_0000, 0, true),
    (Cond::SLt, true, neg(-1), 0, true),
    (Cond::SLt, true, 0, 0, false),
    (Cond::SLt, false, MIN32, 0, true),
    (Cond::SLe, true, MIN64, MIN64, true),
    (Cond::SLe, true, 1, 0, false),
    (Cond::SLe, false, LOW, 0, true),
];

/// Bits, swap, input, result.
const ENDIAN: &[(u8, bool, u64, u64)] = &[
    (16, true, MIX, 0xefcd),
    (32, true, MIX, 0xefcd_ab89),
    (64, true, MIX, 0xefcd_ab89_6745_2381),
    (16, false, MIX, 0xcdef),
    (32, false, MIX, 0x89ab_cdef),
    (64, false, MIX, MIX),
];

/// Size, signed, offset from a slot that holds MIX, result.
const LOADS: &[(Size, bool, i16, u64)] = &[
    (Size::B1, false, 0, 0xef),
    (Size::B1, false, 7, 0x81),
    (Size::B2, false, 0, 0xcdef),
    (Size::B2, false, 6, 0x8123),
    (Size::B4, false, 0, 0x89ab_cdef),
    (Size::B4, false, 4, 0x8123_4567),
    (Size::B8, false, 0, MIX),
    (Size::B1, true, 0, neg(-0x11)),
    (Size::B1, true, 5, 0x45),
    (Size::B2, true, 0, neg(-0x3211)),
    (Size::B2, true, 4, 0x4567),
    (Size::B4, true, 0, 0xffff_ffff_89ab_cdef),
    (Size::B4, true, 4, 0xffff_ffff_8123_4567),
];

/// Size, offset, stored value, the slot that held MIX afterwards.
const STORES: &[(Size, i16, u64, u64)] = &[
    (Size::B1, 0, 0x11, 0x8123_4567_89ab_cd11),
    (Size::B1, 7, neg(-1), 0xff23_4567_89ab_cdef),
    (Size::B2, 2, 0x2211, 0x8123_4567_2211_cdef),
    (Size::B4, 4, 0x4433_2211, 0x4433_2211_89ab_cdef),
    (Size::B4, 0, neg(-2), 0x8123_4567_ffff_fffe),
    (Size::B8, 0, neg(-2), neg(-2)),
];

/// Operation, fetch, size, operand, r0, the slot that held MIX afterwards, operand register, r0 afterwards.
type AtomicRow = (AtomicOp, bool, Size, u64, u64, u64, u64, u64);
const ATOMICS: &[AtomicRow] = &[
    (AtomicOp::Add, false, Size::B8, 1, 9, MIX + 1, 1, 9),
    (AtomicOp::Add, true, Size::B8, neg(-1), 9, MIX - 1, MIX, 9),
    (
        AtomicOp::Add,
        false,
        Size::B4,
        0x8000_0000,
        9,
        0x8123_4567_09ab_cdef,
        0x8000_0000,
        9,
    ),
    (
        AtomicOp::Add,
        true,
        Size::B4,
        0x1_8000_0000,
        9,
        0x8123_4567_09ab_cdef,
        0x89ab_cdef,
        9,
    ),
    (AtomicOp::Or, false, Size::B8, 0xf0, 9, MIX | 0xf0, 0xf0, 9),
    (
        AtomicOp::Or,
        true,
        Size::B4,
        0xf0,
        9,
        0x8123_4567_89ab_cdff,
        0x89ab_cdef,
        9,
    ),
    (AtomicOp::And, false, Size::B8, 0xff, 9, 0xef, 0xff, 9),
    (
        AtomicOp::And,
        true,
        Size::B4,
        0xff,
        9,
        0x8123_4567_0000_00ef,
        0x89ab_cdef,
        9,
    ),
    (AtomicOp::Xor, false, Size::B8, ALL, 9, !MIX, ALL, 9),
    (AtomicOp::Xor, true, Size::B8, MIX, 9, 0, MIX, 9),
    (AtomicOp::Xchg, true, Size::B8, 5, 9, 5, MIX, 9),
    (
        AtomicOp::Xchg,
        true,
        Size::B4,
        5,
        9,
        0x8123_4567_0000_0005,
        0x89ab_cdef,
        9,
    ),
    (AtomicOp::CmpXchg, true, Size::B8, 5, MIX, 5, 5, MIX),
    (AtomicOp::CmpXchg, true, Size::B8, 5, 9, MIX, 5, MIX),
    (
        AtomicOp::CmpXchg,
        true,
        Size::B4,
        5,
        0x89ab_cdef,
        0x8123_4567_0000_0005,
        5,
        0x89ab_cdef,
    ),
    (
        AtomicOp::CmpXchg,
        true,
        Size::B4,
        5,
        MIX,
        0x8123_4567_0000_0005,
        5,
        0x89ab_cdef,
    ),
    (AtomicOp::CmpXchg, true, Size::B4, 5, 9, MIX, 5, 0x89ab_cdef),
    (AtomicOp::StoreRelease, false, Size::B8, 5, 9, 5, 5, 9),
    (
        AtomicOp::StoreRelease,
        false,
        Size::B4,
        ALL,
        9,
        0x8123_4567_ffff_ffff,
        ALL,
        9,
    ),
    (
        AtomicOp::StoreRelease,
        false,
        Size::B2,
        0x1_2345,
        9,
        0x8123_4567_89ab_2345,
        0x1_2345,
        9,
    ),
    (
        AtomicOp::StoreRelease,
        false,
        Size::B1,
        0x1ff,
        9,
        0x8123_4567_89ab_cdff,
        0x1ff,
        9,
    ),
    (AtomicOp::LoadAcquire, false, Size::B8, 5, 9, MIX, MIX, 9),
    (
        AtomicOp::LoadAcquire,
        false,
        Size::B4,
        5,
        9,
        MIX,
        0x89ab_cdef,
        9,
    ),
    (AtomicOp::LoadAcquire, false, Size::B2, 5, 9, MIX, 0xcdef, 9),
    (AtomicOp::LoadAcquire, false, Size::B1, 5, 9, MIX, 0xef, 9),
];

/// The stack slot that memory rows use.
const SLOT: i16 = -8;

fn registers() -> [u64; 10] {
    std::array::from_fn(|i| 0x1111_1111_1111_1111 * i as u64)
}

/// The value as an immediate, if it is one.
fn immediate(v: u64) -> Option<i32> {
    i32::try_from(v as i64).ok()
}

fn slot(size: Size, src: Src) -> Operation {
    Operation::Store {
        size,
        base: 10,
        off: SLOT,
        src,
    }
}

fn load(size: Size, signed: bool, dst: u8, off: i16) -> Operation {
    Operation::Load {
        size,
        signed,
        dst,
        base: 10,
        off,
    }
}

pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    alu(&mut all, WIDE, true, true);
    alu(&mut all, WIDE_MASKED, true, false);
    alu(&mut all, NARROW, false, true);
    alu(&mut all, NARROW_MASKED, false, false);
    negations(&mut all);
    for &(bits, swap, input, result) in ENDIAN {
        all.push(case(
            format!("endian {bits} swap {swap}"),
            vec![Operation::Endian { dst: 3, bits, swap }],
            &[(3, input)],
            vec![(3, result)],
        ));
    }
    for row in JUMPS {
        jump(&mut all, *row);
    }
    for &(size, signed, offset, result) in LOADS {
        all.push(case(
            format!("load {size:?} signed {signed} at {offset}"),
            vec![
                slot(Size::B8, Src::Reg(2)),
                load(size, signed, 3, SLOT + offset),
            ],
            &[(2, MIX)],
            vec![(3, result)],
        ));
    }
    for &(size, offset, value, result) in STORES {
        let store = |src| Operation::Store {
            size,
            base: 10,
            off: SLOT + offset,
            src,
        };
        let work = |src| {
            vec![
                slot(Size::B8, Src::Reg(2)),
                store(src),
                load(Size::B8, false, 3, SLOT),
            ]
        };
        let input = [(2, MIX), (4, value)];
        all.push(case(
            format!("store {size:?} register at {offset}"),
            work(Src::Reg(4)),
            &input,
            vec![(3, result)],
        ));
        if let Some(i) = immediate(value) {
            all.push(case(
                format!("store {size:?} immediate at {offset}"),
                work(Src::Imm(i)),
                &input,
                vec![(3, result)],
            ));
        }
    }
    for &row in ATOMICS {
        atomic(&mut all, row);
    }
    others(&mut all);
    all
}

/// A case whose inputs differ from [`registers`] where said.
fn case(name: String, work: Vec<Operation>, input: &[(u8, u64)], expected: Vec<(u8, u64)>) -> Case {
    let mut registers = registers();
    for &(r, v) in input {
        registers[usize::from(r)] = v;
    }
    Case {
        name,
        work,
        input: registers,
        expected,
        kernel: true,
    }
}

fn alu(
    all: &mut Vec<Case>,
    rows: &[(AluOp, u64, u64, u64)],
    wide: bool,
    immediates_in_kernel: bool,
) {
    for &(op, dst, src, result) in rows {
        let width = if wide { 64 } else { 32 };
        let work = |src| {
            vec![Operation::Alu {
                wide,
                op,
                dst: 3,
                src,
            }]
        };
        let input = [(3, dst), (4, src)];
        all.push(case(
            format!("{op:?}{width} {dst:#x}, {src:#x} in a register"),
            work(Src::Reg(4)),
            &input,
            vec![(3, result)],
        ));
        if let Some(i) = immediate(src)
            && !matches!(op, AluOp::MovSx(_))
        {
            let mut c = case(
                format!("{op:?}{width} {dst:#x}, {i} immediate"),
                work(Src::Imm(i)),
                &input,
                vec![(3, result)],
            );
            let division = matches!(op, AluOp::Div | AluOp::SDiv | AluOp::Mod | AluOp::SMod);
            c.kernel = immediates_in_kernel && !(division && i == 0);
            all.push(c);
        }
    }
}

fn negations(all: &mut Vec<Case>) {
    for (wide, input, result) in [
        (true, 5, neg(-5)),
        (true, MIN64, MIN64),
        (true, MIX, MIX.wrapping_neg()),
        (false, 5, 0xffff_fffb),
        (false, MIN32, MIN32),
        (false, MIX, 0x7654_3211),
    ] {
        let op = Operation::Alu {
            wide,
            op: AluOp::Neg,
            dst: 3,
            src: Src::Imm(0),
        };
        all.push(case(
            format!("neg wide {wide} {input:#x}"),
            vec![op],
            &[(3, input)],
            vec![(3, result)],
        ));
    }
}

fn jump(all: &mut Vec<Case>, (cond, wide, dst, src, taken): (Cond, bool, u64, u64, bool)) {
    let set = |v| Operation::Alu {
        wide: true,
        op: AluOp::Mov,
        dst: 0,
        src: Src::Imm(v),
    };
    let work = |src| {
        vec![
            set(1),
            Operation::JumpIf {
                wide,
                cond,
                dst: 3,
                src,
                target: 3,
            },
            set(0),
        ]
    };
    let input = [(3, dst), (4, src)];
    let expected = vec![(0, u64::from(taken))];
    let name = format!("{cond:?} wide {wide} {dst:#x}, {src:#x}");
    all.push(case(
        format!("{name} in a register"),
        work(Src::Reg(4)),
        &input,
        expected.clone(),
    ));
    if let Some(i) = immediate(src) {
        all.push(case(
            format!("{name} immediate"),
            work(Src::Imm(i)),
            &input,
            expected,
        ));
    }
}

fn atomic(
    all: &mut Vec<Case>,
    (op, fetch, size, operand, r0, memory, register, result): AtomicRow,
) {
    let work = vec![
        slot(Size::B8, Src::Reg(2)),
        Operation::Atomic {
            size,
            op,
            fetch,
            base: 10,
            off: SLOT,
            src: 4,
        },
        load(Size::B8, false, 3, SLOT),
    ];
    all.push(case(
        format!("atomic {op:?} fetch {fetch} {size:?} {operand:#x}, r0 {r0:#x}"),
        work,
        &[(0, r0), (2, MIX), (4, operand)],
        vec![(0, result), (3, memory), (4, register)],
    ));
}

fn others(all: &mut Vec<Case>) {
    all.push(case(
        "load a 64-bit constant".into(),
        vec![Operation::LoadImm64 { dst: 3, value: MIX }],
        &[],
        vec![(3, MIX)],
    ));
    // Bytes 8..16 of the section are 8, 9, ..., 15.
    all.push(case(
        "load from a section".into(),
        vec![
            Operation::LoadSection {
                dst: 3,
                section: 0,
                offset: 4,
            },
            Operation::Load {
                size: Size::B8,
                signed: false,
                dst: 3,
                base: 3,
                off: 4,
            },
        ],
        &[],
        vec![(3, 0x0f0e_0d0c_0b0a_0908)],
    ));
    let add = |n| Operation::Alu {
        wide: true,
        op: AluOp::Add,
        dst: 3,
        src: Src::Imm(n),
    };
    all.push(case(
        "jump forward".into(),
        vec![
            Operation::JumpIf {
                wide: true,
                cond: Cond::Eq,
                dst: 3,
                src: Src::Imm(7),
                target: 2,
            },
            Operation::Jump { target: 3 },
            add(1),
            add(10),
        ],
        &[(3, 0)],
        vec![(3, 10)],
    ));
    all.push(case(
        "a loop of five rounds".into(),
        vec![
            Operation::Alu {
                wide: true,
                op: AluOp::Mov,
                dst: 9,
                src: Src::Imm(5),
            },
            add(3),
            Operation::Alu {
                wide: true,
                op: AluOp::Sub,
                dst: 9,
                src: Src::Imm(1),
            },
            Operation::JumpIf {
                wide: true,
                cond: Cond::Ne,
                dst: 9,
                src: Src::Imm(0),
                target: 1,
            },
        ],
        &[(3, 1)],
        vec![(3, 16), (9, 0)],
    ));
}
