// SPDX-License-Identifier: GPL-2.0-only
//! Acting without sched_ext, as on a user's host: real processes that look like VMs, the kernel's own affinity, agents
//! that are really killed.
//!
//! No harness: this program is also the VMs.
mod acting;
#[path = "acting/vm.rs"]
mod vm;

use acting::{Stopped, cpus, everywhere, kill, text, until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output};
use std::time::Duration;
use vm::{VM, Vm, call_me, idle};

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(VM).is_some() {
        vm();
    }
    let (allowed, online) = cpus();
    if online < 2 {
        println!("skipped: there are no CPUs to choose from on a machine of one");
        return ExitCode::SUCCESS;
    }
    if allowed < online {
        println!(
            "skipped: this test may not run on all CPUs of the host, so its VMs count as bound by somebody"
        );
        return ExitCode::SUCCESS;
    }
    acts_and_undoes();
    leaves_to_others_what_they_set();
    killed_it_is_undone();
    whoever_comes_next_undoes_it();
    println!(
        "ok    CPU sets were set, followed by a new thread, left to others, and undone four ways"
    );
    match Groups::make() {
        Some(groups) => {
            limits_by_cgroups_of_version_1(&groups);
            println!(
                "ok    a cgroup of version 1 was capped, then frozen, and thawed after kill -9"
            );
        }
        None => println!("skipped: no cgroups of version 1 can be made here"),
    }
    ExitCode::SUCCESS
}

// --- a VM

/// One vCPU that always runs; another thread for each byte that comes.
fn vm() -> ! {
    vm::look_like_one(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    let mut byte = [0];
    // The word to start another thread; the end of the test ends this, too.
    while std::io::Read::read(&mut std::io::stdin(), &mut byte).is_ok_and(|n| n > 0) {
        std::thread::spawn(|| {
            call_me("worker");
            idle()
        });
    }
    std::process::exit(0)
}

/// A VM of this name.
fn begin(name: &str) -> Vm {
    Vm::begin(name, "1")
}

impl Vm {
    /// All its threads have the same CPUs, and not these.
    fn bound_from(&self, all: &str) -> bool {
        let threads = self.threads();
        threads.iter().all(|t| t.1 == threads[0].1) && threads[0].1 != all
    }

    fn vcpu(&self) -> i32 {
        let named = |tid: i32| {
            let file = format!("/proc/{}/task/{tid}/comm", self.0.id());
            std::fs::read_to_string(file).is_ok_and(|name| name.trim() == "CPU 0/TCG")
        };
        let tids = self.threads().into_iter().map(|t| t.0);
        tids.into_iter().find(|tid| named(*tid)).unwrap()
    }
}

// --- an operator

struct Operator {
    folder: tempfile::TempDir,
}

impl Operator {
    fn new() -> Operator {
        Operator {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s.sock")
    }

    fn state(&self) -> String {
        self.folder.path().join("changes").display().to_string()
    }

    fn berth(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(arguments)
            .output()
            .unwrap()
    }

    fn agent(&self, verb: &str, more: &[&str]) -> Output {
        let socket = self.socket();
        self.berth(&[&[verb], more, &["--socket", socket.to_str().unwrap()]].concat())
    }

    fn start(&self) {
        let out = self.agent("start", &["optimiser", "--target", "berth-test-web=0.95"]);
        assert!(out.status.success(), "{out:?}");
    }

    /// The agent's process and its guardian's.
    fn processes(&self) -> (Vec<i32>, Vec<i32>) {
        acting::processes(&self.socket(), &self.state())
    }

    /// One of each.
    fn both(&self) -> (i32, i32) {
        acting::both(&self.socket(), &self.state())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.agent("stop", &[]);
    }
}

fn acts_and_undoes() {
    let all = everywhere();
    let (mut web, operator) = (begin("berth-test-web"), Operator::new());
    let dry = operator.berth(&[
        "optimise",
        "--dry-run",
        "--over",
        "6",
        "--target",
        "berth-test-web=0.95",
        "--limit",
        "berth-test-web=0.97",
        "--limit",
        "berth-test-wib=1",
        "--json",
    ]);
    let would: serde_json::Value =
        serde_json::from_slice(&dry.stdout).unwrap_or_else(|e| panic!("{e} {dry:?}"));
    assert!(
        would["vms"]["berth-test-web"]["setting"]["cpus"].is_string(),
        "{would}"
    );
    let warnings = would["warnings"].to_string();
    assert!(
        warnings.contains("no VM is called berth-test-wib")
            && warnings.contains("berth-test-web: weight and cap would not be set"),
        "{would}"
    );
    assert!(web.all_at(&all), "it is only said");
    operator.start();
    until("web has CPUs of its own", || web.bound_from(&all));
    let own = web.threads()[0].1.clone();
    let status = operator.agent("status", &[]);
    assert!(
        text(&status).contains(&format!("set to CPUs {own}")),
        "{}",
        text(&status)
    );
    web.another_thread();
    assert!(web.all_at(&own), "it was born there");
    // While an agent acts it undoes itself; and there is one only.
    let restore = operator.berth(&["restore", "--state", &operator.state()]);
    assert_eq!(restore.status.code(), Some(2), "{restore:?}");
    let second = Operator::new();
    if is_root() {
        let refused = second.agent("start", &["optimiser"]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        // By its number, and by what it was started with.
        let first = format!("process {} (", operator.processes().0[0]);
        let socket = operator.socket().display().to_string();
        let said = text(&refused);
        assert!(
            said.contains(&first) && said.contains(&socket) && said.contains("acts on this host"),
            "{said}"
        );
    }
    let stopped = operator.agent("stop", &[]);
    assert!(
        stopped.status.success() && text(&stopped).contains("what they were"),
        "{stopped:?}"
    );
    assert!(web.all_at(&all), "{:?}", web.threads());
    assert!(!Path::new(&operator.state()).join("changes.json").exists());
}

fn is_root() -> bool {
    // SAFETY: a number of this process.
    unsafe { libc::geteuid() == 0 }
}

fn leaves_to_others_what_they_set() {
    let all = everywhere();
    let (web, operator) = (begin("berth-test-web"), Operator::new());
    operator.start();
    until("web has CPUs of its own", || web.bound_from(&all));
    let own: usize = web.threads()[0]
        .1
        .split(['-', ','])
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let other = usize::from(own == 0);
    let vcpu = web.vcpu();
    // SAFETY: all zeroes are an empty set; it outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(other, &mut set);
        assert_eq!(
            libc::sched_setaffinity(vcpu, size_of_val(&set), &raw const set),
            0
        );
    }
    until("it is said", || {
        text(&operator.agent("status", &[])).contains("by somebody else")
    });
    operator.agent("stop", &[]);
    let left = web.threads();
    let vcpu = left.iter().find(|t| t.0 == vcpu).unwrap();
    assert_eq!(vcpu.1, other.to_string(), "{left:?}");
    assert!(
        left.iter().filter(|t| t.0 != vcpu.0).all(|t| t.1 == all),
        "{left:?}"
    );
}

fn killed_it_is_undone() {
    let all = everywhere();
    let (mut web, operator) = (begin("berth-test-web"), Operator::new());
    // By its guardian.
    operator.start();
    until("web has CPUs of its own", || !web.all_at(&all));
    kill(&[operator.both().0]);
    until("the guardian undoes it", || web.all_at(&all));
    until("and ends", || operator.processes().1.is_empty());
    // Without one it says so and ends by itself.
    operator.start();
    until("web has CPUs of its own", || !web.all_at(&all));
    kill(&[operator.both().1]);
    until("the agent undoes it", || web.all_at(&all));
    until("and ends", || operator.processes().0.is_empty());
    // Both at once: by hand, with a thread that was born since.
    operator.start();
    until("web has CPUs of its own", || web.bound_from(&all));
    let (agent, guardian) = operator.both();
    kill(&[guardian, agent]);
    web.another_thread();
    until("they have ended", || operator.processes().0.is_empty());
    if web.all_at(&all) {
        // The agent saw its guardian go, and had time to undo it: nothing is left to do.
        return;
    }
    let restored = operator.berth(&["restore", "--state", &operator.state()]);
    assert!(restored.status.success(), "{restored:?}");
    assert!(web.all_at(&all), "{:?}", web.threads());
    let nothing = operator.berth(&["restore", "--state", &operator.state()]);
    assert!(text(&nothing).contains("nothing to undo"), "{nothing:?}");
}

/// Agent and guardian are killed, and neither lives to see the other one go.
fn kill_both(operator: &Operator) {
    let (agent, guardian) = operator.both();
    let _stopped = Stopped::begin(agent);
    kill(&[guardian, agent]);
    until("they have ended", || {
        let (agent, guardian) = operator.processes();
        agent.is_empty() && guardian.is_empty()
    });
}

/// An agent that only watches.
struct Watching(Child);

impl Watching {
    fn start(operator: &Operator) -> Watching {
        let config = operator.folder.path().join("config.toml");
        std::fs::write(&config, "mode = \"observe\"\n").unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(["daemon", "--config", config.to_str().unwrap()])
            .args(["--socket", operator.socket().to_str().unwrap()])
            .spawn();
        Watching(child.unwrap())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whatever it will do itself, and wherever its socket is.
fn whoever_comes_next_undoes_it() {
    let all = everywhere();
    let (web, operator) = (begin("berth-test-web"), Operator::new());
    let other = Operator::new();
    let bound = || {
        operator.start();
        until("web has CPUs of its own", || !web.all_at(&all));
        kill_both(&operator);
        assert!(!web.all_at(&all), "nobody was left to undo it");
    };
    bound();
    let watching = Watching::start(&operator);
    until("one that only watches undoes it", || web.all_at(&all));
    drop(watching);
    if !is_root() {
        return;
    }
    bound();
    let watching = Watching::start(&other);
    until("one with another socket undoes it", || web.all_at(&all));
    drop(watching);
    bound();
    // Without a word of where it is.
    let restored = other.berth(&["restore"]);
    assert!(web.all_at(&all), "{restored:?}");
}

/// A group of version 1 for a VM, of each controller that is set.
struct Groups {
    name: String,
    made: Vec<PathBuf>,
}

impl Groups {
    fn make() -> Option<Groups> {
        let name = format!("berth-test-{}", std::process::id());
        let mut groups = Groups {
            name: name.clone(),
            made: Vec::new(),
        };
        for (controller, file) in [
            ("cpu", "cpu.cfs_quota_us"),
            ("cpuset", "cpuset.cpus"),
            ("freezer", "freezer.state"),
        ] {
            let above = Path::new("/sys/fs/cgroup").join(controller);
            if !above.join("tasks").exists() {
                return None;
            }
            let path = above.join(&name);
            std::fs::create_dir(&path).ok()?;
            groups.made.push(path.clone());
            for file in ["cpuset.mems", "cpuset.cpus"] {
                if let Ok(value) = std::fs::read(above.join(file)) {
                    std::fs::write(path.join(file), value).ok()?;
                }
            }
            path.join(file).exists().then_some(())?;
        }
        Some(groups)
    }

    fn put(&self, vm: &Vm) {
        for path in &self.made {
            std::fs::write(path.join("cgroup.procs"), vm.0.id().to_string()).unwrap();
        }
    }

    fn read(&self, controller: &str, file: &str) -> String {
        let path = Path::new("/sys/fs/cgroup")
            .join(controller)
            .join(&self.name);
        std::fs::read_to_string(path.join(file))
            .unwrap()
            .trim()
            .into()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in &self.made {
            let _ = std::fs::write(path.join("freezer.state"), "THAWED");
            until("its VM has left it", || std::fs::remove_dir(path).is_ok());
        }
    }
}

fn limits_by_cgroups_of_version_1(groups: &Groups) {
    let (vm, operator) = (begin("berth-test-hog"), Operator::new());
    groups.put(&vm);
    let quota = || groups.read("cpu", "cpu.cfs_quota_us");
    let before = (
        quota(),
        groups.read("cpu", "cpu.shares"),
        groups.read("cpuset", "cpuset.cpus"),
    );
    let start = |by: &str| {
        let by = format!("by={by}");
        let limit = ["--limit", "berth-test-hog=0.3", "--set", &by];
        let out = operator.agent("start", &[&["optimiser"], &limit[..]].concat());
        assert!(out.status.success(), "{out:?}");
    };
    start("sets,weights,caps");
    until("it is capped", || quota() == "30000");
    assert!(operator.agent("stop", &[]).status.success());
    let after = (
        quota(),
        groups.read("cpu", "cpu.shares"),
        groups.read("cpuset", "cpuset.cpus"),
    );
    assert_eq!(after, before);
    let state = || groups.read("freezer", "freezer.state");
    start("weights,freezing");
    until("it is frozen now and then", || state() == "FROZEN");
    until("and runs", || state() == "THAWED");
    assert_eq!(quota(), before.0);
    // Killed while it is frozen.
    let (agent, _) = operator.both();
    until("it is frozen again", || state() == "FROZEN");
    kill(&[agent]);
    until("the guardian has ended", || {
        operator.processes().1.is_empty()
    });
    assert_eq!(state(), "THAWED");
    // Its guardian, too: the next agent thaws it, which only watches.
    start("weights,freezing");
    until("it is frozen again", || state() == "FROZEN");
    let (agent, guardian) = operator.both();
    loop {
        let _stopped = Stopped::begin(agent);
        if state() == "FROZEN" {
            kill(&[guardian, agent]);
            break;
        }
        drop(_stopped);
        std::thread::sleep(Duration::from_millis(7));
    }
    until("they have ended", || {
        let (agent, guardian) = operator.processes();
        agent.is_empty() && guardian.is_empty()
    });
    assert_eq!(state(), "FROZEN");
    let watching = Watching::start(&operator);
    until("who comes next thaws it", || state() == "THAWED");
    drop(watching);
    // Somebody comes into its group: he is not frozen with it.
    start("weights,freezing");
    until("it is frozen now and then", || state() == "FROZEN");
    let stranger = Vm(Command::new("sleep").arg("100000").spawn().unwrap());
    let group = Path::new("/sys/fs/cgroup/freezer").join(&groups.name);
    until("he is in it", || {
        std::fs::write(group.join("cgroup.procs"), stranger.0.id().to_string()).is_ok()
    });
    until("it is said", || {
        text(&operator.agent("status", &[])).contains("holds other processes too")
    });
    for _ in 0..40 {
        assert_eq!(state(), "THAWED");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(stranger);
}
