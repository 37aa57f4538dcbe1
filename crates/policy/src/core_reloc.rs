// SPDX-License-Identifier: GPL-2.0-only
//! CO-RE: what a policy asks of the kernel's types, answered from the kernel view.
use crate::btf::{Btf, CoreRecord, Type, TypeId, essential};
use crate::kview::{self, Field, StructDesc, Ty};
use crate::kview_consts;
use crate::needs::Needs;
use crate::profile::KernelProfile;

/// Answer to one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The number to put into the instruction.
    Value {
        value: u64,
        /// Size of the field in the view, for loads and stores of integers whose size differs.
        size: Option<u32>,
    },
    /// The kernel view has it not; the text names it.
    Missing(String),
}

fn value(value: u64) -> Answer {
    Answer::Value { value, size: None }
}

/// Field-, type- and enum-kinds of records (`enum bpf_core_relo_kind`).
mod kind {
    pub const FIELD_OFFSET: u32 = 0;
    pub const FIELD_SIZE: u32 = 1;
    pub const FIELD_EXISTS: u32 = 2;
    pub const FIELD_SIGNED: u32 = 3;
    pub const FIELD_LSHIFT: u32 = 4;
    pub const FIELD_RSHIFT: u32 = 5;
    pub const TYPE_ID_LOCAL: u32 = 6;
    pub const TYPE_ID_TARGET: u32 = 7;
    pub const TYPE_EXISTS: u32 = 8;
    pub const TYPE_SIZE: u32 = 9;
    pub const ENUMVAL_EXISTS: u32 = 10;
    pub const ENUMVAL_VALUE: u32 = 11;
    pub const TYPE_MATCHES: u32 = 12;
}

/// Answer `record` for a kernel of `profile`.
pub fn answer(btf: &Btf, record: &CoreRecord, profile: &KernelProfile) -> Answer {
    match record.kind {
        kind::TYPE_ID_LOCAL => value(u64::from(record.ty)),
        kind::ENUMVAL_EXISTS | kind::ENUMVAL_VALUE => enum_value(btf, record, profile),
        kind::TYPE_EXISTS | kind::TYPE_SIZE | kind::TYPE_MATCHES | kind::TYPE_ID_TARGET => {
            type_question(btf, record, profile)
        }
        kind::FIELD_OFFSET..=kind::FIELD_RSHIFT => field_question(btf, record, profile),
        other => Answer::Missing(format!("CO-RE record of unknown kind {other}")),
    }
}

/// Is it the number of a type of the object's own?
pub fn names_a_type(record: &CoreRecord) -> bool {
    record.kind == kind::TYPE_ID_LOCAL
}

/// What the answer to `record` lets a policy reach.
pub fn needs(btf: &Btf, record: &CoreRecord) -> Needs {
    match record.kind {
        kind::FIELD_OFFSET => {
            let Some((path, _)) = path(btf, record) else {
                return Needs::ALL;
            };
            let field = match path.steps.first() {
                Some(Step::Name(name)) if path.first_index == 0 => Some(name.as_str()),
                _ => None,
            };
            Needs::of_field(&path.root, field)
        }
        kind::TYPE_SIZE => {
            let name = btf.name(btf.resolve(record.ty));
            Needs::of_field(essential(name), None)
        }
        _ => Needs::default(),
    }
}

fn enum_value(btf: &Btf, record: &CoreRecord, profile: &KernelProfile) -> Answer {
    let id = btf.resolve(record.ty);
    let name = match (btf.get(id), record.access.parse::<usize>()) {
        (Type::Enum { values, .. }, Ok(i)) => values.get(i).map(|(n, _)| essential(n)),
        _ => None,
    };
    let Some(name) = name else {
        return Answer::Missing("an enum constant that the object does not name".into());
    };
    let found = kview_consts::value(name, profile.version);
    if record.kind == kind::ENUMVAL_EXISTS {
        return value(u64::from(found.is_some()));
    }
    match found {
        Some(v) => value(v),
        None => Answer::Missing(format!("enum {}::{name}", essential(btf.name(id)))),
    }
}

/// The view's structure, if kernels of this profile have it.
fn structure(name: &str, profile: &KernelProfile) -> Option<&'static StructDesc> {
    kview::find(name).filter(|s| profile.version >= kview_consts::type_since(s.name))
}

fn type_question(btf: &Btf, record: &CoreRecord, profile: &KernelProfile) -> Answer {
    let id = btf.resolve(record.ty);
    let name = essential(btf.name(id));
    let (exists, size) = match btf.get(id) {
        Type::Composite { .. } | Type::Fwd(_) => {
            let found = structure(name, profile);
            (found.is_some(), found.map(|s| s.size))
        }
        Type::Enum { size, .. } => (
            kview_consts::enum_exists(name, profile.version),
            Some(*size),
        ),
        Type::Int { size, .. } => (true, Some(*size)),
        _ => (false, None),
    };
    match record.kind {
        kind::TYPE_EXISTS | kind::TYPE_MATCHES => value(u64::from(exists)),
        kind::TYPE_SIZE if exists => value(u64::from(size.unwrap_or(0))),
        _ => Answer::Missing(format!("type {name}")),
    }
}

/// Where a field path ends in the kernel view.
struct Found {
    offset: u32,
    size: u32,
    signed: bool,
    integer: bool,
}

fn field_question(btf: &Btf, record: &CoreRecord, profile: &KernelProfile) -> Answer {
    let (path, local_size) = match path(btf, record) {
        Some(found) => found,
        None => {
            return Answer::Missing(format!(
                "CO-RE path {} of {}",
                record.access,
                btf.name(record.ty)
            ));
        }
    };
    let found = find(&path, profile);
    let shift = |f: &Found| value(u64::from(64 - 8 * f.size.min(8)));
    match (record.kind, found) {
        (kind::FIELD_EXISTS, found) => value(u64::from(found.is_some())),
        (kind::FIELD_OFFSET, Some(f)) => Answer::Value {
            value: u64::from(f.offset),
            size: (f.integer && f.size != local_size && local_size != 0).then_some(f.size),
        },
        (kind::FIELD_SIZE, Some(f)) => value(u64::from(f.size)),
        (kind::FIELD_SIGNED, Some(f)) => value(u64::from(f.signed)),
        (kind::FIELD_LSHIFT | kind::FIELD_RSHIFT, Some(f)) => shift(&f),
        _ => Answer::Missing(path.text()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Name(String),
    Index(u32),
}

#[derive(Debug)]
struct Path {
    root: String,
    first_index: u32,
    steps: Vec<Step>,
}

impl Path {
    fn text(&self) -> String {
        let mut out = format!("field {}", self.root);
        for step in &self.steps {
            match step {
                Step::Name(n) => {
                    out.push('.');
                    out.push_str(n);
                }
                Step::Index(i) => out.push_str(&format!("[{i}]")),
            }
        }
        out
    }
}

/// The path as names, and the size the policy was compiled with (0 for a bit field).
fn path(btf: &Btf, record: &CoreRecord) -> Option<(Path, u32)> {
    let mut numbers = record.access.split(':').map(|n| n.parse::<u32>().ok());
    let first_index = numbers.next()??;
    let mut ty: TypeId = btf.resolve(record.ty);
    let mut path = Path {
        root: match btf.name(ty) {
            "" => "(unnamed)".to_string(),
            name => essential(name).to_string(),
        },
        first_index,
        steps: Vec::new(),
    };
    let mut size = btf.size(ty);
    for number in numbers {
        let number = number?;
        match btf.get(ty) {
            Type::Composite { members, .. } => {
                let member = members.get(number as usize)?;
                // Anonymous structures are not a step: the view is flat where the kernel is anonymous.
                if !member.name.is_empty() {
                    path.steps
                        .push(Step::Name(essential(&member.name).to_string()));
                }
                ty = btf.resolve(member.ty);
                size = if member.bits != 0 { 0 } else { btf.size(ty) };
            }
            Type::Array { elem, .. } => {
                path.steps.push(Step::Index(number));
                ty = btf.resolve(*elem);
                size = btf.size(ty);
            }
            _ => return None,
        }
    }
    Some((path, size))
}

fn find(path: &Path, profile: &KernelProfile) -> Option<Found> {
    let mut desc = Some(structure(&path.root, profile)?);
    let mut offset = path.first_index * desc.map_or(0, |d| d.size);
    let mut ty = Ty::Struct(desc.map_or("", |d| d.name));
    let mut size = desc.map_or(0, |d| d.size);
    for step in &path.steps {
        match step {
            Step::Name(name) => {
                let field: &Field = desc?.fields.iter().find(|f| f.name == name)?;
                if profile.version < kview_consts::field_since(desc?.name, name) {
                    return None;
                }
                offset += field.offset;
                (ty, size) = (field.ty, field.size);
            }
            Step::Index(i) => match ty {
                Ty::Array(elem, count) if *i < count => {
                    ty = *elem;
                    size /= count;
                    offset += i * size;
                }
                _ => return None,
            },
        }
        desc = match ty {
            Ty::Struct(name) => kview::find(name),
            _ => None,
        };
    }
    let (signed, integer) = match ty {
        Ty::Int { signed, .. } => (signed, true),
        _ => (false, false),
    };
    Some(Found {
        offset,
        size,
        signed,
        integer,
    })
}
