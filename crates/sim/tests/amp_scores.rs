// SPDX-License-Identifier: GPL-2.0-only
//! Where `amp` has its scores from: what is said of a vCPU, counters, utilisation; counters that make no sense; and
//! what results say of it.
use berth_policy::policy::Policy;
use berth_scenario::model::{Class, CoreKind, HostCost, Hz};
use berth_scenario::{Input, read};
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy, run_one};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use support::{Cast, Peek};

#[allow(dead_code, reason = "other tests set variables")]
mod support;

const MS: u64 = 1_000_000;

fn amp() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| support::policy("amp"))
}

/// Two VMs of one vCPU on a fast and a slow core: `one` gains 2.0 from the fast one, `two` 1.1. Further keys of the
/// host and of each VM.
fn run(host: &str, one: &str, two: &str, set: &[(&str, &str)]) -> BTreeMap<String, f64> {
    run_with(host, one, two, "model = \"busy\"\nstall = \"84.298%\"", set)
}

/// The same, `two` doing something else.
fn run_with(
    host: &str,
    one: &str,
    two: &str,
    does: &str,
    set: &[(&str, &str)],
) -> BTreeMap<String, f64> {
    let text = format!(
        "title = \"scores\"\n[run]\nwarmup = \"6s\"\nmeasure = \"3s\"\n[compare]\npolicies = [\"amp\"]\n\
         [host]\ncores = 2\nhz = \"exact\"\ncost = \"none\"\n{host}\n\
         [task.one]\nmodel = \"busy\"\nstall = \"13.636%\"\n[task.two]\n{does}\n\
         [vm.one]\nguest = \"none\"\ntasks = [\"one\"]\n{one}\n[vm.two]\nguest = \"none\"\ntasks = [\"two\"]\n{two}\n"
    );
    let input = Input {
        name: "scores".into(),
        shown: "scores".into(),
        text,
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
    let own = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
    let set = set.iter().map(own).collect();
    let run = run_one(
        &scenario.scenario,
        "amp",
        amp(),
        &set,
        1,
        &Options::default(),
    );
    run.unwrap().metrics
}

const UNEQUAL: &str = "speed = [\"1 x 237.5%\", \"1 x 100%\"]";
const WITH_PMU: &str = "speed = [\"1 x 237.5%\", \"1 x 100%\"]\npmu = true";

fn sources(of: &BTreeMap<String, f64>, vm: &str) -> [f64; 4] {
    ["given", "counters", "utilisation", "left_out"].map(|s| of[&format!("{vm}.scored_by.{s}")])
}

/// D16 within the error of thousandths.
fn about(got: f64, expected: f64) {
    assert!((got - expected).abs() < 0.01, "{got}, not {expected}");
}

#[test]
fn what_is_said_goes_before_what_is_counted_and_that_before_utilisation() {
    let counted = run(WITH_PMU, "", "", &[]);
    assert_eq!(sources(&counted, "one"), [0.0, 1.0, 0.0, 0.0]);
    about(counted["one.score"], 2.0);
    about(counted["two.score"], 1.1);
    assert_eq!(counted["one.on_kind.1"], 1.0);
    // The other way round, because somebody says so.
    let said = run(WITH_PMU, "score = \"120%\"", "score = \"180%\"", &[]);
    assert_eq!(sources(&said, "two"), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!((said["one.score"], said["two.score"]), (1.2, 1.8));
    assert_eq!((said["one.on_kind.1"], said["two.on_kind.1"]), (0.0, 1.0));
    // Of one only: the other is measured, and both are in the same unit.
    let one = run(WITH_PMU, "", "score = [\"1 x 250%\"]", &[]);
    assert_eq!(sources(&one, "one"), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(sources(&one, "two"), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(one["two.on_kind.1"], 1.0);
    // Nobody counts: as if they never waited for memory, both work all the time.
    let used = run(UNEQUAL, "", "", &[]);
    assert_eq!(sources(&used, "one"), [0.0, 0.0, 1.0, 0.0]);
    about(used["one.score"], 2.375);
    about(used["two.score"], 2.375);
    assert!(used["policy.scores_utilisation"] > 0.0 && used["policy.scores_pmu"] == 0.0);
    // Counters that are not to be looked at.
    let not = run(WITH_PMU, "", "", &[("score_by", "utilisation")]);
    assert_eq!(sources(&not, "two"), [0.0, 0.0, 1.0, 0.0]);
}

/// Without counters too, what is said decides.
#[test]
fn a_score_map_does_without_counters() {
    let said = run(UNEQUAL, "score = \"110%\"", "score = \"200%\"", &[]);
    assert_eq!(sources(&said, "one"), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!((said["one.on_kind.1"], said["two.on_kind.1"]), (0.0, 1.0));
    assert!(said["policy.scores_given"] > 0.0);
}

#[test]
fn where_cores_are_all_alike_nobody_is_scored() {
    let same = run("pmu = true", "score = \"110%\"", "", &[]);
    assert!(same["policy.symmetric"] > 0.0);
    assert!(!same.contains_key("one.score") && !same.contains_key("one.scored_by.given"));
}

/// A phase says how many instructions a cycle has, too: with half of them a task that never waits looks as if it waited
/// for half of its time, 1 / (1 - 0.579 / 2) = 1.41.
#[test]
fn a_phase_has_its_instructions_per_cycle() {
    let phases = "loop = [\"stall 0% ipc 0.75\", \"compute 5ms\"]";
    let host = "speed = [\"1 x 237.5%\", \"1 x 100%\"]\npmu = true\npmu_noise = \"0%\"";
    let two = run_with(host, "", "", phases, &[]);
    about(two["two.score"], 1.408);
}

/// A machine with a fast and a slow core, counters without noise, and two busy VMs; a short window.
fn machine() -> Simulation<Cast> {
    let kind = |name: &str, core, speed_ppm| CoreKind {
        name: name.into(),
        cores: vec![core],
        speed_ppm,
        frequency_ppm: 1_000_000,
        smt_ppm: 0,
        llcs: 0,
        steps_khz: Vec::new(),
    };
    let spec = MachineSpec {
        hz: Hz::Exact,
        cost: HostCost {
            kinds: vec![kind("fast", 0, 2_375_000), kind("slow", 1, 1_000_000)],
            pmu_noise_ppm: Some(0),
            ..HostCost::default()
        },
        ..MachineSpec::new(Shape::flat(2))
    };
    let mut cast = Cast::default();
    let vm = |i| VmSpec {
        name: format!("v{i}"),
        group: i,
        class: Class::Batch,
        weight: 100,
        cap_milli: None,
        vcpus: 1,
    };
    let vms: Vec<VmSpec> = (0..2).map(vm).collect();
    for i in 0..2 {
        cast.vcpu(i, 0, 0, &[Action::ComputeForever]);
    }
    let mut m = Simulation::new(&spec, &vms, cast);
    let set = [
        ("mode", "fair"),
        ("interval_ms", "300"),
        ("window_ms", "240"),
    ];
    let set = set
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .into_iter()
        .collect();
    load_policy(&mut m, amp(), &set, &vms, &Options::default()).unwrap();
    m.start();
    m
}

/// Counters of the fast CPU as they were when they were read last: instructions, cycles.
fn read_last(m: &mut Simulation<Cast>) -> [u64; 2] {
    let k = m.kernel();
    let peek = Peek(k.policy.instance().unwrap());
    ["instructions", "cycles"].map(|f| peek.get("pcpus_by_cpu", 0, f))
}

/// In a window counters jump ahead, back, or stand still: the window of who ran there is left out and counted, the
/// level stays; the next window is good again.
#[test]
fn counters_that_jump_or_stand_still_are_left_out_of_their_window() {
    // In the third window, and a slot's turn later.
    let (begin, later, after) = (630 * MS + 1, 660 * MS + 1, 900 * MS + 1);
    let mut honest = machine();
    honest.run_until(later).unwrap();
    let at_its_end = read_last(&mut honest);
    let left_out = |m: &mut Simulation<Cast>| -> u64 {
        let k = m.kernel();
        let peek = Peek(k.policy.instance().unwrap());
        let all = (1..3).map(|slot| peek.get("berth_scored_by_vm", slot, "left_out"));
        all.sum()
    };
    let levels = |m: &mut Simulation<Cast>| -> Vec<u64> {
        let k = m.kernel();
        let peek = Peek(k.policy.instance().unwrap());
        let guests = (1..peek.var("vcpus_used") as u32).filter(|v| peek.vcpu(*v, "slot") > 0);
        guests.map(|v| peek.vcpu(v, "level")).collect()
    };
    honest.run_until(after).unwrap();
    assert_eq!(left_out(&mut honest), 0);
    let good = levels(&mut honest);
    assert!(good.len() == 2 && good.iter().all(|l| *l > 0), "{good:?}");
    let far = 1 << 50;
    for (what, counters) in [
        ("ahead", at_its_end.map(|c| c - far.min(c))),
        ("back", at_its_end.map(|c| c + far)),
        ("still", at_its_end),
        ("instructions ahead", [0, at_its_end[1] - 1]),
    ] {
        let mut m = machine();
        m.run_until(begin).unwrap();
        {
            // What is to be read next differs so much, or by nothing, from what was read before.
            let k = m.kernel();
            let peek = Peek(k.policy.instance().unwrap());
            peek.set("pcpus_by_cpu", 0, "instructions", counters[0]);
            peek.set("pcpus_by_cpu", 0, "cycles", counters[1]);
        }
        m.run_until(after).unwrap();
        assert!((1..=2).contains(&left_out(&mut m)), "{what}");
        assert_eq!(levels(&mut m), good, "{what}");
        m.run_until(after + 300 * MS).unwrap();
        assert_eq!(left_out(&mut m), 0, "{what}");
    }
}
