// SPDX-License-Identifier: GPL-2.0-only
//! A packet's way in stages (`net.stages`) against closed forms: sums of costs, transfers between CPUs, rates of the
//! slowest stage; and what may not be lost on the way. Machines without other costs, the kernel model's own order.
use berth_policy::policy::LoadOptions;
use berth_scenario::model::{Hz, Scenario};
use berth_scenario::{Input, read};
use berth_sim::machine::Shape;
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

/// Metrics, with CPUs of all threads of the VM as `cpu`, and all response times.
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
    out.insert("migrations".into(), counters.migrations as f64);
    Ok((out, m.workload.responses().to_vec()))
}

/// Two packages of two CPUs; `vm`: keys of the VM, `net` of the network, `stages` of its stages.
fn text(sends: &str, bytes: u32, vm: &str, net: &str, stages: &str) -> String {
    format!(
        "[host]\npackages = 2\ncores = 2\n[vm.v]\ntasks = [\"echo\"]\nguest = \"none\"\n{vm}\n\
         [task.echo]\nloop = [\"receive c\", \"reply\"]\n\
         [client.c]\nto = \"v\"\nsends = \"{sends}\"\nrequest = \"{bytes}B\"\nreply = \"{bytes}B\"\n\
         [net]\nlink = \"1Gbit/s\"\nlatency = \"15us\"\n{net}\n[net.stages]\n{stages}\n"
    )
}

/// Interrupt to tap; both ways the same.
const HOST: u64 = 3_000 + 2_500 + 1_500 + 2_000;
const GUEST: u64 = 12_000;
const WAKE: u64 = 1_000;
const WAKE_OTHER: u64 = 3_000;
const NEAR: u64 = 5;
const FAR: u64 = 110;
const OWN: u64 = 4;

fn wire(bytes: u64) -> u64 {
    2 * 15_000 + 2 * bytes * 8
}

fn all_the_same(name: &str, responses: &[u64], want: u64) {
    assert!(responses.len() > 90, "{name}: {}", responses.len());
    assert!(
        responses.iter().all(|r| *r == want),
        "{name}: {want}, not {responses:?}"
    );
}

/// All on one CPU: the sum of the stages, both ways, and three wake-ups.
#[test]
fn a_lone_ping_takes_the_sum_of_its_stages() {
    for (path, card, copy, byte, inject) in [
        ("emulator", "virtio", 6_000, 2, 4_000),
        ("vhost", "virtio", 6_000, 2, 4_000),
        ("emulator", "emulated", 18_000, 4, 10_000),
    ] {
        for bytes in [64, 1_400] {
            let net = format!("path = \"{path}\"\nirq_cpus = [0]");
            let stages = format!("card = \"{card}\"");
            let text = text("every 10ms", bytes, "affinity = [0]", &net, &stages);
            let (metrics, responses) = run(&text, SECOND).unwrap();
            let bytes = u64::from(bytes);
            let want = wire(bytes) + 2 * (HOST + copy + byte * bytes + inject + GUEST) + 3 * WAKE;
            all_the_same(path, &responses, want);
            assert_eq!(metrics["v.path.crossings"], 0.0);
            assert_eq!(metrics["v.path.lines"], 0.0);
            assert_eq!(metrics["migrations"], 0.0, "{path}");
        }
    }
}

/// Interrupts on CPU 0, the back end on CPU 1 below the same cache, the vCPU on CPU 2 of the other package: the sum
/// above, and what changing CPUs costs: wake-ups, the packet's lines, and each stage's own lines where it moves.
#[test]
fn cpus_apart_add_transfers_times_crossings() {
    for bytes in [64, 1_400] {
        let vm = "affinity = [2]\nbackend_affinity = [1]";
        let net = "path = \"emulator\"\nirq_cpus = [0]";
        let (metrics, responses) = run(&text("every 10ms", bytes, vm, net, ""), SECOND).unwrap();
        let bytes = u64::from(bytes);
        let lines = bytes.div_ceil(64);
        let together = wire(bytes) + 2 * (HOST + 6_000 + 2 * bytes + 4_000 + GUEST) + 3 * WAKE;
        // The card's CPU to the back end, that to the vCPU and back.
        let packet = lines * (NEAR + FAR + FAR);
        // Driver, bridge, filter and tap come to CPU 0 and go to CPU 1; the guest's interrupt is CPU 1's, its exit 2's.
        let own = 2 * 4 * OWN * NEAR + 2 * OWN * FAR;
        let want = together + 3 * (WAKE_OTHER - WAKE) + packet + own;
        // The first ping finds the stages nowhere.
        all_the_same("apart", &responses[1..], want);
        assert_eq!(metrics["v.path.crossings"], 1.5);
        let per_packet = (3 * lines + 10 * OWN) as f64 / 2.0;
        let rate = metrics["v.path.lines"] / per_packet;
        assert!((rate - 1.0).abs() < 0.02, "{rate}");
    }
}

/// RPS: bridge, filter and tap are another CPU's work, which is called by an interrupt and fetches the packet.
#[test]
fn softirqs_are_steered() {
    let net = "path = \"emulator\"\nirq_cpus = [0]";
    let vm = "affinity = [1]";
    let (metrics, responses) =
        run(&text("every 10ms", 64, vm, net, "rps_cpus = [1]"), SECOND).unwrap();
    let stages = wire(64) + 2 * (HOST + 6_128 + 4_000 + GUEST);
    // One call and three wake-ups; the packet's line and the driver's own, which goes to and fro.
    let want = stages + WAKE_OTHER + 3 * WAKE + NEAR + 2 * OWN * NEAR;
    all_the_same("rps", &responses[1..], want);
    assert_eq!(metrics["v.path.crossings"], 0.5);
    // All but the interrupt is CPU 1's.
    let most = metrics["v.path_cpu.max"] / metrics["v.path_cpu.all"];
    let part = 1.0 - 3_000.0 / (want - wire(64)) as f64;
    assert!((most - part).abs() < 1e-3, "{most} {part}");
}

/// A card of the guest's own: the host only passes the interrupt on, and nothing exits to send.
#[test]
fn direct_has_an_interrupt_and_the_guest() {
    for (irq, cpu) in [("irq_cpus = [0]", 0), ("irq_cpus = [1]", 1), ("", 0)] {
        let net = format!("path = \"direct\"\n{irq}");
        let text = text("every 10ms", 64, "affinity = [0]", &net, "");
        let (_, responses) = run(&text, SECOND).unwrap();
        let apart = if cpu == 0 { WAKE } else { WAKE_OTHER + NEAR };
        all_the_same(irq, &responses, wire(64) + 4_000 + 2 * GUEST + apart);
    }
}

/// Each CPU is busy for rate x cost, and samples are what the stages cost; calls are visits.
#[test]
fn utilisation_is_rate_times_cost() {
    let vm = "affinity = [2]\nbackend_affinity = [1]";
    let net = "path = \"emulator\"\nirq_cpus = [0]";
    let stages = "near_line = \"0ns\"\nfar_line = \"0ns\"";
    let (metrics, responses) = run(&text("every 1ms", 64, vm, net, stages), SECOND).unwrap();
    let rate = responses.len() as f64;
    let near = |name: &str, want: f64| {
        let got = metrics[name];
        assert!((got / want - 1.0).abs() < 2e-3, "{name}: {got}, not {want}");
    };
    // What the VM's threads do; an interrupt's time is taken from nobody on an idle CPU.
    let back_end = 6_128 + 4_000 + 6_128 + HOST + 2 * WAKE_OTHER;
    let vcpu = 2 * GUEST + 4_000 + WAKE_OTHER;
    near("cpu", rate * (back_end + vcpu) as f64 / 1e9);
    near(
        "v.path_cpu.all",
        rate * (HOST + back_end + vcpu) as f64 / 1e9,
    );
    near("v.path_cpu.max", rate * back_end as f64 / 1e9);
    // Two packets a ping; the stages of both ways.
    near("v.samples.driver", 3_000.0);
    near("v.samples.bridge", 2_500.0);
    near("v.samples.filter", 1_500.0);
    near("v.samples.tap", 2_000.0);
    near("v.samples.copy", 6_128.0);
    near("v.samples.inject", 4_000.0);
    near("v.samples.guest", 12_000.0);
    near("v.samples.wake", 1.5 * WAKE_OTHER as f64);
    for part in [
        "driver", "bridge", "filter", "tap", "copy", "inject", "guest",
    ] {
        near(&format!("v.calls.{part}"), 1.0);
    }
}

/// A stream without costs but the guest's: it takes all 64 packets of the window and acknowledges them by one, which
/// takes another packet's time; then the wire brings the next ones.
#[test]
fn a_stream_goes_at_the_rate_of_its_slowest_stage() {
    let free = "driver = \"0us\"\nbridge = \"0us\"\nfilter = \"0us\"\ntap = \"0us\"\ncopy = \"0us\"\n\
                copy_byte = \"0ns\"\ninject = \"0us\"\nwake_here = \"0us\"\nwake_other = \"0us\"\n\
                near_line = \"0ns\"\nfar_line = \"0ns\"\nguest = \"50us\"";
    // Latency there and back, the acknowledgement and the first packet.
    let wire = 2.0 * (15e-6 + 1_024.0 * 8e-9);
    for (per_batch, first, next) in [(0, 50e-6, 50e-6), (80, 50e-6, 10e-6)] {
        let stages = format!("{free}\nper_batch = \"{per_batch}%\"");
        for (path, back_end) in [("emulator", "backend_affinity = [1]"), ("direct", "")] {
            let net = format!("path = \"{path}\"\nirq_cpus = [0]");
            let vm = format!("affinity = [2]\n{back_end}");
            let text = text("window 64KiB", 1_024, &vm, &net, &stages);
            let (metrics, _) = run(&text, SECOND).unwrap();
            let want = 64.0 / (first + 63.0 * next + 50e-6 + wire);
            let rate = metrics["v.requests"];
            assert!(
                (rate / want - 1.0).abs() < 1e-2,
                "{path}, {per_batch} %: {rate}, not {want}"
            );
        }
    }
}

/// On one CPU the guest takes all there is before the back end runs again: one acknowledgement stands for a batch, and
/// the CPU is the limit.
#[test]
fn a_stream_on_one_cpu_takes_all_of_it() {
    let net = "path = \"emulator\"\nirq_cpus = [0]";
    let (metrics, _) = run(&text("window 64KiB", 64, "affinity = [0]", net, ""), SECOND).unwrap();
    let (packets, requests) = (metrics["v.packets"], metrics["v.requests"]);
    assert!(
        packets < 1.1 * requests,
        "{packets} packets for {requests} requests"
    );
    // One CPU does it all: 20 % of 31 us, and the copy of 64 bytes.
    let each = 0.2 * 31e-6 + 128e-9;
    let most = 1.0 / each;
    assert!(
        (0.8..1.0).contains(&(requests / most)),
        "{requests} of {most}"
    );
    assert!(
        metrics["v.path_cpu.max"] > 0.98,
        "{}",
        metrics["v.path_cpu.max"]
    );
}

/// Queues are bounded; what finds no room is sent again, so that nothing is lost (the run's own checks count it).
#[test]
fn full_queues_drop_and_clients_send_again() {
    for stages in [
        "ring = 2\nresend = \"5ms\"",
        "tap_queue = 2\nresend = \"5ms\"",
    ] {
        for path in ["emulator", "vhost"] {
            let net = format!("path = \"{path}\"\nirq_cpus = [0]\ncoalesce = \"100us\"");
            let text = text("poisson(20000/s)", 64, "affinity = [1]", &net, stages);
            let (metrics, responses) = run(&text, SECOND).unwrap();
            assert!(
                metrics["v.dropped"] > 100.0,
                "{stages}: {}",
                metrics["v.dropped"]
            );
            assert!(
                metrics["v.requests"] > 15_000.0,
                "{stages}: {}",
                metrics["v.requests"]
            );
            assert!(responses.iter().max().unwrap() > &5_000_000, "{stages}");
        }
    }
}

/// What is anywhere on the way when its VM stops is given up, not lost from the books.
#[test]
fn a_stopped_vm_loses_what_it_had() {
    for (path, stages) in [
        ("emulator", ""),
        ("emulator", "rps_cpus = [1]"),
        ("vhost", "tap_queue = 4\nresend = \"70ms\""),
        ("direct", ""),
    ] {
        let net = format!("path = \"{path}\"\nirq_cpus = [0]");
        let vm = "affinity = [0]\nstop = \"50ms\"";
        let text = text("poisson(60000/s)", 64, vm, &net, stages);
        let (_, responses) = run(&text, SECOND).unwrap();
        assert!(
            (200..3_500).contains(&responses.len()),
            "{path}: {}",
            responses.len()
        );
    }
}

/// `coverage` binds the back end's thread first; half of two threads is it alone.
#[test]
fn coverage_binds_a_part_of_the_threads() {
    for (coverage, back, vcpu) in [
        ("0%", false, false),
        ("50%", true, false),
        ("100%", true, true),
    ] {
        let vm = format!("affinity = [3]\ncoverage = \"{coverage}\"");
        let s = scenario(&text("every 1ms", 64, &vm, "path = \"emulator\"", ""));
        let threads = berth_scenario::placement::threads(&s).unwrap();
        assert_eq!(threads[0].affinity == [3], vcpu, "{coverage}");
        let own = berth_scenario::placement::backend_affinity(&s.vms[0]);
        assert_eq!(own == [3], back, "{coverage}");
    }
}

/// Under `wander`, threads that may go anywhere move at the rate that it was told, and bound ones not at all.
#[test]
fn wander_moves_threads_as_often_as_it_is_told() {
    let builtin = berth_builtin::all();
    let wander = builtin.iter().find(|p| p.name == "wander").unwrap();
    for (percent, vm, want) in [
        (30, "", 0.3),
        (100, "", 1.0),
        (0, "", 0.0),
        (30, "affinity = [1]", 0.0),
    ] {
        let net = "path = \"emulator\"\nirq_cpus = [0]";
        let text = text("every 1ms", 64, vm, net, "");
        let mut s = scenario(&format!(
            "[run]\nwarmup = \"100ms\"\nmeasure = \"2s\"\n{text}"
        ));
        s.host.cost = Default::default();
        let params = BTreeMap::from([("move".to_string(), format!("{percent}"))]);
        let policy = wander.load(&LoadOptions::default()).unwrap();
        let record = run_one(&s, "a", &policy, &params, 3, &Options::default()).unwrap();
        // Two wake-ups of the back end and one of the vCPU in a ping.
        let wakes = 3.0 * record.metrics["v.requests"];
        let moved = record.metrics["v.migrations"] / wakes;
        assert!((moved - want).abs() < 0.03, "{percent} {vm}: {moved}");
        // The warm-up is not counted.
        let calls = record.metrics["v.calls.copy"];
        assert!((calls - 1.0).abs() < 2e-3, "{calls}");
    }
}
