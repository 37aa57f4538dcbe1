// SPDX-License-Identifier: GPL-2.0-only
//! What `berth record` writes, `berth sim` runs, and the simulated VMs use what the recorded ones used.
use berth_host::fixture::Fixture;
use berth_host::record::record;
use berth_host::root::Root;
use berth_host::time::Played;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

/// A vCPU that is played: thread, CPUs used, wake-ups a second.
const PLAYED: [(i32, f64, f64); 5] = [
    (101, 0.2, 400.0),
    (102, 0.2, 380.0),
    (201, 0.6, 20.0),
    (301, 0.05, 100.0),
    (401, 0.99, 0.0),
];

fn host(folder: &Path) {
    let mut text = String::from(
        "file proc/sys/kernel/hostname kvm07\nfile sys/devices/system/cpu/online 0-3\n",
    );
    for (pid, name, vcpus) in [
        (100, "web", 2),
        (200, "job", 1),
        (300, "timer", 1),
        (400, "hog", 1),
    ] {
        text.push_str(&format!(
            "process {pid} lkvm\nargs lkvm run --name {name}\nfd 3 anon_inode:kvm-vm\n"
        ));
        for i in 0..vcpus {
            text.push_str(&format!("fd {} anon_inode:kvm-vcpu:{i}\n", 4 + i));
        }
        for i in 0..vcpus {
            let tid = pid + 1 + i;
            text.push_str(&format!("thread {tid} kvm-vcpu-{i} run={}\n", 4 + i));
        }
    }
    Fixture::parse(&text).unwrap().unpack(folder).unwrap();
}

/// Writes the counters as they would be after so long, each file whole.
fn play(folder: &Path, elapsed: Duration) {
    let s = elapsed.as_secs_f64();
    for (tid, cpus, wakeups) in PLAYED {
        let pid = tid / 100 * 100;
        let task = folder.join(format!("proc/{pid}/task/{tid}"));
        let put = |name: &str, text: String| {
            let new = folder.join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, task.join(name)).unwrap();
        };
        let woken = (1000.0 + wakeups * s) as u64;
        let run = (1e9 + cpus * s * 1e9) as u64;
        put("schedstat", format!("{run} 0 {woken}\n"));
        put(
            "status",
            format!("voluntary_ctxt_switches:\t{woken}\nnonvoluntary_ctxt_switches:\t5\n"),
        );
    }
}

fn berth(arguments: &[&str], folder: &Path) -> Output {
    let done = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {said}");
    done
}

#[test]
fn a_recording_runs_and_uses_what_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("host");
    host(&tree);
    play(&tree, Duration::ZERO);
    let played = tree.clone();
    let time = Played::new(move |passed| play(&played, passed));
    let root = Root::at(&tree).with_time(Arc::new(time));
    let (view, text) = record(&root, Duration::from_millis(1500)).unwrap();
    assert_eq!((view.vms.len(), view.seconds), (4, 1.5));
    std::fs::write(folder.path().join("seen.toml"), &text).unwrap();
    let run = [
        "sim",
        "seen.toml",
        "--arm",
        "linux",
        "--seed",
        "1",
        "--set",
        "run.measure=5s",
        "--json",
    ];
    let done = berth(&run, folder.path());
    let results: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let metrics = &results["experiments"][0]["runs"][0]["metrics"];
    for (name, cpus) in [("web", 0.4), ("job", 0.6), ("timer", 0.05), ("hog", 1.0)] {
        let used = metrics[format!("{name}.cpu")].as_f64();
        let used = used.unwrap_or_else(|| panic!("no {name}.cpu: {results:#}"));
        // Bursts are drawn: over 5 s a tenth either way.
        assert!(
            (used / cpus - 1.0).abs() < 0.1,
            "{name}: {used} of {cpus}\n{text}"
        );
    }
}

/// Its VMs do nothing meanwhile.
#[test]
fn the_command_writes_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("host");
    host(&tree);
    play(&tree, Duration::ZERO);
    let root = tree.to_str().unwrap();
    let record = ["record", "seen.toml", "--root", root, "--over", "0.1"];
    let said = String::from_utf8(berth(&record, folder.path()).stdout).unwrap();
    assert!(said.starts_with("4 VMs written to seen.toml."), "{said}");
    let text = std::fs::read_to_string(folder.path().join("seen.toml")).unwrap();
    assert!(text.starts_with("# Recorded on kvm07"), "{text}");
    berth(&["scenario", "check", "seen.toml"], folder.path());
}
