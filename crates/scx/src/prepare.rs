// SPDX-License-Identifier: GPL-2.0-only
//! Between opening an object and loading it: which scheduler, its constants, parameters, map sizes and members, and
//! the programs that this kernel can load.
use crate::layout::{self, Kernel, Layout, Variable};
use crate::load::LoadOptions;
use crate::log::Capture;
use crate::machine::Machine;
use crate::sysfs;
use crate::{ScxError, Value};
use libbpf_rs::{AsRawLibbpf, MapType, ObjectBuilder, OpenObject, btf::Btf};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// `SCX_OPS_SWITCH_PARTIAL` of `kernel/sched/ext.c`.
const SWITCH_PARTIAL: u64 = 1 << 3;
/// Name given to libbpf for the object; the kernel's names of its data maps start with it.
const OBJECT_NAME: &str = "berth";

pub(crate) fn open(object: &[u8], capture: &Capture) -> Result<OpenObject, ScxError> {
    let fail = |e: libbpf_rs::Error| ScxError::Open {
        reason: e.to_string(),
        log: capture.text(),
    };
    ObjectBuilder::default()
        .name(OBJECT_NAME)
        .map_err(fail)?
        .open_memory(object)
        .map_err(fail)
}

pub(crate) fn layout_of(open: &OpenObject) -> Result<Layout, ScxError> {
    // SAFETY: the pointer belongs to `open`, which outlives the reference.
    let raw = unsafe { open.as_libbpf_object().as_ref() };
    match Btf::from_bpf_object(raw) {
        Ok(Some(btf)) => Ok(Layout::of(&btf)),
        Ok(None) => Err(ScxError::Open {
            reason: "it has no type information (compile it with -g)".to_string(),
            log: String::new(),
        }),
        Err(e) => Err(ScxError::Open {
            reason: e.to_string(),
            log: String::new(),
        }),
    }
}

pub(crate) fn choose_ops(layout: &Layout, wanted: Option<&str>) -> Result<String, ScxError> {
    let names: Vec<String> = layout.ops.keys().cloned().collect();
    match (wanted, names.as_slice()) {
        (_, []) => Err(ScxError::NoOps),
        (Some(w), _) if layout.ops.contains_key(w) => Ok(w.to_string()),
        (Some(w), _) => Err(ScxError::UnknownOps {
            name: w.to_string(),
            found: list(&names),
        }),
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(ScxError::SeveralOps(list(&names))),
    }
}

/// Gives each `__SCX_NAME` variable the running kernel's value of `SCX_NAME`; those it lacks stay 0.
pub(crate) fn fill_constants(
    open: &mut OpenObject,
    layout: &Layout,
    kernel: &Kernel,
) -> Result<(), ScxError> {
    let wanted = |n: &str| n.starts_with("__") && n.contains("SCX_");
    if !layout.variables.keys().any(|n| wanted(n)) {
        return Ok(());
    }
    for (name, v) in &layout.variables {
        if !wanted(name) || !v.section.starts_with(".rodata") || v.size != 8 {
            continue;
        }
        if let Some(value) = kernel.constants.get(&name[2..]) {
            set_initial(
                open,
                layout,
                name,
                &Value::Bytes(value.to_ne_bytes().to_vec()),
            )?;
        }
    }
    Ok(())
}

/// What the policy says of itself (`BERTH_MOST_CPUS`): tables larger than they are in its source would not help it.
pub(crate) fn fits(
    open: &mut OpenObject,
    layout: &Layout,
    machine: &Machine,
) -> Result<(), ScxError> {
    let Some(v) = layout.variables.get("berth_most_cpus") else {
        return Ok(());
    };
    let mut maps = open.maps_mut();
    let mut map = maps.find(|m| holds_section(&m.name().to_string_lossy(), &v.section));
    let data = map.as_mut().and_then(|m| m.initial_value_mut());
    let most = data.and_then(|d| d.get(v.offset..v.offset + 4)?.try_into().ok());
    match most.map(u32::from_ne_bytes) {
        Some(most) if machine.nr_cpus() > most => Err(ScxError::TooManyCpus {
            most,
            possible: machine.nr_cpus(),
        }),
        _ => Ok(()),
    }
}

/// Variables and map sizes that follow from the machine.
pub(crate) fn describe_machine(
    open: &mut OpenObject,
    layout: &Layout,
    machine: &Machine,
    options: &LoadOptions,
) -> Result<(), ScxError> {
    let sizes = [
        ("cpu", Some(machine.nr_cpus())),
        ("llc", Some(machine.nr_llcs)),
        ("node", Some(machine.nr_nodes)),
        ("vm", options.vm_slots),
    ];
    for (what, size) in sizes {
        let Some(size) = size else { continue };
        let mut variables = vec![format!("berth_nr_{what}s")];
        if what == "cpu" {
            // What the user-space half of most sched_ext schedulers sets.
            variables.push("nr_cpu_ids".into());
        }
        for variable in variables {
            if layout.variables.contains_key(&variable) {
                set_initial(open, layout, &variable, &Value::Number(size.into()))?;
            }
        }
        let suffix = format!("_by_{what}");
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if name.ends_with(&suffix) {
                map.set_max_entries(size)
                    .map_err(|e| map_error(&name, &e))?;
            }
        }
    }
    Ok(())
}

pub(crate) fn set_initial(
    open: &mut OpenObject,
    layout: &Layout,
    name: &str,
    value: &Value,
) -> Result<(), ScxError> {
    let v = find_variable(layout, name)?;
    let bytes = value
        .encode(&v.kind, v.size)
        .map_err(|reason| ScxError::BadValue {
            name: name.to_string(),
            reason,
        })?;
    let mut map = open
        .maps_mut()
        .find(|m| holds_section(&m.name().to_string_lossy(), &v.section));
    let place = map
        .as_mut()
        .and_then(|m| m.initial_value_mut())
        .and_then(|data| data.get_mut(v.offset..v.offset + v.size));
    match place {
        Some(p) => {
            p.copy_from_slice(&bytes);
            Ok(())
        }
        None => Err(ScxError::BadValue {
            name: name.to_string(),
            reason: format!("section {} has no data to set", v.section),
        }),
    }
}

pub(crate) fn set_map_entries(
    open: &mut OpenObject,
    entries: &BTreeMap<String, u32>,
) -> Result<(), ScxError> {
    for (name, &count) in entries {
        let found = open.maps_mut().find(|m| m.name() == name.as_str());
        let Some(mut map) = found else {
            return Err(ScxError::UnknownMap {
                name: name.clone(),
                found: list(&map_names(open.maps().map(|m| m.name().to_owned()))),
            });
        };
        map.set_max_entries(count)
            .map_err(|e| map_error(name, &e))?;
    }
    Ok(())
}

/// Adapts the scheduler to the kernel and to the options; its name.
pub(crate) fn prepare_ops(
    open: &mut OpenObject,
    layout: &Layout,
    chosen: &str,
    kernel: &Kernel,
    options: &LoadOptions,
    warnings: &mut Vec<String>,
) -> Result<String, ScxError> {
    let ops = &layout.ops[chosen];
    let known = kernel.members(&ops.type_name);
    if known.is_empty() {
        return Err(ScxError::Rejected {
            reason: format!("it has no struct {}", ops.type_name),
            log: String::new(),
        });
    }
    let hotplug_seq = sysfs::hotplug_seq()?;
    let mut chosen_name = None;
    for mut map in open.maps_mut() {
        if map.map_type() != MapType::StructOps {
            continue;
        }
        if map.name() != chosen {
            map.set_autocreate(false)
                .map_err(|e| map_error(&map.name().to_string_lossy(), &e))?;
            continue;
        }
        let Some(data) = map.initial_value_mut() else {
            return Err(ScxError::NoOps);
        };
        for (name, m) in &ops.members {
            let Some(bytes) = data.get_mut(m.offset..m.offset + m.size) else {
                continue;
            };
            if !known.contains(name) && bytes.iter().any(|&b| b != 0) {
                bytes.fill(0);
                warnings.push(format!("this kernel has no ops.{name}; left out"));
            }
            match (name.as_str(), options.timeout_ms) {
                ("timeout_ms", Some(ms)) if m.size == 4 => {
                    bytes.copy_from_slice(&ms.to_ne_bytes());
                }
                ("flags", _) if options.partial && m.size == 8 => {
                    for (byte, more) in bytes.iter_mut().zip(SWITCH_PARTIAL.to_ne_bytes()) {
                        *byte |= more;
                    }
                }
                ("hotplug_seq", _) if known.contains(name) && m.size == 8 => {
                    bytes.copy_from_slice(&hotplug_seq.to_ne_bytes());
                }
                _ => {}
            }
        }
        let text = ops
            .members
            .get("name")
            .and_then(|m| data.get(m.offset..m.offset + m.size))
            .unwrap_or_default();
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
        chosen_name = Some(String::from_utf8_lossy(&text[..end]).into_owned());
    }
    chosen_name.ok_or(ScxError::NoOps)
}

/// A program of the scx headers, in every object: answers a question that only kernels before 6.18 leave open.
pub(crate) const HEADERS_OWN: &str = "scx_lib_init_probe";

/// Turns off the programs that this kernel cannot load or that Berth has no use for.
pub(crate) fn choose_programs(
    open: &mut OpenObject,
    warnings: &mut Vec<String>,
) -> Result<(), ScxError> {
    let traced = |section: &OsStr| {
        let section = section.to_string_lossy();
        ["fentry/", "fexit/", "fmod_ret/"]
            .iter()
            .find_map(|s| section.strip_prefix(s).map(str::to_string))
    };
    let of_others = open.progs().filter(|p| p.name() != HEADERS_OWN);
    let targets = of_others.filter_map(|p| traced(p.section())).collect();
    let missing = layout::missing_functions(targets)?;
    for mut p in open.progs_mut() {
        let name = p.name().to_string_lossy().into_owned();
        let Some(target) = traced(p.section()) else {
            continue;
        };
        if name == HEADERS_OWN {
            p.set_autoload(false);
        } else if missing.contains(&target) {
            p.set_autoload(false);
            warnings.push(format!(
                "this kernel has no function {target}; program {name} left out"
            ));
        }
    }
    Ok(())
}

pub(crate) fn find_variable<'l>(layout: &'l Layout, name: &str) -> Result<&'l Variable, ScxError> {
    layout.variables.get(name).ok_or_else(|| {
        let own: Vec<String> = layout
            .variables
            .keys()
            .filter(|n| !n.starts_with("__"))
            .cloned()
            .collect();
        ScxError::UnknownVariable {
            name: name.to_string(),
            hint: format!("; it has: {}", list(&own)),
        }
    })
}

/// Whether libbpf's map of this name holds that section: custom sections keep their own name, the standard ones
/// are prefixed with the object's.
pub(crate) fn holds_section(map: &str, section: &str) -> bool {
    map == section || map.strip_prefix(OBJECT_NAME) == Some(section)
}

pub(crate) fn map_names(names: impl Iterator<Item = OsString>) -> Vec<String> {
    names.map(|n| n.to_string_lossy().into_owned()).collect()
}

pub(crate) fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_string();
    }
    names.join(", ")
}

pub(crate) fn map_error(name: &str, e: &libbpf_rs::Error) -> ScxError {
    ScxError::Map {
        name: name.to_string(),
        reason: e.to_string(),
    }
}
