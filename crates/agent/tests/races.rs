// SPDX-License-Identifier: GPL-2.0-only
//! Processes that come and go while they are looked at, most of which look like VMs: never a wrong identity, no action
//! on who is no VM, and nothing is left of them. Where this user may make PID namespaces (root), every process is given
//! the number of one that has just ended, and all of it happens in a namespace of its own. `BERTH_RACES=10000` makes as
//! many; a test run has fewer.
//!
//! Each process writes down who it is in shared memory before it looks like anything, and its parent writes down whose
//! end it has seen. What a scan says is compared with that: a name goes with its process and its threads, and who had
//! ended before the scan began is not in it. The actions are that of partial mode, by another scheduling class, and
//! that of pins, by the CPU affinity; each process asks for both at its end.
//!
//! No harness: this program is also the processes.
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::live::Live;
use berth_actuator::{Acting, Knob};
use berth_agent::arrivals::Arrivals;
use berth_agent::backend::Trouble;
use berth_agent::backend::scx::partial::Partial;
use berth_agent::register::{Entry, Register, Sink, ThreadKey, VmKey};
use berth_host::discover::Scanner;
use berth_host::model::{Role as Found, Snapshot, Vm};
use berth_host::root::Root;
use berth_identity::{Class, ThreadRecord, VmId, VmRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Without `BERTH_RACES`.
const PROCESSES: usize = 1_500;
/// Processes at the same time.
const ALIVE: usize = 4;
/// Every so many is no VM.
const STRANGER: usize = 3;
/// The first number that is used again and again.
const FIRST_PID: i32 = 100;
/// Marks the process that makes the others; its value is the folder.
const FACTORY: &str = "BERTH_RACES_FACTORY";
const COUNT: &str = "BERTH_RACES";
/// Marks the one who watches from inside a namespace.
const INSIDE: &str = "BERTH_RACES_INSIDE";
/// The class that VMs' threads are given here; every kernel has it.
const CLASS: i32 = libc::SCHED_BATCH;
/// A stranger that is in this class is asked once more after so many looks: a number may change hands between the last
/// look and the system call, and is given back then.
const MEND: i32 = 3;
/// One of so many processes lives for [`SEEN`] looks, however long these take; the others for less than 6 ms.
const STAYS: usize = 8;
const SEEN: i32 = 8;
/// Room in the command line for a name.
const ROOM: usize = 200;

/// What a process says of itself: its numbers, and what its parent has seen of its end.
#[repr(C)]
#[derive(Default)]
struct Truth {
    pid: AtomicI32,
    vcpu: AtomicI32,
    ended: AtomicI32,
    /// How it was found in the class of VMs: [`TOUCHED`], or for longer than [`MEND`].
    touched: AtomicI32,
    /// The same for the CPUs of VMs.
    bound: AtomicI32,
}

/// The CPU that VMs are bound to.
const BOUND: &str = "0";

const TOUCHED: i32 = 1;
const STAYED: i32 = 2;

/// Shared by all: a truth for each process; behind them one whose `vcpu` says that it has begun, whose `ended` that all
/// is over, whose `pid` how many numbers there were, if they were used again, and whose `touched` how many looks there
/// were.
fn truths(folder: &Path, count: usize) -> io::Result<&'static [Truth]> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join("truth"))?;
    let bytes = (count + 1) * size_of::<Truth>();
    file.set_len(bytes as u64)?;
    // SAFETY: a new shared mapping of a file of this length, never unmapped; all of it is atomic numbers, for which
    // zero is a value.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let nowhere = std::ptr::null_mut();
        let file = file.as_raw_fd();
        let at = libc::mmap(nowhere, bytes, protection, libc::MAP_SHARED, file, 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(std::slice::from_raw_parts(at.cast::<Truth>(), count + 1))
    }
}

fn count() -> usize {
    let set = std::env::var(COUNT).ok();
    set.and_then(|n| n.parse().ok()).unwrap_or(PROCESSES)
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let done = match std::env::var_os(FACTORY) {
        Some(folder) => factory(Path::new(&folder)),
        None if std::env::var_os(INSIDE).is_some() => watch(true),
        None if namespaces().is_ok() => inside(),
        None => watch(false),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("FAIL  {why}");
            ExitCode::FAILURE
        }
    }
}

// --- who watches

/// A policy's maps.
#[derive(Default)]
struct Maps {
    vms: BTreeMap<u64, VmRecord>,
    threads: BTreeMap<u32, ThreadRecord>,
}

impl Sink for Maps {
    fn set_vm(&mut self, id: VmId, vm: &VmRecord) -> Result<(), Trouble> {
        self.vms.insert(id.key(), vm.clone());
        Ok(())
    }
    fn remove_vm(&mut self, id: VmId) -> Result<(), Trouble> {
        self.vms.remove(&id.key());
        Ok(())
    }
    fn set_thread(&mut self, tid: u32, thread: &ThreadRecord) -> Result<(), Trouble> {
        self.threads.insert(tid, thread.clone());
        Ok(())
    }
    fn remove_thread(&mut self, tid: u32) -> Result<(), Trouble> {
        self.threads.remove(&tid);
        Ok(())
    }
    fn identities_changed(&mut self) -> Result<(), Trouble> {
        Ok(())
    }
}

fn entry(vm: &Vm) -> Entry {
    let thread = |t: &berth_host::model::Thread| {
        let key = ThreadKey {
            tid: t.id.tid,
            start: t.id.start,
        };
        let record = ThreadRecord {
            role: t.role,
            io: false,
            score_milli: None,
        };
        (key, record)
    };
    Entry {
        key: VmKey {
            pid: vm.pid,
            start: vm.start,
        },
        name: vm.name.clone(),
        id: VmId::Process {
            pid: vm.pid.unsigned_abs(),
            start: vm.start,
        },
        class: Class::Batch,
        weight: 100,
        cap_milli: None,
        node: None,
        cgroup: None,
        vcpus: vm.vcpus,
        threads: vm.threads.iter().map(thread).collect(),
    }
}

/// The number of a VM that a scan found; what is wrong with what the scan says.
fn judge(vm: &Vm, truths: &[Truth], ended: &[bool]) -> Result<usize, String> {
    let number = vm.name.strip_prefix('v').and_then(|n| n.parse().ok());
    let Some(number) = number.filter(|n: &usize| *n < truths.len() - 1) else {
        return Err(format!("nobody is called {}", vm.name));
    };
    let truth = &truths[number];
    let pid = truth.pid.load(Ordering::SeqCst);
    let vcpu = truth.vcpu.load(Ordering::SeqCst);
    if number.is_multiple_of(STRANGER) {
        return Err(format!("{} is no VM", vm.name));
    }
    if ended[number] {
        return Err(format!(
            "{} had ended before the scan began: {vm:?}",
            vm.name
        ));
    }
    if vm.pid != pid {
        return Err(format!("{} is process {pid}, not {}", vm.name, vm.pid));
    }
    for thread in &vm.threads {
        let is = thread.id.tid;
        let fits = match thread.role {
            Found::Vcpu(index) => (is, index) == (vcpu, 0),
            _ => is == pid || is == vcpu,
        };
        if !fits {
            let name = &vm.name;
            return Err(format!("{name}: {thread:?}; its vCPU is thread {vcpu}"));
        }
    }
    Ok(number)
}

/// Namespaces for the children of this process: whatever happens, nothing is left behind.
fn namespaces() -> io::Result<()> {
    // SAFETY: C strings that outlive the calls. This program has one thread.
    unsafe {
        let nothing = std::ptr::null::<libc::c_char>();
        let how = libc::MS_REC | libc::MS_PRIVATE;
        if libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWPID) == 0
            && libc::mount(nothing, c"/".as_ptr(), nothing, how, std::ptr::null()) == 0
        {
            return Ok(());
        }
    }
    Err(io::Error::last_os_error())
}

/// Runs this program as the first process of the namespace.
fn inside() -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let status = Command::new(program).env(INSIDE, "1").status();
    match status.map_err(|e| e.to_string())? {
        status if status.success() => Ok(()),
        status => Err(format!("inside the namespace: {status}")),
    }
}

fn open_files() -> Result<usize, String> {
    let files = fs::read_dir("/proc/self/fd").map_err(|e| e.to_string())?;
    Ok(files.count())
}

fn watch(private: bool) -> Result<(), String> {
    let said = |e: io::Error| e.to_string();
    let program = std::env::current_exe().map_err(said)?;
    if private {
        mount_proc().map_err(said)?;
    }
    let folder = tempfile::tempdir().map_err(said)?;
    let count = count();
    let truths = truths(folder.path(), count).map_err(said)?;
    let mut making = Command::new(program);
    making
        .arg("x".repeat(ROOM))
        .env(FACTORY, folder.path())
        .env(COUNT, count.to_string());
    let files = open_files()?;
    let started = Instant::now();
    let mut made = making.spawn().map_err(said)?;
    let over = &truths[count];
    while over.vcpu.load(Ordering::SeqCst) == 0 {
        if made.try_wait().map_err(said)?.is_some() {
            return Err("the processes do not begin".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut seen = Seen::new(folder.path()).map_err(said)?;
    let mut result = Ok(());
    while over.ended.load(Ordering::SeqCst) == 0 && result.is_ok() {
        result = seen.look(truths, private);
    }
    if result.is_err() {
        let _ = made.kill();
    }
    let left = seen.scanner.scan().map_err(said)?.vms.len();
    let status = made.wait().map_err(said)?;
    result?;
    if !status.success() {
        return Err(format!("the processes: {status}"));
    }
    let Seen {
        mut register,
        mut maps,
        mut partial,
        mut arrivals,
        acting,
        scans,
        told,
        numbers,
        ..
    } = seen;
    register.update(&mut maps, &[]).map_err(|e| e.to_string())?;
    partial.give(&[]);
    arrivals.follow(&Snapshot::default());
    if !(register.is_empty() && maps.vms.is_empty() && maps.threads.is_empty())
        || partial.given() != 0
    {
        return Err("something is left of those that ended".into());
    }
    let report = acting.end().map_err(|e| e.to_string())?;
    let state = folder.path().join("state/changes.json");
    if private && report.complaints() != Vec::<String>::new() || state.exists() {
        return Err(format!("what was bound is remembered still: {report:?}"));
    }
    drop((arrivals, partial, seen.scanner));
    let now = open_files()?;
    if now != files {
        return Err(format!("{files} open files before, {now} after"));
    }
    let found = |stranger: bool, most: i32, how: &dyn Fn(&Truth) -> &AtomicI32| {
        let all = truths[..count].iter().enumerate();
        let of_kind = all.filter(|(n, _)| n.is_multiple_of(STRANGER) == stranger);
        let by = of_kind.filter(|(_, t)| how(t).load(Ordering::SeqCst) >= most);
        by.count()
    };
    let touched = |stranger, most| found(stranger, most, &|t| &t.touched);
    let bound = |stranger, most| found(stranger, most, &|t| &t.bound);
    if touched(true, STAYED) + bound(true, STAYED) != 0 {
        let number = touched(true, STAYED);
        return Err(format!(
            "{number} strangers were taken for threads of VMs, {} stayed bound",
            bound(true, STAYED)
        ));
    }
    if private && left != 0 {
        return Err(format!("{left} VMs that are not there"));
    }
    let vms = (0..count).filter(|n| !n.is_multiple_of(STRANGER)).count();
    let alive = numbers.len();
    if alive * 20 < vms {
        return Err(format!("only {alive} of {vms} VMs were seen at all"));
    }
    println!(
        "ok    {count} processes, {alive} of {vms} VMs seen alive in {scans} scans, {told} threads told, {} VMs acted \
         on, {} bound, {} and {} strangers for a moment, {} ({:.1} s)",
        touched(false, TOUCHED),
        bound(false, TOUCHED),
        touched(true, TOUCHED),
        bound(true, TOUCHED),
        match over.pid.load(Ordering::SeqCst) {
            0 => "numbers not used again: that takes root".to_string(),
            numbers => format!("{numbers} process ids in all"),
        },
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// What has been seen, and a policy that is told.
struct Seen {
    scanner: Scanner,
    register: Register,
    maps: Maps,
    partial: Partial,
    acting: Acting<Live>,
    given: BTreeSet<Knob>,
    arrivals: Arrivals,
    numbers: BTreeSet<usize>,
    scans: u32,
    told: usize,
}

impl Seen {
    fn new(folder: &Path) -> io::Result<Seen> {
        let boot = this_boot().map_err(io::Error::other)?;
        let ledger = Ledger::open(&folder.join("state"), &boot).map_err(io::Error::other)?;
        let (acting, _) = Acting::begin(Live::new(), ledger).map_err(io::Error::other)?;
        Ok(Seen {
            acting,
            given: BTreeSet::new(),
            scanner: Scanner::new(Root::live()),
            register: Register::default(),
            maps: Maps::default(),
            partial: Partial::with_class(Root::live(), CLASS),
            arrivals: Arrivals::new()?,
            numbers: BTreeSet::new(),
            scans: 0,
            told: 0,
        })
    }

    fn look(&mut self, truths: &[Truth], private: bool) -> Result<(), String> {
        let has_ended = |t: &Truth| t.ended.load(Ordering::SeqCst) != 0;
        let ended: Vec<bool> = truths.iter().map(has_ended).collect();
        let found = self.scanner.scan().map_err(|e| e.to_string())?;
        self.scans += 1;
        // On this machine's own /proc there may be VMs of others.
        let ours = |vm: &&std::sync::Arc<Vm>| private || vm.name.starts_with("v0");
        let mut entries = Vec::new();
        for vm in found.vms.iter().filter(ours) {
            self.numbers.insert(judge(vm, truths, &ended)?);
            entries.push(entry(vm));
        }
        self.partial.give(&entries.iter().collect::<Vec<_>>());
        self.bind(&entries)?;
        // The ends of others' VMs are nothing to wait for.
        if private {
            self.arrivals.follow(&found);
        }
        let changes = self.register.update(&mut self.maps, &entries);
        self.told += changes.map_err(|e| e.to_string())?.threads_added;
        let wanted: BTreeSet<u32> = entries
            .iter()
            .flat_map(|e| e.threads.keys().map(|k| k.tid.unsigned_abs()))
            .collect();
        truths[truths.len() - 1]
            .touched
            .fetch_add(1, Ordering::SeqCst);
        let known: BTreeSet<u32> = self.maps.threads.keys().copied().collect();
        match known == wanted && self.maps.vms.len() == entries.len() {
            true => Ok(()),
            false => Err(format!("the policy knows {known:?}, not {wanted:?}")),
        }
    }
}

impl Seen {
    /// Binds those that are there, and undoes it for those that are not any more.
    fn bind(&mut self, entries: &[Entry]) -> Result<(), String> {
        let knobs = entries.iter().flat_map(|e| {
            e.threads.keys().map(|t| Knob::Affinity {
                pid: e.key.pid,
                tid: t.tid,
                start: t.start,
            })
        });
        let now: BTreeSet<Knob> = knobs.collect();
        let gone: BTreeSet<Knob> = self.given.difference(&now).cloned().collect();
        if !gone.is_empty() {
            self.acting.undo(&gone).map_err(|e| e.to_string())?;
        }
        let new = now.difference(&self.given);
        let new: Vec<_> = new.map(|k| (k.clone(), BOUND.to_string())).collect();
        if !new.is_empty() {
            self.acting.set(&new).map_err(|e| e.to_string())?;
        }
        self.given = now;
        Ok(())
    }
}

// --- who is watched

fn factory(folder: &Path) -> Result<(), String> {
    let said = |e: io::Error| e.to_string();
    let truths = truths(folder, count()).map_err(said)?;
    let line = command_line().map_err(said)?;
    // SAFETY: the copy never returns from here; this process waits for it.
    let first = unsafe { libc::fork() };
    if first == 0 {
        let done = first_process(truths, &line);
        if let Err(e) = &done {
            eprintln!("the first process: {e}");
        }
        // SAFETY: ends the copy without anything of the process it was copied from.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let mut status = 0;
    // SAFETY: a child of this process and a number.
    unsafe { libc::waitpid(first, &mut status, 0) };
    match status {
        0 => Ok(()),
        _ => Err(format!("the first process ended with {status}")),
    }
}

/// Where this process's command line is in its memory.
struct Line {
    at: usize,
    room: usize,
}

fn command_line() -> io::Result<Line> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let number = |field: usize| -> io::Result<usize> {
        // The state is the third field.
        let text = rest.split(' ').nth(field - 3).unwrap_or("");
        text.trim().parse().map_err(io::Error::other)
    };
    let (start, end) = (number(48)?, number(49)?);
    Ok(Line {
        at: start,
        room: end.saturating_sub(start),
    })
}

impl Line {
    /// Writes another one; the first byte last, so that nobody reads half of it.
    fn write(&self, arguments: &str) {
        let bytes = arguments.as_bytes();
        assert!(bytes.len() < self.room, "{} bytes of room", self.room);
        let at = self.at as *mut u8;
        // SAFETY: the kernel says that this process's arguments are there; nothing else uses them any more.
        unsafe {
            at.write_volatile(0);
            for i in (1..self.room).rev() {
                let byte = bytes.get(i).copied().unwrap_or(0);
                at.add(i).write_volatile(byte);
            }
            at.write_volatile(bytes[0]);
        }
    }
}

fn call_me(name: &CStr) {
    // SAFETY: a C string that outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// That of this namespace.
fn mount_proc() -> io::Result<()> {
    let proc = c"proc".as_ptr();
    // SAFETY: C strings that outlive the call.
    match unsafe { libc::mount(proc, c"/proc".as_ptr(), proc, 0, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn first_process(truths: &'static [Truth], line: &Line) -> io::Result<()> {
    let over = truths.len() - 1;
    let mut reuses = std::env::var_os(INSIDE).is_some();
    let last_pid = Path::new("/proc/sys/kernel/ns_last_pid");
    truths[over].vcpu.store(1, Ordering::SeqCst);
    let mut alive: BTreeMap<i32, usize> = BTreeMap::new();
    let mut numbers = BTreeSet::new();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for number in 0..over {
        while alive.len() >= ALIVE {
            reap(&mut alive, truths)?;
        }
        // A kernel without checkpointing does not have it.
        reuses = reuses && fs::write(last_pid, format!("{}", FIRST_PID - 1)).is_ok();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let lives = match number % STAYS {
            1 => Lives::Looks(SEEN),
            _ => Lives::For(Duration::from_micros(random % 6000)),
        };
        // SAFETY: asks for a number.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the copy has one thread, and ends in `be`.
        let pid = unsafe { libc::fork() };
        match pid {
            0 => be(number, truths, line, lives, parent),
            1.. => {
                alive.insert(pid, number);
                numbers.insert(pid);
            }
            _ => return Err(io::Error::last_os_error()),
        }
    }
    while !alive.is_empty() {
        reap(&mut alive, truths)?;
    }
    if reuses {
        let numbers = i32::try_from(numbers.len()).unwrap_or(i32::MAX);
        truths[over].pid.store(numbers, Ordering::SeqCst);
    }
    truths[over].ended.store(1, Ordering::SeqCst);
    Ok(())
}

fn reap(alive: &mut BTreeMap<i32, usize>, truths: &[Truth]) -> io::Result<()> {
    // SAFETY: waits for any child; its status is not asked for.
    let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(number) = alive.remove(&pid) {
        truths[number].ended.store(1, Ordering::SeqCst);
    }
    Ok(())
}

/// How long a process is what it looks like.
#[derive(Clone, Copy)]
enum Lives {
    For(Duration),
    /// For so many looks of who watches.
    Looks(i32),
}

/// The life of one process.
fn be(number: usize, truths: &'static [Truth], line: &Line, lives: Lives, parent: i32) -> ! {
    let truth = &truths[number];
    let looks = || truths[truths.len() - 1].touched.load(Ordering::SeqCst);
    // Nobody looks any more once the parent has ended.
    let until_looks = move |more: i32| {
        let first = looks();
        // SAFETY: asks for a number.
        while looks() - first < more && unsafe { libc::getppid() } == parent {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // SAFETY: asks for a number.
    truth.pid.store(unsafe { libc::getpid() }, Ordering::SeqCst);
    let vm = !number.is_multiple_of(STRANGER);
    line.write(&match vm {
        true => format!("qemu-system-x86_64\0-name\0v{number:06}"),
        false => format!("stranger\0-name\0v{number:06}"),
    });
    call_me(if vm { c"qemu-system-x86" } else { c"stranger" });
    let thread = std::thread::spawn(move || {
        // SAFETY: asks for a number.
        truth
            .vcpu
            .store(unsafe { libc::gettid() }, Ordering::SeqCst);
        call_me(if vm { c"CPU 0/TCG" } else { c"worker" });
        match lives {
            Lives::For(time) => std::thread::sleep(time),
            Lives::Looks(more) => until_looks(more),
        }
    });
    let _ = thread.join();
    // SAFETY: asks for a number.
    let in_class = || unsafe { libc::sched_getscheduler(0) } == CLASS;
    if in_class() {
        truth.touched.store(TOUCHED, Ordering::SeqCst);
        if !vm {
            until_looks(MEND);
            if in_class() {
                truth.touched.store(STAYED, Ordering::SeqCst);
            }
        }
    }
    if is_bound() {
        truth.bound.store(TOUCHED, Ordering::SeqCst);
        if !vm {
            until_looks(MEND);
            if is_bound() {
                truth.bound.store(STAYED, Ordering::SeqCst);
            }
        }
    }
    // SAFETY: ends the copy without anything of the process it was copied from.
    unsafe { libc::_exit(0) }
}

/// Whether this thread may run on one CPU only, on a machine that has several.
fn is_bound() -> bool {
    // SAFETY: all zeroes are an empty set; it outlives the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        libc::CPU_COUNT(&set) == 1 && libc::sysconf(libc::_SC_NPROCESSORS_ONLN) > 1
    }
}
