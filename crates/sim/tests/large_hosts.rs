// SPDX-License-Identifier: GPL-2.0-only
//! Every shipped policy on a host of 1,024 CPUs; what a host is told that is too large for one.
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use support::Cast;

#[allow(
    dead_code,
    reason = "what looks into policies' maps is for other tests"
)]
mod support;

const MS: u64 = 1_000_000;

/// Packages of 64 cores of two threads.
fn host(packages: u32) -> Shape {
    Shape {
        nodes: 2,
        packages,
        llcs: 1,
        cores: 64,
        threads: 2,
    }
}

/// 300 VMs of four vCPUs that compute, 300 of four that wake 200 times a second: more than two vCPUs for each CPU of
/// 1,024.
fn machine(shape: Shape) -> (Box<Simulation<Cast>>, Vec<VmSpec>) {
    let mut cast = Cast::default();
    let mut vms = Vec::new();
    for n in 0..600u32 {
        let latency = n % 2 == 0;
        for vcpu in 0..4 {
            let start = u64::from(n * 4 + vcpu) * 1_000;
            let naps = [
                Action::Compute { ns: MS },
                Action::SleepUntil { at: 4 * MS },
            ];
            let actions: &[Action] = if latency {
                &naps
            } else {
                &[Action::ComputeForever]
            };
            cast.vcpu(n, vcpu, start, actions);
        }
        vms.push(VmSpec {
            name: format!("v{n}"),
            group: n,
            class: if latency {
                Class::Latency
            } else {
                Class::Batch
            },
            weight: 100,
            cap_milli: None,
            vcpus: 4,
        });
    }
    let mut spec = MachineSpec::new(shape);
    spec.tasks = 2_500;
    (Box::new(Simulation::new(&spec, &vms, cast)), vms)
}

/// All have had several turns by then.
const SOME_TURNS_NS: u64 = 300 * MS;
/// The time of two partitions of `flms`.
const TWO_PARTITIONS_NS: u64 = 700 * MS;

/// Nobody starves, no callback takes more instructions than it may.
fn works(name: &str, until_ns: u64) {
    let policy = support::policy(name);
    let (mut m, vms) = machine(host(8));
    let none = BTreeMap::new();
    load_policy(&mut m, &policy, &none, &vms, &Options::default()).unwrap();
    m.start();
    m.run_until(until_ns)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    m.check().unwrap();
}

#[test]
fn credit_works_on_1024_cpus() {
    works("credit", TWO_PARTITIONS_NS);
}

#[test]
fn flms_works_on_1024_cpus() {
    works("flms", TWO_PARTITIONS_NS);
}

#[test]
fn the_others_work_on_1024_cpus() {
    for builtin in berth_builtin::all() {
        if !["credit", "flms"].contains(&builtin.name) {
            works(builtin.name, SOME_TURNS_NS);
        }
    }
}

/// One package more: who has tables of a fixed size says how many CPUs they are for, before anything runs.
#[test]
fn a_host_too_large_for_a_policy_is_refused_by_number() {
    let mut refused = Vec::new();
    for builtin in berth_builtin::all() {
        let policy = support::policy(builtin.name);
        let (mut m, vms) = machine(host(9));
        let none = BTreeMap::new();
        let Err(e) = load_policy(&mut m, &policy, &none, &vms, &Options::default()) else {
            continue;
        };
        let text = e.to_string();
        assert!(text.contains("1024") && text.contains("1152"), "{text}");
        refused.push(builtin.name);
    }
    let all = [
        "amp",
        "credit",
        "flms",
        "best_node",
        "brm",
        "credit2",
        "ecredit",
        "iobound",
        "vslicer",
        "vturbo",
        "zeng",
    ];
    assert_eq!(refused, all);
}

/// Threads come and go: what policies are told of a thread is forgotten when it ends, so that more may come than
/// `berth_threads` has room for.
#[test]
fn more_threads_come_and_go_than_a_policy_can_know_at_once() {
    const BIRTHS: u64 = 66_000;
    let mut cast = Cast::default();
    let exits = [Action::Exit];
    for i in 0..BIRTHS {
        cast.vcpu(0, 0, i * 1_000, &exits);
        let script = cast.scripts.last_mut().unwrap();
        script.spec.score_milli = Some(2_000);
    }
    let vms = [VmSpec {
        name: "v0".into(),
        group: 0,
        class: Class::Batch,
        weight: 100,
        cap_milli: None,
        vcpus: 1,
    }];
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(2)), &vms, cast);
    let policy = support::policy("amp");
    load_policy(&mut m, &policy, &BTreeMap::new(), &vms, &Options::default()).unwrap();
    m.start();
    m.run_until(100 * MS).unwrap();
    m.check().unwrap();
    let k = m.kernel();
    let instance = k.policy.instance().unwrap();
    for map in ["berth_threads", "berth_scores"] {
        assert!(instance.map(map).unwrap().is_empty(), "{map}");
    }
}
