// SPDX-License-Identifier: GPL-2.0-only
//! One boot of the throw-away VM: QEMU's command line, waiting, judging.
//!
//! Software emulation only: it needs no rights and gives the same bytes everywhere. In [`Mode::Deterministic`] the
//! virtual clock counts instructions (2 ns each, shared by all CPUs) and one host thread plays all CPUs in turn.
//! Without more, a CPU's turn lasts until the next virtual timer, often a tick, and a wake-up on another CPU is that
//! late; once the machine has booted, timers end turns before (`turns.rs`).
use crate::LabError;
use crate::assets::{Kernel, Qemu};
use crate::console::{Crash, crash, tail};
use crate::firmware;
use crate::guest::DONE;
use crate::job::Answer;
use crate::sleep::Waker;
use crate::turns::{self, Turns};
use berth_scenario::model::Host;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// CPUs a lab VM may have: all share the speed of one host thread.
pub const MAX_CPUS: u32 = 4;
/// Memory in MB, if nobody needs more.
pub const MEMORY_MB: u32 = 1024;
/// At least, with many possible CPUs: the kernel has some 300 KB for each.
const MEMORY_MANY_MB: u32 = 2048;
/// Beginning of the name of a boot's folder; the process id follows.
const FOLDER: &str = "berth-lab-";
/// What the VM's kernel is told.
const KERNEL_ARGUMENTS: [&str; 15] = [
    "console=ttyS0",
    "quiet",
    "loglevel=4",
    "panic=-1",
    // Who goes on after an error of its own may hang, and then nobody says why.
    "oops=panic",
    "nowatchdog",
    // The same addresses and no randomness of the machine's: same bytes.
    "nokaslr",
    "norandmaps",
    "random.trust_cpu=1",
    "mitigations=off",
    "no_timer_check",
    "tsc=reliable",
    // Seconds of work in the background of the first quarter of a minute, of no use here: self-tests of the
    // cryptography, the sampling of memory accesses, checking the certificates for modules.
    "cryptomgr.notests",
    "damon_stat.enabled=0",
    "initcall_blacklist=load_system_certificate_list",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Virtual time, the same on every run.
    Deterministic,
    /// The same, but a CPU's turn lasts until the machine's own next timer, up to a tick: less to emulate, for what
    /// asks for no times.
    Coarse,
    /// One host thread per CPU: quick, for functional tests; times mean nothing, and the emulator may crash rarely.
    Fast,
}

/// What one boot needs.
pub struct Vm<'a> {
    pub qemu: &'a Qemu,
    pub kernel: &'a Kernel,
    /// Topology.
    pub host: &'a Host,
    pub mode: Mode,
    /// CPUs that the VM's kernel counts on, of which the host's are there; none: these.
    pub possible_cpus: Option<u32>,
    /// A processor that can have VMs of its own; it tells less of caches and dies.
    pub nested: bool,
    /// Memory in MB.
    pub memory_mb: u32,
    /// Wall time after which the VM is stopped.
    pub timeout: Duration,
    /// Set from elsewhere (Ctrl-C) to stop the VM.
    pub stop: &'a AtomicBool,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Boot {
    pub answer: Answer,
    /// Serial console, whole.
    pub console: String,
    /// Of console and answer: equal runs, equal hash.
    pub hash: String,
    pub wall: Duration,
    /// How often it fell asleep.
    pub sleeps: usize,
}

/// Ends the emulator whatever happens.
struct Emulator(Child);

impl Emulator {
    /// To its monitor, which is its standard input: open as long as it runs.
    fn tell(&mut self, commands: &[String]) {
        if let Some(input) = self.0.stdin.as_mut() {
            // One that has ended by itself says why at its end.
            let _ = input.write_all(commands.concat().as_bytes());
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to stop.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Vm<'_> {
    /// Boots with these archives as file system, one after the other, and waits for the answer. An answer with an
    /// error in it is a success here: the VM did what it should.
    ///
    /// # Errors
    /// The emulator does not start, the VM's kernel crashes, the time is over, or it was stopped.
    pub fn boot(&self, archives: &[&[u8]]) -> Result<Boot, LabError> {
        if self.possible_cpus.is_some() && self.mode == Mode::Deterministic {
            let why = "CPUs that are only possible leave none to spare for equal turns";
            return Err(LabError::Scenario(why.to_string()));
        }
        let all = std::env::temp_dir();
        remove_leftovers(&all);
        let dir = tempfile::Builder::new()
            .prefix(&format!("{FOLDER}{}-", std::process::id()))
            .tempdir_in(&all)
            .map_err(|e| LabError::io(&all, e))?;
        let initrd = dir.path().join("initrd");
        let mut files = self.possible_cpus.map_or(Vec::new(), firmware::archive);
        files.extend(archives.concat());
        fs::write(&initrd, files).map_err(|e| LabError::io(&initrd, e))?;
        let errors = dir.path().join("errors");
        let started = Instant::now();
        let mut emulator = self.start(dir.path(), &initrd, &errors)?;
        let monitor = dir.path().join("monitor");
        let turns = self.turns();
        // Its monitor takes commands, with which the machine is switched on.
        if let Some(turns) = turns {
            emulator.tell(&turns.commands());
        }
        let mut waker = Waker::default();
        let status = loop {
            if let Some(s) = emulator
                .0
                .try_wait()
                .map_err(|e| LabError::Start(e.to_string()))?
            {
                break s;
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            if let Some(turns) = turns {
                let said = text(&monitor);
                if turns.taken(&said).map_err(LabError::Start)? {
                    emulator.tell(&waker.commands(&said));
                }
            }
            if started.elapsed() > self.timeout {
                return Err(LabError::Timeout {
                    after: self.timeout,
                    tail: tail(&text(&dir.path().join("console"))),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let wall = started.elapsed();
        let console = text(&dir.path().join("console"));
        let answer = text(&dir.path().join("answer"));
        self.judge(&console, &answer, status, &text(&errors))
            .map(|answer_read| Boot {
                hash: hash(&console, &answer),
                answer: answer_read,
                console,
                wall,
                sleeps: waker.asleep,
            })
    }

    fn start(&self, dir: &Path, initrd: &Path, errors: &Path) -> Result<Emulator, LabError> {
        let errors = File::create(errors).map_err(|e| LabError::io(errors, e))?;
        let monitor = dir.join("monitor");
        let monitor = File::create(&monitor).map_err(|e| LabError::io(&monitor, e))?;
        let mut c = self.qemu.command();
        c.args(self.arguments())
            .arg("-serial")
            .arg(format!("file:{}", dir.join("console").display()))
            .arg("-serial")
            .arg(format!("file:{}", dir.join("answer").display()))
            .arg("-kernel")
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(initrd)
            .stdin(Stdio::piped())
            .stdout(monitor)
            .stderr(errors);
        end_with_parent(&mut c);
        c.spawn()
            .map(Emulator)
            .map_err(|e| LabError::Start(format!("{}: {e}", self.qemu.describe())))
    }

    fn turns(&self) -> Option<Turns> {
        match self.mode {
            Mode::Deterministic => Some(turns::even(self.host.nr_cpus())),
            Mode::Coarse => Some(turns::COARSE),
            Mode::Fast => None,
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut a: Vec<String> = [
            "-nodefaults",
            "-no-reboot",
            "-machine",
            "q35",
            "-display",
            "none",
            "-monitor",
            "none",
            "-rtc",
            "base=2026-01-01T00:00:00,clock=vm",
            "-seed",
            "1",
            "-cpu",
            if self.nested {
                // The emulator nests AMD's way only.
                "EPYC,+svm,-rdrand,-rdseed"
            } else if self.mode == Mode::Coarse {
                // Without fast string moves the kernel copies by words: the emulator takes a turn for each byte else.
                "max,vendor=GenuineIntel,level=0x1e,-rdrand,-rdseed,-erms,-fsrm"
            } else {
                // Intel's way of telling caches and dies is the one the emulator passes on whole.
                "max,vendor=GenuineIntel,level=0x1e,-rdrand,-rdseed"
            },
        ]
        .map(String::from)
        .to_vec();
        let cpus = self.host.nr_cpus();
        let turns = self.turns();
        match turns {
            Some(turns) => {
                let clock = [
                    "-accel",
                    "tcg,thread=single",
                    "-icount",
                    "shift=1,sleep=off",
                ];
                a.extend(clock.map(String::from));
                a.extend(turns.arguments());
            }
            None => a.extend(["-accel", "tcg,thread=multi"].map(String::from)),
        }
        let spare = turns.map_or(0, |t| t.spare);
        match self.possible_cpus {
            None => a.extend(topology(self.host, spare, self.memory_mb)),
            // The emulator's firmware then has the interrupt controllers of that many.
            Some(n) => {
                let smp = format!("{cpus},maxcpus={n},sockets={n},cores=1,threads=1");
                let memory = self.memory_mb.max(MEMORY_MANY_MB).to_string();
                a.extend(["-m".to_string(), memory, "-smp".to_string(), smp]);
            }
        }
        a.push("-append".to_string());
        let mut kernel = KERNEL_ARGUMENTS.join(" ");
        if spare > 0 {
            kernel.push_str(&format!(" nr_cpus={cpus}"));
        }
        if self.possible_cpus.is_some() {
            kernel.push_str(&format!(" maxcpus={cpus}"));
        }
        if self.mode == Mode::Coarse {
            kernel.push_str(" init_on_alloc=0");
        }
        a.push(kernel);
        a
    }

    fn judge(
        &self,
        console: &str,
        answer: &str,
        status: ExitStatus,
        errors: &str,
    ) -> Result<Answer, LabError> {
        if !console.contains(DONE) {
            if let Some(Crash { why, report }) = crash(console) {
                return Err(LabError::Panic { why, report });
            }
            let status = match status.signal() {
                Some(s) => format!("signal {s}"),
                None => status.to_string(),
            };
            return Err(LabError::NoResult {
                status,
                tail: tail(&format!("{console}\n{errors}")),
            });
        }
        serde_json::from_str(answer).map_err(|e| LabError::NoResult {
            status: format!("its answer cannot be read: {e}"),
            tail: tail(console),
        })
    }
}

/// `-smp`, memory and NUMA nodes. Spare CPUs, at most one, are in a package of their own, behind all others.
fn topology(host: &Host, spare: u32, memory_mb: u32) -> Vec<String> {
    let cpus = host.nr_cpus();
    let packages = host.packages + spare;
    let all = cpus / host.packages.max(1) * packages;
    let mut a = vec![
        "-m".to_string(),
        memory_mb.to_string(),
        "-smp".to_string(),
        format!(
            "{},maxcpus={all},sockets={packages},dies={},cores={},threads={}",
            cpus + spare,
            host.llcs,
            host.cores / host.llcs.max(1),
            host.threads
        ),
    ];
    if host.nodes < 2 {
        return a;
    }
    let (per_node, memory) = (cpus / host.nodes, memory_mb / host.nodes);
    for n in 0..host.nodes {
        let first = n * per_node;
        let last = if n + 1 == host.nodes {
            all
        } else {
            first + per_node
        } - 1;
        a.extend([
            "-object".to_string(),
            format!("memory-backend-ram,size={memory}M,id=m{n}"),
            "-numa".to_string(),
            format!("node,nodeid={n},memdev=m{n},cpus={first}-{last}"),
        ]);
        for other in 0..n {
            a.extend([
                "-numa".to_string(),
                format!("dist,src={other},dst={n},val=21"),
            ]);
        }
    }
    a
}

/// Whether a lab VM can have this machine, and why not.
///
/// # Errors
/// [`LabError::Scenario`] with what to change.
pub fn check_host(host: &Host) -> Result<(), LabError> {
    let cpus = host.nr_cpus();
    let refuse = |why: String| Err(LabError::Scenario(why));
    if cpus > MAX_CPUS {
        return refuse(format!(
            "its host has {cpus} CPUs, a lab VM at most {MAX_CPUS} (software emulation shares one processor among \
             them); make the host smaller with --set host.cores=N, or use `berth sim`"
        ));
    }
    if !host.cores.is_multiple_of(host.llcs.max(1)) || !cpus.is_multiple_of(host.nodes.max(1)) {
        return refuse(format!(
            "{} cores, {} last-level caches and {} nodes do not divide evenly",
            host.cores, host.llcs, host.nodes
        ));
    }
    Ok(())
}

/// Removes the folders of processes that were killed before they could.
fn remove_leftovers(all: &Path) {
    let Ok(entries) = fs::read_dir(all) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|n| {
            n.strip_prefix(FOLDER)?
                .split('-')
                .next()?
                .parse::<u32>()
                .ok()
        });
        if let Some(pid) = owner
            && !Path::new(&format!("/proc/{pid}")).exists()
        {
            // Another process may be at it as well, or it is another user's.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The emulator must not outlive this process, however it ends.
fn end_with_parent(c: &mut Command) {
    // A group of its own: Ctrl-C reaches this process only, which then stops the emulator itself.
    c.process_group(0);
    // SAFETY: prctl is async-signal-safe and touches no memory of the parent.
    unsafe {
        c.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

fn hash(console: &str, answer: &str) -> String {
    let mut h = blake3::Hasher::new();
    h.update(console.as_bytes());
    h.update(answer.as_bytes());
    h.finalize().to_hex()[..32].to_string()
}

fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\r', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(nodes: u32, packages: u32, llcs: u32, cores: u32, threads: u32) -> Host {
        Host {
            nodes,
            packages,
            llcs,
            cores,
            threads,
            ..Host::default()
        }
    }

    #[test]
    fn topology_becomes_arguments() {
        let a = topology(&host(1, 1, 2, 2, 2), 0, MEMORY_MB).join(" ");
        assert!(
            a.contains("-smp 4,maxcpus=4,sockets=1,dies=2,cores=1,threads=2"),
            "{a}"
        );
        let a = topology(&host(2, 2, 1, 2, 1), 0, MEMORY_MB).join(" ");
        assert!(
            a.contains("node,nodeid=0,memdev=m0,cpus=0-1")
                && a.contains("node,nodeid=1,memdev=m1,cpus=2-3")
                && a.contains("dist,src=0,dst=1,val=21"),
            "{a}"
        );
        let a = topology(&host(2, 2, 1, 1, 1), 1, MEMORY_MB).join(" ");
        assert!(
            a.contains("-smp 3,maxcpus=3,sockets=3,dies=1,cores=1,threads=1")
                && a.contains("memdev=m0,cpus=0-0")
                && a.contains("memdev=m1,cpus=1-2"),
            "{a}"
        );
    }

    #[test]
    fn too_large_or_odd_machines_are_refused() {
        assert!(check_host(&host(1, 1, 1, 4, 1)).is_ok());
        let e = check_host(&host(1, 1, 1, 8, 1)).unwrap_err().to_string();
        assert!(e.contains("8 CPUs") && e.contains("host.cores"), "{e}");
        assert!(check_host(&host(1, 1, 2, 3, 1)).is_err());
        assert!(check_host(&host(3, 1, 1, 4, 1)).is_err());
    }

    #[test]
    fn only_folders_of_dead_processes_are_removed() {
        let all = tempfile::tempdir().unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        let dead = format!("{FOLDER}{}-abc", child.id());
        child.wait().unwrap();
        let own = format!("{FOLDER}{}-abc", std::process::id());
        for name in [&dead, &own, &format!("{FOLDER}x")] {
            fs::create_dir(all.path().join(name)).unwrap();
            fs::write(all.path().join(name).join("initrd"), "x").unwrap();
        }
        remove_leftovers(all.path());
        assert!(!all.path().join(dead).exists());
        assert!(all.path().join(own).exists() && all.path().join(format!("{FOLDER}x")).exists());
    }
}
