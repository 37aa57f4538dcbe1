// SPDX-License-Identifier: GPL-2.0-only
//! `berth pin` as an operator uses it: a real process that looks like a VM, which holds a real tap on a real bridge, in
//! a network namespace of this test's own; the kernel's own affinity, CPU sets and queues; agents that are really
//! killed.
//!
//! No harness: this program is also the VM.
mod acting;
#[path = "pin/by_rule.rs"]
mod by_rule;
#[path = "pin/denied.rs"]
mod denied;
#[path = "acting/nobody.rs"]
mod nobody;
#[path = "acting/tap.rs"]
mod tap;
#[path = "acting/vm.rs"]
mod vm;

use acting::{HUNG, Stopped, cpus, everywhere, kill, text, until};
use serde_json::Value;
use std::ffi::CString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};
use vm::{VM, Vm, call_me, idle};

/// Its name: other runs of this test may have VMs at the same time.
fn name() -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| format!("berth-test-pinned-{}", std::process::id()))
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    if let Some(mark) = std::env::var_os(VM) {
        vm(mark == denied::OF_NOBODY);
    }
    let (allowed, online) = cpus();
    if online < 2 || allowed < online {
        println!("skipped: this test wants all CPUs of a host of at least two");
        return ExitCode::SUCCESS;
    }
    let network = match network() {
        Ok(()) => true,
        Err(why) => {
            println!("without a network: {why}");
            false
        }
    };
    wrong_input_sets_nothing();
    pins_and_unpins(network);
    leaves_to_others_what_they_set();
    denied::what_a_user_may_not_set_is_left_and_said(network);
    killed_it_is_undone();
    the_optimiser_goes_around_it();
    by_rule::what_the_optimiser_moved_is_pinned();
    by_rule::rules_pin_whoever_comes();
    by_rule::rules_are_undone_when_it_is_killed();
    by_rule::a_daemon_finds_one_that_is_pinned();
    by_a_cgroup();
    let path = if network { "and queues of a tap" } else { "" };
    println!("ok    threads {path} were pinned, followed, left to others, and undone five ways");
    ExitCode::SUCCESS
}

// --- a network of one's own

fn mount(what: &str, at: &str, kind: Option<&str>, flags: libc::c_ulong) -> Result<(), String> {
    let c = |text: &str| CString::new(text).unwrap();
    let (from, to, kind) = (c(what), c(at), kind.map(c));
    let kind = kind.as_ref().map_or(std::ptr::null(), |k| k.as_ptr());
    // SAFETY: C strings that outlive the call.
    let done = unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind, flags, std::ptr::null()) };
    match done {
        0 => Ok(()),
        _ => Err(format!("{at}: {}", std::io::Error::last_os_error())),
    }
}

fn ip(line: &str) -> Result<(), String> {
    let done = Command::new("ip").args(line.split(' ')).status();
    match done.map_err(|e| format!("ip: {e}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("ip {line}: {status}")),
    }
}

/// From here on this process and its children are in a network namespace that `/sys` shows, with a bridge that has one
/// end of a veth as its way out.
fn network() -> Result<(), String> {
    File::options()
        .write(true)
        .open("/dev/net/tun")
        .map_err(|e| format!("/dev/net/tun: {e}"))?;
    // SAFETY: this program has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) } != 0 {
        return Err(format!(
            "a network namespace: {}",
            std::io::Error::last_os_error()
        ));
    }
    mount("none", "/", None, libc::MS_REC | libc::MS_PRIVATE)?;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?.keep();
    let groups = folder.join("groups");
    std::fs::create_dir(&groups).map_err(|e| e.to_string())?;
    let groups = groups.display().to_string();
    mount(
        "/sys/fs/cgroup",
        &groups,
        None,
        libc::MS_BIND | libc::MS_REC,
    )?;
    mount("sysfs", "/sys", Some("sysfs"), 0)?;
    // One process on a host may pin: this is a host of its own.
    mount("tmpfs", "/run", Some("tmpfs"), 0)?;
    mount(
        &groups,
        "/sys/fs/cgroup",
        None,
        libc::MS_BIND | libc::MS_REC,
    )?;
    ip("link add brx type bridge")?;
    ip("link add vethx type veth peer name vethy")?;
    ip("link set vethx master brx")
}

/// The tap, a port of the bridge; none: there is no network.
fn tap() -> Option<File> {
    tap::tap().filter(|_| ip("link set tapx master brx").is_ok())
}

// --- a VM

/// One vCPU that sleeps; another thread for each byte that comes, [`FREE`] for one that frees itself first.
fn vm(of_nobody: bool) -> ! {
    let _tap = match Path::new("/sys/class/net/brx").exists() {
        true => tap(),
        false => None,
    };
    if of_nobody {
        denied::become_nobody();
    }
    vm::look_like_one(|| idle());
    let mut byte = [0];
    while std::io::Read::read(&mut std::io::stdin(), &mut byte).is_ok_and(|n| n > 0) {
        std::thread::spawn(move || {
            call_me("worker");
            if byte[0] == FREE {
                free_myself();
            }
            idle()
        });
    }
    std::process::exit(0)
}

const FREE: u8 = b'f';

fn free_myself() {
    // SAFETY: all zeroes are an empty set; it outlives the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

impl Vm {
    fn start() -> Vm {
        Vm::begin(name(), "1")
    }

    /// Another thread, which is free before the agent can see it: it is born with the mask of who makes it.
    fn another_thread_frees_itself(&mut self, agent: i32) {
        let all = everywhere();
        let _stopped = Stopped::begin(agent);
        assert!(self.threads().iter().all(|t| t.1 != all));
        std::io::Write::write_all(self.0.stdin.as_mut().unwrap(), &[FREE]).unwrap();
        until("it has freed itself", || {
            self.threads().iter().any(|t| t.1 == all)
        });
    }

    fn cpuset(&self) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/cgroup", self.0.id())).unwrap();
        let line = text.lines().find(|l| l.contains(":cpuset:"));
        line.map_or(String::new(), |l| l.rsplit(':').next().unwrap_or("").into())
    }
}

// --- an operator

struct Operator {
    folder: tempfile::TempDir,
    /// Where `berth` is that somebody begins who has no rights; none: with this test's own rights.
    nobodys: Option<PathBuf>,
}

impl Operator {
    fn new() -> Operator {
        Operator {
            folder: tempfile::tempdir().unwrap(),
            nobodys: None,
        }
    }

    fn nobody() -> Operator {
        let mut operator = Operator::new();
        operator.nobodys = Some(nobody::berth_for_nobody(operator.folder.path()));
        operator
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s.sock")
    }

    fn state(&self) -> String {
        self.folder.path().join("pins").display().to_string()
    }

    fn berth(&self, arguments: &[&str]) -> Output {
        let mut command = match &self.nobodys {
            None => Command::new(env!("CARGO_BIN_EXE_berth")),
            Some(program) => Command::new(program),
        };
        if self.nobodys.is_some() {
            nobody::as_nobody(&mut command);
        }
        command.args(arguments).output().unwrap()
    }

    fn agent(&self, verb: &str, more: &[&str]) -> Output {
        let socket = self.socket();
        self.berth(&[&[verb], more, &["--socket", socket.to_str().unwrap()]].concat())
    }

    fn pin(&self, more: &[&str]) -> Value {
        let out = self.agent("pin", &[&[name(), "--json"], more].concat());
        assert!(out.status.success(), "{out:?}");
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// The agent's process and its guardian's.
    fn processes(&self) -> (Vec<i32>, Vec<i32>) {
        acting::processes(&self.socket(), &self.state())
    }

    /// One of each.
    fn both(&self) -> (i32, i32) {
        acting::both(&self.socket(), &self.state())
    }

    fn restore(&self) -> Output {
        self.berth(&["restore", "--state", &self.state()])
    }

    fn remembers(&self) -> bool {
        Path::new(&self.state()).join("changes.json").exists()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.agent("stop", &[]);
    }
}

/// Masks of the path's receive queues.
fn queues() -> Vec<String> {
    let read =
        |device| std::fs::read_to_string(format!("/sys/class/net/{device}/queues/rx-0/rps_cpus"));
    ["tapx", "vethx"]
        .into_iter()
        .filter_map(|d| read(d).ok())
        .collect()
}

fn wrong_input_sets_nothing() {
    let (vm, operator) = (Vm::start(), Operator::new());
    let all = everywhere();
    for (arguments, status, words) in [
        (&[&name()[1..]][..], 2, "did you mean `berth-test-pinned-"),
        (&[name(), "--cpu", "4000"], 2, "no CPU 4000"),
        (&[name(), "--policy", "fast"], 2, "one of none, paper"),
        (&[name(), "--method", "magic"], 2, "one of taskset"),
    ] {
        let out = operator.agent("pin", arguments);
        assert_eq!(out.status.code(), Some(status), "{arguments:?} {out:?}");
        assert!(text(&out).contains(words), "{arguments:?} {}", text(&out));
    }
    assert!(vm.all_at(&all) && !operator.remembers());
    until("no agent stays for nothing", || {
        operator.processes().0.is_empty()
    });
    let nothing = operator.agent("unpin", &[name()]);
    assert!(
        nothing.status.success() && text(&nothing).contains("nothing to undo"),
        "{nothing:?}"
    );
    let plan = operator.berth(&["plan", name(), "--json", "--over", "0.5"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert!(
        !plan["vms"][0]["values"].as_array().unwrap().is_empty(),
        "{plan}"
    );
    assert!(vm.all_at(&all), "it is only said");
}

fn pins_and_unpins(network: bool) {
    let (mut vm, operator) = (Vm::start(), Operator::new());
    let (all, before) = (everywhere(), queues());
    let dry = operator.berth(&["pin", name(), "--policy", "full", "--dry-run"]);
    assert!(dry.status.success() && vm.all_at(&all), "{dry:?}");
    if network {
        assert!(text(&dry).contains("tapx > brx > vethx"), "{}", text(&dry));
    }
    let pinned = operator.pin(&["--policy", "full", "--method", "taskset", "--cpu", "1"]);
    assert_eq!(pinned["seat"]["vcpus"], serde_json::json!([1]), "{pinned}");
    assert!(vm.all_at("1"), "{:?}", vm.threads());
    if network {
        assert_eq!(before.len(), 2);
        assert!(
            queues()
                .iter()
                .all(|q| q.trim().trim_start_matches(['0', ',']) == "2"),
            "{:?}",
            queues()
        );
    }
    // The agent is asked: it knows what is pinned.
    let how = ["--policy", "full", "--cpu", "1"];
    let plan = operator.agent("plan", &[&[name(), "--json"], &how[..]].concat());
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let planned = &plan["vms"][0]["pinned"];
    assert_eq!(planned["why"], "it stays where it is", "{plan}");
    let dry = operator.agent("pin", &[name(), "--cpu", "0", "--dry-run"]);
    assert!(text(&dry).contains("CPU 0 as asked"), "{}", text(&dry));
    assert!(vm.all_at("1"), "{:?}", vm.threads());
    // Once more, and otherwise.
    operator.pin(&["--policy", "full", "--method", "taskset", "--cpu", "1"]);
    operator.pin(&["--policy", "paper", "--method", "taskset", "--cpu", "0"]);
    assert!(vm.all_at("0"), "{:?}", vm.threads());
    assert_eq!(queues(), before, "the paper's leaves queues alone");
    operator.pin(&["--policy", "full", "--method", "taskset", "--cpu", "1"]);
    vm.another_thread();
    assert!(vm.all_at("1"));
    vm.another_thread_frees_itself(operator.both().0);
    until("it is where its VM is", || vm.all_at("1"));
    let status = text(&operator.agent("status", &[]));
    assert!(
        status.contains("has its whole path on CPU 1") && !status.contains("somebody else"),
        "{status}"
    );
    let unpinned = operator.agent("unpin", &[name()]);
    assert!(unpinned.status.success(), "{unpinned:?}");
    assert!(vm.all_at(&all), "{:?}", vm.threads());
    assert_eq!(queues(), before);
    assert!(!operator.remembers());
    until("the agent ends with its last pin", || {
        operator.processes().0.is_empty()
    });
    // By berth stop.
    operator.pin(&["--policy", "full", "--method", "taskset"]);
    let stopped = operator.agent("stop", &[]);
    assert!(
        stopped.status.success() && text(&stopped).contains("1 pinned VMs are what they were"),
        "{stopped:?}"
    );
    assert!(vm.all_at(&all) && queues() == before);
    // By the VM's end.
    until("the agent ends", || operator.processes().0.is_empty());
    operator.pin(&["--policy", "full", "--method", "taskset"]);
    drop(vm);
    until("nothing is left of a VM that has ended", || {
        !operator.remembers() && operator.processes().0.is_empty()
    });
}

fn leaves_to_others_what_they_set() {
    let (vm, operator) = (Vm::start(), Operator::new());
    let all = everywhere();
    operator.pin(&["--policy", "paper", "--method", "taskset", "--cpu", "0"]);
    let other = vm
        .threads()
        .into_iter()
        .find(|t| t.0 != vm.0.id() as i32)
        .unwrap()
        .0;
    // SAFETY: all zeroes are an empty set; it outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(1, &mut set);
        assert_eq!(
            libc::sched_setaffinity(other, size_of_val(&set), &raw const set),
            0
        );
    }
    until("it is said", || {
        text(&operator.agent("status", &[])).contains("by somebody else")
    });
    operator.agent("unpin", &[name()]);
    let left = vm.threads();
    assert!(
        left.iter()
            .all(|t| t.1 == if t.0 == other { "1" } else { &all }),
        "{left:?}"
    );
}

fn killed_it_is_undone() {
    let (mut vm, operator) = (Vm::start(), Operator::new());
    let (all, before) = (everywhere(), queues());
    operator.pin(&["--policy", "full", "--method", "taskset", "--cpu", "1"]);
    kill(&[operator.both().0]);
    until("the guardian undoes it", || {
        vm.all_at(&all) && queues() == before
    });
    until("and ends", || operator.processes().1.is_empty());
    // Without one the agent undoes it by itself.
    operator.pin(&["--policy", "full", "--method", "taskset", "--cpu", "1"]);
    kill(&[operator.both().1]);
    until("the agent undoes it", || {
        vm.all_at(&all) && queues() == before
    });
    until("and ends", || operator.processes().0.is_empty());
    // Both: by hand, with a thread that was born since.
    operator.pin(&["--policy", "full", "--method", "taskset", "--cpu", "1"]);
    let (agent, guardian) = operator.both();
    kill(&[guardian, agent]);
    vm.another_thread();
    until("they have ended", || {
        operator.processes().0.is_empty() && operator.processes().1.is_empty()
    });
    if operator.remembers() {
        let restored = operator.restore();
        assert!(restored.status.success(), "{restored:?}");
    }
    assert!(
        vm.all_at(&all) && queues() == before,
        "{:?} {:?}",
        vm.threads(),
        queues()
    );
    assert!(!operator.remembers());
}

fn the_optimiser_goes_around_it() {
    let (vm, operator) = (Vm::start(), Operator::new());
    let all = everywhere();
    let target = format!("{}=0.95", name());
    let out = operator.agent("start", &["optimiser", "--target", &target]);
    if !out.status.success() {
        println!("without the optimiser: {}", text(&out));
        return;
    }
    operator.pin(&["--policy", "paper", "--method", "taskset", "--cpu", "0"]);
    // It decides once a second.
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        assert!(vm.all_at("0"), "{:?}", vm.threads());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(operator.agent("unpin", &[name()]).status.success());
    operator.agent("stop", &[]);
    assert!(vm.all_at(&all), "{:?}", vm.threads());
}

fn by_a_cgroup() {
    let (vm, operator) = (Vm::start(), Operator::new());
    let (all, home) = (everywhere(), vm.cpuset());
    let out = operator.agent(
        "pin",
        &[
            name(),
            "--policy",
            "paper",
            "--method",
            "cgroup",
            "--cpu",
            "1",
            "--json",
        ],
    );
    if out.status.code() == Some(2) {
        assert!(text(&out).contains("--method taskset"), "{out:?}");
        println!("without CPU sets: {}", text(&out).trim());
        return;
    }
    assert!(out.status.success(), "{out:?}");
    assert!(vm.all_at("1"), "{:?}", vm.threads());
    assert_ne!(vm.cpuset(), home);
    let (agent, guardian) = operator.both();
    kill(&[guardian, agent]);
    until("they have ended", || {
        operator.processes().0.is_empty() && operator.processes().1.is_empty()
    });
    let restored = operator.restore();
    assert!(restored.status.success(), "{restored:?}");
    assert!(
        vm.all_at(&all) && vm.cpuset() == home,
        "{:?} {}",
        vm.threads(),
        vm.cpuset()
    );
    let made = format!("/sys/fs/cgroup/cpuset/berth-{}-", vm.0.id());
    let left = std::fs::read_dir("/sys/fs/cgroup/cpuset").unwrap();
    assert!(
        !left
            .flatten()
            .any(|e| e.path().display().to_string().starts_with(&made))
    );
}
