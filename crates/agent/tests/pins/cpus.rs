// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that go and come below pinned VMs, and a host that sleeps.
use super::World;
use berth_actuator::Knob;
use berth_affinity::Policy;
use std::time::Duration;

#[test]
fn a_cpu_that_goes_offline_is_left_and_nobody_is_blamed() {
    a_cpu_goes_offline(true);
}

#[test]
fn a_cpu_that_goes_before_anybody_has_looked_is_left_too() {
    a_cpu_goes_offline(false);
}

fn a_cpu_goes_offline(after_a_look: bool) {
    let mut world = World::new();
    let before = world.pin("db", Policy::Full, None).unwrap().seat.vcpus[0];
    if after_a_look {
        world.look();
    }
    // The kernel widens the masks of who has nowhere else to be.
    let left: Vec<u32> = (0..8).filter(|c| *c != before).collect();
    let list: Vec<String> = left.iter().map(ToString::to_string).collect();
    world.write("sys/devices/system/cpu/online", &list.join(","));
    let masks: Vec<Knob> = world.paper.0.values.borrow().keys().cloned().collect();
    for knob in masks.iter().filter(|k| matches!(k, Knob::Affinity { .. })) {
        world.paper.0.values.borrow_mut().remove(knob);
    }
    let said = world.look();
    assert!(said.iter().any(|s| s.contains("planned anew")), "{said:?}");
    assert!(
        !said.iter().any(|s| s.contains("somebody else")),
        "{said:?}"
    );
    let now = world.pins.status()[0].seat.vcpus[0];
    assert_ne!(now, before);
    assert_eq!(
        world.set()["the CPU affinity of thread 2310"],
        now.to_string()
    );
    world.pins.end().unwrap();
    world.nothing_is_left();
}

#[test]
fn cpus_that_came_while_nothing_was_pinned_are_no_news() {
    let mut world = World::new();
    world.pin("db", Policy::Full, None).unwrap();
    world.look();
    let db = world.key("db");
    world.pins.unpin(&world.keeper, db).unwrap();
    world.write("sys/devices/system/cpu/online", "0-3");
    world.look();
    world.pin("db", Policy::Full, None).unwrap();
    assert_eq!(world.look(), Vec::<String>::new());
    world.pins.end().unwrap();
    world.nothing_is_left();
}

/// The host sleeps: all CPUs but one go, the kernel gives whoever has none left all of them, and all come back.
#[test]
fn a_host_that_slept_is_as_it_was() {
    let mut world = World::new();
    world.pin("db", Policy::Full, Some(5)).unwrap();
    world.pin("web", Policy::L2, None).unwrap();
    world.look();
    let awake = world.set();
    let writes = *world.paper.0.writes.borrow();
    // Whoever is frozen meanwhile sees nothing of it.
    assert!(world.look().is_empty());
    assert_eq!(*world.paper.0.writes.borrow(), writes);
    // By hand, and looked at in between.
    for _ in 0..3 {
        world.write("sys/devices/system/cpu/online", "0");
        let threads: Vec<Knob> = world.paper.0.values.borrow().keys().cloned().collect();
        for knob in threads
            .iter()
            .filter(|k| matches!(k, Knob::Affinity { .. }))
        {
            let lost = world.paper.0.values.borrow()[knob] != "0";
            if lost {
                world.paper.0.values.borrow_mut().remove(knob);
            }
        }
        world.look();
        let vcpu = "the CPU affinity of thread 2310";
        assert_eq!(world.set().get(vcpu), None, "that CPU is not there");
        let status = world.pins.status();
        let db = status.iter().find(|p| p.vm == "db").unwrap();
        assert!(db.complaints[0].contains("CPU 5 is offline"), "{db:?}");
        world.root.sleep(Duration::from_secs(30));
        world.look();
        world.write("sys/devices/system/cpu/online", "0-7");
        let said = world.look();
        assert!(
            !said.iter().any(|s| s.contains("somebody else")),
            "{said:?}"
        );
        let status = world.pins.status();
        assert!(status.iter().all(|p| p.complaints.is_empty()), "{status:?}");
        let now = world.set();
        assert_eq!(now[vcpu], "5");
        assert!(awake.keys().eq(now.keys()), "{awake:?} {now:?}");
    }
    world.pins.end().unwrap();
    world.nothing_is_left();
}
