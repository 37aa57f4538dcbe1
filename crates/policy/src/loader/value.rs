// SPDX-License-Identifier: GPL-2.0-only
//! Values of variables: where in a variable, written as text, shown as text.
use crate::btf::{Btf, Type, TypeId};

/// A step from a variable into it.
#[derive(Debug, PartialEq)]
pub enum Step<'a> {
    Field(&'a str),
    Element(u64),
}

type Result<T> = std::result::Result<T, String>;

/// `NAME.field[3]` as name and steps.
pub fn steps(path: &str) -> Result<(&str, Vec<Step<'_>>)> {
    let path = path.trim();
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (name, mut rest) = path.split_at(end);
    let word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !word(name) {
        return Err("the name of a variable is missing".into());
    }
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let step = match rest.strip_prefix('[') {
            Some(inner) => {
                let (index, after) = inner.split_once(']').ok_or("`]` is missing")?;
                rest = after;
                let index = index.trim().parse();
                Step::Element(index.map_err(|_| "an index is no whole number")?)
            }
            None => {
                let inner = rest.strip_prefix('.').ok_or("after `]` come `.` or `[`")?;
                let end = inner.find(['.', '[']).unwrap_or(inner.len());
                let (field, after) = inner.split_at(end);
                rest = after;
                if !word(field) {
                    return Err("the name of a field is missing".into());
                }
                Step::Field(field)
            }
        };
        steps.push(step);
    }
    Ok((name, steps))
}

/// The type at the end of the steps, and its offset in bytes.
pub fn walk(btf: &Btf, mut ty: TypeId, steps: &[Step<'_>]) -> Result<(TypeId, u64)> {
    let mut offset = 0;
    for step in steps {
        match (step, btf.resolved(ty)) {
            (Step::Element(i), Type::Array { elem, count }) => {
                if *i >= u64::from(*count) {
                    return Err(format!("the array has {count} elements"));
                }
                offset += i * u64::from(btf.size(*elem));
                ty = *elem;
            }
            (Step::Field(name), Type::Composite { members, .. }) => {
                let Some(member) = members.iter().find(|m| m.name == *name) else {
                    let names: Vec<_> = members.iter().map(|m| m.name.as_str()).collect();
                    return Err(format!("no field `{name}`; it has: {}", names.join(", ")));
                };
                if member.bits != 0 {
                    return Err(format!("field `{name}` is one of bits"));
                }
                offset += u64::from(member.bit_offset / 8);
                ty = member.ty;
            }
            (Step::Element(_), _) => return Err("it is no array".into()),
            (Step::Field(_), _) => return Err("it has no fields".into()),
        }
    }
    Ok((ty, offset))
}

/// Declared `const volatile`, itself or the elements of an array.
pub fn const_volatile(btf: &Btf, mut ty: TypeId) -> bool {
    let mut qualifiers = 0;
    for _ in 0..btf.types.len() {
        match btf.get(ty) {
            Type::Modifier(inner) => {
                qualifiers += 1;
                ty = *inner;
            }
            Type::Typedef { ty: inner, .. } | Type::TypeTag { ty: inner, .. } => ty = *inner,
            Type::Array { elem, .. } => ty = *elem,
            _ => break,
        }
    }
    qualifiers >= 2
}

/// Bytes to be written and where, in the order of their places.
pub fn encode(btf: &Btf, ty: TypeId, path: &str, text: &str) -> Result<Vec<(u64, Vec<u8>)>> {
    match btf.resolved(ty) {
        Type::Array { elem, count } if is_char(btf, *elem) && number(text, path).is_err() => {
            let room = *count as usize;
            if text.len() >= room {
                return Err(format!(
                    "a text of at most {} bytes",
                    room.saturating_sub(1)
                ));
            }
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(room, 0);
            Ok(vec![(0, bytes)])
        }
        Type::Array { elem, count } => encode_list(btf, *elem, *count, path, text),
        Type::Int { size, .. } | Type::Enum { size, .. } => {
            let (signed, truth) = match btf.resolved(ty) {
                Type::Int { name, signed, .. } => (*signed, is_bool(name)),
                Type::Enum { signed, .. } => (*signed, false),
                _ => (false, false),
            };
            let value = match named(btf, ty, text.trim()) {
                Some(value) => value,
                None if truth => number(text, path).map_err(|_| "true or false")?,
                None => number(text, path)?,
            };
            if !matches!(size, 1 | 2 | 4 | 8) {
                return Err(format!("a number of {size} bytes"));
            }
            let bits = 8 * *size;
            let (least, most) = match (truth, signed) {
                (true, _) => (0, 1),
                (_, true) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
                (_, false) => (0, (1i128 << bits) - 1),
            };
            if !(least..=most).contains(&value) {
                return Err(match truth {
                    true => "true or false".into(),
                    false => format!("must be from {least} to {most}"),
                });
            }
            Ok(vec![(0, value.to_le_bytes()[..*size as usize].to_vec())])
        }
        Type::Composite { members, .. } => {
            let names: Vec<_> = members.iter().map(|m| m.name.as_str()).collect();
            let names = names.join(", ");
            Err(format!("it is a structure: set one of its fields: {names}"))
        }
        _ => Err("it is no number, and no array of numbers".into()),
    }
}

/// The first elements of an array of so many.
pub fn encode_list(
    btf: &Btf,
    elem: TypeId,
    count: u32,
    path: &str,
    text: &str,
) -> Result<Vec<(u64, Vec<u8>)>> {
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.len() > count as usize {
        return Err(format!("{} values, and the array has {count}", items.len()));
    }
    let size = u64::from(btf.size(elem));
    let mut all = Vec::new();
    for (i, item) in (0u64..).zip(items) {
        for (at, bytes) in encode(btf, elem, path, item)? {
            all.push((i * size + at, bytes));
        }
    }
    Ok(all)
}

fn is_char(btf: &Btf, ty: TypeId) -> bool {
    matches!(btf.resolved(ty), Type::Int { name, size: 1, .. } if name == "char")
}

fn is_bool(name: &str) -> bool {
    matches!(name, "_Bool" | "bool")
}

/// The value of a name: of an enumeration, or of a truth.
fn named(btf: &Btf, ty: TypeId, text: &str) -> Option<i128> {
    match (btf.resolved(ty), text) {
        (Type::Enum { values, signed, .. }, _) => {
            let (_, value) = values.iter().find(|(name, _)| name == text)?;
            Some(match signed {
                true => i128::from(*value as i64),
                false => i128::from(*value),
            })
        }
        (_, "true" | "on" | "yes") => Some(1),
        (_, "false" | "off" | "no") => Some(0),
        _ => None,
    }
}

/// A whole number, decimal or hexadecimal, or a time for a variable that says its unit in its name.
fn number(text: &str, path: &str) -> Result<i128> {
    let plain = text.trim().replace('_', "");
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, plain.as_str()),
    };
    let parsed = match digits.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    };
    // Far beyond what a variable holds, whose type says how much that is.
    if let Some(value) = parsed.filter(|v: &i128| (0..=1 << 100).contains(v)) {
        return Ok(sign * value);
    }
    let units = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ];
    let of = units
        .iter()
        .find(|(unit, _)| path.ends_with(&format!("_{unit}")));
    let ends = |unit: &str| digits.strip_suffix(unit)?.trim().parse::<i128>().ok();
    let given = units
        .iter()
        .find_map(|(unit, ns)| Some(ends(unit)?.checked_mul(*ns)));
    match (of, given) {
        (Some((_, to)), Some(Some(ns))) if ns % to == 0 => Ok(sign * ns / to),
        (None, Some(_)) => {
            Err("write a plain number: its name does not end in _ns, _us, _ms or _s".into())
        }
        (Some(_), _) => Err("not a whole number, and no time such as 5ms".into()),
        _ => Err("not a whole number".into()),
    }
}

/// A value as compiled.
pub fn show(btf: &Btf, ty: TypeId, bytes: &[u8]) -> String {
    match btf.resolved(ty) {
        Type::Int { name, .. } if is_bool(name) => (bytes.first() != Some(&0)).to_string(),
        Type::Int { signed, .. } => plain(bytes, *signed).to_string(),
        Type::Enum { values, signed, .. } => {
            let value = plain(bytes, *signed);
            let known = values
                .iter()
                .find(|(_, v)| i128::from(*v) == value || i128::from(*v as i64) == value);
            known.map_or_else(|| value.to_string(), |(name, _)| name.clone())
        }
        Type::Array { elem, .. } if is_char(btf, *elem) && bytes.first() != Some(&0) => {
            let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
            format!("\"{}\"", String::from_utf8_lossy(text).escape_debug())
        }
        Type::Array { count, .. } if bytes.iter().all(|b| *b == 0) => format!("0 ({count} times)"),
        Type::Array { elem, count } => {
            let size = (btf.size(*elem) as usize).max(1);
            let first: Vec<_> = bytes
                .chunks(size)
                .take(4)
                .map(|b| show(btf, *elem, b))
                .collect();
            let more = if *count > 4 { ", ..." } else { "" };
            format!("{}{more} ({count} values)", first.join(", "))
        }
        _ if bytes.iter().all(|b| *b == 0) => "all zero".into(),
        _ => format!("{} bytes", bytes.len()),
    }
}

fn plain(bytes: &[u8], signed: bool) -> i128 {
    let mut all = [0u8; 16];
    let size = bytes.len().min(8);
    all[..size].copy_from_slice(&bytes[..size]);
    let value = i128::from_le_bytes(all);
    let top = size > 0 && bytes[size - 1] & 0x80 != 0;
    if signed && top {
        value - (1i128 << (8 * size))
    } else {
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(steps("slice_ns").unwrap(), ("slice_ns", vec![]));
        let (name, found) = steps("layers[2].perf.weight[0]").unwrap();
        assert_eq!(name, "layers");
        let wanted = [
            Step::Element(2),
            Step::Field("perf"),
            Step::Field("weight"),
            Step::Element(0),
        ];
        assert_eq!(found, wanted);
        for wrong in ["", "[1]", "a[", "a[x]", "a..b", "a[1]b", "a b"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(number("0x10", "a"), Ok(16));
        assert_eq!(number(" -5 ", "a"), Ok(-5));
        assert_eq!(number("20_000", "a"), Ok(20_000));
        assert_eq!(number("5ms", "slice_ns"), Ok(5_000_000));
        assert_eq!(number("5ms", "slice_us"), Ok(5_000));
        assert!(number("5ms", "slice").unwrap_err().contains("_ns"));
        for wrong in [
            "5us",
            "x",
            "",
            "1e3",
            "99999999999999999999999999999999999999999s",
        ] {
            assert!(number(wrong, "slice_ms").is_err(), "{wrong}");
        }
        assert_eq!(plain(&[0xff], true), -1);
        assert_eq!(plain(&[0xff], false), 255);
    }
}
