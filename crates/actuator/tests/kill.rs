// SPDX-License-Identifier: GPL-2.0-only
//! This machine's own kernel: threads are really bound, files of a cgroup really written, and whoever does it is killed
//! at each of its system calls.
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::live::{Live, start_of};
use berth_actuator::{ALL, Acting, Error, HERE, Host, Knob, NOWHERE, restore};
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

/// A folder that costs no disk: what is killed here is a process, not the machine.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Values that are set together.
type Step = Vec<(Knob, String)>;

/// All steps, and the way back.
fn act(live: Live, state: &Path, steps: &[Step]) -> Result<(), Error> {
    let (mut acting, _) = Acting::begin(live, Ledger::open(state, &this_boot()?)?)?;
    for step in steps {
        acting.set(step)?;
    }
    acting.end()?;
    Ok(())
}

/// An interrupt and a queue of a device, in plain files.
fn devices(folder: &Path) -> Vec<(Knob, PathBuf)> {
    let file = |path: &str, text: &str| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    file("sys/kernel/irq/41/actions", "eth0-rx-0\n");
    file("sys/class/net/eth0/ifindex", "2\n");
    let irq = Knob::Irq {
        irq: 41,
        name: "eth0-rx-0".into(),
    };
    let queue = Knob::Queue {
        device: "eth0".into(),
        index: 2,
        queue: "rx-0".into(),
    };
    vec![
        (irq, file("proc/irq/41/smp_affinity_list", "0-1\n")),
        (
            queue,
            file("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000\n"),
        ),
    ]
}

/// A group for CPU sets of version 1 that is made for a process, step by step; none where there are none.
fn entering(pid: &Knob) -> Option<Vec<Step>> {
    let Knob::Affinity { pid, start, .. } = pid else {
        return None;
    };
    let above = Path::new("/sys/fs/cgroup/cpuset");
    let mems = std::fs::read_to_string(above.join("cpuset.mems")).ok()?;
    let (path, group) = (
        format!("/berth-{pid}-{start}"),
        format!("cpuset/berth-{pid}-{start}"),
    );
    let file = |file: &str| Knob::Group {
        group: group.clone(),
        file: file.into(),
    };
    let member = Knob::Member {
        pid: *pid,
        start: *start,
        hierarchy: "cpuset".into(),
    };
    // Nobody may, or the process is elsewhere than this test believes.
    if std::fs::create_dir(above.join(&path[1..])).is_err()
        || Live::new().read(&member).ok()? != "/"
    {
        return None;
    }
    std::fs::remove_dir(above.join(&path[1..])).unwrap();
    Some(vec![
        vec![(
            Knob::Made {
                group: group.clone(),
            },
            HERE.into(),
        )],
        vec![
            (file("cpuset.mems"), mems.trim().into()),
            (file("cpuset.cpus"), "0".into()),
        ],
        vec![(member, path)],
    ])
}

#[test]
fn killed_at_every_system_call_the_host_is_as_it_was() {
    let _alone = alone();
    let folder = in_memory();
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
    let tree = folder.path().join("devices");
    let devices = devices(&tree);
    let contents = || -> Vec<String> {
        let read = |(_, path): &(Knob, PathBuf)| std::fs::read_to_string(path).unwrap();
        devices.iter().map(read).collect()
    };
    let before = contents();
    let to_cpu =
        |knobs: &[Knob]| -> Step { knobs.iter().map(|k| (k.clone(), "0".into())).collect() };
    let mut second: Step = threads
        .iter()
        .map(|t| (t.clone(), ALL.to_string()))
        .collect();
    second.push((knob.clone(), to.to_string()));
    let of_devices: Vec<Knob> = devices.iter().map(|(knob, _)| knob.clone()).collect();
    // Of the same length as what is there: plain files are not replaced as the kernel does it.
    let third = of_devices.into_iter().map(|k| (k, "1-1".into())).collect();
    let mut steps = vec![to_cpu(&threads), second, third];
    let entering = match group.is_some() {
        true => entering(&threads[1]),
        false => None,
    };
    let inside = entering.is_some();
    steps.extend(entering.into_iter().flatten());
    let state = folder.path().join("state");
    let mut calls = 0;
    loop {
        let through = killed_after(calls, || {
            if act(live().with_devices_at(&tree), &state, &steps).is_err() {
                // SAFETY: as at the end of the child.
                unsafe { libc::_exit(1) }
            }
        });
        // No set was ever empty, and whoever was killed left what he had done and its undoing.
        let mut ledger = Ledger::open(&state, &this_boot().unwrap()).unwrap();
        restore(&live().with_devices_at(&tree), &mut ledger).unwrap();
        assert!(
            ledger.entries().is_empty(),
            "killed at {calls}: {:?}",
            ledger.entries()
        );
        for thread in &threads {
            assert_eq!(
                live().read(thread).unwrap(),
                everywhere,
                "killed at {calls}"
            );
        }
        assert_eq!(live().read(&knob).unwrap(), was, "killed at {calls}");
        assert_eq!(contents(), before, "killed at {calls}");
        for (knob, _) in steps.iter().flatten() {
            let there = match knob {
                Knob::Made { .. } => live().read(knob).unwrap() == NOWHERE,
                Knob::Member { .. } => live().read(knob).unwrap() == "/",
                _ => true,
            };
            assert!(there, "{knob}, killed at {calls}");
        }
        if through {
            break;
        }
        calls += 1;
    }
    assert!(calls > if inside { 300 } else { 150 }, "{calls}");
}

/// A VMM starts a helper while its own group is pinned: it was born in the group that was made, and goes where the VM
/// came from when that group goes.
#[test]
fn a_group_that_was_made_goes_with_whoever_was_born_in_it() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let _alone = alone();
    let script = "read x; sleep 100000 & echo $!; wait";
    let mut shell = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut tell, heard) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let idle = Idle(shell);
    let Some(steps) = entering(&idle.affinity()) else {
        return eprintln!("not tried: no CPU set of version 1 can be made here");
    };
    let folder = in_memory();
    let ledger = Ledger::open(&folder.path().join("state"), &this_boot().unwrap()).unwrap();
    let (mut acting, _) = Acting::begin(Live::new(), ledger).unwrap();
    for step in &steps {
        assert!(acting.set(step).unwrap().complaints().is_empty());
    }
    tell.write_all(b"\n").unwrap();
    let mut line = String::new();
    BufReader::new(heard).read_line(&mut line).unwrap();
    let born: i32 = line.trim().parse().unwrap();
    let (made, path) = (&steps[0][0].0, &steps[2][0].1);
    let group = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let line = text.lines().find(|l| l.split(':').nth(1) == Some("cpuset"));
        line.unwrap().splitn(3, ':').nth(2).unwrap().to_string()
    };
    assert_eq!(&group(born), path);
    let report = acting.end().unwrap();
    let there = (Live::new().read(made).unwrap(), group(born));
    // SAFETY: a signal to a child of the shell, which is still there.
    unsafe { libc::kill(born, libc::SIGKILL) };
    assert_eq!(report.complaints(), [""; 0]);
    assert_eq!(there, (NOWHERE.into(), "/".into()));
    assert!(!folder.path().join("state/changes.json").exists());
}

/// In version 1 a set that its parent's does not hold is answered as a lack of permission, which it is not: others can
/// be set all the same.
#[test]
fn a_set_outside_of_its_parents_is_refused_and_not_denied() {
    let above = Path::new("/sys/fs/cgroup/cpuset");
    let name = format!("berth-test-outside-{}", std::process::id());
    let (parent, child) = (above.join(&name), above.join(&name).join("vm"));
    let mems = std::fs::read_to_string(above.join("cpuset.mems")).unwrap_or_default();
    let made = std::fs::create_dir(&parent).is_ok()
        && std::fs::write(parent.join("cpuset.mems"), mems.trim()).is_ok()
        && std::fs::write(parent.join("cpuset.cpus"), "0").is_ok()
        && std::fs::create_dir(&child).is_ok();
    let knob = Knob::Group {
        group: format!("cpuset/{name}/vm"),
        file: "cpuset.cpus".into(),
    };
    let outside = Live::new().write(&knob, &online());
    let inside = Live::new().write(&knob, "0");
    let _ = (std::fs::remove_dir(&child), std::fs::remove_dir(&parent));
    if !made || online() == "0" {
        return eprintln!("not tried: no sets of version 1 can be made here, or there is one CPU");
    }
    assert!(matches!(outside, Err(Error::Refused { .. })), "{outside:?}");
    assert!(inside.is_ok(), "{inside:?}");
}

#[test]
fn interrupts_and_queues_of_others_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let devices = devices(folder.path());
    let live = Live::new().with_devices_at(folder.path());
    let (irq, queue) = (&devices[0].0, &devices[1].0);
    live.write(irq, "1-1").unwrap();
    live.write(queue, "0-1,33").unwrap();
    let text = |i: usize| std::fs::read_to_string(&devices[i].1).unwrap();
    assert_eq!(
        (text(0).trim(), text(1).trim()),
        ("1-1", "00000002,00000003")
    );
    assert_eq!(
        (
            live.read(irq).unwrap().as_str(),
            live.read(queue).unwrap().as_str()
        ),
        ("1-1", "0-1,33")
    );
    // Another device has the number, the name.
    let gone = |knob: &Knob| {
        let (read, write) = (live.read(knob), live.write(knob, "0"));
        assert!(
            matches!(
                (read, write),
                (Err(Error::Gone { .. }), Err(Error::Gone { .. }))
            ),
            "{knob}"
        );
    };
    gone(&Knob::Irq {
        irq: 41,
        name: "eth1-rx-0".into(),
    });
    let of = |device: &str, index, queue: &str| Knob::Queue {
        device: device.into(),
        index,
        queue: queue.into(),
    };
    gone(&of("eth0", 3, "rx-0"));
    gone(&of("eth1", 2, "rx-0"));
    gone(&of("eth0", 2, "rx-1"));
    for (device, queue) in [
        ("../eth0", "rx-0"),
        ("eth0", "../rx-0"),
        ("eth0", "rx-0/../rx-0"),
        ("", "rx-0"),
        ("eth0", "zz-0"),
    ] {
        let knob = of(device, 2, queue);
        assert!(
            matches!(live.write(&knob, "0"), Err(Error::Refused { .. })),
            "{knob}"
        );
    }
    assert!(live.write(queue, "x").is_err());
    // Groups are made by one name only, below their mount.
    for group in ["vm", "../berth-x", "a/../../berth-x", "berth-x/.."] {
        let knob = Knob::Made {
            group: group.into(),
        };
        assert!(live.write(&knob, HERE).is_err(), "{group}");
    }
}

/// irqbalance as it is seen by its socket: it leaves alone interrupt 9, until it is told otherwise.
struct Balance {
    socket: PathBuf,
    knob: Knob,
    /// Gives the lists that it was told.
    told: std::thread::JoinHandle<Vec<String>>,
    _idle: Idle,
}

impl Balance {
    /// Its socket is below `folder`.
    fn start(folder: &Path) -> Balance {
        std::fs::create_dir(folder.join("run")).unwrap();
        let idle = Idle::start();
        let Knob::Affinity { pid, start, .. } = idle.affinity() else {
            unreachable!()
        };
        let socket = folder.join(format!("run/irqbalance{pid}.sock"));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        Balance {
            socket,
            knob: Knob::Unbalanced { pid, start },
            told: std::thread::spawn(move || balance(&listener)),
            _idle: idle,
        }
    }

    fn end(self) -> Vec<String> {
        use std::io::Write;
        let mut stream = std::os::unix::net::UnixStream::connect(&self.socket).unwrap();
        stream.write_all(b"end").unwrap();
        self.told.join().unwrap()
    }
}

/// Its protocol, from its side; one connection after the other. Who has asked may have been killed since.
fn balance(listener: &std::os::unix::net::UnixListener) -> Vec<String> {
    use std::io::{Read, Write};
    let mut banned = "9".to_string();
    let mut told = Vec::new();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut buffer = [0; 500];
        let n = stream.read(&mut buffer).unwrap_or(0);
        let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
        if let Some(list) = text.strip_prefix("settings ban irqs ") {
            banned = if list == "NONE" { "" } else { list }.into();
            told.push(list.to_string());
        } else if text == "setup" {
            let irq = |n: &str| format!("IRQ {n} LOAD 0 DIFF 0 CLASS 0 ");
            let irqs: String = banned.split_whitespace().map(irq).collect();
            let _ = write!(stream, "SLEEP 10 {irqs}BANNED 00000000");
        } else if !text.is_empty() {
            break;
        }
    }
    told
}

#[test]
fn irqbalance_is_told_what_to_leave_alone() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let balance = Balance::start(folder.path());
    let knob = balance.knob.clone();
    let live = || Live::new().with_devices_at(folder.path());
    let ledger = Ledger::open(&folder.path().join("state"), &this_boot().unwrap()).unwrap();
    let (mut acting, _) = Acting::begin(live(), ledger).unwrap();
    let report = acting.set(&[(knob.clone(), "9 41 42".into())]).unwrap();
    assert!(report.complaints().is_empty(), "{report:?}");
    assert_eq!(live().read(&knob).unwrap(), "9 41 42");
    acting.end().unwrap();
    assert_eq!(live().read(&knob).unwrap(), "9");
    let many: Vec<String> = (1000..1100).map(|n| n.to_string()).collect();
    assert!(
        live()
            .write(&knob, &many.join(" "))
            .unwrap_err()
            .to_string()
            .contains("240 bytes")
    );
    assert_eq!(balance.end(), ["9 41 42", "9"]);
    // Nobody answers.
    let error = live().read(&knob).unwrap_err().to_string();
    assert!(error.contains("irqbalance"), "{error}");
}

/// An interrupt is moved, which irqbalance is to leave alone meanwhile, and for no longer.
#[test]
fn killed_at_every_system_call_irqbalance_leaves_alone_what_it_did() {
    let _alone = alone();
    let folder = in_memory();
    let balance = Balance::start(folder.path());
    let (irq, path) = devices(folder.path()).swap_remove(0);
    let steps = [
        vec![(balance.knob.clone(), "9 41".to_string())],
        vec![(irq, "1-1".to_string())],
    ];
    let live = || Live::new().with_devices_at(folder.path());
    let list = || live().read(&balance.knob).unwrap();
    let cpus = || std::fs::read_to_string(&path).unwrap();
    let (state, before) = (folder.path().join("state"), cpus());
    let (mut calls, mut told, mut moved) = (0, 0, 0);
    loop {
        let through = killed_after(calls, || {
            if act(live(), &state, &steps).is_err() {
                // SAFETY: as at the end of the child.
                unsafe { libc::_exit(1) }
            }
        });
        // It is told before the interrupt is moved, and again after that is back.
        let (left_alone, is_moved) = (list(), cpus() != before);
        assert!(
            left_alone == "9 41" || left_alone == "9" && !is_moved,
            "killed at {calls}: {left_alone:?}, {}",
            cpus()
        );
        told += usize::from(left_alone == "9 41");
        moved += usize::from(is_moved);
        let mut ledger = Ledger::open(&state, &this_boot().unwrap()).unwrap();
        restore(&live(), &mut ledger).unwrap();
        assert!(
            ledger.entries().is_empty(),
            "killed at {calls}: {:?}",
            ledger.entries()
        );
        assert_eq!((list(), cpus()), ("9".into(), before.clone()), "{calls}");
        if through {
            break;
        }
        calls += 1;
    }
    assert!(
        calls > 150 && moved > 10 && told > moved,
        "{calls} calls, told after {told}, moved after {moved}"
    );
    assert!(
        balance
            .end()
            .iter()
            .all(|list| list == "9 41" || list == "9")
    );
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
    let _alone = alone();
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
