// SPDX-License-Identifier: GPL-2.0-only
//! Inside the VM: the first process. Mounts what it needs, waits until the kernel's boot work is done, loads the
//! policy, does the work, writes the answer to the second serial port, and powers off.
use crate::job::{Answer, JOB, Job, PolicyJob, PolicyReport, Work};
use crate::program::Program;
use crate::turns;
use crate::witness;
use berth_loadgen::{Clock, Vcpus};
use berth_scx::{Loaded, ScxError};
use serde::Serialize;
use serde_json::Value;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Printed on the console when all is done; a boot without this line failed.
pub(crate) const DONE: &str = "BERTH-DONE rc=";
/// Serial port of the answer.
const ANSWER_PORT: &str = "/dev/ttyS1";

/// A function for [`Work::Custom`]: its input and the loaded policy, if there is one; gives its result or one
/// sentence on what went wrong.
pub type Handler = fn(&Value, Option<&mut Loaded>) -> Result<Value, String>;

/// Whether this process is the first one of a lab VM, or of a guest inside one.
pub fn is_guest() -> bool {
    std::process::id() == 1 && Path::new(JOB).exists() || witness::inside::is_inside()
}

/// Does the job and powers the machine off. Call it when [`is_guest`] says so.
pub fn main() -> ! {
    main_with(&[])
}

/// [`main`] for a program that brings functions of its own, by name.
pub fn main_with(handlers: &[(&str, Handler)]) -> ! {
    if witness::inside::is_inside() {
        witness::inside::main();
    }
    mount_all();
    // Nothing of a panicked job is used afterwards.
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| work(handlers)));
    let answer = match caught {
        Ok(a) => a,
        Err(_) => failed("the lab's first process panicked; see the console".to_string()),
    };
    let rc = i32::from(answer.error.is_some());
    if let Some(e) = &answer.error {
        println!("BERTH-ERROR {e}");
    }
    let rc = match send(&answer) {
        Ok(()) => rc,
        Err(e) => {
            println!("BERTH-ERROR {ANSWER_PORT}: {e}");
            2
        }
    };
    println!("{DONE}{rc} uptime={:.3}", uptime().as_secs_f64());
    power_off()
}

/// The end of the machine.
pub(crate) fn power_off() -> ! {
    // SAFETY: plain system calls; the machine ends here.
    unsafe {
        libc::tcdrain(1);
        libc::reboot(libc::RB_POWER_OFF);
    }
    // Unreached on a machine that can power off; ending process 1 panics the kernel, which ends the VM as well.
    std::process::exit(1)
}

fn empty() -> Answer {
    Answer {
        kernel: release(),
        runs: Vec::new(),
        output: String::new(),
        result: Value::Null,
        policy: None,
        notes: Vec::new(),
        error: None,
    }
}

fn failed(error: String) -> Answer {
    Answer {
        error: Some(error),
        ..empty()
    }
}

fn work(handlers: &[(&str, Handler)]) -> Answer {
    let job: Job = match fs::read(JOB)
        .map_err(|e| e.to_string())
        .and_then(|b| serde_json::from_slice(&b).map_err(|e| e.to_string()))
    {
        Ok(j) => j,
        Err(e) => return failed(format!("{JOB}: {e}")),
    };
    for module in &job.modules {
        if let Err(e) = crate::nested::load(module) {
            return failed(e);
        }
    }
    settle(Duration::from_millis(job.settle_ms));
    println!(
        "BERTH-UP {} uptime={:.3}",
        release(),
        uptime().as_secs_f64()
    );
    let mut answer = empty();
    // Every seed of a scenario gets a policy without a past.
    let rounds = match &job.work {
        Work::Scenario { seeds, .. } => seeds.len(),
        _ => 1,
    };
    for round in 0..rounds {
        if let Err(e) = one_round(&job, round, handlers, &mut answer) {
            answer.error = Some(e);
            break;
        }
    }
    answer.notes.extend(kernel_complaints());
    answer
}

/// What schedules in place of the kernel's own scheduler.
enum Policy {
    Loaded(Box<Loaded>),
    Program(Program),
}

impl Policy {
    fn start(job: &PolicyJob) -> Result<Policy, String> {
        match job {
            PolicyJob::Program { path } => Ok(Policy::Program(Program::start(path)?)),
            PolicyJob::Object { path, options } => {
                let object = fs::read(path).map_err(|e| format!("{path}: {e}"))?;
                let loaded = Loaded::load(&object, options).map_err(|e| e.to_string())?;
                Ok(Policy::Loaded(Box::new(loaded)))
            }
        }
    }

    fn name(&self) -> &str {
        match self {
            Policy::Loaded(p) => p.name(),
            Policy::Program(p) => p.name(),
        }
    }

    /// As one that Berth loaded.
    fn loaded(&mut self) -> Option<&mut Loaded> {
        match self {
            Policy::Loaded(p) => Some(p),
            Policy::Program(_) => None,
        }
    }

    fn end(self) -> Result<PolicyReport, String> {
        match self {
            Policy::Loaded(p) => unload(*p).map_err(|e| e.to_string()),
            Policy::Program(p) => p.finish(),
        }
    }
}

/// Starts the policy, does the work (of a scenario: the seed with this number), ends the policy.
fn one_round(
    job: &Job,
    round: usize,
    handlers: &[(&str, Handler)],
    answer: &mut Answer,
) -> Result<(), String> {
    if job.policy.is_some() {
        keep_dumps();
    }
    if let (0, Work::Scenario { vcpus, .. }) = (round, &job.work)
        && *vcpus != Vcpus::Threads
    {
        // Before any policy: the same for all arms. What fails here fails in the run, which says so.
        let _ = berth_loadgen::measure_speed(Clock::Wall);
    }
    let mut policy = job.policy.as_ref().map(Policy::start).transpose()?;
    if let Some(p) = &mut policy {
        println!(
            "BERTH-POLICY {} uptime={:.3}",
            p.name(),
            uptime().as_secs_f64()
        );
        if let (0, Some(p)) = (round, p.loaded()) {
            answer.notes.extend(p.warnings().iter().cloned());
        }
    }
    let loaded = policy.as_mut().and_then(Policy::loaded);
    let done = perform(&job.work, round, handlers, loaded, answer);
    let Some(p) = policy else { return done };
    let report = p.end()?;
    // The kernel went back to its own scheduler, which makes every number meaningless.
    let ended = (!report.lasted && matches!(job.work, Work::Scenario { .. })).then(|| {
        format!(
            "policy {} ended during the run: {}",
            report.name, report.exit
        )
    });
    answer.policy = Some(report);
    if ended.is_some() {
        print_dump();
    }
    ended.map_or(done, Err)
}

const TRACING: &str = "/sys/kernel/tracing";

/// The kernel writes who waited where when it ends a policy, for whoever listens.
fn keep_dumps() {
    let event = format!("{TRACING}/events/sched_ext/sched_ext_dump/enable");
    if let Err(e) = fs::write(&event, "1") {
        println!("BERTH-NOTE {event}: {e}");
    }
}

/// On the console, which `--logs` keeps.
fn print_dump() {
    let trace = fs::read_to_string(format!("{TRACING}/trace")).unwrap_or_default();
    for line in trace
        .lines()
        .filter_map(|l| l.split_once("sched_ext_dump: "))
    {
        println!("BERTH-DUMP {}", line.1);
    }
}

fn unload(policy: Loaded) -> Result<PolicyReport, ScxError> {
    let name = policy.name().to_string();
    let lasted = policy.poll()?.running() == Some(&name);
    let events = policy.events()?;
    let exit = if lasted {
        policy.unload()?
    } else {
        policy.final_record()?
    };
    Ok(PolicyReport {
        name,
        lasted,
        exit,
        events,
    })
}

fn perform(
    work: &Work,
    round: usize,
    handlers: &[(&str, Handler)],
    policy: Option<&mut Loaded>,
    answer: &mut Answer,
) -> Result<(), String> {
    match work {
        Work::Custom { name, input } => {
            let Some((_, handler)) = handlers.iter().find(|(n, _)| n == name) else {
                return Err(format!("the program in the VM has no function `{name}`"));
            };
            answer.result = handler(input, policy)?;
            Ok(())
        }
        Work::Program { argv } => {
            let [program, arguments @ ..] = argv.as_slice() else {
                return Err("the job names no program".to_string());
            };
            let out = Command::new(program)
                .args(arguments)
                .output()
                .map_err(|e| format!("{program}: {e}"))?;
            answer.output = String::from_utf8_lossy(&out.stdout).into_owned();
            let complaints = String::from_utf8_lossy(&out.stderr);
            print!("{complaints}");
            if out.status.success() {
                return Ok(());
            }
            let last = complaints.lines().last().unwrap_or("no message");
            Err(format!("{program}: {} ({last})", out.status))
        }
        Work::Witness(job) => {
            let seen = witness::perform(job)?;
            answer.result = serde_json::to_value(seen).map_err(|e| e.to_string())?;
            Ok(())
        }
        Work::Scenario {
            scenario,
            seeds,
            vcpus,
        } => {
            let run = crate::scenario::perform(scenario, seeds[round], *vcpus, policy)?;
            answer.runs.push(run);
            Ok(())
        }
    }
}

pub(crate) fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|s| s.trim().to_string())
        .unwrap_or_default()
}

fn uptime() -> Duration {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn settle(until: Duration) {
    std::thread::sleep(until.saturating_sub(uptime()).max(turns::begun()));
}

pub(crate) fn mount_all() {
    let mounts = [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/run"),
        ("tmpfs", "/tmp"),
        ("debugfs", "/sys/kernel/debug"),
        ("tracefs", "/sys/kernel/tracing"),
        ("cgroup2", "/sys/fs/cgroup"),
        ("bpf", "/sys/fs/bpf"),
    ];
    for (kind, at) in mounts {
        let made = fs::create_dir_all(at).and_then(|()| mount(kind, at));
        // devtmpfs may be mounted by the kernel itself; tracing is absent from small kernels.
        if let Err(e) = made
            && e.raw_os_error() != Some(libc::EBUSY)
        {
            println!("BERTH-NOTE {at}: {e}");
        }
    }
}

fn mount(kind: &str, at: &str) -> io::Result<()> {
    let c = |s: &str| CString::new(s).map_err(io::Error::other);
    let (kind, at) = (c(kind)?, c(at)?);
    // SAFETY: three valid C strings, no data.
    let r = unsafe {
        libc::mount(
            kind.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    if r == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

pub(crate) fn send<T: Serialize>(answer: &T) -> io::Result<()> {
    let mut port = OpenOptions::new().write(true).open(ANSWER_PORT)?;
    raw(&port)?;
    port.write_all(&serde_json::to_vec(answer)?)?;
    port.write_all(b"\n")?;
    // SAFETY: an open terminal.
    if unsafe { libc::tcdrain(port.as_raw_fd()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// No translation of line ends.
fn raw(port: &File) -> io::Result<()> {
    // SAFETY: `t` is filled by tcgetattr before it is used.
    unsafe {
        let mut t = std::mem::zeroed();
        if libc::tcgetattr(port.as_raw_fd(), &mut t) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::cfmakeraw(&mut t);
        if libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &t) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Warnings and oopses in the kernel's log.
fn kernel_complaints() -> Vec<String> {
    const SIGNS: [&str; 6] = [
        "BUG:",
        "WARNING:",
        "Oops",
        "rcu_preempt self-detected stall",
        "rcu_preempt detected stalls",
        "runnable task stall",
    ];
    let Ok(mut log) = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg")
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut record = [0u8; 8192];
    // One record a read; EAGAIN at the end.
    while let Ok(n) = log.read(&mut record) {
        if n == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&record[..n]);
        let message = text.split_once(';').map_or("", |(_, m)| m);
        let line = message.lines().next().unwrap_or("");
        if SIGNS.iter().any(|s| line.contains(s)) {
            println!("BERTH-KERNEL {line}");
            found.push(format!("the VM's kernel complained: {line}"));
        }
    }
    found
}
