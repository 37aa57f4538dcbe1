// SPDX-License-Identifier: GPL-2.0-only
//! The agent acts by whatever backend it is given: here one on paper. Discovery, description, register and tripwire
//! are the real ones.
mod daemon;
mod paper;
mod two_ways;

use berth_agent::agent::{AgentError, Event, LASTING, Started};
use berth_agent::backend::{End, Policy, Value};
use berth_agent::rules::{Rule, Rules};
use paper::{Place, TOLD, place, policy, unpack};
use std::time::Duration;

#[test]
fn what_is_told_and_in_which_order() {
    let mut p = place(Rules::default());
    assert_eq!(p.agent.start(policy("a", &[])).unwrap(), Started::Loaded);
    let told = [&["load a"][..], &TOLD, &["start a"]].concat();
    assert_eq!(p.paper.said(), told);
    assert!(
        p.agent
            .tick()
            .unwrap()
            .iter()
            .all(|e| matches!(e, Event::ByProcess(_)))
    );
    assert!(p.paper.said().is_empty(), "nothing is new");
    unpack(p.folder.path(), &[(300, "new")]);
    p.root.sleep(Duration::from_secs(1));
    p.agent.tick().unwrap();
    let new = [
        "vm 3 weight 100",
        "thread 300 vcpu none",
        "thread 301 vcpu 0",
    ];
    assert_eq!(p.paper.said(), new);
    std::fs::remove_dir_all(p.folder.path().join("proc/300")).unwrap();
    p.agent.tick().unwrap();
    assert_eq!(
        p.paper.said(),
        ["a vm less", "thread 300 less", "thread 301 less"]
    );
    let status = p.agent.status();
    let now = status.policy.unwrap();
    assert_eq!((now.name.as_str(), now.counters["lines"]), ("a", 7));
    assert_eq!((now.seconds, status.vms.len()), (1.0, 2));
    // Another in its place is judged and told while the first still acts.
    assert_eq!(p.agent.start(policy("b", &[])).unwrap(), Started::Switched);
    let told = [&["load b"][..], &TOLD, &["undone a", "start b"]].concat();
    assert_eq!(p.paper.said(), told);
    assert_eq!(p.agent.stop().unwrap(), "b");
    assert_eq!(p.paper.said(), ["end b", "undone b"]);
    assert!(matches!(p.agent.stop(), Err(AgentError::Idle)));
}

/// Who holds a VM for a moment is not warned of: an operator who looks does not find it.
#[test]
fn what_does_not_last_is_not_said() {
    let mut p = place(Rules::default());
    let tick = |p: &mut Place, seconds| {
        p.root.sleep(Duration::from_secs(seconds));
        p.agent.tick().unwrap()
    };
    assert_eq!(tick(&mut p, 0), []);
    unpack(p.folder.path(), &[(300, "probe")]);
    assert_eq!(tick(&mut p, 1), []);
    assert_eq!(p.agent.status().by_process.len(), 3, "who asks is told");
    std::fs::remove_dir_all(p.folder.path().join("proc/300")).unwrap();
    let said = tick(&mut p, LASTING.as_secs() - 1);
    let of = |event: &Event| match event {
        Event::ByProcess(remark) => remark.vm.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(said.iter().map(of).collect::<Vec<_>>(), ["job", "web"]);
    assert_eq!(tick(&mut p, 10), [], "once");
}

#[test]
fn parameters_change_while_it_acts_or_take_loading_it() {
    let mut p = place(Rules::default());
    p.agent
        .start(policy("a", &[("slice", 1), ("fixed", 1)]))
        .unwrap();
    p.paper.said();
    let mut start = |values: &[(&str, i128)]| {
        let started = p.agent.start(policy("a", values)).unwrap();
        let said = p.paper.said();
        (started, said.into_iter().find(|s| !s.starts_with("undone")))
    };
    let changed = start(&[("slice", 2), ("fixed", 1)]);
    assert_eq!(changed, (Started::Changed, Some("slice = 2".into())));
    let loaded = (Started::Switched, Some("load a".to_string()));
    assert_eq!(start(&[("slice", 2), ("fixed", 2)]), loaded);
    assert_eq!(start(&[("fixed", 2)]), loaded, "back to its default");
    let mut wrong = policy("a", &[("fixed", 2)]);
    wrong.values.insert("slice".into(), Value::Text("x".into()));
    let e = p.agent.start(wrong).unwrap_err().to_string();
    assert!(
        e.starts_with("policy a (object a) on Linux") && e.ends_with("it is no number"),
        "{e}"
    );
    assert!(p.agent.running());
}

#[test]
fn what_stands_in_the_way_is_said_in_the_backends_words() {
    let mut p = place(Rules::default());
    p.paper.notes.borrow_mut().obstacle = Some("no pencil: buy one".into());
    let e = p.agent.start(policy("a", &[])).unwrap_err();
    assert!(
        matches!(&e, AgentError::Refused(why) if why == "no pencil: buy one"),
        "{e}"
    );
    p.paper.notes.borrow_mut().obstacle = None;
    p.agent.start(policy("a", &[])).unwrap();
    let empty = Policy {
        object: Vec::new(),
        ..policy("b", &[])
    };
    let e = p.agent.start(empty).unwrap_err().to_string();
    assert!(e.ends_with("nothing is written in it"), "{e}");
    assert_eq!(
        p.agent.status().policy.unwrap().name,
        "a",
        "the one that acts stays"
    );
}

/// A policy that passes the verifier and does not begin all the same: the one that had to end for it is back, or the
/// status says that it is not.
#[test]
fn what_does_not_begin_brings_the_old_one_back() {
    let mut p = place(Rules::default());
    p.paper.notes.borrow_mut().stuck = vec!["b"];
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    assert!(e.ends_with("the pen is dry"), "{e}");
    assert!(!p.agent.running());
    p.agent.start(policy("a", &[("slice", 3)])).unwrap();
    p.paper.said();
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    assert!(
        e.starts_with("policy b ") && e.ends_with("the pen is dry"),
        "{e}"
    );
    let said = [
        &["load b"][..],
        &TOLD,
        &["undone a", "start b", "load a"],
        &TOLD,
        &["start a"],
    ];
    assert_eq!(p.paper.said(), said.concat());
    let status = p.agent.status();
    assert_eq!(status.policy.unwrap().name, "a");
    assert_eq!(status.trouble, None);
    // Nor does the old one begin again.
    p.paper.notes.borrow_mut().stuck = vec!["a", "b"];
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    let status = p.agent.status();
    assert!(status.policy.is_none());
    assert_eq!(status.trouble.as_ref(), Some(&e));
    assert!(
        e.contains("policy a, which had to end for it, did not begin again: "),
        "{e}"
    );
    p.paper.notes.borrow_mut().stuck.clear();
    p.agent.start(policy("a", &[])).unwrap();
    assert_eq!(p.agent.status().trouble, None);
}

/// What keeps a policy from beginning may pass: it is loaded and told anew, and the old one ends once.
#[test]
fn what_passes_is_waited_for() {
    let mut p = place(Rules::default());
    p.agent.start(policy("a", &[])).unwrap();
    let anew = [&["load b"][..], &TOLD, &["start b"]].concat();
    let after_a = [&["load b"][..], &TOLD, &["undone a", "start b"]].concat();
    p.paper.notes.borrow_mut().short = 2;
    p.paper.said();
    assert_eq!(p.agent.start(policy("b", &[])).unwrap(), Started::Switched);
    assert_eq!(p.paper.said(), [&after_a[..], &anew, &anew].concat());
    let warnings = p.agent.status().policy.unwrap().warnings;
    assert_eq!(warnings, ["it did not begin at once: no ink at hand"]);
    // Not for ever: then it is refused, and the old one comes back.
    p.agent.start(policy("a", &[])).unwrap();
    p.paper.notes.borrow_mut().short = 3;
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    assert!(e.ends_with("no ink at hand"), "{e}");
    let status = p.agent.status();
    assert_eq!(status.policy.unwrap().name, "a");
    assert_eq!(status.trouble, None);
    assert_eq!(p.paper.notes.borrow().short, 0);
    // It is loaded anew, and cannot be told who is who any more: both reasons are said.
    p.paper.notes.borrow_mut().short = 1;
    p.paper.notes.borrow_mut().deaf_then = true;
    let e = p.agent.start(policy("b", &[])).unwrap_err().to_string();
    assert!(e.contains("no ink at hand\nand loaded anew: "), "{e}");
}

/// Rules that come with a policy that is refused, whyever, do not hold; nor do some of its parameters.
#[test]
fn a_refused_start_changes_nothing() {
    let only = |name: &str| Rules {
        only: vec![name.into()],
        vms: vec![Rule {
            name: name.into(),
            class: Some("latency".into()),
            io_vcpus: 0,
        }],
        ..Rules::default()
    };
    let mut p = place(only("w*"));
    let refused = |p: &mut Place, policy| {
        p.agent.start_with(policy, Some(only("j*"))).unwrap_err();
        let status = p.agent.status();
        assert_eq!(status.only, ["w*"]);
        let named = status.vms.iter().filter(|vm| vm.named);
        let named: Vec<&str> = named.map(|vm| vm.name.as_str()).collect();
        assert_eq!(named, ["web"]);
        let class = |name: &str| {
            status
                .vms
                .iter()
                .find(|vm| vm.name == name)
                .map(|vm| &*vm.class)
        };
        assert_eq!(
            (class("web"), class("job")),
            (Some("latency"), Some("none"))
        );
        status.policy
    };
    p.paper.notes.borrow_mut().obstacle = Some("no pencil".into());
    assert_eq!(refused(&mut p, policy("a", &[])), None);
    p.paper.notes.borrow_mut().obstacle = None;
    let first = policy("a", &[("slice", 1), ("fixed", 1)]);
    p.agent.start(first.clone()).unwrap();
    p.paper.said();
    p.paper.notes.borrow_mut().stuck = vec!["b"];
    assert_eq!(refused(&mut p, policy("b", &[])).unwrap().name, "a");
    p.paper.said();
    // A parameter that could be set at once, another for which it has to be loaded, which is refused.
    let empty = Policy {
        object: Vec::new(),
        ..policy("a", &[("slice", 2), ("fixed", 2)])
    };
    assert_eq!(refused(&mut p, empty).unwrap().name, "a");
    assert_eq!(p.paper.said(), Vec::<String>::new());
    let started = p.agent.start_with(first, Some(only("j*"))).unwrap();
    assert_eq!(started, Started::Changed);
    assert_eq!(p.agent.status().only, ["j*"]);
}

/// Ends of all kinds: what became of the policy, and why, is in the status; nothing of it is left.
#[test]
fn it_ends_for_every_reason_there_is() {
    let ended = |p: &mut Place, why: &str| {
        let events = p.agent.tick().unwrap();
        let Some(Event::Ended(said)) = events.last() else {
            panic!("{events:?}")
        };
        assert!(said.ends_with(why), "{said}");
        assert_eq!(p.agent.status().trouble.as_ref(), Some(said));
        assert_eq!(p.paper.said().last().unwrap(), "undone a");
        assert!(!p.agent.running());
        p.agent.start(policy("a", &[])).unwrap();
        assert_eq!(p.agent.status().trouble, None);
    };
    let end = |again| End {
        why: "out of ink".into(),
        again,
    };
    let mut p = place(Rules::default());
    p.agent.start(policy("a", &[])).unwrap();
    p.paper.notes.borrow_mut().end = Some(end(false));
    ended(&mut p, "ended policy a: out of ink");
    p.paper.notes.borrow_mut().danger = Some("paper burns".into());
    let calm = |p: &Place| p.paper.notes.borrow_mut().danger = None;
    ended(&mut p, "policy a was unloaded: paper burns");
    calm(&p);
    p.paper.notes.borrow_mut().deaf = true;
    unpack(p.folder.path(), &[(300, "new")]);
    let events = p.agent.tick().unwrap();
    assert!(
        matches!(events.last(), Some(Event::Ended(said)) if said.ends_with("the paper is full"))
    );
    p.paper.notes.borrow_mut().deaf = false;
    p.agent.start(policy("a", &[])).unwrap();
    p.paper.said();
    p.paper.notes.borrow_mut().end = Some(end(true));
    let events = p.agent.tick().unwrap();
    assert!(
        matches!(events.last(), Some(Event::Restarted(_))),
        "{events:?}"
    );
    let said = p.paper.said();
    assert_eq!(
        (said[0].as_str(), said.last().unwrap().as_str()),
        ("undone a", "start a")
    );
}

#[test]
fn who_starves_a_thread_is_unloaded() {
    let mut p = place(Rules::default());
    p.agent.start(policy("a", &[])).unwrap();
    p.paper.said();
    // It can run, and does not.
    let stat = p.folder.path().join("proc/100/task/101/stat");
    let text = std::fs::read_to_string(&stat).unwrap();
    std::fs::write(&stat, text.replacen(") S ", ") R ", 1)).unwrap();
    let mut looks = 0;
    let why = loop {
        p.root.sleep(Duration::from_millis(100));
        looks += 1;
        assert!(looks < 20 && p.agent.status().trouble.is_none());
        if let Some(Event::Ended(why)) = p.agent.tick().unwrap().pop() {
            break why;
        }
    };
    assert_eq!(looks, 6, "{why}");
    let stall = "policy a was unloaded: thread 101 of VM web could run for 0.50 s and got no CPU, 0.50 s were owed to \
     it";
    assert_eq!(why, stall);
    assert_eq!(p.paper.said(), ["end a", "undone a"]);
}

#[test]
fn only_the_named_vms_are_given_to_a_partial_one() {
    let rules = Rules {
        only: vec!["w*".into()],
        ..Rules::default()
    };
    let mut p = place(rules);
    let partial = Policy {
        partial: true,
        ..policy("a", &[])
    };
    p.agent.start(partial).unwrap();
    assert_eq!(p.paper.said().last().unwrap(), "act on web");
    p.agent.set_rules(Rules::default());
    p.agent.tick().unwrap();
    assert!(p.paper.said().contains(&"act on job web".to_string()));
}
