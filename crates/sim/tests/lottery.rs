// SPDX-License-Identifier: GPL-2.0-only
//! What `lottery` promises: shares by weight as far as chance allows, and no closer; caps; a turn for everybody.
use berth_policy::policy::{LoadOptions, Policy};
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

#[path = "support/shipped.rs"]
mod shipped;

/// A slice of 3 ms ends at the next tick of 250 Hz.
const SLICES_PER_S: f64 = 250.0;

fn lottery() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| shipped::policy("lottery"))
}

/// The same queues, labels and caps under another rule of whose turn it is.
fn stride() -> Policy {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies");
    let mut options = LoadOptions::default();
    options
        .compile
        .include
        .push(tests.join("../../../../policies/include"));
    Policy::from_source(&tests.join("stride.bpf.c"), &options).expect("it loads")
}

/// Metrics of one run on a host of so many cores, with these VMs of busy vCPUs: name, vCPUs, weight, more keys.
fn run(
    seconds: u32,
    cores: u32,
    vms: &[(&str, u32, u32, &str)],
    seed: u64,
) -> BTreeMap<String, f64> {
    run_under(lottery(), seconds, cores, vms, seed)
}

fn run_under(
    policy: &Policy,
    seconds: u32,
    cores: u32,
    vms: &[(&str, u32, u32, &str)],
    seed: u64,
) -> BTreeMap<String, f64> {
    let mut text = format!(
        "title = \"lottery\"\n[run]\nwarmup = \"100ms\"\nmeasure = \"{seconds}s\"\n\
         [compare]\npolicies = [\"lottery\"]\n[host]\ncores = {cores}\n[task.hog]\nmodel = \"busy\"\n"
    );
    for (name, vcpus, weight, more) in vms {
        text += &format!(
            "[vm.{name}]\nvcpus = {vcpus}\nweight = {weight}\ntasks = [\"hog\"]\n{more}\n"
        );
    }
    let input = Input {
        name: "lottery".into(),
        shown: "lottery".into(),
        text,
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
    run_one(
        &scenario.scenario,
        "lottery",
        policy,
        &BTreeMap::new(),
        seed,
        &Options::default(),
    )
    .unwrap_or_else(|e| panic!("{e}\n{}", input.text))
    .metrics
}

/// Four standard deviations of a share p after so many draws.
fn chance(p: f64, draws: f64) -> f64 {
    4.0 * (p * (1.0 - p) / draws).sqrt()
}

#[test]
fn shares_follow_weights_whatever_the_number_of_vcpus() {
    for (cores, vms) in [
        (1, [("a", 1, 100, ""), ("b", 4, 200, ""), ("c", 8, 700, "")]),
        // More vCPUs than CPUs: somebody of each VM always waits.
        (
            4,
            [("a", 9, 100, ""), ("b", 5, 500, ""), ("c", 20, 400, "")],
        ),
    ] {
        let seconds = 20;
        let metrics = run(seconds, cores, &vms, 1);
        let weights: u32 = vms.iter().map(|vm| vm.2).sum();
        for (name, _, weight, _) in vms {
            let want = f64::from(weight) / f64::from(weights);
            let got = metrics[&format!("{name}.cpu")] / f64::from(cores);
            let draws = f64::from(seconds * cores) * SLICES_PER_S;
            assert!(
                (got - want).abs() <= chance(want, draws),
                "{name} on {cores} CPUs: {got:.4} for {want:.4} ± {:.4}",
                chance(want, draws)
            );
        }
    }
}

/// Whoever keeps accounts is far more even than chance; whoever draws with loaded dice is less.
#[test]
fn shares_of_a_second_vary_as_those_of_a_lottery() {
    let vms = [("a", 2, 100, ""), ("b", 2, 100, "")];
    let shares: Vec<f64> = (1..=60)
        .map(|seed| run(1, 1, &vms, seed)["a.cpu"])
        .collect();
    let n = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / n;
    let variance = shares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let (got, want) = (variance.sqrt(), (0.25 / SLICES_PER_S).sqrt());
    assert!(
        (0.7 * want..1.4 * want).contains(&got),
        "standard deviation {got:.4}, of a lottery {want:.4}"
    );
}

#[test]
fn a_cap_holds_and_what_it_leaves_is_used() {
    let vms = [
        ("capped", 4, 900, "cap = \"0.5 CPUs\""),
        ("free", 4, 100, ""),
    ];
    let metrics = run(5, 2, &vms, 1);
    let (capped, free) = (metrics["capped.cpu"], metrics["free.cpu"]);
    assert!((capped - 0.5).abs() < 0.03, "capped {capped:.3}");
    assert!((free - 1.5).abs() < 0.03, "free {free:.3}");
    let alone = run(5, 2, &vms[..1], 1)["capped.cpu"];
    assert!((alone - 0.5).abs() < 0.03, "alone {alone:.3}");
}

/// By tickets alone it would be drawn once in 40 seconds.
#[test]
fn nobody_waits_much_longer_than_patience() {
    let vms = [("light", 1, 1, ""), ("heavy", 1, 10_000, "")];
    let light = run(12, 1, &vms, 1)["light.cpu"];
    let turns = light * 12.0 * SLICES_PER_S;
    assert!((4.0..8.0).contains(&turns), "{turns:.2} turns in 12 s");
}

/// Accounts are kept: what chance leaves uneven is even, to a slice per VM, and caps hold on the same queues.
#[test]
fn a_policy_with_another_rule_has_exact_shares() {
    let vms = [("a", 1, 100, ""), ("b", 4, 200, ""), ("c", 8, 700, "")];
    let policy = stride();
    let metrics = run_under(&policy, 2, 1, &vms, 1);
    for (name, _, weight, _) in vms {
        let (want, got) = (f64::from(weight) / 1000.0, metrics[&format!("{name}.cpu")]);
        assert!(
            (got - want).abs() <= 2.0 / (2.0 * SLICES_PER_S),
            "{name}: {got:.4} for {want:.4}"
        );
    }
    let vms = [
        ("capped", 4, 900, "cap = \"0.5 CPUs\""),
        ("free", 4, 100, ""),
    ];
    let capped = run_under(&policy, 5, 2, &vms, 1)["capped.cpu"];
    assert!((capped - 0.5).abs() < 0.03, "capped {capped:.3}");
}
