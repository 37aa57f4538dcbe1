// SPDX-License-Identifier: GPL-2.0-only
//! What watching costs on this kernel's own /proc:
//! `cargo run --release -p berth-tracer --example real_cost [VMS [PROGRAM ARGUMENT...]]`.
//!
//! Starts so many processes (500 if nothing is said) that each hold a VM of this machine's KVM with 4 vCPUs, and have 8
//! threads that sleep; then watches them as `berth top` does, by /proc and by BPF. With a program, that is run beside
//! them instead, and what CPU time it takes is told. Without `/dev/kvm` nothing is measured.
use berth_host::discover::Scanner;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_host::trace::Tracer;
use berth_host::view::{Bounds, Watcher};
use berth_tracer::BpfTracer;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

const VCPUS: usize = 4;
/// The first thread, the vCPUs, three others.
const THREADS: usize = 8;
const TIMES: u32 = 40;
const KVM_CREATE_VM: libc::c_ulong = 0xae01;
const KVM_CREATE_VCPU: libc::c_ulong = 0xae41;
const KVM_CREATE_IRQCHIP: libc::c_ulong = 0xae60;
const KVM_SET_MP_STATE: libc::c_ulong = 0x4004_ae99;
const KVM_RUN: libc::c_ulong = 0xae80;

/// CPU time of this process, in milliseconds.
fn cpu() -> f64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t) };
    t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
}

fn make(of: &impl AsRawFd, what: libc::c_ulong, argument: libc::c_ulong) -> io::Result<OwnedFd> {
    // SAFETY: both requests take a number and give a file.
    let fd = unsafe { libc::ioctl(of.as_raw_fd(), what, argument) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The VM's process: its vCPUs are in `KVM_RUN` and wait to be started, until its standard input is closed.
fn vm() -> io::Result<()> {
    let device = File::options().read(true).write(true).open("/dev/kvm")?;
    let vm = make(&device, KVM_CREATE_VM, 0)?;
    // SAFETY: takes no argument. Only with an interrupt controller in the kernel can a vCPU wait there.
    if unsafe { libc::ioctl(vm.as_raw_fd(), KVM_CREATE_IRQCHIP, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    for i in 1..THREADS {
        let vcpu = match i {
            1..=VCPUS => Some(make(&vm, KVM_CREATE_VCPU, (i - 1) as libc::c_ulong)?),
            _ => None,
        };
        let name = match i {
            1..=VCPUS => format!("CPU {}/KVM", i - 1),
            _ => format!("worker{i}"),
        };
        let thread = std::thread::Builder::new().name(name).stack_size(32 << 10);
        thread.spawn(move || {
            if let Some(vcpu) = vcpu {
                static UNINITIALIZED: u32 = 1;
                // SAFETY: the first call reads one number, the second takes none.
                unsafe {
                    let state = &raw const UNINITIALIZED;
                    libc::ioctl(vcpu.as_raw_fd(), KVM_SET_MP_STATE, state);
                    libc::ioctl(vcpu.as_raw_fd(), KVM_RUN, 0);
                }
            }
            std::thread::park();
        })?;
    }
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

struct Vms(Vec<Child>);

impl Drop for Vms {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

fn start(vms: usize) -> io::Result<Vms> {
    let program = std::env::current_exe()?;
    let mut all = Vms(Vec::new());
    for i in 0..vms {
        let child = Command::new(&program)
            .arg("vm")
            .arg(format!("--name=v{i}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        all.0.push(child);
    }
    for child in &mut all.0 {
        let mut said = [0; 6];
        // Closed then: who watches looks at what this process holds, too.
        if let Some(mut out) = child.stdout.take() {
            out.read_exact(&mut said)?;
        }
    }
    Ok(all)
}

/// Mean CPU time of a call, in milliseconds, of several after two that warm up.
fn mean(times: u32, mut f: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    f()?;
    f()?;
    let before = cpu();
    for _ in 0..times {
        f()?;
    }
    Ok((cpu() - before) / f64::from(times))
}

/// What reading these counters takes at least: files that are open, read one after the other. With more threads than
/// files may be open, by as many as may.
fn bare(snapshot: &Snapshot) -> io::Result<f64> {
    // Two are pipes to each VM.
    let room = berth_host::dir::files_allowed().saturating_sub(2 * snapshot.vms.len() + 100);
    let all: usize = snapshot.vms.iter().map(|vm| vm.threads.len()).sum();
    let proc = Root::live().proc()?;
    let mut files = Vec::new();
    for id in snapshot
        .vms
        .iter()
        .flat_map(|vm| vm.threads.iter().map(|t| t.id))
        .take(room)
    {
        files.push(proc.record(&format!("{}/task/{}/schedstat", id.pid, id.tid))?);
    }
    let mut buf = [0; 64];
    let took = mean(5, || {
        for file in &files {
            file.read(&mut buf)?;
        }
        Ok(())
    })?;
    Ok(took * all as f64 / files.len().max(1) as f64)
}

/// CPU time of a process and its threads so far, in ticks of a hundredth of a second.
fn ticks(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Of what is behind the name, which may hold anything.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let of = |field| behind.split_whitespace().nth(field);
    let number = |field| of(field).and_then(|n| n.parse::<u64>().ok());
    number(11)
        .zip(number(12))
        .map(|(user, system)| user + system)
        .ok_or(io::ErrorKind::InvalidData.into())
}

/// Runs a program for six minutes, and tells what it takes in the first 20 seconds, in which it finds all, while all is
/// new to it, and then.
fn beside(program: &str, arguments: &[String]) -> io::Result<()> {
    let running = Command::new(program).args(arguments).spawn()?;
    let mut all = Vms(vec![running]);
    let pid = all.0[0].id();
    let mut before = 0;
    for seconds in [20, 280, 60] {
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        if let Some(status) = all.0[0].try_wait()? {
            return Err(io::Error::other(format!("{program} has ended: {status}")));
        }
        let now = ticks(pid)?;
        let percent = (now - before) as f64 / seconds as f64;
        println!("  {program}: {percent:.2} % of a CPU in {seconds} s");
        before = now;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let first = std::env::args().nth(1);
    if first.as_deref() == Some("vm") {
        return vm();
    }
    let vms = first.and_then(|n| n.parse().ok()).unwrap_or(500);
    if let Err(e) = File::options().read(true).write(true).open("/dev/kvm") {
        println!("/dev/kvm: {e}; nothing is measured.");
        return Ok(());
    }
    let files = berth_host::dir::files_allowed();
    let _running = start(vms)?;
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    if let Some((program, arguments)) = arguments.split_first() {
        println!("{vms} VMs, {} threads:", vms * THREADS);
        return beside(program, arguments);
    }
    let root = Root::live();
    let before = cpu();
    let mut scanner = Scanner::new(root.clone());
    let snapshot = scanner.scan()?;
    let from_nothing = cpu() - before;
    let threads: usize = snapshot.vms.iter().map(|vm| vm.threads.len()).sum();
    println!(
        "{} VMs, {threads} threads on this kernel's /proc; mean CPU time in ms:",
        snapshot.vms.len()
    );
    println!("  first scan, all from nothing        {from_nothing:8.2}");
    // Past the scans in which new processes are looked at every time.
    for _ in 0..25 {
        scanner.scan()?;
    }
    let again = mean(TIMES, || scanner.scan().map(drop))?;
    println!("  scan of a host that is known        {again:8.2}");
    let least = bare(&snapshot)?;
    println!("  a bare loop over open schedstats    {least:8.2}");
    let mut light = Watcher::new(root.clone());
    light.bound(Bounds::light(files));
    for _ in 0..60 {
        light.refresh()?;
    }
    let mut read = 0;
    let by_proc = mean(TIMES, || {
        read += light.refresh()?.read;
        std::hint::black_box(light.view());
        Ok(())
    })?;
    // Two more than are measured.
    let each = |read: usize| read / (TIMES as usize + 2);
    println!(
        "  a refresh of top by /proc           {by_proc:8.2}   {} threads read",
        each(read)
    );
    drop(light);
    let mut tracer = match BpfTracer::start() {
        Ok(tracer) => tracer,
        Err(e) => {
            println!("  by BPF: {e}");
            return Ok(());
        }
    };
    tracer.follow(&snapshot)?;
    let asked = mean(TIMES, || tracer.counters(&mut |_, _, _| {}))?;
    let sums = mean(TIMES, || tracer.read().map(drop))?;
    println!(
        "  counters of all by BPF              {asked:8.2}   {:.2} times the bare loop",
        asked / least
    );
    println!("  who waited for whom by BPF          {sums:8.2}");
    let mut traced = Watcher::new(root);
    traced.bound(Bounds::light(files));
    traced.set_tracer(Box::new(tracer));
    for _ in 0..60 {
        traced.refresh()?;
    }
    read = 0;
    let by_bpf = mean(TIMES, || {
        read += traced.refresh()?.read;
        std::hint::black_box(traced.view());
        Ok(())
    })?;
    println!(
        "  a refresh of top by BPF             {by_bpf:8.2}   {} threads read",
        each(read)
    );
    Ok(())
}
