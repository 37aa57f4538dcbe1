// SPDX-License-Identifier: GPL-2.0-only
//! Code of a policy: functions reachable from its entries, decoded, every relocation resolved.
use crate::abi::{KFUNC_TAG, KSYM_TAG, KSYMS};
use crate::btf::{Btf, CodeInfo, Type, essential};
use crate::core_reloc::{self, Answer};
use crate::decode::{
    self, CALL, CLASS_ALU, CLASS_ALU64, CLASS_LDX, CLASS_ST, CLASS_STX, INSN, Raw, SRC_CALL,
};
use crate::elf::{Elf, Relocation};
use crate::error::{LoadError, Result};
use crate::ir::{Func, FuncId, Insn, Operation, Section};
use crate::map_defs::Definition;
use crate::maps::kind;
use crate::maps::pages::Pages;
use crate::needs::Needs;
use crate::profile::KernelProfile;
use crate::table::{self, KernelFunc};
use std::collections::BTreeMap;

/// Loads functions on demand.
pub struct Linker<'a> {
    elf: &'a Elf,
    btf: &'a Btf,
    info: &'a BTreeMap<String, CodeInfo>,
    no_info: &'a CodeInfo,
    profile: &'a KernelProfile,
    maps: &'a [Definition],
    sections: &'a [Section],
    section_of: &'a [Option<usize>],
    ids: BTreeMap<usize, FuncId>,
    symbols: Vec<usize>,
    entries: Vec<bool>,
    files: Vec<String>,
    needs: Needs,
    types: Types,
}

/// Sizes by a type's number.
type Types = BTreeMap<u32, u32>;

/// A place in the object, for messages.
struct At<'a> {
    function: &'a str,
    file: &'a str,
    line: u32,
}

impl At<'_> {
    fn text(&self) -> String {
        if self.line == 0 {
            format!("function {}", self.function)
        } else {
            format!("function {}, {}:{}", self.function, self.file, self.line)
        }
    }
}

impl<'a> Linker<'a> {
    #[allow(clippy::too_many_arguments)] // the parts of an object
    pub fn new(
        elf: &'a Elf,
        btf: &'a Btf,
        info: &'a BTreeMap<String, CodeInfo>,
        no_info: &'a CodeInfo,
        profile: &'a KernelProfile,
        maps: &'a [Definition],
        sections: &'a [Section],
        section_of: &'a [Option<usize>],
    ) -> Self {
        Linker {
            elf,
            btf,
            info,
            no_info,
            profile,
            maps,
            sections,
            section_of,
            ids: BTreeMap::new(),
            symbols: Vec::new(),
            entries: Vec::new(),
            files: Vec::new(),
            needs: Needs::default(),
            types: Types::new(),
        }
    }

    /// The function of `symbol`, which the kernel calls.
    pub fn entry(&mut self, symbol: usize) -> Result<FuncId> {
        let id = self.function(symbol);
        self.entries[id] = true;
        Ok(id)
    }

    fn function(&mut self, symbol: usize) -> FuncId {
        if let Some(id) = self.ids.get(&symbol) {
            return *id;
        }
        let id = self.symbols.len();
        self.ids.insert(symbol, id);
        self.symbols.push(symbol);
        self.entries.push(false);
        id
    }

    /// All functions reached from the entries, the source files they name, what they need, and the types that they
    /// name by number.
    pub fn finish(mut self) -> Result<(Vec<Func>, Vec<String>, Needs, Types)> {
        let mut funcs = Vec::new();
        // Decoding finds further functions.
        while funcs.len() < self.symbols.len() {
            funcs.push(self.decode_function(funcs.len())?);
        }
        no_recursion(&funcs)?;
        Ok((funcs, self.files, self.needs, self.types))
    }

    fn file(&mut self, name: &str) -> u32 {
        if let Some(i) = self.files.iter().position(|f| f == name) {
            return i as u32;
        }
        self.files.push(name.to_string());
        (self.files.len() - 1) as u32
    }

    fn decode_function(&mut self, id: FuncId) -> Result<Func> {
        let elf = self.elf;
        let symbol = &elf.symbols[self.symbols[id]];
        let broken = |what: String| LoadError::Broken(format!("function {}: {what}", symbol.name));
        let section = symbol.section.ok_or_else(|| broken("has no code".into()))?;
        let (start, end) = (
            symbol.value as usize,
            symbol.value.saturating_add(symbol.size) as usize,
        );
        let code = elf.sections[section]
            .data
            .get(..end)
            .ok_or_else(|| broken("lies outside its section".into()))?;
        let info = self
            .info
            .get(&elf.sections[section].name)
            .unwrap_or(self.no_info);
        // First pass: where instructions start, so that jumps can be renumbered.
        let mut starts = Vec::new();
        let mut at = start;
        while at < end {
            let raw =
                Raw::read(code, at).ok_or_else(|| broken("ends within an instruction".into()))?;
            starts.push(at);
            at += raw.len();
        }
        if starts.is_empty() {
            return Err(broken("is empty".into()));
        }
        let mut insns = Vec::with_capacity(starts.len());
        for at in &starts {
            let at = *at;
            let Some(raw) = Raw::read(code, at) else {
                return Err(broken("ends within an instruction".into()));
            };
            let place = info.lines.partition_point(|l| l.offset as usize <= at);
            let line = info.lines[..place]
                .last()
                .filter(|l| l.offset as usize >= start);
            let (file, line, file_name) = match line {
                Some(l) => (self.file(&l.file), l.line, l.file.as_str()),
                None => (0, 0, ""),
            };
            let target = match decode::jump_distance(&raw) {
                None => 0,
                Some(distance) => {
                    let to = at as i64 + INSN as i64 * (1 + i64::from(distance));
                    starts
                        .binary_search(&(to as usize))
                        .map_err(|_| broken("jumps out of itself".into()))?
                        as u32
                }
            };
            let here = At {
                function: &symbol.name,
                file: file_name,
                line,
            };
            let op = self.operation(section, at, raw, target, info, &here)?;
            if op.destination() == Some(10) {
                return Err(broken("writes r10, where its stack is".into()));
            }
            if let Operation::CallKernel { id } = &op {
                let function = &table::FUNCS[*id as usize];
                self.needs = self.needs.and(Needs::of_function(function.name));
            }
            insns.push(Insn { op, file, line });
        }
        if !matches!(
            insns.last().map(|i| &i.op),
            Some(Operation::Exit | Operation::Jump { .. })
        ) {
            // A function that ends in a call that never returns (clang's trap).
            if !matches!(
                insns.last().map(|i| &i.op),
                Some(Operation::CallMissing { .. })
            ) {
                return Err(broken("runs past its end".into()));
            }
            let last = insns[insns.len() - 1].clone();
            insns.push(Insn {
                op: Operation::Exit,
                ..last
            });
        }
        Ok(Func {
            name: symbol.name.clone(),
            insns,
            is_entry: self.entries[id],
        })
    }

    fn operation(
        &mut self,
        section: usize,
        at: usize,
        mut raw: Raw,
        target: u32,
        info: &CodeInfo,
        here: &At,
    ) -> Result<Operation> {
        decode::registers(&raw)
            .map_err(|what| LoadError::Unsupported(format!("{what} ({})", here.text())))?;
        let relocation = self.elf.sections[section]
            .relocations
            .get(&(at as u64))
            .copied();
        if raw.code == CALL && raw.src == SRC_CALL {
            return self.call(section, at, raw, relocation, here);
        }
        if raw.code == CALL && raw.src == 0 {
            return Ok(match table::helper_by_number(raw.imm as u32) {
                Some(f) => Operation::CallKernel { id: f.id },
                None => Operation::CallMissing {
                    name: crate::helper_names::name(raw.imm as u32),
                },
            });
        }
        if let (true, Some(relocation)) = (raw.is_wide(), relocation) {
            return self.load_symbol(raw, relocation, here);
        }
        if let Ok(i) = info.core.binary_search_by_key(&(at as u32), |c| c.offset) {
            match core_reloc::answer(self.btf, &info.core[i], self.profile) {
                Answer::Missing(what) => return Ok(Operation::Unresolved { what }),
                Answer::Value { value, size } => {
                    let record = &info.core[i];
                    self.needs = self.needs.and(core_reloc::needs(self.btf, record));
                    if core_reloc::names_a_type(record) {
                        self.types.insert(record.ty, self.btf.size(record.ty));
                    }
                    patch(&mut raw, value, size)
                        .map_err(|e| LoadError::Unsupported(format!("{e} ({})", here.text())))?;
                }
            }
        }
        let cast = decode::cast(&raw)
            .map_err(|what| LoadError::Unsupported(format!("{what} ({})", here.text())))?;
        if let Some(to_user) = cast {
            return self.arena_cast(&raw, to_user, here);
        }
        decode::decode(&raw, target)
            .map_err(|what| LoadError::Unsupported(format!("{what} ({})", here.text())))
    }

    fn arena_cast(&self, raw: &Raw, to_user: bool, here: &At) -> Result<Operation> {
        /// Pointers in the arena's memory are the lower half alone.
        const NO_USER_CONV: u32 = 1 << 18;
        let arena = self.maps.iter().position(|m| m.def.kind == kind::ARENA);
        let arena = arena.ok_or_else(|| {
            LoadError::Unsupported(format!(
                "casts between address spaces without an arena map ({})",
                here.text()
            ))
        })?;
        let def = &self.maps[arena].def;
        let upper = match def.flags & NO_USER_CONV {
            0 => Pages::user_start(def) >> 32 << 32,
            _ => 0,
        };
        Ok(Operation::ArenaCast {
            dst: raw.dst,
            src: raw.src,
            arena,
            user: to_user.then_some(upper),
        })
    }

    fn call(
        &mut self,
        section: usize,
        at: usize,
        raw: Raw,
        relocation: Option<Relocation>,
        here: &At,
    ) -> Result<Operation> {
        let nowhere = || LoadError::Broken(format!("a call to nowhere ({})", here.text()));
        let distance = (i64::from(raw.imm) + 1) * INSN as i64;
        let (section, offset) = match relocation {
            None => (section, at as i64 + distance),
            Some(r) => {
                let symbol = &self.elf.symbols[r.symbol];
                match symbol.section {
                    None => {
                        return Ok(self.kfunc(&symbol.name).map_or_else(
                            || Operation::CallMissing {
                                name: self.missing_name(&symbol.name),
                            },
                            |f| Operation::CallKernel { id: f.id },
                        ));
                    }
                    Some(s) => (
                        s,
                        (symbol.value as i64)
                            .wrapping_add(distance)
                            .wrapping_add(r.addend),
                    ),
                }
            }
        };
        let symbol = self
            .elf
            .function_at(section, offset as u64)
            .ok_or_else(nowhere)?;
        Ok(Operation::CallFunc {
            func: self.function(symbol),
        })
    }

    /// The kernel function that the external `name` asks for: its last `___suffix` is the policy's own,
    /// and what is left must have the kernel's prototype.
    fn kfunc(&self, name: &str) -> Option<&'static KernelFunc> {
        let wanted = match name.rfind("___") {
            Some(i) if i > 0 => &name[..i],
            _ => name,
        };
        let found = table::by_name(wanted)
            .filter(|f| f.kind == table::Kind::Kfunc && f.in_kernel(self.profile.version))?;
        match self.btf.function(name) {
            Some((params, ret)) => {
                let returns = !matches!(self.btf.resolved(ret), Type::Void);
                let same = params.len() == found.parameters() && returns == found.returns();
                same.then_some(found)
            }
            // Without a prototype in the object there is nothing to compare.
            None => Some(found),
        }
    }

    /// How a message names an external function nobody has.
    fn missing_name(&self, name: &str) -> String {
        let is_kernels = self.btf.types.iter().any(|t| match t {
            Type::Datasec {
                name: section,
                vars,
            } if section == ".ksyms" => vars.iter().any(|(id, _)| self.btf.name(*id) == name),
            _ => false,
        });
        if is_kernels {
            name.to_string()
        } else {
            format!("{name} (of another BPF file: link the objects first: berth policy link)")
        }
    }

    /// A 64-bit load whose value is an address.
    fn load_symbol(&mut self, raw: Raw, relocation: Relocation, here: &At) -> Result<Operation> {
        let symbol = &self.elf.symbols[relocation.symbol];
        let dst = raw.dst;
        let Some(section) = symbol.section else {
            return Ok(self.load_external(raw, &symbol.name, symbol.weak));
        };
        let addend = i64::from(raw.imm).wrapping_add(relocation.addend);
        let address = (symbol.value as i64).wrapping_add(addend) as u64;
        if self.elf.sections[section].name == ".maps" {
            let map = self
                .maps
                .iter()
                .position(|m| m.offset == Some(address))
                .ok_or_else(|| {
                    LoadError::Broken(format!(
                        "a reference into a map definition ({})",
                        here.text()
                    ))
                })?;
            return Ok(Operation::LoadMap { dst, map });
        }
        if self.elf.sections[section].executable {
            let symbol = self.elf.function_at(section, address).ok_or_else(|| {
                LoadError::Broken(format!("the address of no function ({})", here.text()))
            })?;
            return Ok(Operation::LoadFunc {
                dst,
                func: self.function(symbol),
            });
        }
        match self.section_of[section] {
            Some(section) if self.sections[section].in_arena() => {
                let arena = self.maps.iter().find(|m| m.def.kind == kind::ARENA);
                let arena = arena.ok_or_else(|| {
                    LoadError::Unsupported(format!(
                        "variables in an arena without an arena map ({})",
                        here.text()
                    ))
                })?;
                let bytes = self.sections[section].data.len();
                let start = Pages::user_of_variables(&arena.def, bytes);
                Ok(Operation::LoadImm64 {
                    dst,
                    value: start.wrapping_add(address),
                })
            }
            Some(section) => Ok(Operation::LoadSection {
                dst,
                section,
                offset: address,
            }),
            None => Err(LoadError::Unsupported(format!(
                "a reference into section {} ({})",
                self.elf.sections[section].name,
                here.text()
            ))),
        }
    }

    fn load_external(&self, raw: Raw, name: &str, weak: bool) -> Operation {
        let dst = raw.dst;
        if let Some((section, var)) = self
            .sections
            .iter()
            .enumerate()
            .filter(|(_, s)| s.name == ".kconfig")
            .find_map(|(i, s)| s.vars.iter().find(|v| v.name == name).map(|v| (i, v)))
        {
            return Operation::LoadSection {
                dst,
                section,
                offset: u64::from(var.offset) + raw.imm as u64,
            };
        }
        let value = if let Some(f) = self.kfunc(name) {
            KFUNC_TAG | u64::from(f.id)
        } else if let Some(i) = KSYMS.iter().position(|k| *k == essential(name)) {
            KSYM_TAG | i as u64
        } else if weak {
            0
        } else {
            return Operation::Unresolved {
                what: format!("kernel symbol {name}"),
            };
        };
        Operation::LoadImm64 { dst, value }
    }
}

/// Put the answer to a CO-RE record into an instruction.
fn patch(raw: &mut Raw, value: u64, size: Option<u32>) -> std::result::Result<(), String> {
    match raw.class() {
        CLASS_ALU | CLASS_ALU64 => {
            raw.imm = i32::try_from(value as i64)
                .or_else(|_| u32::try_from(value).map(|v| v as i32))
                .map_err(|_| format!("a kernel constant {value:#x} where 32 bits are loaded"))?;
        }
        CLASS_LDX | CLASS_ST | CLASS_STX => {
            raw.off = i16::try_from(value).map_err(|_| format!("a field at offset {value}"))?;
            if let Some(size) = size {
                let bits = match size {
                    1 => 0x10,
                    2 => 0x08,
                    4 => 0x00,
                    8 => 0x18,
                    _ => return Err(format!("a load of a field of {size} bytes")),
                };
                raw.code = (raw.code & !0x18) | bits;
            }
        }
        _ => {
            raw.imm = value as i32;
            raw.next_imm = (value >> 32) as i32;
        }
    }
    Ok(())
}

/// The kernel refuses recursion; so do we, and executors need not care for the depth.
fn no_recursion(funcs: &[Func]) -> Result<()> {
    /// 0 = not seen, 1 = on the path, 2 = done.
    fn visit(funcs: &[Func], id: FuncId, state: &mut [u8], depth: usize) -> Result<()> {
        /// Longer chains of calls no callback may have, by far.
        const DEEPEST: usize = 1000;
        if depth > DEEPEST {
            return Err(LoadError::Unsupported(format!(
                "more than {DEEPEST} functions that call each other ({})",
                funcs[id].name
            )));
        }
        state[id] = 1;
        for insn in &funcs[id].insns {
            if let Operation::CallFunc { func } = insn.op {
                match state[func] {
                    0 => visit(funcs, func, state, depth + 1)?,
                    1 => {
                        return Err(LoadError::Unsupported(format!(
                            "recursion: {} calls itself",
                            funcs[func].name
                        )));
                    }
                    _ => {}
                }
            }
        }
        state[id] = 2;
        Ok(())
    }
    let mut state = vec![0; funcs.len()];
    for id in 0..funcs.len() {
        if state[id] == 0 {
            visit(funcs, id, &mut state, 0)?;
        }
    }
    Ok(())
}
