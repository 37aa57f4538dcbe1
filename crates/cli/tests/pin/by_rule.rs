// SPDX-License-Identifier: GPL-2.0-only
//! Pins as rules of a daemon's configuration, beside the optimiser, with the operator's own hand on top; and an agent
//! that a second one finds there.
use super::{HUNG, Operator, Vm, everywhere, kill, name, text, until};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Daemon {
    child: Child,
    log: PathBuf,
    config: PathBuf,
}

impl Daemon {
    fn start(operator: &Operator, config: &str) -> Daemon {
        let folder = operator.folder.path();
        let (file, log) = (folder.join("config.toml"), folder.join("log"));
        std::fs::write(&file, config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(["daemon", "--config", file.to_str().unwrap()])
            .args(["--socket", operator.socket().to_str().unwrap()])
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let config = file;
        Daemon { child, log, config }
    }

    fn says(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Another configuration; waits until it has been read.
    fn reads(&self, config: &str) {
        let times = |log: String| {
            let read = log.matches("configuration read again").count();
            read + log.matches("the running configuration stays").count()
        };
        let before = times(self.says());
        std::fs::write(&self.config, config).unwrap();
        self.signal(libc::SIGHUP);
        until("it is read", || times(self.says()) > before);
    }

    /// Its exit status, when it has ended by itself.
    fn ended(&mut self) -> Option<i32> {
        let end = Instant::now() + HUNG;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rule(cpu: u32) -> String {
    format!(
        "mode = \"act\"\n[[pin]]\nname = \"{}\"\npolicy = \"paper\"\nmethod = \"taskset\"\ncpu = {cpu}\n",
        name()
    )
}

/// The same, and the optimiser, which would give the VM CPUs of its own.
fn beside_the_optimiser(cpu: u32) -> String {
    let promise = format!(
        "[[promise]]\nname = \"{}\"\nservice = \"target\"\nguarantee = 0.95\n",
        name()
    );
    rule(cpu).replacen('\n', "\npolicy = \"optimiser\"\n", 1) + &promise
}

fn stays(vm: &Vm, cpus: &str, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(vm.all_at(cpus), "{:?}", vm.threads());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The optimiser has bound all its threads alike; false: it has decided, and left them where they are, as it may where
/// others want all CPUs.
fn is_moved(vm: &Vm, all: &str) -> bool {
    let end = Instant::now() + 2 * DECIDED;
    while Instant::now() < end {
        let threads = vm.threads();
        if threads[0].1 != all && threads.iter().all(|t| t.1 == threads[0].1) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// The optimiser decides once a second: after so long it has.
const DECIDED: Duration = Duration::from_secs(4);

pub fn rules_pin_whoever_comes() {
    let all = everywhere();
    let operator = Operator::new();
    let mut daemon = Daemon::start(&operator, &beside_the_optimiser(1));
    until("it listens", || operator.socket().exists());
    let mut vm = Vm::start();
    until("the rule pins it", || vm.all_at("1"));
    stays(&vm, "1", DECIDED);
    vm.another_thread();
    until("it follows", || vm.all_at("1"));
    vm.another_thread_frees_itself(daemon.child.id() as i32);
    until("it is where its VM is", || vm.all_at("1"));
    let status = text(&operator.agent("status", &[]));
    assert!(
        status.contains(&format!("as the rule for {} says", name())),
        "{status}"
    );
    // By hand it is free, and the optimiser's again; the rule waits for the next reading.
    assert!(operator.agent("unpin", &[name()]).status.success());
    let status = text(&operator.agent("status", &[]));
    assert!(status.contains("unpinned by hand"), "{status}");
    let it = is_moved(&vm, &all);
    println!(
        "unpinned by hand, it is {}",
        if it { "the optimiser's" } else { "free" }
    );
    assert!(
        !text(&operator.agent("status", &[])).contains("as the rule for"),
        "it is not pinned again by itself"
    );
    daemon.reads(&beside_the_optimiser(0));
    until("it is pinned as the new rule says", || vm.all_at("0"));
    // What is wrong changes nothing, and is said with its place.
    for (wrong, said) in [
        (rule(4000), "config.toml:6: pin.cpu: there is no CPU 4000"),
        (rule(0) + "smt = 3\n", "config.toml:7: smt: true or false"),
        ("[[pin]]\n".into(), "config.toml:1: pin.name: missing"),
    ] {
        daemon.reads(&wrong);
        assert!(daemon.says().contains(said), "{}", daemon.says());
        let check = operator.berth(&[
            "daemon",
            "--check",
            "--config",
            daemon.config.to_str().unwrap(),
        ]);
        assert_eq!(check.status.code(), Some(2), "{check:?}");
        assert!(text(&check).contains(said), "{check:?}");
        assert!(vm.all_at("0"));
    }
    // By hand otherwise: the operator's, whatever is read.
    operator.pin(&["--policy", "paper", "--method", "taskset", "--cpu", "1"]);
    daemon.reads(&beside_the_optimiser(0));
    stays(&vm, "1", DECIDED);
    assert!(operator.agent("unpin", &["--all"]).status.success());
    let status = text(&operator.agent("status", &[]));
    assert!(status.contains("are not in force"), "{status}");
    daemon.reads(&beside_the_optimiser(0));
    until("it is pinned again", || vm.all_at("0"));
    // Watching only.
    daemon.reads(&beside_the_optimiser(0).replacen("act", "observe", 1));
    until("it is free", || vm.all_at(&all));
    daemon.reads(&rule(1));
    until("it is pinned, without a policy", || vm.all_at("1"));
    daemon.signal(libc::SIGTERM);
    assert_eq!(daemon.ended(), Some(0), "{}", daemon.says());
    assert!(
        vm.all_at(&all) && !operator.remembers(),
        "{}",
        daemon.says()
    );
}

pub fn rules_are_undone_when_it_is_killed() {
    let (all, vm, operator) = (everywhere(), Vm::start(), Operator::new());
    let daemon = Daemon::start(&operator, &rule(1));
    until("the rule pins it", || vm.all_at("1"));
    kill(&[operator.both().1]);
    until("without a guardian nothing stays", || vm.all_at(&all));
    stays(&vm, &all, Duration::from_secs(1));
    let status = text(&operator.agent("status", &[]));
    assert!(status.contains("their guardian has ended"), "{status}");
    daemon.reads(&rule(1));
    until("the rule pins it", || vm.all_at("1"));
    kill(&[operator.both().0]);
    until("the guardian undoes it", || vm.all_at(&all));
    until("and ends", || operator.processes().1.is_empty());
    assert!(!operator.remembers());
}

/// The process of `berth pin` is there when a daemon starts: at its own socket, or at another.
pub fn a_daemon_finds_one_that_is_pinned() {
    // SAFETY: only a number.
    if unsafe { libc::geteuid() } != 0 {
        return println!("without a second agent: one acts on a host, where it is root's");
    }
    let (vm, operator, other) = (Vm::start(), Operator::new(), Operator::new());
    operator.pin(&["--policy", "paper", "--method", "taskset", "--cpu", "0"]);
    let mut daemon = Daemon::start(&operator, &rule(1));
    assert_eq!(daemon.ended(), Some(2));
    assert!(daemon.says().contains("stop that one"), "{}", daemon.says());
    let mut daemon = Daemon::start(&other, &rule(1));
    assert_eq!(daemon.ended(), Some(2), "{}", daemon.says());
    assert!(
        daemon.says().contains("acts on this host"),
        "{}",
        daemon.says()
    );
    assert!(vm.all_at("0"), "{:?}", vm.threads());
    // The optimiser is started in the process that holds the pin, and goes around it.
    let target = format!("{}=0.95", name());
    let started = operator.agent("start", &["optimiser", "--target", &target]);
    assert!(started.status.success(), "{started:?}");
    stays(&vm, "0", DECIDED);
}

/// The optimiser has moved it, and it is pinned then: what is there after both is what was there before either.
pub fn what_the_optimiser_moved_is_pinned() {
    let (all, vm, operator) = (everywhere(), Vm::start(), Operator::new());
    let target = format!("{}=0.95", name());
    let out = operator.agent("start", &["optimiser", "--target", &target]);
    assert!(out.status.success(), "{out:?}");
    let moves = is_moved(&vm, &all);
    println!("the optimiser moved it: {moves}");
    let own = vm.threads()[0].1.clone();
    let pinned = if own == "0" { "1" } else { "0" };
    operator.pin(&["--policy", "paper", "--method", "taskset", "--cpu", pinned]);
    stays(&vm, pinned, DECIDED);
    assert!(operator.agent("unpin", &[name()]).status.success());
    assert!(is_moved(&vm, &all) || !moves || !vm.all_at(pinned));
    operator.pin(&["--policy", "paper", "--method", "taskset", "--cpu", pinned]);
    operator.agent("stop", &[]);
    assert!(vm.all_at(&all), "{:?}", vm.threads());
    assert!(!operator.remembers());
}
