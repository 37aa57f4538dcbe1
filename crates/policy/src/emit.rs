// SPDX-License-Identifier: GPL-2.0-only
//! The translator: a [`Program`] as C text, one statement per BPF instruction, behind `rt.h`.
//!
//! What the program may not have (missing kernel functions, unresolved CO-RE records) becomes a call of an
//! undefined symbol: if the compiler cannot prove the call away, the symbol stays and the policy is refused.
use crate::abi::FUNC_TAG;
use crate::blocks;
use crate::interp::Operands;
use crate::ir::{AluOp, AtomicOp, Cond, Func, FuncId, MapId, Operation, Program, Size, Src};
use crate::kview::{Cgroup, TaskStruct};
use crate::maps::kind;
use crate::table::FUNCS;
use std::fmt::Write;

const RT: &str = include_str!("rt.h");
/// Stack of one BPF function, bytes.
const STACK: i32 = 512;
/// Further from a stack's end than this nothing is known to be relative to it.
const FAR: i32 = 1 << 16;
/// Rounds of `may_goto` loops per function call.
const MAY_GOTO_ROUNDS: u32 = 8 << 20;

/// A translated program.
#[derive(Clone, Debug)]
pub struct Translation {
    /// The C text; defines `berth_native_NAME`.
    pub text: String,
    /// Hash of the text without the name: what the compiled table carries as its key.
    pub key: String,
    /// What the undefined symbols `berth_missing_N` stand for.
    pub missing: Vec<String>,
}

/// Prefix of symbols that must not stay undefined.
pub const MISSING: &str = "berth_missing_";

/// What the emitter knows about a register within a block.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    Nothing,
    Map(MapId),
    Func(FuncId),
    /// r10 plus a constant.
    Stack(i32),
}

/// Whether translated code asks before it touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarding {
    /// It is trusted with the process: a shipped policy, which kernels' verifiers have passed.
    Trusted,
    /// Every access that is not to its own stack is checked ([`crate::guard`]): nobody has looked at it.
    Guarded,
}

struct Emitter<'a> {
    program: &'a Program,
    guarded: bool,
    out: String,
    missing: Vec<String>,
    known: [Known; 11],
}

/// Translate `program`; the table is exported as `berth_native_NAME`.
pub fn translate(program: &Program, name: &str, guarding: Guarding) -> Translation {
    let mut e = Emitter {
        program,
        guarded: guarding == Guarding::Guarded,
        out: String::new(),
        missing: Vec::new(),
        known: [Known::Nothing; 11],
    };
    for (i, f) in program.funcs.iter().enumerate() {
        e.line(&format!("/* {} */", plain(&f.name)));
        e.line(&format!("{};", head(i)));
    }
    for (i, f) in program.funcs.iter().enumerate() {
        e.function(i, f);
    }
    let mut body = String::with_capacity(e.out.len() + RT.len());
    body.push_str(RT);
    for i in 0..e.missing.len() {
        // A `write!` to a String cannot fail.
        let _ = writeln!(body, "extern u64 {MISSING}{i}(void);");
    }
    body.push_str(&e.out);
    body.push_str("static const native_fn functions[] = {\n");
    for i in 0..program.funcs.len() {
        let _ = writeln!(body, "\tf{i},");
    }
    body.push_str("};\n");
    let key = blake3::hash(body.as_bytes()).to_hex().to_string();
    let _ = write!(
        body,
        "extern const char __start_berth_text[] __attribute__((visibility(\"hidden\")));\n\
         extern const char __stop_berth_text[] __attribute__((visibility(\"hidden\")));\n\
         __attribute__((visibility(\"default\"))) const struct native_table berth_native_{name} = {{\n\
         \tfunctions, {}, __start_berth_text, __stop_berth_text, \"{key}\",\n}};\n",
        program.funcs.len()
    );
    Translation {
        text: body,
        key,
        missing: e.missing,
    }
}

/// A name of the object's as it may stand in C text: it can be anything.
fn plain(name: &str) -> String {
    let word = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    name.chars().take(128).map(word).collect()
}

fn head(id: FuncId) -> String {
    format!("POLICY_CODE static u64 f{id}(struct inst *I, u64 r1, u64 r2, u64 r3, u64 r4, u64 r5)")
}

fn bytes(size: Size) -> i32 {
    match size {
        Size::B1 => 1,
        Size::B2 => 2,
        Size::B4 => 4,
        Size::B8 => 8,
    }
}

fn unsigned(size: Size) -> &'static str {
    match size {
        Size::B1 => "u8",
        Size::B2 => "u16",
        Size::B4 => "u32",
        Size::B8 => "u64",
    }
}

fn imm64(value: i32) -> String {
    format!("{:#x}ull", i64::from(value) as u64)
}

fn operand(src: Src, wide: bool) -> String {
    match (src, wide) {
        (Src::Reg(r), true) => format!("r{r}"),
        (Src::Reg(r), false) => format!("(u32)r{r}"),
        (Src::Imm(i), true) => imm64(i),
        (Src::Imm(i), false) => format!("{:#x}u", i as u32),
    }
}

impl Emitter<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn function(&mut self, id: FuncId, f: &Func) {
        let lengths = blocks::lengths(f);
        self.line(&format!("{} {{", head(id)));
        self.line("\tu64 r0 = 0, r6 = 0, r7 = 0, r8 = 0, r9 = 0, count = I->insns;");
        if self.guarded {
            self.line("\tu8 *stack; PUSH_STACK();");
        } else {
            self.line(&format!("\tu8 stack[{STACK}] __attribute__((aligned(8)));"));
        }
        self.line(&format!("\tu64 r10 = (u64)(stack + {STACK});"));
        if f.insns
            .iter()
            .any(|i| matches!(i.op, Operation::MayGoto { .. }))
        {
            self.line(&format!("\tu32 rounds = {MAY_GOTO_ROUNDS};"));
        }
        for (i, insn) in f.insns.iter().enumerate() {
            if lengths[i] != 0 {
                self.known = [Known::Nothing; 11];
                self.known[10] = Known::Stack(0);
                self.line(&format!("L{i}: COUNT({});", lengths[i]));
                if i == 0 {
                    self.line("\tCHECK_BUDGET();");
                }
            }
            let text = self.statement(i, &insn.op);
            self.line(&format!("\t{text}"));
        }
        if self.guarded {
            // Code that runs off its end.
            self.line("\trt_leave(I, count, TRAP_ACCESS, 0, 0);");
        }
        self.line("}");
    }

    fn missing(&mut self, what: &str) -> String {
        let i = self
            .missing
            .iter()
            .position(|m| m == what)
            .unwrap_or_else(|| {
                self.missing.push(what.to_string());
                self.missing.len() - 1
            });
        self.forget_after_call();
        format!("FLUSH(); r0 = {MISSING}{i}();")
    }

    fn forget_after_call(&mut self) {
        self.known[..6].fill(Known::Nothing);
    }

    /// Where in the function's own stack an access of so many bytes certainly is.
    fn own(&self, size: i32, base: u8, off: i16) -> Option<i32> {
        let Known::Stack(at) = self.known[base as usize] else {
            return None;
        };
        let at = STACK + at + i32::from(off);
        (0..=STACK - size).contains(&at).then_some(at)
    }

    /// What guarded code asks before an access, unless it is to the function's own stack.
    fn guard(&self, size: Size, base: u8, off: i16, write: bool) -> String {
        let size = bytes(size);
        match self.guarded && self.own(size, base, off).is_none() {
            true => format!(
                "GUARD({}, {size}, {});",
                self.number(base, off),
                u8::from(write)
            ),
            false => String::new(),
        }
    }

    /// An address as a number.
    fn number(&self, base: u8, off: i16) -> String {
        match off {
            0 => format!("r{base}"),
            _ => format!("r{base} + {}", imm64(i32::from(off))),
        }
    }

    /// C expression of an address, through the stack array where the access certainly lies there; else what the
    /// register says, which is what was guarded.
    fn address(&self, size: Size, base: u8, off: i16) -> String {
        match self.own(bytes(size), base, off) {
            Some(at) => format!("stack + {at}"),
            None => self.number(base, off),
        }
    }

    fn statement(&mut self, at: usize, op: &Operation) -> String {
        match *op {
            Operation::Alu { wide, op, dst, src } => self.alu(wide, op, dst, src),
            Operation::Endian { dst, bits, swap } => {
                self.known[dst as usize] = Known::Nothing;
                if swap {
                    format!("r{dst} = rt_bswap(r{dst}, {bits});")
                } else {
                    format!("r{dst} = (u{bits})r{dst};")
                }
            }
            Operation::Load {
                size,
                signed,
                dst,
                base,
                off,
            } => {
                let address = self.address(size, base, off);
                let guard = self.guard(size, base, off, false);
                self.known[dst as usize] = Known::Nothing;
                if signed {
                    format!(
                        "{guard} r{dst} = (u64)(s64)MEM(s{}, {address});",
                        &unsigned(size)[1..]
                    )
                } else {
                    format!("{guard} r{dst} = MEM({}, {address});", unsigned(size))
                }
            }
            Operation::Store {
                size,
                base,
                off,
                src,
            } => {
                let ty = unsigned(size);
                format!(
                    "{} MEM({ty}, {}) = ({ty}){};",
                    self.guard(size, base, off, true),
                    self.address(size, base, off),
                    operand(src, true)
                )
            }
            Operation::Atomic {
                size,
                op,
                fetch,
                base,
                off,
                src,
            } => {
                let guard = self.guard(size, base, off, op != AtomicOp::LoadAcquire);
                format!("{guard} {}", self.atomic(size, op, fetch, base, off, src))
            }
            Operation::LoadImm64 { dst, value } => {
                self.known[dst as usize] = Known::Nothing;
                format!("r{dst} = {value:#x}ull;")
            }
            Operation::LoadSection {
                dst,
                section,
                offset,
            } => {
                self.known[dst as usize] = Known::Nothing;
                format!("r{dst} = (u64)I->sec[{section}] + {offset:#x}ull;")
            }
            Operation::LoadMap { dst, map } => {
                self.known[dst as usize] = Known::Map(map);
                format!("r{dst} = (u64)(I->map + {map});")
            }
            Operation::LoadFunc { dst, func } => {
                self.known[dst as usize] = Known::Func(func);
                format!("r{dst} = {:#x}ull;", FUNC_TAG | func as u64)
            }
            Operation::ArenaCast {
                dst,
                src,
                arena,
                user,
            } => {
                self.known[dst as usize] = Known::Nothing;
                match user {
                    None => {
                        format!("r{dst} = r{src} ? (u64)I->map[{arena}].data + (u32)r{src} : 0;")
                    }
                    Some(upper) => {
                        format!("r{dst} = (u32)r{src} ? {upper:#x}ull + (u32)r{src} : 0;")
                    }
                }
            }
            Operation::Jump { target } if target as usize <= at => {
                format!("CHECK_BUDGET(); goto L{target};")
            }
            Operation::Jump { target } => format!("goto L{target};"),
            Operation::JumpIf {
                wide,
                cond,
                dst,
                src,
                target,
            } => {
                let back = if target as usize <= at {
                    "CHECK_BUDGET(); "
                } else {
                    ""
                };
                format!(
                    "if ({}) {{ {back}goto L{target}; }}",
                    condition(wide, cond, dst, src)
                )
            }
            Operation::MayGoto { target } => {
                let back = if target as usize <= at {
                    "CHECK_BUDGET(); "
                } else {
                    ""
                };
                format!("if (rounds == 0) {{ {back}goto L{target}; }} rounds--;")
            }
            Operation::CallFunc { func } => {
                self.forget_after_call();
                format!("FLUSH(); r0 = f{func}(I, r1, r2, r3, r4, r5); RELOAD();")
            }
            Operation::CallKernel { id } => self.call(id),
            Operation::CallMissing { ref name } => self.missing(name),
            Operation::Unresolved { ref what } => self.missing(what),
            Operation::Exit if self.guarded => "FLUSH(); POP_STACK(); return r0;".into(),
            Operation::Exit => "FLUSH(); return r0;".into(),
        }
    }

    fn alu(&mut self, wide: bool, op: AluOp, dst: u8, src: Src) -> String {
        let before = self.known[dst as usize];
        self.known[dst as usize] = match (wide, op, src, before) {
            (true, AluOp::Mov, Src::Reg(r), _) => self.known[r as usize],
            (true, AluOp::Add, Src::Imm(i), Known::Stack(at)) => match at.checked_add(i) {
                Some(at) if at.abs() <= FAR => Known::Stack(at),
                _ => Known::Nothing,
            },
            _ => Known::Nothing,
        };
        if let Known::Stack(at) = self.known[dst as usize]
            && (-STACK..=0).contains(&at)
        {
            return format!("r{dst} = (u64)(stack + {});", STACK + at);
        }
        let s = operand(src, wide);
        let d = if wide {
            format!("r{dst}")
        } else {
            format!("(u32)r{dst}")
        };
        let mask = if wide { 63 } else { 31 };
        let (signed, narrow) = if wide { ("s64", "") } else { ("s32", "(u32)") };
        let bits = if wide { 64 } else { 32 };
        let value = match op {
            AluOp::Add => format!("{d} + {s}"),
            AluOp::Sub => format!("{d} - {s}"),
            AluOp::Mul => format!("{d} * {s}"),
            AluOp::Div => format!("({s}) ? {d} / ({s}) : 0"),
            AluOp::Mod => format!("({s}) ? {d} % ({s}) : {d}"),
            AluOp::SDiv => format!("rt_sdiv{bits}(({signed}){d}, ({signed}){s})"),
            AluOp::SMod => format!("rt_smod{bits}(({signed}){d}, ({signed}){s})"),
            AluOp::Or => format!("{d} | {s}"),
            AluOp::And => format!("{d} & {s}"),
            AluOp::Xor => format!("{d} ^ {s}"),
            AluOp::Lsh => format!("{d} << ({s} & {mask})"),
            AluOp::Rsh => format!("{d} >> ({s} & {mask})"),
            AluOp::Arsh => format!("({signed}){d} >> ({s} & {mask})"),
            AluOp::Neg => format!("-{d}"),
            AluOp::Mov => s,
            AluOp::MovSx(b) => format!("({signed})(s{b}){s}"),
        };
        format!("r{dst} = {narrow}({value});")
    }

    fn atomic(
        &mut self,
        size: Size,
        op: AtomicOp,
        fetch: bool,
        base: u8,
        off: i16,
        src: u8,
    ) -> String {
        let ty = unsigned(size);
        let place = format!("MEM({ty}, {})", self.address(size, base, off));
        let sign = match op {
            AtomicOp::Add => "+",
            AtomicOp::Or => "|",
            AtomicOp::And => "&",
            AtomicOp::Xor => "^",
            AtomicOp::Xchg => {
                self.known[src as usize] = Known::Nothing;
                return format!("{{ {ty} old = {place}; {place} = ({ty})r{src}; r{src} = old; }}");
            }
            AtomicOp::CmpXchg => {
                self.known[0] = Known::Nothing;
                return format!(
                    "{{ {ty} old = {place}; if (old == ({ty})r0) {place} = ({ty})r{src}; r0 = old; }}"
                );
            }
            AtomicOp::LoadAcquire => {
                self.known[src as usize] = Known::Nothing;
                return format!("r{src} = {place};");
            }
            AtomicOp::StoreRelease => return format!("{place} = ({ty})r{src};"),
        };
        if fetch {
            self.known[src as usize] = Known::Nothing;
            format!("{{ {ty} old = {place}; {place} = old {sign} ({ty})r{src}; r{src} = old; }}")
        } else {
            format!("{place} = {place} {sign} ({ty})r{src};")
        }
    }

    fn call(&mut self, id: u16) -> String {
        let known = self.known;
        let map = match known[1] {
            Known::Map(m) => Some(m),
            _ => None,
        };
        let guard = if self.guarded {
            self.guard_call(id, map)
        } else {
            String::new()
        };
        self.forget_after_call();
        let stride = |map: MapId| u64::from(self.program.maps[map].value_size).next_multiple_of(8);
        let map_kind = |map: MapId| self.program.maps[map].kind;
        let plain = match (FUNCS[id as usize].name, map) {
            ("bpf_map_lookup_elem", Some(m)) if map_kind(m) == kind::ARRAY => {
                format!("rt_array_lookup(I, {m}, r2, {})", stride(m))
            }
            ("bpf_map_lookup_elem", Some(m)) if map_kind(m) == kind::PERCPU_ARRAY => {
                format!("rt_percpu_array_lookup(I, {m}, r2, {})", stride(m))
            }
            ("bpf_task_storage_get", Some(m)) if map_kind(m) == kind::TASK_STORAGE => {
                let offset = std::mem::offset_of!(TaskStruct, berth_index);
                format!("rt_storage_get(I, {id}, {m}, r2, {offset}, r3, r4)")
            }
            ("bpf_cgrp_storage_get", Some(m)) if map_kind(m) == kind::CGRP_STORAGE => {
                let offset = std::mem::offset_of!(Cgroup, berth_index);
                format!("rt_storage_get(I, {id}, {m}, r2, {offset}, r3, r4)")
            }
            (
                "bpf_ktime_get_ns"
                | "bpf_ktime_get_boot_ns"
                | "bpf_ktime_get_coarse_ns"
                | "bpf_ktime_get_tai_ns",
                _,
            ) => "I->ktime".into(),
            ("scx_bpf_now", _) => "I->now".into(),
            ("bpf_get_smp_processor_id", _) => "I->cpu".into(),
            (
                "bpf_spin_lock"
                | "bpf_spin_unlock"
                | "bpf_res_spin_lock"
                | "bpf_res_spin_unlock"
                | "bpf_rcu_read_lock"
                | "bpf_rcu_read_unlock"
                | "bpf_preempt_disable"
                | "bpf_preempt_enable"
                | "bpf_local_irq_restore",
                _,
            ) => "0".into(),
            ("bpf_local_irq_save", _) => "(MEM(u64, r1) = 0)".into(),
            ("bpf_cast_to_kern_ctx" | "bpf_rdonly_cast", _) => "r1".into(),
            ("bpf_kptr_xchg", _) => "rt_swap(r1, r2)".into(),
            ("bpf_iter_num_new", _) => "rt_iter_num_new(r1, r2, r3)".into(),
            ("bpf_iter_num_next", _) => "rt_iter_num_next(r1)".into(),
            ("bpf_iter_num_destroy", _) => "(MEM(u64, r1) = 0)".into(),
            ("bpf_cpumask_test_cpu", _) => "rt_mask_test(I, r1, r2)".into(),
            ("bpf_cpumask_set_cpu" | "bpf_cpumask_test_and_set_cpu", _) => {
                "rt_mask_set(I, r1, r2)".into()
            }
            ("bpf_cpumask_clear_cpu" | "bpf_cpumask_test_and_clear_cpu", _) => {
                "rt_mask_clear(I, r1, r2)".into()
            }
            ("bpf_loop", _) => return self.bpf_loop(known[2]),
            _ => {
                return format!(
                    "{guard} FLUSH(); r0 = I->fns[{id}](I, r1, r2, r3, r4, r5); RELOAD();"
                );
            }
        };
        format!("{guard} r0 = {plain};")
    }

    /// What guarded code asks before it calls a kernel function.
    fn guard_call(&self, id: u16, map: Option<MapId>) -> String {
        let row = &FUNCS[id as usize];
        let kind = map.map(|m| self.program.maps[m].kind);
        // An object's number, and what a new element begins with if there is to be one.
        let storage = |offset: usize| {
            format!("if (r2) GUARD(r2 + {offset}, 4, 0); if (r3 && (r4 & 1)) GUARD_CALL({id});")
        };
        match (row.name, kind) {
            ("bpf_map_lookup_elem", Some(kind::ARRAY | kind::PERCPU_ARRAY)) => {
                self.guard(Size::B4, 2, 0, false)
            }
            ("bpf_task_storage_get", Some(kind::TASK_STORAGE)) => {
                storage(std::mem::offset_of!(TaskStruct, berth_index))
            }
            ("bpf_cgrp_storage_get", Some(kind::CGRP_STORAGE)) => {
                storage(std::mem::offset_of!(Cgroup, berth_index))
            }
            ("bpf_iter_num_new" | "bpf_iter_num_next" | "bpf_iter_num_destroy", _)
            | ("bpf_local_irq_save", _) => self.guard(Size::B8, 1, 0, true),
            ("bpf_cpumask_test_cpu", _) => "GUARD_MASK(r1, r2, 0);".into(),
            (
                "bpf_cpumask_set_cpu"
                | "bpf_cpumask_clear_cpu"
                | "bpf_cpumask_test_and_set_cpu"
                | "bpf_cpumask_test_and_clear_cpu",
                _,
            ) => "GUARD_MASK(r1, r2, 1);".into(),
            _ if Operands::of(row).none() => String::new(),
            _ => format!("GUARD_CALL({id});"),
        }
    }

    fn bpf_loop(&self, callback: Known) -> String {
        let call = match callback {
            Known::Func(f) => format!("f{f}(I, i - 1, context, 0, 0, 0)"),
            _ => format!(
                "(callback ^ FUNC_TAG) < {} ? I->code[callback ^ FUNC_TAG](I, i - 1, context, 0, 0, 0) : 1",
                self.program.funcs.len()
            ),
        };
        format!(
            "{{ u64 n = (u32)r1, callback = r2, context = r3, i = 0; \
             if (r4) {{ r0 = EINVAL_; }} else if (n > MAX_LOOPS) {{ r0 = E2BIG_; }} else {{ FLUSH(); \
             while (i < n) {{ i++; if ({call}) break; }} RELOAD(); r0 = i; }} }}"
        )
    }
}

fn condition(wide: bool, cond: Cond, dst: u8, src: Src) -> String {
    let (u, s) = if wide { ("u64", "s64") } else { ("u32", "s32") };
    let (ty, op) = match cond {
        Cond::Eq => (u, "=="),
        Cond::Ne => (u, "!="),
        Cond::Gt => (u, ">"),
        Cond::Ge => (u, ">="),
        Cond::Lt => (u, "<"),
        Cond::Le => (u, "<="),
        Cond::Set => (u, "&"),
        Cond::SGt => (s, ">"),
        Cond::SGe => (s, ">="),
        Cond::SLt => (s, "<"),
        Cond::SLe => (s, "<="),
    };
    format!("({ty})r{dst} {op} ({ty}){}", operand(src, wide))
}
