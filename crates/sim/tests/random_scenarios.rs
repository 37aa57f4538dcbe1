// SPDX-License-Identifier: GPL-2.0-only
//! Random scenarios under every shipped policy: no run may break an invariant, throw its policy out or end
//! early, and the same arguments give the same record. Every failure found once is kept in [`REGRESSIONS`].
use berth_policy::abi::Op;
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::model::Scenario;
use berth_scenario::step::Kind;
use berth_sim::SimError;
use berth_sim::oracle::{random, same_bytes};
use berth_sim::run::{Options, run_one};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::OnceLock;

fn policies() -> &'static [(String, Policy)] {
    static ALL: OnceLock<Vec<(String, Policy)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let load = |b: &berth_builtin::Builtin| {
            let policy = b.load(&LoadOptions::default()).unwrap();
            (b.name.to_string(), policy)
        };
        berth_builtin::all().iter().map(load).collect()
    })
}

/// Runs it under every policy; what is wrong, if anything.
fn wrong(scenario: &Scenario, seed: u64) -> Option<String> {
    let none = BTreeMap::new();
    policies().iter().find_map(|(name, policy)| {
        let run = || run_one(scenario, name, policy, &none, seed, &Options::default());
        let ops = &policy
            .ops_var(None)
            .map(|v| v.ops.clone())
            .unwrap_or_default();
        let sees_hotplug = ops.iter().any(|(op, _)| *op == Op::CpuOffline);
        match run() {
            // As in the kernel: CPUs that come or go end a policy without operations for that.
            Err(SimError::PolicyExit { message, .. })
                if !sees_hotplug && message.contains("exiting scheduler") =>
            {
                None
            }
            Err(e) => Some(format!("{name}: {e}")),
            Ok(record) => {
                let cpus = f64::from(scenario.host.nr_cpus());
                let used: f64 = scenario
                    .vms
                    .iter()
                    .map(|vm| format!("{}.cpu", vm.name))
                    .chain(["host.cpu".to_string()])
                    .filter_map(|m| record.metrics.get(&m))
                    .sum();
                let idle = record.metrics["host.idle"] * cpus;
                let unused = record.metrics["host.unused"] * cpus;
                if unused > idle + 1e-6 {
                    return Some(format!("{name}: {unused} CPUs unused, {idle} idle"));
                }
                if used + idle > cpus + 1e-6 || !record.metrics.values().all(|v| v.is_finite()) {
                    return Some(format!("{name}: {used} CPUs used, {idle} idle of {cpus}"));
                }
                // Offline CPUs are neither; without hotplug the sum is exact.
                if scenario.host.hotplug.is_empty() && (used + idle - cpus).abs() > 1e-6 {
                    return Some(format!("{name}: {used} CPUs used, {idle} idle of {cpus}"));
                }
                None
            }
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_under_every_policy(
        choices in proptest::collection::vec(any::<u32>(), 0..120),
        seed in 0u64..1000,
    ) {
        let scenario = random::scenario("any", &mut random::from_list(&choices));
        let wrong = wrong(&scenario, seed);
        prop_assert!(wrong.is_none(), "{}\n{choices:?}\n{scenario:#?}", wrong.unwrap_or_default());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_with_every_kind_of_step(
        choices in proptest::collection::vec(any::<u32>(), 0..120),
        seed in 0u64..1000,
    ) {
        for kind in Kind::ALL {
            let scenario = random::scenario_with(kind, "any", &mut random::from_list(&choices));
            let wrong = wrong(&scenario, seed);
            prop_assert!(wrong.is_none(), "{kind:?}: {}\n{choices:?}\n{scenario:#?}", wrong.unwrap_or_default());
        }
    }
}

/// Seeds of the generator that found something, and what.
const REGRESSIONS: [(u64, &str); 2] = [
    (
        23,
        "all CPUs of a task's affinity went offline: it ran elsewhere without losing the affinity",
    ),
    (
        33,
        "the same for a waking task: it was put on the offline CPU's queue first",
    ),
];

#[test]
fn what_was_found_once_stays_found() {
    for (seed, what) in REGRESSIONS {
        let scenario = random::scenario("any", &mut random::from_seed(seed));
        assert_eq!(wrong(&scenario, seed), None, "seed {seed}: {what}");
    }
}

/// Fixed seeds, so that every run of the tests covers the same ground as well.
#[test]
fn invariants_hold_for_fixed_seeds() {
    for seed in 0..60 {
        let scenario = random::scenario("any", &mut random::from_seed(seed));
        if let Some(wrong) = wrong(&scenario, seed) {
            panic!("seed {seed}: {wrong}\n{scenario:#?}");
        }
    }
}

/// Disks of all kinds: caches of all sizes and none, paths, VMs that stop.
#[test]
fn invariants_hold_for_fixed_seeds_with_disks() {
    for seed in 0..30 {
        let kind = [Kind::Read, Kind::Write][seed as usize % 2];
        let mut choose = random::from_seed(1_000 + seed);
        let scenario = random::scenario_with(kind, "any", &mut choose);
        if let Some(wrong) = wrong(&scenario, seed) {
            panic!("seed {seed}: {wrong}\n{scenario:#?}");
        }
    }
}

#[test]
fn equal_arguments_give_equal_records() {
    for seed in 1..=10 {
        for (name, policy) in policies() {
            let record = || same_bytes::one(name, policy, seed).map_err(|e| e.to_string());
            assert_eq!(record(), record());
        }
    }
}

/// That it does not depend on build or workers: `tools/same-bytes`.
#[test]
fn the_hash_is_of_all_that_is_run() {
    let hash = |scenarios| same_bytes::hash(policies(), scenarios, 2);
    assert_ne!(hash(1), hash(2));
}
