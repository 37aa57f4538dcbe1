// SPDX-License-Identifier: GPL-2.0-only
//! The ready scenario `hybrid-host` under `vmfair`: its latency VMs are on fast cores while these are free, and its
//! batch VMs do as much as under the best static placement, which is found by arithmetic over all of them.
use berth_policy::policy::Policy;
use berth_scenario::{Edit, read, shipped::find};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;
use std::sync::OnceLock;

#[path = "support/shipped.rs"]
mod policies;

/// Cores and speeds of the kinds, VMs and vCPUs: as in the scenario.
const CORES: [f64; 3] = [8.0, 16.0, 2.0];
const SPEED: [f64; 3] = [1.0, 0.55, 0.3];
const NAMES: [&str; 3] = ["fast", "efficient", "low-power"];
const WEB: usize = 8;
const DB: usize = 2;
const BUILD_VCPUS: usize = 28;

fn vmfair() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| policies::policy("vmfair"))
}

/// Metrics of a run, with these values changed.
fn run(set: &[(&str, &str)], seed: u64) -> BTreeMap<String, f64> {
    let set: Vec<Edit> = set
        .iter()
        .map(|(k, v)| Edit::Set(format!("{k}={v}")))
        .collect();
    let scenario = read(&find("hybrid-host").unwrap(), &set).unwrap_or_else(|e| panic!("{e}"));
    let (params, options) = (BTreeMap::new(), Options::default());
    run_one(
        &scenario.scenario,
        "vmfair",
        vmfair(),
        &params,
        seed,
        &options,
    )
    .unwrap()
    .metrics
}

/// Work per time on a kind of core of a task that waits for memory for this part of its time on a fast one.
fn rate(kind: usize, stall: f64) -> f64 {
    1.0 / (stall + (1.0 - stall) / SPEED[kind])
}

/// All ways to put n alike things into the kinds.
fn placements(n: usize) -> impl Iterator<Item = [usize; 3]> {
    (0..=n).flat_map(move |fast| {
        (0..=n - fast).map(move |efficient| [fast, efficient, n - fast - efficient])
    })
}

/// The most work per time that batch vCPUs can do under any static placement of VMs and batch vCPUs on kinds of cores.
/// `web` and `db` are the work per time of one of these VMs, without stalls, which they are to have wherever they are.
fn best(web: f64, db: f64, stall: f64) -> f64 {
    let mut best: f64 = 0.0;
    for webs in placements(WEB) {
        for dbs in placements(DB) {
            let left = [0, 1, 2].map(|k| {
                let served = webs[k] as f64 * web + dbs[k] as f64 * db;
                CORES[k] - served / SPEED[k]
            });
            if left.iter().any(|cores| *cores < 0.0) {
                continue;
            }
            for builds in placements(BUILD_VCPUS) {
                let done = |k: usize| left[k].min(builds[k] as f64) * rate(k, stall);
                best = best.max((0..3).map(done).sum());
            }
        }
    }
    best
}

#[test]
fn latency_has_the_fast_cores_and_batch_loses_nothing() {
    for (stall, seed) in [(0.0, 1), (0.0, 2), (0.4, 1)] {
        let stalled = format!("{}%", 100.0 * stall);
        let m = run(&[("task.compile.stall", &stalled)], seed);
        let measured = 10e9;
        let fast = m["web.on_kind.fast"];
        assert!(fast >= 0.99, "web is on fast cores for {fast}");
        assert!(m["web.missed_fast"] <= 0.01, "{}", m["web.missed_fast"]);
        let kinds: f64 = NAMES.iter().map(|k| m[&format!("web.on_kind.{k}")]).sum();
        assert!((kinds - 1.0).abs() < 1e-9);
        let web = m["web.work"] / measured / WEB as f64;
        let db = m["db.work"] / measured / DB as f64;
        let (build, best) = (m["build.work"] / measured, best(web, db, stall));
        println!(
            "stall {stall}: build {build:.3}, best {best:.3}: {:.4}",
            build / best
        );
        assert!(build / best >= 0.98, "{build} of {best}, stall {stall}");
        assert!(build / best <= 1.0, "{build} of {best}: more than there is");
        // Equal weights, equal work.
        let works: Vec<f64> = (1..=7).map(|i| m[&format!("build-{i}.work")]).collect();
        let (least, most) = works
            .iter()
            .fold((f64::MAX, 0f64), |(l, h), w| (l.min(*w), h.max(*w)));
        assert!(most / least <= 1.02, "{works:?}");
    }
}
