// SPDX-License-Identifier: GPL-2.0-only
//! What the switches for D6, D7 and D15 say, with a fast core or two: fast time that is kept, who is new, the order
//! before the first plan, few threads before many.
use super::support::{Cast, Peek};
use super::switches::had;
use super::{MS, ROUND, machine};
use berth_sim::workload::api::Action;

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

/// D7: a VM that comes is ranked by the mean score, or before all, or behind all until it has been there for a window:
/// also one that comes at the end of a window, which is not its own. It is there with one VM that gains more than the
/// mean, and one that gains less.
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
    // Each of the four has a CPU for three quarters of its time, so its score is 1.6; in equal parts a quarter of the
    // time of all would be on the fast core. Of R % of that core each of five has a fifth.
    let (gain, phi) = (1.0 / (0.25 + 0.75 / 2.03) - 1.0, 0.25);
    let r = 1.0 - 0.05 * (1.0 + phi * gain) / (phi * gain);
    let due = r * 4.0 / 5.0 / 3.0;
    assert!(
        fixed < 0.01 && (adaptive / due - 1.0).abs() < 0.1,
        "{fixed}, {adaptive} of {due}"
    );
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
