// SPDX-License-Identifier: GPL-2.0-only
//! BTF, the type information in a BPF object (and in a kernel): reading `.BTF` and `.BTF.ext`.
use crate::elf::Elf;
use crate::error::{LoadError, Result};

pub type TypeId = u32;

#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub name: String,
    pub ty: TypeId,
    pub bit_offset: u32,
    /// 0 = not a bit field.
    pub bits: u32,
}

#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::enum_variant_names)] // the format's own names
pub enum Type {
    Void,
    Int {
        name: String,
        size: u32,
        signed: bool,
    },
    Ptr(TypeId),
    Array {
        elem: TypeId,
        count: u32,
    },
    /// Structure or union.
    Composite {
        name: String,
        size: u32,
        union: bool,
        members: Vec<Member>,
    },
    Enum {
        name: String,
        size: u32,
        signed: bool,
        values: Vec<(String, u64)>,
    },
    Fwd(String),
    Typedef {
        name: String,
        ty: TypeId,
    },
    /// const, volatile, restrict.
    Modifier(TypeId),
    TypeTag {
        tag: String,
        ty: TypeId,
    },
    Func {
        name: String,
        proto: TypeId,
    },
    FuncProto {
        ret: TypeId,
        params: Vec<TypeId>,
    },
    Var {
        name: String,
        ty: TypeId,
    },
    Datasec {
        name: String,
        /// Type (a `Var` or `Func`) and size.
        vars: Vec<(TypeId, u32)>,
    },
    Float(u32),
    DeclTag {
        tag: String,
        ty: TypeId,
        component: i32,
    },
}

/// The types of one object, by id; id 0 is void.
#[derive(Debug)]
pub struct Btf {
    pub types: Vec<Type>,
    strings: Vec<u8>,
}

/// Little-endian reader with a message instead of a panic.
#[derive(Clone)]
struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.bytes()?))
    }
    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let end = self.at.checked_add(N);
        let slice = end
            .and_then(|end| self.data.get(self.at..end))
            .ok_or_else(|| LoadError::Broken("type information (.BTF) ends too early".into()))?;
        self.at += N;
        let mut out = [0; N];
        out.copy_from_slice(slice);
        Ok(out)
    }
}

const MAGIC: u16 = 0xeb9f;

/// A part of a section by offset and length.
fn part(data: &[u8], header: u32, offset: u32, len: u32) -> Result<&[u8]> {
    let start = header as usize + offset as usize;
    data.get(start..start + len as usize)
        .ok_or_else(|| LoadError::Broken("type information (.BTF) has parts outside itself".into()))
}

impl Btf {
    /// The types of an object file.
    ///
    /// # Errors
    /// No ELF object for BPF, or without readable type information.
    pub fn of_object(object: &[u8]) -> Result<Btf> {
        let elf = Elf::parse(object)?;
        let (_, section) = elf
            .section(".BTF")
            .ok_or_else(|| LoadError::Broken("no type information (.BTF)".into()))?;
        Btf::parse(&section.data)
    }

    /// The types of a `.BTF` section (little-endian).
    ///
    /// # Errors
    /// It ends too early, or holds what cannot be.
    pub fn parse(data: &[u8]) -> Result<Btf> {
        let mut r = Reader { data, at: 0 };
        if r.u16()? != MAGIC {
            return Err(LoadError::Broken(
                "type information (.BTF) has a wrong magic number".into(),
            ));
        }
        r.u16()?;
        let header = r.u32()?;
        let (type_off, type_len) = (r.u32()?, r.u32()?);
        let (str_off, str_len) = (r.u32()?, r.u32()?);
        let strings = part(data, header, str_off, str_len)?.to_vec();
        let mut btf = Btf {
            types: vec![Type::Void],
            strings,
        };
        let types = part(data, header, type_off, type_len)?;
        let mut r = Reader { data: types, at: 0 };
        while r.at < types.len() {
            let ty = btf.read_type(&mut r)?;
            btf.types.push(ty);
        }
        Ok(btf)
    }

    fn read_type(&self, r: &mut Reader) -> Result<Type> {
        let name = self.string(r.u32()?)?.to_string();
        let info = r.u32()?;
        // Size or type, by kind.
        let value = r.u32()?;
        let (count, kind, flag) = (info & 0xffff, (info >> 24) & 31, info >> 31 != 0);
        Ok(match kind {
            1 => {
                let encoding = r.u32()? >> 24;
                Type::Int {
                    name,
                    size: value,
                    signed: encoding & 1 != 0,
                }
            }
            2 => Type::Ptr(value),
            3 => {
                let (elem, _index, count) = (r.u32()?, r.u32()?, r.u32()?);
                Type::Array { elem, count }
            }
            4 | 5 => {
                let members = (0..count)
                    .map(|_| {
                        let (n, ty, offset) = (r.u32()?, r.u32()?, r.u32()?);
                        Ok(Member {
                            name: self.string(n)?.to_string(),
                            ty,
                            bit_offset: if flag { offset & 0xff_ffff } else { offset },
                            bits: if flag { offset >> 24 } else { 0 },
                        })
                    })
                    .collect::<Result<_>>()?;
                Type::Composite {
                    name,
                    size: value,
                    union: kind == 5,
                    members,
                }
            }
            6 => {
                let values = (0..count)
                    .map(|_| {
                        let (n, v) = (r.u32()?, r.u32()?);
                        let v = if flag {
                            v as i32 as i64 as u64
                        } else {
                            u64::from(v)
                        };
                        Ok((self.string(n)?.to_string(), v))
                    })
                    .collect::<Result<_>>()?;
                Type::Enum {
                    name,
                    size: value,
                    signed: flag,
                    values,
                }
            }
            7 => Type::Fwd(name),
            8 => Type::Typedef { name, ty: value },
            9..=11 => Type::Modifier(value),
            12 => Type::Func { name, proto: value },
            13 => {
                let params = (0..count)
                    .map(|_| {
                        r.u32()?;
                        r.u32()
                    })
                    .collect::<Result<_>>()?;
                Type::FuncProto { ret: value, params }
            }
            14 => {
                r.u32()?;
                Type::Var { name, ty: value }
            }
            15 => {
                let vars = (0..count)
                    .map(|_| {
                        let (ty, _offset, size) = (r.u32()?, r.u32()?, r.u32()?);
                        Ok((ty, size))
                    })
                    .collect::<Result<_>>()?;
                Type::Datasec { name, vars }
            }
            16 => Type::Float(value),
            17 => Type::DeclTag {
                tag: name,
                ty: value,
                component: r.u32()? as i32,
            },
            18 => Type::TypeTag {
                tag: name,
                ty: value,
            },
            19 => {
                let values = (0..count)
                    .map(|_| {
                        let (n, lo, hi) = (r.u32()?, r.u32()?, r.u32()?);
                        let v = u64::from(lo) | (u64::from(hi) << 32);
                        Ok((self.string(n)?.to_string(), v))
                    })
                    .collect::<Result<_>>()?;
                Type::Enum {
                    name,
                    size: value,
                    signed: flag,
                    values,
                }
            }
            other => {
                return Err(LoadError::Broken(format!(
                    "type information (.BTF) has a type of unknown kind {other}"
                )));
            }
        })
    }

    /// A string of the string table.
    pub fn string(&self, offset: u32) -> Result<&str> {
        self.strings
            .get(offset as usize..)
            .and_then(|s| s.split(|b| *b == 0).next())
            .and_then(|s| std::str::from_utf8(s).ok())
            .ok_or_else(|| LoadError::Broken("type information (.BTF) has a bad string".into()))
    }

    /// The type with this id; void if there is none.
    pub fn get(&self, id: TypeId) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Void)
    }

    /// The id behind typedefs, qualifiers and type tags.
    pub fn resolve(&self, mut id: TypeId) -> TypeId {
        // A chain longer than the table is a cycle.
        for _ in 0..self.types.len() {
            match self.get(id) {
                Type::Typedef { ty, .. } | Type::Modifier(ty) | Type::TypeTag { ty, .. } => {
                    id = *ty
                }
                _ => break,
            }
        }
        id
    }

    /// The type behind typedefs, qualifiers and type tags.
    pub fn resolved(&self, id: TypeId) -> &Type {
        self.get(self.resolve(id))
    }

    /// Size in bytes; 0 if it has none.
    pub fn size(&self, id: TypeId) -> u32 {
        self.size_within(id, 32)
    }

    fn size_within(&self, id: TypeId, depth: u32) -> u32 {
        match self.resolved(id) {
            Type::Int { size, .. }
            | Type::Composite { size, .. }
            | Type::Enum { size, .. }
            | Type::Float(size) => *size,
            Type::Ptr(_) => 8,
            Type::Array { elem, count } if depth > 0 => {
                self.size_within(*elem, depth - 1).saturating_mul(*count)
            }
            _ => 0,
        }
    }

    /// Name of a named type; empty otherwise.
    pub fn name(&self, id: TypeId) -> &str {
        match self.get(id) {
            Type::Int { name, .. }
            | Type::Composite { name, .. }
            | Type::Enum { name, .. }
            | Type::Fwd(name)
            | Type::Typedef { name, .. }
            | Type::Func { name, .. }
            | Type::Var { name, .. }
            | Type::Datasec { name, .. } => name,
            _ => "",
        }
    }

    /// The variables of data section `section`: name, type, size.
    pub fn datasec(&self, section: &str) -> Vec<(&str, TypeId, u32)> {
        self.types
            .iter()
            .find_map(|t| match t {
                Type::Datasec { name, vars } if name == section => Some(vars),
                _ => None,
            })
            .into_iter()
            .flatten()
            .filter_map(|(id, size)| match self.get(*id) {
                Type::Var { name, ty } => Some((name.as_str(), *ty, *size)),
                _ => None,
            })
            .collect()
    }

    /// Declaration tags on variable `name`.
    pub fn var_tags(&self, name: &str) -> Vec<String> {
        self.types
            .iter()
            .filter_map(|t| match t {
                Type::DeclTag {
                    tag,
                    ty,
                    component: -1,
                } if matches!(self.get(*ty), Type::Var { name: n, .. } if n == name) => {
                    Some(tag.clone())
                }
                _ => None,
            })
            .collect()
    }

    /// All declaration tags, each as "what it is on, the tag".
    pub fn tags(&self) -> Vec<String> {
        self.types
            .iter()
            .filter_map(|t| match t {
                Type::DeclTag { tag, ty, component } => {
                    Some(format!("{} {component} {tag}", self.name(*ty)))
                }
                _ => None,
            })
            .collect()
    }

    /// Prototype of function `name`: number of parameters, and whether it returns anything.
    pub fn function(&self, wanted: &str) -> Option<(&Vec<TypeId>, TypeId)> {
        self.types.iter().find_map(|t| match t {
            Type::Func { name, proto } if name == wanted => match self.get(*proto) {
                Type::FuncProto { ret, params } => Some((params, *ret)),
                _ => None,
            },
            _ => None,
        })
    }
}

/// Where an instruction comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Byte offset in the section.
    pub offset: u32,
    pub file: String,
    pub line: u32,
}

/// One CO-RE record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreRecord {
    /// Byte offset of the instruction in the section.
    pub offset: u32,
    pub ty: TypeId,
    /// Path such as `0:1:3`.
    pub access: String,
    pub kind: u32,
}

/// What `.BTF.ext` says about one code section.
#[derive(Debug, Default)]
pub struct CodeInfo {
    /// In order of offset.
    pub lines: Vec<Line>,
    pub core: Vec<CoreRecord>,
}

/// Parse `.BTF.ext`: records per code section name.
pub fn parse_ext(btf: &Btf, data: &[u8]) -> Result<std::collections::BTreeMap<String, CodeInfo>> {
    let mut r = Reader { data, at: 0 };
    if r.u16()? != MAGIC {
        return Err(LoadError::Broken(
            "line information (.BTF.ext) has a wrong magic number".into(),
        ));
    }
    r.u16()?;
    let header = r.u32()?;
    let (_func_off, _func_len) = (r.u32()?, r.u32()?);
    let (line_off, line_len) = (r.u32()?, r.u32()?);
    // Objects without CO-RE may have the shorter header.
    let (core_off, core_len) = if header >= 32 {
        (r.u32()?, r.u32()?)
    } else {
        (0, 0)
    };
    let mut out = std::collections::BTreeMap::<String, CodeInfo>::new();
    records(
        btf,
        part(data, header, line_off, line_len)?,
        |section, r| {
            let (offset, file, _text, line_col) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
            out.entry(section.to_string())
                .or_default()
                .lines
                .push(Line {
                    offset,
                    file: btf.string(file)?.to_string(),
                    line: line_col >> 10,
                });
            Ok(())
        },
    )?;
    records(
        btf,
        part(data, header, core_off, core_len)?,
        |section, r| {
            let (offset, ty, access, kind) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
            out.entry(section.to_string())
                .or_default()
                .core
                .push(CoreRecord {
                    offset,
                    ty,
                    access: btf.string(access)?.to_string(),
                    kind,
                });
            Ok(())
        },
    )?;
    for info in out.values_mut() {
        info.lines.sort_by_key(|l| l.offset);
        info.core.sort_by_key(|c| c.offset);
    }
    Ok(out)
}

/// Walk one sub-section: record size, then groups of (section name, count, records).
fn records(
    btf: &Btf,
    data: &[u8],
    mut each: impl FnMut(&str, &mut Reader) -> Result<()>,
) -> Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let mut r = Reader { data, at: 0 };
    let size = r.u32()? as usize;
    if size < 16 {
        return Err(LoadError::Broken(format!(
            "line information (.BTF.ext) has records of {size} bytes"
        )));
    }
    while r.at < data.len() {
        let section = btf.string(r.u32()?)?;
        let count = r.u32()?;
        for _ in 0..count {
            let mut record = r.clone();
            each(section, &mut record)?;
            r.at += size;
        }
    }
    Ok(())
}

/// A name without its `___flavour`.
pub fn essential(name: &str) -> &str {
    match name.find("___") {
        Some(i) if i > 0 => &name[..i],
        _ => name,
    }
}
