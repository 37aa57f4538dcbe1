// SPDX-License-Identifier: GPL-2.0-only
//! Scheduler variables: `struct sched_ext_ops` in the struct_ops sections.
use crate::abi::Op;
use crate::btf::{Btf, Member, Type};
use crate::code::Linker;
use crate::elf::Elf;
use crate::error::{LoadError, Result};
use crate::ir::OpsVar;

/// A variable before its functions are linked: members to function symbols.
#[derive(Debug)]
pub struct Variable {
    ops: OpsVar,
    functions: Vec<(Op, usize)>,
}

const SECTIONS: &[&str] = &[".struct_ops", ".struct_ops.link"];

pub fn read(elf: &Elf, btf: &Btf) -> Result<Vec<Variable>> {
    let mut out = Vec::new();
    for section_name in SECTIONS {
        let Some((section, _)) = elf.section(section_name) else {
            continue;
        };
        for (name, ty, _) in btf.datasec(section_name) {
            let symbol = elf
                .data_symbol(section, name)
                .ok_or_else(|| LoadError::Broken(format!("variable {name} has no symbol")))?;
            match btf.resolved(ty) {
                Type::Composite {
                    name: t, members, ..
                } if t == "sched_ext_ops" => {
                    out.push(variable(elf, btf, section, name, symbol.value, members)?);
                }
                other => {
                    let what = match other {
                        Type::Composite { name, .. } => name.as_str(),
                        _ => "something else",
                    };
                    return Err(LoadError::Unsupported(format!(
                        "struct_ops of type {what} (variable {name}); it runs struct sched_ext_ops"
                    )));
                }
            }
        }
    }
    Ok(out)
}

fn variable(
    elf: &Elf,
    btf: &Btf,
    section: usize,
    name: &str,
    base: u64,
    members: &[Member],
) -> Result<Variable> {
    let data = &elf.sections[section].data;
    let mut v = Variable {
        ops: OpsVar {
            var: name.to_string(),
            name: String::new(),
            flags: 0,
            timeout_ms: 0,
            dispatch_max_batch: 0,
            exit_dump_len: 0,
            hotplug_seq: 0,
            ops: Vec::new(),
        },
        functions: Vec::new(),
    };
    for m in members {
        let at = base + u64::from(m.bit_offset / 8);
        let size = btf.size(m.ty) as usize;
        let bytes = data.get(at as usize..at as usize + size).ok_or_else(|| {
            LoadError::Broken(format!("variable {name} is shorter than its type"))
        })?;
        if let Some(relocation) = elf.sections[section].relocations.get(&at) {
            let op = Op::from_name(&m.name).ok_or_else(|| {
                LoadError::Unsupported(format!("the operation {} (variable {name})", m.name))
            })?;
            let target = &elf.symbols[relocation.symbol];
            let function = if target.is_section {
                let offset = u64::from_le_bytes(bytes.try_into().unwrap_or_default())
                    + relocation.addend as u64;
                target.section.and_then(|s| elf.function_at(s, offset))
            } else {
                target.function.then_some(relocation.symbol)
            };
            let function = function
                .ok_or_else(|| LoadError::Broken(format!("{name}.{} is not a function", m.name)))?;
            v.functions.push((op, function));
            continue;
        }
        if bytes.iter().all(|b| *b == 0) {
            continue;
        }
        let mut number = [0u8; 8];
        number[..size.min(8)].copy_from_slice(&bytes[..size.min(8)]);
        let number = u64::from_le_bytes(number);
        match m.name.as_str() {
            "name" => {
                let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
                v.ops.name = String::from_utf8_lossy(text).into_owned();
            }
            "flags" => v.ops.flags = number,
            "timeout_ms" => v.ops.timeout_ms = number as u32,
            "dispatch_max_batch" => v.ops.dispatch_max_batch = number as u32,
            "exit_dump_len" => v.ops.exit_dump_len = number as u32,
            "hotplug_seq" => v.ops.hotplug_seq = number,
            other => {
                return Err(LoadError::Unsupported(format!(
                    "the member {other} of struct sched_ext_ops (variable {name}, value {number})"
                )));
            }
        }
    }
    if v.ops.name.is_empty()
        || !v
            .ops
            .name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_.".contains(&b))
    {
        return Err(LoadError::Setting(format!(
            "the scheduler `{name}` needs a .name of letters, digits, `_` and `.` (it is `{}`), as the kernel asks",
            v.ops.name
        )));
    }
    Ok(v)
}

impl Variable {
    /// The variable with its functions loaded.
    pub fn link(&self, _elf: &Elf, linker: &mut Linker) -> Result<OpsVar> {
        let mut ops = self.ops.clone();
        for (op, symbol) in &self.functions {
            ops.ops.push((*op, linker.entry(*symbol)?));
        }
        ops.ops.sort_by_key(|(op, _)| *op);
        Ok(ops)
    }
}
