// SPDX-License-Identifier: GPL-2.0-only
//! The CPU set of a VM as a whole: a file of its own cgroup, or of one that is made for it; in both versions of cgroups
//! and where both are mounted.
//!
//! VMs are moved only between groups that nobody manages, and nothing is written in groups that somebody does.
use crate::members::{self, Inside};
use berth_actuator::{HERE, Knob, MADE};
use berth_host::model::{Manager, Vm};
use berth_host::procfile::cgroup_lines;
use berth_host::root::Root;

/// Where it can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its own group has the file.
    Own { group: String },
    /// A group for it can be made below the one that it is in (version 1).
    Below {
        hierarchy: String,
        /// The new one, below the hierarchy's mount.
        path: String,
        /// Memory nodes of the group above.
        mems: String,
    },
}

/// What of a cgroup tree a process is in.
#[derive(Debug)]
struct Lines {
    /// `cpuset`'s in version 1.
    old: Option<String>,
    new: Option<String>,
}

fn lines(root: &Root, path: &str) -> Option<Lines> {
    let text = root.proc_text(path)?;
    let mut lines = Lines {
        old: None,
        new: None,
    };
    for line in cgroup_lines(text.as_bytes()) {
        if line.controllers.split(',').any(|c| c == "cpuset") {
            lines.old = Some(line.path.to_string());
        } else if line.controllers.is_empty() {
            lines.new = Some(line.path.to_string());
        }
    }
    Some(lines)
}

/// Where the CPU set of a VM can be set. `systemd`: it is process 1.
///
/// # Errors
/// Nowhere, and why, a clause.
pub fn of(root: &Root, vm: &Vm, systemd: bool) -> Result<Place, String> {
    let unseen = || "its cgroup cannot be seen".to_string();
    let own = lines(root, &format!("{}/cgroup", vm.pid)).ok_or_else(unseen)?;
    let old = own.old.is_some();
    let path = own.old.or(own.new).ok_or_else(unseen)?;
    let below = path.trim_matches('/').to_string();
    if below.split('/').any(|part| part == "..") {
        return Err(format!("its cgroup {path} is outside of what is seen here"));
    }
    if vm.manager != Manager::None {
        let who = vm.manager.word();
        return Err(format!(
            "its cgroup {path} is {who}'s: nothing is written there without {who} knowing"
        ));
    }
    let made = |part: &str| {
        let kinds = [".scope", ".slice", ".service"];
        kinds.iter().any(|kind| part.ends_with(kind))
    };
    if systemd && below.split('/').any(made) {
        return Err(format!(
            "its cgroup {path} is systemd's, which would not know"
        ));
    }
    for thread in vm.threads.iter().filter(|t| t.id.pid == vm.pid) {
        let lines = lines(root, &format!("{}/task/{}/cgroup", vm.pid, thread.id.tid));
        // One that has ended meanwhile is in none.
        let other = lines.and_then(|l| if old { l.old } else { l.new });
        if other.is_some_and(|other| other != path) {
            return Err("its threads are in cgroups of their own: somebody manages them".into());
        }
    }
    let hierarchies: &[&str] = if old { &["cpuset"] } else { &["", "unified"] };
    let at = |h: &str| match (h.is_empty(), below.is_empty()) {
        (true, _) => below.clone(),
        (false, true) => h.to_string(),
        (false, false) => format!("{h}/{below}"),
    };
    let has = |h: &&&str| {
        root.sys_text(&format!("fs/cgroup/{}/cpuset.cpus", at(h)))
            .is_some()
    };
    let file = hierarchies.iter().find(has);
    let alone = |group: &str| {
        let folder = root
            .sys()
            .and_then(|sys| sys.dir(&format!("fs/cgroup/{group}")));
        folder.is_ok_and(|folder| members::of(root, &folder, vm) == Ok(Inside::Vm))
    };
    match file {
        Some(h) if !below.is_empty() && alone(&at(h)) => Ok(Place::Own { group: at(h) }),
        Some(h) if old => {
            let above = at(h);
            let mems = ["cpuset.effective_mems", "cpuset.mems"];
            let mems = mems
                .iter()
                .find_map(|f| root.sys_text(&format!("fs/cgroup/{above}/{f}")));
            let name = format!("{MADE}{}-{}", vm.pid, vm.start);
            Ok(Place::Below {
                hierarchy: (*h).to_string(),
                path: format!("{}/{name}", path.trim_end_matches('/')),
                mems: mems.filter(|m| !m.is_empty()).ok_or_else(unseen)?,
            })
        }
        Some(_) => Err(format!(
            "others are in its cgroup {path}, and in version 2 none is made beside them"
        )),
        None => Err(format!("its cgroup {path} has no cpuset.cpus")),
    }
}

/// Where a group was made for it before, and it is in it.
pub fn again(group: &str, root: &Root) -> Option<Place> {
    let (hierarchy, path) = group.split_once('/')?;
    let mems = root.sys_text(&format!("fs/cgroup/{group}/cpuset.mems"))?;
    Some(Place::Below {
        hierarchy: hierarchy.into(),
        path: format!("/{path}"),
        mems,
    })
}

/// What is to be set so that a VM has these CPUs, in steps: what a step needs, the ones before have made.
pub fn steps(place: &Place, vm: &Vm, cpus: &str) -> Vec<Vec<(Knob, String)>> {
    let file = |group: &str, file: &str| Knob::Group {
        group: group.into(),
        file: file.into(),
    };
    match place {
        Place::Own { group } => vec![vec![(file(group, "cpuset.cpus"), cpus.into())]],
        Place::Below {
            hierarchy,
            path,
            mems,
        } => {
            let group = format!("{hierarchy}{path}");
            let member = Knob::Member {
                pid: vm.pid,
                start: vm.start,
                hierarchy: hierarchy.clone(),
            };
            vec![
                vec![(
                    Knob::Made {
                        group: group.clone(),
                    },
                    HERE.into(),
                )],
                // Nobody can enter a group without memory nodes.
                vec![
                    (file(&group, "cpuset.mems"), mems.clone()),
                    (file(&group, "cpuset.cpus"), cpus.into()),
                ],
                vec![(member, path.clone())],
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::discover::Scanner;
    use berth_host::fixture::Fixture;

    const VM: &str = "process 7 lkvm start=3\nargs lkvm run --name v\nfd 3 anon_inode:kvm-vm\n\
                      fd 4 anon_inode:kvm-vcpu:0\nthread 8 v run=4\n";

    fn place(groups: &str, files: &str, systemd: bool) -> Result<Place, String> {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("process 1 init\n{VM}{groups}{files}");
        Fixture::parse(&text)
            .unwrap()
            .unpack(folder.path())
            .unwrap();
        // Threads are where their process is, unless the text says otherwise.
        let root = Root::at(folder.path());
        let cgroup = std::fs::read(folder.path().join("proc/7/cgroup")).unwrap();
        let own = folder.path().join("proc/7/task/8/cgroup");
        if std::fs::read(&own).unwrap().is_empty() {
            std::fs::write(own, cgroup).unwrap();
        }
        let vms = Scanner::new(root.clone()).scan().unwrap();
        of(&root, &vms.vms[0], systemd)
    }

    #[test]
    fn version_2() {
        let own =
            "file sys/fs/cgroup/vms/v/cpuset.cpus \"\"\nfile sys/fs/cgroup/vms/v/cgroup.procs 7\n";
        let in_own = "cgroup 0::/vms/v\n";
        let group = |g: &str| Ok(Place::Own { group: g.into() });
        assert_eq!(place(in_own, own, false), group("vms/v"));
        let below = "file sys/fs/cgroup/vms/v/a/b/cgroup.procs 9\n";
        for shared in [
            own.replace("procs 7", "procs \"7\\n9\\n\""),
            format!("{own}{below}"),
        ] {
            assert!(
                place(in_own, &shared, false)
                    .unwrap_err()
                    .contains("others are in its cgroup")
            );
        }
        assert!(
            place(in_own, "", false)
                .unwrap_err()
                .contains("no cpuset.cpus")
        );
        assert!(
            place("cgroup 0::/../x\n", own, false)
                .unwrap_err()
                .contains("outside")
        );
        // Both mounted, and the controller in the new one.
        let both = own.replace("cgroup/vms", "cgroup/unified/vms");
        assert_eq!(
            place("cgroup 4:cpu:/x\ncgroup 0::/vms/v\n", &both, false),
            group("unified/vms/v")
        );
    }

    #[test]
    fn version_1() {
        let files = "file sys/fs/cgroup/cpuset/cpuset.cpus 0-1\nfile sys/fs/cgroup/cpuset/cgroup.procs \"1\\n7\\n\"\n\
                     file sys/fs/cgroup/cpuset/cpuset.effective_mems 0-1\n";
        let made = Place::Below {
            hierarchy: "cpuset".into(),
            path: "/berth-7-3".into(),
            mems: "0-1".into(),
        };
        assert_eq!(
            place("cgroup 3:cpuset:/\ncgroup 0::/\n", files, false),
            Ok(made.clone())
        );
        let vm = Vm::clone(&vm());
        let steps = steps(&made, &vm, "1");
        let all: Vec<String> = steps
            .iter()
            .map(|s| {
                s.iter()
                    .map(|(k, v)| format!("{k}={v}"))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        assert_eq!(
            all,
            [
                "cgroup cpuset/berth-7-3=here",
                "cpuset.mems of cgroup cpuset/berth-7-3=0-1 cpuset.cpus of cgroup cpuset/berth-7-3=1",
                "the cpuset cgroup of process 7=/berth-7-3",
            ]
        );
    }

    fn vm() -> std::sync::Arc<Vm> {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(VM).unwrap().unpack(folder.path()).unwrap();
        Scanner::new(Root::at(folder.path())).scan().unwrap().vms[0].clone()
    }

    #[test]
    fn managers_are_left_alone() {
        let own = "file sys/fs/cgroup/v.scope/cpuset.cpus \"\"\nfile sys/fs/cgroup/v.scope/cgroup.procs 7\n";
        let group = "cgroup 0::/v.scope\n";
        assert!(place(group, own, true).unwrap_err().contains("systemd's"));
        assert!(place(group, own, false).is_ok());
        let of = |c: &str| format!("cgroup {c}:/machine/qemu-1-v.libvirt-qemu/emulator\n");
        let libvirt = of("4:cpu") + &of("3:cpuset") + "cgroup 0::/\n";
        let why = place(&libvirt, "", false).unwrap_err();
        assert!(why.contains("libvirt's"), "{why}");
        // Whoever it is, it has a group for each thread.
        let apart = "cgroup 3:cpuset:/a\nthread 9 x cgroup=3:cpuset:/b\n";
        assert!(
            place(apart, "", false)
                .unwrap_err()
                .contains("cgroups of their own")
        );
    }
}
