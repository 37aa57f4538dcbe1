// SPDX-License-Identifier: GPL-2.0-only
//! Who is in a cgroup and in those below it: what is set there, all of them feel.
use berth_host::dir::Dir;
use berth_host::model::Vm;
use berth_host::procfile;
use berth_host::root::Root;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

/// Groups below one that are looked at, and how deep. libvirt makes one for each vCPU.
const GROUPS: usize = 4096;
const DEPTH: usize = 8;
/// Parents that are followed from a process that was not there when it was looked for VMs.
const PARENTS: usize = 4;

/// Who is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Of the VM, somebody.
    Vm,
    Nobody,
    /// The tree does not say: recorded hosts may lack it.
    Unknown,
}

/// Whether nobody but a VM is in a group.
///
/// # Errors
/// Somebody is, or may be; a clause that follows the group's name.
pub fn of(root: &Root, group: &Dir, vm: &Vm) -> Result<Inside, String> {
    let mut mine: BTreeSet<i32> = vm
        .threads
        .iter()
        .flat_map(|t| [t.id.pid, t.id.tid])
        .collect();
    mine.insert(vm.pid);
    // Who has no number here stands as 0: in other namespaces strangers, in the first only threads that have ended and
    // still stand in the list.
    let gone = |m: &i32| *m == 0 && root.is_live() && in_first_namespace();
    let mut inside = match listed(group) {
        Ok(all) => judge(root, &all, &mine, &gone)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Inside::Unknown,
        Err(e) => return Err(format!("does not tell who is in it: {e}")),
    };
    let mut seen = 0;
    let mut left = below(group, 0, &mut seen)?;
    while let Some((folder, depth)) = left.pop() {
        // One that has gone meanwhile has nobody in it.
        let all = listed(&folder).unwrap_or_default();
        if judge(root, &all, &mine, &gone)? == Inside::Vm {
            inside = Inside::Vm;
        }
        left.extend(below(&folder, depth, &mut seen)?);
    }
    Ok(inside)
}

fn judge(
    root: &Root,
    all: &[i32],
    mine: &BTreeSet<i32>,
    gone: &dyn Fn(&i32) -> bool,
) -> Result<Inside, String> {
    let stranger = |m: &&i32| !gone(m) && !is_ours(root, **m, mine);
    if let Some(stranger) = all.iter().find(stranger) {
        return Err(format!("holds other processes too ({stranger})"));
    }
    Ok(match all.iter().all(gone) {
        true => Inside::Nobody,
        false => Inside::Vm,
    })
}

/// A thread that has come since the scan is listed by number in a threaded cgroup; and a process that the VM has just
/// made is the VM's.
fn is_ours(root: &Root, member: i32, mine: &BTreeSet<i32>) -> bool {
    if mine.contains(&member) {
        return true;
    }
    let mut process = number(root, member, "Tgid");
    for _ in 0..PARENTS {
        match process {
            Some(pid) if mine.contains(&pid) => return true,
            Some(pid) if pid > 1 => process = number(root, pid, "PPid"),
            _ => return false,
        }
    }
    false
}

fn number(root: &Root, pid: i32, key: &str) -> Option<i32> {
    let mut buf = [0; 4096];
    let proc = root.proc().ok()?;
    let status = proc.read_record(&format!("{pid}/status"), &mut buf).ok()?;
    let number = procfile::status_value(status, key).and_then(procfile::number)?;
    i32::try_from(number).ok()
}

/// Whether this process is in the first PID namespace (the kernel's `PROC_PID_INIT_INO`), in which everybody has a
/// number, the kernel's own.
pub fn in_first_namespace() -> bool {
    const FIRST: u64 = 0xefff_fffc;
    // A process stays in the one in which it began.
    static IS: LazyLock<bool> =
        LazyLock::new(|| std::fs::metadata("/proc/self/ns/pid").is_ok_and(|m| m.ino() == FIRST));
    *IS
}

/// Processes of a group; its threads where the processes cannot be told (threaded cgroups).
fn listed(group: &Dir) -> io::Result<Vec<i32>> {
    let mut text = Vec::new();
    group
        .read("cgroup.procs", &mut text)
        .or_else(|_| group.read("cgroup.threads", &mut text))?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter_map(|l| l.trim().parse().ok()).collect())
}

fn below(group: &Dir, depth: usize, seen: &mut usize) -> Result<Vec<(Dir, usize)>, String> {
    // Most have none, which is known without listing them.
    if group.links(".").is_ok_and(|n| n == 2) {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    let listed = group.list(|name, _| {
        if let Ok(name) = std::str::from_utf8(name)
            && name != "."
            && name != ".."
            && let Ok(folder) = group.dir(name)
        {
            all.push((folder, depth + 1));
        }
    });
    *seen += all.len();
    let deep = depth >= DEPTH && !all.is_empty();
    match listed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("cannot be looked at: {e}")),
        _ if deep || *seen > GROUPS => Err("has more groups below it than are looked at".into()),
        _ => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::discover::Scanner;
    use berth_host::fixture::Fixture;

    const VM: &str = "process 5 lkvm start=3\nargs lkvm run --name v\ncgroup 0::/v\nfd 3 anon_inode:kvm-vm\n\
                      fd 4 anon_inode:kvm-vcpu:0\nthread 6 v run=4\n";

    /// What is said of the group `v` on a host with these files.
    fn inside(files: &str) -> Result<Inside, String> {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("process 1 init\n{VM}file sys/fs/cgroup/v/cgroup.type domain\n{files}");
        Fixture::parse(&text)
            .unwrap()
            .unpack(folder.path())
            .unwrap();
        let root = Root::at(folder.path());
        let vms = Scanner::new(root.clone()).scan().unwrap();
        let group = root.sys().unwrap().dir("fs/cgroup/v").unwrap();
        of(&root, &group, &vms.vms[0])
    }

    fn procs(group: &str, pids: &str) -> String {
        format!("file sys/fs/cgroup/v{group}/cgroup.procs \"{pids}\"\n")
    }

    #[test]
    fn a_vm_has_its_group_for_itself_or_not() {
        assert_eq!(inside(&procs("", "5\\n")), Ok(Inside::Vm));
        assert_eq!(inside(&procs("", "")), Ok(Inside::Nobody));
        assert_eq!(
            inside("file sys/fs/cgroup/v/cpu.weight 1\n"),
            Ok(Inside::Unknown)
        );
        // In groups below, as libvirt has its VMs.
        let below =
            procs("", "") + &procs("/libvirt/emulator", "5\\n") + &procs("/libvirt/vcpu0", "5\\n");
        assert_eq!(inside(&below), Ok(Inside::Vm));
        for group in ["", "/a", "/a/b", "/libvirt/vcpu0"] {
            let stranger = procs("", "5\\n") + &procs(group, "9\\n");
            let why = inside(&stranger).unwrap_err();
            assert!(why.contains("other processes too (9)"), "{group}: {why}");
        }
        let threads = procs("", "5\\n") + "file sys/fs/cgroup/v/t/cgroup.threads \"6\\n9\\n\"\n";
        assert!(inside(&threads).unwrap_err().contains("(9)"));
    }

    #[test]
    fn a_process_that_the_vm_has_just_made_is_no_stranger() {
        let made = |parent: i32| {
            let of = |pid: i32, parent: i32| {
                format!("file proc/{pid}/status \"Tgid:\\x09{pid}\\nPPid:\\x09{parent}\\n\"\n")
            };
            inside(&(procs("", "5\\n9\\n") + &of(9, 8) + &of(8, parent)))
        };
        assert_eq!(made(5), Ok(Inside::Vm));
        assert!(made(1).is_err() && made(9).is_err());
    }

    #[test]
    fn trees_without_end_are_not_taken_for_a_vms_own() {
        let deep = procs("", "5\\n") + &procs(&"/a".repeat(DEPTH + 2), "");
        assert!(inside(&deep).unwrap_err().contains("more groups below"));
    }
}
