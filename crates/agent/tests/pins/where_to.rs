// SPDX-License-Identifier: GPL-2.0-only
//! Where a VM is to go, beside what is there: sets of its own, other pins, VMs that somebody else has bound; asked
//! without doing it, too.
use super::{World, expect};
use berth_affinity::{Ask, Policy};
use berth_agent::pins::{Method, Pinning};
use berth_agent::register::VmKey;
use std::collections::{BTreeMap, BTreeSet};

/// What it has set itself is no limit of a manager's.
#[test]
fn pinned_again_by_cgroup_it_may_be_anywhere_it_could_be_before() {
    let mut world = World::new();
    world.write("sys/fs/cgroup/vms/web/cpuset.cpus", "");
    world.write("sys/fs/cgroup/vms/web/cgroup.procs", "2201\n");
    world.write("sys/fs/cgroup/vms/cpuset.cpus.effective", "0-5");
    let is = |world: &World, cpus: &str| {
        world.write("sys/fs/cgroup/vms/web/cpuset.cpus.effective", cpus);
    };
    world.pin("web", Policy::Paper, Some(2)).unwrap();
    is(&world, "2");
    world.pin("web", Policy::Paper, Some(3)).unwrap();
    let set = "cpuset.cpus of cgroup vms/web";
    assert_eq!(world.set(), expect(&[(set, "3")]));
    is(&world, "3");
    let web = world.pin("web", Policy::L2, None).unwrap();
    let mut all: Vec<u32> = [web.seat.vcpus, web.seat.path].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4, "two vCPUs and two pairs of queues: {all:?}");
    assert!(all.iter().all(|cpu| *cpu <= 5), "{all:?}");
    assert!(web.warnings.is_empty(), "{:?}", web.warnings);
    // The group above still counts.
    is(&world, &world.set()[set]);
    let error = world.pin("web", Policy::Paper, Some(7)).unwrap_err();
    assert!(error.to_string().contains("which is 0-5"), "{error}");
    world.pins.end().unwrap();
    world.nothing_is_left();
}

#[test]
fn what_would_be_done_is_what_is_done_beside_what_is_pinned() {
    let mut world = World::new();
    let db = world.pin("db", Policy::Full, Some(1)).unwrap();
    let (set, status) = (world.set(), world.pins.status());
    let ask = |policy, cpu| Pinning {
        ask: Ask {
            policy,
            cpu,
            ..Ask::default()
        },
        method: Method::Auto,
    };
    let would = |world: &mut World, vms: &[VmKey], cpu| {
        let how = ask(Policy::Full, cpu);
        world.pins.would(&world.keeper, vms, &how, BTreeMap::new())
    };
    let vms = [world.key("web"), VmKey { pid: 4, start: 4 }];
    let plan = would(&mut world, &vms, None);
    let [web, gone] = &plan.vms[..] else {
        panic!("{plan:?}")
    };
    assert!(gone.refused.as_ref().unwrap().contains("ended"), "{gone:?}");
    let mac = [world.key("mac")];
    let nowhere = would(&mut world, &mac, Some(77)).vms.remove(0);
    assert!(nowhere.pinned.is_none() && nowhere.values.is_empty());
    let why = nowhere.refused.unwrap();
    assert!(why.contains("CPU 77"), "{why}");
    assert_eq!(world.set(), set);
    assert_eq!(world.pins.status(), status);
    let seat = &web.pinned.as_ref().unwrap().seat;
    let cpu = db.seat.vcpus[0];
    assert!(!seat.vcpus.contains(&cpu) && !seat.path.contains(&cpu));
    let now = world.pin("web", Policy::Full, None).unwrap();
    assert_eq!(&now.seat, seat);
    // irqbalance is told of those of all VMs at once.
    let mut both: BTreeSet<String> = set.into_keys().collect();
    both.extend(web.values.iter().map(|(what, _)| what.clone()));
    assert_eq!(world.set().into_keys().collect::<BTreeSet<_>>(), both);
    // Of one that is pinned: it stays.
    let again = [world.key("db")];
    let plan = would(&mut world, &again, None);
    assert_eq!(plan.vms[0].pinned.as_ref().unwrap().seat, db.seat);
    world.pins.end().unwrap();
    world.nothing_is_left();
}

#[test]
fn a_cpu_that_somebody_else_has_bound_a_vm_to_is_taken() {
    let mut world = World::new();
    let first = world.pin("db", Policy::Full, None).unwrap().seat.vcpus[0];
    let db = world.key("db");
    world.pins.unpin(&world.keeper, db).unwrap();
    let bound = format!("Tgid:\t2401\nCpus_allowed_list:\t{first}\n");
    world.write("proc/2401/task/2410/status", &bound);
    let other = world.pin("db", Policy::Full, None).unwrap().seat.vcpus[0];
    assert_ne!(other, first);
    world.pins.end().unwrap();
    world.nothing_is_left();
}
