// SPDX-License-Identifier: GPL-2.0-only
//! Roles of a VM's threads from what is known of them, by the strongest evidence.
//!
//! Names are chosen by whoever owns the process; what the kernel says of a thread (debugfs, the file it is in `KVM_RUN`
//! with, its flags, its guest time) is not. A name decides only what nothing stronger does.
use crate::model::{Evidence, Role};
use crate::procfile::{PF_IO_WORKER, PF_USER_WORKER};
use std::collections::BTreeSet;

/// What is known of one thread of a VMM.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub tid: i32,
    /// Start, in clock ticks since boot.
    pub start: u64,
    /// Its name, any bytes.
    pub comm: Vec<u8>,
    /// `PF_*`.
    pub flags: u64,
    /// It was charged with guest time, or seen in guest mode.
    pub guest: bool,
    /// debugfs says it is this vCPU.
    pub debugfs: Option<u32>,
    /// It was seen in `KVM_RUN` on the file of this vCPU.
    pub kvm_run: Option<u32>,
    /// QEMU's monitor says it is this vCPU.
    pub qmp: Option<u32>,
    /// Last part of its own cgroup, where libvirt made one per role.
    pub cgroup: Option<String>,
}

/// What is known of a VM as a whole.
#[derive(Clone, Debug, Default)]
pub struct Whole {
    pub pid: i32,
    /// Indexes of the vCPUs whose files the process holds; `None` if its files cannot be seen.
    pub vcpus: Option<BTreeSet<u32>>,
}

/// A role for each thread, in the order of `threads`.
pub fn assign(whole: &Whole, threads: &[Facts]) -> Vec<(Role, Evidence)> {
    let mut roles: Vec<_> = threads.iter().map(|t| first_guess(whole, t)).collect();
    one_thread_per_vcpu(threads, &mut roles);
    name_the_unnamed(whole, threads, &mut roles);
    io_workers(threads, &mut roles);
    roles
}

fn first_guess(whole: &Whole, t: &Facts) -> (Role, Evidence) {
    if let Some(index) = t.debugfs {
        return (Role::Vcpu(index), Evidence::Debugfs);
    }
    if t.flags & (PF_USER_WORKER | PF_IO_WORKER) != 0 {
        return (kernel_worker(t), Evidence::KernelThread);
    }
    // These look like `KVM_RUN` on kernels that do not flag them: they were cloned from a vCPU thread.
    if t.comm.starts_with(b"kvm-nx-lpage-re") {
        return (Role::Other, Evidence::Name);
    }
    if t.comm == format!("vhost-{}", whole.pid).as_bytes() {
        return (Role::Vhost, Evidence::Name);
    }
    if let Some(index) = t.kvm_run {
        return (Role::Vcpu(index), Evidence::KvmRun);
    }
    if let Some(index) = t.qmp {
        return (Role::Vcpu(index), Evidence::Qmp);
    }
    let cgroup = t.cgroup.as_deref().and_then(libvirt_role);
    let exists = |index: &u32| whole.vcpus.as_ref().is_none_or(|v| v.contains(index));
    let named = vcpu_name(&t.comm).filter(exists);
    if t.guest {
        let index = match cgroup {
            Some(Role::Vcpu(index)) => Some(index),
            _ => named,
        };
        // One that cannot be told from its name gets its index by age.
        return (
            index.map_or(Role::Vcpu(u32::MAX), Role::Vcpu),
            Evidence::GuestTime,
        );
    }
    // libvirt leaves in `emulator` all that it does not know, and what it has not moved yet: names say more there.
    if let Some(role) = cgroup.filter(|role| *role != Role::Emulator) {
        return (role, Evidence::Cgroup);
    }
    if let Some(index) = named {
        return (Role::Vcpu(index), Evidence::Name);
    }
    if io_name(&t.comm) {
        return (Role::Iothread, Evidence::Name);
    }
    match t.tid == whole.pid {
        true => (Role::Emulator, Evidence::MainThread),
        false => (Role::Emulator, Evidence::Rest),
    }
}

fn kernel_worker(t: &Facts) -> Role {
    if t.comm.starts_with(b"vhost-") {
        Role::Vhost
    } else if t.flags & PF_IO_WORKER != 0 {
        Role::Emulator
    } else {
        Role::Other
    }
}

/// Of several threads that claim one vCPU, the one with the strongest evidence is it; of equals the oldest.
fn one_thread_per_vcpu(threads: &[Facts], roles: &mut [(Role, Evidence)]) {
    let mut claims: Vec<_> = (0..threads.len())
        .filter_map(|i| match roles[i] {
            (Role::Vcpu(index), evidence) if index != u32::MAX => {
                Some((index, evidence, threads[i].start, threads[i].tid, i))
            }
            _ => None,
        })
        .collect();
    claims.sort_unstable();
    for pair in claims.windows(2) {
        if pair[0].0 == pair[1].0 {
            roles[pair[1].4] = match pair[1].1 {
                // It is a vCPU, only not this one.
                Evidence::GuestTime => (Role::Vcpu(u32::MAX), Evidence::GuestTime),
                _ => (Role::Emulator, Evidence::Rest),
            };
        }
    }
}

/// Gives an index to threads that are surely vCPUs, and, where exactly as many threads are left as vCPUs, to those:
/// VMMs make the threads in the order of the indexes.
fn name_the_unnamed(whole: &Whole, threads: &[Facts], roles: &mut [(Role, Evidence)]) {
    let taken: BTreeSet<u32> = roles
        .iter()
        .filter_map(|(role, _)| match role {
            Role::Vcpu(index) if *index != u32::MAX => Some(*index),
            _ => None,
        })
        .collect();
    let by_age = |wanted: &dyn Fn(&(Role, Evidence)) -> bool, roles: &[(Role, Evidence)]| {
        let mut found: Vec<usize> = (0..roles.len()).filter(|i| wanted(&roles[*i])).collect();
        found.sort_unstable_by_key(|i| (threads[*i].start, threads[*i].tid));
        found
    };
    let sure = by_age(&|r| r.0 == Role::Vcpu(u32::MAX), roles);
    let mut free: Vec<u32> = match &whole.vcpus {
        Some(indexes) => indexes.difference(&taken).copied().collect(),
        None => (0..)
            .filter(|i| !taken.contains(i))
            .take(sure.len())
            .collect(),
    };
    free.reverse();
    for i in sure {
        roles[i] = match free.pop() {
            Some(index) => (Role::Vcpu(index), Evidence::GuestTime),
            // More threads in guest mode than vCPU files: two VMs in one process.
            None => (Role::Other, Evidence::GuestTime),
        };
    }
    if whole.vcpus.is_some() && !free.is_empty() {
        let rest = by_age(&|r| *r == (Role::Emulator, Evidence::Rest), roles);
        if rest.len() == free.len() {
            for (i, index) in rest.into_iter().zip(free.into_iter().rev()) {
                roles[i] = (Role::Vcpu(index), Evidence::Order);
            }
        }
    }
}

/// A worker of io_uring (`iou-wrk-TID`) does the work of the thread that asked.
fn io_workers(threads: &[Facts], roles: &mut [(Role, Evidence)]) {
    for i in 0..threads.len() {
        if threads[i].flags & PF_IO_WORKER == 0 {
            continue;
        }
        let asker = threads[i].comm.strip_prefix(b"iou-wrk-");
        let asker = asker.and_then(crate::procfile::number);
        let asker =
            asker.and_then(|tid| threads.iter().position(|t| u64::try_from(t.tid) == Ok(tid)));
        if let Some(asker) = asker
            && roles[asker].0 == Role::Iothread
        {
            roles[i] = (Role::Iothread, Evidence::KernelThread);
        }
    }
}

/// The vCPU that a name claims: `CPU 3/KVM` and `CPU 3/TCG` (QEMU), `vcpu3` (Cloud Hypervisor), `fc_vcpu 3`
/// (Firecracker), `crosvm_vcpu3` (crosvm), `kvm-vcpu-3` (kvmtool).
pub fn vcpu_name(comm: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(comm).ok()?;
    let qemu = name
        .strip_prefix("CPU ")
        .and_then(|n| n.strip_suffix("/KVM").or(n.strip_suffix("/TCG")));
    let digits = qemu.or_else(|| {
        ["vcpu", "fc_vcpu ", "crosvm_vcpu", "kvm-vcpu-"]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))
    })?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Names of threads that do a device's work in the VMM: `IO iothread1` (QEMU), `_disk0_q0`, `_net2_qp1`, `_net2_ctrl`
/// (Cloud Hypervisor), `virtio-blk` and the like (kvmtool, crosvm).
fn io_name(comm: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(comm) else {
        return false;
    };
    let queue = |device: &str| {
        name.strip_prefix(device).is_some_and(|rest| {
            let numbered = rest.starts_with(|c: char| c.is_ascii_digit());
            numbered && (rest.contains("_q") || rest.ends_with("_ctrl"))
        })
    };
    // `IO mon_iothread` serves QEMU's monitor, no device.
    (name.starts_with("IO ") && name != "IO mon_iothread")
        || queue("_disk")
        || queue("_net")
        || queue("_fs")
        || queue("_pmem")
        || name.starts_with("virtio-")
        || name.starts_with("v_block")
        || name.starts_with("v_net")
}

/// The role of one of libvirt's cgroups: `vcpu3`, `iothread1`, `emulator`.
fn libvirt_role(leaf: &str) -> Option<Role> {
    let index = |prefix: &str| leaf.strip_prefix(prefix)?.parse::<u32>().ok();
    match leaf {
        "emulator" => Some(Role::Emulator),
        _ if index("iothread").is_some() => Some(Role::Iothread),
        _ => index("vcpu").map(Role::Vcpu),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfile::PF_VCPU;
    use proptest::prelude::*;

    fn thread(tid: i32, comm: &str) -> Facts {
        Facts {
            tid,
            start: u64::try_from(tid).unwrap(),
            comm: comm.into(),
            ..Facts::default()
        }
    }

    fn whole(vcpus: u32) -> Whole {
        Whole {
            pid: 10,
            vcpus: Some((0..vcpus).collect()),
        }
    }

    #[test]
    fn names_of_vcpus() {
        for (name, index) in [
            ("CPU 0/KVM", Some(0)),
            ("CPU 17/TCG", Some(17)),
            ("vcpu3", Some(3)),
            ("fc_vcpu 2", Some(2)),
            ("crosvm_vcpu5", Some(5)),
            ("kvm-vcpu-1", Some(1)),
            ("CPU +1/KVM", None),
            ("CPU 0/KVM2", None),
            ("vcpu", None),
            ("vcpu99999999999", None),
            ("worker", None),
        ] {
            assert_eq!(vcpu_name(name.as_bytes()), index, "{name}");
        }
    }

    #[test]
    fn the_kernel_outweighs_a_name() {
        let mut threads = vec![
            thread(10, "CPU 0/KVM"),
            thread(11, "innocent"),
            thread(12, "x"),
        ];
        threads[1].kvm_run = Some(0);
        threads[2].debugfs = Some(1);
        // Cloned from a vCPU thread, its registers still show KVM_RUN.
        threads.push(thread(13, "kvm-nx-lpage-re"));
        threads[3].kvm_run = Some(1);
        let roles = assign(&whole(2), &threads);
        assert_eq!(roles[0], (Role::Emulator, Evidence::Rest));
        assert_eq!(roles[1], (Role::Vcpu(0), Evidence::KvmRun));
        assert_eq!(roles[2], (Role::Vcpu(1), Evidence::Debugfs));
        assert_eq!(roles[3].0, Role::Other);
    }

    #[test]
    fn a_name_beyond_the_vcpus_there_are_is_no_vcpu() {
        let threads = [
            thread(10, "qemu"),
            thread(11, "CPU 0/KVM"),
            thread(12, "CPU 7/KVM"),
        ];
        let roles = assign(&whole(1), &threads);
        assert_eq!(roles[1], (Role::Vcpu(0), Evidence::Name));
        assert_eq!(roles[2].0, Role::Emulator);
    }

    /// The order of `threads` and that of the thread ids say nothing of the age.
    #[test]
    fn of_equal_claims_the_oldest_is_the_vcpu() {
        let claims = |of: &[(i32, u64)], guest: bool| {
            let mut threads = vec![thread(10, "qemu")];
            threads.extend(of.iter().map(|(tid, start)| Facts {
                start: *start,
                guest,
                ..thread(*tid, "CPU 0/KVM")
            }));
            assign(&whole(if guest { 2 } else { 1 }), &threads)
        };
        let named = (Role::Vcpu(0), Evidence::Name);
        let rest = (Role::Emulator, Evidence::Rest);
        assert_eq!(claims(&[(11, 90), (12, 50)], false)[1..], [rest, named]);
        assert_eq!(claims(&[(12, 50), (11, 90)], false)[1..], [named, rest]);
        assert_eq!(claims(&[(12, 50), (11, 50)], false)[1..], [rest, named]);
        // Both are vCPUs: the younger one is another.
        let ran = |index| (Role::Vcpu(index), Evidence::GuestTime);
        assert_eq!(claims(&[(11, 90), (12, 50)], true)[1..], [ran(1), ran(0)]);
    }

    #[test]
    fn guest_time_makes_a_vcpu_without_a_name() {
        let mut threads: Vec<_> = (10..14).map(|t| thread(t, "qemu-system-x86")).collect();
        threads[2].guest = true;
        threads[3].guest = true;
        let unseen = Whole {
            pid: 10,
            vcpus: None,
        };
        for whole in [whole(2), unseen] {
            let roles = assign(&whole, &threads);
            assert_eq!(roles[0], (Role::Emulator, Evidence::MainThread));
            assert_eq!(roles[1], (Role::Emulator, Evidence::Rest));
            assert_eq!(roles[2], (Role::Vcpu(0), Evidence::GuestTime));
            assert_eq!(roles[3], (Role::Vcpu(1), Evidence::GuestTime));
        }
    }

    #[test]
    fn what_is_left_is_taken_only_when_it_fits() {
        let threads: Vec<_> = (10..13).map(|t| thread(t, "vm")).collect();
        let roles = assign(&whole(2), &threads);
        assert_eq!(roles[1], (Role::Vcpu(0), Evidence::Order));
        assert_eq!(roles[2], (Role::Vcpu(1), Evidence::Order));
        let roles = assign(&whole(1), &threads);
        assert_eq!(roles[1].0, Role::Emulator);
    }

    #[test]
    fn workers_of_the_kernel() {
        let mut threads = vec![
            thread(10, "qemu"),
            thread(11, "IO iothread1"),
            thread(12, "iou-wrk-11"),
            thread(13, "iou-wrk-10"),
            thread(14, "vhost-10"),
            thread(15, "vhost-10"),
            thread(16, "IO mon_iothread"),
        ];
        threads[2].flags = PF_IO_WORKER;
        threads[3].flags = PF_IO_WORKER;
        threads[4].flags = PF_USER_WORKER;
        let roles = assign(&whole(0), &threads);
        let words: Vec<_> = roles.iter().map(|r| r.0.word()).collect();
        assert_eq!(
            words,
            [
                "emulator", "iothread", "iothread", "emulator", "vhost", "vhost", "emulator"
            ]
        );
        assert_eq!(roles[4].1, Evidence::KernelThread);
        assert_eq!(roles[5].1, Evidence::Name);
    }

    proptest! {
        #[test]
        fn every_vcpu_has_at_most_one_thread(
            raw in proptest::collection::vec(
                (0i32..40, 0u64..5, 0usize..8, 0u64..4, any::<bool>(), proptest::option::of(0u32..4),
                 (proptest::option::of(0u32..4), proptest::option::of(0u32..4))),
                0..20,
            ),
            seen in proptest::option::of(0u32..5),
        ) {
            let names = ["CPU 0/KVM", "CPU 1/KVM", "vcpu2", "x", "vhost-10", "IO a", "iou-wrk-3", ""];
            let flags = [0, PF_USER_WORKER, PF_IO_WORKER, PF_VCPU];
            let threads: Vec<Facts> = raw
                .into_iter()
                .map(|(tid, start, name, flag, guest, debugfs, (kvm_run, qmp))| Facts {
                    tid,
                    start,
                    comm: names[name].into(),
                    flags: flags[flag as usize],
                    guest,
                    debugfs,
                    kvm_run,
                    qmp,
                    cgroup: None,
                })
                .collect();
            let whole = Whole { pid: 10, vcpus: seen.map(|n| (0..n).collect()) };
            let roles = assign(&whole, &threads);
            prop_assert_eq!(roles.len(), threads.len());
            let mut taken = BTreeSet::new();
            for (role, _) in roles {
                if let Role::Vcpu(index) = role {
                    prop_assert!(index != u32::MAX);
                    prop_assert!(taken.insert(index));
                }
            }
        }
    }
}
