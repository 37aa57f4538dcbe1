// SPDX-License-Identifier: GPL-2.0-only
//! The unikernel in QEMU: that it boots, what it refuses, that it is deterministic, and that nobody outside ends it.
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
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

/// What a mode keeps is counted against memory before it begins: what does not fit is refused in one line that says how
/// much does, and so much fits.
#[test]
fn what_memory_has_no_room_for_is_refused() {
    let small = |options: &str, memory_mb| Guest {
        memory_mb,
        ..Guest::new("microvm", 1, options)
    };
    let most = |what: &str, guest: &Guest| -> u64 {
        let ended = ended(guest);
        assert_eq!((ended.code, ended.lines.len()), (Some(3), 1), "{ended:?}");
        let line = &ended.lines[0];
        assert!(
            line.starts_with(&format!("refused: {what} do not fit")),
            "{line}"
        );
        let words = line.strip_suffix(" do").unwrap();
        words.rsplit(' ').next().unwrap().parse().unwrap()
    };
    for (tasks, options) in [
        (500, "mode=batch"),
        (500, "mode=stress"),
        (8000, "mode=batch mean_us=1 slice_us=1"),
        (1_000_000, "mode=batch mean_us=1"),
    ] {
        let memory_mb = if tasks == 500 { 8 } else { 32 };
        let asked = format!("{options} tasks={tasks}");
        let fit = most(&format!("tasks: {tasks}"), &small(&asked, memory_mb));
        // Of stress only as many as are quick.
        let fit = if options == "mode=stress" {
            fit.min(60)
        } else {
            fit
        };
        ended(&small(&format!("{options} tasks={fit}"), memory_mb))
            .done()
            .unwrap();
    }
    let most_requests = most(
        "requests: 9000000000",
        &small("mode=closed requests=9000000000", 8),
    );
    assert!(most_requests > 40_000, "{most_requests}");
}

/// A client inside whose request is refused goes on: too much work, or no room for as many tasks.
#[test]
fn clients_inside_whose_requests_are_refused_go_on() {
    for (memory_mb, options) in [
        (128, "requests=200 mean_us=1000 work_max_us=1000"),
        (8, "clients=300 requests=1000 mean_us=20 slice_us=20"),
    ] {
        let guest = Guest {
            memory_mb,
            ..Guest::new("microvm", 1, &format!("mode=closed {options}"))
        };
        let ended = ended(&guest).done().unwrap();
        let last = Ended {
            lines: ended.lines.last().cloned().into_iter().collect(),
            ..ended.clone()
        };
        let [replies, refused] = ["replies", "refused"].map(|name| last.value(name).unwrap());
        let wanted = if memory_mb == 8 { 1000.0 } else { 200.0 };
        assert!(refused > 0.0 && replies + refused == wanted, "{last:?}");
    }
}

/// `unikernel-bench run` with these arguments: its exit status, and what it said.
fn bench(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_unikernel-bench"))
        .arg("run")
        .args(arguments)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// QEMU's own failures are told in its words, and never taken for the unikernel's end.
#[test]
fn what_qemu_refuses_is_told() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, words) in [
        (
            &["--machine", "foo", "mode=boot"][..],
            "unsupported machine type",
        ),
        (&["--accel", "foo", "mode=boot"], "foo"),
        (&["--cpus", "300", "mode=boot"], "300"),
        (&["--udp", &port, "requests=1"], "forwarding"),
    ] {
        let (status, said) = bench(arguments);
        assert_eq!(status, Some(3), "{arguments:?}: {said}");
        assert!(
            said.contains("QEMU failed") && said.contains(words),
            "{arguments:?}: {said}"
        );
    }
}

/// Its exit status is as its help says; the unikernel's code 1 is covered where a check fails, which none does.
#[test]
fn the_bench_ends_as_its_help_says() {
    assert_eq!(bench(&["mode=boot"]).0, Some(0));
    let (status, said) = bench(&["sched=cfs"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("refused: sched: no policy `cfs`"), "{said}");
    let (status, said) = bench(&["--memory", "8", "mode=batch"]);
    assert_eq!(status, Some(3), "{said}");
    assert!(said.contains("ended with code 3"), "{said}");
}

/// A machine that does not start the image says nothing: that is told after a while. QEMU of the version that is here
/// may not have it any more.
#[test]
fn a_machine_without_pvh_is_told_of() {
    let machine = "pc-i440fx-3.1";
    let help = Command::new("qemu-system-x86_64")
        .args(["-machine", "help"])
        .output()
        .unwrap();
    if !String::from_utf8_lossy(&help.stdout).contains(&format!("{machine} ")) {
        eprintln!("skipped: this QEMU has no {machine}, nor another machine without PVH");
        return;
    }
    for arguments in [["--machine", machine], ["--memory", "1"]] {
        let (status, said) = bench(&[&arguments[..], &["--limit", "3", "mode=boot"]].concat());
        assert_eq!(status, Some(3), "{said}");
        // Some hang, some reset themselves, which ends QEMU.
        let how = said.contains("said nothing within 3s") || said.contains("nobody said a word");
        assert!(how && said.contains("one with PVH"), "{said}");
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

/// What the unikernel is compared with: it echoes, and ends when it has had enough.
#[test]
#[ignore = "LINUX_GUEST must name the folder that `tools/unikernel linux` makes"]
fn a_linux_guest_echoes() {
    let folder = std::env::var_os("LINUX_GUEST").expect("LINUX_GUEST names no folder");
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
        let end = Instant::now() + LIMIT;
        while !line.send_frame(&frame).unwrap() {
            assert!(Instant::now() < end, "it takes no more");
            line.drain().unwrap();
        }
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
