// SPDX-License-Identifier: GPL-2.0-only
//! A host in memory, which can die at any of its operations.
use crate::acting::{Acting, Outcome};
use crate::error::Error;
use crate::knob::{ALL, Host, Knob};
use crate::ledger::Ledger;
use crate::restore::{restore, restore_all};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

#[derive(Debug, Default)]
struct Memory {
    values: RefCell<BTreeMap<Knob, String>>,
    /// Operations left until whoever acts is killed.
    left: Cell<Option<usize>>,
    /// A thread that is born at every write, with the value that was written.
    fertile: Cell<bool>,
    refuses: RefCell<BTreeSet<Knob>>,
    /// What the kernel makes of any value of these but the one with which they began.
    takes: RefCell<BTreeMap<Knob, (String, String)>>,
    /// What was read and written, in order.
    done: RefCell<Vec<Knob>>,
    /// What was written, in order.
    written: RefCell<Vec<(Knob, String)>>,
}

type Shared = Rc<Memory>;

impl Memory {
    fn step(&self) {
        match self.left.get() {
            Some(0) => std::panic::resume_unwind(Box::new("killed")),
            Some(n) => self.left.set(Some(n - 1)),
            None => {}
        }
    }
}

impl Host for Shared {
    fn read(&self, knob: &Knob) -> Result<String, Error> {
        self.step();
        self.done.borrow_mut().push(knob.clone());
        let gone = || Error::Gone {
            what: knob.to_string(),
        };
        self.values.borrow().get(knob).cloned().ok_or_else(gone)
    }

    fn write(&self, knob: &Knob, value: &str) -> Result<(), Error> {
        self.step();
        if self.refuses.borrow().contains(knob) {
            return Err(Error::Refused {
                what: knob.to_string(),
                why: "no".into(),
            });
        }
        self.done.borrow_mut().push(knob.clone());
        let written = (knob.clone(), value.to_string());
        self.written.borrow_mut().push(written);
        let takes = self.takes.borrow();
        let value = match takes.get(knob) {
            Some((first, other)) if value != first => other,
            _ => value,
        };
        let mut values = self.values.borrow_mut();
        match values.get_mut(knob) {
            Some(there) => *there = value.into(),
            None => {
                return Err(Error::Gone {
                    what: knob.to_string(),
                });
            }
        }
        if let (Knob::Affinity { pid, .. }, true) = (knob, self.fertile.get()) {
            let tid = 1000 + values.len() as i32;
            values.insert(
                Knob::Affinity {
                    pid: *pid,
                    tid,
                    start: 2,
                },
                value.into(),
            );
        }
        drop(values);
        // Killed after the kernel has done it, too.
        self.step();
        Ok(())
    }

    fn kin(&self, knob: &Knob) -> Vec<Knob> {
        self.fertile.set(false);
        let process = |k: &Knob| match k {
            Knob::Affinity { pid, .. } => Some(*pid),
            _ => None,
        };
        let of = |k: &Knob| process(k).is_some() && process(k) == process(knob);
        self.values
            .borrow()
            .keys()
            .filter(|k| of(k))
            .cloned()
            .collect()
    }
}

fn thread(tid: i32) -> Knob {
    Knob::Affinity {
        pid: 1,
        tid,
        start: 1,
    }
}

fn group(file: &str) -> Knob {
    Knob::Group {
        group: "vm".into(),
        file: file.into(),
    }
}

fn host() -> Shared {
    let memory = Memory::default();
    memory.values.borrow_mut().extend([
        (thread(1), ALL.to_string()),
        (thread(2), ALL.to_string()),
        (group("cpu.weight"), "100".into()),
        (group("cpu.max"), "max 100000".into()),
    ]);
    Rc::new(memory)
}

fn wanted(cpus: &str, weight: &str) -> Vec<(Knob, String)> {
    vec![
        (thread(1), cpus.into()),
        (thread(2), cpus.into()),
        (group("cpu.weight"), weight.into()),
        (group("cpu.max"), "50000 100000".into()),
    ]
}

fn ledger(folder: &std::path::Path) -> Ledger {
    Ledger::open(&folder.join("state"), "boot").unwrap()
}

#[test]
fn killed_at_any_operation_everything_is_put_back() {
    let mut cuts = 0;
    // Threads are born meanwhile; the kernel takes something else than what is written.
    for (fertile, otherwise) in [(false, false), (true, false), (false, true)] {
        for cut in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let host = host();
            let before = host.values.borrow().clone();
            host.fertile.set(fertile);
            if otherwise {
                let takes = [
                    (group("cpu.weight"), ("100".into(), "107".into())),
                    (thread(2), (ALL.into(), "1".into())),
                ];
                host.takes.borrow_mut().extend(takes);
            }
            host.left.set(Some(cut));
            let through = catch_unwind(AssertUnwindSafe(|| {
                let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
                acting.set(&wanted("0-1", "300")).unwrap();
                acting.set(&wanted("3", "50")).unwrap();
                acting.undo(&[group("cpu.weight")].into()).unwrap();
            }));
            host.left.set(None);
            host.fertile.set(false);
            restore(&host, &mut ledger(folder.path())).unwrap();
            let after = host.values.borrow().clone();
            let old: BTreeMap<_, _> = after
                .iter()
                .filter(|(k, _)| before.contains_key(k))
                .collect();
            assert_eq!(old, before.iter().collect(), "killed at operation {cut}");
            assert!(
                after.values().all(|v| before.values().any(|b| b == v)),
                "{cut}: {after:?}"
            );
            assert!(!folder.path().join("state/changes.json").exists());
            cuts += 1;
            if through.is_ok() {
                break;
            }
        }
    }
    assert!(cuts > 50, "{cuts}");
}

#[test]
fn what_somebody_else_sets_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    let report = acting.set(&wanted("0-1", "300")).unwrap();
    assert!(
        report.outcomes.iter().all(|(_, o)| *o == Outcome::Set),
        "{report:?}"
    );
    host.values
        .borrow_mut()
        .insert(group("cpu.weight"), "777".into());
    let report = acting.set(&wanted("0", "50")).unwrap();
    assert_eq!(report.outcomes[2].1, Outcome::Foreign("777".into()));
    assert_eq!(report.complaints().len(), 1);
    assert!(
        report.complaints()[0].contains("cpu.weight of cgroup vm was set to 777 by somebody else")
    );
    host.values.borrow_mut().insert(thread(2), "5".into());
    let report = acting.yielded();
    assert_eq!(report.outcomes, [(thread(2), Outcome::Foreign("5".into()))]);
    acting.end().unwrap();
    let now = host.values.borrow().clone();
    assert_eq!((&*now[&thread(1)], &*now[&thread(2)]), (ALL, "5"));
    assert_eq!(
        (&*now[&group("cpu.weight")], &*now[&group("cpu.max")]),
        ("777", "max 100000")
    );
}

#[test]
fn what_the_kernel_refuses_is_said_and_not_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    host.refuses.borrow_mut().insert(group("cpu.max"));
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    let report = acting.set(&wanted("0-1", "300")).unwrap();
    assert_eq!(
        report.outcomes[3].1,
        Outcome::Refused("cpu.max of cgroup vm cannot be set: no".into())
    );
    assert!(
        acting.was(&group("cpu.max")).is_none() && acting.was(&group("cpu.weight")) == Some("100")
    );
    // A VM that ends meanwhile is no trouble.
    host.values
        .borrow_mut()
        .retain(|k, _| matches!(k, Knob::Group { .. }));
    let report = acting.set(&wanted("2", "301")).unwrap();
    assert_eq!(
        (&report.outcomes[0].1, &report.outcomes[2].1),
        (&Outcome::Gone, &Outcome::Set)
    );
    acting.end().unwrap();
    assert_eq!(host.values.borrow()[&group("cpu.weight")], "100");
}

#[test]
fn a_value_that_is_lent_goes_back_and_forth_and_ends_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let knob = group("cgroup.freeze");
    host.values.borrow_mut().insert(knob.clone(), "0".into());
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    assert_eq!(acting.lend(&knob, &["0", "1"]).unwrap(), Outcome::Set);
    assert!(folder.path().join("state/changes.json").exists());
    for value in ["1", "0", "1"] {
        host.values.borrow_mut().insert(knob.clone(), value.into());
        assert!(acting.yielded().outcomes.is_empty(), "{value}");
        acting.set(&wanted("0-1", "300")).unwrap();
        assert_eq!(acting.lend(&knob, &["0", "1"]).unwrap(), Outcome::Already);
    }
    acting.end().unwrap();
    assert_eq!(host.values.borrow()[&knob], "0");
    // Whom somebody else has frozen already is his.
    host.values.borrow_mut().insert(knob.clone(), "1".into());
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    let lent = acting.lend(&knob, &["0", "1"]).unwrap();
    assert_eq!(lent, Outcome::Foreign("1".into()));
    acting.end().unwrap();
    assert_eq!(host.values.borrow()[&knob], "1");
}

/// The kernel moves a thread off a CPU that goes, and back when it comes, to what was asked for last.
#[test]
fn a_thread_that_the_kernel_has_moved_is_asked_for_anew() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let is = |value: &str| drop(host.values.borrow_mut().insert(thread(1), value.into()));
    let writes = |host: &Shared| host.written.borrow().clone();
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    acting.set(&[(thread(1), "1".into())]).unwrap();
    is(ALL);
    acting.acknowledge(&[thread(1)].into()).unwrap();
    // Both are ours.
    assert!(acting.yielded().outcomes.is_empty());
    is("1");
    assert!(acting.yielded().outcomes.is_empty());
    // Once it is asked for, that is what counts.
    is("0");
    acting.acknowledge(&[thread(1)].into()).unwrap();
    host.written.borrow_mut().clear();
    acting.set(&[(thread(1), "0".into())]).unwrap();
    assert_eq!(writes(&host), [(thread(1), "0".to_string())]);
    let report = acting.set(&[(thread(1), "0".into())]).unwrap();
    assert_eq!(report.outcomes[0].1, Outcome::Already);
    // It looks as it did before all: asked for nevertheless.
    is(ALL);
    host.written.borrow_mut().clear();
    acting.end().unwrap();
    assert_eq!(writes(&host), [(thread(1), ALL.to_string())]);
}

#[test]
fn threads_born_meanwhile_go_where_their_process_was() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    acting.set(&wanted("0-1", "300")).unwrap();
    host.values.borrow_mut().insert(thread(3), "0-1".into());
    acting.adopt(&[(thread(3), thread(1))]).unwrap();
    acting.set(&[(thread(3), "7".into())]).unwrap();
    assert_eq!(host.values.borrow()[&thread(3)], "7");
    assert_eq!(acting.was(&thread(3)), Some(ALL));
    acting.end().unwrap();
    assert_eq!(host.values.borrow()[&thread(3)], ALL);
}

#[test]
fn what_was_born_with_a_value_goes_back_though_its_origin_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    acting.set(&[(thread(1), "0-1".into())]).unwrap();
    let child = thread(3);
    host.values.borrow_mut().insert(child.clone(), "0-1".into());
    host.values.borrow_mut().remove(&thread(1));
    acting.inherit(&[(child.clone(), ALL.into())]).unwrap();
    assert!(std::fs::read_to_string(folder.path().join("state/changes.json")).is_ok());
    // What is known already stays what it is, and who has ended is passed over.
    acting
        .inherit(&[(child.clone(), "5".into()), (thread(9), ALL.into())])
        .unwrap();
    assert_eq!(acting.was(&child), Some(ALL));
    assert_eq!(acting.was(&thread(9)), None);
    assert!(acting.holds(&child).unwrap() && !acting.holds(&thread(2)).unwrap());
    assert!(matches!(acting.holds(&thread(9)), Err(Error::Gone { .. })));
    acting.end().unwrap();
    assert_eq!(host.values.borrow()[&child], ALL);
}

#[test]
fn a_ledger_that_cannot_be_written_lets_nothing_be_set() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let before = host.values.borrow().clone();
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    // Its next version cannot be made.
    std::fs::create_dir(folder.path().join("state/changes.json.new")).unwrap();
    let error = acting.set(&wanted("0", "1")).unwrap_err();
    assert!(error.to_string().contains("changes.json"), "{error}");
    assert_eq!(*host.values.borrow(), before);
    std::fs::remove_dir(folder.path().join("state/changes.json.new")).unwrap();
    acting.set(&wanted("0", "2")).unwrap();
    acting.end().unwrap();
    assert_eq!(*host.values.borrow(), before);
}

#[test]
fn ledgers_that_are_not_ours_are_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let open = || Ledger::open(&state, "boot");
    let held = open().unwrap();
    assert!(matches!(open(), Err(Error::Held { .. })));
    drop(held);
    let why = |text: &str| {
        std::fs::write(state.join("changes.json"), text).unwrap();
        open().unwrap_err().to_string()
    };
    for text in [
        "",
        "{",
        "[]",
        "{\"format\":1}",
        "\u{0}",
        "{\"format\":1,\"boot\":\"boot\",\"entries\":[{}]}",
    ] {
        assert!(why(text).contains("changes.json"), "{text}");
    }
    let newer = why("{\"format\":2,\"boot\":\"boot\",\"entries\":[]}");
    assert!(newer.contains("format 2"), "{newer}");
    // Of another boot: nothing of it is so any more.
    std::fs::write(
        state.join("changes.json"),
        "{\"format\":1,\"boot\":\"old\",\"entries\":[]}",
    )
    .unwrap();
    assert!(open().unwrap().entries().is_empty());
    // Links are not followed.
    std::fs::remove_file(state.join("changes.json")).unwrap();
    symlink("/etc/passwd", state.join("changes.json")).unwrap();
    assert!(open().is_err());
    std::fs::remove_file(state.join("changes.json")).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("others may write there"), "{error}");
    std::fs::remove_dir_all(&state).unwrap();
    symlink("/tmp", &state).unwrap();
    assert!(open().is_err());
}

/// What was done is written down when it is done: long after, a killed agent's values are told from others'.
#[test]
fn what_others_set_after_an_agent_was_killed_is_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let odd = ("100".to_string(), "107".to_string());
    host.takes.borrow_mut().insert(group("cpu.weight"), odd);
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    let report = acting.set(&wanted("0-1", "300")).unwrap();
    assert_eq!(report.outcomes[2].1, Outcome::Instead("107".into()));
    drop(acting);
    host.values.borrow_mut().insert(thread(2), "5".into());
    let report = restore(&host, &mut ledger(folder.path())).unwrap();
    let foreign = (thread(2), Outcome::Foreign("5".into()));
    assert!(report.outcomes.contains(&foreign), "{report:?}");
    let now = host.values.borrow();
    assert_eq!(
        (&*now[&thread(2)], &*now[&group("cpu.weight")]),
        ("5", "100")
    );
}

/// Whoever undoes may have to ask somebody who takes his time, or who is frozen himself.
#[test]
fn who_is_frozen_runs_again_before_anything_else_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let freeze = |n: usize| Knob::Group {
        group: format!("vm{n}"),
        file: "cgroup.freeze".into(),
    };
    for n in 0..2 {
        host.values.borrow_mut().insert(freeze(n), "0".into());
    }
    // Two agents' ledgers; each has set other things first.
    let mut ledgers: Vec<Ledger> = Vec::new();
    for n in 0..2 {
        let state = folder.path().join(n.to_string());
        let ledger = Ledger::open(&state, "boot").unwrap();
        let (mut acting, _) = Acting::begin(host.clone(), ledger).unwrap();
        acting.set(&[wanted("0-1", "300").remove(n)]).unwrap();
        acting.lend(&freeze(n), &["0", "1"]).unwrap();
        host.values.borrow_mut().insert(freeze(n), "1".into());
        // As one that was killed: it undoes nothing.
        drop(acting);
        ledgers.push(Ledger::open(&state, "boot").unwrap());
    }
    host.done.borrow_mut().clear();
    restore_all(&host, &mut ledgers).unwrap();
    let done = host.done.borrow();
    let first = |of: &dyn Fn(&Knob) -> bool| done.iter().position(of).unwrap();
    let other = first(&|k| !matches!(k, Knob::Group { file, .. } if file == "cgroup.freeze"));
    let thawed: BTreeSet<&Knob> = done[..other].iter().collect();
    assert_eq!(thawed.len(), 2, "{done:?}");
    for n in 0..2 {
        // Looked at, and written.
        let times = done[..other].iter().filter(|k| **k == freeze(n)).count();
        assert!(times >= 2, "{done:?}");
        assert_eq!(host.values.borrow()[&freeze(n)], "0");
    }
}

#[test]
fn what_is_put_back_otherwise_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    acting.set(&wanted("0-1", "300")).unwrap();
    // A CPU is offline: what was there cannot be just now.
    let offline = ("-".to_string(), "2".to_string());
    host.takes.borrow_mut().insert(thread(1), offline);
    let report = acting.end().unwrap();
    assert_eq!(
        report.complaints(),
        ["the CPU affinity of thread 1 became 2"]
    );
    host.takes.borrow_mut().clear();
    let report = restore(&host, &mut ledger(folder.path())).unwrap();
    assert_eq!(report.outcomes, [(thread(1), Outcome::Set)]);
    assert_eq!(host.values.borrow()[&thread(1)], ALL);
}

#[test]
fn a_ledger_has_a_size_that_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    acting.set(&wanted("0-1", "300")).unwrap();
    let (file, before) = (
        folder.path().join("state/changes.json"),
        host.values.borrow().clone(),
    );
    let written = std::fs::read(&file).unwrap();
    // More than it may have: nothing is set, and what was there stays.
    let endless = "x".repeat(33 << 20);
    let error = acting.set(&[(thread(1), endless)]).unwrap_err().to_string();
    assert!(
        error.contains("more changes than could be read again"),
        "{error}"
    );
    assert_eq!(
        (std::fs::read(&file).unwrap(), &*host.values.borrow()),
        (written, &before)
    );
    acting.end().unwrap();
    // Nor is one read that somebody has made larger.
    std::fs::write(&file, "{}").unwrap();
    let large = std::fs::File::options().write(true).open(&file).unwrap();
    large.set_len((32 << 20) + 1).unwrap();
    let error = Ledger::open(&folder.path().join("state"), "boot").unwrap_err();
    assert!(
        error.to_string().contains("it is not what Berth wrote"),
        "{error}"
    );
}

/// Numbers and names of another boot are others' now.
#[test]
fn changes_of_another_boot_are_told_and_not_undone() {
    let folder = tempfile::tempdir().unwrap();
    let host = host();
    let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
    acting.set(&wanted("0-1", "300")).unwrap();
    drop(acting);
    let there = host.values.borrow().clone();
    let mut next = Ledger::open(&folder.path().join("state"), "the next boot").unwrap();
    let report = restore(&host, &mut next).unwrap();
    assert_eq!((report.of_another_boot, report.outcomes.len()), (4, 0));
    assert_eq!(*host.values.borrow(), there);
    drop(next);
    assert!(!folder.path().join("state/changes.json").exists());
    let again = Ledger::open(&folder.path().join("state"), "the next boot").unwrap();
    assert_eq!(again.of_another_boot(), 0);
}

proptest! {
    /// Whatever is set, in whatever order, and whoever else sets something: in the end what was not set by others is as
    /// it was, and what was is as they left it.
    #[test]
    fn in_the_end_all_is_as_it_was_or_as_others_left_it(
        steps in proptest::collection::vec((0usize..4, 0u32..6, any::<bool>()), 0..30)
    ) {
        let folder = tempfile::tempdir().unwrap();
        let host = host();
        let mut expected = host.values.borrow().clone();
        let knobs = [thread(1), thread(2), group("cpu.weight"), group("cpu.max")];
        let (mut acting, _) = Acting::begin(host.clone(), ledger(folder.path())).unwrap();
        let mut foreign = BTreeSet::new();
        for (which, value, by_us) in steps {
            let knob = &knobs[which];
            if by_us {
                // Who yields once goes on yielding: what decides drops it.
                if !foreign.contains(knob) {
                    acting.set(&[(knob.clone(), value.to_string())]).unwrap();
                }
            } else {
                // Values of others are others.
                let value = format!("{}", 100 + value);
                host.values.borrow_mut().insert(knob.clone(), value.clone());
                expected.insert(knob.clone(), value);
                foreign.insert(knob.clone());
            }
        }
        acting.end().unwrap();
        prop_assert_eq!(&*host.values.borrow(), &expected);
    }
}
