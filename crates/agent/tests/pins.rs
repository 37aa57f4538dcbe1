// SPDX-License-Identifier: GPL-2.0-only
//! Pins on a host that was written down, whose values are in memory: what is set of a VM's network path, how it is
//! followed, and that all is what it was in the end.
#[path = "pins/by_rule.rs"]
mod by_rule;
#[path = "pins/cpus.rs"]
mod cpus;
#[path = "pins/denied.rs"]
mod denied;
#[path = "pins/where_to.rs"]
mod where_to;

use berth_actuator::ledger::Ledger;
use berth_actuator::{ALL, Acting, Error, HERE, Host, Knob, NOWHERE};
use berth_affinity::{Ask, Policy};
use berth_agent::keeper::Keeper;
use berth_agent::pins::{Method, PinError, Pinned, Pinning, Pins};
use berth_agent::register::VmKey;
use berth_agent::rules::Rules;
use berth_host::fixture::Fixture;
use berth_host::root::Root;
use berth_host::time::Played;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const HOST: &str = include_str!("../../host/tests/fixtures/network.host");

#[derive(Debug, Default)]
struct Memory {
    /// What differs from what was there in the beginning.
    values: RefCell<BTreeMap<Knob, String>>,
    gone: RefCell<BTreeSet<Knob>>,
    /// Words of knobs that nobody may set.
    refuses: RefCell<Vec<&'static str>>,
    /// Words of knobs that this process may not set, and how often it has tried.
    denies: RefCell<Vec<&'static str>>,
    denied: RefCell<usize>,
    writes: RefCell<usize>,
}

#[derive(Clone, Debug, Default)]
struct Paper(Rc<Memory>);

fn first(knob: &Knob) -> &'static str {
    match knob {
        Knob::Affinity { .. } => ALL,
        Knob::Irq { .. } => "0-7",
        Knob::Unbalanced { .. } => "9",
        Knob::Made { .. } => NOWHERE,
        Knob::Member { .. } => "/",
        Knob::Group { .. } | Knob::Queue { .. } | Knob::Unit { .. } => "",
    }
}

impl Host for Paper {
    fn read(&self, knob: &Knob) -> Result<String, Error> {
        if self.0.gone.borrow().contains(knob) {
            return Err(Error::Gone {
                what: knob.to_string(),
            });
        }
        let there = self.0.values.borrow().get(knob).cloned();
        Ok(there.unwrap_or(first(knob).into()))
    }

    fn write(&self, knob: &Knob, value: &str) -> Result<(), Error> {
        self.read(knob)?;
        let name = knob.to_string();
        let among = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if among(&self.0.denies.borrow()) {
            *self.0.denied.borrow_mut() += 1;
            return Err(Error::Denied {
                what: name,
                why: "not permitted".into(),
            });
        }
        if among(&self.0.refuses.borrow()) {
            return Err(Error::Refused {
                what: name,
                why: "no".into(),
            });
        }
        *self.0.writes.borrow_mut() += 1;
        let mut values = self.0.values.borrow_mut();
        match value == first(knob) {
            true => drop(values.remove(knob)),
            false => drop(values.insert(knob.clone(), value.into())),
        }
        Ok(())
    }

    fn kin(&self, _: &Knob) -> Vec<Knob> {
        Vec::new()
    }
}

struct World {
    folder: tempfile::TempDir,
    paper: Paper,
    keeper: Keeper,
    pins: Pins<Paper>,
    root: Root,
}

impl World {
    fn new() -> World {
        World::with("")
    }

    /// With more of the host.
    fn with(more: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("host");
        let text = format!("{HOST}\n{more}");
        Fixture::parse(&text).unwrap().unpack(&tree).unwrap();
        let paper = Paper::default();
        let root = Root::at(&tree).with_time(Arc::new(Played::new(|_| {})));
        let mut world = World {
            keeper: Keeper::new(root.clone(), Rules::default()),
            pins: Pins::new(root.clone()),
            root,
            paper,
            folder,
        };
        world.pins.take_hands(world.hands());
        world.keeper.look().unwrap();
        world
    }

    fn hands(&self) -> Acting<Paper> {
        let ledger = Ledger::open(&self.folder.path().join("state"), "boot").unwrap();
        Acting::begin(self.paper.clone(), ledger).unwrap().0
    }

    fn key(&self, name: &str) -> VmKey {
        let vm = self
            .keeper
            .snapshot()
            .vms
            .iter()
            .find(|vm| vm.name == name)
            .unwrap();
        VmKey {
            pid: vm.pid,
            start: vm.start,
        }
    }

    fn pin(&mut self, name: &str, policy: Policy, cpu: Option<u32>) -> Result<Pinned, PinError> {
        let pinning = Pinning {
            ask: Ask {
                policy,
                cpu,
                ..Ask::default()
            },
            method: Method::Auto,
        };
        self.pins.pin(&self.keeper, self.key(name), pinning)
    }

    /// What is set, by the words of each value.
    fn set(&self) -> BTreeMap<String, String> {
        let values = self.paper.0.values.borrow();
        values
            .iter()
            .map(|(k, v)| (k.to_string(), v.clone()))
            .collect()
    }

    fn look(&mut self) -> Vec<String> {
        self.keeper.look().unwrap();
        self.pins.look(&self.keeper).unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join("host").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A thread of the VM `mac` is born.
    fn thread(&self, tid: i32, start: u64) {
        let folder = format!("proc/2401/task/{tid}");
        let stat = format!(
            "{tid} (worker) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} {}0 0 0 0 0 0 0\n",
            "0 ".repeat(16)
        );
        self.write(&format!("{folder}/stat"), &stat);
        self.write(&format!("{folder}/comm"), "worker\n");
        for file in ["schedstat", "syscall", "cgroup"] {
            self.write(&format!("{folder}/{file}"), "0 0 0\n");
        }
    }

    fn nothing_is_left(&self) {
        assert_eq!(self.set(), BTreeMap::new());
        assert!(!self.folder.path().join("state/changes.json").exists());
    }
}

fn expect(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect()
}

#[test]
fn the_whole_path_is_set_and_all_is_as_it_was_after() {
    let mut world = World::new();
    let pinned = world.pin("mac", Policy::Full, None).unwrap();
    // Its cards are on no common node (eth2 is on none, eth1 on node 1); CPU 1 is the first that is not 0.
    assert!(pinned.complaints.is_empty(), "{pinned:?}");
    let cpu = pinned.seat.vcpus[0].to_string();
    let on = |what: &str| (what.to_string(), cpu.clone());
    let expected: BTreeMap<String, String> = [
        on("the CPU affinity of thread 2401"),
        on("the CPU affinity of thread 2410"),
        on("the CPUs of interrupt 50 (virtio3-input.0)"),
        ("what irqbalance leaves alone".into(), "9 50".into()),
    ]
    .into();
    assert_eq!(world.set(), expected);
    assert_eq!(pinned.set, 4);
    // Once more changes nothing.
    let writes = *world.paper.0.writes.borrow();
    world.pin("mac", Policy::Full, None).unwrap();
    world.look();
    assert_eq!(*world.paper.0.writes.borrow(), writes);
    let key = world.key("mac");
    let report = world.pins.unpin(&world.keeper, key).unwrap().unwrap();
    assert!(report.complaints().is_empty());
    world.nothing_is_left();
    assert!(world.pins.unpin(&world.keeper, key).unwrap().is_none());
}

#[test]
fn vhost_of_both_kinds_taps_and_what_is_shared() {
    let mut world = World::new();
    let db = world.pin("db", Policy::Full, Some(3)).unwrap();
    let expected = expect(&[
        ("the CPU affinity of thread 2301", "3"),
        ("the CPU affinity of thread 2310", "3"),
        // A thread of the kernel's.
        ("the CPU affinity of thread 2320", "3"),
        ("the CPUs of queue rx-0 of tap1", "3"),
    ]);
    assert_eq!(world.set(), expected);
    assert!(
        db.left
            .iter()
            .any(|l| l.contains("thread 2321") && l.contains("KVM"))
    );
    assert!(
        db.left
            .iter()
            .any(|l| l.contains("interrupt 42 of eth0") && l.contains("2 VMs")),
        "{:?}",
        db.left
    );
    // Two workers, two queues, two CPUs for its path: the other VM's CPU is nobody else's.
    let web = world.pin("web", Policy::L2, None).unwrap();
    assert_eq!((web.seat.vcpus.len(), web.seat.path.len()), (2, 2));
    let all: BTreeSet<u32> = web
        .seat
        .vcpus
        .iter()
        .chain(&web.seat.path)
        .copied()
        .collect();
    assert!(
        all.len() == 4 && !all.contains(&3) && all.iter().all(|c| *c < 6),
        "{all:?}"
    );
    let set = world.set();
    let at = |tid: u32| set[&format!("the CPU affinity of thread {tid}")].clone();
    assert_eq!(
        (at(2220), at(2221)),
        (web.seat.path[0].to_string(), web.seat.path[1].to_string())
    );
    assert!(!set.contains_key("the CPU affinity of thread 2222"));
    assert_eq!(
        set["the CPUs of queue rx-1 of tap0"],
        web.seat.path[1].to_string()
    );
    world.pins.end().unwrap();
    world.nothing_is_left();
}

#[test]
fn new_threads_follow_and_ended_vms_are_forgotten() {
    let mut world = World::new();
    world.pin("mac", Policy::Full, Some(5)).unwrap();
    // Born on the CPU of its process, and one that was not.
    for tid in [2411, 2412] {
        world.thread(tid, 9000);
    }
    let thread = |tid| Knob::Affinity {
        pid: 2401,
        tid,
        start: 9000,
    };
    world
        .paper
        .0
        .values
        .borrow_mut()
        .insert(thread(2411), "5".into());
    world.look();
    let set = world.set();
    for tid in [2411, 2412] {
        assert_eq!(set[&format!("the CPU affinity of thread {tid}")], "5");
    }
    std::fs::remove_dir_all(world.folder.path().join("host/proc/2401")).unwrap();
    let threads: Vec<Knob> = world
        .paper
        .0
        .values
        .borrow()
        .keys()
        .filter(|k| matches!(k, Knob::Affinity { .. }))
        .cloned()
        .collect();
    assert_eq!(threads.len(), 4);
    world.paper.0.gone.borrow_mut().extend(threads.clone());
    let said = world.look();
    assert!(said.iter().any(|s| s.contains("mac has ended")), "{said:?}");
    world
        .paper
        .0
        .values
        .borrow_mut()
        .retain(|k, _| !threads.contains(k));
    assert!(world.pins.is_empty());
    // Its card's interrupt is back, too.
    assert_eq!(world.set(), BTreeMap::new());
}

#[test]
fn threads_born_while_bound_get_what_their_process_had() {
    let mut world = World::new();
    let leader = Knob::Affinity {
        pid: 2401,
        tid: 2401,
        start: 5200,
    };
    world
        .paper
        .0
        .values
        .borrow_mut()
        .insert(leader.clone(), "0-3".into());
    world.pin("mac", Policy::Full, Some(5)).unwrap();
    let born = Knob::Affinity {
        pid: 2401,
        tid: 2411,
        start: 9000,
    };
    let stat = format!(
        "2411 (w) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9000 {}0 0 0 0 0 0 0\n",
        "0 ".repeat(16)
    );
    world.write("proc/2401/task/2411/stat", &stat);
    world.write("proc/2401/task/2411/comm", "w\n");
    world
        .paper
        .0
        .values
        .borrow_mut()
        .insert(born.clone(), "5".into());
    world.look();
    world.pins.end().unwrap();
    let values = world.paper.0.values.borrow();
    assert_eq!(
        (values[&leader].as_str(), values[&born].as_str()),
        ("0-3", "0-3")
    );
}

#[test]
fn auto_goes_to_two_cpus_where_one_is_too_busy_and_comes_back() {
    let mut world = World::new();
    let pinned = world.pin("mac", Policy::Auto, Some(5)).unwrap();
    assert_eq!((pinned.policy, pinned.acts), (Policy::Auto, Policy::Full));
    // Since the beginning: how long CPU 5 was busy (1/100 s), what vCPU and VMM ran and waited (ms).
    let (mut second, mut busy, mut ran, mut waited) = (0u64, 0u64, [0u64; 2], [0u64; 2]);
    let mut pass = |world: &mut World, percent: u64, ms: [(u64, u64); 2]| -> Vec<String> {
        second += 1;
        busy += percent;
        let line = |cpu: u64| {
            let busy = if cpu == 5 { busy } else { 0 };
            format!("cpu{cpu} {busy} 0 0 {} 0 0 0 0 0 0\n", second * 100 - busy)
        };
        let lines: String = (0..8).map(line).collect();
        world.write("proc/stat", &format!("cpu  0 0 0 0 0 0 0 0 0 0\n{lines}"));
        for (i, tid) in [2410, 2401].into_iter().enumerate() {
            ran[i] += ms[i].0;
            waited[i] += ms[i].1;
            let text = format!("{}000000 {}000000 {second}\n", ran[i], waited[i]);
            world.write(&format!("proc/2401/task/{tid}/schedstat"), &text);
        }
        world.root.sleep(Duration::from_secs(1));
        world.look()
    };
    let at =
        |world: &World, tid: u32| world.set()[&format!("the CPU affinity of thread {tid}")].clone();
    let hard = [(600, 300), (390, 200)];
    let mut said = Vec::new();
    let mut passes = 0;
    // What waits on one CPU waits no more on two: from then on it is another load.
    while world.pins.status()[0].acts == Policy::Full && passes < 12 {
        said.extend(pass(&mut world, 99, hard));
        passes += 1;
    }
    assert!((3..=5).contains(&passes), "{passes}");
    let fell = said
        .iter()
        .filter(|s| s.contains("l2: its busiest CPU was 99 % busy"))
        .count();
    assert_eq!(fell, 1, "{said:?}");
    assert_eq!(world.pins.status()[0].acts, Policy::L2);
    assert_eq!(at(&world, 2410), "5");
    assert_ne!(at(&world, 2401), "5");
    let said: Vec<String> = (0..40)
        .flat_map(|_| pass(&mut world, 20, [(100, 0), (100, 0)]))
        .collect();
    assert!(
        said.iter()
            .any(|s| s.contains("full: it would have kept a CPU 20 % busy")),
        "{said:?}"
    );
    assert_eq!(
        (at(&world, 2410), at(&world, 2401)),
        ("5".into(), "5".into())
    );
    world.pins.end().unwrap();
    world.nothing_is_left();
}

#[test]
fn what_others_set_or_the_kernel_refuses_is_said_once_and_left() {
    let mut world = World::new();
    world.paper.0.refuses.borrow_mut().push("interrupt 50");
    let pinned = world.pin("mac", Policy::Full, Some(4)).unwrap();
    assert_eq!(pinned.complaints.len(), 1, "{pinned:?}");
    assert!(pinned.complaints[0].contains("interrupt 50"));
    let writes = *world.paper.0.writes.borrow();
    let vcpu = Knob::Affinity {
        pid: 2401,
        tid: 2410,
        start: 2410,
    };
    world
        .paper
        .0
        .values
        .borrow_mut()
        .insert(vcpu.clone(), "7".into());
    let mut said = Vec::new();
    for _ in 0..8 {
        said.extend(world.look());
        world.root.sleep(Duration::from_millis(300));
    }
    let foreign: Vec<_> = said
        .iter()
        .filter(|s| s.contains("set to 7 by somebody else"))
        .collect();
    assert_eq!(foreign.len(), 1, "{said:?}");
    // No war: nothing was written since.
    assert_eq!(*world.paper.0.writes.borrow(), writes);
    world.pins.end().unwrap();
    assert_eq!(
        world.set(),
        expect(&[("the CPU affinity of thread 2410", "7")])
    );
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_set() {
    let mut world = World::new();
    world.write("sys/devices/system/cpu/present", "0-9");
    world.write("sys/devices/system/cpu/isolated", "6");
    let why = |world: &mut World, name: &str, cpu| match world.pin(name, Policy::Full, Some(cpu)) {
        Err(PinError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    for (cpu, words) in [
        (77, "no CPU 77"),
        (8, "CPU 8 is offline"),
        (6, "--isolated"),
    ] {
        let said = why(&mut world, "mac", cpu);
        assert!(said.contains(words), "{said}");
    }
    // Its cgroup's set is 0-5: 7 is outside, whoever made it so.
    let said = why(&mut world, "web", 7);
    assert!(said.contains("outside of the CPU set"), "{said}");
    assert!(world.pins.is_empty());
    world.nothing_is_left();
    // A VM that ends meanwhile.
    let key = world.key("mac");
    std::fs::remove_dir_all(world.folder.path().join("host/proc/2401")).unwrap();
    world.keeper.look().unwrap();
    let pinning = Pinning::default();
    let error = world.pins.pin(&world.keeper, key, pinning).unwrap_err();
    assert!(error.to_string().contains("has ended meanwhile"), "{error}");
}

/// A driver has made its queues anew: other interrupts.
#[test]
fn a_card_with_other_interrupts_is_followed() {
    let mut world = World::new();
    world.pin("mac", Policy::Full, None).unwrap();
    world.look();
    let of = |world: &World, number: &str| {
        let set = world.set();
        set.keys()
            .any(|k| k.contains(&format!("interrupt {number} ")))
    };
    assert!(of(&world, "50"));
    let card = world
        .folder
        .path()
        .join("host/sys/devices/pci0000:80/0000:80:01.0/msi_irqs");
    std::fs::rename(card.join("50"), card.join("51")).unwrap();
    world.write("sys/kernel/irq/51/actions", "virtio3-input.0");
    world.write("proc/irq/51/smp_affinity_list", "0-7");
    // Whoever asks what would be done meanwhile changes nothing.
    let mac = [world.key("mac")];
    let how = Pinning::default();
    world.pins.would(&world.keeper, &mac, &how, BTreeMap::new());
    world.root.sleep(Duration::from_secs(6));
    assert_eq!(world.look(), Vec::<String>::new());
    assert!(of(&world, "51") && !of(&world, "50"), "{:?}", world.set());
    world.pins.end().unwrap();
    world.nothing_is_left();
}

#[test]
fn by_cgroup_in_both_versions() {
    // Version 2: its own.
    let mut world = World::new();
    world.write("sys/fs/cgroup/vms/web/cpuset.cpus", "");
    world.write("sys/fs/cgroup/vms/web/cgroup.procs", "2201\n");
    let web = world.pin("web", Policy::Paper, Some(2)).unwrap();
    assert_eq!(web.method, Method::Cgroup);
    assert_eq!(
        world.set(),
        expect(&[("cpuset.cpus of cgroup vms/web", "2")])
    );
    // Several CPUs: the set, and who of them is on which.
    let web = world.pin("web", Policy::Full, Some(2)).unwrap();
    let set = world.set();
    let mut all: Vec<u32> = web
        .seat
        .vcpus
        .iter()
        .chain(&web.seat.path)
        .copied()
        .collect();
    all.sort_unstable();
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    let cpus: BTreeSet<u32> = set["cpuset.cpus of cgroup vms/web"]
        .split(',')
        .flat_map(|p| {
            let (a, b) = p.split_once('-').unwrap_or((p, p));
            a.parse::<u32>().unwrap()..=b.parse().unwrap()
        })
        .collect();
    assert_eq!(
        cpus.iter().map(ToString::to_string).collect::<Vec<_>>(),
        all
    );
    assert_eq!(set["the CPU affinity of thread 2210"], "2");
    world.pins.end().unwrap();
    world.nothing_is_left();
    // Version 1: one that is made for it, memory nodes first.
    let mut world = World::new();
    for path in [
        "proc/2401/cgroup",
        "proc/2401/task/2401/cgroup",
        "proc/2401/task/2410/cgroup",
    ] {
        world.write(path, "3:cpuset:/\n0::/\n");
    }
    for (file, text) in [
        ("cpuset.cpus", "0-7"),
        ("cpuset.effective_mems", "0-1"),
        ("cgroup.procs", "1\n2401\n"),
    ] {
        world.write(&format!("sys/fs/cgroup/cpuset/{file}"), text);
    }
    let pinning = Pinning {
        ask: Ask {
            policy: Policy::Paper,
            cpu: Some(3),
            ..Ask::default()
        },
        method: Method::Cgroup,
    };
    let key = world.key("mac");
    world.pins.pin(&world.keeper, key, pinning.clone()).unwrap();
    let group = "cpuset/berth-2401-5200";
    let expected = [
        (format!("cgroup {group}"), HERE),
        (format!("cpuset.cpus of cgroup {group}"), "3"),
        (format!("cpuset.mems of cgroup {group}"), "0-1"),
        (
            "the cpuset cgroup of process 2401".into(),
            "/berth-2401-5200",
        ),
    ];
    let expected: Vec<(&str, &str)> = expected.iter().map(|(a, b)| (a.as_str(), *b)).collect();
    assert_eq!(world.set(), expect(&expected));
    // It is in it from now on, and stays.
    for path in [
        "proc/2401/cgroup",
        "proc/2401/task/2401/cgroup",
        "proc/2401/task/2410/cgroup",
    ] {
        world.write(path, "3:cpuset:/berth-2401-5200\n0::/\n");
    }
    world.write("sys/fs/cgroup/cpuset/berth-2401-5200/cpuset.cpus", "3");
    world.write("sys/fs/cgroup/cpuset/berth-2401-5200/cpuset.mems", "0-1");
    world.write(
        "sys/fs/cgroup/cpuset/berth-2401-5200/cgroup.procs",
        "2401\n",
    );
    let writes = *world.paper.0.writes.borrow();
    world.pins.pin(&world.keeper, key, pinning).unwrap();
    assert_eq!(
        (*world.paper.0.writes.borrow(), world.set()),
        (writes, expect(&expected))
    );
    world.pins.end().unwrap();
    world.nothing_is_left();
    // Where somebody manages it, the operator is told what goes.
    let mut world = World::new();
    let pinning = Pinning {
        method: Method::Cgroup,
        ..Pinning::default()
    };
    let key = world.key("db");
    let error = world
        .pins
        .pin(&world.keeper, key, pinning)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--method taskset"), "{error}");
}

/// A card below a macvtap is one VM's alone only if no other VM is on it, pinned or not, nor anything else.
#[test]
fn a_card_that_another_vm_uses_keeps_its_interrupts() {
    let vm = |fd: u32| {
        format!(
            "process 2601 qemu-system-x86 start=5400\nargs /usr/bin/qemu-system-x86_64 -name guest=other\n\
             fd 10 anon_inode:kvm-vm\nfd 14 anon_inode:kvm-vcpu:0\nfd 20 /dev/tap{fd}\n\
             thread 2610 \"CPU 0/KVM\" run=14\n"
        )
    };
    let beside =
        "file sys/class/net/macvtap1/ifindex 16\nlink sys/class/net/macvtap1/lower_eth1 ../eth1\n";
    let upper = "link sys/class/net/eth1/upper_bond0 ../bond0\nlink sys/class/net/bond0/upper_macvtap0 ../macvtap0\n";
    for (more, shared) in [
        (upper.to_string(), false),
        (vm(16) + beside, true),
        // On which card it is cannot be seen: it is another namespace's.
        (vm(99), true),
        // Nobody's VM, but something is on the card.
        (
            format!("{upper}link sys/class/net/eth1/upper_vlan7 ../vlan7\n"),
            true,
        ),
    ] {
        let mut world = World::with(&more);
        let mac = world.pin("mac", Policy::Full, None).unwrap();
        let moved = world.set().keys().any(|k| k.contains("interrupt 50"));
        let left = mac
            .left
            .iter()
            .any(|l| l.contains("interrupt 50") && l.contains("2 VMs"));
        assert_eq!((moved, left), (!shared, shared), "{more}: {:?}", mac.left);
        world.pins.end().unwrap();
        world.nothing_is_left();
    }
}

/// A VM whose threads come and go, and which binds each of them itself: neither what is remembered of that nor what is
/// said of it grows for ever.
#[test]
fn threads_that_come_and_go_fill_neither_the_log_nor_the_memory() {
    let mut world = World::new();
    world.pin("mac", Policy::Full, Some(5)).unwrap();
    let (mut said, mut sizes) = (Vec::new(), Vec::new());
    for round in 0..120u64 {
        let (tid, start) = (3000 + round as i32, 9000 + round);
        let folder = format!("proc/2401/task/{tid}");
        world.thread(tid, start);
        said.extend(world.look());
        let thread = Knob::Affinity {
            pid: 2401,
            tid,
            start,
        };
        assert_eq!(world.set()[&thread.to_string()], "5", "it is bound");
        let values = &world.paper.0.values;
        values.borrow_mut().insert(thread.clone(), "7".into());
        world.root.sleep(Duration::from_millis(1100));
        said.extend(world.look());
        std::fs::remove_dir_all(world.folder.path().join("host").join(&folder)).unwrap();
        world.paper.0.values.borrow_mut().remove(&thread);
        world.paper.0.gone.borrow_mut().insert(thread);
        said.extend(world.look());
        // This is the test's memory, and no pin's.
        world.paper.0.gone.borrow_mut().clear();
        sizes.push(format!("{:?}", world.pins).len());
    }
    let foreign = said.iter().filter(|s| s.contains("somebody else")).count();
    assert_eq!(foreign, 32, "{said:?}");
    let more: Vec<_> = said.iter().filter(|s| s.contains("only counted")).collect();
    assert_eq!(more.len(), 1, "{said:?}");
    let status = &world.pins.status()[0];
    assert_eq!(status.complaints.last().unwrap(), "and 88 more");
    // Numbers of one more digit, at most.
    assert!(sizes[119] < sizes[40] + 100, "{sizes:?}");
}

#[test]
fn who_is_pinned_is_left_alone_by_others() {
    let mut world = World::new();
    world.pin("db", Policy::Full, Some(3)).unwrap();
    let held = world.pins.held();
    let set = held[&world.key("db")].as_ref().map(ToString::to_string);
    assert_eq!((held.len(), set.as_deref()), (1, Some("3")));
}
