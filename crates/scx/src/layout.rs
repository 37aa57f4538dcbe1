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
use std::sync::OnceLock;

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

/// What a kernel's BTF tells.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// The `SCX_*` enumerators and their values, as the 64 bits a policy sees.
    pub constants: BTreeMap<String, u64>,
    /// Of each kind of `sched_ext_ops`, its members.
    ops: BTreeMap<String, BTreeSet<String>>,
    /// Syscall programs are tied to the scheduler they belong to (7.1 and newer).
    pub associates: bool,
}

/// Names of the kinds of `sched_ext_ops` begin with it.
const OPS: &str = "sched_ext_ops";
/// The kernel's function behind [`Kernel::associates`].
const ASSOCIATES: &str = "bpf_prog_assoc_struct_ops";

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
    if !type_name.starts_with(OPS) {
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
    /// The running kernel's, read by the first load of this process: some hundred thousand types.
    pub fn running() -> Result<&'static Kernel, ScxError> {
        static RUNNING: OnceLock<Kernel> = OnceLock::new();
        match RUNNING.get() {
            Some(kernel) => Ok(kernel),
            None => {
                let kernel = Kernel::of(&vmlinux()?);
                Ok(RUNNING.get_or_init(|| kernel))
            }
        }
    }

    fn of(btf: &Btf<'_>) -> Kernel {
        let mut kernel = Kernel::default();
        for ty in btf.type_by_kind::<BtfType<'_>>() {
            match ty.kind() {
                BtfKind::Enum => {
                    let Ok(e) = Enum::try_from(ty) else { continue };
                    let all = (0..e.len()).filter_map(|i| e.get(i));
                    kernel.add_constants(all.map(|m| (m.name, m.value as u64)));
                }
                BtfKind::Enum64 => {
                    let Ok(e) = Enum64::try_from(ty) else {
                        continue;
                    };
                    let all = (0..e.len()).filter_map(|i| e.get(i));
                    kernel.add_constants(all.map(|m| (m.name, m.value as u64)));
                }
                BtfKind::Struct => {
                    let name = ty.name().and_then(OsStr::to_str).unwrap_or_default();
                    if name.starts_with(OPS) {
                        let names = members(btf, ty).into_iter().map(|m| m.0).collect();
                        kernel.ops.entry(name.to_string()).or_insert(names);
                    }
                }
                BtfKind::Func => kernel.associates |= ty.name() == Some(ASSOCIATES.as_ref()),
                _ => {}
            }
        }
        kernel
    }

    fn add_constants<'n>(&mut self, all: impl Iterator<Item = (Option<&'n OsStr>, u64)>) {
        for (name, value) in all {
            if let Some(name) = name.and_then(OsStr::to_str)
                && name.contains("SCX_")
            {
                self.constants.insert(name.to_string(), value);
            }
        }
    }

    /// Member names of this kind of `sched_ext_ops`; none if the kernel has no such type.
    pub fn members(&self, ops_type: &str) -> BTreeSet<String> {
        self.ops.get(ops_type).cloned().unwrap_or_default()
    }
}

/// Which of these functions the running kernel has not. Few objects ask: its types are read again each time.
pub(crate) fn missing_functions(names: BTreeSet<String>) -> Result<BTreeSet<String>, ScxError> {
    if names.is_empty() {
        return Ok(names);
    }
    let btf = vmlinux()?;
    let is_missing = |name: &String| btf.type_by_name::<Func<'_>>(name).is_none();
    Ok(names.into_iter().filter(is_missing).collect())
}

fn vmlinux() -> Result<Btf<'static>, ScxError> {
    Btf::from_vmlinux().map_err(|e| ScxError::NoBtf(e.to_string()))
}
