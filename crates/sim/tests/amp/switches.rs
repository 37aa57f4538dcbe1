// SPDX-License-Identifier: GPL-2.0-only
//! Each switch for a decision of the paper does something, and caps hold: on three kinds of cores, with VMs that gain
//! much and little from a fast one, that nap, and one of double weight.
use super::support::{Cast, Peek};
use super::{MS, ROUND, amp, machine, params};
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use berth_sim::workload::api::Action;
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
fn had(text: &str, set: &[(&str, &str)]) -> BTreeMap<String, f64> {
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

/// A switch that changes nothing is no switch. Those about threads of the host and about new VMs have none here, and
/// nobody's utilisation changes by itself (D4: `filter`).
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
        alone("window_ms", "30"),
        alone("filter_percent", "0"),
        alone("score_by", "utilisation"),
        alone("efficiency", "literal"),
        with(by_vcpu, "ipc_ref_milli", "3000"),
        alone("utilisation", "wanted"),
        alone("hardened", "1"),
        alone("active_ms", "1000"),
        alone("min_slot_us", "0"),
        alone("keep_fast", "1"),
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

/// One fast core, three slow ones, and this much more of the scenario.
fn one_fast(more: &str) -> String {
    format!(
        r#"
title = "one fast core"
[host]
pmu = true
cores = 4
[host.kind.big]
cores = 1
speed = "237.5%"
[host.kind.little]
cores = 3
[task.gains]
model = "busy"
stall = "13.636%"
[task.stalls]
model = "busy"
stall = "55.219%"
[task.works]
loop = ["compute 50ms", "sleep 100us"]
[compare]
policies = ["amp"]
{more}"#
    )
}

/// D7: a VM that comes is ranked by the mean score until the next plan, or before all, or behind all until it has been
/// there for a window: also one that comes at the end of a window, which is not its own. It is there with one VM that
/// gains more than the mean, and one that gains less.
#[test]
fn who_is_new_is_ranked_as_the_switch_says() {
    let one = one_fast(
        r#"
[run]
warmup = "5200ms"
measure = "2s"
[vm.a]
guest = "none"
tasks = ["gains"]
[vm.b]
guest = "none"
vcpus = 3
tasks = ["stalls"]
[vm.new]
guest = "none"
start = "5150ms"
tasks = ["works"]
"#,
    );
    let two = one
        .replace("cores = 4", "cores = 5")
        .replace("cores = 1", "cores = 2");
    for start in ["5150ms", "4700ms", "4300ms"] {
        for mode in ["vm", "vcpu"] {
            for (place, of_one, of_two) in
                [("mean", 0.0, 1.0), ("first", 1.0, 1.0), ("last", 0.0, 0.0)]
            {
                // What it did at the end of a window is its score, however short that was.
                if place == "mean" && start == "4300ms" {
                    continue;
                }
                for (text, due) in [(&one, of_one), (&two, of_two)] {
                    let set = [("mode", mode), ("newcomer", place)];
                    let share = had(&text.replace("5150ms", start), &set)["new.on_kind.big"];
                    assert!(
                        (share - due).abs() < 0.1,
                        "{start}, {mode}, {place}: {share} of {due}"
                    );
                }
            }
        }
    }
}

/// D7: before the first plan all have equal parts of the fast core, or R % of it, the rest in the order of VMs.
#[test]
fn before_the_first_plan_fast_time_is_shared_or_goes_by_order() {
    let text = one_fast(
        r#"
[run]
warmup = "200ms"
measure = "1500ms"
[vm.a]
guest = "none"
tasks = ["stalls"]
[vm.b]
guest = "none"
vcpus = 3
tasks = ["gains"]
[vm.late]
guest = "none"
start = "100ms"
tasks = ["gains"]
"#,
    );
    for (set, a) in [
        (&[][..], 0.2),
        (&[("before_plan", "rank")][..], 1.0),
        (&[("before_plan", "rank"), ("r", "50")][..], 0.6),
        (&[("before_plan", "rank"), ("mode", "fair")][..], 0.2),
    ] {
        let had = had(&text, set);
        let [a_had, late] = ["a", "late"].map(|vm| had[&format!("{vm}.on_kind.big")]);
        // Who comes later is behind those who were there.
        let of_late = if a == 0.2 { 0.2 } else { (1.0 - a) / 4.0 };
        assert!(
            (a_had - a).abs() < 0.03 && (late - of_late).abs() < 0.03,
            "{set:?}: {a_had} {late}"
        );
    }
}

/// D15: threads that gain much go before one that gains less; by the square of how many of them want a CPU beyond the
/// fast cores, it goes before them. In both modes.
#[test]
fn who_computes_alone_goes_first_where_parallelism_counts() {
    let text = one_fast(
        r#"
[run]
warmup = "6s"
measure = "4s"
[vm.many]
guest = "none"
vcpus = 4
tasks = ["gains"]
[vm.one]
guest = "none"
tasks = ["stalls"]
"#,
    );
    // A quarter of what one gains, not half.
    let few = text.replace("vcpus = 4", "vcpus = 2");
    // Each has a fast core.
    let enough = few
        .replace("cores = 4", "cores = 5")
        .replace("cores = 1", "cores = 2");
    // They want CPUs that they do not get.
    let crowd = text
        .replace("cores = 4", "cores = 2")
        .replace("cores = 3", "cores = 1");
    // Who waits is no worse for it.
    let wanted = ("utilisation", "wanted");
    for (host, text, goes_first) in [
        ("many", &text, true),
        ("few", &few, true),
        ("enough", &enough, false),
        ("crowd", &crowd, true),
    ] {
        for mode in ["vm", "vcpu"] {
            for aware in ["0", "1"] {
                let set = [("mode", mode), ("parallel_aware", aware), wanted];
                let one = had(text, &set)["one.on_kind.big"];
                let good = if goes_first && aware == "1" {
                    one > 0.75
                } else {
                    one < 0.1
                };
                assert!(good, "{host}: {set:?}: {one}");
            }
        }
    }
}

/// D15 is for ranks alone: adaptive R goes by what a VM gains, and protects those that it puts behind.
#[test]
fn adaptive_r_goes_by_what_is_gained_where_parallelism_counts() {
    let text = one_fast(
        r#"
[run]
warmup = "6s"
measure = "4s"
[vm.many]
guest = "none"
vcpus = 4
tasks = ["gains"]
[vm.one]
guest = "none"
tasks = ["stalls"]
"#,
    );
    let set = |adaptive| {
        [
            ("parallel_aware", "1"),
            ("adaptive", adaptive),
            ("limit_percent", "5"),
        ]
    };
    let [fixed, adaptive] = ["0", "1"].map(|a| had(&text, &set(a))["many.on_kind.big"]);
    assert!(fixed < 0.01 && adaptive > 0.03, "{fixed} {adaptive}");
}

/// D6: of five vCPUs on a fast core the last in order has a tenth of it, half of an equal part; what it did not use
/// while it slept lapses, or is had when it is back: of what R leaves over, a round's length at most.
#[test]
fn fast_time_that_was_not_used_lapses_or_is_kept() {
    let most = |keep: &str| {
        let mut cast = Cast::default();
        for vcpu in 0..4 {
            cast.vcpu(0, vcpu, 0, &[Action::ComputeForever]);
        }
        let ns = 95 * MS;
        let back = Action::SleepUntil { at: 300 * MS };
        cast.vcpu(
            1,
            0,
            0,
            &[Action::Compute { ns }, back, Action::ComputeForever],
        );
        let set = [
            ("r", "50"),
            ("before_plan", "rank"),
            ("min_slot_us", "0"),
            ("keep_fast", keep),
        ];
        let mut m = machine(1, 4, &[4, 1], cast, &set);
        let mut most = [0, 0];
        for round in 1..30 {
            m.run_until(round * ROUND + 1).unwrap();
            let k = m.kernel();
            let peek = Peek(k.policy.instance().unwrap());
            let all = 1..peek.var("vcpus_used") as u32;
            let given: u64 = all.clone().map(|v| peek.vcpu(v, "fast")).sum();
            assert!(given <= ROUND + 20, "{keep}: {given} in round {round}");
            let naps = all.filter(|v| peek.vcpu(*v, "slot") == 2);
            for v in naps {
                most = [
                    most[0].max(peek.vcpu(v, "fast")),
                    most[1].max(peek.vcpu(v, "left")),
                ];
            }
        }
        most
    };
    let part = ROUND / 10;
    assert_eq!(most("0"), [part, 0]);
    let [fast, left] = most("1");
    assert!(
        fast > 2 * part && (1..=ROUND).contains(&left),
        "{fast} {left}"
    );
}
