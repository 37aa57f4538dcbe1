// SPDX-License-Identifier: GPL-2.0-only
//! Inside the lab's VM: starts the real guest under nested KVM and, when its floor is measured, the competitors; reads
//! the guest's console to know where it is, and the kernel's counters of the vCPU threads at both ends of the window.
//!
//! Every VM of the scenario has a cgroup of its own with its weight, and its CPUs. The guest's has its vCPU threads
//! alone: a cgroup's weight is divided among the CPUs that it works on, so what else the emulator does, on CPU 0, would
//! take from the vCPUs' part. That, and this process, is in no cgroup.
use super::inside::set_hrtick;
use super::job::{BEGIN, END, ERROR, FLOOR_DONE, GuestAnswer, READY, WitnessAnswer, WitnessJob};
use super::watched::Watched;
use crate::console::{Crash, crash, tail};
use crate::guest;
use berth_scenario::model::{Scenario, Vm};
use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONSOLE: &str = "/run/guest-console";
const ANSWER: &str = "/run/guest-answer";
const SAID: &str = "/run/guest-emulator";
const CGROUPS: &str = "/sys/fs/cgroup";
/// Memory of the guest in MB.
const MEMORY_MB: u32 = 512;
/// What the guest's kernel is told: no work of its own meanwhile, and no instructions that nesting lacks.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet loglevel=4 panic=-1 nowatchdog nokaslr random.trust_cpu=1 \
    mitigations=off no_timer_check tsc=reliable noxsave cryptomgr.notests damon_stat.enabled=0 \
    initcall_blacklist=load_system_certificate_list";
const LOOK: Duration = Duration::from_millis(50);

/// Processes that compute on behalf of VMs; they end with this value.
struct Competitors(Vec<libc::pid_t>);

impl Drop for Competitors {
    fn drop(&mut self) {
        for pid in &self.0 {
            // SAFETY: children of this process that nobody has waited for.
            unsafe {
                libc::kill(*pid, libc::SIGKILL);
                libc::waitpid(*pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to stop.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A recording, from the guest's start to its end.
///
/// # Errors
/// One sentence; of a guest that does not boot, with its last console lines.
pub(crate) fn perform(job: &WitnessJob) -> Result<WitnessAnswer, String> {
    let scenario = &job.guest.scenario;
    let watched = Watched::of(scenario).map_err(|e| e.to_string())?;
    if !Path::new("/dev/kvm").exists() {
        return Err("no nested KVM: the VM around the guest has no /dev/kvm".into());
    }
    set_hrtick(job.hrtick)?;
    bind(&[0]).map_err(|e| format!("CPU 0: {e}"))?;
    let root = Path::new(CGROUPS);
    write(&root.join("cgroup.subtree_control"), "+cpu")?;
    let own = cgroup(&watched.vm.name, watched.vm.weight)?;
    write(&own.join("cgroup.type"), "threaded")?;
    let mut emulator = start(job, watched.vm)?;
    let pid = emulator.0.id();
    let vcpus = bind_vcpus(&mut emulator, watched.vm)?;
    for tid in &vcpus {
        write(&own.join("cgroup.threads"), &tid.to_string())?;
    }
    let boot = Duration::from_nanos(job.boot_ns);
    wait_for(&mut emulator, READY, boot)?;
    println!("BERTH-GUEST-UP {} vCPUs", vcpus.len());
    let least = |ns: u64| Duration::from_nanos(ns);
    // Stolen from, on a busy machine: everything may take several times as long.
    let patience = |ns: u64| boot + 20 * least(ns);
    let (floor, settle) = (job.guest.floor_ns, job.guest.settle_ns);
    wait_for(&mut emulator, FLOOR_DONE, patience(settle + floor))?;
    let competitors = compete(scenario, &watched.vm.name)?;
    wait_for(&mut emulator, BEGIN, patience(settle))?;
    let before = counters(pid, &vcpus)?;
    let measure = scenario.run.measure_ns;
    wait_for(&mut emulator, END, patience(measure))?;
    let after = counters(pid, &vcpus)?;
    drop(competitors);
    let mut guest = answer(&mut emulator, patience(settle))?;
    if let Some(e) = guest.error.take() {
        return Err(format!("in the guest: {e}"));
    }
    let ran = after.ran_ns - before.ran_ns;
    let waited = after.waited_ns - before.waited_ns;
    if ran + waited > 0 {
        guest.seen.steal = Some(waited as f64 / (ran + waited) as f64);
    }
    let turns = after.turns - before.turns;
    Ok(WitnessAnswer {
        guest,
        kernel: guest::release(),
        turns,
        turn_ns: ran / turns.max(1),
    })
}

fn write(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, value).map_err(|e| format!("{}: {value}: {e}", path.display()))
}

fn cgroup(name: &str, weight: u32) -> Result<PathBuf, String> {
    let path = Path::new(CGROUPS).join(name);
    fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    write(&path.join("cpu.weight"), &weight.to_string())?;
    Ok(path)
}

/// Binds a thread (0: the calling one) to these CPUs.
fn bind_thread(tid: libc::pid_t, cpus: &[u32]) -> io::Result<()> {
    // SAFETY: a plain bit set, filled by the library's own functions.
    let rc = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus {
            libc::CPU_SET(*cpu as usize, &mut set);
        }
        libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &set)
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn bind(cpus: &[u32]) -> io::Result<()> {
    bind_thread(0, cpus)
}

fn start(job: &WitnessJob, vm: &Vm) -> Result<Emulator, String> {
    let wrong = |e: io::Error| format!("{}: {e}", job.program);
    let said = File::create(SAID).map_err(wrong)?;
    let mut c = Command::new(&job.program);
    c.args(["-name", &format!("guest={},debug-threads=on", vm.name)])
        .args(["-accel", "kvm", "-cpu", "host,-xsave", "-M", "pc,usb=off"])
        .args(["-m", &MEMORY_MB.to_string()])
        .args(["-smp", &vm.vcpus.to_string()])
        .args(["-kernel", &job.kernel, "-initrd", &job.initrd])
        .args(["-append", KERNEL_ARGUMENTS, "-L", &job.firmware])
        .args(["-display", "none", "-vga", "none", "-nodefaults"])
        .args(["-no-user-config", "-no-reboot"])
        .args(["-serial", &format!("file:{CONSOLE}")])
        .args(["-serial", &format!("file:{ANSWER}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said);
    c.spawn().map(Emulator).map_err(wrong)
}

/// The vCPU threads, on their CPUs as soon as there are all of them.
fn bind_vcpus(emulator: &mut Emulator, vm: &Vm) -> Result<Vec<libc::pid_t>, String> {
    let end = Instant::now() + Duration::from_secs(60);
    let folder = format!("/proc/{}/task", emulator.0.id());
    loop {
        alive(emulator)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if let (true, Some(tid)) = (
                name.starts_with("CPU ") && name.trim_end().ends_with("/KVM"),
                entry.file_name().to_str().and_then(|t| t.parse().ok()),
            ) {
                found.push(tid);
            }
        }
        if found.len() == vm.vcpus as usize {
            for tid in &found {
                bind_thread(*tid, &vm.affinity).map_err(|e| format!("vCPU thread {tid}: {e}"))?;
            }
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(format!(
                "the guest's emulator has {} vCPU threads",
                found.len()
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// # Errors
/// The emulator has ended, and its last words.
fn alive(emulator: &mut Emulator) -> Result<(), String> {
    match emulator.0.try_wait() {
        Ok(None) => Ok(()),
        Ok(Some(status)) => {
            let said = fs::read_to_string(SAID).unwrap_or_default();
            let kvm = "failed to initialize kvm";
            let what = if said.contains(kvm) || said.contains("/dev/kvm") {
                "no nested KVM"
            } else {
                "the guest did not boot"
            };
            Err(format!(
                "{what}: its emulator ended ({status}); its last lines:\n{}",
                tail(&format!("{said}\n{}", console()))
            ))
        }
        Err(e) => Err(e.to_string()),
    }
}

fn console() -> String {
    let bytes = fs::read(CONSOLE).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\r', "")
}

/// Waits until the guest's console has the line.
fn wait_for(emulator: &mut Emulator, line: &str, at_most: Duration) -> Result<(), String> {
    let end = Instant::now() + at_most;
    loop {
        let said = console();
        if said.lines().any(|l| l == line) {
            return Ok(());
        }
        if let Some(error) = said.lines().find_map(|l| l.strip_prefix(ERROR)) {
            return Err(format!("in the guest:{error}"));
        }
        if crash(&said).is_some() {
            // It has begun to say so.
            std::thread::sleep(20 * LOOK);
        }
        if let Some(Crash { why, report }) = crash(&console()) {
            return Err(format!(
                "the guest's kernel crashed: {why}; it printed:\n{report}"
            ));
        }
        alive(emulator)?;
        if Instant::now() > end {
            let what = if line == READY {
                "the guest did not boot"
            } else {
                "the guest came to a halt"
            };
            return Err(format!(
                "{what}: no `{line}` after {} s; its last lines:\n{}",
                at_most.as_secs(),
                tail(&said)
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// The guest's answer, when it is whole.
fn answer(emulator: &mut Emulator, at_most: Duration) -> Result<GuestAnswer, String> {
    let end = Instant::now() + at_most;
    loop {
        let text = fs::read_to_string(ANSWER).unwrap_or_default();
        if text.ends_with('\n') {
            return serde_json::from_str(&text).map_err(|e| format!("the guest's answer: {e}"));
        }
        let ended = emulator.0.try_wait().ok().flatten().is_some();
        if ended || Instant::now() > end {
            return Err(format!(
                "the guest sent no answer; its last lines:\n{}",
                tail(&console())
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// A process for each vCPU of every other VM.
fn compete(scenario: &Scenario, watched: &str) -> Result<Competitors, String> {
    let mut all = Competitors(Vec::new());
    let instances = berth_scenario::placement::instances(scenario);
    for instance in instances.iter().filter(|i| i.name != watched) {
        let vm = &scenario.vms[instance.group];
        let group = cgroup(&instance.name, vm.weight)?;
        let procs = group.join("cgroup.procs");
        for _ in 0..vm.vcpus {
            // SAFETY: this process has one thread; the child calls nothing but what binds it, and computes.
            match unsafe { libc::fork() } {
                0 => compute_for_ever(&vm.affinity),
                -1 => return Err(format!("a competitor: {}", io::Error::last_os_error())),
                pid => {
                    all.0.push(pid);
                    write(&procs, &pid.to_string())?;
                }
            }
        }
    }
    Ok(all)
}

fn compute_for_ever(cpus: &[u32]) -> ! {
    if bind(cpus).is_err() {
        // SAFETY: ends the child at once, without what its parent would do at the end.
        unsafe { libc::_exit(1) };
    }
    let mut x = 1_u64;
    loop {
        x = black_box(x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    }
}

/// Of all vCPU threads together.
struct Counters {
    ran_ns: u64,
    waited_ns: u64,
    turns: u64,
}

fn counters(pid: u32, vcpus: &[libc::pid_t]) -> Result<Counters, String> {
    let mut sum = Counters {
        ran_ns: 0,
        waited_ns: 0,
        turns: 0,
    };
    for tid in vcpus {
        let path = format!("/proc/{pid}/task/{tid}/schedstat");
        let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let mut next = || match numbers.next() {
            Some(Ok(n)) => Ok(n),
            _ => Err(format!("{path}: {text}")),
        };
        sum.ran_ns += next()?;
        sum.waited_ns += next()?;
        sum.turns += next()?;
    }
    Ok(sum)
}
