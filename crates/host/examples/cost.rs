// SPDX-License-Identifier: GPL-2.0-only
//! What watching costs: `cargo run --release -p berth-host --example cost [VMS]`.
//!
//! A synthetic host of 2,000 VMs with 8 threads each is unpacked into memory (`/dev/shm` where there is one) and
//! scanned. Files in memory are cheaper than those of /proc, which the kernel writes anew for every reader: the last
//! lines measure by how much, on this machine's own /proc, and scale.
use berth_host::counters::Sampler;
use berth_host::dir::{Short, files_allowed};
use berth_host::discover::Scanner;
use berth_host::fixture::{Call, Fixture, TaskText};
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_host::view::{Bounds, Watcher};
use std::path::Path;
use std::time::Instant;

/// Threads of each VM: a main thread, 4 vCPUs, vhost, an iothread, a helper.
const THREADS: i32 = 8;
/// Processes that are no VM.
const OTHERS: i32 = 500;

fn host(vms: i32) -> Fixture {
    let mut fixture = Fixture::default();
    let task = |tid, comm: &str, cgroup: String, call| TaskText {
        tid,
        comm: comm.into(),
        ppid: 1,
        start: u64::from(tid.unsigned_abs()),
        cgroup: format!("0::{cgroup}\n"),
        call,
        sched: (1_000_000, 20_000, 50),
        ..TaskText::default()
    };
    for i in 0..vms {
        let pid = 10_000 + i * 10;
        let scope = format!(r"/machine.slice/machine-qemu\x2d{i}\x2dvm{i}.scope/libvirt");
        let first = task(
            pid,
            "qemu-system-x86",
            format!("{scope}/emulator"),
            Call::Another,
        );
        fixture.process(&first);
        let line = format!("/usr/bin/qemu-system-x86_64\0-name\0guest=vm{i},debug-threads=on\0");
        fixture
            .files
            .insert(format!("proc/{pid}/cmdline"), line.into());
        for fd in 0..30 {
            let target = match fd {
                10 => "anon_inode:kvm-vm".to_string(),
                20..24 => format!("anon_inode:kvm-vcpu:{}", fd - 20),
                _ => "anon_inode:[eventfd]".into(),
            };
            fixture.links.insert(format!("proc/{pid}/fd/{fd}"), target);
        }
        for t in 1..THREADS {
            let (comm, leaf, call) = match t {
                1..5 => (
                    format!("CPU {}/KVM", t - 1),
                    format!("vcpu{}", t - 1),
                    Call::Run(19 + t),
                ),
                5 => (format!("vhost-{pid}"), "emulator".into(), Call::Another),
                6 => ("IO iothread1".into(), "iothread1".into(), Call::Another),
                _ => ("call_rcu".into(), "emulator".into(), Call::Another),
            };
            let mut thread = task(pid + t, &comm, format!("{scope}/{leaf}"), call);
            if t == 5 {
                thread.flags = berth_host::procfile::PF_USER_WORKER;
            }
            fixture.thread(pid, &thread);
        }
    }
    for i in 0..OTHERS {
        fixture.process(&task(1 + i, "bash", "/user.slice".into(), Call::Another));
    }
    fixture
}

/// CPU time of this process, in seconds.
fn cpu() -> f64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// CPU time of one call, in milliseconds: the least of `n`.
fn least(n: usize, mut f: impl FnMut()) -> f64 {
    let once = |f: &mut dyn FnMut()| {
        let before = cpu();
        f();
        (cpu() - before) * 1e3
    };
    (0..n).map(|_| once(&mut f)).fold(f64::INFINITY, f64::min)
}

fn resident_mib() -> f64 {
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    let value = berth_host::procfile::status_value(&status, "VmRSS");
    let kib = value.and_then(|v| {
        v.split(|b| *b == b' ')
            .next()
            .and_then(berth_host::procfile::number)
    });
    kib.unwrap_or(0) as f64 / 1024.0
}

fn main() -> std::io::Result<()> {
    let vms = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(2000);
    // In a process of its own: what it takes to write the tree is no part of the memory that is measured.
    if let Some(folder) = std::env::args().nth(2) {
        return host(vms).unpack(Path::new(&folder));
    }
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory)?,
        false => tempfile::tempdir()?,
    };
    let status = std::process::Command::new(std::env::current_exe()?)
        .arg(vms.to_string())
        .arg(folder.path())
        .status()?;
    assert!(status.success());
    let root = Root::at(folder.path());
    let base = resident_mib();
    let mut elapsed = f64::INFINITY;
    let first = least(5, || {
        let began = Instant::now();
        Scanner::new(root.clone())
            .scan()
            .expect("the tree is there");
        elapsed = elapsed.min(began.elapsed().as_secs_f64() * 1e3);
    });
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut scanner = Scanner::new(root.clone());
    let snapshot = scanner.scan()?;
    let threads: usize = snapshot.vms.iter().map(|v| v.threads.len()).sum();
    println!(
        "{} VMs, {threads} threads, {OTHERS} other processes, in memory",
        snapshot.vms.len()
    );
    assert_eq!(threads, usize::try_from(vms * THREADS).unwrap_or(0));
    // A scan of what is known, also with the looks at processes that are due now and then.
    let again = least(40, || {
        scanner.scan().expect("the tree is there");
    });
    let full = least(10, || {
        for vm in &snapshot.vms {
            scanner.doubt(vm.pid);
        }
        scanner.scan().expect("the tree is there");
    });
    let bare_scan = least(10, || bare_scan(&root, &snapshot));
    let mut sampler = Sampler::new(root.clone());
    let all = least(5, || {
        sampler.refresh(&snapshot, None).expect("the tree is there");
    });
    let mut keeping = Sampler::new(root.clone());
    keeping.keep(files_allowed().saturating_sub(100));
    keeping.refresh(&snapshot, None)?;
    keeping.refresh(&snapshot, None)?;
    let kept = least(5, || {
        keeping.refresh(&snapshot, None).expect("the tree is there");
    });
    drop(keeping);
    let bare = least(5, || bare(&root, &snapshot));
    let bare_kept = bare_kept(&root, &snapshot)?;
    println!("CPU time, least of several, in ms:");
    println!(
        "  first scan, all from nothing           {first:8.1}   goal: 100 of time; it took {elapsed:.1} on {cpus} CPUs"
    );
    println!("  full rescan: every thread listed again {full:8.1}   goal: 100");
    println!(
        "  scan of a host that is known           {again:8.1}   a bare loop over the same folders {bare_scan:.1}: ours \
         {:.2} times",
        again / bare_scan
    );
    println!(
        "  counters of all threads                {all:8.1}   a bare loop {bare:.1}: ours {:.2} times",
        all / bare
    );
    println!(
        "  the same, {:5} files held open         {kept:8.1}   a bare loop {bare_kept:.1}: ours {:.2} times",
        files_allowed().min(threads),
        kept / bare_kept
    );
    refreshes(&root, &snapshot, folder.path())?;
    println!(
        "memory: {:.1} MiB resident, {:.1} before; goal: 64",
        resident_mib(),
        base
    );
    own_proc(all / threads as f64)?;
    Ok(())
}

/// Refreshes as `berth top` makes them, once a second: everything together, on a host where every thread ran meanwhile,
/// and on one where a tenth of them did.
fn refreshes(root: &Root, snapshot: &Snapshot, folder: &Path) -> std::io::Result<()> {
    const TIMES: u32 = 32;
    println!(
        "A refresh of berth top and its view, mean of {TIMES} in ms (goal: 10, which is 1 % of a CPU at one a second):"
    );
    let mut run_ns = 1_000_000u64;
    for (what, every) in [("all threads ran", 1), ("a tenth of them ran", 10)] {
        let mut watcher = Watcher::new(root.clone());
        watcher.bound(Bounds::light(files_allowed()));
        // Past the scans in which new processes are looked at every time, and until the files are open that are held
        // open.
        for _ in 0..120 {
            watcher.refresh()?;
        }
        let (mut spent, mut read, mut most) = (0.0, 0, 0.0f64);
        for _ in 0..TIMES {
            run_ns += 1_000_000;
            for vm in &snapshot.vms {
                for thread in vm.threads.iter().filter(|t| t.id.tid % every == 0) {
                    let id = thread.id;
                    let path = format!("proc/{}/task/{}/schedstat", id.pid, id.tid);
                    std::fs::write(folder.join(path), format!("{run_ns} 0 9\n"))?;
                }
            }
            let before = cpu();
            read += watcher.refresh()?.read;
            std::hint::black_box(watcher.view());
            let took = (cpu() - before) * 1e3;
            (spent, most) = (spent + took, most.max(took));
        }
        let mean = spent / f64::from(TIMES);
        println!(
            "  {what:<38} {mean:8.1}   at most {most:.1}; {} threads read",
            read / TIMES as usize
        );
    }
    Ok(())
}

/// The least that finding out takes whether a known host has changed.
fn bare_scan(root: &Root, snapshot: &Snapshot) {
    let proc = root.proc().expect("the tree is there");
    let mut n = 0u64;
    proc.list(|_, inode| n += inode & 1).expect("a folder");
    for vm in &snapshot.vms {
        let path = Short::of(format_args!("{}/task", vm.pid));
        n += proc.links(&path).expect("the tree is there");
    }
    std::hint::black_box(n);
}

/// The least that reading files takes that are open.
fn bare_kept(root: &Root, snapshot: &Snapshot) -> std::io::Result<f64> {
    let proc = root.proc()?;
    let mut files = Vec::new();
    for id in snapshot
        .vms
        .iter()
        .flat_map(|vm| vm.threads.iter().map(|t| t.id))
    {
        if files.len() + 100 < files_allowed() {
            let path = format!("{}/task/{}/schedstat", id.pid, id.tid);
            files.push(proc.record(&path)?);
        }
    }
    let mut buf = [0; 64];
    Ok(least(5, || {
        for file in &files {
            let _ = file.read(&mut buf);
        }
    }))
}

/// The least that reading these files takes: no identity, no parsing, no memory of the last reading.
fn bare(root: &Root, snapshot: &Snapshot) {
    let proc = root.proc().expect("the tree is there");
    let mut buf = [0; 4096];
    for vm in &snapshot.vms {
        let task = proc
            .dir(&format!("{}/task", vm.pid))
            .expect("the tree is there");
        for thread in &vm.threads {
            let _ = task.read_record(&format!("{}/schedstat", thread.id.tid), &mut buf);
        }
    }
}

/// What one reading of counters costs on this machine's own /proc, beside one in memory.
fn own_proc(memory_ms: f64) -> std::io::Result<()> {
    let task = Root::live().proc()?.dir("self/task")?;
    let own = format!("{}/schedstat", std::process::id());
    let mut buf = [0; 4096];
    let real = least(20, || {
        for _ in 0..1000 {
            let _ = task.read_record(&own, &mut buf);
        }
    }) / 1000.0;
    println!(
        "one reading: {:.2} us in memory, {:.2} us of /proc: {:.1} times",
        memory_ms * 1e3,
        real * 1e3,
        real / memory_ms
    );
    let file = task.record(&own)?;
    let kept = least(20, || {
        for _ in 0..1000 {
            let _ = file.read(&mut buf);
        }
    }) / 1000.0;
    println!(
        "held open: {:.2} us of /proc; 16,000 of them {:.0} ms",
        kept * 1e3,
        kept * 16_000.0
    );
    println!("16,000 readings of /proc: {:.0} ms", real * 16_000.0);
    Ok(())
}
