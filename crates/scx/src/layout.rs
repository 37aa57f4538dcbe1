// SPDX-License-Identifier: GPL-2.0-only
//! Where things lie, by BTF: the object's variables, its scheduler's members, the kernel's constants and members.
use crate::ScxError;
use crate::exit::ExitLayout;
use libbpf_rs::btf::types::{
    Array, DataSec, Enum, Enum64, Func, Int, IntEncoding, MemberAttr, Struct, Var,
};
use libbpf_rs::btf::{Btf, BtfKind, BtfType};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;

/// How a variable's bytes are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unsigned,
    Signed,
    Bool,
    /// Array of char.
    Text,
    Other,
}

/// A global variable of the object.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// `.rodata`, `.data`, `.bss`, or `.data.NAME` and the like.
    pub section: String,
    pub offset: usize,
    pub size: usize,
    pub kind: Kind,
}

/// A member of the object's `struct sched_ext_ops`: offset and size in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub offset: usize,
    pub size: usize,
}

/// A scheduler (struct_ops variable) of the object.
#[derive(Clone, Debug)]
pub(crate) struct Ops {
    /// `sched_ext_ops` or `sched_ext_ops_cid`.
    pub type_name: String,
    pub members: BTreeMap<String, Member>,
}

/// What the object's BTF tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub variables: BTreeMap<String, Variable>,
    pub ops: BTreeMap<String, Ops>,
    /// Variable holding the exit record, and its fields.
    pub exit: Option<(String, ExitLayout)>,
    /// Members of `struct berth_stats`, in order.
    pub counters: Vec<String>,
}

/// What the kernel's BTF tells.
pub(crate) struct Kernel {
    btf: Btf<'static>,
}

fn name_of(t: &BtfType<'_>) -> String {
    t.name()
        .map(|s| s.to_string_lossy().into_owned())
        .unwrap_or_default()
}

impl Layout {
    pub fn of(btf: &Btf<'_>) -> Layout {
        let mut l = Layout::default();
        if let Some(s) = btf.type_by_name::<Struct<'_>>("berth_stats") {
            l.counters = members(btf, *s).into_iter().map(|m| m.0).collect();
        }
        for sec in btf.type_by_kind::<DataSec<'_>>() {
            let section = name_of(&sec);
            let ops = section.starts_with(".struct_ops");
            for info in sec.iter() {
                let Some(var) = btf.type_by_id::<Var<'_>>(info.ty) else {
                    continue;
                };
                let name = name_of(&var);
                let Some(ty) = var.next_type() else { continue };
                let ty = ty.skip_mods_and_typedefs();
                if ops {
                    if let Some(o) = ops_of(btf, ty) {
                        l.ops.insert(name, o);
                    }
                    continue;
                }
                if name_of(&ty) == "user_exit_info"
                    && let Some(e) = exit_of(btf, ty)
                {
                    l.exit = Some((name.clone(), e));
                }
                let v = Variable {
                    section: section.clone(),
                    offset: info.offset as usize,
                    size: info.size,
                    kind: kind_of(btf, ty),
                };
                l.variables.insert(name, v);
            }
        }
        l
    }
}

fn kind_of(btf: &Btf<'_>, ty: BtfType<'_>) -> Kind {
    match ty.kind() {
        BtfKind::Int => match Int::try_from(ty).map(|i| i.encoding) {
            Ok(IntEncoding::Bool) => Kind::Bool,
            Ok(IntEncoding::Signed | IntEncoding::Char) => Kind::Signed,
            _ => Kind::Unsigned,
        },
        BtfKind::Enum if Enum::try_from(ty).is_ok_and(|e| e.is_signed()) => Kind::Signed,
        BtfKind::Enum64 if Enum64::try_from(ty).is_ok_and(|e| e.is_signed()) => Kind::Signed,
        BtfKind::Enum | BtfKind::Enum64 => Kind::Unsigned,
        BtfKind::Array => {
            let of_char = Array::try_from(ty)
                .ok()
                .and_then(|a| btf.type_by_id::<BtfType<'_>>(a.ty()))
                .map(|e| name_of(&e.skip_mods_and_typedefs()));
            match of_char.as_deref() {
                Some("char") => Kind::Text,
                _ => Kind::Other,
            }
        }
        _ => Kind::Other,
    }
}

/// Members of a struct by name: offset in bytes and type; bit fields and unnamed members left out.
fn members<'b>(btf: &'b Btf<'_>, ty: BtfType<'b>) -> Vec<(String, usize, BtfType<'b>)> {
    let Ok(s) = Struct::try_from(ty) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for i in 0..s.len() {
        let Some(m) = s.get(i) else { continue };
        let (Some(name), MemberAttr::Normal { offset }) = (m.name, m.attr) else {
            continue;
        };
        if let Some(t) = btf.type_by_id::<BtfType<'_>>(m.ty) {
            let t = t.skip_mods_and_typedefs();
            out.push((name.to_string_lossy().into_owned(), offset as usize / 8, t));
        }
    }
    out
}

/// Size in bytes of the member types that occur in `sched_ext_ops` and `user_exit_info`.
fn size_of(btf: &Btf<'_>, ty: BtfType<'_>) -> Option<usize> {
    Some(match ty.kind() {
        BtfKind::Ptr => 8,
        BtfKind::Int => usize::from(Int::try_from(ty).ok()?.bits / 8),
        BtfKind::Enum => 4,
        BtfKind::Enum64 => 8,
        BtfKind::Array => {
            let a = Array::try_from(ty).ok()?;
            let e = btf
                .type_by_id::<BtfType<'_>>(a.ty())?
                .skip_mods_and_typedefs();
            a.capacity() * size_of(btf, e)?
        }
        _ => return None,
    })
}

fn ops_of<'b>(btf: &'b Btf<'_>, ty: BtfType<'b>) -> Option<Ops> {
    let type_name = name_of(&ty);
    if !type_name.starts_with("sched_ext_ops") {
        return None;
    }
    let members = members(btf, ty)
        .into_iter()
        .filter_map(|(n, offset, t)| {
            let size = size_of(btf, t)?;
            Some((n, Member { offset, size }))
        })
        .collect();
    Some(Ops { type_name, members })
}

fn exit_of<'b>(btf: &'b Btf<'_>, ty: BtfType<'b>) -> Option<ExitLayout> {
    let m = members(btf, ty);
    let find = |n: &str| {
        let (_, off, t) = m.iter().find(|(name, ..)| name == n)?;
        Some((*off, size_of(btf, *t)?))
    };
    Some(ExitLayout {
        kind: find("kind")?.0,
        code: find("exit_code")?.0,
        reason: find("reason")?,
        message: find("msg")?,
    })
}

impl Kernel {
    /// Reads the running kernel's BTF.
    pub fn running() -> Result<Kernel, ScxError> {
        let btf = Btf::from_vmlinux().map_err(|e| ScxError::NoBtf(e.to_string()))?;
        Ok(Kernel { btf })
    }

    /// The `SCX_*` enumerators and their values, as the 64 bits a policy sees.
    pub fn constants(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        let mut add = |name: Option<&OsStr>, value: u64| {
            if let Some(n) = name.and_then(OsStr::to_str)
                && n.contains("SCX_")
            {
                found.insert(n.to_string(), value);
            }
        };
        for e in self.btf.type_by_kind::<Enum<'_>>() {
            for m in (0..e.len()).filter_map(|i| e.get(i)) {
                add(m.name, m.value as u64);
            }
        }
        for e in self.btf.type_by_kind::<Enum64<'_>>() {
            for m in (0..e.len()).filter_map(|i| e.get(i)) {
                add(m.name, m.value as u64);
            }
        }
        found
    }

    /// Member names of a struct; empty if the kernel has no such type.
    pub fn members(&self, type_name: &str) -> BTreeSet<String> {
        match self.btf.type_by_name::<Struct<'_>>(type_name) {
            Some(s) => members(&self.btf, *s).into_iter().map(|m| m.0).collect(),
            None => BTreeSet::new(),
        }
    }

    pub fn has_function(&self, name: &str) -> bool {
        self.btf.type_by_name::<Func<'_>>(name).is_some()
    }
}
