// SPDX-License-Identifier: GPL-2.0-only
//! Pins by rule: who is pinned, when, and that what is done by hand goes first.
use super::{World, expect};
use berth_affinity::{Ask, Policy};
use berth_agent::pins::standing::{Due, PinRule};
use berth_agent::pins::{Method, Pinning};
use std::collections::BTreeMap;
use std::time::Duration;

fn rule(name: &str, policy: Policy, cpu: Option<u32>) -> PinRule {
    let ask = Ask {
        policy,
        cpu,
        ..Ask::default()
    };
    PinRule {
        name: name.into(),
        pinning: Pinning {
            ask,
            method: Method::Taskset,
        },
    }
}

impl World {
    /// As the agent does it at each look.
    fn follow(&mut self) -> Vec<String> {
        let mut said = self.look();
        let (due, refused) = self.pins.due(&self.keeper, &BTreeMap::new);
        said.extend(refused);
        said.extend(self.pins.follow_rules(&self.keeper, due).unwrap());
        said
    }

    fn by(&self, vm: &str) -> Option<String> {
        let all = self.pins.status();
        all.iter().find(|p| p.vm == vm).and_then(|p| p.rule.clone())
    }
}

const DB: [(&str, &str); 2] = [
    ("the CPU affinity of thread 2301", "3"),
    ("the CPU affinity of thread 2310", "3"),
];

#[test]
fn the_first_rule_that_fits_counts_and_all_is_as_it_was_without_rules() {
    let mut world = World::new();
    world.pins.set_rules(vec![
        rule("d*", Policy::Paper, Some(3)),
        rule("db", Policy::Full, Some(5)),
        rule("nobody", Policy::Full, Some(5)),
    ]);
    let said = world.follow();
    assert_eq!(
        said,
        ["VM db pinned (paper), as the rule for d* says: 2 values set"]
    );
    assert_eq!(world.set(), expect(&DB));
    assert_eq!(world.by("db").as_deref(), Some("d*"));
    assert_eq!(world.pins.ruled().rules, ["d*", "db", "nobody"]);
    let writes = *world.paper.0.writes.borrow();
    assert!(world.follow().is_empty());
    assert_eq!(*world.paper.0.writes.borrow(), writes, "once");
    // Another rule is in force at once, and the same one changes nothing.
    let rules = || vec![rule("d*", Policy::Paper, Some(3))];
    world.pins.set_rules(rules());
    assert!(world.follow().is_empty());
    assert_eq!(*world.paper.0.writes.borrow(), writes);
    world
        .pins
        .set_rules(vec![rule("db", Policy::Paper, Some(4))]);
    let said = world.follow();
    assert!(
        said.iter().any(|s| s.contains("its rule is no more")),
        "{said:?}"
    );
    assert!(
        world.set().values().all(|cpu| cpu == "4"),
        "{:?}",
        world.set()
    );
    world.pins.set_rules(Vec::new());
    assert_eq!(world.follow(), ["VM db is unpinned: its rule is no more"]);
    world.pins.end().unwrap();
    world.nothing_is_left();
}

#[test]
fn what_is_done_by_hand_goes_first() {
    let mut world = World::new();
    let rules = || vec![rule("db", Policy::Paper, Some(3))];
    world.pins.set_rules(rules());
    world.follow();
    // Otherwise by hand: it is the operator's from then on, also when the rules are read again.
    world.pin("db", Policy::Paper, Some(6)).unwrap();
    assert_eq!(world.by("db"), None);
    world.pins.set_rules(rules());
    world.pins.set_rules(rules());
    assert!(world.follow().is_empty());
    assert!(
        world.set().values().all(|cpu| cpu == "6"),
        "{:?}",
        world.set()
    );
    world.pins.set_rules(Vec::new());
    world.follow();
    assert_eq!(world.set().len(), 2, "no rule pinned it, so none unpins it");
    // Unpinned by hand it stays so until they are read again.
    world.pins.set_rules(rules());
    let key = world.key("db");
    world.pins.unpin(&world.keeper, key).unwrap().unwrap();
    world.root.sleep(Duration::from_secs(60));
    assert!(world.follow().is_empty());
    assert!(world.set().is_empty());
    let not = world.pins.ruled().not;
    assert!(
        not.len() == 1 && not[0].0 == "db" && not[0].1.contains("by hand"),
        "{not:?}"
    );
    world.pins.set_rules(rules());
    world.follow();
    assert_eq!(world.set(), expect(&DB));
    // All of them.
    world.pins.set_rules_aside("stopped");
    world.pins.unpin(&world.keeper, key).unwrap().unwrap();
    world.root.sleep(Duration::from_secs(60));
    world.follow();
    assert!(world.set().is_empty());
    assert_eq!(world.pins.ruled().aside.as_deref(), Some("stopped"));
    world.pins.set_rules(rules());
    world.follow();
    assert_eq!((world.set().len(), world.pins.ruled().aside), (2, None));
}

#[test]
fn one_that_cannot_be_pinned_is_said_once_and_tried_again() {
    let mut world = World::new();
    world.write("sys/devices/system/cpu/online", "0-3\n");
    world
        .pins
        .set_rules(vec![rule("db", Policy::Paper, Some(5))]);
    let said = world.follow();
    assert!(
        said.len() == 1
            && said[0].contains("VM db is not pinned")
            && said[0].contains("CPU 5 is offline"),
        "{said:?}"
    );
    for _ in 0..30 {
        world.root.sleep(Duration::from_secs(1));
        assert!(world.follow().is_empty());
    }
    let not = world.pins.ruled().not;
    assert!(not[0].0 == "db" && not[0].1.contains("offline"), "{not:?}");
    assert!(world.pins.held().is_empty() && world.set().is_empty());
    // It is there: at once.
    world.write("sys/devices/system/cpu/online", "0-7\n");
    assert!(world.follow()[0].contains("VM db pinned"));
    assert!(world.pins.ruled().not.is_empty());
    assert!(world.set().values().all(|cpu| cpu == "5"));
}

/// Whoever else acts on a VM lets go of it only if it can be pinned: to ask sets nothing, and remembers nothing.
#[test]
fn to_ask_what_is_due_changes_nothing() {
    let mut world = World::new();
    world.pin("web", Policy::L2, None).unwrap();
    let (set, held) = (world.set(), world.pins.held());
    world.pins.set_rules(vec![
        rule("db", Policy::Paper, Some(3)),
        rule("mac", Policy::Full, Some(4000)),
    ]);
    let (due, said) = world.pins.due(&world.keeper, &BTreeMap::new);
    assert_eq!(due.pin.len(), 1, "{due:?}");
    assert!(said.len() == 1 && said[0].contains("mac"), "{said:?}");
    assert_eq!((world.set(), world.pins.held()), (set, held));
    world.pins.follow_rules(&world.keeper, due).unwrap();
    assert_eq!(world.by("db").as_deref(), Some("db"));
}

/// A VM is pinned when all its vCPUs are known, or after two seconds.
#[test]
fn a_vm_is_waited_for_until_it_has_grown() {
    let young = "process 2701 qemu-system-x86 start=5500\nargs qemu-system-x86_64 -name guest=young -smp 2\n\
                 fd 10 anon_inode:kvm-vm\nfd 14 anon_inode:kvm-vcpu:0\nfd 15 anon_inode:kvm-vcpu:1\n\
                 thread 2710 \"CPU 0/KVM\" run=14\n";
    let mut world = World::with(young);
    world
        .pins
        .set_rules(vec![rule("young", Policy::Paper, Some(2))]);
    assert!(world.follow().is_empty());
    assert_eq!(
        world.pins.due(&world.keeper, &BTreeMap::new),
        (Due::default(), Vec::new())
    );
    world.root.sleep(Duration::from_millis(2100));
    assert!(world.follow()[0].contains("VM young pinned"));
}

/// Names are strangers': whatever they are, a rule pins only whom it names, and the log is not filled.
#[test]
fn hostile_names_and_rules() {
    let vm = |pid: u32, name: &str| {
        format!(
            "process {pid} qemu-system-x86 start={pid}\nargs qemu-system-x86_64 -name guest={name}\n\
             fd 10 anon_inode:kvm-vm\nfd 14 anon_inode:kvm-vcpu:0\nthread {} \"CPU 0/KVM\" run=14\n",
            pid + 1
        )
    };
    let long = "x".repeat(3000);
    let mut world = World::with(&[vm(2710, "d*"), vm(2720, "db*"), vm(2730, &long)].concat());
    let many: Vec<PinRule> = (0..2000)
        .map(|n| rule(&format!("*{n}*a*b*c*"), Policy::Full, None))
        .collect();
    world
        .pins
        .set_rules([many, vec![rule("db", Policy::Paper, Some(3))]].concat());
    let said = world.follow();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(world.set(), expect(&DB));
}
