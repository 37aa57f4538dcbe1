// SPDX-License-Identifier: GPL-2.0-only
//! Values that this process may not set, from the beginning or from some time on: it is done without them, each is said
//! once and tried once, and all else is undone in the end.
use super::{World, expect};
use berth_affinity::Policy;
use std::time::Duration;

/// Looks until long after what others set and networks were looked at again. Gives what was said.
fn looks(world: &mut World) -> Vec<String> {
    let look = |_| {
        world.root.sleep(Duration::from_millis(1100));
        world.look()
    };
    (0..8).flat_map(look).collect()
}

fn complaints(world: &World) -> Vec<String> {
    world.pins.status().remove(0).complaints
}

#[test]
fn what_is_denied_from_the_beginning_is_done_without() {
    let mut world = World::new();
    let words = ["thread 2401", "interrupt 50"];
    *world.paper.0.denies.borrow_mut() = words.to_vec();
    let pinned = world.pin("mac", Policy::Full, Some(5)).unwrap();
    assert_eq!(pinned.complaints.len(), 2, "{pinned:?}");
    for what in words {
        let said = pinned.complaints.iter().filter(|c| c.contains(what));
        assert_eq!(said.count(), 1, "{what}: {pinned:?}");
    }
    assert_eq!(pinned.set, 2);
    let others = expect(&[
        ("the CPU affinity of thread 2410", "5"),
        ("what irqbalance leaves alone", "9 50"),
    ]);
    assert_eq!(world.set(), others);
    assert_eq!(looks(&mut world), Vec::<String>::new());
    assert_eq!(complaints(&world), pinned.complaints);
    assert_eq!((*world.paper.0.denied.borrow(), world.set()), (2, others));
    // Whoever pins it again asks for it again.
    let again = world.pin("mac", Policy::Full, Some(5)).unwrap();
    assert_eq!(again.complaints, pinned.complaints);
    assert_eq!(*world.paper.0.denied.borrow(), 4);
    let report = world.pins.end().unwrap();
    assert!(report.complaints().is_empty(), "{report:?}");
    world.nothing_is_left();
}

#[test]
fn rights_that_are_lost_while_it_runs_cost_what_comes_after() {
    let mut world = World::new();
    let pinned = world.pin("mac", Policy::Full, Some(5)).unwrap();
    assert!(pinned.complaints.is_empty(), "{pinned:?}");
    let before = world.set();
    *world.paper.0.denies.borrow_mut() = vec!["thread 2411", "interrupt 50"];
    world.thread(2411, 9000);
    world.thread(2412, 9000);
    assert_eq!(looks(&mut world), Vec::<String>::new());
    // What was set stays so; of what came it has what it may have.
    let mut with = before.clone();
    with.insert("the CPU affinity of thread 2412".into(), "5".into());
    assert_eq!(world.set(), with);
    let said = complaints(&world);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("thread 2411 may not be set: not permitted"));
    assert_eq!(*world.paper.0.denied.borrow(), 1);
    // One more, which is denied, too: the first is not tried again.
    world.paper.0.denies.borrow_mut().push("thread 2413");
    world.thread(2413, 9000);
    assert_eq!(looks(&mut world), Vec::<String>::new());
    assert_eq!(complaints(&world).len(), 2);
    assert_eq!((*world.paper.0.denied.borrow(), world.set()), (2, with));
    // In the end all goes back but what may not be: that is said, and remembered for who may.
    let report = world.pins.end().unwrap();
    let said = report.complaints();
    assert_eq!(said.len(), 1, "{report:?}");
    assert!(said[0].contains("interrupt 50") && said[0].contains("may not be set"));
    let left = expect(&[("the CPUs of interrupt 50 (virtio3-input.0)", "5")]);
    assert_eq!(world.set(), left);
    world.paper.0.denies.borrow_mut().clear();
    drop(world.hands());
    world.nothing_is_left();
}
