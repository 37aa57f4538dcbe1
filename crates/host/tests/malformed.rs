// SPDX-License-Identifier: GPL-2.0-only
//! A /proc that changes while it is read, or that says nonsense: no panic, no thread twice, and what was not touched is
//! still found.
use berth_host::discover::Scanner;
use berth_host::fixture::Fixture;
use berth_host::model::{Role, Snapshot};
use berth_host::root::Root;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;

/// What happens to one file.
#[derive(Clone, Debug)]
enum Damage {
    Gone,
    Empty,
    Bytes(Vec<u8>),
    /// Only the first part.
    Cut(usize),
    /// One byte is another.
    Flip(usize, u8),
    /// A folder in its place.
    Folder,
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Gone),
        Just(Damage::Empty),
        proptest::collection::vec(any::<u8>(), 0..200).prop_map(Damage::Bytes),
        (0usize..200).prop_map(Damage::Cut),
        (0usize..200, any::<u8>()).prop_map(|(at, by)| Damage::Flip(at, by)),
        Just(Damage::Folder),
    ]
}

fn apply(folder: &Path, path: &str, damage: &Damage) {
    let path = folder.join(path);
    let Ok(mut bytes) = std::fs::read(&path) else {
        return;
    };
    match damage {
        Damage::Gone | Damage::Folder => {
            std::fs::remove_file(&path).unwrap();
            if matches!(damage, Damage::Folder) {
                std::fs::create_dir(&path).unwrap();
            }
            return;
        }
        Damage::Empty => bytes.clear(),
        Damage::Bytes(new) => bytes.clone_from(new),
        Damage::Cut(at) => bytes.truncate(*at),
        Damage::Flip(at, by) => {
            if let Some(byte) = bytes.get_mut(*at) {
                *byte ^= by;
            }
        }
    }
    std::fs::write(&path, bytes).unwrap();
}

fn sound(snapshot: &Snapshot) -> Result<(), TestCaseError> {
    let mut tasks = BTreeSet::new();
    let mut names = BTreeSet::new();
    for vm in &snapshot.vms {
        prop_assert!(names.insert(vm.name.clone()), "{} twice", vm.name);
        prop_assert!(!vm.name.contains(char::is_control));
        let mut vcpus = BTreeSet::new();
        for thread in &vm.threads {
            prop_assert!(tasks.insert((thread.id.pid, thread.id.tid)));
            if let Role::Vcpu(index) = thread.role {
                prop_assert!(vcpus.insert(index));
            }
        }
        prop_assert!(vcpus.len() <= vm.vcpus as usize);
    }
    Ok(())
}

const HOSTS: [&str; 7] = [
    include_str!("fixtures/libvirt-systemd.host"),
    include_str!("fixtures/libvirt-v1-old-kernel.host"),
    include_str!("fixtures/without-rights.host"),
    include_str!("fixtures/hostile.host"),
    include_str!("fixtures/recorded/cloud-hypervisor.host"),
    include_str!("fixtures/recorded/crosvm.host"),
    include_str!("fixtures/recorded/libvirt.host"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn damaged_trees_are_survived(
        host in 0..HOSTS.len(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), damage(), any::<bool>()), 1..12),
    ) {
        let fixture = Fixture::parse(HOSTS[host]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fixture.unpack(folder.path()).unwrap();
        let paths: Vec<&String> = fixture.files.keys().collect();
        let hit = |before| {
            for (at, damage, early) in &hits {
                if *early == before {
                    apply(folder.path(), at.get(&paths).as_str(), damage);
                }
            }
        };
        let mut scanner = Scanner::new(Root::at(folder.path()));
        hit(true);
        sound(&scanner.scan().unwrap())?;
        hit(false);
        for _ in 0..3 {
            sound(&scanner.scan().unwrap())?;
        }
        // Whatever is known of processes that are gone must go too.
        std::fs::remove_dir_all(folder.path().join("proc")).unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        prop_assert_eq!(scanner.scan().unwrap().vms.len(), 0);
    }
}

#[test]
fn a_number_that_is_used_again_is_another_vm() {
    let text = |name: &str, start: u64| {
        format!(
            "process 500 lkvm start={start}\nargs lkvm run --name {name}\nfd 3 anon_inode:kvm-vm\n\
             fd 4 anon_inode:kvm-vcpu:0\nthread 501 kvm-vcpu-0 start={start} run=4\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let mut old = 0;
    let mut unpack = |text: &str| {
        // Put aside, not removed: a disk gives the inode of a removed file to the next, /proc does not.
        old += 1;
        let aside = folder.path().join(format!("old{old}"));
        let _ = std::fs::rename(folder.path().join("proc"), aside);
        let fixture = Fixture::parse(text).unwrap();
        fixture.unpack(folder.path()).unwrap();
    };
    unpack(&text("first", 50));
    let mut scanner = Scanner::new(Root::at(folder.path()));
    let first = scanner.scan().unwrap();
    unpack(&text("second", 90));
    let second = scanner.scan().unwrap();
    assert_eq!(first.vms[0].name, "first");
    assert_eq!(second.vms[0].name, "second");
    assert_ne!(first.vms[0].threads[0].id, second.vms[0].threads[0].id);
    // Numbers of a VM that now belong to something else.
    unpack("process 500 sshd start=95\nargs sshd\nthread 501 \"CPU 0/KVM\"\n");
    assert_eq!(scanner.scan().unwrap().vms.len(), 0);
}

#[test]
fn vcpus_threads_and_vms_come_and_go() {
    let start = "process 500 lkvm\nargs lkvm run --name a\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n\
                 thread 501 kvm-vcpu-0 run=4\n";
    let folder = tempfile::tempdir().unwrap();
    let unpack = |text: &str| {
        let fixture = Fixture::parse(text).unwrap();
        for path in fixture.links.keys() {
            let _ = std::fs::remove_file(folder.path().join(path));
        }
        fixture.unpack(folder.path()).unwrap();
    };
    let mut scanner = Scanner::new(Root::at(folder.path()));
    unpack(start);
    assert_eq!(scanner.scan().unwrap().vms[0].vcpus, 1);
    let more = format!(
        "{start}fd 5 anon_inode:kvm-vcpu:1\nthread 502 x run=5\nthread 503 virtio-net-rx\n"
    );
    unpack(&more);
    let vm = scanner.scan().unwrap().vms[0].clone();
    let roles: Vec<String> = vm.threads.iter().map(|t| t.role.to_string()).collect();
    assert_eq!(roles, ["vcpu0", "vcpu1", "iothread", "emulator"]);
    std::fs::remove_dir_all(folder.path().join("proc/500/task/503")).unwrap();
    assert_eq!(scanner.scan().unwrap().vms[0].threads.len(), 3);
    // A process that was none becomes a VM while it is young.
    unpack("process 600 lkvm\nargs lkvm run --name b\nfd 3 /dev/kvm\n");
    assert_eq!(scanner.scan().unwrap().vms.len(), 1);
    unpack("process 600 lkvm\nargs lkvm run --name b\nfd 3 /dev/kvm\nfd 7 anon_inode:kvm-vm\n");
    assert_eq!(scanner.scan().unwrap().vms.len(), 2);
}

#[test]
fn a_process_that_closes_its_vm_is_none_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let text = "process 500 maker\nfd 3 /dev/kvm\nfd 4 anon_inode:kvm-vm\nfd 5 anon_inode:kvm-vcpu:0\n\
                thread 501 kvm-vcpu-0 run=5\n";
    let fixture = Fixture::parse(text).unwrap();
    fixture.unpack(folder.path()).unwrap();
    let mut scanner = Scanner::new(Root::at(folder.path()));
    assert_eq!(scanner.scan().unwrap().vms.len(), 1);
    let proc = folder.path().join("proc/500");
    std::fs::remove_file(proc.join("fd/4")).unwrap();
    std::fs::remove_file(proc.join("fd/5")).unwrap();
    std::fs::remove_dir_all(proc.join("task/501")).unwrap();
    assert_eq!(scanner.scan().unwrap().vms.len(), 0);
}

#[test]
fn a_vm_whose_parent_has_not_taken_note_of_its_end_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let text = "process 500 lkvm\nargs lkvm run --name a\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n\
                thread 501 kvm-vcpu-0 run=4\n";
    let fixture = Fixture::parse(text).unwrap();
    fixture.unpack(folder.path()).unwrap();
    let mut scanner = Scanner::new(Root::at(folder.path()));
    assert_eq!(scanner.scan().unwrap().vms.len(), 1);
    let proc = folder.path().join("proc/500");
    std::fs::remove_dir_all(proc.join("task/501")).unwrap();
    std::fs::remove_dir_all(proc.join("fd")).unwrap();
    let stat = std::fs::read_to_string(proc.join("stat")).unwrap();
    let ended = stat.replacen(") S ", ") Z ", 1);
    assert_ne!(stat, ended);
    std::fs::write(proc.join("stat"), ended).unwrap();
    let seen = scanner.scan().unwrap();
    assert_eq!(seen.vms.len(), 0);
    // Whoever looks now for the first time sees none either, and nothing that is hidden.
    let seen = Scanner::new(Root::at(folder.path())).scan().unwrap();
    assert_eq!((seen.vms.len(), seen.blind.files), (0, 0));
}
