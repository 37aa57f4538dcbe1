// SPDX-License-Identifier: GPL-2.0-only
//! Working sets that change from phase to phase: what is brought in when they grow, and what stays when they shrink.
use berth_policy::policy::Policy;
use berth_scenario::model::{Cache, HostCost, Hz};
use berth_scenario::{Edit, Input, read};
use berth_sim::machine::Shape;
use berth_sim::run::{GuestPolicy, Options, load_policy, run_one, settle};
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use support::Cast;

#[allow(dead_code, reason = "other tests look into maps")]
mod support;

const KIB: u64 = 1024;
const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn gfifo() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| support::policy("gfifo"))
}

/// Threads, each with the set that it is born with, on one core with 1 MiB into which 1 KiB comes in 1 us, in turns of
/// 1 ms.
fn machine(threads: &[(u64, &[Action])]) -> Simulation<Cast> {
    let spec = MachineSpec {
        hz: Hz::Exact,
        cost: HostCost {
            cache: Some(Cache {
                core_bytes: 1024 * KIB,
                llc_bytes: 0,
                from_llc: 1024,
                ..Cache::default()
            }),
            ..HostCost::default()
        },
        ..MachineSpec::new(Shape::flat(1))
    };
    let mut cast = Cast::default();
    for (i, (set, actions)) in (0..).zip(threads) {
        cast.vcpu(0, i, 0, actions);
        cast.scripts[i as usize].spec.vm = None;
        cast.scripts[i as usize].spec.working_set = Some(*set);
    }
    let mut m = Simulation::new(&spec, &[], cast);
    let params = BTreeMap::from([("slice_us".to_string(), "1000".to_string())]);
    load_policy(&mut m, gfifo(), &params, &[], &Options::default()).unwrap();
    m.start();
    m
}

/// Work of all threads until then, ns at full speed.
fn work(m: &mut Simulation<Cast>, until: u64) -> u64 {
    m.run_until(until).unwrap();
    m.check().unwrap();
    let k = m.kernel();
    settle(k);
    k.stats.vms.iter().map(|c| c.work_ns).sum()
}

#[test]
fn what_a_phase_adds_is_brought_in_once() {
    // 100 KiB at birth, 300 more in the first round; nobody pushes anything out.
    let acts = [
        Action::Compute { ns: 10 * MS },
        Action::SetWorkingSet(400 * KIB),
        Action::Compute { ns: 10 * MS },
        Action::SetWorkingSet(100 * KIB),
    ];
    let mut m = machine(&[(100 * KIB, &acts)]);
    assert_eq!(work(&mut m, S), S - 400_000);
}

/// One that grows while it brings in what it has: the rest of both.
#[test]
fn a_set_may_grow_while_it_is_brought_in() {
    let acts = [
        // At half speed all the time.
        Action::Compute { ns: 50_000 },
        Action::SetWorkingSet(500 * KIB),
        Action::ComputeForever,
    ];
    let mut m = machine(&[(200 * KIB, &acts)]);
    assert_eq!(work(&mut m, 100_000), 50_000);
    assert_eq!(work(&mut m, 10 * MS), 10 * MS - 500_000);
}

#[test]
fn a_set_of_a_phase_costs_what_one_from_birth_costs() {
    let other: (u64, &[Action]) = (400 * KIB, &[Action::ComputeForever]);
    let born = work(
        &mut machine(&[(900 * KIB, &[Action::ComputeForever]), other]),
        3 * S,
    );
    let set = [Action::SetWorkingSet(900 * KIB), Action::ComputeForever];
    let set = work(&mut machine(&[(100 * KIB, &set), other]), 3 * S);
    assert_eq!(born, set);
    let small = work(
        &mut machine(&[(100 * KIB, &[Action::ComputeForever]), other]),
        3 * S,
    );
    assert!(set < small - 300 * MS, "{set} {small}");
}

#[test]
fn a_set_that_shrinks_costs_no_more() {
    let acts = [
        Action::SetWorkingSet(900 * KIB),
        Action::Compute { ns: 200 * MS },
        Action::SetWorkingSet(100 * KIB),
        Action::ComputeForever,
    ];
    let mut m = machine(&[(100 * KIB, &acts), (400 * KIB, &[Action::ComputeForever])]);
    let before = work(&mut m, 2 * S);
    assert!(before < 2 * S - 50 * MS, "{before}");
    assert_eq!(work(&mut m, 3 * S) - before, S);
}

const TWO_VMS: &str = "[run]\nwarmup = \"1s\"\nmeasure = \"4s\"\n[host]\ncores = 1\nhz = \"exact\"\ncost = \"none\"\n\
    [host.cache]\ncore = \"1MiB\"\nfrom_llc = \"1GB/s\"\n\
    [vm.v]\ntasks = [\"p\"]\n[vm.w]\ntasks = [\"hog\"]\n\
    [task.p]\nloop = [\"stall 0% working_set 64KiB\", \"compute 20ms\", \"stall 0% working_set 960KiB\", \
    \"compute 20ms\"]\n[task.hog]\nmodel = \"busy\"\nworking_set = \"512KiB\"\n";

/// Work of VM v, CPUs at full speed; with a scheduler inside, or folded.
fn of_v(guests: bool, edits: &[&str]) -> f64 {
    let input = Input {
        name: "t".into(),
        shown: "t.toml".into(),
        text: TWO_VMS.into(),
        folder: None,
    };
    let mut edits: Vec<Edit> = edits.iter().map(|e| Edit::Set(e.to_string())).collect();
    if !guests {
        edits.push(Edit::Set("vm.*.guest=none".into()));
    }
    let scenario = read(&input, &edits)
        .unwrap_or_else(|e| panic!("{e}"))
        .scenario;
    let guest = || GuestPolicy {
        policy: support::policy("rr"),
        params: BTreeMap::new(),
    };
    let opts = Options {
        guests: scenario.vms.iter().map(|_| guests.then(guest)).collect(),
        ..Options::default()
    };
    let params = BTreeMap::from([("slice_us".to_string(), "1000".to_string())]);
    let run = run_one(&scenario, "a", gfifo(), &params, 1, &opts);
    run.unwrap_or_else(|e| panic!("{e}")).metrics["v.work"]
}

/// The set of a vCPU is that of the task that runs in it now.
#[test]
fn the_sets_of_phases_reach_the_host_from_inside_a_guest() {
    let always = |size: &str| {
        let set = format!("task.p.loop=[\"stall 0% working_set {size}\", \"compute 20ms\"]");
        of_v(true, &[&set])
    };
    let (small, large, by_turns) = (always("64KiB"), always("960KiB"), of_v(true, &[]));
    let folded = of_v(false, &[]);
    assert!(small > 0.49, "{small}");
    assert!(large < small - 0.05, "{large} {small}");
    assert!(
        (large + 0.01..small - 0.01).contains(&by_turns),
        "{large} {by_turns} {small}"
    );
    assert!(
        (by_turns / folded - 1.0).abs() < 0.01,
        "{by_turns} {folded}"
    );
}
