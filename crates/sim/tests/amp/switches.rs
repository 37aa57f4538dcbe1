// SPDX-License-Identifier: GPL-2.0-only
//! Each switch for a decision of the paper does something, and caps hold: on three kinds of cores, with VMs that gain
//! much and little from a fast one, that nap, and one of double weight.
use super::{amp, params};
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;

const HOST: &str = r#"
title = "switches"
[run]
warmup = "2s"
measure = "8s"
[host]
pmu = true
cores = 7
[host.kind.big]
cores = 2
speed = "237.5%"
frequency = "80%"
[host.kind.mid]
cores = 2
speed = "190.5%"
[host.kind.little]
cores = 3
[vm.a]
vcpus = 3
guest = "none"
tasks = ["gains"]
[vm.b]
vcpus = 4
weight = 200
guest = "none"
tasks = ["stalls"]
[vm.c]
vcpus = 4
guest = "none"
tasks = ["naps"]
[vm.d]
vcpus = 2
guest = "none"
tasks = ["turns"]
[vm.e]
guest = "none"
tasks = ["naps"]
[task.gains]
model = "busy"
stall = "13.636%"
[task.stalls]
model = "busy"
stall = "55.219%"
[task.naps]
loop = ["compute 3ms", "sleep 4ms"]
[task.turns]
loop = ["compute 100ms", "sleep 10ms"]
[compare]
policies = ["amp"]
"#;

/// What VMs had, in CPUs and of each kind of core.
pub(super) fn had(text: &str, set: &[(&str, &str)]) -> BTreeMap<String, f64> {
    let input = Input {
        name: "amp".into(),
        shown: "amp".into(),
        text: text.into(),
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}"));
    let options = Options::default();
    let ran = run_one(&scenario.scenario, "amp", amp(), &params(set), 1, &options);
    let mut metrics = ran.unwrap_or_else(|e| panic!("{set:?}: {e}")).metrics;
    metrics.retain(|name, _| name.ends_with(".cpu") || name.contains(".on_kind."));
    metrics
}

/// A switch that changes nothing is no switch. Those about threads of the host and about new VMs have none here
/// (`decisions`), and nobody's utilisation changes by itself (`filter`).
#[test]
fn every_switch_changes_who_runs_where() {
    let alone = |name, value| (vec![], (name, value));
    let with = |first, name, value| (vec![first], (name, value));
    let by_vcpu = ("mode", "vcpu");
    let switches = [
        alone("mode", "vcpu"),
        alone("mode", "fair"),
        alone("r", "50"),
        alone("interval_ms", "1000"),
        alone("window_ms", "1000"),
        alone("filter_percent", "0"),
        alone("score_by", "utilisation"),
        with(by_vcpu, "efficiency", "literal"),
        with(by_vcpu, "ipc_ref_milli", "3000"),
        alone("utilisation", "wanted"),
        alone("hardened", "1"),
        alone("active_ms", "1000"),
        alone("min_slot_us", "0"),
        with(("r", "50"), "keep_fast", "1"),
        alone("before_plan", "rank"),
        alone("exclusive", "1"),
        alone("plan_at", "window"),
        alone("parallel_aware", "1"),
        with(by_vcpu, "parallel_aware", "1"),
        alone("kinds_by", "frequency"),
        with(by_vcpu, "share_close", "0"),
        with(("adaptive", "1"), "limit_percent", "1"),
        with(("r", "50"), "fair_by", "weight"),
        alone("boost_fast", "1"),
    ];
    for (mut set, switch) in switches {
        let without = had(HOST, &set);
        set.push(switch);
        assert!(without != had(HOST, &set), "{set:?} is no different");
    }
}

/// A VM that would run all the time has its cap, on fast and slow cores together, whatever the mode.
#[test]
fn caps_hold() {
    for cap in [0.3, 1.2] {
        let text = HOST.replace("[vm.a]\n", &format!("[vm.a]\ncap = \"{cap} CPUs\"\n"));
        for mode in ["vm", "vcpu", "fair"] {
            let cpus = had(&text, &[("mode", mode)])["a.cpu"];
            assert!((cpus / cap - 1.0).abs() < 0.02, "{mode}: {cpus} of {cap}");
        }
    }
}

/// D11: a short nap's owner is boosted when it wakes. It stays off the fast cores of others, or breaks into their slots
/// there, as in Credit, which is time that those lose who gain most from it.
#[test]
fn who_wakes_boosted_breaks_into_slots_only_by_boost_fast() {
    // So many that no core is idle.
    let full = HOST.replace("[vm.b]\nvcpus = 4", "[vm.b]\nvcpus = 8");
    let on_big = |set: &[(&str, &str)]| {
        let had = had(&full, set);
        (had["e.on_kind.big"], had["a.on_kind.big"])
    };
    let (kept_off, gains) = on_big(&[]);
    let (breaks_in, loses) = on_big(&[("boost_fast", "1")]);
    assert!(breaks_in > 3.0 * kept_off, "{kept_off} {breaks_in}");
    assert!(loses < gains, "{loses} {gains}");
}

/// D13: what belongs to no VM runs on the slowest kind alone, or anywhere; all of it together has `host_weight`, by
/// which it earns beside VMs that have 100 or 200 each.
#[test]
fn threads_of_the_host_keep_to_slow_cores_and_have_a_weight() {
    let text = HOST
        .replace("cores = 7\n", "cores = 7\ntasks = [\"serves\"]\n")
        .replace(
            "[task.gains]",
            "[task.serves]\nthreads = 3\nloop = [\"compute 2ms\", \"sleep 3ms\"]\n[task.gains]",
        );
    let of_host = |set: &[(&str, &str)]| {
        let had = had(&text, set);
        let faster = had["host.on_kind.big"] + had["host.on_kind.mid"];
        (faster, had["host.cpu"])
    };
    let (faster, cpus) = of_host(&[]);
    assert_eq!(faster, 0.0);
    assert!(of_host(&[("host_anywhere", "1")]).0 > 0.0);
    // A sixtieth of the credits of all does not reach for what it would use.
    let (_, light) = of_host(&[("host_weight", "10")]);
    assert!(light > 0.0 && light < 0.25 * cpus, "{light} {cpus}");
}
