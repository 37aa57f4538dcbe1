// SPDX-License-Identifier: GPL-2.0-only
//! Disks against closed forms and ten lines of arithmetic.
use super::{SECOND, run, scenario};
use berth_scenario::model::Scenario;
use berth_sim::oracle::{queue, reference};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;

/// 8 ns a byte, no other cost, no cache; `more`: keys of the disk.
const FREE: &str = "bandwidth = \"125MB/s\"\nseek = \"0us\"\ncache = \"0B\"\nsyscall = \"0us\"\ncopy = \"0us\"\n\
     submit = \"0us\"\nper_request_host = \"0us\"\nirq = \"0us\"\n";
/// The same with costs.
const COSTS: &str = "bandwidth = \"125MB/s\"\nseek = \"50us\"\ncache = \"0B\"\nsyscall = \"1us\"\ncopy = \"100ns\"\n\
     submit = \"3us\"\nirq = \"2us\"\n";

/// A VM with these tasks (name, threads, loop), and a disk `d`.
fn vm(cpus: u32, tasks: &[(&str, u32, &str)], disk: &str) -> String {
    let vcpus: u32 = tasks.iter().map(|t| t.1).sum();
    let names: Vec<String> = tasks.iter().map(|t| format!("\"{}\"", t.0)).collect();
    let mut text = format!(
        "[host]\ncores = {cpus}\n[vm.v]\nvcpus = {vcpus}\ntasks = [{}]\nguest = \"none\"\n",
        names.join(", ")
    );
    for (name, n, steps) in tasks {
        text += &format!("[task.{name}]\nthreads = {n}\nloop = [{steps}]\n");
    }
    text + "[disk.d]\n" + disk
}

fn metrics(text: &str, end: u64) -> BTreeMap<String, f64> {
    run(text, end).unwrap_or_else(|e| panic!("{e}\n{text}")).0
}

fn near(a: f64, b: f64, part: f64) {
    assert!((a / b - 1.0).abs() <= part, "{a} is not {b}");
}

/// Whose CPU time is what, and who is waited for: a record alone takes the sum.
#[test]
fn a_lone_record_takes_the_sum_of_its_stages() {
    // Call, copy of 64 KiB, transfer.
    let own = 1_000.0 + 6_400.0 + 65_536.0 * 8.0;
    let driver = "[vm.dom0]\nrole = \"driver\"\nguest = \"none\"\n";
    for (step, cpus) in [("read", 2), ("read", 1), ("write", 2)] {
        for (path, extra, want) in [
            // The host's thread there and back, the host's interrupt and the guest's.
            ("virtio", "", own + 3_000.0 + 2.0 * 7_000.0 + 2.0 * 2_000.0),
            (
                "emulated",
                "",
                own + 3_000.0 + 2.0 * 7_000.0 + 2.0 * 2_000.0,
            ),
            (
                "driver-domain",
                driver,
                own + 3_000.0 + 2.0 * 7_000.0 + 2.0 * 2_000.0,
            ),
            ("direct", "", own + 3_000.0 + 2_000.0),
        ] {
            let disk = format!("path = \"{path}\"\nper_request_host = \"7us\"\n{COSTS}{extra}");
            let m = metrics(
                &vm(cpus, &[("t", 1, &format!("\"{step} d 64KiB\""))], &disk),
                SECOND,
            );
            let shown = (path, step, cpus);
            assert_eq!(
                (m["v.disk.mean"], m["v.disk.max"]),
                (want, want),
                "{shown:?}"
            );
            assert_eq!(m["v.disk.count"], (1e9 / want).floor(), "{shown:?}");
            let bits = 65_536.0 * 8.0 * m["v.disk.count"];
            let of = if step == "read" {
                "v.read"
            } else {
                "v.written"
            };
            assert_eq!(m[of], bits, "{shown:?}");
            assert!(m["v.blocks"] - m["v.disk.count"] <= 1.0, "{shown:?}");
        }
    }
}

/// A record larger than a request is several; each but the first begins where the one before ended.
#[test]
fn a_long_record_is_several_requests() {
    let disk = format!("path = \"direct\"\nrequest = \"64KiB\"\naccess = \"random\"\n{COSTS}");
    let m = metrics(&vm(2, &[("t", 1, "\"read d 256KiB\"")], &disk), SECOND);
    assert!((m["v.blocks"] - 4.0 * m["v.disk.count"]).abs() <= 4.0);
    // Four are submitted and interrupt; the head has to move once. The interrupts of the first three come while the
    // disk transfers.
    let want = 1_000.0 + 25_600.0 + 4.0 * 3_000.0 + 50_000.0 + 262_144.0 * 8.0 + 2_000.0;
    near(m["v.disk.mean"], want, 1e-3);
}

/// A seek takes longer with the distance: from a file to one at the other end.
#[test]
fn a_seek_depends_on_the_distance() {
    let seek = |size: &str| {
        // Two tasks in two VMs, which take turns: a file is as large as half of the disk.
        let disk = format!(
            "size = \"{size}\"\nfile = \"64MiB\"\nseek_far = \"8ms\"\npath = \"direct\"\n{FREE}"
        )
        .replace("seek = \"0us\"", "seek = \"1ms\"");
        let text =
            vm(3, &[("t", 1, "\"read d 4KiB\"")], &disk).replace("[vm.v]\n", "[vm.v]\ncount = 2\n");
        metrics(&text, SECOND)["v.blocks"]
    };
    // The distance is half of the disk, then 1/32 of it: 1 ms + 7 ms sqrt(d), plus the transfer.
    for (size, part) in [("128MiB", 0.5f64), ("2GiB", 1.0 / 32.0)] {
        let service = 1e6 + 7e6 * part.sqrt() + 4096.0 * 8.0;
        near(seek(size), 1e9 / service, 0.01);
    }
}

/// What is in the cache costs the call and the copy, and nothing of the disk.
#[test]
fn a_hit_does_not_reach_the_disk() {
    let disk = format!("file = \"1MiB\"\nblock = \"4KiB\"\nread_ahead = \"0B\"\n{COSTS}")
        .replace("cache = \"0B\"", "cache = \"1MiB\"");
    let m = metrics(&vm(2, &[("t", 1, "\"read d 64KiB\"")], &disk), SECOND);
    // Each of its 16 records comes from the disk once.
    assert_eq!(m["v.blocks"], 16.0);
    assert_eq!(m["v.disk.count"] - m["v.disk.count"] * m["v.cached"], 16.0);
    near(m["v.disk.p50"], 7_400.0, 1e-3);
    assert!(m["v.disk.count"] > 100_000.0);
    // Those: submitting, the thread there and back, two interrupts and the transfer besides.
    let miss = 7_400.0 + 3_000.0 + 2.0 * 4_000.0 + 2.0 * 2_000.0 + 65_536.0 * 8.0;
    assert_eq!(m["v.disk.max"], miss);
}

/// Uniform records over a file: the part that is in the cache is the part of the file that fits, whoever is given up.
/// Going through a file that does not fit finds nothing of it: what comes next was given up last but for one round.
#[test]
fn the_part_that_is_cached() {
    let disk = |access: &str| {
        format!("file = \"4MiB\"\naccess = \"{access}\"\nread_ahead = \"0B\"\n{FREE}")
            .replace("cache = \"0B\"", "cache = \"1MiB\"")
    };
    let run = |access| {
        metrics(
            &vm(2, &[("t", 1, "\"read d 4KiB\"")], &disk(access)),
            2 * SECOND,
        )
    };
    let random = run("random");
    assert!(random["v.disk.count"] > 20_000.0);
    assert!(
        (random["v.cached"] - 0.25).abs() < 0.01,
        "{}",
        random["v.cached"]
    );
    assert_eq!(run("sequential")["v.cached"], 0.0);
}

/// Records that come at random times wait for the disk as Lindley's recursion says, one by one, and on average as
/// Pollaczek and Khinchine do.
#[test]
fn a_disk_is_a_queue_with_constant_service() {
    // 128 KiB: 1.048576 ms; 700 a second keep it busy for 73 %.
    let service = 131_072 * 8;
    let text = format!(
        "[host]\ncores = 2\n[vm.v]\nvcpus = 1\nguest = \"none\"\ntasks = [\"t\"]\n[task.t]\nper_request = true\n\
         loop = [\"receive c\", \"read d 128KiB\", \"reply\"]\n[client.c]\nto = \"v\"\nsends = \"poisson(700/s)\"\n\
         [net]\npath = \"none\"\n[disk.d]\nsize = \"1024GiB\"\nfile = \"1024GiB\"\npath = \"direct\"\n{FREE}"
    );
    let s = scenario(&text);
    let (m, got) = run(&text, 20 * SECOND).unwrap();
    let arrivals = berth_scenario::dist::Arrivals::new(&s.clients[0].sends, 1, 0, 0).unwrap();
    let requests: Vec<_> = arrivals
        .take(got.len())
        .map(|arrival| reference::Request { arrival, service })
        .collect();
    assert!(got.len() > 10_000);
    assert_eq!(got, reference::fcfs(1, &requests));
    let rho = 700.0 * service as f64 / 1e9;
    let mean = got.iter().sum::<u64>() as f64 / got.len() as f64;
    near(
        mean,
        queue::mg1_fcfs_response(service as f64, rho, 0.0),
        0.1,
    );
    // The utilisation law, and Little's for those at the disk.
    let rate = m["v.blocks"];
    near(m["host.disk_busy"], rate * service as f64 / 1e9, 1e-3);
    near(m["host.disk_queue"], rate * mean / 1e9, 1e-3);
}

/// Many readers have the disk's bandwidth together, and no more; it is busy all of the time. Each waits for all others.
#[test]
fn the_bandwidth_bounds_all_readers_together() {
    for (n, path) in [(1, "direct"), (4, "virtio"), (16, "emulated")] {
        let disk = format!("path = \"{path}\"\n{FREE}");
        let m = metrics(&vm(20, &[("t", n, "\"read d 100kB\"")], &disk), SECOND);
        near(m["v.read"], 1e9, 0.02);
        near(m["host.disk_busy"], 1.0, 1e-3);
        near(m["host.disk_queue"], f64::from(n), 0.01);
        near(m["v.disk.mean"], f64::from(n) * 800_000.0, 0.02);
    }
    let two = format!("{FREE}[disk.e]\n{FREE}");
    let tasks = [("t", 2, "\"read d 100kB\""), ("u", 2, "\"read e 100kB\"")];
    let m = metrics(&vm(8, &tasks, &two), SECOND);
    near(m["v.read"], 2e9, 0.02);
    near(m["host.disk_queue"], 4.0, 0.01);
}

/// A writer whom the disk can follow never waits for it, and all that it wrote gets there; one who is faster has the
/// bandwidth in the end.
#[test]
fn what_is_written_goes_to_the_disk_later() {
    let disk = format!("file = \"8MiB\"\nwrite_back = \"100ms\"\ndirty = \"40%\"\n{COSTS}per_request_host = \"4us\"\n")
        .replace("cache = \"0B\"", "cache = \"16MiB\"");
    // 64 KiB every 2 ms are 32.8 MB/s of 125.
    let slow = vm(3, &[("t", 1, "\"sleep 2ms\", \"write d 64KiB\"")], &disk);
    let m = metrics(&slow, 4 * SECOND);
    assert_eq!((m["v.disk.mean"], m["v.disk.max"]), (7_400.0, 7_400.0));
    // In requests of up to 1 MiB; written but for the last tenth of a second.
    let busy = m["host.disk_busy"] * 125e6 * 8.0;
    near(busy, m["v.written"], 0.08);
    assert!(
        m["v.blocks"] < m["v.disk.count"] / 4.0 / 4.0,
        "{}",
        m["v.blocks"]
    );
    let fast = vm(
        3,
        &[("t", 1, "\"write d 64KiB\"")],
        &disk.replace("8MiB", "512MiB"),
    );
    let m = metrics(&fast, 4 * SECOND);
    // 40 % of the cache besides, at most.
    near(m["v.written"], 1e9, 0.03);
    assert!(m["host.disk_busy"] > 0.98 && m["v.disk.max"] > 1e6);
}

/// With write-back off each write waits for the disk, and what it wrote can be read without it.
#[test]
fn written_through_is_written_at_once() {
    let disk = format!(
        "file = \"1MiB\"\nwrite_back = \"0s\"\npath = \"direct\"\nread_ahead = \"0B\"\n{COSTS}"
    )
    .replace("cache = \"0B\"", "cache = \"2MiB\"");
    let both = "\"write d 64KiB\", \"read d 64KiB\"";
    let m = metrics(&vm(2, &[("t", 1, both)], &disk), SECOND);
    assert_eq!(m["v.cached"], 1.0);
    let write = 7_400.0 + 3_000.0 + 65_536.0 * 8.0 + 2_000.0;
    near(
        m["v.disk.count"],
        2.0 * 1e9 / (write + 7_400.0 + 50_000.0 / 16.0),
        0.01,
    );
}

/// Reading ahead, the disk works while the task does: the slower of the two decides; without, they take turns.
#[test]
fn reading_ahead_overlaps_with_computing() {
    for (compute_us, slower) in [(300.0, 65_536.0 * 8.0), (2_000.0, 2_000_000.0)] {
        let steps = format!("\"read d 64KiB\", \"compute {compute_us}us\"");
        let rate = |ahead: &str| {
            let disk = format!("path = \"direct\"\nread_ahead = \"{ahead}\"\n{FREE}")
                .replace("cache = \"0B\"", "cache = \"16MiB\"");
            metrics(&vm(2, &[("t", 1, &steps)], &disk), SECOND)["v.disk.count"]
        };
        near(rate("0B"), 1e9 / (compute_us * 1e3 + 65_536.0 * 8.0), 0.01);
        near(rate("512KiB"), 1e9 / slower, 0.01);
    }
}

/// The thread that moves blocks is scheduled like any other: beside one who never sleeps it waits for its turns.
#[test]
fn who_moves_blocks_waits_for_a_cpu() {
    let disk = format!("path = \"virtio\"\nper_request_host = \"7us\"\n{COSTS}");
    let alone = metrics(&vm(1, &[("t", 1, "\"read d 64KiB\"")], &disk), SECOND);
    let tasks = [("t", 1, "\"read d 64KiB\""), ("hog", 1, "\"busy\"")];
    let beside = metrics(&vm(1, &tasks, &disk), SECOND);
    // Twice a slice of 20 ms on the way, and once for the task itself.
    assert!(
        beside["v.disk.mean"] > 10.0 * alone["v.disk.mean"],
        "{}",
        beside["v.disk.mean"]
    );
    let apart = metrics(&vm(2, &tasks, &disk.replace("virtio", "direct")), SECOND);
    assert!(apart["v.disk.mean"] < beside["v.disk.mean"]);
}

/// A VM that stops takes its steps along; the disk goes on for the others.
#[test]
fn a_stopped_vm_leaves_the_disk_to_others() {
    let driver = "[vm.dom0]\nrole = \"driver\"\nguest = \"none\"\n";
    for (path, extra) in [
        ("virtio", ""),
        ("emulated", ""),
        ("direct", ""),
        ("driver-domain", driver),
    ] {
        let disk = format!("path = \"{path}\"\nper_request_host = \"7us\"\n{COSTS}{extra}");
        let text = vm(6, &[("t", 2, "\"read d 64KiB\", \"write d 64KiB\"")], &disk);
        let text = text.replace(
            "[vm.v]\n",
            "[vm.w]\ntasks = [\"t\"]\nguest = \"none\"\nvcpus = 2\nstop = \"500ms\"\n[vm.v]\n",
        );
        let m = metrics(&text, SECOND);
        // Half of the bandwidth for half of the time, then all of it: seeks between two files besides.
        assert!(m["v.disk.count"] > 1.5 * m["w.disk.count"], "{path}: {m:?}");
        assert!(m["host.disk_busy"] > 0.95, "{path}");
    }
}

/// Inside a guest it is the same: its interrupt wakes the task, whose vCPU was halted.
#[test]
fn a_task_of_a_guest_reads() {
    let own = 1_000.0 + 6_400.0 + 65_536.0 * 8.0;
    for (path, want) in [
        ("virtio", own + 3_000.0 + 2.0 * 7_000.0 + 2.0 * 2_000.0),
        ("direct", own + 3_000.0 + 2_000.0),
    ] {
        let disk = format!("path = \"{path}\"\nper_request_host = \"7us\"\n{COSTS}");
        let text = vm(3, &[("t", 1, "\"read d 64KiB\"")], &disk).replace("guest = \"none\"\n", "");
        let s: Scenario = scenario(&format!("{text}[run]\nwarmup = \"2s\"\nmeasure = \"1s\"\n"));
        let none = BTreeMap::new();
        let policy = berth_builtin::all()
            .iter()
            .find(|p| p.name == "vtime")
            .unwrap();
        let policy = policy.load(&Default::default()).unwrap();
        let record = run_one(&s, "vtime", &policy, &none, 1, &Options::default()).unwrap();
        // The machine's own costs (switches, interrupts between CPUs) come on top.
        let mean = record.metrics["v.disk.mean"];
        assert!(
            mean >= want && mean < want + 40_000.0,
            "{path}: {mean}, not {want}"
        );
        // What was before is not counted.
        let of = |name: &str| record.metrics[name];
        near(of("v.disk.count"), 1e9 / mean, 2e-3);
        near(of("v.read"), of("v.disk.count") * 65_536.0 * 8.0, 1e-9);
        near(
            of("host.disk_busy"),
            of("v.blocks") * 65_536.0 * 8.0 / 1e9,
            2e-3,
        );
        near(of("host.disk_queue"), of("host.disk_busy"), 1e-9);
    }
}

#[test]
fn a_path_without_anybody_on_it_is_refused() {
    let disk = format!("path = \"driver-domain\"\n{FREE}");
    let e = run(&vm(1, &[("t", 1, "\"read d 1kB\"")], &disk), SECOND).unwrap_err();
    assert!(
        e.to_string().contains("no VM with role = \"driver\""),
        "{e}"
    );
    let mut s = scenario(&vm(1, &[("t", 1, "\"read d 1kB\"")], FREE));
    s.disks.clear();
    let e = berth_sim::workload::scenario::ScenarioWorkload::new(&s, 1).err();
    assert!(e.unwrap().to_string().contains("uses disk `d`"));
}
