// SPDX-License-Identifier: GPL-2.0-only
//! A program through Cranelift: the same instructions, counts, budget checks and inlined kernel functions as the
//! translation to C has (`crates/policy/src/emit.rs`, `rt.h`), for the functions that the measured policies use.
use berth_policy::abi::{FUNC_TAG, Inst, Map, NativeFn};
use berth_policy::blocks;
use berth_policy::ir::{AluOp, AtomicOp, Cond, Func, MapId, Operation, Program, Size, Src};
use berth_policy::kview::TaskStruct;
use berth_policy::maps::kind;
use berth_policy::table::FUNCS;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, Block, InstBuilder, MemFlagsData, SigRef, StackSlotData, StackSlotKind, Type, Value,
};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};
use std::mem::offset_of;

const STACK: u32 = 512;
const MAY_GOTO_ROUNDS: i64 = 8 << 20;
const TRAP_BUDGET: i64 = 1;

type Error = Box<dyn std::error::Error>;

/// Machine code of all functions; lives as long as the process.
pub fn compile(program: &Program) -> Result<Vec<NativeFn>, Error> {
    let casts = |insn: &berth_policy::ir::Insn| matches!(insn.op, Operation::ArenaCast { .. });
    if program.funcs.iter().any(|f| f.insns.iter().any(casts)) {
        return Err("a program with an arena: this translator has none".into());
    }
    let mut flags = settings::builder();
    flags.set("opt_level", "speed")?;
    flags.set("is_pic", "false")?;
    flags.set("enable_verifier", "false")?;
    let isa = cranelift_native::builder()?.finish(settings::Flags::new(flags))?;
    let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
    let mut signature = module.make_signature();
    signature.params.extend([AbiParam::new(I64); 6]);
    signature.returns.push(AbiParam::new(I64));
    let ids: Vec<FuncId> = (0..program.funcs.len())
        .map(|i| {
            let name = format!("f{i}");
            Ok(module.declare_function(&name, Linkage::Local, &signature)?)
        })
        .collect::<Result<_, Error>>()?;
    let mut context = module.make_context();
    let mut shared = FunctionBuilderContext::new();
    for (i, func) in program.funcs.iter().enumerate() {
        context.func.signature = signature.clone();
        let mut builder = FunctionBuilder::new(&mut context.func, &mut shared);
        let kernel = builder.import_signature(signature.clone());
        Translator::new(program, func, &mut module, &ids, kernel, &mut builder).run();
        builder.seal_all_blocks();
        builder.finalize(module.target_config());
        module.define_function(ids[i], &mut context)?;
        module.clear_context(&mut context);
    }
    module.finalize_definitions()?;
    let code = ids.iter().map(|&id| module.get_finalized_function(id));
    // SAFETY: functions with exactly this signature were declared.
    let code = code
        .map(|at| unsafe { std::mem::transmute::<*const u8, NativeFn>(at) })
        .collect();
    // The code stays mapped.
    std::mem::forget(module);
    Ok(code)
}

struct Translator<'a, 'b> {
    program: &'a Program,
    func: &'a Func,
    module: &'a mut JITModule,
    ids: &'a [FuncId],
    kernel: SigRef,
    b: &'a mut FunctionBuilder<'b>,
    lengths: Vec<u32>,
    regs: [Variable; 11],
    inst: Variable,
    count: Variable,
    rounds: Variable,
    blocks: Vec<Option<Block>>,
}

fn ty(size: Size) -> Type {
    match size {
        Size::B1 => I8,
        Size::B2 => I16,
        Size::B4 => I32,
        Size::B8 => I64,
    }
}

fn memory() -> MemFlagsData {
    let mut flags = MemFlagsData::new();
    flags.set_notrap();
    flags
}

impl<'a, 'b> Translator<'a, 'b> {
    fn new(
        program: &'a Program,
        func: &'a Func,
        module: &'a mut JITModule,
        ids: &'a [FuncId],
        kernel: SigRef,
        b: &'a mut FunctionBuilder<'b>,
    ) -> Self {
        let lengths = blocks::lengths(func);
        let blocks = lengths
            .iter()
            .map(|&n| (n != 0).then(|| b.create_block()))
            .collect();
        Translator {
            program,
            func,
            module,
            ids,
            kernel,
            lengths,
            regs: std::array::from_fn(|_| b.declare_var(I64)),
            inst: b.declare_var(I64),
            count: b.declare_var(I64),
            rounds: b.declare_var(I64),
            blocks,
            b,
        }
    }

    fn run(&mut self) {
        let entry = self.b.create_block();
        self.b.append_block_params_for_function_params(entry);
        self.b.switch_to_block(entry);
        let params = self.b.block_params(entry).to_vec();
        self.b.def_var(self.inst, params[0]);
        for (reg, param) in self.regs[1..=5].iter().zip(&params[1..]) {
            self.b.def_var(*reg, *param);
        }
        let zero = self.number(0);
        for r in [0, 6, 7, 8, 9] {
            self.b.def_var(self.regs[r], zero);
        }
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(
            StackSlotKind::ExplicitSlot,
            STACK,
            3,
        ));
        let top = self.b.ins().stack_addr(I64, slot, STACK as i32);
        self.b.def_var(self.regs[10], top);
        let rounds = self.number(MAY_GOTO_ROUNDS);
        self.b.def_var(self.rounds, rounds);
        self.reload();
        let first = self.block(0);
        self.b.ins().jump(first, &[]);
        let func = self.func;
        let mut open = false;
        for (i, insn) in func.insns.iter().enumerate() {
            if let Some(block) = self.blocks[i] {
                if open {
                    self.b.ins().jump(block, &[]);
                }
                self.b.switch_to_block(block);
                let count = self.b.use_var(self.count);
                let count = self.b.ins().iadd_imm_s(count, i64::from(self.lengths[i]));
                self.b.def_var(self.count, count);
                if i == 0 {
                    self.check_budget();
                }
            }
            open = self.instruction(i, &insn.op);
        }
    }

    fn block(&self, at: usize) -> Block {
        self.blocks[at].expect("jumps go to block starts")
    }

    fn number(&mut self, v: i64) -> Value {
        self.b.ins().iconst(I64, v)
    }

    fn reg(&mut self, r: u8) -> Value {
        self.b.use_var(self.regs[usize::from(r)])
    }

    fn set(&mut self, r: u8, v: Value) {
        self.b.def_var(self.regs[usize::from(r)], v);
    }

    fn source(&mut self, src: Src, wide: bool) -> Value {
        let v = match src {
            Src::Reg(r) => self.reg(r),
            Src::Imm(i) => self.number(i.into()),
        };
        if wide {
            v
        } else {
            self.b.ins().ireduce(I32, v)
        }
    }

    fn field(&mut self, ty: Type, offset: usize) -> Value {
        let inst = self.b.use_var(self.inst);
        self.b.ins().load(ty, memory(), inst, offset as i32)
    }

    fn flush(&mut self) {
        let (inst, count) = (self.b.use_var(self.inst), self.b.use_var(self.count));
        self.b
            .ins()
            .store(memory(), count, inst, offset_of!(Inst, insns) as i32);
    }

    fn reload(&mut self) {
        let count = self.field(I64, offset_of!(Inst, insns));
        self.b.def_var(self.count, count);
    }

    fn call_table(&mut self, id: u16, args: [Value; 5]) -> Value {
        let fns = self.field(I64, offset_of!(Inst, fns));
        let target = self.b.ins().load(I64, memory(), fns, i32::from(id) * 8);
        let inst = self.b.use_var(self.inst);
        let [a, b, c, d, e] = args;
        let call = self
            .b
            .ins()
            .call_indirect(self.kernel, target, &[inst, a, b, c, d, e]);
        self.b.inst_results(call)[0]
    }

    /// Leaves through the trap function if the budget is used up.
    fn check_budget(&mut self) {
        let limit = self.field(I64, offset_of!(Inst, insns_limit));
        let count = self.b.use_var(self.count);
        let over = self.b.ins().icmp(IntCC::UnsignedGreaterThan, count, limit);
        let (trap, on) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(trap);
        self.b.ins().brif(over, trap, &[], on, &[]);
        self.b.switch_to_block(trap);
        self.flush();
        let (kind, zero) = (self.number(TRAP_BUDGET), self.number(0));
        let result = self.call_table(0, [kind, count, zero, zero, zero]);
        self.b.ins().return_(&[result]);
        self.b.switch_to_block(on);
    }

    /// Translates one instruction; false if control does not go on to the next.
    fn instruction(&mut self, at: usize, op: &Operation) -> bool {
        match *op {
            Operation::Alu { wide, op, dst, src } => self.alu(wide, op, dst, src),
            Operation::Endian { dst, bits, swap } => {
                let v = self.reg(dst);
                let narrow = match bits {
                    16 => I16,
                    32 => I32,
                    _ => I64,
                };
                let v = if narrow == I64 {
                    v
                } else {
                    self.b.ins().ireduce(narrow, v)
                };
                let v = if swap { self.b.ins().bswap(v) } else { v };
                let v = if narrow == I64 {
                    v
                } else {
                    self.b.ins().uextend(I64, v)
                };
                self.set(dst, v);
            }
            Operation::Load {
                size,
                signed,
                dst,
                base,
                off,
            } => {
                let v = self.load(size, signed, base, off);
                self.set(dst, v);
            }
            Operation::Store {
                size,
                base,
                off,
                src,
            } => {
                let v = self.source(src, true);
                self.store(size, base, off, v);
            }
            Operation::Atomic {
                size,
                op,
                fetch,
                base,
                off,
                src,
            } => self.atomic(size, op, fetch, (base, off), src),
            Operation::LoadImm64 { dst, value } => {
                let v = self.number(value as i64);
                self.set(dst, v);
            }
            Operation::LoadSection {
                dst,
                section,
                offset,
            } => {
                let table = self.field(I64, offset_of!(Inst, sec));
                let base = self.b.ins().load(I64, memory(), table, section as i32 * 8);
                let v = self.b.ins().iadd_imm_s(base, offset as i64);
                self.set(dst, v);
            }
            Operation::LoadMap { dst, map } => {
                let v = self.map(map);
                self.set(dst, v);
            }
            Operation::LoadFunc { dst, func } => {
                let v = self.number((FUNC_TAG | func as u64) as i64);
                self.set(dst, v);
            }
            // compile() has refused the program.
            Operation::ArenaCast { .. } => unreachable!("a program with an arena"),
            Operation::Jump { target } => {
                let target = target as usize;
                if target <= at {
                    self.check_budget();
                }
                let block = self.block(target);
                self.b.ins().jump(block, &[]);
                return false;
            }
            Operation::JumpIf {
                wide,
                cond,
                dst,
                src,
                target,
            } => {
                let taken = self.condition(wide, cond, dst, src);
                self.branch(at, taken, target as usize);
                return false;
            }
            Operation::MayGoto { target } => {
                let rounds = self.b.use_var(self.rounds);
                let left = self.b.ins().iadd_imm_s(rounds, -1);
                self.b.def_var(self.rounds, left);
                let used_up = self.b.ins().icmp_imm_s(IntCC::Equal, rounds, 0);
                self.branch(at, used_up, target as usize);
                return false;
            }
            Operation::CallFunc { func } => {
                self.flush();
                let callee = self
                    .module
                    .declare_func_in_func(self.ids[func], self.b.func);
                let inst = self.b.use_var(self.inst);
                let args: Vec<Value> = (1..=5).map(|r| self.reg(r)).collect();
                let args = [&[inst], args.as_slice()].concat();
                let call = self.b.ins().call(callee, &args);
                let v = self.b.inst_results(call)[0];
                self.set(0, v);
                self.reload();
            }
            Operation::CallKernel { id } => self.kernel(at, id),
            // Weak kernel functions that are absent: behind a branch that is never taken.
            Operation::CallMissing { .. } | Operation::Unresolved { .. } => {
                let zero = self.number(0);
                self.set(0, zero);
            }
            Operation::Exit => {
                self.flush();
                let v = self.reg(0);
                self.b.ins().return_(&[v]);
                return false;
            }
        }
        true
    }

    fn branch(&mut self, at: usize, taken: Value, target: usize) {
        let (to, next) = (self.block(target), self.block(at + 1));
        if target > at {
            self.b.ins().brif(taken, to, &[], next, &[]);
            return;
        }
        let back = self.b.create_block();
        self.b.ins().brif(taken, back, &[], next, &[]);
        self.b.switch_to_block(back);
        self.check_budget();
        self.b.ins().jump(to, &[]);
    }

    fn condition(&mut self, wide: bool, cond: Cond, dst: u8, src: Src) -> Value {
        let d = self.source(Src::Reg(dst), wide);
        let s = self.source(src, wide);
        let cc = match cond {
            Cond::Eq => IntCC::Equal,
            Cond::Ne => IntCC::NotEqual,
            Cond::Gt => IntCC::UnsignedGreaterThan,
            Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
            Cond::Lt => IntCC::UnsignedLessThan,
            Cond::Le => IntCC::UnsignedLessThanOrEqual,
            Cond::SGt => IntCC::SignedGreaterThan,
            Cond::SGe => IntCC::SignedGreaterThanOrEqual,
            Cond::SLt => IntCC::SignedLessThan,
            Cond::SLe => IntCC::SignedLessThanOrEqual,
            Cond::Set => {
                let common = self.b.ins().band(d, s);
                return self.b.ins().icmp_imm_s(IntCC::NotEqual, common, 0);
            }
        };
        self.b.ins().icmp(cc, d, s)
    }

    fn alu(&mut self, wide: bool, op: AluOp, dst: u8, src: Src) {
        let d = self.source(Src::Reg(dst), wide);
        let s = self.source(src, wide);
        let width = if wide { I64 } else { I32 };
        let v = match op {
            AluOp::Add => self.b.ins().iadd(d, s),
            AluOp::Sub => self.b.ins().isub(d, s),
            AluOp::Mul => self.b.ins().imul(d, s),
            AluOp::Div | AluOp::Mod | AluOp::SDiv | AluOp::SMod => self.divide(op, width, d, s),
            AluOp::Or => self.b.ins().bor(d, s),
            AluOp::And => self.b.ins().band(d, s),
            AluOp::Xor => self.b.ins().bxor(d, s),
            // Cranelift masks the count as BPF does.
            AluOp::Lsh => self.b.ins().ishl(d, s),
            AluOp::Rsh => self.b.ins().ushr(d, s),
            AluOp::Arsh => self.b.ins().sshr(d, s),
            AluOp::Neg => self.b.ins().ineg(d),
            AluOp::Mov => s,
            AluOp::MovSx(bits) => {
                let narrow = match bits {
                    8 => I8,
                    16 => I16,
                    _ => I32,
                };
                let v = self.b.ins().ireduce(narrow, s);
                self.b.ins().sextend(width, v)
            }
        };
        let v = if wide {
            v
        } else {
            self.b.ins().uextend(I64, v)
        };
        self.set(dst, v);
    }

    /// Division without the processor's traps: by zero, and of the smallest number by -1.
    fn divide(&mut self, op: AluOp, width: Type, d: Value, s: Value) -> Value {
        let one = self.b.ins().iconst(width, 1);
        let zero = self.b.ins().iconst(width, 0);
        let by_zero = self.b.ins().icmp(IntCC::Equal, s, zero);
        let mut safe = self.b.ins().select(by_zero, one, s);
        let minus = self.b.ins().icmp_imm_s(IntCC::Equal, s, -1);
        if matches!(op, AluOp::SDiv | AluOp::SMod) {
            safe = self.b.ins().select(minus, one, safe);
        }
        match op {
            AluOp::Div => {
                let q = self.b.ins().udiv(d, safe);
                self.b.ins().select(by_zero, zero, q)
            }
            AluOp::Mod => {
                let r = self.b.ins().urem(d, safe);
                self.b.ins().select(by_zero, d, r)
            }
            AluOp::SDiv => {
                let q = self.b.ins().sdiv(d, safe);
                let negative = self.b.ins().ineg(d);
                let q = self.b.ins().select(minus, negative, q);
                self.b.ins().select(by_zero, zero, q)
            }
            _ => {
                let r = self.b.ins().srem(d, safe);
                self.b.ins().select(by_zero, d, r)
            }
        }
    }

    fn load(&mut self, size: Size, signed: bool, base: u8, off: i16) -> Value {
        let base = self.reg(base);
        let v = self.b.ins().load(ty(size), memory(), base, i32::from(off));
        match (size, signed) {
            (Size::B8, _) => v,
            (_, true) => self.b.ins().sextend(I64, v),
            (_, false) => self.b.ins().uextend(I64, v),
        }
    }

    fn store(&mut self, size: Size, base: u8, off: i16, v: Value) {
        let base = self.reg(base);
        let v = if size == Size::B8 {
            v
        } else {
            self.b.ins().ireduce(ty(size), v)
        };
        self.b.ins().store(memory(), v, base, i32::from(off));
    }

    fn atomic(&mut self, size: Size, op: AtomicOp, fetch: bool, (base, off): (u8, i16), src: u8) {
        if op == AtomicOp::LoadAcquire {
            let v = self.load(size, false, base, off);
            return self.set(src, v);
        }
        let operand = self.reg(src);
        if op == AtomicOp::StoreRelease {
            return self.store(size, base, off, operand);
        }
        let old = self.load(size, false, base, off);
        let new = match op {
            AtomicOp::Add => self.b.ins().iadd(old, operand),
            AtomicOp::Or => self.b.ins().bor(old, operand),
            AtomicOp::And => self.b.ins().band(old, operand),
            AtomicOp::Xor => self.b.ins().bxor(old, operand),
            AtomicOp::CmpXchg => {
                let r0 = self.reg(0);
                let mut expected = r0;
                if size != Size::B8 {
                    expected = self.b.ins().ireduce(ty(size), r0);
                    expected = self.b.ins().uextend(I64, expected);
                }
                let same = self.b.ins().icmp(IntCC::Equal, old, expected);
                self.b.ins().select(same, operand, old)
            }
            _ => operand,
        };
        self.store(size, base, off, new);
        match op {
            AtomicOp::CmpXchg => self.set(0, old),
            _ if fetch || op == AtomicOp::Xchg => self.set(src, old),
            _ => {}
        }
    }

    fn map(&mut self, map: MapId) -> Value {
        let table = self.field(I64, offset_of!(Inst, map));
        let offset = map * size_of::<Map>();
        self.b.ins().iadd_imm_s(table, offset as i64)
    }

    /// The map that r1 holds at a call, if this block loads it.
    fn map_argument(&self, at: usize) -> Option<MapId> {
        for i in (0..at).rev() {
            match self.func.insns[i].op {
                Operation::LoadMap { dst: 1, map } => return Some(map),
                Operation::Alu { dst: 1, .. }
                | Operation::Load { dst: 1, .. }
                | Operation::LoadImm64 { dst: 1, .. }
                | Operation::LoadSection { dst: 1, .. }
                | Operation::CallFunc { .. }
                | Operation::CallKernel { .. } => return None,
                _ if self.blocks[i].is_some() => return None,
                _ => {}
            }
        }
        None
    }

    fn kernel(&mut self, at: usize, id: u16) {
        let map = self
            .map_argument(at)
            .map(|m| (m, self.program.maps[m].kind));
        let v = match (FUNCS[usize::from(id)].name, map) {
            ("bpf_map_lookup_elem", Some((m, kind::ARRAY))) => self.array_lookup(m, false),
            ("bpf_map_lookup_elem", Some((m, kind::PERCPU_ARRAY))) => self.array_lookup(m, true),
            ("bpf_task_storage_get", Some((m, kind::TASK_STORAGE))) => self.storage_get(m, id),
            ("bpf_ktime_get_ns" | "bpf_ktime_get_boot_ns", _) => {
                self.field(I64, offset_of!(Inst, ktime))
            }
            ("scx_bpf_now", _) => self.field(I64, offset_of!(Inst, now)),
            ("bpf_get_smp_processor_id", _) => {
                let cpu = self.field(I32, offset_of!(Inst, cpu));
                self.b.ins().uextend(I64, cpu)
            }
            (
                "bpf_rcu_read_lock" | "bpf_rcu_read_unlock" | "bpf_spin_lock" | "bpf_spin_unlock",
                _,
            ) => self.number(0),
            _ => self.call_kernel(id),
        };
        self.set(0, v);
    }

    fn call_kernel(&mut self, id: u16) -> Value {
        self.flush();
        let args = [1, 2, 3, 4, 5].map(|r| self.reg(r));
        let v = self.call_table(id, args);
        self.reload();
        v
    }

    fn array_lookup(&mut self, map: MapId, per_cpu: bool) -> Value {
        let stride = i64::from(self.program.maps[map].value_size.next_multiple_of(8));
        let m = self.map(map);
        let key = self.reg(2);
        let index = self.b.ins().load(I32, memory(), key, 0);
        let entries = self
            .b
            .ins()
            .load(I32, memory(), m, offset_of!(Map, max_entries) as i32);
        let mut data = self
            .b
            .ins()
            .load(I64, memory(), m, offset_of!(Map, data) as i32);
        if per_cpu {
            let cpu = self.field(I32, offset_of!(Inst, cpu));
            let cpu = self.b.ins().uextend(I64, cpu);
            let step = self
                .b
                .ins()
                .load(I64, memory(), m, offset_of!(Map, cpu_stride) as i32);
            let offset = self.b.ins().imul(cpu, step);
            data = self.b.ins().iadd(data, offset);
        }
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, entries);
        let wide = self.b.ins().uextend(I64, index);
        let offset = self.b.ins().imul_imm_s(wide, stride);
        let place = self.b.ins().iadd(data, offset);
        let null = self.number(0);
        self.b.ins().select(inside, place, null)
    }

    /// An existing element of a task storage inline; everything else through the table.
    fn storage_get(&mut self, map: MapId, id: u16) -> Value {
        let [covered, entry, slow, call, done] = std::array::from_fn(|_| self.b.create_block());
        self.b.append_block_param(done, I64);
        let (m, task, null) = (self.map(map), self.reg(2), self.number(0));
        self.b.ins().brif(task, covered, &[], done, &[null.into()]);
        self.b.switch_to_block(covered);
        let index = self.b.ins().load(
            I32,
            memory(),
            task,
            offset_of!(TaskStruct, berth_index) as i32,
        );
        let entries = self
            .b
            .ins()
            .load(I32, memory(), m, offset_of!(Map, max_entries) as i32);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, entries);
        self.b.ins().brif(inside, entry, &[], slow, &[]);
        self.b.switch_to_block(entry);
        let index = self.b.ins().uextend(I64, index);
        let offset = self.b.ins().imul_imm_s(index, 8);
        let table = self
            .b
            .ins()
            .load(I64, memory(), m, offset_of!(Map, data) as i32);
        let at = self.b.ins().iadd(table, offset);
        let value = self.b.ins().load(I64, memory(), at, 0);
        self.b.ins().brif(value, done, &[value.into()], slow, &[]);
        self.b.switch_to_block(slow);
        let flags = self.reg(4);
        let create = self.b.ins().band_imm_s(flags, 1);
        self.b.ins().brif(create, call, &[], done, &[null.into()]);
        self.b.switch_to_block(call);
        let made = self.call_kernel(id);
        self.b.ins().jump(done, &[made.into()]);
        self.b.switch_to_block(done);
        self.b.block_params(done)[0]
    }
}
