// SPDX-License-Identifier: GPL-2.0-only
//! The agent on real processes: their threads' real affinity is set, followed and put back. Who is looked at, what time
//! it is and what each has used is played, so that nothing depends on this machine's load and no other process is
//! touched.
//!
//! No harness: this program is also the processes.
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::live::Live;
use berth_actuator::{Acting, Error, Host, Knob};
use berth_guest_agent::look::affinity;
use berth_guest_agent::{Ended, Eyes, GuestAgent, Line, Look, Proc, Reading, Reserved, Round};
use berth_host::root::Root;
use berth_mixed::{Reason, Settings, Side};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::rc::Rc;
use std::time::Duration;

/// Marks a process of this test: who made it, and what it is told ("letters" or "nothing").
const KID: &str = "BERTH_TEST_KID";
const SECOND: u64 = 1_000_000_000;

type Cpus = BTreeSet<u32>;

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    if let Ok(parent) = std::env::var(KID) {
        kid(&parent);
    }
    let whole = Proc::new(Root::live()).whole().unwrap();
    if whole.len() < 2 {
        println!("skipped: this test wants two CPUs, and has {whole:?}");
        return ExitCode::SUCCESS;
    }
    // Its processes are born so.
    pin(0, &whole);
    let tests: [(&str, fn()); 12] = [
        ("moved and back", moved_and_back),
        ("threads and children", what_is_born_follows),
        ("born at the end", what_is_born_at_the_end_is_put_back),
        ("pinned by others", whoever_is_pinned_is_never_touched),
        ("changed by others", what_others_change_is_theirs),
        ("ended", whoever_has_ended_is_no_trouble),
        (
            "numbers used again",
            a_number_that_is_used_again_is_not_touched,
        ),
        ("not permitted", whoever_may_not_be_moved_is_told),
        ("dry", a_dry_run_sets_nothing),
        ("killed", what_a_killed_one_left_is_undone),
        ("another user", one_that_becomes_the_systems_is_put_back),
        ("names", names_are_harmless),
    ];
    for (name, test) in tests {
        test();
        println!("ok    {name}");
    }
    ExitCode::SUCCESS
}

// --- processes

/// Does what it is told, a letter at a time, and says when it has. What it starts itself is told nothing: it would take
/// letters that are meant for this one.
fn kid(parent: &str) -> ! {
    // SAFETY: who made this process has it ended with itself; it may have ended before this was said.
    let made_by = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::getppid()
    };
    let (maker, told) = parent.split_once(' ').unwrap();
    if made_by.to_string() != maker {
        std::process::exit(0);
    }
    if told == "nothing" {
        loop {
            std::thread::sleep(Duration::from_secs(1000));
        }
    }
    println!("up");
    let mut byte = [0];
    while io::stdin().read(&mut byte).is_ok_and(|n| n > 0) {
        match byte[0] {
            b't' => {
                std::thread::spawn(|| {
                    loop {
                        std::thread::sleep(Duration::from_secs(1000));
                    }
                });
                println!("done");
            }
            b'c' => println!(
                "{}",
                command("nothing")
                    .stdin(Stdio::null())
                    .spawn()
                    .unwrap()
                    .id()
            ),
            b'n' => {
                let name = CString::new(") R 1\n\x1b[31m").unwrap();
                // SAFETY: a C string that outlives the call.
                unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
                println!("done");
            }
            other => panic!("{other}"),
        }
    }
    std::process::exit(0)
}

fn command(told: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(KID, format!("{} {told}", std::process::id()));
    command.stdout(Stdio::null());
    command
}

struct Kid {
    child: Child,
    says: BufReader<ChildStdout>,
    told: ChildStdin,
}

impl Kid {
    fn start() -> Kid {
        let mut child = command("letters")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = child.stdin.take().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        Kid { child, says, told }
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn tell(&mut self, letter: u8) -> String {
        self.told.write_all(&[letter]).unwrap();
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim().to_string()
    }

    /// One more process, born of this one.
    fn child(&mut self) -> i32 {
        self.tell(b'c').parse().unwrap()
    }

    /// The CPUs of each of its threads.
    fn cpus(&self) -> Vec<Cpus> {
        threads(self.pid()).iter().map(|t| cpus(*t)).collect()
    }

    #[track_caller]
    fn is_on(&self, on: &Cpus) {
        let all = self.cpus();
        assert!(
            !all.is_empty() && all.iter().all(|c| c == on),
            "{all:?}, not {on:?}"
        );
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn threads(pid: i32) -> Vec<i32> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut all: Vec<i32> = folder
        .map(|t| t.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    all.sort_unstable();
    all
}

fn cpus(tid: i32) -> Cpus {
    affinity(tid).unwrap()
}

/// As somebody else would.
fn pin(tid: i32, to: &Cpus) {
    // SAFETY: all zeroes are an empty set, which outlives the calls; CPU_SET checks its bounds.
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

// --- what is played

#[derive(Default)]
struct Script {
    at_ns: u64,
    /// The processes that are looked at, with those that they have made.
    ours: BTreeSet<i32>,
    ran_ns: BTreeMap<i32, u64>,
    uids: BTreeMap<i32, u32>,
    denied: BTreeSet<i32>,
    /// Ended after it was looked at.
    ends: Option<i32>,
    /// Of which another process has the number now.
    stale: BTreeSet<i32>,
}

struct Played {
    real: Proc,
    script: Rc<RefCell<Script>>,
}

impl Eyes for Played {
    fn look(&mut self) -> io::Result<Look> {
        let mut look = self.real.look()?;
        let mut script = self.script.borrow_mut();
        look.at_ns = script.at_ns;
        // Parents come first.
        look.processes.retain_mut(|r: &mut Reading| {
            if script.ours.contains(&r.ppid) {
                script.ours.insert(r.pid);
            }
            r.uid = script.uids.get(&r.pid).copied().unwrap_or(1000);
            r.ran_ns = script.ran_ns.get(&r.pid).copied().unwrap_or(0);
            r.permitted = !script.denied.contains(&r.pid);
            if script.stale.contains(&r.pid) {
                r.start -= 1;
                r.threads.iter_mut().for_each(|(_, start)| *start -= 1);
            }
            script.ours.contains(&r.pid)
        });
        if let Some(pid) = script.ends.take() {
            // SAFETY: two numbers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            let gone =
                || std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|d| d.count() > 1);
            while gone() {
                std::thread::yield_now();
            }
            // SAFETY: a null pointer asks for no status.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
        Ok(look)
    }

    fn whole(&mut self) -> io::Result<Cpus> {
        self.real.whole()
    }

    fn affinity(&mut self, tid: i32) -> Option<Cpus> {
        self.real.affinity(tid)
    }

    fn cgroup(&mut self, _: &Reading) -> Option<String> {
        None
    }
}

/// This machine, on which nobody may set anything.
struct Denies(Live);

impl Host for Denies {
    fn read(&self, knob: &Knob) -> Result<String, Error> {
        self.0.read(knob)
    }

    fn write(&self, knob: &Knob, _: &str) -> Result<(), Error> {
        let (what, why) = (knob.to_string(), "Operation not permitted".into());
        Err(Error::Denied { what, why })
    }

    fn kin(&self, knob: &Knob) -> Vec<Knob> {
        self.0.kin(knob)
    }
}

fn acting<H: Host>(host: H, folder: &Path) -> Acting<H> {
    let ledger = Ledger::open(&folder.join("state"), &this_boot().unwrap()).unwrap();
    let (acting, report) = Acting::begin(host, ledger).unwrap();
    assert_eq!(report.complaints(), Vec::<String>::new());
    acting
}

/// An agent with what is played to it.
struct Stage<H: Host> {
    script: Rc<RefCell<Script>>,
    agent: GuestAgent<H, Played>,
    whole: Cpus,
    compute: Cpus,
    reserved: Cpus,
    folder: tempfile::TempDir,
}

impl Stage<Live> {
    fn new(kids: &[&Kid]) -> Stage<Live> {
        Stage::with(kids, Some(Live::new()))
    }
}

impl<H: Host> Stage<H> {
    fn with(kids: &[&Kid], host: Option<H>) -> Stage<H> {
        let script = Rc::new(RefCell::new(Script::default()));
        script.borrow_mut().ours = kids.iter().map(|k| k.pid()).collect();
        let eyes = Played {
            real: Proc::new(Root::live()),
            script: script.clone(),
        };
        let folder = tempfile::tempdir().unwrap();
        let hands = host.map(|host| acting(host, folder.path()));
        let settings = Settings::default();
        let mut agent = GuestAgent::new(settings, &Reserved::default(), None, eyes, hands).unwrap();
        let sides = agent.sides().unwrap();
        assert_eq!(sides.reserved.len(), 1);
        Stage {
            script,
            agent,
            whole: sides.whole,
            compute: sides.compute,
            reserved: sides.reserved,
            folder,
        }
    }

    /// A second passes in which these have used so many percent of a vCPU.
    fn second(&mut self, used: &[(&Kid, u64)]) -> Round {
        let mut script = self.script.borrow_mut();
        script.at_ns += SECOND;
        for (kid, percent) in used {
            *script.ran_ns.entry(kid.pid()).or_default() += percent * SECOND / 100;
        }
        drop(script);
        self.agent.round().unwrap()
    }

    /// They have used nothing for long enough.
    fn quiet(&mut self) -> Vec<Round> {
        (0..4).map(|_| self.second(&[])).collect()
    }

    fn line(&self, pid: i32) -> Line {
        let lines = self.agent.lines();
        lines
            .into_iter()
            .find(|l| l.pid == pid.cast_unsigned())
            .unwrap()
    }

    /// Ends it; nothing is remembered any more unless something was left undone.
    fn end(self) -> Ended {
        let ended = self.agent.end().unwrap();
        assert!(!Ledger::is_there(&self.folder.path().join("state")));
        ended
    }
}

fn moves(round: &Round) -> Vec<(i32, Side)> {
    let of = |m: &berth_guest_agent::Moved| (m.pid.cast_signed(), m.to);
    round.moved.iter().map(of).collect()
}

// --- tests

fn moved_and_back() {
    let (mut light, heavy, middling) = (Kid::start(), Kid::start(), Kid::start());
    light.tell(b't');
    let mut s = Stage::new(&[&light, &heavy, &middling]);
    let used = |a, b, c| [(&light, a), (&heavy, b), (&middling, c)];
    let started = s.second(&used(0, 0, 0));
    let all = |side| [&light, &heavy, &middling].map(|k| (k.pid(), side));
    assert_eq!(moves(&started), all(Side::Compute));
    for kid in [&light, &heavy, &middling] {
        kid.is_on(&s.compute);
    }
    for _ in 0..2 {
        assert_eq!(moves(&s.second(&used(1, 90, 10))), []);
    }
    let third = s.second(&used(1, 90, 10));
    assert_eq!(moves(&third), [(light.pid(), Side::Reserved)]);
    assert_eq!(
        third.moved[0].why,
        "used at most 1.0 % of a vCPU in each of 3 periods"
    );
    assert_eq!(light.cpus().len(), 2);
    light.is_on(&s.reserved);
    heavy.is_on(&s.compute);
    middling.is_on(&s.compute);
    assert_eq!(s.line(light.pid()).side, Some(Side::Reserved));
    // In between it stays; then it computes, but not for long enough.
    for percent in [10, 20, 30, 30] {
        assert_eq!(moves(&s.second(&used(percent, 90, 10))), []);
    }
    light.is_on(&s.reserved);
    let back = s.second(&used(30, 90, 10));
    assert_eq!(moves(&back), [(light.pid(), Side::Compute)]);
    light.is_on(&s.compute);
    middling.is_on(&s.compute);
    let whole = s.whole.clone();
    let ended = s.end();
    assert_eq!((ended.back, ended.left), (4, vec![]));
    for kid in [&light, &heavy, &middling] {
        kid.is_on(&whole);
    }
}

fn what_is_born_follows() {
    let mut kid = Kid::start();
    let mut s = Stage::new(&[&kid]);
    s.quiet();
    kid.is_on(&s.reserved);
    // A thread is born where its process is, and goes with it.
    kid.tell(b't');
    s.second(&[(&kid, 50)]);
    kid.is_on(&s.reserved);
    s.second(&[(&kid, 50)]);
    s.second(&[(&kid, 50)]);
    assert_eq!(kid.cpus().len(), 2);
    kid.is_on(&s.compute);
    for _ in 0..3 {
        s.second(&[]);
    }
    kid.is_on(&s.reserved);
    // A child starts where processes compute, and may come after.
    let child = kid.child();
    assert_eq!(cpus(child), s.reserved);
    assert_eq!(moves(&s.second(&[])), [(child, Side::Compute)]);
    assert_eq!(cpus(child), s.compute);
    // One of the system's is not kept where it was born.
    let system = kid.child();
    s.script.borrow_mut().uids.insert(system, 0);
    assert_eq!(cpus(system), s.reserved);
    assert_eq!(s.second(&[]).left, Vec::<String>::new());
    assert_eq!(cpus(system), s.whole);
    // Light for three periods, it goes where its parent is.
    s.second(&[]);
    assert_eq!(moves(&s.second(&[])), [(child, Side::Reserved)]);
    assert_eq!(cpus(child), s.reserved);
    let whole = s.whole.clone();
    assert_eq!(s.end().left, Vec::<String>::new());
    kid.is_on(&whole);
    assert_eq!((cpus(child), cpus(system)), (whole.clone(), whole));
}

fn what_is_born_at_the_end_is_put_back() {
    let mut kid = Kid::start();
    let mut s = Stage::new(&[&kid]);
    s.quiet();
    kid.tell(b't');
    let (child, system) = (kid.child(), kid.child());
    s.script.borrow_mut().uids.insert(system, 0);
    assert_eq!(
        [cpus(child), cpus(system)],
        [s.reserved.clone(), s.reserved.clone()]
    );
    let whole = s.whole.clone();
    assert_eq!(s.end().left, Vec::<String>::new());
    kid.is_on(&whole);
    assert_eq!([cpus(child), cpus(system)], [whole.clone(), whole]);
}

fn whoever_is_pinned_is_never_touched() {
    let (before, mut one_thread, later) = (Kid::start(), Kid::start(), Kid::start());
    one_thread.tell(b't');
    let mut s = Stage::new(&[&before, &one_thread]);
    pin(before.pid(), &s.reserved);
    let thread = threads(one_thread.pid())[1];
    pin(thread, &s.compute);
    let as_it_was = [before.cpus(), one_thread.cpus()];
    for round in s.quiet() {
        assert_eq!((moves(&round), round.left), (vec![], vec![]));
    }
    // It comes later, and has just what is reserved: it is not born of anybody who was moved.
    pin(later.pid(), &s.reserved);
    s.script.borrow_mut().ours.insert(later.pid());
    s.quiet();
    assert_eq!([before.cpus(), one_thread.cpus()], as_it_was);
    later.is_on(&s.reserved);
    for kid in [&before, &one_thread, &later] {
        assert_eq!(s.line(kid.pid()).reason, Reason::Pinned);
    }
    // Nobody pins it any more.
    pin(thread, &s.whole);
    assert_eq!(moves(&s.second(&[])), [(one_thread.pid(), Side::Compute)]);
    let whole = s.whole.clone();
    s.end();
    one_thread.is_on(&whole);
    assert_eq!(before.cpus(), as_it_was[0]);
}

fn what_others_change_is_theirs() {
    let (mut one, mut all, mut late) = (Kid::start(), Kid::start(), Kid::start());
    for kid in [&mut one, &mut all, &mut late] {
        kid.tell(b't');
    }
    let mut s = Stage::new(&[&one, &all, &late]);
    s.quiet();
    // A thread goes to the other side, a process everywhere.
    let thread = threads(one.pid())[1];
    pin(thread, &s.compute);
    for tid in threads(all.pid()) {
        pin(tid, &s.whole);
    }
    let round = s.second(&[]);
    assert_eq!(moves(&round), []);
    for kid in [&one, &all] {
        let said = |l: &&String| {
            l.starts_with(&format!("{} (", kid.pid())) && l.contains("changed by somebody else")
        };
        assert_eq!(
            round.left.iter().filter(said).count(),
            1,
            "{:?}",
            round.left
        );
        assert_eq!(s.line(kid.pid()).reason, Reason::Pinned);
    }
    // What nobody else has changed of it is put back at once, and it is left alone from now on.
    let theirs = [one.cpus(), all.cpus()];
    assert_eq!(theirs[0], [s.whole.clone(), s.compute.clone()]);
    for _ in 0..4 {
        assert_eq!(moves(&s.second(&[(&one, 90), (&all, 90)])), []);
    }
    assert_eq!([one.cpus(), all.cpus()], theirs);
    late.is_on(&s.reserved);
    // Changed after the last look: not undone, and said.
    let thread = threads(late.pid())[1];
    pin(thread, &s.compute);
    let (whole, compute) = (s.whole.clone(), s.compute.clone());
    let ended = s.end();
    assert_eq!(ended.left.len(), 1, "{ended:?}");
    assert!(
        ended.left[0].contains(&format!("thread {thread} was set to")),
        "{ended:?}"
    );
    assert_eq!(late.cpus(), [whole, compute]);
    assert_eq!([one.cpus(), all.cpus()], theirs);
}

fn whoever_has_ended_is_no_trouble() {
    let (first, then, stays) = (Kid::start(), Kid::start(), Kid::start());
    let mut s = Stage::new(&[&first, &then, &stays]);
    // It ends after it was looked at, and before it could be moved.
    s.script.borrow_mut().ends = Some(first.pid());
    let round = s.second(&[]);
    assert_eq!((round.left, round.gone), (vec![], vec![]));
    for _ in 0..2 {
        s.second(&[]);
    }
    s.script.borrow_mut().ends = Some(then.pid());
    let round = s.second(&[]);
    assert_eq!(round.left, Vec::<String>::new());
    // It was to be moved: said once, and not that it was.
    assert_eq!(moves(&round), [(stays.pid(), Side::Reserved)]);
    let [gone] = &round.gone[..] else {
        panic!("{:?}", round.gone);
    };
    let pid = then.pid();
    assert!(gone.starts_with(&format!("{pid} (")), "{gone}");
    assert!(
        gone.contains("ended before it could go to reserved"),
        "{gone}"
    );
    assert_eq!(s.second(&[]).gone, Vec::<String>::new());
    stays.is_on(&s.reserved);
    let lines: Vec<u32> = s.agent.lines().iter().map(|l| l.pid).collect();
    assert!(!lines.contains(&first.child.id()));
    s.second(&[]);
    assert_eq!(s.agent.lines().len(), 1);
    let whole = s.whole.clone();
    let ended = s.end();
    assert_eq!((ended.back, ended.left), (1, vec![]));
    stays.is_on(&whole);
}

fn a_number_that_is_used_again_is_not_touched() {
    let kid = Kid::start();
    let mut s = Stage::new(&[&kid]);
    // As if who was looked at had ended, and this one had its number.
    s.script.borrow_mut().stale.insert(kid.pid());
    for round in s.quiet() {
        assert_eq!((moves(&round), round.left), (vec![], vec![]));
        kid.is_on(&s.whole);
    }
    s.script.borrow_mut().stale.clear();
    s.quiet();
    kid.is_on(&s.reserved);
    // The other way round: who was moved is not seen any more, and its number is another one's, who is not moved.
    s.script.borrow_mut().stale.insert(kid.pid());
    for _ in 0..4 {
        assert_eq!(moves(&s.second(&[])), []);
        kid.is_on(&s.whole);
    }
}

fn whoever_may_not_be_moved_is_told() {
    let (own, others) = (Kid::start(), Kid::start());
    let mut s = Stage::new(&[&own, &others]);
    s.script.borrow_mut().denied.insert(others.pid());
    s.quiet();
    own.is_on(&s.reserved);
    others.is_on(&s.whole);
    let line = s.line(others.pid());
    assert_eq!((line.side, line.reason), (None, Reason::Denied));
    assert_eq!(line.why, "may not be moved by this user");
    s.end();
    // The kernel says no where nothing was to be expected.
    let mut s = Stage::with(&[&own], Some(Denies(Live::new())));
    let rounds = s.quiet();
    assert!(rounds.iter().all(|r| r.moved.is_empty()));
    assert_eq!(rounds.iter().map(|r| r.left.len()).sum::<usize>(), 1);
    own.is_on(&s.whole);
    assert_eq!(s.line(own.pid()).reason, Reason::Denied);
    s.end();
}

fn a_dry_run_sets_nothing() {
    let (kid, pinned) = (Kid::start(), Kid::start());
    let mut s: Stage<Live> = Stage::with(&[&kid, &pinned], None);
    pin(pinned.pid(), &s.reserved);
    let rounds = s.quiet();
    let all: Vec<_> = rounds.iter().flat_map(moves).collect();
    let pid = kid.pid();
    assert_eq!(all, [(pid, Side::Compute), (pid, Side::Reserved)]);
    kid.is_on(&s.whole);
    pinned.is_on(&s.reserved);
    assert_eq!(s.line(pinned.pid()).reason, Reason::Pinned);
    assert_eq!(s.end(), Ended::default());
}

fn what_a_killed_one_left_is_undone() {
    let kid = Kid::start();
    let mut s = Stage::new(&[&kid]);
    s.quiet();
    let (whole, reserved) = (s.whole.clone(), s.reserved.clone());
    let Stage { agent, folder, .. } = s;
    agent.leave();
    kid.is_on(&reserved);
    assert!(Ledger::is_there(&folder.path().join("state")));
    drop(acting(Live::new(), folder.path()));
    kid.is_on(&whole);
}

fn one_that_becomes_the_systems_is_put_back() {
    let kid = Kid::start();
    let mut s = Stage::new(&[&kid]);
    s.quiet();
    kid.is_on(&s.reserved);
    s.script.borrow_mut().uids.insert(kid.pid(), 0);
    let round = s.second(&[]);
    assert_eq!(round.left.len(), 1);
    assert!(
        round.left[0].contains("is the system's (user 0)"),
        "{round:?}"
    );
    kid.is_on(&s.whole);
    assert_eq!(s.end().back, 0);
}

fn names_are_harmless() {
    let mut kid = Kid::start();
    kid.tell(b'n');
    let mut s = Stage::new(&[&kid]);
    s.quiet();
    kid.is_on(&s.reserved);
    assert_eq!(s.line(kid.pid()).name, ") R 1\\n\\u{1b}[31m");
    let whole = s.whole.clone();
    s.end();
    kid.is_on(&whole);
}
