// SPDX-License-Identifier: GPL-2.0-only
//! Packets, locks and barriers where VMs have machines of their own: on a host without costs, what happens inside
//! takes as long as it does without a guest.
use berth_policy::policy::LoadOptions;
use berth_results::schema::RunRecord;
use berth_scenario::model::{HostCost, Scenario};
use berth_scenario::{Input, read};
use berth_sim::SimError;
use berth_sim::run::{GuestPolicy, Options, run_one};
use std::collections::BTreeMap;

fn scenario(text: &str) -> Scenario {
    let input = Input {
        name: "t".into(),
        shown: "t.toml".into(),
        text: format!("[run]\nwarmup = \"0s\"\nmeasure = \"1s\"\nseeds = 1\n{text}"),
        folder: None,
    };
    let loaded = read(&input, &[]).unwrap_or_else(|e| panic!("{e}"));
    let mut scenario = loaded.scenario;
    scenario.host.cost = HostCost::default();
    scenario
}

/// One second under `gfifo` on both levels; `guests`: with a scheduler inside, else folded.
fn run(scenario: &Scenario, guests: bool) -> Result<RunRecord, SimError> {
    run_under(scenario, "gfifo", "gfifo", guests)
}

/// The same under one policy of the host and one of every guest.
fn run_under(
    scenario: &Scenario,
    host: &str,
    guest: &str,
    guests: bool,
) -> Result<RunRecord, SimError> {
    let load = |name: &str| {
        let builtin = berth_builtin::find(name).unwrap();
        builtin.load(&LoadOptions::default()).unwrap()
    };
    let policy = load(host);
    let inside = GuestPolicy {
        policy: load(guest),
        params: BTreeMap::new(),
    };
    let groups = scenario.vms.iter();
    let opts = Options {
        guests: groups.map(|_| guests.then(|| inside.clone())).collect(),
        ..Options::default()
    };
    run_one(scenario, "a", &policy, &BTreeMap::new(), 1, &opts)
}

/// A VM that answers pings on each path.
fn ping(path: &str, sends: &str, compute: &str) -> Scenario {
    scenario(&format!(
        "[host]\ncores = 3\n[vm.v]\ntasks = [\"echo\"]\n[vm.dom0]\nrole = \"driver\"\n\
         [task.echo]\nloop = [\"receive c\", \"compute {compute}\", \"reply\"]\n\
         [client.c]\nto = \"v\"\nsends = \"{sends}\"\nrequest = \"1500B\"\nreply = \"64B\"\n\
         [net]\npath = \"{path}\"\nlink = \"1Gbit/s\"\nlatency = \"25us\"\nirq = \"1us\"\n\
         per_packet_host = \"3us\"\nper_packet_guest = \"2us\"\nmtu = \"500B\"\n"
    ))
}

#[test]
fn a_lone_request_into_a_guest_takes_the_sum_of_its_stages() {
    let wire = 12_000 + 25_000 + 512 + 25_000;
    let guest = 3 * 2_000 + 100_000 + 2_000;
    let host = 3 * 3_000 + 3_000;
    for (path, want) in [
        ("none", 100_000),
        ("vhost", wire + guest + host + 2_000),
        ("emulator", wire + guest + host + 2_000),
        ("driver-domain", wire + guest + host + 2_000),
        ("direct", wire + guest + 1_000),
    ] {
        let record = run(&ping(path, "every 10ms", "100us"), true).unwrap();
        let m = &record.metrics;
        assert!(m["v.response.count"] >= 99.0, "{path}");
        let (mean, max) = (m["v.response.mean"], m["v.response.max"]);
        assert_eq!((mean, max), (f64::from(want), f64::from(want)), "{path}");
    }
}

/// One vCPU with one task is one thread, whether a scheduler stands between or not: the same random requests meet
/// the same queue.
#[test]
fn a_guest_with_one_task_is_the_queue_itself() {
    for path in ["none", "vhost", "direct"] {
        let s = ping(path, "poisson(700/s)", "exp(1ms)");
        let (with, without) = (run(&s, true).unwrap(), run(&s, false).unwrap());
        assert!(without.metrics["v.response.count"] > 500.0);
        for stat in ["count", "mean", "p50", "p99", "max"] {
            let name = format!("v.response.{stat}");
            let (a, b) = (with.metrics[&name], without.metrics[&name]);
            // An assigned device interrupts a running task here; without a guest its time is taken at once.
            let near = (a / b - 1.0).abs() < if path == "direct" { 5e-3 } else { 1e-9 };
            assert!(near, "{path}: {name} {a} and {b}");
        }
    }
}

/// Five threads that compute 1 ms and meet, on three vCPUs: rounds of 2 ms, 2.5 CPUs used.
#[test]
fn a_barrier_inside_a_guest() {
    let s = scenario(
        "[host]\ncores = 3\n[vm.v]\nvcpus = 3\ntasks = [\"t\"]\n\
         [task.t]\nthreads = 5\nloop = [\"compute 1ms\", \"barrier b\"]\n",
    );
    let m = run(&s, true).unwrap().metrics;
    assert!((m["v.cpu"] - 2.5).abs() < 0.01, "{}", m["v.cpu"]);
}

/// A deadlock inside a guest ends the run: one sentence with the VM, the tasks and the locks.
#[test]
fn a_deadlock_names_the_vm() {
    let s = scenario(
        "[host]\ncores = 2\n[vm.shop]\nvcpus = 2\ntasks = [\"a\", \"b\", \"hog\"]\n[task.hog]\nmodel = \"busy\"\n\
         [task.a]\nthreads = 1\nloop = [\"lock x\", \"compute 1ms\", \"lock y\", \"unlock y\", \"unlock x\"]\n\
         [task.b]\nthreads = 1\nloop = [\"lock y\", \"compute 1ms\", \"lock x\", \"unlock x\", \"unlock y\"]\n",
    );
    let e = run(&s, true).unwrap_err().to_string();
    for word in [
        "shop",
        "deadlock",
        "`a` (a/0)",
        "`b` (b/0)",
        "lock `x`",
        "lock `y`",
    ] {
        assert!(e.contains(word), "{e} does not say {word}");
    }
    assert!(!e.contains('\n'));
}

/// A stream into a guest beside one that burns its share: conserved, and bounded by the guest's vCPU.
#[test]
fn a_stream_into_a_busy_guest() {
    let s = scenario(
        "[host]\ncores = 2\n[vm.v]\nvcpus = 2\ntasks = [\"sink\", \"hog\"]\n\
         [task.sink]\nmodel = \"stream\"\ncompute = \"2500ns\"\nthreads = 1\n[task.hog]\nmodel = \"busy\"\nthreads = \
         1\n\
         [client.c]\nto = \"v\"\nsends = \"window 256KiB\"\nrequest = \"1500B\"\nreply = \"64B\"\n\
         [net]\npath = \"vhost\"\nper_packet_host = \"3us\"\n",
    );
    let m = run(&s, true).unwrap().metrics;
    let bits = m["v.throughput"];
    // One vCPU for 4.5 us of work a packet at most; the vhost thread and the hog want CPUs too.
    assert!(bits > 1e8 && bits < 1500.0 * 8.0 / 4.5e-6, "{bits}");
    assert_eq!(bits, m["v.requests"] * 12_000.0);
}

/// A task that serves two clients in turn, after steps of its own.
#[test]
fn a_task_may_receive_anywhere_in_its_loop() {
    let mut s = scenario(
        "[host]\ncores = 1\n[vm.v]\ntasks = [\"t\"]\n[task.t]\nthreads = 1\nfirst = [\"compute 5ms\"]\n\
         loop = [\"receive a\", \"compute 100us\", \"reply\", \"receive b\", \"compute 50us\", \"reply\"]\n\
         [client.a]\nto = \"v\"\nsends = \"every 10ms\"\n[client.b]\nto = \"v\"\nsends = \"every 10ms\"\n",
    );
    // The first requests come while it still does its first 5 ms.
    s.run.warmup_ns = 50_000_000;
    let m = run(&s, true).unwrap().metrics;
    let count = m["v.response.count"];
    assert!((196.0..=200.0).contains(&count), "{count}");
    // Seed 1: each b comes while the task waits for it, half a period or so after its a.
    assert_eq!(m["v.response.max"], 100e3);
    assert!(
        (m["v.response.mean"] - 75e3).abs() < 500.0,
        "{}",
        m["v.response.mean"]
    );
}

/// The reply of a guest's task wakes the thread of the back end, which takes the CPU from the vCPU in the same event
/// in which that has nothing more to do: it is the vCPU that halts then, not whoever has the CPU. No request is lost,
/// and the back end works for its packets and nothing else, whatever a way out of the guest costs.
#[test]
fn a_reply_that_preempts_a_vcpu_about_to_halt() {
    let lsvm = "[vm.lsvm]\nvcpus = 2\nclass = \"latency\"\ntasks = [\"echo\", \"half\"]\n";
    let one = "[host]\ncores = 1\n[vm.lsvm]\ntasks = [\"echo\", \"half\"]\n";
    let two = format!("[host]\ncores = 2\n{lsvm}");
    let mut seen = 0;
    for (name, machine, path, sends) in [
        ("EF1", one, "driver-domain", "poisson(100/s)"),
        ("EF6", &two, "driver-domain", "every 10ms +- 50%"),
        ("EF7", &two, "vhost", "window 3000B"),
    ] {
        let stream = sends.starts_with("window");
        let dom0 = "[vm.dom0]\nrole = \"driver\"\nclass = \"latency\"\n";
        let echo = if stream {
            "model = \"stream\"\ncompute = \"50us\"\nthreads = 1"
        } else {
            "loop = [\"receive c\", \"compute 50us\", \"reply\"]"
        };
        let mut s = scenario(&format!(
            "{machine}{}[vm.other]\ncount = 2\ntasks = [\"half\"]\n[task.echo]\n{echo}\n\
             [task.half]\nmodel = \"lookbusy\"\nload = \"50%\"\nperiod = \"20ms\"\n\
             [client.c]\nto = \"lsvm\"\nsends = \"{sends}\"\nrequest = \"1500B\"\nreply = \"64B\"\n\
             [net]\npath = \"{path}\"\nper_packet_host = \"2us\"\n",
            if path == "vhost" { "" } else { dom0 }
        ));
        s.run.measure_ns = 4_000_000_000;
        for (host, out) in [
            ("credit", 0),
            ("credit", 700),
            ("flms", 0),
            ("flms", 700),
            ("eevdf", 0),
            ("vmfair", 700),
        ] {
            s.host.cost.vm_exit_ns = out;
            let m = run_under(&s, host, "eevdf", true).unwrap().metrics;
            let what = format!("{name} under {host}, {out} ns out of the guest");
            if stream {
                // Two in flight: it goes on to the end if none is lost.
                assert!(m["lsvm.requests"] > 500.0, "{what}: {}", m["lsvm.requests"]);
                continue;
            }
            let answered = m["lsvm.requests"];
            assert!(
                (answered / 100.0 - 1.0).abs() < 0.15,
                "{what}: {answered}/s"
            );
            // In and out; what is under way at the end has been moved once.
            let (work, packets) = (m["dom0.work"], m["lsvm.packets"] * 4.0);
            assert!(
                (work - packets * 2e3).abs() <= 40e3,
                "{what}: {work} ns for {packets} packets"
            );
            seen += 1;
        }
    }
    assert_eq!(seen, 12);
}
