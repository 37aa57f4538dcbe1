// SPDX-License-Identifier: GPL-2.0-only
//! This machine's own kernel: threads are really bound, files of a cgroup really written, and whoever does it is killed
//! at each of its system calls.
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::live::{Live, start_of};
use berth_actuator::{ALL, Acting, Error, Host, Knob, restore};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

mod killed;
use killed::{alone, killed_after};

/// A process that does nothing.
struct Idle(Child);

impl Idle {
    fn start() -> Idle {
        Idle(Command::new("sleep").arg("100000").spawn().unwrap())
    }

    fn affinity(&self) -> Knob {
        let pid = self.0.id() as i32;
        let start = start_of(Path::new("/proc"), pid, pid).unwrap();
        Knob::Affinity {
            pid,
            tid: pid,
            start,
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cgroup for CPU sets, of version 1 or 2; none where they are not this test's to make.
struct Group {
    path: PathBuf,
    name: String,
}

impl Group {
    fn make() -> Option<Group> {
        let tag = format!("berth-test-{}", std::process::id());
        for base in ["cpuset", "."] {
            let name = format!("{base}/{tag}");
            let path = Path::new("/sys/fs/cgroup").join(&name);
            if std::fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Group {
                path,
                name: name.trim_start_matches("./").into(),
            };
            let first = online().split(['-', ',']).next().unwrap().to_string();
            if std::fs::write(group.path.join("cpuset.cpus"), first).is_ok() {
                return Some(group);
            }
        }
        eprintln!("no cgroup for CPU sets can be made here: only plain files are written");
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

fn online() -> String {
    std::fs::read_to_string("/sys/devices/system/cpu/online")
        .unwrap()
        .trim()
        .into()
}

/// What is set: in two steps, as a decision and the next one are.
fn act(
    live: Live,
    state: &Path,
    threads: &[Knob],
    files: &[(Knob, &str, &str)],
) -> Result<(), Error> {
    let (mut acting, _) = Acting::begin(live, Ledger::open(state, &this_boot()?)?)?;
    let first: Vec<_> = threads
        .iter()
        .map(|t| (t.clone(), "0".to_string()))
        .collect();
    acting.set(&first)?;
    let all = threads.iter().map(|t| (t.clone(), ALL.to_string()));
    let files = files
        .iter()
        .map(|(knob, _, to)| (knob.clone(), to.to_string()));
    acting.set(&all.chain(files).collect::<Vec<_>>())?;
    Ok(())
}

#[test]
fn killed_at_every_system_call_the_host_is_as_it_was() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let idle = [Idle::start(), Idle::start()];
    let threads: Vec<Knob> = idle.iter().map(Idle::affinity).collect();
    let plain = folder.path().join("groups/vm");
    std::fs::create_dir_all(&plain).unwrap();
    std::fs::write(plain.join("cpu.weight"), "100\n").unwrap();
    let group = Group::make();
    let root = match &group {
        Some(_) => PathBuf::from("/sys/fs/cgroup"),
        None => folder.path().join("groups"),
    };
    let live = || Live::at(&root, group.is_none());
    let file = |group: &str, file: &str| Knob::Group {
        group: group.into(),
        file: file.into(),
    };
    let online = online();
    let (knob, to) = match &group {
        Some(g) => (file(&g.name, "cpuset.cpus"), online.as_str()),
        None => (file("vm", "cpu.weight"), "250"),
    };
    let was = live().read(&knob).unwrap();
    // All CPUs, unless this test may not run everywhere itself.
    let everywhere = live().read(&threads[0]).unwrap();
    let files = [(knob.clone(), was.as_str(), to)];
    let state = folder.path().join("state");
    let mut calls = 0;
    loop {
        let through = killed_after(calls, || {
            if act(live(), &state, &threads, &files).is_err() {
                // SAFETY: as at the end of the child.
                unsafe { libc::_exit(1) }
            }
        });
        // No set was ever empty, and whoever was killed left what he had done and its undoing.
        let mut ledger = Ledger::open(&state, &this_boot().unwrap()).unwrap();
        restore(&live(), &mut ledger).unwrap();
        assert!(ledger.entries().is_empty());
        for thread in &threads {
            assert_eq!(
                live().read(thread).unwrap(),
                everywhere,
                "killed at {calls}"
            );
        }
        assert_eq!(live().read(&knob).unwrap(), was, "killed at {calls}");
        if through {
            break;
        }
        calls += 1;
    }
    assert!(calls > 100, "{calls}");
}

/// A cgroup that freezes a process, of version 1 or 2.
struct Freezing {
    path: PathBuf,
    knob: Knob,
    words: [&'static str; 2],
    inside: Idle,
}

impl Freezing {
    fn make() -> Option<Freezing> {
        let tag = format!("berth-test-freeze-{}", std::process::id());
        let places = [
            ("freezer", "freezer.state", ["THAWED", "FROZEN"]),
            ("unified", "cgroup.freeze", ["0", "1"]),
            (".", "cgroup.freeze", ["0", "1"]),
        ];
        for (base, file, words) in places {
            let name = format!("{base}/{tag}");
            let path = Path::new("/sys/fs/cgroup").join(&name);
            if std::fs::create_dir(&path).is_err() {
                continue;
            }
            let inside = Idle::start();
            let put = std::fs::write(path.join("cgroup.procs"), inside.0.id().to_string());
            if put.is_ok() && path.join(file).exists() {
                let group = name.trim_start_matches("./").to_string();
                let file = file.into();
                let knob = Knob::Group { group, file };
                return Some(Freezing {
                    path,
                    knob,
                    words,
                    inside,
                });
            }
            drop(inside);
            let _ = std::fs::remove_dir(&path);
        }
        eprintln!("not tried: no cgroup that freezes can be made here");
        None
    }
}

impl Drop for Freezing {
    fn drop(&mut self) {
        let _ = Live::new().write(&self.knob, self.words[0]);
        let _ = self.inside.0.kill();
        let _ = self.inside.0.wait();
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[test]
fn killed_at_every_system_call_nobody_stays_frozen() {
    let _alone = alone();
    let Some(freezing) = Freezing::make() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let [runs, frozen] = freezing.words;
    let (mut calls, mut times) = (0, 0);
    loop {
        let through = killed_after(calls, || {
            let done = this_boot().and_then(|boot| {
                let ledger = Ledger::open(&state, &boot)?;
                let (mut acting, _) = Acting::begin(Live::new(), ledger)?;
                acting.lend(&freezing.knob, &freezing.words)?;
                let other = Live::new();
                for word in [frozen, runs, frozen] {
                    other.write(&freezing.knob, word)?;
                }
                Ok(())
            });
            if done.is_err() {
                // SAFETY: as at the end of the child.
                unsafe { libc::_exit(1) }
            }
        });
        times += usize::from(Live::new().read(&freezing.knob).unwrap() == frozen);
        let mut ledger = Ledger::open(&state, &this_boot().unwrap()).unwrap();
        restore(&Live::new(), &mut ledger).unwrap();
        assert_eq!(
            Live::new().read(&freezing.knob).unwrap(),
            runs,
            "killed at {calls}"
        );
        assert!(ledger.entries().is_empty());
        if through {
            break;
        }
        calls += 1;
    }
    assert!(
        calls > 30 && times > 2,
        "{calls} calls, frozen after {times}"
    );
}

#[test]
fn another_thread_of_the_same_number_is_not_touched() {
    let idle = Idle::start();
    let Knob::Affinity { pid, tid, start } = idle.affinity() else {
        unreachable!()
    };
    let other = Knob::Affinity {
        pid,
        tid,
        start: start + 1,
    };
    let live = Live::new();
    let before = live.read(&idle.affinity()).unwrap();
    assert!(matches!(live.read(&other), Err(Error::Gone { .. })));
    assert!(matches!(live.write(&other, "0"), Err(Error::Gone { .. })));
    assert_eq!(live.read(&idle.affinity()).unwrap(), before);
    // Lists that are none, and CPUs that are not there.
    for bad in ["", "x", "1-0", "4000", "999999"] {
        let error = live.write(&idle.affinity(), bad).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{bad}: {error}");
    }
    assert_eq!(live.kin(&idle.affinity()), [idle.affinity()]);
}

#[test]
fn paths_do_not_lead_out_of_the_cgroups() {
    let folder = tempfile::tempdir().unwrap();
    let groups = folder.path().join("groups");
    std::fs::create_dir_all(groups.join("vm")).unwrap();
    std::fs::write(folder.path().join("cpu.weight"), "secret").unwrap();
    std::fs::write(groups.join("vm/cpu.weight"), "100").unwrap();
    std::fs::write(groups.join("vm/cgroup.procs"), "").unwrap();
    std::os::unix::fs::symlink("..", groups.join("link")).unwrap();
    std::os::unix::fs::symlink("../../cpu.weight", groups.join("vm/cpu.max")).unwrap();
    let live = Live::at(&groups, true);
    let knob = |group: &str, file: &str| Knob::Group {
        group: group.into(),
        file: file.into(),
    };
    assert_eq!(live.read(&knob("/vm/", "cpu.weight")).unwrap(), "100");
    let bad = [
        ("..", "cpu.weight"),
        ("vm/../..", "cpu.weight"),
        ("link", "cpu.weight"),
        ("vm", "cpu.max"),
        ("vm", "cgroup.procs"),
        ("vm", "../vm/cpu.weight"),
        ("vm", ""),
    ];
    for (group, file) in bad {
        let (read, write) = (
            live.read(&knob(group, file)),
            live.write(&knob(group, file), "1"),
        );
        assert!(read.is_err() && write.is_err(), "{group} {file}");
    }
    assert_eq!(
        std::fs::read_to_string(folder.path().join("cpu.weight")).unwrap(),
        "secret"
    );
    // A file that is no cgroup's is none, wherever it is.
    let strict = Live::at(&groups, false);
    let error = strict.read(&knob("vm", "cpu.weight")).unwrap_err();
    assert!(error.to_string().contains("no file of a cgroup"), "{error}");
    let nasty = knob("a\n\u{1b}[31mb", "cpu.weight").to_string();
    assert!(!nasty.contains(['\n', '\u{1b}']), "{nasty}");
}
