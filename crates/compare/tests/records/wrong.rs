// SPDX-License-Identifier: GPL-2.0-only
//! The bounds can tell right from wrong: for every quantity there is a model that is wrong on purpose, and that these
//! bounds reject where they accept the right one.
use crate::held::{Model, RIGHT, folder, held};
use berth_compare::{Comparison, Quantity, Verdict};
use berth_scenario::model::{HostCost, Hz};
use std::collections::{BTreeMap, BTreeSet};

const ARMS: [&str; 3] = ["vmfair", "vtime", "gfifo"];
/// Few, so that the test is short: hogs with weights, sleepers and hogs, an idle machine, two and four CPUs.
const SCENARIOS: [&str; 5] = [
    "03-weights",
    "04-sleeper-alone",
    "06-sleepers-and-hogs",
    "23-overload-two-cpus",
    "24-bursts-four-cpus",
];

fn doubled(arm: &str) -> BTreeMap<String, String> {
    let us = match arm {
        "gfifo" => "40000",
        "vmfair" => "6000",
        _ => return BTreeMap::from([("slice_us".into(), "40000".into())]),
    };
    BTreeMap::from([("slice_us".into(), us.into())])
}

const WRONG: [Model; 4] = [
    Model {
        name: "slices twice as long",
        params: doubled,
        ..RIGHT
    },
    Model {
        name: "weights ignored",
        change: |s| s.vms.iter_mut().for_each(|vm| vm.weight = 100),
        ..RIGHT
    },
    Model {
        name: "waking up costs nothing",
        change: |s| s.host.cost = HostCost::default(),
        ..RIGHT
    },
    Model {
        name: "ten ticks a second",
        change: |s| s.host.hz = Hz::Ticks(10),
        ..RIGHT
    },
];

fn all(model: &Model) -> Vec<Comparison> {
    SCENARIOS
        .iter()
        .map(|name| held(&folder().join(format!("{name}.toml")), &ARMS, model))
        .collect()
}

#[test]
fn every_quantity_rejects_a_wrong_model() {
    let right = all(&RIGHT);
    let within: BTreeSet<(String, String, String, Quantity)> = rows(&right, Verdict::Within);
    let mut rejected: BTreeMap<Quantity, Vec<&str>> = BTreeMap::new();
    let mut misordered = Vec::new();
    for model in &WRONG {
        let wrong = all(model);
        let broken = rows(&wrong, Verdict::Broken);
        let mut found = BTreeSet::new();
        for row in broken.intersection(&within) {
            found.insert(row.3);
        }
        for quantity in &found {
            rejected.entry(*quantity).or_default().push(model.name);
        }
        let order = |all: &[Comparison]| {
            all.iter()
                .filter(|c| c.ranking.verdict == Verdict::Broken)
                .count()
        };
        if order(&wrong) > order(&right) {
            misordered.push(model.name);
        }
        let names: Vec<&str> = found.iter().map(|q| q.name()).collect();
        println!("{}: {}", model.name, names.join(", "));
    }
    for quantity in Quantity::ALL {
        assert!(
            rejected.contains_key(&quantity),
            "no wrong model is rejected by {quantity}: it judges nothing ({rejected:?})"
        );
    }
    assert!(!misordered.is_empty(), "no wrong model changes the order");
}

fn rows(all: &[Comparison], verdict: Verdict) -> BTreeSet<(String, String, String, Quantity)> {
    let mut set = BTreeSet::new();
    for c in all {
        for r in c.rows.iter().filter(|r| r.verdict == verdict) {
            set.insert((
                c.scenario.clone(),
                r.arm.clone(),
                r.group.clone(),
                r.quantity,
            ));
        }
    }
    set
}
