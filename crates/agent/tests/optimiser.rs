// SPDX-License-Identifier: GPL-2.0-only
//! The optimiser acts on a host that is written down and set on paper: what it does when something goes wrong half way.
//! Discovery, decisions and the ledger are the real ones.
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::{ALL, Acting, Error, Host, Knob};
use berth_agent::backend::Backend;
use berth_agent::backend::cgroup::Cgroup;
use berth_agent::backend::cgroup::freezer::Write;
use berth_agent::backend::cgroup::manager::Manager;
use berth_agent::backend::cgroup::parameters::settings;
use berth_agent::keeper::Keeper;
use berth_agent::place::Place;
use berth_agent::rules::{Promised, Rules};
use berth_host::fixture::Fixture;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_optimiser::{Promise, Service};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Ends what hangs; judges no speed.
const HUNG: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
struct Paper {
    values: RefCell<BTreeMap<Knob, String>>,
    /// Writes to files until they are denied; none: they never are.
    files_left: Cell<Option<usize>>,
    /// The VM that is being set ends.
    ends: Cell<bool>,
    /// What was written, in order.
    written: RefCell<Vec<(Knob, String)>>,
}

#[derive(Clone, Debug)]
struct Shared(Rc<Paper>);

impl Host for Shared {
    fn read(&self, knob: &Knob) -> Result<String, Error> {
        let gone = || Error::Gone {
            what: knob.to_string(),
        };
        self.0.values.borrow().get(knob).cloned().ok_or_else(gone)
    }

    fn write(&self, knob: &Knob, value: &str) -> Result<(), Error> {
        let what = knob.to_string();
        if matches!(knob, Knob::Group { .. })
            && let Some(left) = self.0.files_left.get()
        {
            if left == 0 {
                let why = "Read-only file system (os error 30)".into();
                return Err(Error::Denied { what, why });
            }
            self.0.files_left.set(Some(left - 1));
        }
        if self.0.ends.get() {
            self.0.values.borrow_mut().clear();
        }
        // A group that is idle takes no weight.
        let is_weight = matches!(knob, Knob::Group { file, .. } if file == "cpu.weight");
        match self.0.values.borrow_mut().get_mut(knob) {
            Some(there) if is_weight && there == "0" => {
                let why = "Invalid argument (os error 22)".into();
                return Err(Error::Refused { what, why });
            }
            Some(there) => *there = value.into(),
            None => return Err(Error::Gone { what }),
        }
        let written = (knob.clone(), value.to_string());
        self.0.written.borrow_mut().push(written);
        Ok(())
    }

    fn kin(&self, _: &Knob) -> Vec<Knob> {
        Vec::new()
    }
}

/// Three VMs with a vCPU and a cgroup of version 2 each, on four CPUs.
struct Site {
    folder: tempfile::TempDir,
    paper: Shared,
    keeper: Keeper,
    manager: Manager<Shared>,
    began: Instant,
}

const VMS: [(i32, &str); 3] = [(100, "a"), (200, "b"), (300, "c")];

fn online(folder: &Path, cpus: &str) {
    std::fs::write(folder.join("sys/devices/system/cpu/online"), cpus).unwrap();
}

impl Site {
    fn new(by: &str, promise: Promise) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::from(
            "file proc/1/mountinfo \"30 24 0:26 / /sys/fs/cgroup rw - cgroup2 n rw\\n\"\n",
        );
        let paper = Paper::default();
        let mut values = paper.values.borrow_mut();
        for (pid, name) in VMS {
            let group = format!("vms/{name}");
            text += &format!(
                "process {pid} lkvm start=5 sched=0,0,1\nargs lkvm run --name {name}\ncgroup 0::/{group}\n\
                 fd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n\
                 thread {} kvm-vcpu-0 start=6 run=4 sched=1000,0,1\n\
                 file sys/fs/cgroup/{group}/cgroup.procs \"{pid}\\n\"\n",
                pid + 1
            );
            for (file, value) in [
                ("cpu.weight", "100"),
                ("cpu.max", "max 100000"),
                ("cgroup.freeze", "0"),
            ] {
                text += &format!("file sys/fs/cgroup/{group}/{file} \"{value}\\n\"\n");
                let knob = Knob::Group {
                    group: group.clone(),
                    file: file.into(),
                };
                values.insert(knob, value.into());
            }
            for (tid, start) in [(pid, 5), (pid + 1, 6)] {
                values.insert(Knob::Affinity { pid, tid, start }, ALL.into());
            }
        }
        drop(values);
        for cpu in 0..4 {
            text += &format!("file sys/devices/system/cpu/cpu{cpu}/topology/core_id {cpu}\n");
        }
        text += "file sys/devices/system/cpu/online 0-3\n";
        Fixture::parse(&text)
            .unwrap()
            .unpack(folder.path())
            .unwrap();
        let root = Root::at(folder.path());
        let name = "*".into();
        let rules = Rules {
            promises: vec![Promised { name, promise }],
            ..Rules::default()
        };
        let mut keeper = Keeper::new(root.clone(), rules);
        keeper.watch_classes(root.clone());
        let paper = Shared(Rc::new(paper));
        let ledger = Ledger::open(&folder.path().join("state"), &this_boot().unwrap()).unwrap();
        let (hands, _) = Acting::begin(paper.clone(), ledger).unwrap();
        let settings = settings(&[("by".to_string(), by.to_string())].into()).unwrap();
        Site {
            manager: Manager::new(root, settings, false, hands).unwrap(),
            folder,
            paper,
            keeper,
            began: Instant::now(),
        }
    }

    /// Looks until it is so; every vCPU is busy meanwhile.
    fn until(&mut self, what: &str, mut so: impl FnMut(&Site) -> bool) {
        let end = Instant::now() + HUNG;
        while !so(self) {
            assert!(
                Instant::now() < end,
                "never: {what}: {:?}",
                self.manager.warnings()
            );
            let ran = self.began.elapsed().as_nanos();
            for (pid, _) in VMS {
                let file = format!("proc/{pid}/task/{}/schedstat", pid + 1);
                // One that has ended has none.
                let _ =
                    std::fs::write(self.folder.path().join(file), format!("{} 0 9", ran + 1000));
            }
            self.keeper.look().unwrap();
            self.manager.look(&self.keeper);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn values(&self) -> BTreeMap<Knob, String> {
        self.paper.0.values.borrow().clone()
    }

    /// A file of a VM's cgroup, as it is now.
    fn file(&self, vm: &str, file: &str) -> String {
        let knob = Knob::Group {
            group: format!("vms/{vm}"),
            file: file.into(),
        };
        self.values()[&knob].clone()
    }

    /// Another group beside those of the VMs.
    fn makes_group(&self, name: &str) {
        let folder = self.group(name);
        std::fs::create_dir(&folder).unwrap();
        for (file, text) in [
            ("cpu.weight", "100"),
            ("cpu.max", "max 100000"),
            ("cgroup.freeze", "0"),
            ("cgroup.procs", ""),
        ] {
            std::fs::write(folder.join(file), text).unwrap();
            foreign(self, name, file, text);
        }
    }

    /// The VM `a` goes from one group to another.
    fn moves(&self, from: &str, to: &str) {
        std::fs::write(self.group(to).join("cgroup.procs"), "100\n").unwrap();
        std::fs::write(self.group(from).join("cgroup.procs"), "").unwrap();
        for file in ["proc/100/cgroup", "proc/100/task/100/cgroup"] {
            let file = self.folder.path().join(file);
            std::fs::write(file, format!("0::/vms/{to}\n")).unwrap();
        }
    }

    fn group(&self, name: &str) -> PathBuf {
        self.folder.path().join("sys/fs/cgroup/vms").join(name)
    }

    /// Freezing, as it is really done, on paper: what was written by then.
    fn freezes(&mut self) -> Arc<Mutex<Vec<(String, String)>>> {
        let written: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let ours = written.clone();
        self.manager.freeze_by(Write(Box::new(move |knob, value| {
            let Knob::Group { group, .. } = knob else {
                unreachable!()
            };
            let written = (group.clone(), value.to_string());
            ours.lock().unwrap().push(written);
            Ok(())
        })));
        written
    }

    /// Another process comes into the cgroup of a VM.
    fn stranger_enters(&self, group: &str, vm: i32) {
        let folder = self.folder.path().join("sys/fs/cgroup").join(group);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cgroup.procs"), format!("{vm}\n7777\n")).unwrap();
    }

    fn remembers(&self) -> bool {
        self.folder.path().join("state/changes.json").exists()
    }
}

fn limit(cpus: f64) -> Promise {
    Promise {
        limit: Some(cpus),
        ..Promise::default()
    }
}

#[test]
fn permission_that_is_lost_half_way_ends_it_with_one_line() {
    let mut site = Site::new("caps", limit(0.5));
    site.paper.0.files_left.set(Some(1));
    let before = site.values();
    site.until("it gives up", |s| s.manager.over().is_some());
    let over = site.manager.over().unwrap();
    assert!(
        over.starts_with("nothing can be set any more: cpu.max of cgroup vms/")
            && over.contains("Read-only"),
        "{over}"
    );
    assert!(!over.contains('\n'));
    // What cannot be undone either is remembered, and is said.
    assert!(
        over.contains("1 changes") && over.contains("berth restore") && site.remembers(),
        "{over}"
    );
    assert_ne!(site.values(), before);
    site.paper.0.files_left.set(None);
    let state = site.folder.path().join("state");
    let mut ledger = Ledger::open(&state, &this_boot().unwrap()).unwrap();
    berth_actuator::restore(&site.paper, &mut ledger).unwrap();
    assert_eq!(site.values(), before);
    // It only watches from now on.
    let decisions = site.manager.counters()["decisions"];
    let looks = Instant::now() + Duration::from_millis(1500);
    site.until("it was looked at on", |_| Instant::now() > looks);
    assert_eq!(
        (site.manager.counters()["decisions"], site.values()),
        (decisions, before)
    );
}

#[test]
fn cgroups_that_are_only_read_leave_affinity() {
    let target = Promise {
        service: Service::Target,
        guarantee: 0.9,
        limit: Some(0.95),
        ..Promise::default()
    };
    let mut site = Site::new("sets,caps", target);
    site.paper.0.files_left.set(Some(0));
    let bound = |s: &Site| {
        let all = s.values();
        all.iter()
            .any(|(k, v)| matches!(k, Knob::Affinity { .. }) && v != ALL)
    };
    site.until("threads are bound", bound);
    assert_eq!(site.manager.over(), None);
    let said = |s: &Site| {
        s.manager
            .warnings()
            .iter()
            .filter(|w| w.contains("Read-only"))
            .count()
    };
    assert!(
        said(&site) > 0 && said(&site) <= 3,
        "{:?}",
        site.manager.warnings()
    );
    drop(site.manager);
    assert!(
        site.paper
            .0
            .values
            .borrow()
            .iter()
            .all(|(k, v)| !matches!(k, Knob::Affinity { .. }) || v == ALL)
    );
}

#[test]
fn a_vm_that_ends_while_it_is_set_is_no_trouble() {
    let mut site = Site::new("caps", limit(0.5));
    site.paper.0.ends.set(true);
    site.until("it has decided", |s| s.manager.counters()["decisions"] > 1);
    assert_eq!(
        (site.manager.over(), site.manager.warnings()),
        (None, &[][..])
    );
    drop(site.manager);
    assert!(!site.folder.path().join("state/changes.json").exists());
}

#[test]
fn cpus_that_go_offline_are_left() {
    let target = Promise {
        service: Service::Target,
        guarantee: 0.9,
        ..Promise::default()
    };
    let mut site = Site::new("sets", target);
    let sets = |s: &Site| -> Vec<String> {
        let all = s.values();
        let set = all
            .into_iter()
            .filter(|(k, v)| matches!(k, Knob::Affinity { .. }) && v != ALL);
        set.map(|(_, v)| v).collect()
    };
    site.until("each has CPUs of its own", |s| sets(s).len() == 6);
    assert!(
        sets(&site).iter().any(|set| set.contains(['2', '3'])),
        "{:?}",
        sets(&site)
    );
    online(site.folder.path(), "0-1");
    site.until("all are where CPUs are", |s| {
        !sets(s).iter().any(|set| set.contains(['2', '3']))
    });
    online(site.folder.path(), "0-3");
    site.until("they are used again", |s| {
        sets(s).iter().any(|set| set.contains(['2', '3']))
    });
    assert_eq!(site.manager.over(), None);
}

fn has_been_frozen(written: &Mutex<Vec<(String, String)>>, group: &str) -> bool {
    let written = written.lock().unwrap();
    written.iter().any(|(g, v)| g == group && v == "1")
}

/// Whether a group has been frozen, and runs now.
fn is_thawed(written: &Mutex<Vec<(String, String)>>, group: &str) -> bool {
    let written = written.lock().unwrap();
    let mut of = written.iter().filter(|(g, _)| g == group);
    let frozen = of.clone().any(|(_, v)| v == "1");
    frozen && of.next_back().is_some_and(|(_, v)| v == "0")
}

/// In the first group somebody else may be by then: it is neither frozen nor capped any longer.
#[test]
fn a_vm_that_goes_to_another_cgroup_leaves_nothing_set_in_the_first() {
    for by in ["freezing", "caps"] {
        let mut site = Site::new(by, limit(0.5));
        let written = site.freezes();
        let acts = |site: &Site| match by {
            "caps" => site.file("a", "cpu.max") == "50000 100000",
            _ => written
                .lock()
                .unwrap()
                .iter()
                .any(|w| *w == ("vms/a".into(), "1".into())),
        };
        site.until("it is limited", acts);
        site.makes_group("moved");
        site.moves("a", "moved");
        // There it is limited as before, and where it was nothing is.
        site.until("it is limited where it is now", |site| match by {
            "caps" => {
                site.file("moved", "cpu.max") == "50000 100000"
                    && site.file("a", "cpu.max") == "max 100000"
            }
            _ => written
                .lock()
                .unwrap()
                .iter()
                .any(|w| *w == ("vms/moved".into(), "1".into())),
        });
        assert!(by == "caps" || is_thawed(&written, "vms/a"));
        assert_eq!(site.manager.over(), None);
        drop(site.manager);
        assert!(by == "caps" || is_thawed(&written, "vms/moved"));
        assert!(!site.folder.path().join("state/changes.json").exists());
    }
}

#[test]
fn a_vm_that_ends_while_it_is_frozen_leaves_its_group_thawed() {
    let mut site = Site::new("freezing", limit(0.5));
    let written = site.freezes();
    site.until("it is frozen", |_| has_been_frozen(&written, "vms/a"));
    std::fs::remove_dir_all(site.folder.path().join("proc/100")).unwrap();
    // At the first look that does not find it.
    site.keeper.look().unwrap();
    site.manager.look(&site.keeper);
    assert!(is_thawed(&written, "vms/a"));
    // For good: nobody writes there any more.
    let many = |group: &str| {
        written
            .lock()
            .unwrap()
            .iter()
            .filter(|(g, _)| g == group)
            .count()
    };
    let (before, others) = (many("vms/a"), many("vms/b"));
    site.until("others go on", |_| many("vms/b") > others + 4);
    assert_eq!(many("vms/a"), before);
    let state = std::fs::read_to_string(site.folder.path().join("state/changes.json")).unwrap();
    assert!(!state.contains("vms/a"), "{state}");
}

/// Somebody comes into the cgroup of a VM that is frozen by turns, or below it: from the next look on it is not.
#[test]
fn whoever_comes_into_a_vms_cgroup_is_not_frozen_with_it() {
    for place in ["vms/a", "vms/a/below"] {
        let mut site = Site::new("freezing", limit(0.5));
        let written = site.freezes();
        site.until("it is frozen", |_| has_been_frozen(&written, "vms/a"));
        site.stranger_enters(place, 100);
        site.keeper.look().unwrap();
        site.manager.look(&site.keeper);
        assert!(is_thawed(&written, "vms/a"), "{place}");
        let so_far = written.lock().unwrap().len();
        site.until("others go on", |_| {
            written.lock().unwrap().len() > so_far + 8
        });
        let since: Vec<_> = written.lock().unwrap()[so_far..].to_vec();
        assert!(since.iter().all(|(group, _)| group != "vms/a"), "{since:?}");
        let said = site.manager.warnings().join("\n");
        assert!(
            said.contains("VM a: it is not frozen: its cgroup vms/a"),
            "{said}"
        );
    }
}

/// The stranger is there before anything is set, and nothing of the VM tells of him.
#[test]
fn a_cgroup_that_holds_a_stranger_is_never_capped() {
    let mut site = Site::new("caps", limit(0.5));
    // It is known as the VM's own.
    site.keeper.look().unwrap();
    site.manager.look(&site.keeper);
    site.stranger_enters("vms/a/below", 100);
    site.until("others are capped", |s| {
        s.file("b", "cpu.max") == "50000 100000"
    });
    site.until("and it is said", |s| {
        s.manager.warnings().iter().any(|w| w.contains("7777"))
    });
    let written = site.paper.0.written.borrow();
    let capped = written
        .iter()
        .any(|(k, _)| matches!(k, Knob::Group { group, .. } if group == "vms/a"));
    assert!(!capped, "{written:?}");
}

#[test]
fn what_cannot_be_frozen_is_said_and_counted() {
    let mut site = Site::new("freezing", limit(0.5));
    site.manager.freeze_by(Write(Box::new(|knob, _| {
        Err(Error::Refused {
            what: knob.to_string(),
            why: "Device or resource busy (os error 16)".into(),
        })
    })));
    let said = |s: &Site| {
        let warnings = s.manager.warnings().iter();
        warnings
            .filter(|w| w.contains("cgroup.freeze") && w.contains("busy"))
            .count()
    };
    let count = |s: &Site| s.manager.counters()["freeze_failures"];
    site.until("each is said", |s| said(s) == 3 && count(s) >= 3);
    let so_far = count(&site);
    site.until("it is counted on", |s| count(s) > so_far + 3);
    assert_eq!(said(&site), 3, "{:?}", site.manager.warnings());
}

/// A promise that cannot be kept by anybody is none, and is said; the VM gets what it would without.
#[test]
fn a_limit_below_its_guarantee_promises_nothing() {
    let both = Promise {
        guarantee: 0.75,
        limit: Some(0.5),
        ..Promise::default()
    };
    let mut site = Site::new("caps,weights", both);
    site.until("it has decided", |s| s.manager.counters()["decisions"] > 1);
    let said: Vec<&String> = site
        .manager
        .warnings()
        .iter()
        .filter(|w| w.contains("is 0.25 below the guarantee") && w.contains("nothing is promised"))
        .collect();
    assert_eq!(said.len(), 3, "{:?}", site.manager.warnings());
    assert!(site.paper.0.written.borrow().is_empty());
}

/// An idle group (`cpu.idle`) has the weight 0 and takes no other: that VM's matter, and no division by it.
#[test]
fn a_cgroup_of_weight_0_is_left_at_that() {
    let guaranteed = Promise {
        guarantee: 0.9,
        limit: Some(0.95),
        ..Promise::default()
    };
    let mut site = Site::new("weights,caps", guaranteed);
    let knob = Knob::Group {
        group: "vms/a".into(),
        file: "cpu.weight".into(),
    };
    site.paper.0.values.borrow_mut().insert(knob, "0".into());
    let file = "sys/fs/cgroup/vms/a/cpu.weight";
    std::fs::write(site.folder.path().join(file), "0\n").unwrap();
    // As long as there is want.
    online(site.folder.path(), "0-1");
    site.until("others have weights", |s| {
        s.file("b", "cpu.weight") != "100"
    });
    assert_eq!(site.file("a", "cpu.weight"), "0");
    assert_eq!(site.manager.over(), None);
    drop(site.manager);
    let left = site.paper.0.values.borrow();
    assert!(!site.folder.path().join("state/changes.json").exists());
    let weights = left
        .iter()
        .filter(|(k, _)| k.to_string().starts_with("cpu.weight"));
    let weights: Vec<&str> = weights.map(|(_, v)| v.as_str()).collect();
    assert_eq!(weights, ["0", "100", "100"]);
}

/// Sets a file of a VM's cgroup, as somebody else.
fn foreign(site: &Site, vm: &str, file: &str, value: &str) {
    let knob = Knob::Group {
        group: format!("vms/{vm}"),
        file: file.into(),
    };
    let mut values = site.paper.0.values.borrow_mut();
    values.insert(knob, value.into());
}

fn guaranteed() -> Promise {
    Promise {
        guarantee: 0.9,
        limit: Some(0.95),
        ..Promise::default()
    }
}

/// Found when it was to be set back, mostly before anybody looked for it: it stays, it is said, and the next decision
/// leaves it alone, too.
#[test]
fn a_weight_that_somebody_else_has_set_by_the_time_of_undoing_is_theirs() {
    let mut site = Site::new("weights", guaranteed());
    let weight = |s: &Site, vm: &str| s.file(vm, "cpu.weight");
    online(site.folder.path(), "0-1");
    let raised = |s: &Site| weight(s, "a") != "100" && weight(s, "b") != "100";
    site.until("there is want", raised);
    foreign(&site, "b", "cpu.weight", "777");
    online(site.folder.path(), "0-3");
    site.until("a's is set back", |s| weight(s, "a") == "100");
    site.until("b's is said to be theirs", |s| {
        let mut all = s.manager.warnings().iter();
        all.any(|w| w.contains("vms/b") && w.contains("777"))
    });
    online(site.folder.path(), "0-1");
    site.until("there is want again", |s| weight(s, "a") != "100");
    assert_eq!(weight(&site, "b"), "777");
    assert_eq!(site.manager.over(), None);
    drop(site.manager);
    let left = site.paper.0.values.borrow();
    let weights: Vec<&str> = left
        .iter()
        .filter(|(k, _)| k.to_string().starts_with("cpu.weight"))
        .map(|(_, v)| v.as_str())
        .collect();
    assert_eq!(weights, ["100", "777", "100"]);
}

/// Its VM gets company and has its group for itself again: what was found theirs meanwhile is theirs still.
#[test]
fn a_cap_that_somebody_else_has_set_outlives_company() {
    let mut site = Site::new("weights,caps", guaranteed());
    online(site.folder.path(), "0-1");
    let set = |s: &Site| s.file("a", "cpu.weight") != "100";
    let capped = |s: &Site| s.file("a", "cpu.max") != "max 100000";
    site.until("it has a weight", set);
    site.until("it has a cap", capped);
    foreign(&site, "a", "cpu.max", "70000 100000");
    site.stranger_enters("vms/a", 100);
    site.until("it is let go of", |s| !set(s));
    let procs = site.folder.path().join("sys/fs/cgroup/vms/a/cgroup.procs");
    std::fs::write(procs, "100\n").unwrap();
    site.until("it is set again", set);
    assert_eq!(site.file("a", "cpu.max"), "70000 100000");
}

/// What somebody else has set in a group is not theirs in another, nor there once the VM has been elsewhere.
#[test]
fn a_cap_that_somebody_else_has_set_stays_behind() {
    let mut site = Site::new("caps", limit(0.5));
    let capped = |s: &Site, group: &str| s.file(group, "cpu.max") == "50000 100000";
    site.until("it has a cap", |s| capped(s, "a"));
    foreign(&site, "a", "cpu.max", "70000 100000");
    site.until("it is said to be theirs", |s| {
        let mut all = s.manager.warnings().iter();
        all.any(|w| w.contains("vms/a") && w.contains("70000"))
    });
    site.makes_group("moved");
    site.moves("a", "moved");
    site.until("it has a cap elsewhere", |s| capped(s, "moved"));
    assert_eq!(site.file("a", "cpu.max"), "70000 100000");
    site.moves("moved", "a");
    site.until("it has a cap where it was", |s| capped(s, "a"));
    assert_eq!(site.file("moved", "cpu.max"), "max 100000");
    drop(site.manager);
    let left = site.paper.0.values.borrow();
    let caps = left.iter().filter(|(k, _)| k.to_string().contains("vms/a"));
    assert!(caps.clone().any(|(_, v)| v == "70000 100000"), "{left:?}");
}

/// A thread that is no vCPU says nothing of where its VM is: that goes on being placed.
#[test]
fn an_io_thread_that_somebody_binds_pins_no_vm() {
    let target = Promise {
        service: Service::Target,
        guarantee: 0.9,
        ..Promise::default()
    };
    let mut site = Site::new("sets", target);
    let knob = |pid: i32, tid: i32, start: u64| Knob::Affinity { pid, tid, start };
    let vcpu = |s: &Site, pid: i32| s.values()[&knob(pid, pid + 1, 6)].clone();
    let far = |s: &Site, pid: i32| vcpu(s, pid).contains(['2', '3']);
    site.until("each has CPUs of its own", |s| {
        VMS.iter().all(|(pid, _)| vcpu(s, *pid) != ALL)
    });
    let (pid, _) = *VMS.iter().find(|(pid, _)| far(&site, *pid)).unwrap();
    let emulator = knob(pid, pid, 5);
    let mut values = site.paper.0.values.borrow_mut();
    values.insert(emulator.clone(), "1".into());
    drop(values);
    let said = |s: &Site| {
        s.manager
            .warnings()
            .iter()
            .any(|w| w.contains(&pid.to_string()))
    };
    site.until("it is said to be theirs", said);
    online(site.folder.path(), "0-1");
    site.until("its vCPU is where CPUs are", |s| !far(s, pid));
    assert_eq!(site.values()[&emulator], "1");
}

#[test]
fn threads_that_come_and_go_are_not_remembered_for_ever() {
    let target = Promise {
        service: Service::Target,
        guarantee: 0.9,
        ..Promise::default()
    };
    let mut site = Site::new("sets", target);
    let is_bound = |s: &Site, tid: i32, start: u64| {
        let knob = Knob::Affinity {
            pid: 100,
            tid,
            start,
        };
        s.paper
            .0
            .values
            .borrow()
            .get(&knob)
            .is_some_and(|v| v != ALL)
    };
    site.until("it is bound", |s| is_bound(s, 100, 5));
    for round in 0..4 {
        let (tid, start) = (5000 + round, 9000 + round as u64);
        let knob = Knob::Affinity {
            pid: 100,
            tid,
            start,
        };
        let folder = site.folder.path().join(format!("proc/100/task/{tid}"));
        std::fs::create_dir(&folder).unwrap();
        let stat = format!(
            "{tid} (w) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} {}0 0 0 0 0 0 0\n",
            "0 ".repeat(16)
        );
        std::fs::write(folder.join("stat"), stat).unwrap();
        for file in ["comm", "schedstat", "syscall", "cgroup"] {
            std::fs::write(folder.join(file), "0 0 0\n").unwrap();
        }
        site.paper
            .0
            .values
            .borrow_mut()
            .insert(knob.clone(), ALL.into());
        site.until("it follows", |s| is_bound(s, tid, start));
        std::fs::remove_dir_all(folder).unwrap();
        site.paper.0.values.borrow_mut().remove(&knob);
    }
    let known = format!("{:?}", site.manager)
        .matches("TaskId { pid: 100")
        .count();
    assert!((2..=3).contains(&known), "{known}");
}

#[test]
fn a_recording_of_another_machine_is_not_acted_on() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::new(folder.path().join("state"), None, None);
    let recorded = Cgroup::new(Root::at(folder.path()), place);
    let why = recorded.obstacles(&Snapshot::default(), false);
    assert!(why.len() == 1 && why[0].contains("--dry-run"), "{why:?}");
}
