// SPDX-License-Identifier: GPL-2.0-only
//! Requests on their way through link, NIC, back end and guest, and threads that share locks, barriers and work:
//! held against closed forms, on machines without costs and under the kernel model's own first in, first out.
//! Reading and writing: `disk`.
mod disk;

use berth_policy::policy::LoadOptions;
use berth_scenario::model::{Hz, Scenario};
use berth_scenario::{Input, read};
use berth_sim::machine::Shape;
use berth_sim::oracle::reference;
use berth_sim::run::{Options, run_one};
use berth_sim::workload::api::Workload;
use berth_sim::workload::scenario::ScenarioWorkload;
use berth_sim::{MachineSpec, SimError, Simulation};
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

fn scenario(text: &str) -> Scenario {
    let input = Input {
        name: "t".into(),
        shown: "t.toml".into(),
        text: text.into(),
        folder: None,
    };
    read(&input, &[]).unwrap_or_else(|e| panic!("{e}")).scenario
}

/// Metrics, and all response times in the order of the answers. `cpu`, `work` are those of VM 0 over the run.
fn run(text: &str, end: u64) -> Result<(BTreeMap<String, f64>, Vec<u64>), SimError> {
    let scenario = scenario(text);
    let mut work = ScenarioWorkload::new(&scenario, 1)?;
    work.record_responses();
    let spec = MachineSpec {
        hz: Hz::Ticks(1000),
        ..MachineSpec::new(Shape::flat(scenario.host.nr_cpus()))
    };
    let vms = berth_sim::run::vm_specs(&scenario);
    let mut m = Simulation::new(&spec, &vms, work);
    m.load(Default::default());
    m.start();
    m.run_until(end)?;
    berth_sim::run::settle(m.kernel());
    m.check()?;
    let mut out = BTreeMap::new();
    m.workload.metrics(end, &mut out);
    let counters = &m.kernel().stats.vms[0];
    out.insert("cpu".into(), counters.ran_ns as f64 / end as f64);
    out.insert("work".into(), counters.work_ns as f64 / end as f64);
    Ok((out, m.workload.responses().to_vec()))
}

/// A VM of one vCPU that answers pings, with `net` as its network.
fn ping(cpus: u32, sends: &str, compute: &str, net: &str) -> String {
    format!(
        "[host]\ncores = {cpus}\n[vm.v]\ntasks = [\"echo\"]\nguest = \"none\"\n\
         [task.echo]\nloop = [\"receive c\", \"compute {compute}\", \"reply\"]\n\
         [client.c]\nto = \"v\"\nsends = \"{sends}\"\nrequest = \"1500B\"\nreply = \"64B\"\n\
         [net]\n{net}\n"
    )
}

const COSTS: &str = "link = \"1Gbit/s\"\nlatency = \"25us\"\ncoalesce = \"0us\"\nirq = \"1us\"\n\
     per_packet_host = \"3us\"\nper_packet_guest = \"2us\"\nmtu = \"500B\"";
const FREE: &str = "link = \"8Gbit/s\"\nlatency = \"0us\"\ncoalesce = \"0us\"\nirq = \"0us\"\n\
     per_packet_host = \"0us\"\nper_packet_guest = \"0us\"\nmtu = \"1500B\"";

/// One request at a time meets nobody: the response is the sum of its stages.
#[test]
fn a_lone_request_takes_the_sum_of_its_stages() {
    // 1500 B at 8 ns, 64 B at 8 ns, twice 25 us; 3 packets in, 1 out.
    let wire = 12_000 + 25_000 + 512 + 25_000;
    let guest = 3 * 2_000 + 100_000 + 2_000;
    let host = 3 * 3_000 + 3_000;
    let driver = "[vm.dom0]\nrole = \"driver\"\nguest = \"none\"\n";
    for (path, extra, cpus, want) in [
        // The host's interrupt, and the guest's.
        ("vhost", "", 2, wire + guest + host + 2_000),
        ("vhost", "", 1, wire + guest + host + 2_000),
        ("emulator", "", 2, wire + guest + host + 2_000),
        ("driver-domain", driver, 2, wire + guest + host + 2_000),
        ("direct", "", 2, wire + guest + 1_000),
    ] {
        let net = format!("path = \"{path}\"\n{COSTS}\n{extra}");
        let text = ping(cpus, "every 10ms", "100us", &net);
        let (metrics, responses) = run(&text, SECOND).unwrap();
        assert!(responses.len() >= 99, "{path}: {}", responses.len());
        assert!(
            responses.iter().all(|r| *r == want),
            "{path}: {want}, not {responses:?}"
        );
        assert_eq!(metrics["v.requests"], responses.len() as f64);
        assert_eq!(
            metrics["v.throughput"],
            1564.0 * 8.0 * responses.len() as f64
        );
        assert_eq!(metrics["v.packets"], 4.0 * responses.len() as f64, "{path}");
    }
}

/// Without costs the path only adds what the bytes take on the wire: Lindley's recursion, request by request.
#[test]
fn a_path_without_costs_is_the_queue_itself() {
    for path in ["vhost", "emulator", "direct"] {
        let net = format!("path = \"{path}\"\n{FREE}");
        let text = ping(2, "poisson(800/s)", "exp(1ms)", &net);
        let with = run(&text, 2 * SECOND).unwrap().1;
        let direct = ping(2, "poisson(800/s)", "exp(1ms)", "path = \"none\"");
        let without = run(&direct, 2 * SECOND).unwrap().1;
        assert!(without.len() > 1_000);
        // 1500 B in and 64 B out at 1 ns; two requests within 1.5 us of each other may queue for the wire.
        let wire = 1_500 + 64;
        let near = with.iter().zip(&without);
        let off = near.filter(|(a, b)| a.abs_diff(**b + wire) > 0).count();
        assert!(
            off * 50 < without.len(),
            "{path}: {off} of {} differ",
            without.len()
        );
        let mean = |l: &[u64]| l.iter().sum::<u64>() as f64 / l.len() as f64;
        let n = with.len().min(without.len());
        let (a, b) = (mean(&with[..n]), mean(&without[..n]) + wire as f64);
        assert!((a / b - 1.0).abs() < 1e-3, "{path}: {a} {b}");
    }
}

/// Requests that come while the back end, or the wire, is busy wait for it: a queue with constant service in front
/// of nothing else.
#[test]
fn a_busy_stage_is_a_queue() {
    // 1500 B at 100 Mbit/s take 120 us; everything behind is free.
    let net = "path = \"vhost\"\nlink = \"100Mbit/s\"\nlatency = \"0us\"\ncoalesce = \"0us\"\nirq = \"0us\"\n\
               per_packet_host = \"0us\"\nper_packet_guest = \"0us\"";
    let text = ping(2, "poisson(6000/s)", "0us", net);
    let s = scenario(&text);
    let (_, got) = run(&text, SECOND).unwrap();
    let arrivals = berth_scenario::dist::Arrivals::new(&s.clients[0].sends, 1, 0, 0).unwrap();
    let requests: Vec<_> = arrivals
        .take(got.len())
        .map(|arrival| reference::Request {
            arrival,
            service: 120_000,
        })
        .collect();
    // 64 B back: 5.12 us, rounded up.
    let want: Vec<u64> = reference::fcfs(1, &requests)
        .iter()
        .map(|r| r + 5_120)
        .collect();
    assert!(got.len() > 5_000);
    assert_eq!(got, want);
}

/// Interrupts come at most once per `coalesce`; everything that has come meanwhile is taken along.
#[test]
fn coalescing_holds_interrupts_back() {
    let net = FREE.replace("coalesce = \"0us\"", "coalesce = \"1ms\"");
    let text = ping(2, "every 300us", "0us", &format!("path = \"vhost\"\n{net}"));
    let (_, responses) = run(&text, SECOND).unwrap();
    // The first at once; then three or four wait together for the next millisecond.
    let longest = *responses.iter().max().unwrap();
    assert!((700_000..=1_001_564).contains(&longest), "{longest}");
    assert!(responses.iter().filter(|r| **r > 1_564).count() * 3 > responses.len());
}

/// A stream with so many bytes in flight: window / round trip while nobody is saturated, else the rate of the
/// slowest stage.
#[test]
fn a_stream_is_bound_by_its_window_or_by_a_cpu() {
    let stream = |latency: &str, guest: &str| {
        format!(
            "[host]\ncores = 2\n[vm.v]\ntasks = [\"sink\"]\nguest = \"none\"\n\
             [task.sink]\nmodel = \"stream\"\ncompute = \"1us\"\n\
             [client.c]\nto = \"v\"\nsends = \"window 60000B\"\nrequest = \"1500B\"\nreply = \"64B\"\n\
             [net]\npath = \"vhost\"\nlink = \"10Gbit/s\"\nlatency = \"{latency}\"\ncoalesce = \"0us\"\n\
             irq = \"0us\"\nper_packet_host = \"3us\"\nper_packet_guest = \"{guest}\"\n"
        )
    };
    // Wire 1.2 us and 0.052 us, 1 ms each way; back end 3 us each way, guest 1 us and twice 2 us.
    let trip = 1.2e-6 + 0.052e-6 + 2e-3 + 6e-6 + 5e-6;
    let (metrics, _) = run(&stream("1ms", "2us"), 2 * SECOND).unwrap();
    let rate = metrics["v.requests"];
    assert!(
        (rate * trip / 40.0 - 1.0).abs() < 2e-3,
        "{rate} and not {}",
        40.0 / trip
    );
    assert_eq!(metrics["v.throughput"], rate * 1500.0 * 8.0);
    // The guest needs 1 + 2 x 10 us for each.
    let (metrics, _) = run(&stream("10us", "10us"), SECOND).unwrap();
    let rate = metrics["v.requests"];
    assert!(
        (rate * 21e-6 - 1.0).abs() < 2e-3,
        "{rate} and not {}",
        1.0 / 21e-6
    );
    // The back end's thread counts as the VM's.
    assert!(
        (metrics["cpu"] - 1.0 - 6.0 / 21.0).abs() < 2e-3,
        "{}",
        metrics["cpu"]
    );
}

/// A VM that stops takes its requests along; nothing is lost from the books.
#[test]
fn a_stopped_vm_loses_what_it_had() {
    for path in ["vhost", "emulator", "direct"] {
        let net = format!("path = \"{path}\"\n{COSTS}");
        let text = ping(1, "poisson(20000/s)", "100us", &net)
            .replace("guest = \"none\"", "guest = \"none\"\nstop = \"50ms\"");
        let (_, responses) = run(&text, SECOND).unwrap();
        assert!(
            (100..500).contains(&responses.len()),
            "{path}: {}",
            responses.len()
        );
    }
}

#[test]
fn a_path_that_leads_nowhere_is_refused() {
    let text = ping(1, "every 1ms", "1us", "path = \"driver-domain\"");
    let e = run(&text, SECOND).unwrap_err().to_string();
    assert!(e.contains("no VM with role = \"driver\""), "{e}");
    let mut s = scenario(&ping(1, "every 1ms", "1us", "path = \"vhost\""));
    s.net.link_bit_s = 0;
    let e = ScenarioWorkload::new(&s, 1).err().unwrap().to_string();
    assert!(e.contains("0 bit/s"), "{e}");
}

/// Threads of one VM, each on its own vCPU.
fn threads(cpus: u32, tasks: &[(&str, u32, &str)]) -> String {
    let vcpus: u32 = tasks.iter().map(|t| t.1).sum();
    let names: Vec<String> = tasks.iter().map(|t| format!("\"{}\"", t.0)).collect();
    let mut text = format!(
        "[host]\ncores = {cpus}\n[vm.v]\nvcpus = {vcpus}\ntasks = [{}]\nguest = \"none\"\n",
        names.join(", ")
    );
    for (name, n, steps) in tasks {
        text += &format!("[task.{name}]\nthreads = {n}\n{steps}\n");
    }
    text
}

/// `n` threads compute `w` and meet: a round lasts ceil(n / c) w, and c CPUs do n w of work in it.
#[test]
fn a_barrier_round_lasts_as_long_as_the_fullest_cpu() {
    for (n, cpus) in [(1u32, 1u32), (4, 2), (3, 2), (5, 3), (7, 4), (4, 4)] {
        let work = "loop = [\"compute 1ms\", \"barrier b\"]";
        let (metrics, _) = run(&threads(cpus, &[("t", n, work)]), SECOND).unwrap();
        let rounds = 1000 / n.div_ceil(cpus);
        let want = f64::from(rounds * n) / 1000.0;
        // The last round may be cut short.
        assert!(
            (metrics["work"] - want).abs() < 0.008,
            "{n} on {cpus}: {}",
            metrics["work"]
        );
    }
}

/// Two threads that want nothing but a spin lock alternate; one works, the other burns.
#[test]
fn a_spin_lock_is_handed_back_and_forth() {
    let work = "loop = [\"spin l\", \"compute 100us\", \"unlock l\"]";
    let (metrics, _) = run(&threads(2, &[("t", 2, work)]), SECOND).unwrap();
    assert_eq!((metrics["cpu"], metrics["work"]), (2.0, 1.0));
    // On one CPU, slices are 20 ms. The first is all work; in the second the other one burns, for the lock's holder has
    // no CPU; from then on whoever runs owns the lock, does its 100 us, hands it over and burns the rest: 20 ms + 48 x
    // 100 us.
    let (metrics, _) = run(&threads(1, &[("t", 2, work)]), SECOND).unwrap();
    assert_eq!((metrics["cpu"], metrics["work"]), (1.0, 0.0248));
}

/// A lock held for half of each thread's cycle: two threads never wait for long, three are bound by the lock.
#[test]
fn a_lock_bounds_what_its_threads_can_do() {
    let work = "loop = [\"lock l\", \"compute 1ms\", \"unlock l\", \"compute 1ms\"]";
    for (n, want) in [(1, 1.0), (2, 2.0), (3, 2.0), (5, 2.0)] {
        let (metrics, _) = run(&threads(n, &[("t", n, work)]), SECOND).unwrap();
        assert!(
            (metrics["work"] - want).abs() < 0.01,
            "{n}: {}",
            metrics["work"]
        );
        assert!(
            (metrics["cpu"] - metrics["work"]).abs() < 1e-9,
            "sleepers burn nothing"
        );
    }
}

#[test]
fn signals_wake_in_turn() {
    let ring = "loop = [\"wait go\", \"compute 1ms\"]";
    let bell = "loop = [\"sleep 10ms\", \"signal go\"]";
    let (metrics, _) = run(&threads(2, &[("ring", 3, ring), ("bell", 1, bell)]), SECOND).unwrap();
    assert!((metrics["work"] - 0.1).abs() < 0.002, "{}", metrics["work"]);
    let bell = "loop = [\"sleep 10ms\", \"broadcast go\"]";
    let (metrics, _) = run(&threads(4, &[("ring", 3, ring), ("bell", 1, bell)]), SECOND).unwrap();
    assert!((metrics["work"] - 0.3).abs() < 0.004, "{}", metrics["work"]);
}

/// 64 chunks on three CPUs, one of them slowed down by nobody: work is shared to within one chunk a round.
#[test]
fn stolen_work_keeps_all_cpus_busy() {
    let work = "model = \"parallel\"\nchunks = 64\ncompute = \"1ms\"";
    let (metrics, _) = run(&threads(3, &[("p", 3, work)]), 2 * SECOND).unwrap();
    // 64 ms of work in 22 ms: ceil(64 / 3) chunks.
    assert!(
        (metrics["work"] - 64.0 / 22.0).abs() < 0.03,
        "{}",
        metrics["work"]
    );
    // A thread of its own on the same CPUs: without stealing the round would wait for the slowest.
    let busy = format!(
        "{}[task.hog]\nmodel = \"busy\"\n[vm.hog]\ntasks = [\"hog\"]\nguest = \"none\"\n",
        threads(3, &[("p", 3, work)])
    );
    let (metrics, _) = run(&busy, 2 * SECOND).unwrap();
    assert!(metrics["work"] > 1.9, "{}", metrics["work"]);
}

#[test]
fn first_steps_happen_once() {
    let work = "first = [\"compute 100ms\"]\nloop = [\"compute 1ms\", \"sleep 9ms\"]";
    let (metrics, _) = run(&threads(1, &[("t", 1, work)]), SECOND).unwrap();
    assert!(
        (metrics["work"] - 0.19).abs() < 0.001,
        "{}",
        metrics["work"]
    );
}

#[test]
fn a_deadlock_is_found_and_named() {
    let a = "loop = [\"lock x\", \"compute 1ms\", \"lock y\", \"unlock y\", \"unlock x\"]";
    let b = "loop = [\"lock y\", \"compute 2ms\", \"spin z\", \"lock x\", \"unlock x\", \"unlock z\", \"unlock y\"]";
    let told = |tasks: &[(&str, u32, &str)]| {
        let e = run(&threads(3, tasks), SECOND).unwrap_err().to_string();
        assert!(e.starts_with("deadlock at ") && !e.contains('\n'), "{e}");
        e
    };
    let e = told(&[("a", 1, a), ("b", 1, b), ("hog", 1, "model = \"busy\"")]);
    assert!(
        e.contains("at 0.002000 s: `b` (v/1) waits for lock `x`, held by `a` (v/0), `a` (v/0) waits for lock `y`"),
        "{e}"
    );
    // A barrier under a lock that the other one needs first.
    let a = "loop = [\"lock x\", \"compute 1us\", \"barrier m\", \"unlock x\"]";
    let b = "loop = [\"compute 1ms\", \"lock x\", \"unlock x\", \"barrier m\"]";
    let e = told(&[("a", 1, a), ("b", 1, b), ("hog", 1, "model = \"busy\"")]);
    assert!(e.contains("`a` (v/0) waits at barrier `m`"), "{e}");
    // Nobody is left to signal.
    let a = "loop = [\"compute 1ms\", \"wait s\", \"signal s\"]";
    let e = told(&[("a", 2, a)]);
    assert!(
        e.contains("waits for `s`, which nobody left can signal"),
        "{e}"
    );
}

/// Under every shipped policy, on every path, beside VMs that burn all CPUs: requests are answered, the books
/// balance (they are checked at the end of every run), and equal runs are equal.
#[test]
fn every_shipped_policy_carries_packets() {
    for path in ["vhost", "driver-domain"] {
        let text = format!(
            "[run]\nwarmup = \"50ms\"\nmeasure = \"250ms\"\n[host]\ncores = 2\n\
             [vm.v]\ncount = 2\nclass = \"latency\"\ntasks = [\"echo\"]\nguest = \"none\"\n\
             [vm.hog]\nvcpus = 3\ntasks = [\"hog\"]\nguest = \"none\"\n\
             [vm.dom0]\nrole = \"driver\"\nclass = \"latency\"\nguest = \"none\"\n\
             [task.hog]\nmodel = \"busy\"\n[task.echo]\nmodel = \"echo\"\n\
             [client.c]\nto = \"v\"\nsends = \"poisson(500/s)\"\n[net]\npath = \"{path}\"\n"
        );
        let scenario = scenario(&text);
        for builtin in berth_builtin::all() {
            let policy = builtin.load(&LoadOptions::default()).unwrap();
            let run = || {
                let opts = Options::default();
                run_one(&scenario, "a", &policy, &BTreeMap::new(), 1, &opts)
                    .unwrap_or_else(|e| panic!("{} on {path}: {e}", builtin.name))
            };
            let record = run();
            let answered = record.metrics["v.requests"];
            assert!(answered > 100.0, "{} on {path}: {answered}", builtin.name);
            assert_eq!(record.hash, run().hash, "{} on {path}", builtin.name);
        }
    }
}
