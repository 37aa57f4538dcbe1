// SPDX-License-Identifier: GPL-2.0-only
//! `berth profile` as an operator uses it: a real process that looks like a VM, which sends on a tap where it can; real
//! samples and calls, and where the kernel gives none, why.
//!
//! No harness: this program is also the VM.
#[path = "acting/nobody.rs"]
mod nobody;
#[path = "acting/tap.rs"]
mod tap;
#[path = "acting/vm.rs"]
mod vm;

use serde_json::Value;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};
use vm::{VM, Vm};

/// Ends what hangs; judges no speed.
const HUNG: Duration = Duration::from_secs(300);
const FUNCTIONS: &str = "/sys/kernel/tracing/available_filter_functions_addrs";

/// The VM's name: other runs of this test may have VMs at the same time.
fn name() -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| format!("berth-test-profiled-{}", std::process::id()))
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(VM).is_some() {
        busy();
    }
    let vm = Vm::begin(name(), "1");
    wrong_input_is_refused();
    samples();
    calls(has_tap(&vm));
    without_rights_it_is_said();
    ExitCode::SUCCESS
}

/// The VM: its vCPU sends all the time, in a network of its own, or computes.
fn busy() -> ! {
    // SAFETY: this program has one thread yet.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
    let mut tap = alone.then(tap::tap).flatten();
    vm::look_like_one(move || {
        loop {
            if let Some(tap) = &mut tap {
                // The tap is down, which its driver finds out.
                let _ = tap.write(&[0; 60]);
            }
            std::hint::black_box(());
        }
    });
    vm::idle()
}

fn has_tap(vm: &Vm) -> bool {
    let open = std::fs::read_dir(format!("/proc/{}/fd", vm.0.id())).unwrap();
    let to = |fd: std::fs::DirEntry| std::fs::read_link(fd.path()).ok();
    open.flatten()
        .filter_map(to)
        .any(|path| path.ends_with("net/tun"))
}

fn berth(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_berth"))
        .arg("profile")
        .args(arguments)
        .output()
        .unwrap()
}

/// It ends with status 2, says this, and shows nothing.
fn is_refused(out: &Output, words: &str) {
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains(words) && out.stdout.is_empty(), "{out:?}");
}

fn shown(out: &Output) -> Value {
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

fn keys(of: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = of.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// All of some counts, and those of the VM.
fn sums(counts: &Value) -> (u64, u64) {
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap();
    let counts = counts.as_object().unwrap().values();
    counts.fold((0, 0), |sum, of| {
        (sum.0 + number(of, "all"), sum.1 + number(of, "of_vm"))
    })
}

/// Looks until something of the VM was seen: others may want all CPUs. Gives that.
fn seen(arguments: &[&str], so: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + HUNG;
    loop {
        let seen = shown(&berth(arguments));
        if so(&seen) {
            return seen;
        }
        assert!(Instant::now() < end, "nothing of the VM was seen: {seen}");
    }
}

fn wrong_input_is_refused() {
    let near = format!("did you mean `{}`?", name());
    for more in [&[][..], &["--calls"]] {
        let unknown = berth(&[&[&name()[1..], "--seconds", "1"], more].concat());
        is_refused(&unknown, &near);
        for wrong in ["0", "-1", "x"] {
            let seconds = format!("--seconds={wrong}");
            is_refused(&berth(&[&[name(), &seconds], more].concat()), "--seconds");
        }
    }
    let none = berth(&[name(), "--seconds", "0"]);
    is_refused(&none, "between 0.01 s and a day");
}

/// Whether this kernel samples by this kind of event: 0 are cycles, 1 is time.
fn can_sample(kind: u32) -> bool {
    // `struct perf_event_attr`, its first version: kind, size, ..., period.
    let mut attr = [0u8; 64];
    attr[..4].copy_from_slice(&kind.to_ne_bytes());
    attr[4..8].copy_from_slice(&64u32.to_ne_bytes());
    attr[16..24].copy_from_slice(&1_000_000u64.to_ne_bytes());
    // SAFETY: the kernel reads as many bytes of `attr` as it says it has.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), -1, 0, -1, 8) };
    // SAFETY: just opened, owned by nobody else.
    fd >= 0
        && unsafe { OwnedFd::from_raw_fd(fd as i32) }
            .try_clone()
            .is_ok()
}

fn samples() {
    let event = [(0, "cycles"), (1, "cpu-clock")]
        .into_iter()
        .find(|(kind, _)| can_sample(*kind));
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let hidden = symbols
        .lines()
        .all(|line| line.trim_start_matches('0').starts_with(' '));
    let how = [name(), "--seconds", "1", "--json"];
    let Some((_, event)) = event.filter(|_| !hidden) else {
        let why = match hidden {
            true => "/proc/kallsyms hides the kernel's addresses from this user",
            false => "the kernel does not let this user sample all CPUs",
        };
        is_refused(&berth(&how), why);
        return println!("without samples: {why}");
    };
    let profile = seen(&how, |seen| sums(&seen["samples"]).1 > 0);
    let all = ["cpus", "event", "lost", "samples", "seconds", "vm"];
    assert_eq!(keys(&profile), all, "{profile}");
    assert_eq!(profile["vm"], name());
    assert_eq!(profile["event"], event);
    // Of calls this need not be: they are counted while they are read.
    let mut samples = profile["samples"].as_object().unwrap().values();
    assert!(
        samples.all(|of| of["of_vm"].as_u64() <= of["all"].as_u64()),
        "{profile}"
    );
    assert!(profile["seconds"].as_f64().unwrap() >= 1.0, "{profile}");
    // SAFETY: only a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    assert_eq!(profile["cpus"], online);
    let out = berth(&[name(), "--seconds", "0.1"]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert!(
        text.starts_with(&format!("samples of {event} for ")),
        "{text}"
    );
    let no_counter = "This machine counts no cycles: these are of time.";
    assert_eq!(text.contains(no_counter), event == "cpu-clock", "{text}");
    println!("ok    samples of {event}");
}

/// Tries to mount tracefs where it was not mounted, for this test alone.
fn mount_tracefs() {
    let to = c"/sys/kernel/tracing".as_ptr();
    let (root, tracefs, none) = (c"/".as_ptr(), c"tracefs".as_ptr(), std::ptr::null());
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: C strings that outlive the calls; this program has one thread.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, root, none, private, none.cast()) == 0
        {
            libc::mount(tracefs, to, tracefs, 0, none.cast());
        }
    }
}

fn calls(tap: bool) {
    let how = [name(), "--calls", "--seconds", "1", "--json"];
    let listed = || std::fs::File::open(FUNCTIONS).is_ok();
    let why = "which functions of this kernel can be watched is not to be had: ";
    if !listed() {
        is_refused(&berth(&how), why);
        mount_tracefs();
    }
    if !listed() {
        is_refused(&berth(&how), why);
        return println!("without calls: this kernel does not list its functions");
    }
    let out = berth(&how);
    if out.status.code() != Some(0) {
        // What the kernel is built with cannot be told everywhere.
        let words = [
            "this kernel does not count calls of its functions: ",
            "CONFIG_FPROBE",
        ];
        words.iter().for_each(|words| is_refused(&out, words));
        return println!("without calls: this kernel does not count them");
    }
    // A function of the tap's driver.
    let of_tap = |seen: &Value| {
        let functions = seen["functions"].as_object().unwrap().iter();
        let own = |of: &Value| of["of_vm"].as_u64() > Some(0);
        functions
            .filter(|(name, _)| name.starts_with("tun_"))
            .any(|(_, of)| own(of))
    };
    let calls = seen(&how, |seen| !tap || of_tap(seen));
    let all = ["calls", "functions", "lost", "seconds", "vm", "watched"];
    assert_eq!(keys(&calls), all, "{calls}");
    assert_eq!(calls["vm"], name());
    assert!(calls["watched"].as_u64() > Some(0), "{calls}");
    assert!(calls["seconds"].as_f64().unwrap() >= 1.0, "{calls}");
    assert_eq!(sums(&calls["calls"]), sums(&calls["functions"]), "{calls}");
    println!("ok    calls of {} functions", calls["watched"]);
}

/// Somebody who may not look into the kernel is told so.
fn without_rights_it_is_said() {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let paranoid: i32 = paranoid.map_or(3, |text| text.trim().parse().unwrap());
    // SAFETY: only a number.
    if unsafe { libc::geteuid() } != 0 || paranoid < 1 {
        return println!("not tried: only root can be somebody else, who may not sample");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = nobody::berth_for_nobody(folder.path());
    for (more, words) in [(&[][..], "be root"), (&["--calls"], "it takes root")] {
        let mut command = Command::new(&program);
        nobody::as_nobody(&mut command);
        command.args(["profile", name(), "--seconds", "1", "--json"]);
        is_refused(&command.args(more).output().unwrap(), words);
    }
}
