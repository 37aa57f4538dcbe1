// SPDX-License-Identifier: GPL-2.0-only
//! Map definitions: the BTF of section `.maps`, and its relocations: which maps a map of maps begins with.
use crate::btf::{Btf, Member, Type, TypeId};
use crate::elf::{Elf, ElfSection, Symbol};
use crate::error::{LoadError, Result};
use crate::ir::{MapDef, MapId, ValueField};
use crate::maps::kind;
use crate::maps::pages::Pages;

/// A map and where its symbol is.
#[derive(Debug)]
pub struct Definition {
    pub def: MapDef,
    /// Offset in section `.maps`; none for a map that no code names.
    pub offset: Option<u64>,
    /// Of a map of maps: what its elements are like, and the offset of its first in section `.maps`.
    inner: Option<(MapDef, u64)>,
}

/// All maps of the object, in the order of their places, and then those that are elements of others and have no name.
pub fn read(elf: &Elf, btf: &Btf) -> Result<Vec<Definition>> {
    let Some((number, section)) = elf.section(".maps") else {
        return Ok(Vec::new());
    };
    let mut maps = Vec::new();
    let mut ends = Vec::new();
    for (name, ty, _) in btf.datasec(".maps") {
        let symbol = elf
            .data_symbol(number, name)
            .ok_or_else(|| LoadError::Broken(format!("map {name} has no symbol")))?;
        let (def, inner) = definition(btf, name, ty)?;
        maps.push(Definition {
            def,
            offset: Some(symbol.value),
            inner: inner.map(|(def, at)| (def, symbol.value.saturating_add(at))),
        });
        ends.push((symbol.value, symbol.value.saturating_add(symbol.size)));
    }
    maps.sort_by_key(|m| m.offset);
    ends.sort_unstable();
    let arenas = maps.iter().filter(|m| m.def.kind == kind::ARENA);
    let arenas: Vec<&str> = arenas.map(|m| m.def.name.as_str()).collect();
    if arenas.len() > 1 {
        return Err(LoadError::Unsupported(format!(
            "more than one arena (maps {})",
            arenas.join(", ")
        )));
    }
    for (i, (_, end)) in ends.iter().enumerate() {
        if let Some((_, first)) = maps[i].inner {
            maps[i].def.inner = elements(elf, number, section, &maps, first, *end)?;
        }
    }
    fill(&mut maps)?;
    Ok(maps)
}

/// Bytes of a pointer in section `.maps`.
const POINTER: u64 = 8;

/// The maps that the pointers from `first` to `end` lead to, by their number.
fn elements(
    elf: &Elf,
    number: usize,
    section: &ElfSection,
    maps: &[Definition],
    first: u64,
    end: u64,
) -> Result<Vec<(u32, MapId)>> {
    let mut found = Vec::new();
    for (at, relocation) in section.relocations.range(first..end.max(first)) {
        let broken = || LoadError::Broken(format!("section .maps, offset {at}: no map"));
        let symbol: &Symbol = &elf.symbols[relocation.symbol];
        let from = at - first;
        let slot = u32::try_from(from / POINTER).ok();
        let slot = slot.filter(|_| from.is_multiple_of(POINTER));
        // A named map's symbol is where it is; with the section's, the word there says where.
        let word = usize::try_from(*at).ok();
        let word = word.and_then(|at| section.data.get(at..)?.first_chunk::<8>());
        let within = match symbol.is_section {
            true => word.map_or(0, |word| u64::from_le_bytes(*word)),
            false => 0,
        };
        let place = symbol.value.wrapping_add(within);
        let map = maps.iter().position(|m| m.offset == Some(place));
        let map = map.filter(|_| symbol.section == Some(number));
        found.push((slot.ok_or_else(broken)?, map.ok_or_else(broken)?));
    }
    Ok(found)
}

/// Maps that an object's arrays of maps may get from their templates.
const MOST_INNER: u32 = 1 << 16;

/// An array of maps that begins with none is one that its scheduler's own loader fills: it has a map of the template
/// for each element.
fn fill(maps: &mut Vec<Definition>) -> Result<()> {
    let mut left = MOST_INNER;
    for i in 0..maps.len() {
        let outer = &maps[i].def;
        let array = outer.kind == kind::ARRAY_OF_MAPS && outer.inner.is_empty();
        let Some((template, _)) = maps[i].inner.as_ref().filter(|_| array) else {
            continue;
        };
        // One that has no size has it from the loader.
        if template.max_entries == 0 && !is_storage(template.kind) {
            continue;
        }
        let (name, template, count) = (outer.name.clone(), template.clone(), outer.max_entries);
        left = left.checked_sub(count).ok_or_else(|| {
            LoadError::Unsupported(format!(
                "more than {MOST_INNER} maps in maps (map {name} has {count})"
            ))
        })?;
        for slot in 0..count {
            let made = maps.len();
            maps[i].def.inner.push((slot, made));
            maps.push(Definition {
                def: MapDef {
                    name: format!("{name}[{slot}]"),
                    ..template.clone()
                },
                offset: None,
                inner: None,
            });
        }
    }
    Ok(())
}

fn is_storage(kind: u32) -> bool {
    matches!(kind, kind::TASK_STORAGE | kind::CGRP_STORAGE)
}

/// A map, and if it is one of maps what is in it, and where in it that begins.
fn definition(btf: &Btf, name: &str, ty: TypeId) -> Result<(MapDef, Option<(MapDef, u64)>)> {
    let Type::Composite { members, .. } = btf.resolved(ty) else {
        return Err(LoadError::Broken(format!("map {name} is not a structure")));
    };
    let mut inner = None;
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
        inner: Vec::new(),
        extra: 0,
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
            "numa_node" | "pinning" => {}
            "map_extra" => {
                def.extra = wide_number(btf, member).ok_or_else(|| {
                    LoadError::Broken(format!("map {name}: map_extra is not a number"))
                })?;
            }
            "values" => inner = Some((member, u64::from(member.bit_offset / 8))),
            other => {
                return Err(LoadError::Unsupported(format!(
                    "map attribute {other} (map {name})"
                )));
            }
        }
    }
    let of_maps = matches!(def.kind, kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS);
    // Of anything else (programs) its type says why it is refused.
    let inner = match inner.filter(|_| of_maps) {
        Some((member, at)) => {
            // What libbpf takes if the object does not say it: the size of a map's number.
            if def.value_size == 0 {
                def.value_size = 4;
            }
            Some((template(btf, name, member)?, at))
        }
        None => None,
    };
    check(&mut def)?;
    Ok((def, inner))
}

/// What the elements of a map of maps are like: `__array(values, struct ...)`.
fn template(btf: &Btf, outer: &str, member: &Member) -> Result<MapDef> {
    let broken = || LoadError::Broken(format!("map {outer}: values are no maps"));
    let Type::Array { elem, .. } = btf.resolved(member.ty) else {
        return Err(broken());
    };
    let Type::Ptr(target) = btf.resolved(*elem) else {
        return Err(broken());
    };
    let Type::Composite { members, .. } = btf.resolved(*target) else {
        return Err(broken());
    };
    // As the kernel: one level.
    if members.iter().any(|m| m.name == "values") {
        return Err(LoadError::Unsupported(format!(
            "maps in maps in maps (map {outer})"
        )));
    }
    let (def, _) = definition(btf, &format!("in {outer}"), *target)?;
    match def.kind {
        kind::ARENA => Err(LoadError::Unsupported(format!(
            "arenas in maps (map {outer})"
        ))),
        _ => Ok(def),
    }
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

/// `__ulong(name, n)` is an enumeration with one value.
fn wide_number(btf: &Btf, member: &Member) -> Option<u64> {
    match btf.resolved(member.ty) {
        Type::Enum { values, .. } => values.first().map(|(_, value)| *value),
        _ => number(btf, member).map(u64::from),
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
    let storage = is_storage(def.kind);
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
        | kind::ARRAY_OF_MAPS
        | kind::HASH_OF_MAPS
        | kind::QUEUE
        | kind::STACK
        | kind::RINGBUF
        | kind::TASK_STORAGE
        | kind::CGRP_STORAGE => Ok(()),
        kind::ARENA => {
            Pages::check(def).map_err(|what| LoadError::Broken(format!("map {}: {what}", def.name)))
        }
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
