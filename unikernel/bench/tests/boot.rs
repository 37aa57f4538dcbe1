// SPDX-License-Identifier: GPL-2.0-only
//! The unikernel in QEMU: that it boots, what it refuses, that it is deterministic, and that nobody outside ends it.
use std::path::PathBuf;
use std::time::Duration;
use unikernel_bench::client::{self, Frames, Line};
use unikernel_bench::experiments::{self as run, Way};
use unikernel_bench::guest::{Ended, Guest, Network};
use unikernel_bench::image::image;
use unikernel_bench::peer::Linux;
use unikernel_service::hostile::Hostile;

/// Only a machine that stands still takes so long.
const LIMIT: Duration = Duration::from_secs(300);

fn ended(guest: &Guest) -> Ended {
    guest.run(LIMIT).unwrap()
}

/// Registers and stacks stay what they were under a preemption every 100 us, on every machine and with several vCPUs.
#[test]
fn preempted_threads_do_not_notice() {
    for (machine, cpus, sched) in [
        ("microvm", 1, "rr"),
        ("microvm", 5, "mrsf q3_slice=1"),
        ("q35", 8, "rr"),
    ] {
        let options = format!("mode=stress tasks=24 slice_us=100 sched={sched}");
        let ended = ended(&Guest::new(machine, cpus, &options)).done().unwrap();
        assert_eq!(ended.value("wrong").unwrap(), 0.0);
        assert!(
            ended.value("expired").unwrap() > 24.0,
            "{machine}: {:?}",
            ended.lines
        );
    }
}

#[test]
fn more_cpus_than_it_can_use_are_told() {
    let ended = ended(&Guest::new("microvm", 9, "mode=boot"))
        .done()
        .unwrap();
    assert!(
        ended.lines[0].starts_with("9 CPUs, of which 8 are used"),
        "{:?}",
        ended.lines
    );
    assert!(
        ended.lines[1].starts_with("up with 8 CPUs"),
        "{:?}",
        ended.lines
    );
}

#[test]
fn fewer_cpus_than_queues_are_told() {
    for (cpus, told) in [(2, true), (5, false)] {
        let ended = ended(&Guest::new("microvm", cpus, "mode=boot map=per_queue"))
            .done()
            .unwrap();
        let line = format!("5 queues on {cpus} CPUs: they are dealt around");
        assert_eq!(ended.lines.contains(&line), told, "{:?}", ended.lines);
    }
}

/// One line that says why, and a code.
fn refused(guest: &Guest, code: u32, why: &str) {
    let ended = ended(guest);
    assert_eq!(
        (ended.code, ended.lines.len()),
        (Some(code), 1),
        "{ended:?}"
    );
    assert!(
        ended.lines[0].starts_with(&format!("refused: {why}")),
        "{ended:?}"
    );
}

#[test]
fn wrong_boot_options_are_refused() {
    refused(
        &Guest::new("microvm", 1, "sched=cfs"),
        2,
        "sched: no policy `cfs`; there are mrsf, fcfs, rr, mqms",
    );
    refused(
        &Guest::new("microvm", 2, "slice_us=0"),
        2,
        "slice_us: `0` is no whole number from 1",
    );
    refused(
        &Guest::new("q35", 1, "slice=7"),
        2,
        "no boot option `slice`; there are mode, sched",
    );
}

#[test]
fn machines_that_cannot_run_it_are_refused() {
    let boot = Guest::new("pc", 1, "mode=boot");
    let small = Guest {
        memory_mb: 4,
        ..boot.clone()
    };
    refused(&small, 3, "not enough memory");
    let narrow = Guest {
        more: vec!["-cpu".into(), "qemu32".into()],
        ..boot
    };
    refused(&narrow, 3, "this CPU has no 64-bit mode");
    for machine in ["microvm", "q35"] {
        let lonely = Guest {
            more: vec!["-nic".into(), "none".into()],
            ..Guest::new(machine, 1, "")
        };
        let ended = ended(&lonely);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(
            ended
                .lines
                .last()
                .unwrap()
                .starts_with("refused: no virtio-net card"),
            "{ended:?}"
        );
    }
}

/// Whoever enters it without PVH's start information is told so: here the image looks for another magic number.
#[test]
fn who_is_not_pvh_is_refused() {
    let mut bytes = std::fs::read(image().unwrap()).unwrap();
    // cmpl $0x336ec578, 0(%ebp)
    let compare = [0x81, 0x7d, 0x00, 0x78, 0xc5, 0x6e, 0x33];
    let places: Vec<usize> = (0..bytes.len() - compare.len())
        .filter(|at| bytes[*at..].starts_with(&compare))
        .collect();
    assert_eq!(places.len(), 1);
    bytes[places[0] + 3] ^= 1;
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("image");
    std::fs::write(&path, bytes).unwrap();
    refused(
        &Guest {
            image: Some(path),
            ..Guest::new("microvm", 1, "mode=boot")
        },
        3,
        "not started by PVH",
    );
}

/// Experiment 4 under deterministic emulation: the same words twice; each policy near what it is on paper; M-RSF before
/// FCFS and RR on one vCPU, and before MQMS on five.
#[test]
fn batches_are_deterministic_and_near_paper() {
    let batch = |arm, cpus| run::batch(arm, cpus, 200, 3).unwrap();
    let literal = batch(run::LITERAL, 5);
    assert_eq!(literal.ended.lines, batch(run::LITERAL, 5).ended.lines);
    assert!(literal.turnaround_ms < batch(run::MQMS, 5).turnaround_ms);
    let one: Vec<_> = [run::SHARED, run::FCFS, run::RR]
        .into_iter()
        .map(|arm| batch(arm, 1))
        .collect();
    for ran in &one {
        assert!(
            (ran.turnaround_ms / ran.paper_ms - 1.0).abs() < 0.05,
            "{} and {}",
            ran.turnaround_ms,
            ran.paper_ms
        );
    }
    assert!(one[0].turnaround_ms < one[1].turnaround_ms.min(one[2].turnaround_ms));
}

/// Experiment 5 inside the guest: everything is answered, the same figures come out twice, and add up to the clients.
#[test]
fn clients_inside_are_answered() {
    let once = || run::closed(run::FCFS, 5, 2000, 1).unwrap();
    let (a, b) = (once(), once());
    assert_eq!((a.rate, a.response_us), (b.rate, b.response_us));
    // Little's law: who is not waiting for a reply is on its way, 100 us.
    let clients = a.rate * (a.response_us[0] + 100.0) / 1e6;
    assert!(
        (clients / 40.0 - 1.0).abs() < 0.02,
        "{clients} clients and not 40: {a:?}"
    );
}

/// What the unikernel is compared with, if its kernel is there (`LINUX_GUEST`, a folder that `tools/unikernel linux`
/// makes): it echoes, and ends when it has had enough.
#[test]
fn a_linux_guest_echoes() {
    let Some(folder) = std::env::var_os("LINUX_GUEST") else {
        println!("skipped: LINUX_GUEST names no folder (tools/unikernel linux makes one)");
        return;
    };
    let linux = Linux::new(&PathBuf::from(folder)).unwrap();
    let (seen, _) = run::echo(&linux.guest(1), Way::Frames, 4, 100).unwrap();
    assert_eq!(seen.replies, 100);
}

/// A client on this machine, over UDP: with interrupts and polled, with tasks and without.
#[test]
fn a_client_on_the_loopback_is_answered() {
    for (machine, cpus, options) in [
        ("microvm", 1, ""),
        ("q35", 2, "sched=mqms"),
        ("microvm", 1, "work=inline"),
    ] {
        let (seen, ended) =
            run::echo(&Guest::new(machine, cpus, options), Way::Loopback, 16, 500).unwrap();
        assert_eq!(seen.replies, 500);
        let tasks = ended.value("tasks_admitted").unwrap();
        assert_eq!(tasks >= 500.0, !options.contains("inline"), "{tasks}");
    }
}

/// 50,000 hostile frames through the card's driver, then what means well: it is answered, and the counters tell.
#[test]
fn hostile_frames_end_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut line = Frames::new(folder.path()).unwrap();
    let guest = Guest::new("microvm", 2, "sched=mrsf work_max_us=1000");
    let mut running = guest
        .network(Network::Frames(folder.path().to_path_buf()))
        .start()
        .unwrap();
    running.wait_for("ready", LIMIT).unwrap();
    line.meet(folder.path(), LIMIT).unwrap();
    for frame in Hostile::new(7, line.me, line.server).take(50_000) {
        // The guest goes on taking them.
        assert!(line.send_frame(&frame).unwrap());
        line.drain().unwrap();
    }
    line.meet(folder.path(), LIMIT).unwrap();
    assert!(running.runs().unwrap());
    let seen = client::ask(&mut line, 64, 8, 200).unwrap();
    assert_eq!(seen.replies, 200);
    let mut reply = [0; 2048];
    // A request for more work than is allowed is not answered.
    let mut greedy = [0; 64];
    unikernel_service::request::Request {
        work_us: 1001,
        class: 0,
    }
    .write(&mut greedy);
    while line.receive(&mut reply).unwrap().is_some() {}
    line.send(&greedy).unwrap();
    assert_eq!(line.receive(&mut reply).unwrap(), None);
    assert!(running.runs().unwrap());
}
