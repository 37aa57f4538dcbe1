// SPDX-License-Identifier: GPL-2.0-only
//! Programs that no verifier has seen: instructions that exist, in an order and with registers that mean nothing, or
//! nearly do what a policy does and then go too far.
use berth_policy::ir::{AluOp, AtomicOp, Cond, Func, Insn, Operation as Op, Program, Size, Src};
use berth_policy::maps::kind;
use berth_policy::table::{FUNCS, by_name};

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Functions that others may call, at the end of every program.
const CALLEES: usize = 6;

/// A program of `base`'s maps and sections with so many functions to run, called by their number.
pub fn program(base: &Program, functions: usize, random: &mut Random) -> Program {
    let all = functions + CALLEES;
    let mut made = base.clone();
    made.structs.clear();
    made.funcs = (0..all)
        .map(|i| {
            let mut writer = Writer {
                base,
                random: &mut *random,
                ops: Vec::new(),
                me: i,
                first_callee: functions,
                all,
            };
            writer.function();
            let insns = writer.ops.into_iter();
            Func {
                name: format!("wild_{i}"),
                insns: insns
                    .map(|op| Insn {
                        op,
                        file: 0,
                        line: 0,
                    })
                    .collect(),
                is_entry: i < functions,
            }
        })
        .collect();
    made.syscalls = (0..functions).map(|i| (i.to_string(), i)).collect();
    made
}

struct Writer<'a> {
    base: &'a Program,
    random: &'a mut Random,
    ops: Vec<Op>,
    me: usize,
    first_callee: usize,
    all: usize,
}

const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    7,
    8,
    63,
    64,
    511,
    512,
    4096,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 63,
    u64::MAX,
];

impl Writer<'_> {
    fn function(&mut self) {
        // What it was called with.
        self.copy(6, 1);
        for _ in 0..4 + self.random.below(10) {
            match self.random.below(10) {
                0..4 => self.nearly(),
                _ => self.anything(),
            }
        }
        self.ops.push(Op::Exit);
        // Jumps know where they can go only now.
        let length = self.ops.len();
        for i in 0..length {
            let far = self.random.below(length) as u32;
            let near = (i + 1 + self.random.below(6)).min(length - 1) as u32;
            let to = if self.random.one_in(6) { far } else { near };
            match &mut self.ops[i] {
                Op::Jump { target } | Op::JumpIf { target, .. } | Op::MayGoto { target } => {
                    *target = to;
                }
                _ => (),
            }
        }
    }

    fn register(&mut self) -> u8 {
        self.random.below(11) as u8
    }

    /// One that may be written; mostly not that with what it was called with.
    fn target(&mut self) -> u8 {
        match self.random.below(10) as u8 {
            6 if !self.random.one_in(8) => 7,
            register => register,
        }
    }

    fn size(&mut self) -> Size {
        self.random.of(&[Size::B1, Size::B2, Size::B4, Size::B8])
    }

    fn number(&mut self) -> u64 {
        match self.random.below(4) {
            0 => self.random.next() >> self.random.below(64),
            1 => self.random.below(64) as u64,
            _ => self.random.of(&NUMBERS),
        }
    }

    fn offset(&mut self) -> i16 {
        match self.random.below(4) {
            0 => self.random.next() as i16,
            1 => 8 * (self.random.below(16) as i16 - 8),
            2 => self.random.below(1200) as i16 - 600,
            _ => 0,
        }
    }

    fn copy(&mut self, dst: u8, src: u8) {
        self.ops.push(Op::Alu {
            wide: true,
            op: AluOp::Mov,
            dst,
            src: Src::Reg(src),
        });
    }

    fn constant(&mut self, dst: u8, value: u64) {
        self.ops.push(Op::LoadImm64 { dst, value });
    }

    fn add(&mut self, dst: u8, value: i32) {
        self.ops.push(Op::Alu {
            wide: true,
            op: AluOp::Add,
            dst,
            src: Src::Imm(value),
        });
    }

    fn call(&mut self, name: &str) {
        let id = by_name(name).expect(name).id;
        self.ops.push(Op::CallKernel { id });
    }

    fn map(&mut self, kinds: &[u32]) -> usize {
        let maps = &self.base.maps;
        let fit: Vec<usize> = (0..maps.len())
            .filter(|i| kinds.is_empty() || kinds.contains(&maps[*i].kind))
            .collect();
        self.random.of(&fit)
    }

    /// A register points to the stack, or a little beside it.
    fn stack(&mut self, dst: u8) {
        let at = match self.random.below(20) {
            0 => self.random.below(1200) as i32 - 600,
            _ => -8 * (1 + self.random.below(64) as i32),
        };
        self.copy(dst, 10);
        self.add(dst, at);
    }

    /// Something that a function might be called with.
    fn argument(&mut self, dst: u8) {
        match self.random.below(18) {
            0 => {
                let value = self.number();
                self.constant(dst, value);
            }
            1 => {
                let map = self.map(&[]);
                self.ops.push(Op::LoadMap { dst, map });
            }
            2 => {
                let section = self.random.below(self.base.sections.len());
                let length = self.base.sections[section].data.len();
                let offset = self.random.below(length + 16) as u64;
                self.ops.push(Op::LoadSection {
                    dst,
                    section,
                    offset,
                });
            }
            3 => {
                let func = self.random.below(self.all);
                self.ops.push(Op::LoadFunc { dst, func });
            }
            // What the call has: a task, a cgroup, a mask.
            4 => {
                let off = 8 * self.random.below(9) as i16;
                self.ops.push(Op::Load {
                    size: Size::B8,
                    signed: false,
                    dst,
                    base: 6,
                    off,
                });
            }
            5 => {
                let src = self.register();
                self.copy(dst, src);
            }
            _ => self.stack(dst),
        }
    }

    /// Base and offset of an access, mostly of one that there is.
    fn place(&mut self) -> (u8, i16) {
        match self.random.below(12) {
            0 => (self.register(), self.offset()),
            1..4 => (6, 8 * self.random.below(8) as i16),
            4..7 => {
                let section = self.random.below(self.base.sections.len());
                let length = self.base.sections[section].data.len();
                let offset = self.random.below(length) as u64;
                self.ops.push(Op::LoadSection {
                    dst: 9,
                    section,
                    offset,
                });
                (9, 0)
            }
            _ => (10, -8 * (1 + self.random.below(60) as i16)),
        }
    }

    /// A word of the stack with a small number, and a register that points to it.
    fn key(&mut self, dst: u8) {
        let value = self.random.below(7) as i32;
        self.ops.push(Op::Store {
            size: Size::B8,
            base: 10,
            off: -16,
            src: Src::Imm(value),
        });
        self.copy(dst, 10);
        self.add(dst, -16);
    }

    /// Reads or writes where r0 points, or beside it.
    fn touch(&mut self) {
        if !self.random.one_in(16) {
            self.ops.push(Op::JumpIf {
                wide: true,
                cond: Cond::Eq,
                dst: 0,
                src: Src::Imm(0),
                target: 0,
            });
        }
        let size = self.size();
        let off = match self.random.one_in(8) {
            true => self.offset(),
            false => 0,
        };
        let op = match self.random.below(3) {
            0 => Op::Load {
                size,
                signed: false,
                dst: 7,
                base: 0,
                off,
            },
            1 => Op::Store {
                size,
                base: 0,
                off,
                src: Src::Reg(8),
            },
            _ => Op::Atomic {
                size: Size::B8,
                op: AtomicOp::Add,
                fetch: true,
                base: 0,
                off,
                src: 7,
            },
        };
        self.ops.push(op);
    }

    /// What policies do, and a step further.
    fn nearly(&mut self) {
        let fit = [
            kind::HASH,
            kind::ARRAY,
            kind::PERCPU_HASH,
            kind::PERCPU_ARRAY,
            kind::LRU_HASH,
        ];
        match self.random.below(13) {
            0 | 1 => {
                let map = self.map(&fit);
                self.key(2);
                self.ops.push(Op::LoadMap { dst: 1, map });
                self.call("bpf_map_lookup_elem");
                self.touch();
            }
            2 => {
                let map = self.map(&fit);
                self.key(2);
                self.argument(3);
                self.ops.push(Op::LoadMap { dst: 1, map });
                let flags = self.random.below(4) as u64;
                self.constant(4, flags);
                self.call("bpf_map_update_elem");
            }
            3 => {
                let map = self.map(&[kind::TASK_STORAGE, kind::CGRP_STORAGE]);
                let task = self.base.maps[map].kind == kind::TASK_STORAGE;
                self.argument(3);
                self.ops.push(Op::Load {
                    size: Size::B8,
                    signed: false,
                    dst: 2,
                    base: 6,
                    off: if task { 0 } else { 8 },
                });
                if self.random.one_in(8) {
                    self.argument(2);
                }
                self.ops.push(Op::LoadMap { dst: 1, map });
                let flags = self.random.below(2) as u64;
                self.constant(4, flags);
                self.call(match task {
                    true => "bpf_task_storage_get",
                    false => "bpf_cgrp_storage_get",
                });
                self.touch();
            }
            4 => {
                let map = self.map(&[kind::ARRAY_OF_MAPS]);
                self.key(2);
                self.ops.push(Op::LoadMap { dst: 1, map });
                self.call("bpf_map_lookup_elem");
                if self.random.one_in(8) {
                    self.touch();
                }
                self.copy(1, 0);
                self.key(2);
                self.argument(3);
                self.constant(4, 0);
                let name = [
                    "bpf_map_update_elem",
                    "bpf_map_lookup_elem",
                    "bpf_map_delete_elem",
                ];
                let name = self.random.of(&name);
                self.call(name);
            }
            5 => {
                self.call("bpf_cpumask_create");
                self.copy(8, 0);
                if self.random.one_in(8) {
                    let off = self.random.below(200) as i32 - 100;
                    self.add(8, off);
                }
                let cpu = self.number();
                self.constant(1, cpu);
                self.copy(2, 8);
                let names = [
                    "bpf_cpumask_set_cpu",
                    "bpf_cpumask_clear_cpu",
                    "bpf_cpumask_test_cpu",
                ];
                let name = self.random.of(&names);
                self.call(name);
                self.argument(1);
                self.copy(2, 8);
                self.call("bpf_kptr_xchg");
                for _ in 0..self.random.below(3) {
                    self.copy(1, 8);
                    self.call("bpf_cpumask_release");
                }
                self.copy(0, 8);
                self.touch();
            }
            6 => {
                let map = self.map(&[kind::RINGBUF]);
                self.ops.push(Op::LoadMap { dst: 1, map });
                let size = self.number();
                self.constant(2, size);
                self.constant(3, 0);
                self.call("bpf_ringbuf_reserve");
                self.copy(8, 0);
                self.touch();
                self.copy(1, 8);
                if self.random.one_in(3) {
                    let off = self.random.below(64) as i32 - 32;
                    self.add(1, off);
                }
                self.constant(2, 0);
                let name = self
                    .random
                    .of(&["bpf_ringbuf_submit", "bpf_ringbuf_discard"]);
                self.call(name);
                self.copy(0, 8);
                self.touch();
            }
            7 | 8 => {
                let map = self.map(&[kind::ARENA]);
                let count = 1 + self.random.below(3) as u64;
                self.ops.push(Op::LoadMap { dst: 1, map });
                self.constant(2, 0);
                self.constant(3, count);
                self.constant(4, 0);
                self.constant(5, 0);
                self.call("bpf_arena_alloc_pages");
                self.copy(8, 0);
                self.cast(0, 8, map, false);
                match self.random.below(10) {
                    0 => {
                        let off = self.random.next() as i32 >> self.random.below(31);
                        self.add(0, off);
                    }
                    _ => {
                        let off = self.random.below(4088) as i32;
                        self.add(0, off);
                    }
                }
                self.touch();
                if self.random.one_in(2) {
                    self.ops.push(Op::LoadMap { dst: 1, map });
                    self.copy(2, 8);
                    let count = self.number();
                    self.constant(3, count);
                    let names = ["bpf_arena_free_pages", "bpf_arena_reserve_pages"];
                    let name = self.random.of(&names);
                    self.call(name);
                    if self.random.one_in(4) {
                        self.cast(0, 8, map, false);
                        self.touch();
                    }
                }
            }
            9 => {
                let func = self.first_callee + self.random.below(CALLEES);
                let rounds = self.random.below(20) as u64;
                self.constant(1, rounds);
                self.ops.push(Op::LoadFunc { dst: 2, func });
                self.argument(3);
                self.constant(4, 0);
                self.call("bpf_loop");
            }
            10 => {
                let func = self.first_callee + self.random.below(CALLEES);
                let map = self.map(&[]);
                self.ops.push(Op::LoadMap { dst: 1, map });
                self.ops.push(Op::LoadFunc { dst: 2, func });
                self.argument(3);
                self.constant(4, 0);
                self.call("bpf_for_each_map_elem");
            }
            11 => {
                self.stack(1);
                self.copy(7, 1);
                self.argument(2);
                let words = self.random.below(20) as u64;
                self.constant(3, words);
                self.call("bpf_iter_bits_new");
                if self.random.one_in(2) {
                    let (off, value) = (self.random.of(&[0i16, 4, 8, 12]), self.number());
                    self.constant(8, value);
                    self.ops.push(Op::Store {
                        size: Size::B4,
                        base: 7,
                        off,
                        src: Src::Reg(8),
                    });
                }
                for _ in 0..3 {
                    self.copy(1, 7);
                    self.call("bpf_iter_bits_next");
                    self.touch();
                }
            }
            _ => {
                let names = [
                    "bpf_probe_read_kernel",
                    "bpf_probe_read_kernel_str",
                    "bpf_snprintf",
                    "bpf_strncmp",
                    "bpf_strtol",
                    "bpf_ringbuf_output",
                    "bpf_perf_event_output",
                    "bpf_map_push_elem",
                    "bpf_map_pop_elem",
                    "bpf_map_peek_elem",
                    "bpf_cpumask_populate",
                    "bpf_trace_vprintk",
                ];
                let name = self.random.of(&names);
                for register in 1..=5 {
                    self.argument(register);
                }
                let size = match self.random.one_in(4) {
                    true => self.number(),
                    false => self.random.below(48) as u64,
                };
                let at = self.random.of(&[2u8, 3, 5]);
                self.constant(at, size);
                self.call(name);
            }
        }
    }

    fn cast(&mut self, dst: u8, src: u8, arena: usize, to_user: bool) {
        let user = to_user.then_some(1 << 44);
        self.ops.push(Op::ArenaCast {
            dst,
            src,
            arena,
            user,
        });
    }

    fn anything(&mut self) {
        let (dst, src, size) = (self.target(), self.register(), self.size());
        let value = self.number();
        let operand = match self.random.one_in(2) {
            true => Src::Reg(src),
            false => Src::Imm(value as i32),
        };
        let wide = !self.random.one_in(4);
        use AluOp::*;
        let alus = [
            Add,
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
            Mov,
            Mov,
            MovSx(8),
        ];
        let conds = [
            Cond::Eq,
            Cond::Ne,
            Cond::Gt,
            Cond::SGt,
            Cond::Le,
            Cond::SLt,
            Cond::Set,
        ];
        let atomics = [
            AtomicOp::Add,
            AtomicOp::Or,
            AtomicOp::Xchg,
            AtomicOp::CmpXchg,
            AtomicOp::LoadAcquire,
            AtomicOp::StoreRelease,
        ];
        let op = match self.random.below(16) {
            0..3 => Op::Alu {
                wide,
                op: self.random.of(&alus),
                dst,
                src: operand,
            },
            3 | 4 => return self.argument(dst),
            5 | 6 => {
                let (base, off) = self.place();
                Op::Load {
                    size,
                    signed: size != Size::B8 && self.random.one_in(3),
                    dst,
                    base,
                    off,
                }
            }
            7 | 8 => {
                let (base, off) = self.place();
                Op::Store {
                    size,
                    base,
                    off,
                    src: operand,
                }
            }
            9 => {
                let op = self.random.of(&atomics);
                let (base, off) = self.place();
                let (size, src) = match op {
                    AtomicOp::LoadAcquire | AtomicOp::StoreRelease => (size, dst),
                    _ => (self.random.of(&[Size::B4, Size::B8]), dst),
                };
                Op::Atomic {
                    size,
                    op,
                    fetch: op != AtomicOp::StoreRelease && self.random.one_in(2),
                    base,
                    off,
                    src,
                }
            }
            10 | 11 => Op::JumpIf {
                wide,
                cond: self.random.of(&conds),
                dst: src,
                src: operand,
                target: 0,
            },
            12 => Op::MayGoto { target: 0 },
            13 => {
                let from = self.first_callee.max(self.me + 1);
                if from >= self.all {
                    return;
                }
                Op::CallFunc {
                    func: from + self.random.below(self.all - from),
                }
            }
            14 if self.random.one_in(4) => Op::CallKernel {
                id: 1 + self.random.below(FUNCS.len() - 1) as u16,
            },
            14 => {
                // By any function's number, with what many take.
                for register in 1..=5 {
                    self.argument(register);
                }
                Op::CallKernel {
                    id: 1 + self.random.below(FUNCS.len() - 1) as u16,
                }
            }
            _ => {
                let arena = self.map(&[kind::ARENA]);
                let to_user = self.random.one_in(3);
                return self.cast(dst, src, arena, to_user);
            }
        };
        self.ops.push(op);
    }
}
