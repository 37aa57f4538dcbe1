// SPDX-License-Identifier: GPL-2.0-only
//! From a compiled object to a [`Program`]: maps, data sections, schedulers, and the code that can be reached
//! from them, with every relocation resolved.
use crate::btf::{self, Btf, CodeInfo, Type};
use crate::code::Linker;
use crate::elf::Elf;
use crate::error::{LoadError, Result};
use crate::ir::{Program, Section, Var};
use crate::kview_consts;
use crate::loader::calls;
use crate::map_defs;
use crate::ops_vars;
use crate::presets;
use crate::profile::KernelProfile;
use crate::sections::WEAK_TAG;

/// Load the object `bytes` for a kernel of `profile`.
///
/// # Errors
/// Not a BPF object, broken, or uses something the simulator does not have (calls that may turn out
/// unreachable are decided later, by the compiler: see `native_build`).
pub fn load(bytes: &[u8], profile: &KernelProfile) -> Result<Program> {
    let elf = Elf::parse(bytes)?;
    let btf = match elf.section(".BTF") {
        Some((_, s)) => Btf::parse(&s.data)?,
        None => {
            return Err(LoadError::NotAPolicy(
                "it has no type information; compile with `-g`".into(),
            ));
        }
    };
    let info = match elf.section(".BTF.ext") {
        Some((_, s)) => btf::parse_ext(&btf, &s.data)?,
        None => Default::default(),
    };
    let maps = map_defs::read(&elf, &btf)?;
    let (sections, section_of) = data_sections(&elf, &btf, profile)?;
    let presets = match elf.section(presets::SECTION) {
        Some((i, _)) => variables(&elf, &btf, i)?,
        None => Vec::new(),
    };
    let all = sections.iter().flat_map(|s| &s.vars);
    if all.clone().any(|v| v.name == ARENA_SCALAR) {
        return Err(LoadError::Unsupported(
            "arena memory through numbers instead of pointers (SCX_ARENA_SCALAR)".into(),
        ));
    }
    let variables = ops_vars::read(&elf, &btf)?;
    let syscalls: Vec<(String, usize)> = elf.syscalls().map(|(i, s)| (s.name.clone(), i)).collect();
    let calls = match elf.section(calls::SECTION) {
        Some((_, section)) => calls::read(&section.data)?,
        None => Vec::new(),
    };
    if let Some(call) = calls
        .iter()
        .find(|c| syscalls.iter().all(|(name, _)| *name != c.program))
    {
        return Err(LoadError::Broken(format!(
            "its loader runs `{}`, and it has no such program",
            call.program
        )));
    }
    if variables.is_empty() && syscalls.is_empty() {
        return Err(LoadError::NotAPolicy(
            "it defines neither a scheduler (SCX_OPS_DEFINE) nor a SEC(\"syscall\") program".into(),
        ));
    }
    let empty = CodeInfo::default();
    let mut linker = Linker::new(
        &elf,
        &btf,
        &info,
        &empty,
        profile,
        &maps,
        &sections,
        &section_of,
    );
    let structs = variables
        .iter()
        .map(|v| v.link(&elf, &mut linker))
        .collect::<Result<Vec<_>>>()?;
    let syscalls = syscalls
        .into_iter()
        .map(|(name, symbol)| Ok((name, linker.entry(symbol)?)))
        .collect::<Result<Vec<_>>>()?;
    let (funcs, files, needs, types) = linker.finish()?;
    Ok(Program {
        funcs,
        maps: maps.into_iter().map(|m| m.def).collect(),
        sections,
        structs,
        syscalls,
        calls,
        presets: presets.into_iter().flat_map(|v| v.tags).collect(),
        files,
        needs,
        types,
    })
}

/// The headers' mark in objects whose loads and stores do not tell an arena's addresses from others.
const ARENA_SCALAR: &str = "__SCX_MARKER_arena_scalar";

fn is_data(name: &str) -> bool {
    [".rodata", ".data", ".bss"].iter().any(|base| {
        name.strip_prefix(base)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Data sections, and for each ELF section the number of its data section.
fn data_sections(
    elf: &Elf,
    btf: &Btf,
    profile: &KernelProfile,
) -> Result<(Vec<Section>, Vec<Option<usize>>)> {
    let mut sections = Vec::new();
    let mut section_of = vec![None; elf.sections.len()];
    for (i, s) in elf.sections.iter().enumerate() {
        let wanted = is_data(&s.name) || s.name == Section::ARENA;
        if !wanted || s.executable || s.data.is_empty() {
            continue;
        }
        if let Some((offset, _)) = s.relocations.first_key_value() {
            return Err(LoadError::Unsupported(format!(
                "pointers in initialised data (section {}, offset {offset})",
                s.name
            )));
        }
        let mut section = Section {
            name: s.name.clone(),
            data: s.data.clone(),
            readonly: s.name.starts_with(".rodata"),
            vars: variables(elf, btf, i)?,
        };
        if section.readonly {
            fill_constants(&mut section, profile)?;
        }
        section_of[i] = Some(sections.len());
        sections.push(section);
    }
    let kconfig = kconfig_section(elf, btf)?;
    if !kconfig.vars.is_empty() {
        sections.push(kconfig);
    }
    Ok((sections, section_of))
}

/// The variables of an ELF section, by symbol; types and tags from BTF where it has them.
fn variables(elf: &Elf, btf: &Btf, section: usize) -> Result<Vec<Var>> {
    let types = btf.datasec(&elf.sections[section].name);
    let mut vars: Vec<Var> = elf
        .symbols
        .iter()
        .filter(|s| {
            s.section == Some(section) && !s.function && !s.is_section && !s.name.is_empty()
        })
        .map(|s| {
            let ty = types
                .iter()
                .find(|(n, ..)| *n == s.name)
                .map(|(_, ty, _)| *ty);
            Var {
                name: s.name.clone(),
                offset: s.value as u32,
                size: s.size as u32,
                signed: ty
                    .is_some_and(|t| matches!(btf.resolved(t), Type::Int { signed: true, .. })),
                tags: btf.var_tags(&s.name),
            }
        })
        .collect();
    let len = elf.sections[section].data.len() as u64;
    if let Some(s) = elf.symbols.iter().find(|s| {
        s.section == Some(section) && s.value.checked_add(s.size).is_none_or(|end| end > len)
    }) {
        return Err(LoadError::Broken(format!(
            "variable `{}` lies outside section {}",
            s.name, elf.sections[section].name
        )));
    }
    vars.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
    Ok(vars)
}

/// The sched_ext headers declare `__SCX_X` variables for the loader to fill with the kernel's `SCX_X`.
fn fill_constants(section: &mut Section, profile: &KernelProfile) -> Result<()> {
    for var in &section.vars {
        let Some(name) = var
            .name
            .strip_prefix("__")
            .filter(|n| n.starts_with("SCX_"))
        else {
            continue;
        };
        if var.size != 8 {
            continue;
        }
        if !kview_consts::known(name) {
            return Err(LoadError::Unsupported(format!(
                "the kernel constant {name} (variable __{name})"
            )));
        }
        let value = kview_consts::value(name, profile.version).unwrap_or(0);
        let start = var.offset as usize;
        if let Some(place) = section.data.get_mut(start..start + 8) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
    Ok(())
}

/// Configuration values longer than this are a mistake, bytes.
const KCONFIG_MAX: u32 = 4096;

/// `.kconfig`: externals by BTF, laid out here. Values are put in per instance.
fn kconfig_section(elf: &Elf, btf: &Btf) -> Result<Section> {
    let mut at = 0u32;
    let mut vars = Vec::new();
    for (name, ty, _) in btf.datasec(".kconfig") {
        let size = btf.size(ty);
        if size > KCONFIG_MAX || at > KCONFIG_MAX {
            return Err(LoadError::Broken(format!(
                "kernel configuration value {name} of {size} bytes"
            )));
        }
        let align = match btf.resolved(ty) {
            Type::Array { elem, .. } => btf.size(*elem),
            _ => size,
        }
        .clamp(1, 8)
        .next_power_of_two();
        at = at.next_multiple_of(align);
        let weak = elf.symbols.iter().any(|s| s.name == name && s.weak);
        vars.push(Var {
            name: name.to_string(),
            offset: at,
            size,
            signed: matches!(btf.resolved(ty), Type::Int { signed: true, .. }),
            tags: if weak {
                vec![WEAK_TAG.to_string()]
            } else {
                Vec::new()
            },
        });
        at += size;
    }
    Ok(Section {
        name: ".kconfig".into(),
        data: vec![0; at as usize],
        readonly: true,
        vars,
    })
}
