// SPDX-License-Identifier: GPL-2.0-only
//! What pinning costs: 100 real processes that look like VMs, of eight threads each, are planned, pinned and read back,
//! then undone, beside the bare system calls; what a look at them takes then, and how much memory. `cargo run --release
//! -p berth-agent --example pins`; with a number behind `--`, as many VMs. Exit status 1 if a goal is missed: 1 s for
//! 100 VMs or fewer, each way, 64 MiB for 2,000 or fewer.
use berth_actuator::ledger::{Ledger, this_boot};
use berth_actuator::live::Live;
use berth_actuator::{ALL, Acting, Host, Knob};
use berth_affinity::{Ask, Policy};
use berth_agent::keeper::Keeper;
use berth_agent::pins::{Method, Pinning, Pins};
use berth_agent::register::VmKey;
use berth_agent::rules::Rules;
use berth_host::root::Root;
use std::ffi::CString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const VMS: usize = 100;
const ROUNDS: usize = 5;
/// For so many VMs at most, the median of all rounds: planned, set and read back; and undone.
const SOON: (usize, Duration) = (100, Duration::from_secs(1));
/// For so many VMs at most, so many MiB.
const SMALL: (usize, u64) = (2_000, 64);
/// Looks at pinned VMs.
const LOOKS: usize = 50;
/// Marks a process that is a VM.
const VM: &str = "BERTH_BENCH_VM";

fn call_me(name: &str) {
    let name = CString::new(name).expect("no zero in it");
    // SAFETY: a C string that outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// A VMM, its vCPU and six workers, which sleep until the bench has ended.
fn vm() -> ! {
    call_me("qemu-system-x86");
    for name in ["CPU 0/TCG"].into_iter().chain(["worker"; 6]) {
        std::thread::spawn(move || {
            call_me(name);
            std::thread::sleep(Duration::from_secs(3600));
        });
    }
    println!("up");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0)
}

fn start(n: usize) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg0("qemu-system-x86_64")
        .args(["-name", &format!("bench-{n:03}")])
        .env(VM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program");
    let mut up = [0; 2];
    let out = child.stdout.as_mut().expect("piped");
    out.read_exact(&mut up).expect("it says so");
    child
}

/// The most memory that this process has had resident, in MiB.
fn most_resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB"));
    kib.and_then(|n| n.parse::<u64>().ok()).expect("a number") / 1024
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The goals that are missed, a sentence each.
fn missed(vms: usize, set: Duration, undone: Duration, mib: u64) -> Vec<String> {
    let mut all = Vec::new();
    let (few, soon) = SOON;
    for (what, time) in [
        ("planning, setting and reading back", set),
        ("undoing", undone),
    ] {
        if vms <= few && time > soon {
            all.push(format!(
                "{what} {vms} VMs takes {:.2} s in its median, and is to take {:.2} s at most",
                time.as_secs_f64(),
                soon.as_secs_f64()
            ));
        }
    }
    let (many, small) = SMALL;
    if vms <= many && mib > small {
        all.push(format!(
            "{vms} VMs need {mib} MiB of memory, and are to need {small} MiB at most"
        ));
    }
    all
}

fn main() -> ExitCode {
    if std::env::var_os(VM).is_some() {
        vm();
    }
    let folder = tempfile::tempdir().expect("a folder");
    let vms = match std::env::args().nth(1) {
        None => VMS,
        Some(number) => number.parse().expect("a number of VMs"),
    };
    let mut children: Vec<Child> = (0..vms).map(start).collect();
    let root = Root::live();
    let mut keeper = Keeper::new(root.clone(), Rules::default());
    keeper.look().expect("/proc");
    let ours = |vm: &&std::sync::Arc<berth_host::model::Vm>| vm.name.starts_with("bench-");
    let found: Vec<_> = keeper.snapshot().vms.iter().filter(ours).cloned().collect();
    assert_eq!(found.len(), vms);
    let pinning = Pinning {
        ask: Ask {
            policy: Policy::Full,
            ..Ask::default()
        },
        method: Method::Taskset,
    };
    let (mut set, mut undone, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    let mut values = 0;
    let mut looks: Vec<Duration> = Vec::new();
    for round in 0..ROUNDS {
        let boot = this_boot().expect("/proc");
        let ledger = Ledger::open(&folder.path().join("pins"), &boot).expect("a ledger");
        let (hands, _) = Acting::begin(Live::new(), ledger).expect("a ledger");
        let mut pins = Pins::new(root.clone());
        pins.take_hands(hands);
        let key = |vm: &berth_host::model::Vm| VmKey {
            pid: vm.pid,
            start: vm.start,
        };
        let asked = found.iter().map(|vm| (key(vm), pinning.clone())).collect();
        // How busy the CPUs are it has seen before.
        pins.watch();
        std::thread::sleep(Duration::from_secs(1));
        let begun = Instant::now();
        let refused = pins.pin_all(&keeper, asked).expect("a ledger");
        set.push(begun.elapsed());
        assert!(refused.is_empty(), "{refused:?}");
        values = pins.status().iter().map(|p| p.set).sum();
        for _ in 0..if round == 0 { LOOKS } else { 0 } {
            std::thread::sleep(Duration::from_millis(200));
            let begun = Instant::now();
            keeper.look().expect("/proc");
            pins.look(&keeper).expect("a ledger");
            looks.push(begun.elapsed());
        }
        let begun = Instant::now();
        pins.end().expect("a ledger");
        undone.push(begun.elapsed());
        let (live, begun) = (Live::new(), Instant::now());
        for id in found.iter().flat_map(|vm| &vm.threads).map(|t| t.id) {
            let knob = Knob::Affinity {
                pid: id.pid,
                tid: id.tid,
                start: id.start,
            };
            live.write(&knob, ALL).expect("a thread");
        }
        bare.push(begun.elapsed());
    }
    for child in &mut children {
        let _ = child.kill();
        let _ = child.wait();
    }
    let ms = |t: Duration| t.as_secs_f64() * 1e3;
    let (set, undone, bare) = (median(&mut set), median(&mut undone), median(&mut bare));
    let mib = most_resident_mib();
    println!("{vms} VMs, {values} values, the median of {ROUNDS}:");
    println!(
        "  planned, set, read back  {:7.1} ms, {:.1} x the writes alone",
        ms(set),
        ms(set) / ms(bare)
    );
    println!(
        "  undone                   {:7.1} ms, {:.1} x",
        ms(undone),
        ms(undone) / ms(bare)
    );
    println!("  the writes alone         {:7.1} ms", ms(bare));
    looks.sort_unstable();
    println!(
        "  a look, each 200 ms      {:7.1} ms, p99 {:.1}",
        ms(looks[LOOKS / 2]),
        ms(looks[LOOKS - 1 - LOOKS / 100])
    );
    println!("  memory, resident         {mib:5} MiB at most");
    let missed = missed(vms, set, undone, mib);
    for goal in &missed {
        eprintln!("missed: {goal}");
    }
    match missed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
