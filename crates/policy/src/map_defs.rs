// SPDX-License-Identifier: GPL-2.0-only
//! Map definitions: the BTF of section `.maps`.
use crate::btf::{Btf, Member, Type, TypeId};
use crate::elf::Elf;
use crate::error::{LoadError, Result};
use crate::ir::{MapDef, ValueField};
use crate::maps::kind;

/// A map and where its symbol is.
#[derive(Debug)]
pub struct Definition {
    pub def: MapDef,
    /// Offset in section `.maps`.
    pub offset: u64,
}

/// All maps of the object, in the order of their places.
pub fn read(elf: &Elf, btf: &Btf) -> Result<Vec<Definition>> {
    let Some((section, _)) = elf.section(".maps") else {
        return Ok(Vec::new());
    };
    let mut maps = Vec::new();
    for (name, ty, _) in btf.datasec(".maps") {
        let symbol = elf
            .data_symbol(section, name)
            .ok_or_else(|| LoadError::Broken(format!("map {name} has no symbol")))?;
        maps.push(Definition {
            def: definition(btf, name, ty)?,
            offset: symbol.value,
        });
    }
    maps.sort_by_key(|m| m.offset);
    Ok(maps)
}

fn definition(btf: &Btf, name: &str, ty: TypeId) -> Result<MapDef> {
    let Type::Composite { members, .. } = btf.resolved(ty) else {
        return Err(LoadError::Broken(format!("map {name} is not a structure")));
    };
    let mut def = MapDef {
        name: name.to_string(),
        kind: 0,
        key_size: 0,
        value_size: 0,
        max_entries: 0,
        flags: 0,
        timers: Vec::new(),
        kptrs: Vec::new(),
        fields: Vec::new(),
    };
    for member in members {
        let number = || {
            number(btf, member).ok_or_else(|| {
                LoadError::Broken(format!("map {name}: {} is not a number", member.name))
            })
        };
        match member.name.as_str() {
            "type" => def.kind = number()?,
            "key_size" => def.key_size = number()?,
            "value_size" => def.value_size = number()?,
            "max_entries" => def.max_entries = number()?,
            "map_flags" => def.flags = number()?,
            "key" | "value" => {
                let Type::Ptr(target) = btf.resolved(member.ty) else {
                    return Err(LoadError::Broken(format!(
                        "map {name}: {} is not a type",
                        member.name
                    )));
                };
                if member.name == "key" {
                    def.key_size = btf.size(*target);
                } else {
                    def.value_size = btf.size(*target);
                    if let Type::Composite { members, .. } = btf.resolved(*target) {
                        let field = |m: &Member| ValueField {
                            name: m.name.clone(),
                            offset: m.bit_offset / 8,
                            size: btf.size(m.ty),
                        };
                        def.fields = members.iter().map(field).collect();
                    }
                    special_fields(btf, *target, 0, &mut def, 8)?;
                }
            }
            // Where the kernel places or pins a map means nothing here.
            "numa_node" | "pinning" | "map_extra" => {}
            "values" => {
                return Err(LoadError::Unsupported(format!(
                    "maps in maps, types 12 and 13 (map {name})"
                )));
            }
            other => {
                return Err(LoadError::Unsupported(format!(
                    "map attribute {other} (map {name})"
                )));
            }
        }
    }
    check(&mut def)?;
    Ok(def)
}

/// `__uint(name, n)` is a pointer to an array of `n` elements.
fn number(btf: &Btf, member: &Member) -> Option<u32> {
    let Type::Ptr(array) = btf.resolved(member.ty) else {
        return None;
    };
    match btf.resolved(*array) {
        Type::Array { count, .. } => Some(*count),
        _ => None,
    }
}

/// Timers, kernel pointers and what is refused, anywhere in the value.
fn special_fields(btf: &Btf, ty: TypeId, offset: u32, def: &mut MapDef, depth: u32) -> Result<()> {
    if depth == 0 {
        return Ok(());
    }
    match btf.resolved(ty) {
        Type::Composite { name, members, .. } => match name.as_str() {
            "bpf_timer" => def.timers.push(offset),
            "bpf_wq" | "bpf_list_head" | "bpf_rb_root" | "bpf_task_work" => {
                return Err(LoadError::Unsupported(format!(
                    "struct {name} in a map value (map {})",
                    def.name
                )));
            }
            _ => {
                for m in members {
                    let at = offset.saturating_add(m.bit_offset / 8);
                    special_fields(btf, m.ty, at, def, depth - 1)?;
                }
            }
        },
        Type::Array { elem, count } => {
            let size = btf.size(*elem);
            // Only arrays of structures or pointers can hold such fields.
            if matches!(btf.resolved(*elem), Type::Composite { .. } | Type::Ptr(_)) {
                for i in 0..*count {
                    let at = offset.saturating_add(i.saturating_mul(size));
                    if size == 0 || at >= def.value_size {
                        break;
                    }
                    special_fields(btf, *elem, at, def, depth - 1)?;
                }
            }
        }
        Type::Ptr(target) => {
            if let Type::TypeTag { tag, .. } = btf.get(*target) {
                if tag == "kptr" || tag == "kptr_untrusted" {
                    def.kptrs.push(offset);
                } else if tag == "percpu_kptr" || tag == "uptr" {
                    return Err(LoadError::Unsupported(format!(
                        "pointers tagged {tag} (map {})",
                        def.name
                    )));
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn check(def: &mut MapDef) -> Result<()> {
    let name = &def.name;
    let timers = def.timers.iter().map(|at| (at, 16));
    let mut fields = timers.chain(def.kptrs.iter().map(|at| (at, 8)));
    if fields.any(|(at, size)| u64::from(*at) + size > u64::from(def.value_size)) {
        return Err(LoadError::Broken(format!(
            "map {name}: a timer or kernel pointer lies outside its values of {} bytes",
            def.value_size
        )));
    }
    let storage = matches!(def.kind, kind::TASK_STORAGE | kind::CGRP_STORAGE);
    if storage && (def.key_size != 4 || def.value_size == 0) {
        return Err(LoadError::Broken(format!(
            "map {name}: a storage has keys of four bytes and values, not keys of {} and values of {}",
            def.key_size, def.value_size
        )));
    }
    match def.kind {
        kind::HASH
        | kind::ARRAY
        | kind::PERCPU_HASH
        | kind::PERCPU_ARRAY
        | kind::LRU_HASH
        | kind::LRU_PERCPU_HASH
        | kind::QUEUE
        | kind::STACK
        | kind::RINGBUF
        | kind::TASK_STORAGE
        | kind::CGRP_STORAGE => Ok(()),
        kind::PERF_EVENT_ARRAY => {
            // One slot per CPU unless the policy says otherwise; keys and values are numbers of the kernel's.
            def.key_size = 4;
            def.value_size = 4;
            Ok(())
        }
        other => {
            let what = kind::NAMES
                .get(other as usize)
                .map_or(String::new(), |n| format!(", {n}"));
            Err(LoadError::Unsupported(format!(
                "maps of type {other}{what} (map {name}); `berth policy supported` lists those it has"
            )))
        }
    }
}
