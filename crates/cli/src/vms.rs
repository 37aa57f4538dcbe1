// SPDX-License-Identifier: GPL-2.0-only
//! A VM by the name that somebody typed.
use crate::exit::Failure;
use berth_host::model::{Snapshot, Vm};
use std::sync::Arc;

/// Names that are listed where one is wrong.
const SHOWN: usize = 8;

/// The one VM of a name, a manager's number or a process.
///
/// # Errors
/// There is none (with the nearest, and what there is), or there are several (with what tells them apart).
pub fn named<'s>(vms: &'s Snapshot, name: &str) -> Result<&'s Arc<Vm>, Failure> {
    let id = |vm: &&Arc<Vm>| vm.manager_id.as_deref() == Some(name) || vm.pid.to_string() == name;
    let exact = vms.vms.iter().find(|vm| vm.name == name);
    if let Some(vm) = exact.or_else(|| vms.vms.iter().find(id)) {
        return Ok(vm);
    }
    let shown = name.escape_debug();
    let same = |vm: &&Arc<Vm>| vm.name.strip_suffix(&format!("@{}", vm.pid)) == Some(name);
    let several: Vec<&str> = vms
        .vms
        .iter()
        .filter(same)
        .map(|vm| vm.name.as_str())
        .collect();
    if !several.is_empty() {
        return Err(Failure::Input(format!(
            "{} virtual machines are called `{shown}`: {}; which?",
            several.len(),
            several.join(", ")
        )));
    }
    let names: Vec<&str> = vms.vms.iter().map(|vm| vm.name.as_str()).collect();
    let mut text = format!("no virtual machine `{shown}` runs here");
    if let Some(near) = berth_scenario::diag::nearest(name, names.iter().copied()) {
        text += &format!("; did you mean `{near}`?");
    }
    text += &match names.len() {
        0 => "\n  None runs at all: berth ls".to_string(),
        n if n <= SHOWN => format!("\n  There are: {}", names.join(", ")),
        n => format!(
            "\n  There are {n}: {}, ... (berth ls)",
            names[..SHOWN].join(", ")
        ),
    };
    for note in vms.blind.words() {
        text += &format!("\n  {note}");
    }
    Err(Failure::Input(text))
}
