// SPDX-License-Identifier: GPL-2.0-only
//! Every VM, every thread and its role, on the hosts in `fixtures/`: those recorded from real stacks in `recorded`,
//! those written by hand beside it.
use berth_host::discover::{LOOK_AGAIN, Scanner};
use berth_host::fixture::Fixture;
use berth_host::model::{Role, Snapshot};
use berth_host::root::Root;
use std::collections::BTreeMap;
use std::path::Path;

const RECORDED: &str = "recorded/";

fn hosts() -> Vec<(String, Fixture)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut hosts = Vec::new();
    for part in ["", RECORDED] {
        for entry in std::fs::read_dir(fixtures.join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let name = format!("{part}{}", path.file_stem().unwrap().to_string_lossy());
            let fixture = Fixture::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
            hosts.push((name, fixture));
        }
    }
    hosts.sort_by(|a, b| a.0.cmp(&b.0));
    hosts
}

fn word(value: impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap();
    value.as_str().unwrap().to_string()
}

fn check(host: &str, fixture: &Fixture, snapshot: &Snapshot) {
    let mut roles = BTreeMap::new();
    let mut vms = BTreeMap::new();
    for vm in &snapshot.vms {
        let mut found = BTreeMap::from([
            ("pid".to_string(), vm.pid.to_string()),
            ("vcpus".to_string(), vm.vcpus.to_string()),
            ("manager".to_string(), word(vm.manager)),
            ("vmm".to_string(), word(vm.vmm)),
            ("from".to_string(), word(vm.name_from)),
            ("proof".to_string(), word(vm.proof)),
        ]);
        if let Some(id) = &vm.manager_id {
            found.insert("id".to_string(), id.clone());
        }
        vms.insert(vm.name.clone(), found);
        for thread in &vm.threads {
            let twice = roles.insert(thread.id.tid, thread.role.to_string());
            assert_eq!(
                twice, None,
                "{host}: thread {} is in two VMs",
                thread.id.tid
            );
        }
        let known = vm
            .threads
            .iter()
            .filter(|t| matches!(t.role, Role::Vcpu(_)));
        assert_eq!(known.count(), vm.vcpus as usize, "{host}: {}", vm.name);
    }
    assert_eq!(vms, fixture.vms, "{host}");
    assert_eq!(roles, fixture.roles, "{host}");
}

#[test]
fn every_thread_of_every_stack_has_its_role() {
    let hosts = hosts();
    let recorded = hosts.iter().filter(|(name, _)| name.starts_with(RECORDED));
    assert!(recorded.count() >= 8);
    for (host, fixture) in hosts {
        let folder = tempfile::tempdir().unwrap();
        fixture.unpack(folder.path()).unwrap();
        let mut scanner = Scanner::new(Root::at(folder.path()));
        // The first look, looks at what was uncertain, and after all has settled.
        for _ in 0..70 {
            check(&host, &fixture, &scanner.scan().unwrap());
        }
    }
}

/// A manager puts its VM into a cgroup after it has started; anybody may put it into another one long after.
#[test]
fn a_vm_that_is_put_into_another_cgroup_is_seen_there() {
    let text = "process 5 lkvm start=3\nargs lkvm run --name v\ncgroup 0::/a\nfd 3 anon_inode:kvm-vm\n\
                fd 4 anon_inode:kvm-vcpu:0\nthread 6 v run=4\n";
    let folder = tempfile::tempdir().unwrap();
    Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
    let mut scanner = Scanner::new(Root::at(folder.path()));
    for (scans, group) in [
        (1, "/b"),
        (100, "/c"),
        (100, "/machine/qemu-1-w.libvirt-qemu/emulator"),
    ] {
        for _ in 0..scans {
            scanner.scan().unwrap();
        }
        std::fs::write(folder.path().join("proc/5/cgroup"), format!("0::{group}\n")).unwrap();
        let seen = (0..LOOK_AGAIN).any(|_| scanner.scan().unwrap().vms[0].cgroup == group);
        assert!(seen, "{group}");
    }
}

#[test]
fn names_alone_are_enough_where_they_are_honest() {
    // The same stacks without debugfs and without anything else that needs rights.
    let mut checked = 0;
    for (host, fixture) in hosts() {
        let nameless = ["incus", "kvmtool", "crosvm", "recorded/incus"];
        if ["hostile", "without-rights"].contains(&host.as_str())
            || nameless.contains(&host.as_str())
        {
            // Threads without names, or a VMM nobody knows: invisible to a user without rights until it has run.
            continue;
        }
        let mut fixture = fixture;
        fixture.files.retain(|path, _| {
            !path.starts_with("sys/") && !path.ends_with("/syscall") && !path.ends_with("/fd/")
        });
        fixture.links.retain(|path, _| !path.contains("/fd/"));
        let folder = tempfile::tempdir().unwrap();
        fixture.unpack(folder.path()).unwrap();
        let snapshot = Scanner::new(Root::at(folder.path())).scan().unwrap();
        assert!(snapshot.blind.files > 0, "{host}");
        for vm in fixture.vms.values_mut() {
            let ran = fixture.files[&format!("proc/{}/stat", vm["pid"])].clone();
            let ran = berth_host::procfile::stat(&ran).unwrap().guest > 0;
            let proof = if ran { "guest_time" } else { "looks" };
            vm.insert("proof".into(), proof.into());
        }
        check(&host, &fixture, &snapshot);
        checked += 1;
    }
    assert!(checked >= 15, "{checked}");
}
