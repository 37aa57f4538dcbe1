// SPDX-License-Identifier: GPL-2.0-only
//! What stands in the way of loading a policy on this host: the checks of `berth doctor` that refuse.
use berth_host::doctor::{self, State};
use berth_host::model::Snapshot;
use berth_host::root::Root;

/// Each obstacle in one sentence, with what to do; none if a policy may be loaded. Give `ours` if the scheduler that
/// is running is ours.
pub fn obstacles(root: &Root, vms: &Snapshot, ours: bool) -> Vec<String> {
    doctor::examine(root, vms, &doctor::core_cookie)
        .into_iter()
        .filter(|check| check.state == State::Refuse)
        .filter(|check| !(ours && check.name == "sched_ext"))
        .map(|check| {
            let advice = check.advice.map_or(String::new(), |a| format!(". {a}"));
            format!("{}: {}{advice}", check.name, check.found)
        })
        .collect()
}

/// VMs whose threads have a core-scheduling cookie, if this machine has SMT: together with sched_ext a host can hang.
pub fn cookies(root: &Root, vms: &Snapshot) -> Option<String> {
    if root.sys_text("devices/system/cpu/smt/active").as_deref() != Some("1") {
        return None;
    }
    let marked = vms.vms.iter().find(|vm| {
        vm.threads
            .iter()
            .any(|t| doctor::core_cookie(t.id.tid).is_some_and(|c| c != 0))
    })?;
    Some(format!(
        "VM {} has a core-scheduling cookie and SMT is on: together with sched_ext this can hang a host",
        marked.name
    ))
}
