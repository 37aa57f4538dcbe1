// SPDX-License-Identifier: GPL-2.0-only
//! The machine: its name, its CPUs, what schedules them.
use crate::cores::{self, CoreKind};
use crate::procfile::cpu_list;
use crate::root::Root;
use serde::Serialize;

/// What is known of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub name: String,
    /// CPUs that are online, ascending.
    pub cpus: Vec<u32>,
    /// Fast and slow cores, the fastest first; empty where all are alike.
    pub kinds: Vec<CoreKind>,
    pub scheduler: Scheduler,
}

/// What schedules ordinary threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// The kernel's own.
    #[default]
    Linux,
    /// A sched_ext scheduler of this name.
    Ext(String),
}

impl Scheduler {
    pub fn name(&self) -> &str {
        match self {
            Scheduler::Linux => "linux",
            Scheduler::Ext(name) => name,
        }
    }
}

impl Machine {
    /// Reads what the machine says of itself. What it does not say is empty.
    pub fn read(root: &Root) -> Machine {
        let sys = root.sys().ok();
        let list = |name: &str| {
            let text = sys.as_ref()?.text(name)?;
            cpu_list(text.as_bytes()).filter(|cpus| !cpus.is_empty())
        };
        let cpus = list("devices/system/cpu/online").unwrap_or_default();
        Machine {
            name: root.proc_text("sys/kernel/hostname").unwrap_or_default(),
            kinds: cores::kinds(root, &cpus),
            cpus,
            scheduler: scheduler(root),
        }
    }

    /// `16 CPUs (8 P + 8 E)`.
    pub fn cpus_in_words(&self) -> String {
        let n = self.cpus.len();
        let cpus = if n == 1 { "CPU" } else { "CPUs" };
        let kinds: Vec<String> = self
            .kinds
            .iter()
            .map(|k| format!("{} {}", k.cpus.len(), k.name))
            .collect();
        match kinds.len() {
            0 | 1 => format!("{n} {cpus}"),
            _ => format!("{n} {cpus} ({})", kinds.join(" + ")),
        }
    }
}

fn scheduler(root: &Root) -> Scheduler {
    let enabled = root.sys_text("kernel/sched_ext/state");
    match enabled.as_deref() {
        Some("enabled" | "enabling") => {
            let name = root.sys_text("kernel/sched_ext/root/ops");
            let name = name.filter(|n| !n.is_empty());
            let name = name.unwrap_or_else(|| "an unnamed scheduler".into());
            Scheduler::Ext(crate::procfile::printable(name.as_bytes()))
        }
        _ => Scheduler::Linux,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn read(text: &str) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
        Machine::read(&Root::at(folder.path()))
    }

    #[test]
    fn kinds_of_cores() {
        let hybrid = "file sys/devices/system/cpu/online 0-4\nfile sys/devices/cpu_core/cpus 0-1\n\
                      file sys/devices/cpu_atom/cpus 2-5\nfile proc/sys/kernel/hostname kvm07\n\
                      file sys/kernel/sched_ext/state enabled\nfile sys/kernel/sched_ext/root/ops flms\n";
        let machine = read(hybrid);
        assert_eq!(machine.cpus_in_words(), "5 CPUs (2 P + 3 E)");
        assert_eq!(machine.scheduler, Scheduler::Ext("flms".into()));
        assert_eq!(machine.name, "kvm07");
        assert_eq!(read("process 1 init").cpus_in_words(), "0 CPUs");
    }
}
