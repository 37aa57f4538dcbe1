// SPDX-License-Identifier: GPL-2.0-only
//! How soon the daemon notices, on an idle machine and on one whose CPUs are all busy: a VM that comes (from the fork
//! of its process until the policy knows its vCPU), a vCPU that is added, a VM that is killed; how soon it answers
//! where ten times as many threads as CPUs want to run, and clients say nothing; and, without a policy, how soon a new
//! vCPU of a pinned VM is bound. Part of the boot of `agent`.
use super::agent::{policy, rules};
use super::check;
use berth_actuator::guardian;
use berth_actuator::live::Live;
use berth_affinity::{Ask, Policy as Pin};
use berth_agent::agent::Status;
use berth_agent::control::{self, Request};
use berth_agent::daemon::{self, Options};
use berth_agent::pins::{Method, Pinning};
use berth_agent::register::VmKey;
use berth_agent::signals::Asked;
use berth_host::procfile::stat;
use berth_host::root::Root;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_millis(250);
/// Idle, and as many busy, without `BERTH_LAB_ROUNDS`.
const ROUNDS: u64 = 4;
/// 99 of a hundred answers come within this.
const ANSWERED_MS: f64 = 50.0;
const SOCKET: &str = "/run/noticed.sock";
const GROUP: &str = "/sys/fs/cgroup/noticed";
/// The CPU on which a VM is pinned.
const PINNED: &str = "1";
// `include/uapi/linux/kvm.h`
const KVM_CREATE_VM: libc::Ioctl = 0xae01;
const KVM_CREATE_VCPU: libc::Ioctl = 0xae41;

static STOP: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);

pub(super) fn rounds_wanted() -> u64 {
    let number = std::env::var("BERTH_LAB_ROUNDS").ok();
    number
        .and_then(|n| n.parse().ok())
        .filter(|n| *n > 0)
        .unwrap_or(ROUNDS)
}

/// What was measured, in words.
pub(super) fn noticed(rounds_each: u64) -> Result<String, String> {
    fs::create_dir_all(GROUP).map_err(|e| e.to_string())?;
    let asked = Asked {
        stop: &STOP,
        reload: &RELOAD,
    };
    let daemon = std::thread::spawn(move || {
        let options = Options {
            root: Root::live(),
            socket: SOCKET.into(),
            config: None,
            ends_with_policy: false,
            resolve: &|_| Err("there is no configuration".into()),
            say: &|line| println!("berth: {line}"),
        };
        daemon::run(&options, asked).map_err(|e| e.to_string())
    });
    let said = rounds(rounds_each);
    STOP.store(true, Ordering::Relaxed);
    daemon.join().map_err(|_| "the daemon panicked")??;
    fs::remove_dir(GROUP).map_err(|e| format!("{GROUP}: {e}"))?;
    said
}

/// This program as the guardian of the daemon's pins.
pub fn called_as_guardian() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != "guardian" {
        return None;
    }
    let folder = PathBuf::from(words.next()?);
    Some(match guardian::watch(&Live::new(), &folder) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn rounds(number: u64) -> Result<String, String> {
    let end = Instant::now() + Duration::from_secs(10);
    while !Path::new(SOCKET).exists() {
        check(Instant::now() < end, "the daemon does not listen")?;
        std::thread::sleep(Duration::from_millis(10));
    }
    let vmfair = policy("vmfair")?;
    let object = vmfair.object.clone();
    let start = Request::Start {
        policy: Box::new(vmfair),
        rules: Some(rules()),
    };
    let answer = control::ask(Path::new(SOCKET), &start, &object).map_err(|e| e.to_string())?;
    check(answer.error.is_none(), format!("{:?}", answer.error))?;
    let mut said = String::new();
    let mut worst = Duration::ZERO;
    for (what, busy) in [("idle", 0), ("busy", 4)] {
        let _busy = Busy::threads(busy);
        let mut all: [Vec<Duration>; 3] = Default::default();
        for round in 0..number {
            let took = one(round).map_err(|e| format!("{what}, round {round}: {e}"))?;
            for (of_all, one) in all.iter_mut().zip(took) {
                of_all.push(one);
            }
        }
        said += &format!("; {what}:");
        for (event, times) in ["arrival", "vCPU added", "exit"].iter().zip(&mut all) {
            let (words, most) = of(times);
            worst = worst.max(most);
            said += &format!(" {event} {words}");
        }
    }
    check(worst <= WITHIN, format!("too late{said}"))?;
    let mut late = Vec::new();
    for scheduler in ["vmfair", "Linux"] {
        let by_vcpus = {
            let mut vm = Vm::start().map_err(|e| e.to_string())?;
            // Nineteen more vCPUs, and all run.
            vm.orders
                .write_all(&[b'+'; 19])
                .map_err(|e| e.to_string())?;
            vm.orders.write_all(b"!").map_err(|e| e.to_string())?;
            until(Instant::now(), "twenty vCPUs", &|s| {
                s.vms.iter().any(|vm| vm.vcpus == 20)
            })?;
            answered()?
        };
        until(Instant::now(), "their end", &|s| s.vms.is_empty())?;
        let by_host = {
            let _busy = Busy::threads(20);
            answered()?
        };
        for (who, (median, p99)) in [("vCPUs", by_vcpus), ("host threads", by_host)] {
            said += &format!("; beside 20 {who} under {scheduler} {median:.1} ms (p99 {p99:.1})");
            late.extend((p99 > ANSWERED_MS).then_some(who));
        }
        // The second time there is none.
        let stop = control::ask(Path::new(SOCKET), &Request::Stop, &[]);
        stop.map_err(|e| e.to_string())?;
    }
    check(late.is_empty(), format!("answers come too late{said}"))?;
    // Pins need no policy.
    for (what, busy) in [("idle", 0), ("busy", 4)] {
        let _busy = Busy::threads(busy);
        let all: Result<Vec<Duration>, String> = (0..number).map(bound).collect();
        let (words, most) = of(&mut all.map_err(|e| format!("{what}: {e}"))?);
        said += &format!("; a pinned VM's vCPU, {what}: bound after {words}");
        check(most <= WITHIN, format!("too late{said}"))?;
    }
    Ok(format!("noticed{said}"))
}

/// The median and the longest, in words, and the longest.
fn of(times: &mut [Duration]) -> (String, Duration) {
    times.sort_unstable();
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    (
        format!("{:.1} ms (at most {:.1})", ms(median), ms(most)),
        most,
    )
}

/// Milliseconds until the daemon has answered, median and 99th percentile, while sixty others have connected and say
/// nothing. Who asks need not wait for a CPU itself.
fn answered() -> Result<(f64, f64), String> {
    let silent = (0..60).map(|_| UnixStream::connect(SOCKET));
    let _silent: Vec<UnixStream> = silent
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    let ask = |_| {
        let began = Instant::now();
        let answer = control::ask(Path::new(SOCKET), &Request::Status, &[]);
        let took = began.elapsed().as_secs_f64() * 1e3;
        answer.map(|_| took).map_err(|e| e.to_string())
    };
    scheduled(libc::SCHED_FIFO).map_err(|e| e.to_string())?;
    let times: Result<Vec<f64>, String> = (0..100).map(ask).collect();
    scheduled(libc::SCHED_OTHER).map_err(|e| e.to_string())?;
    let mut times = times?;
    times.sort_by(f64::total_cmp);
    Ok((times[50], times[98]))
}

/// The calling thread's class.
fn scheduled(class: i32) -> io::Result<()> {
    let first = i32::from(class == libc::SCHED_FIFO);
    // SAFETY: a structure that outlives the call.
    let done = unsafe {
        let mut how: libc::sched_param = std::mem::zeroed();
        how.sched_priority = first;
        libc::sched_setscheduler(0, class, &raw const how)
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Threads that want all the CPU there is, until it is dropped.
struct Busy(Arc<AtomicBool>, Vec<JoinHandle<()>>);

impl Busy {
    fn threads(number: usize) -> Busy {
        let over = Arc::new(AtomicBool::new(false));
        let spin = || {
            let over = Arc::clone(&over);
            std::thread::spawn(move || while !over.load(Ordering::Relaxed) {})
        };
        let threads = (0..number).map(|_| spin()).collect();
        Busy(over, threads)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Times from arrival, the second vCPU, and the end of one VM until the daemon knew.
fn one(round: u64) -> Result<[Duration; 3], String> {
    // Not in step with the daemon's looks.
    let pause = || std::thread::sleep(Duration::from_millis(130 + round * 89 % 210));
    pause();
    let began = Instant::now();
    let mut vm = Vm::start().map_err(|e| e.to_string())?;
    let known = |vcpus: u32| {
        move |s: &Status| {
            let [vm] = s.vms.as_slice() else { return false };
            // Each vCPU has a thread; there is the first thread besides.
            vm.vcpus == vcpus && vm.threads > vcpus as usize
        }
    };
    let whole = known(1);
    let arrival = until(began, "the VM", &|s| {
        whole(s) && s.vms[0].known_after_ms.is_some()
    })?;
    pause();
    let began = Instant::now();
    vm.orders.write_all(b"+").map_err(|e| e.to_string())?;
    let added = until(began, "its second vCPU", &known(2))?;
    pause();
    let began = Instant::now();
    drop(vm);
    let gone = until(began, "its end", &|s| s.vms.is_empty())?;
    Ok([arrival, added, gone])
}

/// The time until the second vCPU of a pinned VM counts among what is set. Where it runs says nothing: it was born
/// where its process is.
fn bound(round: u64) -> Result<Duration, String> {
    let mut vm = Vm::start().map_err(|e| e.to_string())?;
    until(Instant::now(), "the VM", &|s| {
        s.vms.iter().any(|vm| vm.vcpus == 1 && vm.threads > 1)
    })?;
    pin(vm.pid)?;
    // Not in step with the daemon's looks.
    std::thread::sleep(Duration::from_millis(130 + round * 89 % 210));
    let began = Instant::now();
    vm.orders.write_all(b"+").map_err(|e| e.to_string())?;
    let took = until(began, "the second vCPU of a pinned VM", &|s| {
        s.pins.first().is_some_and(|pin| pin.set == 3)
    })?;
    let masks = masks(vm.pid)?;
    let all = masks.len() == 3 && masks.iter().all(|cpus| cpus == PINNED);
    check(all, format!("it is not where it is to be: {masks:?}"))?;
    drop(vm);
    until(Instant::now(), "its end", &|s| s.vms.is_empty())?;
    Ok(took)
}

/// All threads of the VM's process on one CPU.
fn pin(pid: libc::pid_t) -> Result<(), String> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read(&path).map_err(|e| format!("{path}: {e}"))?;
    let start = stat(&text).ok_or("no start")?.start;
    let ask = Ask {
        policy: Pin::Paper,
        cpu: PINNED.parse().ok(),
        ..Ask::default()
    };
    let request = Request::Pin {
        vm: VmKey { pid, start },
        pinning: Pinning {
            ask,
            method: Method::Taskset,
        },
    };
    let answer = control::ask(Path::new(SOCKET), &request, &[]).map_err(|e| e.to_string())?;
    let complaints = answer.pinned.map(|p| p.complaints);
    check(
        complaints.as_ref().is_some_and(Vec::is_empty),
        format!("{:?} {complaints:?}", answer.error),
    )
}

/// Where each thread of a process may run.
fn masks(pid: libc::pid_t) -> Result<Vec<String>, String> {
    let failed = |e: io::Error| format!("threads of {pid}: {e}");
    let mut all = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).map_err(failed)? {
        let path = task.map_err(failed)?.path().join("status");
        let text = fs::read_to_string(path).map_err(failed)?;
        let mask = text
            .lines()
            .find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
        all.push(mask.unwrap_or("").trim().to_string());
    }
    Ok(all)
}

fn until(began: Instant, what: &str, holds: &dyn Fn(&Status) -> bool) -> Result<Duration, String> {
    loop {
        let answer = control::ask(Path::new(SOCKET), &Request::Status, &[]);
        let status = answer
            .map_err(|e| e.to_string())?
            .status
            .ok_or("no status")?;
        let elapsed = began.elapsed();
        if let Some(trouble) = &status.trouble {
            return Err(trouble.clone());
        }
        if holds(&status) {
            return Ok(elapsed);
        }
        check(
            elapsed < Duration::from_secs(5),
            format!(
                "{what} is not noticed: {:?} {:?}",
                status.vms, status.left_out
            ),
        )?;
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process with a VM of KVM, whose vCPUs never run; one more for each `+` that it gets, and at a `!` their threads
/// are busy. Killed when dropped.
struct Vm {
    pid: libc::pid_t,
    orders: io::PipeWriter,
}

impl Vm {
    fn start() -> io::Result<Vm> {
        let (reader, orders) = io::pipe()?;
        // SAFETY: the copy uses only its own memory and new threads of its own, and ends by a signal or `_exit`.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(orders);
                if let Err(e) = be(reader) {
                    println!("the VM: {e}");
                }
                // SAFETY: ends the copy without anything of the first process.
                unsafe { libc::_exit(1) }
            }
            pid => Ok(Vm { pid, orders }),
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // SAFETY: our own child, which has not been waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

fn be(mut orders: io::PipeReader) -> io::Result<()> {
    fs::write(format!("{GROUP}/cgroup.procs"), "0")?;
    let kvm = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")?;
    let made = |file: i32, what, number: libc::c_ulong| {
        // SAFETY: a request whose argument is a number; the result is checked.
        match unsafe { libc::ioctl(file, what, number) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: just opened, owned by nobody else.
            file => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        }
    };
    let vm = made(kvm.as_raw_fd(), KVM_CREATE_VM, 0)?;
    static BUSY: AtomicBool = AtomicBool::new(false);
    let (mut vcpus, mut threads) = (Vec::new(), Vec::new());
    let mut order = [b'+'];
    loop {
        if order == *b"+" {
            let number = vcpus.len();
            vcpus.push(made(
                vm.as_raw_fd(),
                KVM_CREATE_VCPU,
                number as libc::c_ulong,
            )?);
            let thread = std::thread::Builder::new().name(format!("CPU {number}/KVM"));
            threads.push(thread.spawn(|| {
                loop {
                    if !BUSY.load(Ordering::Relaxed) {
                        std::thread::park();
                    }
                }
            })?);
        } else {
            BUSY.store(true, Ordering::Relaxed);
            threads.iter().for_each(|t| t.thread().unpark());
        }
        orders.read_exact(&mut order)?;
    }
}
