// SPDX-License-Identifier: GPL-2.0-only
//! The optimiser acts on a host that is written down and set on paper: what it does when something goes wrong half way.
//! Discovery, decisions and the ledger are the real ones.
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::{ALL, Acting, Error, Host, Knob};
use berth_agent::backend::Backend;
use berth_agent::backend::cgroup::manager::Manager;
use berth_agent::backend::cgroup::parameters::settings;
use berth_agent::backend::cgroup::{Cgroup, Place};
use berth_agent::keeper::Keeper;
use berth_agent::rules::{Promised, Rules};
use berth_host::fixture::Fixture;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_optimiser::{Promise, Service};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
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
        match self.0.values.borrow_mut().get_mut(knob) {
            Some(there) => *there = value.into(),
            None => return Err(Error::Gone { what }),
        }
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
            for (file, value) in [("cpu.weight", "100"), ("cpu.max", "max 100000")] {
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
                std::fs::write(self.folder.path().join(file), format!("{} 0 9", ran + 1000))
                    .unwrap();
            }
            self.keeper.look().unwrap();
            self.manager.look(&self.keeper);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn values(&self) -> BTreeMap<Knob, String> {
        self.paper.0.values.borrow().clone()
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
    assert_eq!(site.manager.over(), None);
}

#[test]
fn a_recording_of_another_machine_is_not_acted_on() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place {
        state: folder.path().join("state"),
        guardian: None,
        lock: None,
    };
    let recorded = Cgroup::new(Root::at(folder.path()), place);
    let why = recorded.obstacles(&Snapshot::default(), false);
    assert!(why.len() == 1 && why[0].contains("--dry-run"), "{why:?}");
}
