// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler's own loader does with its object before a kernel gets it: values of global variables, flags of the
//! scheduler, arrays as long as the machine is large, programs to be run. Here it is done to the object's bytes, so
//! that simulator, lab and host run the same object, with a hash of its own.
pub mod calls;
mod image;
mod value;

use crate::btf::{Btf, Type, TypeId};
use crate::elf::Elf;
use crate::error::{LoadError, Result};
use crate::kview_consts;
use calls::Call;
use image::Image;
use std::collections::{BTreeMap, BTreeSet};

/// What is set. The default changes nothing but arrays that are there to be resized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Values of global variables, as written: `NAME`, `NAME.field` or `NAME[3]`.
    pub values: BTreeMap<String, String>,
    /// All flags of the scheduler, with or without `SCX_OPS_`; none: as compiled.
    pub ops_flags: Option<Vec<String>>,
    /// Elements of arrays that have a section of their own.
    pub resize: BTreeMap<String, u32>,
    /// CPUs: the length of arrays of one element in sections of their own (`RESIZABLE_ARRAY` of the scx headers).
    pub cpus: u32,
    /// Of the kernel, e.g. (7, 2): which flags there are.
    pub kernel: (u16, u16),
    /// Programs that are run around the scheduler's start, in this order.
    pub calls: Vec<Call>,
}

/// An object as its loader would hand it over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    pub object: Vec<u8>,
    /// `const volatile` variables that nobody has set, and their values as compiled; none of an object that declares
    /// parameters.
    pub unset: Vec<(String, String)>,
    /// Arrays that were made longer, and their elements.
    pub resized: Vec<(String, u32)>,
}

fn setup_error(key: &'static str, why: String) -> LoadError {
    LoadError::Setup { key, why }
}

const SECTIONS_OF_OPS: [&str; 2] = [".struct_ops", ".struct_ops.link"];

/// Does it.
///
/// # Errors
/// There is no such variable, flag, array or program, or it cannot have that value; it is no policy's object.
pub fn ready(object: &[u8], setup: &Setup) -> Result<Ready> {
    let elf = Elf::parse(object)?;
    let btf = match elf.section(".BTF") {
        Some((_, section)) => Btf::parse(&section.data)?,
        None => {
            return Err(LoadError::NotAPolicy(
                "it has no type information; compile with `-g`".into(),
            ));
        }
    };
    let mut image = Image::new(object)?;
    let resized = resize(&elf, &btf, &mut image, setup)?;
    for (path, text) in &setup.values {
        set(&elf, &btf, &mut image, path, text, &resized)?;
    }
    if let Some(flags) = &setup.ops_flags {
        set_flags(&elf, &btf, &mut image, &number_of(flags, setup.kernel)?)?;
    }
    if !setup.calls.is_empty() {
        let programs = programs_of(&elf);
        let lacks = |call: &&Call| !programs.contains(&call.program);
        if let Some(call) = setup.calls.iter().find(lacks) {
            return Err(LoadError::Setting(format!(
                "there is no SEC(\"syscall\") program `{}`; it has: {}",
                call.program,
                list(&programs)
            )));
        }
        image.add(calls::SECTION, &calls::write(&setup.calls))?;
    }
    let own = btf.tags().iter().any(|tag| tag.contains(" berth:"));
    let unset = if own {
        Vec::new()
    } else {
        unset(&elf, &btf, setup)
    };
    Ok(Ready {
        object: image.bytes,
        unset,
        resized,
    })
}

/// The calls that the object carries; none if it cannot be read.
pub fn calls_of(object: &[u8]) -> Vec<Call> {
    let elf = Elf::parse(object).ok();
    let section = elf.as_ref().and_then(|elf| elf.section(calls::SECTION));
    section.map_or_else(Vec::new, |(_, s)| calls::read(&s.data).unwrap_or_default())
}

/// Names of the object's `SEC("syscall")` programs, which a loader may run.
pub fn programs(object: &[u8]) -> Vec<String> {
    Elf::parse(object).map_or_else(|_| Vec::new(), |elf| programs_of(&elf))
}

fn programs_of(elf: &Elf) -> Vec<String> {
    elf.syscalls().map(|(_, s)| s.name.clone()).collect()
}

/// The name of the object's only scheduler (`ops.name`); none if it has none, or several.
pub fn scheduler(object: &[u8]) -> Option<String> {
    let (elf, btf) = (Elf::parse(object).ok()?, Btf::of_object(object).ok()?);
    let found = schedulers(&elf, &btf);
    let [(section, base, members)] = &found[..] else {
        return None;
    };
    let name = members.iter().find(|m| m.name == "name")?;
    let start = (base + u64::from(name.bit_offset / 8)) as usize;
    let bytes = elf.sections[*section].data.get(start..)?;
    let text = bytes.split(|b| *b == 0).next()?;
    let text = std::str::from_utf8(text).ok()?;
    (!text.is_empty()).then(|| text.to_string())
}

/// A variable's `struct sched_ext_ops`: section, offset in it, members.
type Scheduler<'a> = (usize, u64, &'a [crate::btf::Member]);

fn schedulers<'a>(elf: &Elf, btf: &'a Btf) -> Vec<Scheduler<'a>> {
    let mut found = Vec::new();
    for name in SECTIONS_OF_OPS {
        let Some((section, _)) = elf.section(name) else {
            continue;
        };
        for (variable, ty, _) in btf.datasec(name) {
            let symbol = elf.data_symbol(section, variable);
            if let (Some(symbol), Type::Composite { name, members, .. }) =
                (symbol, btf.resolved(ty))
                && name == "sched_ext_ops"
            {
                found.push((section, symbol.value, &members[..]));
            }
        }
    }
    found
}

/// A flag's name as the kernel writes it.
fn full(flag: &str) -> String {
    let flag = flag.trim();
    match flag.starts_with("SCX_OPS_") {
        true => flag.to_string(),
        false => format!("SCX_OPS_{flag}"),
    }
}

/// Flags that a scheduler may have on a kernel, without `SCX_OPS_`.
pub fn flags(kernel: (u16, u16)) -> Vec<&'static str> {
    let all = kview_consts::group("scx_ops_flags", kernel);
    let flag = |name: &&str| !matches!(*name, "ALL_FLAGS" | "HAS_CPU_PREEMPT");
    let names = all.filter_map(|name| name.strip_prefix("SCX_OPS_"));
    names.filter(flag).collect()
}

fn number_of(names: &[String], kernel: (u16, u16)) -> Result<[u8; 8]> {
    let all = flags(kernel);
    let mut number = 0u64;
    for name in names.iter().filter(|name| name.trim() != "none") {
        let full = full(name);
        let short = full.trim_start_matches("SCX_OPS_");
        let value = kview_consts::value(&full, kernel).filter(|_| all.contains(&short));
        number |= value.ok_or_else(|| {
            setup_error(
                "ops_flags",
                format!(
                    "there is no scheduler flag `{name}` on kernel {}.{}; it has: {}, and `none`",
                    kernel.0,
                    kernel.1,
                    all.join(", ")
                ),
            )
        })?;
    }
    Ok(number.to_le_bytes())
}

fn set_flags(elf: &Elf, btf: &Btf, image: &mut Image, number: &[u8; 8]) -> Result<()> {
    for (section, base, members) in schedulers(elf, btf) {
        let member = members.iter().find(|m| m.name == "flags");
        let member = member.filter(|m| btf.size(m.ty) == 8).ok_or_else(|| {
            setup_error(
                "ops_flags",
                "its struct sched_ext_ops has no member `flags` of 8 bytes".into(),
            )
        })?;
        let at = base + u64::from(member.bit_offset / 8);
        image.write(&elf.sections[section].name, at, number)?;
    }
    Ok(())
}

fn is_data(section: &str) -> bool {
    [".rodata", ".data", ".bss"].iter().any(|base| {
        let rest = section.strip_prefix(base);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// A variable in a data section: its section's name, type, place.
fn find<'e>(elf: &'e Elf, btf: &Btf, name: &str) -> Option<(&'e str, TypeId, u64)> {
    let mut sections = elf.sections.iter().enumerate();
    sections.find_map(|(i, section)| {
        let found = is_data(&section.name).then(|| btf.datasec(&section.name))?;
        let (_, ty, _) = *found.iter().find(|(n, ..)| *n == name)?;
        let symbol = elf.data_symbol(i, name)?;
        Some((section.name.as_str(), ty, symbol.value))
    })
}

fn set(
    elf: &Elf,
    btf: &Btf,
    image: &mut Image,
    path: &str,
    text: &str,
    resized: &[(String, u32)],
) -> Result<()> {
    let wrong = |why: String| setup_error("rodata", format!("variable {path} = {text}: {why}"));
    let (name, steps) = value::steps(path).map_err(wrong)?;
    let Some((section, ty, base)) = find(elf, btf, name) else {
        return Err(setup_error(
            "rodata",
            format!(
                "there is no variable `{name}`; its loader could set: {}",
                list(&settable(elf, btf))
            ),
        ));
    };
    if section.starts_with(".bss") {
        return Err(wrong(format!(
            "it lies in {section}, where everything begins as 0; its source must give it a value first, or make it \
             const volatile"
        )));
    }
    let (ty, offset) = value::walk(btf, ty, &steps).map_err(wrong)?;
    let longer = resized.iter().find(|(n, _)| n == name && steps.is_empty());
    let writes = match (longer, btf.resolved(ty)) {
        (Some((_, count)), Type::Array { elem, .. }) => {
            value::encode_list(btf, *elem, *count, path, text)
        }
        _ => value::encode(btf, ty, path, text),
    };
    for (at, bytes) in writes.map_err(wrong)? {
        image.write(section, base + offset + at, &bytes)?;
    }
    Ok(())
}

/// Names of `const volatile` variables that are a loader's to set.
fn settable(elf: &Elf, btf: &Btf) -> Vec<String> {
    let sections = elf
        .sections
        .iter()
        .filter(|s| s.name.starts_with(".rodata"));
    let variables = sections.flat_map(|s| btf.datasec(&s.name));
    // The headers' own, and what the machine decides.
    let heads = ["__", "berth_", "scx_lib_"];
    let own = |name: &str| heads.iter().any(|head| name.starts_with(head)) || name == "nr_cpu_ids";
    let wanted = variables.filter(|(name, ty, _)| !own(name) && value::const_volatile(btf, *ty));
    wanted.map(|(name, ..)| name.to_string()).collect()
}

fn unset(elf: &Elf, btf: &Btf, setup: &Setup) -> Vec<(String, String)> {
    let said: BTreeSet<&str> = (setup.values.keys())
        .filter_map(|path| value::steps(path).ok())
        .map(|(name, _)| name)
        .collect();
    let names = settable(elf, btf).into_iter();
    let names = names.filter(|name| !said.contains(name.as_str()));
    names
        .filter_map(|name| {
            let (section, ty, base) = find(elf, btf, &name)?;
            let (_, section) = elf.section(section)?;
            let bytes = section.data.get(base as usize..)?;
            let bytes = bytes.get(..btf.size(ty) as usize)?;
            let text = value::show(btf, ty, bytes);
            Some((name, text))
        })
        .collect()
}

fn list(names: &[String]) -> String {
    match names {
        [] => "nothing".into(),
        names => names.join(", "),
    }
}

/// The array that a section holds and nothing else: name, elements, bytes of each. libbpf resizes such sections.
fn array_of<'b>(btf: &'b Btf, section: &str) -> Option<(&'b str, u32, u32)> {
    let variables = btf.datasec(section);
    let [(name, ty, _)] = variables[..] else {
        return None;
    };
    match btf.resolved(ty) {
        Type::Array { elem, count } if btf.size(*elem) > 0 => Some((name, *count, btf.size(*elem))),
        _ => None,
    }
}

/// An array may take so much, bytes.
const MOST: u64 = 64 << 20;

fn resize(elf: &Elf, btf: &Btf, image: &mut Image, setup: &Setup) -> Result<Vec<(String, u32)>> {
    let mut resized = Vec::new();
    let mut found = Vec::new();
    let own = [".rodata.", ".data.", ".bss."];
    for section in &elf.sections {
        let suffix = own.iter().find_map(|base| section.name.strip_prefix(base));
        let (Some(suffix), Some((name, count, size))) = (suffix, array_of(btf, &section.name))
        else {
            continue;
        };
        found.push(name);
        let wanted = match setup.resize.get(name) {
            Some(wanted) => *wanted,
            None if suffix == name && count == 1 => setup.cpus.max(1),
            None => continue,
        };
        if wanted == 0 || u64::from(wanted) * u64::from(size) > MOST {
            return Err(setup_error(
                "resize",
                format!(
                    "array {name} of {wanted} elements of {size} bytes: it may have from 1 to {}",
                    MOST / u64::from(size)
                ),
            ));
        }
        if wanted != count {
            let bytes = u64::from(wanted) * u64::from(size);
            image.resize(&section.name, name, bytes)?;
            resized.push((name.to_string(), wanted));
        }
    }
    match setup
        .resize
        .keys()
        .find(|name| !found.contains(&name.as_str()))
    {
        None => Ok(resized),
        Some(name) => Err(setup_error(
            "resize",
            format!(
                "there is no array `{name}` that has a section of its own (SEC(\".data.NAME\")), which alone can be \
             resized; it has: {}",
                list(&found.iter().map(|n| n.to_string()).collect::<Vec<_>>())
            ),
        )),
    }
}
