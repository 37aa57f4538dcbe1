// SPDX-License-Identifier: GPL-2.0-only
//! What KVM tells in debugfs: a folder `kvm/TID-FD` per VM, named after the thread that made it, with `vcpuN/pid` since
//! Linux 6.1 and counters.
use crate::dir::Dir;
use crate::procfile::{number, status_value};
use crate::root::Root;
use std::collections::BTreeMap;

/// The VMs in debugfs. Empty where it is not mounted, or not ours to read.
#[derive(Debug, Default)]
pub struct Table {
    folder: Option<Dir>,
    /// Folders by the process that made the VM.
    by_process: BTreeMap<i32, Vec<String>>,
}

impl Table {
    /// Lists the VMs. `process_of` remembers between scans which process a thread belongs to.
    pub fn read(root: &Root, proc: &Dir, process_of: &mut BTreeMap<String, i32>) -> Table {
        let folder = root.sys().and_then(|sys| sys.dir("kernel/debug/kvm")).ok();
        let Some(folder) = folder else {
            return Table::default();
        };
        let mut names = Vec::new();
        // Files beside the folders have no `-` behind a number.
        let listed = folder.list(|name, _| {
            if let Ok(name) = std::str::from_utf8(name)
                && let Some(tid) = name.split_once('-').and_then(|(tid, _)| tid.parse().ok())
            {
                names.push((name.to_string(), tid));
            }
        });
        if listed.is_err() {
            return Table::default();
        }
        names.sort_unstable();
        process_of.retain(|name, _| names.binary_search_by(|(n, _)| n.cmp(name)).is_ok());
        let mut by_process: BTreeMap<i32, Vec<String>> = BTreeMap::new();
        for (name, tid) in names {
            let known = process_of.get(&name).copied();
            if let Some(pid) = known.or_else(|| leader(proc, tid)) {
                process_of.insert(name.clone(), pid);
                by_process.entry(pid).or_default().push(name);
            }
        }
        Table {
            folder: Some(folder),
            by_process,
        }
    }

    /// True if a VM was made by this process. Only a hint: seen from another PID namespace the numbers are others.
    pub fn names(&self, pid: i32) -> bool {
        self.by_process.contains_key(&pid)
    }

    /// The vCPU of each thread of a process, as far as KVM tells.
    pub fn vcpus(&self, pid: i32) -> BTreeMap<i32, u32> {
        let mut found = BTreeMap::new();
        self.each_vcpu(pid, |_, index, tid| {
            found.insert(tid, index);
        });
        found
    }

    /// Calls with the file that tells it (its path in debugfs's `kvm`), the index and the thread of each vCPU of a
    /// process.
    pub fn each_vcpu(&self, pid: i32, mut each: impl FnMut(&str, u32, i32)) {
        let (Some(folder), Some(names)) = (&self.folder, self.by_process.get(&pid)) else {
            return;
        };
        for name in names {
            let Ok(vm) = folder.dir(name) else { continue };
            let mut indexes = Vec::new();
            let listed = vm.list(|entry, _| {
                indexes.extend(entry.strip_prefix(b"vcpu").and_then(number));
            });
            if listed.is_err() {
                continue;
            }
            let mut buf = [0; 4096];
            for index in indexes {
                let file = format!("vcpu{index}/pid");
                let tid = vm.read_record(&file, &mut buf);
                let tid = tid.ok().and_then(|t| number(t.trim_ascii()));
                if let (Some(tid), Ok(index)) =
                    (tid.and_then(|t| i32::try_from(t).ok()), index.try_into())
                {
                    each(&format!("{name}/{file}"), index, tid);
                }
            }
        }
    }

    /// A counter of a VM (`halt_exits`, `exits`), summed over the VMs of the process.
    pub fn counter(&self, pid: i32, counter: &str) -> Option<u64> {
        let (folder, names) = (self.folder.as_ref()?, self.by_process.get(&pid)?);
        let mut buf = [0; 4096];
        let mut sum = 0u64;
        for name in names {
            let text = folder.read_record(&format!("{name}/{counter}"), &mut buf);
            sum = sum.saturating_add(number(text.ok()?.trim_ascii())?);
        }
        Some(sum)
    }
}

/// The process a thread belongs to.
fn leader(proc: &Dir, tid: i32) -> Option<i32> {
    let mut buf = [0; 4096];
    let status = proc.read_record(&format!("{tid}/status"), &mut buf).ok()?;
    number(status_value(status, "Tgid")?)?.try_into().ok()
}
