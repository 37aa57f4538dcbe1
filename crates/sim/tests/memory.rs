// SPDX-License-Identifier: GPL-2.0-only
//! Memory of VMs on NUMA nodes, held against closed forms: how fast who waits for it works, and what counters say.
use berth_policy::policy::Policy;
use berth_scenario::model::{HostCost, Hz, Scenario};
use berth_scenario::step::Kind;
use berth_scenario::{Edit, Input, read};
use berth_sim::machine::Shape;
use berth_sim::oracle::random;
use berth_sim::run::{GuestPolicy, Options, load_policy, run_one};
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use proptest::prelude::*;
use std::collections::BTreeMap;
use support::Cast;

#[allow(dead_code, reason = "other tests look into maps")]
mod support;

const FULL: u32 = 1_000_000;
const S: u64 = 1_000_000_000;

fn two_nodes() -> Shape {
    Shape {
        nodes: 2,
        packages: 2,
        ..Shape::flat(1)
    }
}

fn scenario(text: &str, edits: &[&str]) -> Scenario {
    let input = Input {
        name: "t".into(),
        shown: "t.toml".into(),
        text: format!("[run]\nwarmup = \"0s\"\nmeasure = \"1s\"\n{text}"),
        folder: None,
    };
    let edits: Vec<Edit> = edits.iter().map(|e| Edit::Set(e.to_string())).collect();
    let read = read(&input, &edits).unwrap_or_else(|e| panic!("{e}"));
    read.scenario
}

/// What VM v does of a CPU's work at full speed.
fn work(policy: &str, scenario: &Scenario) -> f64 {
    metrics(policy, scenario)["v.work"] / 1e9
}

fn metrics(policy: &str, scenario: &Scenario) -> BTreeMap<String, f64> {
    let guest = || GuestPolicy {
        policy: support::policy("rr"),
        params: BTreeMap::new(),
    };
    let of = |vm: &berth_scenario::model::Vm| (!vm.guest.is_none()).then(guest);
    let options = Options {
        guests: scenario.vms.iter().map(of).collect(),
        ..Options::default()
    };
    let loaded: Policy = support::policy(policy);
    let run = run_one(scenario, "a", &loaded, &BTreeMap::new(), 1, &options);
    run.unwrap_or_else(|e| panic!("{e}")).metrics
}

/// A VM on the CPU of node 0 of two.
const HOG: &str = "[host]\npackages = 2\ncores = 1\nhz = \"exact\"\ncost = \"none\"\n\
    [vm.v]\naffinity = [0]\nguest = \"none\"\ntasks = [\"hog\"]\n[task.hog]\nmodel = \"busy\"\n";

/// A second's work takes the part that computes at the core's speed, and the part that waits 1 + r (f - 1) times.
#[test]
fn who_waits_for_another_node_works_at_the_rate_of_the_closed_form() {
    for (stall, remote, factor, speed) in [
        (50.0, 100.0, 1.5, 1.0),
        (50.0, 0.0, 1.5, 1.0),
        (0.0, 100.0, 3.0, 1.0),
        (100.0, 100.0, 4.0, 1.0),
        (30.0, 25.0, 1.7, 1.0),
        (55.2, 60.0, 2.0, 0.421),
    ] {
        for guest in ["none", "rr"] {
            let set = [
                format!("task.hog.stall=\"{stall}%\""),
                format!("vm.v.memory=[\"{}%\", \"{remote}%\"]", 100.0 - remote),
                format!("host.remote_memory={factor}"),
                format!("host.speed=\"{}%\"", speed * 100.0),
                format!("vm.v.guest={guest}"),
            ];
            let set: Vec<&str> = set.iter().map(String::as_str).collect();
            let got = work("gfifo", &scenario(HOG, &set));
            let (s, r) = (stall / 100.0, remote / 100.0);
            let truth = 1.0 / ((1.0 - s) / speed + s * (1.0 + r * (factor - 1.0)));
            assert!(
                (got / truth - 1.0).abs() < 1e-5,
                "{set:?}: {got}, not {truth}"
            );
        }
    }
}

/// One that goes to the other node and back works at each node's rate there.
#[test]
fn a_move_changes_the_rate_from_that_instant() {
    let text = format!(
        "{HOG}[task.wanderer]\nstall = \"50%\"\nthreads = 1\n\
         loop = [\"affinity 0\", \"compute 10ms\", \"affinity 1\", \"compute 10ms\"]\n"
    );
    let set = [
        "vm.v.tasks=[\"wanderer\"]",
        "vm.v.affinity=[0, 1]",
        "vm.v.memory=[\"80%\", \"20%\"]",
        "host.remote_memory=2",
    ];
    let got = work("gfifo", &scenario(&text, &set));
    // 10 ms of work take 11 ms here and 14 ms there; 40 rounds in a second.
    let truth = 20.0 / (11.0 + 14.0);
    // Each piece ends at a whole nanosecond.
    assert!((got - truth).abs() < 2e-6, "{got}, not {truth}");
}

/// What says nothing, or nothing that matters, changes nothing: neither results nor how they come about.
#[test]
fn without_another_nodes_memory_all_is_as_before() {
    let text = "[host]\npackages = 2\ncores = 2\n[vm.v]\nvcpus = 2\ncount = 3\ntasks = [\"hog\", \"nap\"]\n\
                [task.hog]\nmodel = \"busy\"\nstall = \"40%\"\n[task.nap]\nmodel = \"periodic\"\nperiod = \"3ms\"\n\
                compute = \"500us\"\nstall = \"70%\"\n";
    let plain = metrics("gfifo", &scenario(text, &[]));
    // Nobody's memory is said to be anywhere.
    assert_eq!(
        metrics("gfifo", &scenario(text, &["host.remote_memory=3"])),
        plain
    );
    // The other node's is as near.
    let near = ["vm.v.memory=[\"50%\", \"50%\"]", "host.cost=none"];
    let plain = metrics("gfifo", &scenario(text, &["host.cost=none"]));
    assert_eq!(metrics("gfifo", &scenario(text, &near)), plain);
    // There is no other node.
    let one = ["vm.v.memory=0", "host.remote_memory=3", "host.nodes=1"];
    let plain = metrics("gfifo", &scenario(text, &["host.nodes=1"]));
    assert_eq!(metrics("gfifo", &scenario(text, &one)), plain);
}

/// Policies are told of a memory node that has all: Credit goes there.
#[test]
fn credit_is_told_where_a_vms_memory_is() {
    let set = |memory: &str| {
        let memory = format!("vm.v.memory={memory}");
        let set = [
            "task.hog.stall=\"50%\"",
            "host.remote_memory=2",
            "vm.v.affinity=all",
            &memory,
        ];
        work("credit", &scenario(HOG, &set))
    };
    for node in ["0", "1"] {
        // A tick or two until it is there.
        assert!(set(node) > 0.98, "{node}: {}", set(node));
    }
    // No node has all of it: it stays where it is.
    let split = set("[\"20%\", \"80%\"]");
    assert!(
        [1.0 / 1.4, 1.0 / 1.1]
            .iter()
            .any(|r| (split - r).abs() < 1e-5),
        "{split}"
    );
}

/// A read of memory in 100 ns of waiting at full speed; those of another node's.
#[test]
fn counters_tell_reads_and_those_of_another_node() {
    for (on, away) in [(0, 0.3), (1, 0.7)] {
        let spec = MachineSpec {
            hz: Hz::Exact,
            cost: HostCost {
                pmu_noise_ppm: Some(0),
                remote_ppm: 2 * FULL,
                ..HostCost::default()
            },
            memory: BTreeMap::from([(0, vec![700_000, 300_000])]),
            ..MachineSpec::new(two_nodes())
        };
        let mut cast = Cast::default();
        cast.vcpu(0, 0, 0, &[Action::ComputeForever]);
        cast.scripts[0].spec.phase.stalled = 400_000;
        cast.masks = vec![vec![on]];
        let vms = [berth_sim::scx::identity::VmSpec {
            name: "v".into(),
            group: 0,
            class: berth_scenario::model::Class::Batch,
            weight: 100,
            cap_milli: None,
            vcpus: 1,
        }];
        let mut m = Simulation::new(&spec, &vms, cast);
        let policy = support::policy("gfifo");
        load_policy(&mut m, &policy, &BTreeMap::new(), &vms, &Options::default()).unwrap();
        m.start();
        m.run_until(10 * S).unwrap();
        let mut k = m.kernel();
        let pmu = k.hardware.as_mut().and_then(|hw| hw.pmu.as_mut());
        let [instructions, cycles, loads, remote] = pmu.unwrap().read(on, 10 * S).map(|n| n as f64);
        let work = 10.0 / (0.6 + 0.4 * (1.0 + away));
        for (got, truth) in [
            (instructions, 1.5e9 * 0.6 * work),
            (cycles, 10e9),
            (loads, 0.4 * work / 100e-9),
            (remote, away * 0.4 * work / 100e-9),
        ] {
            assert!(
                (got / truth - 1.0).abs() < 1e-5,
                "on {on}: {got}, not {truth}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random scenarios on two nodes with memory anywhere: no invariant breaks under a policy that looks at it.
    #[test]
    fn invariants_hold_wherever_memory_is(seed in any::<u64>(), parts in any::<u32>(), times in 0u32..5) {
        let mut all = random::scenario_with(Kind::Stall, "any", &mut random::from_seed(seed));
        all.host.nodes = all.host.packages;
        all.host.cost.remote_ppm = times * FULL;
        all.host.cost.pmu_noise_ppm = (!parts.is_multiple_of(4)).then_some(30_000);
        for (i, vm) in (0u32..).zip(&mut all.vms) {
            let here = if all.host.nodes == 1 { FULL } else { parts.rotate_left(i) % (FULL + 1) };
            vm.memory_ppm = vec![here, FULL - here][..all.host.nodes as usize].to_vec();
        }
        for policy in ["brm", "best_node", "credit"] {
            let loaded = support::policy(policy);
            let run = run_one(&all, "a", &loaded, &BTreeMap::new(), seed % 1000, &Options::default());
            prop_assert!(run.is_ok(), "{policy}: {:?}\n{all:#?}", run.err());
        }
    }
}
