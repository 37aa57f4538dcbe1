// SPDX-License-Identifier: GPL-2.0-only
//! `berth guest-agent` as a user inside a mixed VM runs it: real processes of two users, in a PID namespace of this
//! test's own, so that nobody else's are seen; ended, killed, dry. The processes sleep: what is light does not depend
//! on this machine's load.
//!
//! No harness: this program is also the first process of the namespace, and the processes.
use serde_json::Value;
use std::ffi::CString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

/// Ends what hangs; judges no speed.
const HUNG: Duration = Duration::from_secs(300);
/// Says what this process is.
const PART: &str = "BERTH_TEST_PART";
const USER: u32 = 12_345;
const OTHER: u32 = 12_346;

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    match std::env::var(PART).as_deref() {
        Ok("sleeper") => sleeper(),
        Ok("first") => return first(),
        Ok("outside") => return outside(),
        _ => {}
    }
    help_and_wrong_input();
    if allowed().len() < 2 {
        println!("skipped: this test wants two CPUs");
        return ExitCode::SUCCESS;
    }
    let mut command = this("outside");
    // SAFETY: a system call, between fork and exec.
    unsafe {
        command.pre_exec(
            || match libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => {
            println!("skipped: a PID namespace: {e}");
            ExitCode::SUCCESS
        }
    }
}

fn this(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(PART, part);
    command
}

/// The children of this one are in the namespace.
fn outside() -> ExitCode {
    match this("first").status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn mount(what: &str, at: &str, kind: Option<&str>, flags: libc::c_ulong) {
    let c = |text: &str| CString::new(text).unwrap();
    let (from, to, kind) = (c(what), c(at), kind.map(c));
    let kind = kind.as_ref().map_or(std::ptr::null(), |k| k.as_ptr());
    // SAFETY: C strings that outlive the call.
    let done = unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind, flags, std::ptr::null()) };
    assert_eq!(done, 0, "{at}: {}", std::io::Error::last_os_error());
}

/// The first process of the namespace.
fn first() -> ExitCode {
    mount("none", "/", None, libc::MS_REC | libc::MS_PRIVATE);
    mount("proc", "/proc", Some("proc"), 0);
    let whole = allowed();
    pin(0, &whole);
    dry_it_shows_and_sets_nothing();
    ended_everything_is_back();
    changed_meanwhile_it_is_left();
    killed_the_guardian_undoes_it();
    once_it_stays_until_restored();
    println!(
        "ok    processes were moved by a user and by root, left to others, and undone three ways"
    );
    ExitCode::SUCCESS
}

// --- processes

fn sleeper() -> ! {
    // SAFETY: who made this process has it ended with itself.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1000));
        }
    });
    println!("up");
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

struct Sleeper(Child);

impl Sleeper {
    fn of(uid: u32) -> Sleeper {
        let mut command = this("sleeper");
        let mut child = command
            .uid(uid)
            .gid(uid)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
        Sleeper(child)
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn threads(&self) -> Vec<i32> {
        let folder = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let name = |t: std::io::Result<std::fs::DirEntry>| t.unwrap().file_name();
        let mut all: Vec<i32> = folder
            .map(|t| name(t).to_str().unwrap().parse().unwrap())
            .collect();
        all.sort_unstable();
        all
    }

    /// The CPUs of each of its threads.
    fn cpus(&self) -> Vec<Vec<u32>> {
        self.threads().iter().map(|t| cpus(*t)).collect()
    }

    fn all_on(&self, on: &[u32]) -> bool {
        self.cpus() == [on, on]
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cpus(tid: i32) -> Vec<u32> {
    // SAFETY: all zeroes are an empty set; it outlives the calls, and CPU_ISSET checks its bounds.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(
            libc::sched_getaffinity(tid, size_of_val(&set), &raw mut set),
            0
        );
        (0..1024)
            .filter(|cpu| libc::CPU_ISSET(*cpu as usize, &set))
            .collect()
    }
}

fn pin(tid: i32, to: &[u32]) {
    // SAFETY: as above.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        to.iter()
            .for_each(|cpu| libc::CPU_SET(*cpu as usize, &mut set));
        assert_eq!(
            libc::sched_setaffinity(tid, size_of_val(&set), &raw const set),
            0
        );
    }
}

/// CPUs on which a process may run here, however this one is pinned.
fn allowed() -> Vec<u32> {
    let all: Vec<u32> = (0..1024).collect();
    let ask = std::thread::spawn(move || {
        pin(0, &all);
        cpus(0)
    });
    ask.join().unwrap()
}

/// CPUs that compute, and the reserved one.
fn sides() -> (Vec<u32>, Vec<u32>) {
    let mut compute = allowed();
    let reserved = vec![compute.pop().unwrap()];
    (compute, reserved)
}

fn wait_until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + HUNG;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// --- the agent

/// A folder that every user of this test may use.
fn folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

fn berth(uid: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    command.args(arguments).stdin(Stdio::null());
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    command
}

fn agent(uid: u32, state: &Path, more: &[&str]) -> Command {
    let mut command = berth(uid, &["guest-agent", "--period", "0.05", "--state"]);
    command.arg(state).args(more);
    command
}

fn status(output: &Output, status: i32) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let shown = text(&output.stdout);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{shown}{said}");
    shown + &said
}

struct Running {
    child: Child,
    folder: tempfile::TempDir,
    state: PathBuf,
}

impl Running {
    fn start(uid: u32) -> Running {
        let folder = folder();
        let state = folder.path().join("state");
        let child = agent(uid, &state, &[])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Running {
            child,
            folder,
            state,
        }
    }

    /// And the folder of its state, which is there until then: a guardian looks into it after the end.
    fn ends(self, signal: i32) -> (Output, tempfile::TempDir) {
        // SAFETY: two numbers.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
        (self.child.wait_with_output().unwrap(), self.folder)
    }
}

// --- tests

fn help_and_wrong_input() {
    let run = |arguments: &[&str]| berth(0, arguments).output().unwrap();
    let help = status(&run(&["guest-agent", "--help"]), 0);
    for word in [
        "--reserved <N|LIST>",
        "--dry-run",
        "--once",
        "Examples:",
        "Exit status:",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let whole = allowed().len();
    let dry = |more: &[&str]| status(&run(&[&["guest-agent", "--dry-run"], more].concat()), 2);
    let said = dry(&["--reserved", &whole.to_string()]);
    let why =
        format!("all of the {whole} CPUs would be reserved: leave at least one that computes");
    assert!(said.contains(&why), "{said}");
    assert!(dry(&["--reserved", "0"]).contains("no CPU would be reserved"));
    assert!(dry(&["--reserved", "1000,"]).contains("CPU 1000 is not there"));
    assert!(dry(&["--reserved", "many"]).contains("neither a number of CPUs"));
    assert!(dry(&["--unpinned", "x"]).contains("numbers and ranges"));
    if whole > 1 {
        let said = dry(&["--heavy", "4"]);
        assert!(
            said.contains("setting heavy is 0.04: give at least light"),
            "{said}"
        );
    }
    dry(&["--once"]);
}

fn dry_it_shows_and_sets_nothing() {
    let (own, others, pinned) = (Sleeper::of(USER), Sleeper::of(OTHER), Sleeper::of(USER));
    let (_, reserved) = sides();
    pin(pinned.pid(), &reserved);
    let before = [own.cpus(), others.cpus(), pinned.cpus()];
    let folder = folder();
    let state = folder.path().join("state");
    let output = agent(USER, &state, &["--dry-run", "--json"])
        .output()
        .unwrap();
    // Another user's is not permitted.
    status(&output, 1);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |s: &Sleeper| {
        let mut all = shown["processes"].as_array().unwrap().iter();
        all.find(|p| p["pid"] == s.pid()).unwrap()
    };
    assert_eq!(
        (&of(&own)["side"], &of(&own)["uid"]),
        (&"reserved".into(), &USER.into())
    );
    assert!(of(&own)["reason"]["light"]["periods"].as_u64() >= Some(3));
    assert_eq!(
        (&of(&others)["side"], &of(&others)["reason"]),
        (&Value::Null, &"denied".into())
    );
    assert_eq!(of(&pinned)["reason"], "pinned");
    let output = agent(USER, &state, &["--dry-run"]).output().unwrap();
    let table = status(&output, 1);
    assert!(
        table.contains("GOES TO") && table.contains("may not be moved by this user"),
        "{table}"
    );
    assert_eq!([own.cpus(), others.cpus(), pinned.cpus()], before);
    assert!(!state.exists());
    // Root may move all of them.
    status(&agent(0, &state, &["--dry-run"]).output().unwrap(), 0);
}

fn ended_everything_is_back() {
    let (whole, (_, reserved)) = (allowed(), sides());
    for (uid, signal, ends) in [(USER, libc::SIGTERM, 1), (0, libc::SIGINT, 0)] {
        let (own, others) = (Sleeper::of(USER), Sleeper::of(OTHER));
        let running = Running::start(uid);
        wait_until("the light one is moved", || own.all_on(&reserved));
        match uid {
            0 => wait_until("root moves all", || others.all_on(&reserved)),
            _ => assert!(others.all_on(&whole)),
        }
        // A second one would be in its way.
        let second = status(&agent(uid, &running.state, &[]).output().unwrap(), 2);
        assert!(second.contains("acts on this host"), "{second}");
        let state = running.state.join("changes/changes.json");
        assert!(state.exists());
        let (output, _folder) = running.ends(signal);
        let said = status(&output, ends);
        assert!(
            said.contains("have again the CPUs they had before"),
            "{said}"
        );
        assert!(
            said.contains(&format!("{} (", own.pid())) && said.contains("goes to reserved"),
            "{said}"
        );
        assert!(own.all_on(&whole) && others.all_on(&whole));
        assert!(!state.exists());
    }
}

fn changed_meanwhile_it_is_left() {
    let (whole, (compute, reserved)) = (allowed(), sides());
    let (kept, theirs) = (Sleeper::of(USER), Sleeper::of(USER));
    let running = Running::start(USER);
    wait_until("both are moved", || {
        kept.all_on(&reserved) && theirs.all_on(&reserved)
    });
    let thread = theirs.threads()[1];
    pin(thread, &compute);
    // Seen now or at the end: the other thread is back, this one is left.
    wait_until("it is let go", || {
        theirs.cpus() == [whole.clone(), compute.clone()]
    });
    let (output, _folder) = running.ends(libc::SIGTERM);
    let said = status(&output, 0);
    assert!(said.contains("changed by somebody else"), "{said}");
    assert!(kept.all_on(&whole));
    assert_eq!(theirs.cpus(), [whole, compute]);
}

fn killed_the_guardian_undoes_it() {
    let (whole, (_, reserved)) = (allowed(), sides());
    let own = Sleeper::of(USER);
    let running = Running::start(USER);
    wait_until("it is moved", || own.all_on(&reserved));
    let state = running.state.join("changes/changes.json");
    let (output, _folder) = running.ends(libc::SIGKILL);
    assert_eq!(output.status.code(), None);
    wait_until("it is put back", || own.all_on(&whole) && !state.exists());
}

fn once_it_stays_until_restored() {
    let (whole, (_, reserved)) = (allowed(), sides());
    let own = Sleeper::of(USER);
    let folder = folder();
    let state = folder.path().join("state");
    let shown = status(&agent(0, &state, &["--once"]).output().unwrap(), 0);
    assert!(shown.contains("IS ON") && own.all_on(&reserved), "{shown}");
    let changes = state.join("changes");
    let mut restore = berth(0, &["restore", "--state"]);
    let said = status(&restore.arg(&changes).output().unwrap(), 0);
    assert!(said.contains("put back"), "{said}");
    assert!(own.all_on(&whole));
}
