// SPDX-License-Identifier: GPL-2.0-only
//! The real-kernel side: the cast as threads, the recorder loaded into the running kernel.
use crate::cgroups;
use crate::log::{ENTRY_BYTES, Entry, Log, REFUSED};
use crate::recorder;
use crate::row::{Actor, Do, Row};
use berth_scx::{LoadOptions, Loaded, ScxError, Value};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

const SCHED_EXT: i32 = 7;

/// Why a row could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{row}: the recorder cannot be loaded: {source}")]
    Load { row: &'static str, source: ScxError },
    #[error("{row}: {what}: {source}")]
    System {
        row: &'static str,
        what: &'static str,
        source: io::Error,
    },
    #[error("{row}: no {needed} of {tries} recordings agree; the last two differ: {why}")]
    Unstable {
        row: &'static str,
        needed: usize,
        tries: usize,
        why: String,
    },
    #[error("{row}: needs the machine {needed} (cores x threads)")]
    Machine { row: &'static str, needed: String },
}

fn now_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn sleep_us(us: u64) {
    let t = libc::timespec {
        tv_sec: (us / 1_000_000) as i64,
        tv_nsec: (us % 1_000_000 * 1000) as i64,
    };
    // SAFETY: `t` is a valid timespec; the time left is not asked for.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &t, std::ptr::null_mut()) };
}

fn check(rc: i32) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// CPUs of a thread (0 = the calling one); an empty list means all.
fn set_affinity(tid: i32, cpus: &[u32]) -> io::Result<()> {
    let mask = if cpus.is_empty() {
        u64::MAX
    } else {
        cpus.iter().fold(0, |m, c| m | 1u64 << c)
    };
    // SAFETY: one word, as its size says. Raw, so that libc adds no call of its own.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, 8usize, &mask) }.min(0) as i32)
}

fn set_ext(ext: bool) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` is valid.
    check(unsafe {
        libc::sched_setscheduler(0, if ext { SCHED_EXT } else { libc::SCHED_OTHER }, &param)
    })
}

fn set_online(cpu: u32, online: bool) -> io::Result<()> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    std::fs::write(file, if online { "1" } else { "0" })
}

fn set_name(name: &str) {
    let mut bytes = [0u8; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: a text that ends with zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

/// A semaphore: threads of the cast wake each other through it, and do nothing else.
#[derive(Debug, Default)]
struct Semaphore(AtomicU32);

impl Semaphore {
    fn wait(&self) {
        loop {
            let n = self.0.load(Ordering::Acquire);
            if n > 0
                && self
                    .0
                    .compare_exchange(n, n - 1, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            // SAFETY: waits on a word that outlives the call.
            unsafe {
                let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(
                    libc::SYS_futex,
                    self.0.as_ptr(),
                    op,
                    0,
                    std::ptr::null::<libc::timespec>(),
                );
            }
        }
    }

    fn post(&self) {
        self.0.fetch_add(1, Ordering::Release);
        // SAFETY: only the address is used.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }
}

/// Waits for the end of a thread, as joining one does.
fn join(alive: &AtomicU32) {
    while alive.load(Ordering::Acquire) == 1 {
        // SAFETY: waits on a word that outlives the call; not private, because the kernel's wake is not.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                alive.as_ptr(),
                libc::FUTEX_WAIT,
                1,
                std::ptr::null::<libc::timespec>(),
            );
        }
    }
}

/// Iterations of the burn loop per microsecond.
#[derive(Clone, Copy, Debug)]
pub struct Speed(u64);

fn spin(iterations: u64) {
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..iterations {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    std::hint::black_box(x);
}

impl Speed {
    /// The fastest of several tries.
    pub fn measure() -> Speed {
        let mut best = 1;
        for _ in 0..20 {
            let (start, n) = (now_ns(), 100_000);
            spin(n);
            best = best.max(n * 1000 / (now_ns() - start).max(1));
        }
        Speed(best)
    }
}

struct Stage {
    semaphores: BTreeMap<char, Semaphore>,
    cast: BTreeMap<char, Actor>,
    tids: BTreeMap<char, AtomicI32>,
    /// 1 until the thread has begun to exit: the kernel writes 0 there and wakes who waits.
    alive: BTreeMap<char, AtomicU32>,
    speed: Speed,
    /// Threads that are set up.
    ready: AtomicU32,
    failed: AtomicI32,
    curtain: AtomicU32,
}

impl Stage {
    fn fail(&self, e: &io::Error) {
        self.failed
            .store(e.raw_os_error().unwrap_or(libc::EINVAL), Ordering::Release);
    }

    fn play(self: &Arc<Stage>, actor: &Actor) {
        for step in &actor.steps {
            let done = match step {
                Do::Burn(us) => {
                    spin(us * self.speed.0);
                    Ok(())
                }
                Do::Wait => {
                    self.semaphores[&actor.label].wait();
                    Ok(())
                }
                Do::Post(label) => {
                    self.semaphores[label].post();
                    Ok(())
                }
                Do::Sleep(us) => {
                    sleep_us(*us);
                    Ok(())
                }
                Do::Yield => {
                    // SAFETY: no arguments.
                    unsafe { libc::sched_yield() };
                    Ok(())
                }
                Do::Online(cpu, online) => set_online(*cpu, *online),
                // SAFETY: plain numbers; 0 is the calling thread.
                Do::Nice(n) => check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, *n) }),
                Do::NiceOf(label, n) => {
                    let tid = self.tids[label].load(Ordering::Acquire);
                    // SAFETY: plain numbers.
                    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as u32, *n) })
                }
                Do::Affinity(cpus) => set_affinity(0, cpus),
                Do::AffinityOf(label, cpus) => {
                    set_affinity(self.tids[label].load(Ordering::Acquire), cpus)
                }
                Do::NiceDuring(label, n, us) => {
                    spin(us * self.speed.0);
                    let tid = self.tids[label].load(Ordering::Acquire);
                    // SAFETY: plain numbers.
                    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as u32, *n) })
                }
                Do::Join(label) => {
                    join(&self.alive[label]);
                    Ok(())
                }
                Do::Ext(ext) => set_ext(*ext),
                Do::Fork(label) => self.fork(actor, *label),
                Do::Exit => {
                    // SAFETY: the word outlives the thread; ends this thread only, which owns nothing that
                    // others need.
                    unsafe {
                        libc::syscall(libc::SYS_set_tid_address, self.alive[&actor.label].as_ptr());
                        libc::syscall(libc::SYS_exit, 0)
                    };
                    Ok(())
                }
                step => {
                    let tid = |label| self.tids[&label].load(Ordering::Acquire);
                    cgroups::perform(step, &tid)
                }
            };
            if let Err(e) = done {
                self.fail(&e);
            }
        }
    }

    /// Starts a thread whose only system call before its first step is none: a plain `clone`.
    fn fork(self: &Arc<Stage>, parent: &Actor, label: char) -> io::Result<()> {
        const STACK: usize = 64 << 10;
        struct Birth {
            stage: Arc<Stage>,
            actor: Actor,
        }
        extern "C" fn begin(arg: *mut libc::c_void) -> libc::c_int {
            // SAFETY: `arg` is the box leaked below; this thread alone uses it, and never returns it:
            // a cast's child is a few dozen bytes, once per row.
            let birth = unsafe { &*(arg as *const Birth) };
            birth.stage.play(&birth.actor);
            0
        }
        let actor = self.cast[&label].clone();
        let birth = Box::leak(Box::new(Birth {
            stage: Arc::clone(self),
            actor,
        }));
        let stack = Box::leak(vec![0u8; STACK].into_boxed_slice());
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM;
        // The child takes its parent's name at birth, so the parent bears it for a moment.
        set_name(&format!("k:{label}"));
        // SAFETY: the stack is large enough for `play` (measured: below 2 KiB), aligned, and never freed.
        let pid = unsafe {
            let top = stack.as_mut_ptr().add(STACK & !15);
            libc::clone(
                begin,
                top.cast(),
                flags,
                birth as *mut Birth as *mut libc::c_void,
            )
        };
        set_name(&format!("k:{}", parent.label));
        if pid < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    fn perform(self: Arc<Stage>, actor: Actor) {
        set_name(&format!("k:{}", actor.label));
        // SAFETY: no arguments.
        self.tids[&actor.label].store(unsafe { libc::gettid() }, Ordering::Release);
        let set = set_affinity(0, actor.cpus).and_then(|()| {
            // SAFETY: as above.
            check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, actor.nice) })?;
            // SAFETY: one number.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
            if actor.group.is_some() {
                cgroups::enter(actor.group)?;
            }
            set_ext(actor.ext)
        });
        if let Err(e) = set {
            self.fail(&e);
        }
        self.ready.fetch_add(1, Ordering::Release);
        self.semaphores[&actor.label].wait();
        self.play(&actor);
        // Out of the way until the row is over.
        while self.curtain.load(Ordering::Acquire) == 0 {
            // SAFETY: as in `Semaphore::wait`.
            unsafe {
                let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                libc::syscall(
                    libc::SYS_futex,
                    self.curtain.as_ptr(),
                    op,
                    0,
                    std::ptr::null::<libc::timespec>(),
                );
            }
        }
    }
}

fn options(row: &Row) -> LoadOptions {
    LoadOptions {
        ops: Some(row.ops.into()),
        variables: BTreeMap::from([
            ("rules".into(), Value::Bytes(recorder::rules(row))),
            ("nr_rules".into(), Value::Number(row.rules.len() as i128)),
            ("slice_ns".into(), Value::Number(row.slice_ns.into())),
        ]),
        ..LoadOptions::default()
    }
}

/// Plays the row once and returns its log.
fn play(row: &Row, object: &[u8], speed: Speed, phase_us: u64) -> Result<Log, RecordError> {
    let system = |what| {
        move |source| RecordError::System {
            row: row.name,
            what,
            source,
        }
    };
    let load = |source| RecordError::Load {
        row: row.name,
        source,
    };
    if !row.groups.is_empty() {
        cgroups::prepare(&row.groups).map_err(system("its cgroups"))?;
    }
    let loaded = match Loaded::load(object, &options(row)) {
        Ok(loaded) => loaded,
        Err(ScxError::Rejected { log, .. }) if row.refused_for.is_some_and(|f| log.contains(f)) => {
            return Ok(Log {
                exit: Some(REFUSED),
                ..Log::default()
            });
        }
        Err(e) => return Err(load(e)),
    };
    let stage = Arc::new(Stage {
        semaphores: row
            .cast
            .iter()
            .map(|a| (a.label, Semaphore::default()))
            .collect(),
        cast: row.cast.iter().map(|a| (a.label, a.clone())).collect(),
        tids: row
            .cast
            .iter()
            .map(|a| (a.label, AtomicI32::new(0)))
            .collect(),
        alive: row
            .cast
            .iter()
            .map(|a| (a.label, AtomicU32::new(1)))
            .collect(),
        speed,
        ready: AtomicU32::new(0),
        failed: AtomicI32::new(0),
        curtain: AtomicU32::new(0),
    });
    let mut threads = Vec::new();
    for actor in row.cast.iter().filter(|a| !a.forked) {
        let (stage, actor) = (Arc::clone(&stage), actor.clone());
        let builder = std::thread::Builder::new().stack_size(128 << 10);
        threads.push(
            builder
                .spawn(move || stage.perform(actor))
                .map_err(system("a thread cannot be started"))?,
        );
    }
    while stage.ready.load(Ordering::Acquire) < threads.len() as u32 {
        sleep_us(1000);
    }
    set_affinity(0, &[row.director_cpu]).map_err(system("the director's affinity"))?;
    // Let the threads fall asleep, and begin at another point of the tick's period each time.
    sleep_us(20_000 + phase_us);
    let director = Actor {
        label: '-',
        ext: false,
        cpus: &[],
        nice: 0,
        forked: false,
        group: None,
        steps: row.director.clone(),
    };
    let before = if row.counts.is_empty() {
        BTreeMap::new()
    } else {
        loaded.events().map_err(load)?
    };
    let from = now_ns();
    stage.play(&director);
    let to = now_ns() + row.run_us * 1000;
    sleep_us(row.run_us);
    let running = loaded.poll().map_err(|source| RecordError::Load {
        row: row.name,
        source,
    })?;
    let exit = match running.running() {
        Some(_) => None,
        None => {
            let record = loaded.exit_record().map_err(|source| RecordError::Load {
                row: row.name,
                source,
            })?;
            Some(record.kind)
        }
    };
    let after = if row.counts.is_empty() {
        BTreeMap::new()
    } else {
        loaded.events().map_err(load)?
    };
    let grown = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
    let counts = row
        .counts
        .iter()
        .map(|name| (name.to_string(), grown(name)))
        .collect();
    let entries = read_entries(&loaded).map_err(|source| RecordError::Load {
        row: row.name,
        source,
    })?;
    stage.curtain.store(1, Ordering::Release);
    // SAFETY: as in `Semaphore::post`.
    unsafe {
        let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, stage.curtain.as_ptr(), op, i32::MAX);
    }
    // After an ejection (and for threads the row left waiting) the kernel's own scheduler takes over.
    for semaphore in stage.semaphores.values() {
        for _ in 0..8 {
            semaphore.post();
        }
    }
    drop(loaded);
    if !row.groups.is_empty() {
        // The director may have moved with the others.
        cgroups::enter(None).map_err(system("the director's cgroup"))?;
    }
    for step in &row.director {
        if let Do::Online(cpu, false) = step {
            set_online(*cpu, true).map_err(system("a CPU does not come back"))?;
        }
    }
    for thread in threads {
        if thread.join().is_err() {
            return Err(system("a thread panicked")(io::Error::other(
                "see standard error",
            )));
        }
    }
    match stage.failed.load(Ordering::Acquire) {
        0 => Ok(Log {
            exit,
            counts,
            ..Log::new(&entries, row, (from, to), true)
        }),
        e => Err(system("a step of the cast was refused")(
            io::Error::from_raw_os_error(e),
        )),
    }
}

fn read_entries(loaded: &Loaded) -> Result<Vec<Entry>, ScxError> {
    let written = loaded.variable("nr_entries")?;
    let n = u32::from_le_bytes(written.try_into().unwrap_or_default());
    let mut entries = Vec::new();
    for i in 0..n {
        let Some(value) = loaded.map_value("entries", &i.to_ne_bytes())? else {
            break;
        };
        if let Some(entry) = value
            .first()
            .filter(|v| v.len() == ENTRY_BYTES)
            .and_then(|v| Entry::parse(v))
        {
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Records a row until `needed` recordings agree (background work of the machine can disturb one), and
/// returns the log with how many of how many agreed.
///
/// # Errors
/// The recorder does not load, a system call is refused, or recordings do not agree.
pub fn record(
    row: &Row,
    object: &[u8],
    speed: Speed,
    needed: usize,
    tries: usize,
) -> Result<(Log, usize, usize), RecordError> {
    // SAFETY: asks for a constant.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    if cpus != i64::from(row.machine.cpus()) {
        return Err(RecordError::Machine {
            row: row.name,
            needed: row.machine.name(),
        });
    }
    let mut seen: Vec<(Log, usize)> = Vec::new();
    let mut why = String::new();
    for attempt in 1..=tries {
        // Steps that are no divisor of the tick's period.
        let log = play(row, object, speed, attempt as u64 * 1_370)?;
        let mut found = None;
        for (i, (other, _)) in seen.iter().enumerate() {
            match crate::log::compare(row, other, &log) {
                Ok(()) => found = Some(i),
                Err(e) => why = e.to_string(),
            }
        }
        let i = found.unwrap_or_else(|| {
            seen.push((log, 0));
            seen.len() - 1
        });
        seen[i].1 += 1;
        if seen[i].1 >= needed {
            let (log, agreed) = seen.swap_remove(i);
            return Ok((log, agreed, attempt));
        }
    }
    Err(RecordError::Unstable {
        row: row.name,
        needed,
        tries,
        why,
    })
}
