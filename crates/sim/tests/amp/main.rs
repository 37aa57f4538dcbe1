// SPDX-License-Identifier: GPL-2.0-only
//! `amp` against its specification: slots to the microsecond, the closed forms of two VMs on two cores, fast cores that
//! are never idle while slow ones work, the filter, the shares of a round.
use berth_policy::policy::Policy;
use berth_scenario::model::{Class, CoreKind, Hz};
use berth_scenario::{Input, read};
use berth_sim::run::{Options, load_policy, run_one};
use berth_sim::scx::identity::VmSpec;
use berth_sim::trace::Kind;
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use support::{Cast, Peek, host_of, kind};

mod adapt;
mod brakes;
mod decisions;
mod filter;
mod hosts;
mod lasting;
#[allow(dead_code, reason = "other tests set variables")]
#[path = "../support/mod.rs"]
mod support;
mod switches;

const MS: u64 = 1_000_000;
const ROUND: u64 = 30 * MS;
/// Speed of a fast core, a slow one's being 1.
const FAST: u32 = 2_375_000;

fn amp() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| support::policy("amp"))
}

fn params(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = |(k, v): &(&str, &str)| (k.to_string(), v.to_string());
    list.iter().map(own).collect()
}

/// A host whose first cores are fast, with VMs of these numbers of vCPUs.
fn machine(
    fast: u32,
    slow: u32,
    vcpus: &[u32],
    cast: Cast,
    set: &[(&str, &str)],
) -> Simulation<Cast> {
    let kinds = vec![
        kind("fast", 0..fast, FAST),
        kind("slow", fast..fast + slow, 1_000_000),
    ];
    machine_of(kinds, vcpus, cast, set)
}

fn machine_of(
    kinds: Vec<CoreKind>,
    vcpus: &[u32],
    cast: Cast,
    set: &[(&str, &str)],
) -> Simulation<Cast> {
    let vms: Vec<VmSpec> = (0..).zip(vcpus).map(|(i, n)| vm(i, *n)).collect();
    machine_with(kinds, &vms, cast, set)
}

fn machine_with(
    kinds: Vec<CoreKind>,
    vms: &[VmSpec],
    cast: Cast,
    set: &[(&str, &str)],
) -> Simulation<Cast> {
    machine_at(Hz::Exact, 0, kinds, vms, cast, set)
}

/// A host with these ends of slices, whose counters are off by so many parts per million.
fn machine_at(
    hz: Hz,
    noise_ppm: u32,
    kinds: Vec<CoreKind>,
    vms: &[VmSpec],
    cast: Cast,
    set: &[(&str, &str)],
) -> Simulation<Cast> {
    let mut spec = host_of(kinds);
    spec.hz = hz;
    spec.cost.pmu_noise_ppm = Some(noise_ppm);
    by_policy(&spec, amp(), vms, cast, &params(set))
}

fn by_policy(
    spec: &MachineSpec,
    policy: &Policy,
    vms: &[VmSpec],
    cast: Cast,
    set: &BTreeMap<String, String>,
) -> Simulation<Cast> {
    let mut m = Simulation::new(spec, vms, cast);
    load_policy(&mut m, policy, set, vms, &Options::default()).unwrap();
    m.start();
    m
}

fn vm(i: u32, vcpus: u32) -> VmSpec {
    VmSpec {
        name: format!("v{i}"),
        group: i,
        class: Class::Batch,
        weight: 100,
        cap_milli: None,
        vcpus,
    }
}

/// Busy vCPUs, `each` in each VM.
fn busy(vms: u32, each: u32) -> (Vec<u32>, Cast) {
    let mut cast = Cast::default();
    for i in 0..vms * each {
        cast.vcpu(i / each, i % each, 0, &[Action::ComputeForever]);
    }
    (vec![each; vms as usize], cast)
}

/// A stay of a thread on a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stay {
    thread: usize,
    cpu: u32,
    from: u64,
    to: u64,
}

/// Runs from `from` to `to` and says who was where, in the order of the ends.
fn stays(m: &mut Simulation<Cast>, from: u64, to: u64) -> Vec<Stay> {
    m.run_until(from).unwrap();
    let curr =
        |m: &Simulation<Cast>| -> Vec<u32> { m.kernel().cpus.iter().map(|c| c.curr).collect() };
    let mut on: Vec<(u32, u64)> = curr(m).into_iter().map(|t| (t, from)).collect();
    let ids = m.workload.ids.clone();
    m.record();
    m.run_until(to).unwrap();
    m.check().unwrap();
    let mut all = Vec::new();
    let mut end = |cpu: u32, (task, since): (u32, u64), at: u64| {
        if let Some(thread) = ids.iter().position(|i| *i == task)
            && at > since
        {
            all.push(Stay {
                thread,
                cpu,
                from: since,
                to: at,
            });
        }
    };
    for e in m.trace() {
        if e.kind == Kind::Switch && e.at_ns > from {
            end(e.cpu, on[e.cpu as usize], e.at_ns);
            on[e.cpu as usize] = (e.task, e.at_ns);
        }
    }
    for (cpu, o) in (0..).zip(on) {
        end(cpu, o, to);
    }
    all
}

/// Fast time of each of so many busy vCPUs, in three VMs on four fast and eight slow cores under amp-fair, in each of
/// ten rounds.
fn fast_in_rounds(hz: Hz, vcpus: u32) -> Vec<u64> {
    let (each, cast) = busy(3, vcpus / 3);
    let kinds = vec![kind("fast", 0..4, FAST), kind("slow", 4..12, 1_000_000)];
    let vms: Vec<VmSpec> = (0..).zip(each).map(|(i, n)| vm(i, n)).collect();
    let mut m = machine_at(hz, 0, kinds, &vms, cast, &[("mode", "fair")]);
    let (from, rounds) = (20 * ROUND, 10);
    let mut all = stays(&mut m, from, from + rounds * ROUND);
    all.retain(|s| s.cpu < 4);
    assert_eq!(
        all.iter().map(|s| s.to - s.from).sum::<u64>(),
        4 * rounds * ROUND
    );
    let had = |thread: u32, round: u64| {
        let (begin, end) = (from + round * ROUND, from + (round + 1) * ROUND);
        let its = all.iter().filter(|s| s.thread == thread as usize);
        its.map(|s| s.to.min(end).saturating_sub(s.from.max(begin)))
            .sum()
    };
    (0..vcpus)
        .flat_map(|t| (0..rounds).map(move |r| (t, r)))
        .map(|(t, r)| had(t, r))
        .collect()
}

/// Section 5: f4/s8 under amp-fair. Twelve busy vCPUs have 10 ms of a fast core in each round, twenty-four have 5 ms;
/// also with ticks every 4 ms, for slots begin by timers, and whoever is in one goes before all others.
#[test]
fn slots_are_as_long_as_the_credit_for_them() {
    for hz in [Hz::Exact, Hz::Ticks(250)] {
        for (vcpus, slot) in [(12, 10), (24, 5)] {
            let had = fast_in_rounds(hz, vcpus);
            let off = had.iter().map(|ns| ns.abs_diff(slot * MS)).max().unwrap();
            println!("{hz:?}, {vcpus} vCPUs: {off} ns off at most");
            assert_eq!(off, 0, "{hz:?}, {vcpus} vCPUs: {had:?}");
        }
    }
}

/// Equation of section 5 with half of the time shared: R = 50 %, the rest to the first VM. Slots that go on at the next
/// CPU's beginning are served whole.
#[test]
fn slots_that_wrap_are_whole() {
    let (vcpus, cast) = busy(3, 4);
    let set = [
        ("r", "50"),
        ("interval_ms", "120"),
        ("window_ms", "90"),
        ("score_by", "utilisation"),
    ];
    let mut m = machine(4, 8, &vcpus, cast, &set);
    let (from, rounds) = (20 * ROUND, 10);
    let all = stays(&mut m, from, from + rounds * ROUND);
    let fast = |thread: usize| -> u64 {
        let stays = all.iter().filter(|s| s.thread == thread && s.cpu < 4);
        stays.map(|s| s.to - s.from).sum::<u64>() / rounds
    };
    let all: Vec<u64> = (0..12).map(|t| fast(t) / 1000).collect();
    let first: Vec<u64> = all.iter().copied().filter(|f| *f == 20_000).collect();
    assert_eq!(
        (first.len(), all.iter().filter(|f| **f == 5_000).count()),
        (4, 8),
        "{all:?}"
    );
}

/// EA3: VM 0 is the more efficient, R = 50 %: three quarters of each round are its, one of VM 1.
#[test]
fn two_vms_take_turns_exactly() {
    let (vcpus, mut cast) = busy(2, 1);
    cast.scripts[1].spec.phase.stalled = 843_000;
    let mut m = machine(1, 1, &vcpus, cast, &[("r", "50")]);
    // The plan of the first window is in force.
    let from = 90 * ROUND;
    let mut all = stays(&mut m, from, from + 4 * ROUND);
    all.retain(|s| s.cpu == 0);
    let expected: Vec<Stay> = (0..4)
        .flat_map(|round| {
            let begin = from + round * ROUND;
            let turn = begin + 22_500_000;
            [
                Stay {
                    thread: 0,
                    cpu: 0,
                    from: begin,
                    to: turn,
                },
                Stay {
                    thread: 1,
                    cpu: 0,
                    from: turn,
                    to: begin + ROUND,
                },
            ]
        })
        .collect();
    assert_eq!(all, expected);
}

/// Section 7: throughput and slowdown of two VMs on one fast and one slow core, within 0.5 %.
#[test]
fn throughput_and_slowdown_are_those_of_the_closed_forms() {
    let stall = |e: f64| (1.0 / e - 1.0 / 2.375) / (1.0 - 1.0 / 2.375);
    let run = |e: f64, r: u32| {
        let text = format!(
            "title = \"amp\"\n[run]\nwarmup = \"6s\"\nmeasure = \"6s\"\n[compare]\npolicies = [\"amp\"]\n\
             [host]\ncores = 2\nhz = \"exact\"\ncost = \"none\"\npmu = true\n\
             [host.kind.fast]\ncores = \"0\"\nspeed = \"237.5%\"\n[host.kind.slow]\ncores = \"1\"\n\
             [task.one]\nmodel = \"busy\"\nstall = \"{:.4}%\"\n[task.two]\nmodel = \"busy\"\nstall = \"{:.4}%\"\n\
             [vm.two]\nvcpus = 1\ntasks = [\"two\"]\nguest = \"none\"\n\
             [vm.one]\nvcpus = 1\ntasks = [\"one\"]\nguest = \"none\"\n",
            100.0 * stall(2.0),
            100.0 * stall(e)
        );
        let input = Input {
            name: "amp".into(),
            shown: "amp".into(),
            text,
            folder: None,
        };
        let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
        let (set, options) = (params(&[("r", &r.to_string())]), Options::default());
        let run = run_one(&scenario.scenario, "amp", amp(), &set, 1, &options).unwrap();
        assert!(run.metrics["policy.scores_pmu"] > 0.0);
        (run.metrics["one.work"] / 6e9, run.metrics["two.work"] / 6e9)
    };
    for e in [1.0, 1.25, 1.5, 1.75, 2.0] {
        let fair = run(e, 100);
        for r in [0, 50, 100] {
            let (one, two) = run(e, r);
            let part = f64::from(r) / 100.0;
            let throughput = 1.5 - part * (2.0 - e) / 4.0;
            let got = (one + two) / 2.0;
            assert!(
                (got / throughput - 1.0).abs() < 0.005,
                "T({e}), r {part}: {got} {throughput}"
            );
            if e == 2.0 {
                // Either may win.
                continue;
            }
            let slowdown = (1.0 - part) * (e - 1.0) / (e + 1.0);
            let got = 1.0 - two / fair.1;
            assert!(
                (got - slowdown).abs() < 0.005,
                "S({e}), r {part}: {got} {slowdown}"
            );
        }
    }
}

/// However many vCPUs there are for how many cores, Credit says how long they run.
#[test]
fn run_time_is_shared_as_credit_shares_it() {
    for (mode, each) in [("fair", 8), ("vm", 8), ("vcpu", 7), ("vm", 5)] {
        let (vcpus, cast) = busy(3, each);
        let mut m = machine(4, 8, &vcpus, cast, &[("mode", mode)]);
        m.run_until(30_000 * MS).unwrap();
        m.check().unwrap();
        let k = m.kernel();
        let ran = |t: &u32| {
            let (hot, c) = (
                &k.tasks.hot[*t as usize],
                &k.cpus[k.tasks.hot[*t as usize].cpu as usize],
            );
            hot.runtime + if c.curr == *t { k.now - c.since } else { 0 }
        };
        let of_vm = |vm: usize| {
            m.workload.ids[vm * each as usize..][..each as usize]
                .iter()
                .map(ran)
                .sum::<u64>()
        };
        for vm in 0..3 {
            let part = of_vm(vm) as f64 / (12.0 * 30_000.0 * MS as f64);
            assert!(
                (part * 3.0 - 1.0).abs() < 0.01,
                "{mode}, {each}: VM {vm} has {part}"
            );
        }
    }
}

/// A small generator of numbers (SplitMix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// vCPUs that wake at one CPU at the same instant: whoever does not run there runs elsewhere at once, also on a host
/// whose cores are all alike.
#[test]
fn who_wakes_at_one_cpu_with_others_does_not_wait_while_another_is_idle() {
    for (fast, slow) in [(0, 4), (1, 3), (4, 8)] {
        let cores = fast + slow;
        let mut kinds = vec![kind("slow", fast..cores, 1_000_000)];
        kinds.extend((fast > 0).then(|| kind("fast", 0..fast, FAST)));
        let (vcpus, cast) = busy(1, cores);
        let mut m = machine_of(kinds, &vcpus, cast, &[]);
        m.run_until(2 * MS).unwrap();
        let idle = (0..cores as usize).filter(|c| m.kernel().cpus[*c].is_idle());
        assert_eq!(idle.count(), 0, "{fast} fast, {slow} slow");
    }
}

/// Two vCPUs wake at one CPU at the same instant, and that is told of the first: when it has decided, it asks an idle
/// one for the second.
#[test]
fn of_two_that_wake_at_one_cpu_the_second_is_asked_for_when_the_first_runs() {
    let (vcpus, cast) = busy(1, 2);
    let mut m = machine_of(vec![kind("slow", 0..4, 1_000_000)], &vcpus, cast, &[]);
    m.run_until(2 * MS).unwrap();
    let idle = (0..4).filter(|c| m.kernel().cpus[*c].is_idle());
    assert_eq!(idle.count(), 2);
}

/// Threads of one VM that wake together, over and over, while cores are idle: none waits, although each wake-up asks an
/// idle CPU that may find work of its own meanwhile. On cores that are all alike none moves either: a CPU that looks
/// for work leaves those alone who wait at an idle one, which is about to run them.
#[test]
fn who_wakes_together_waits_for_nobody_while_cores_are_idle() {
    let run = |speed: &str, seed| {
        let text = format!(
            "title = \"amp\"\n[run]\nwarmup = \"100ms\"\nmeasure = \"2s\"\n[compare]\npolicies = [\"amp\"]\n\
             [host]\ncores = 12\nhz = \"exact\"\ncost = \"none\"\npmu = true\nspeed = {speed}\n\
             [vm.one]\nvcpus = 4\nguest = \"none\"\ntasks = [\"one\"]\n\
             [task.one]\nmodel = \"serial\"\nserial = \"20ms\"\ncompute = \"20ms\"\nrounds = 100000\n"
        );
        let input = Input {
            name: "amp".into(),
            shown: "amp".into(),
            text,
            folder: None,
        };
        let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
        let (set, options) = (BTreeMap::new(), Options::default());
        run_one(&scenario.scenario, "amp", amp(), &set, seed, &options)
            .unwrap()
            .metrics
    };
    let unequal = run("[\"1 x 237.5%\", \"11 x 100%\"]", 1);
    let waited = unequal["one.run_delay.max"];
    assert!(waited < MS as f64, "{waited} ns");
    let equal = run("\"100%\"", 1);
    assert_eq!(equal["one.run_delay.max"], 0.0);
    assert_eq!(equal["one.migrations"], 0.0);
}

/// The last fast core goes: all share the slow ones. It comes back, and has somebody again at once.
#[test]
fn the_last_fast_core_may_go_and_come_back() {
    let text = "title = \"amp\"\n[run]\nwarmup = \"500ms\"\nmeasure = \"1500ms\"\n[compare]\npolicies = [\"amp\"]\n\
                [host]\ncores = 3\nhz = \"exact\"\ncost = \"none\"\npmu = true\n\
                speed = [\"1 x 237.5%\", \"2 x 100%\"]\n\
                [[host.hotplug]]\nat = \"1s\"\ncpu = 0\nonline = false\n\
                [[host.hotplug]]\nat = \"1500ms\"\ncpu = 0\nonline = true\n\
                [vm.a]\ncount = 3\nguest = \"none\"\ntasks = [\"a\"]\n[task.a]\nmodel = \"busy\"\n";
    let input = Input {
        name: "amp".into(),
        shown: "amp".into(),
        text: text.into(),
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    for mode in ["fair", "vm", "vcpu"] {
        let set = params(&[("mode", mode), ("interval_ms", "120"), ("window_ms", "90")]);
        let run = run_one(
            &scenario.scenario,
            "amp",
            amp(),
            &set,
            1,
            &Options::default(),
        );
        let run = run.unwrap().metrics;
        // Three CPUs for a second, two for half of one.
        let used: f64 = run["a.cpu"] * 1.5;
        assert!((used - 4.0).abs() < 0.01, "{mode}: {used}");
        let fast = run["a.fast"] * 1.5;
        assert!((fast - 1.0).abs() < 0.01, "{mode}: {fast}");
    }
}

/// D14: R is the smallest at which, by the closed form, nobody loses more than the limit who loses anything. 4 fast and
/// 8 slow cores, twelve VMs of one vCPU: a third of the time is fast for all alike.
#[test]
fn adaptive_r_protects_those_who_lose_by_rank() {
    // How many gain 2.0; the others gain 1.35. And R: 1 - s (1 + (e - 1) / 3) / ((1 / 3 - q)(e - 1)).
    for (high, r) in [
        // All four of them have a fast core: it is for the others, 1 - 0.1 * 1.1167 / 0.1167.
        (4, 5),
        // Two of them have none: 1 - 0.1 * 1.3333 / 0.3333.
        (6, 60),
    ] {
        let (vcpus, mut cast) = busy(12, 1);
        for (i, script) in cast.scripts.iter_mut().enumerate() {
            script.spec.phase.stalled = if i < high { 136_364 } else { 552_190 };
        }
        let set = [
            ("adaptive", "1"),
            ("interval_ms", "120"),
            ("window_ms", "90"),
        ];
        let mut m = machine(4, 8, &vcpus, cast, &set);
        // The first plan, after five rounds, takes it at once: from 100 % it would be four steps down.
        m.run_until(20 * ROUND).unwrap();
        let got = fair_percent(&m);
        assert!(got.abs_diff(r) <= 1, "{high}: {got} %, not {r}");
    }
}

/// R of the last plan.
fn fair_percent(m: &Simulation<Cast>) -> u64 {
    Peek(m.kernel().policy.instance().unwrap()).var("fair_percent")
}

/// Who is ranked behind others has fast cores while they sleep: the limit is met by that. One fast and one slow core;
/// the first VM sleeps half of the time and gains most all the same, the second always runs and gains 1.35. By rank
/// alone the second has nothing, 1 - 0.1 * 1.175 / 0.175 = 33 %; it has the fast core for half of the time.
#[test]
fn adaptive_r_counts_what_is_had_while_others_sleep() {
    let mut cast = Cast::default();
    let half = [
        Action::Compute {
            ns: 10 * MS * u64::from(FAST) / 1_000_000,
        },
        Action::SleepUntil { at: 10 * MS },
    ];
    cast.vcpu(0, 0, 0, &half);
    cast.vcpu(1, 0, 0, &[Action::ComputeForever]);
    cast.scripts[1].spec.phase.stalled = 552_190;
    let set = [
        ("adaptive", "1"),
        ("interval_ms", "120"),
        ("window_ms", "90"),
    ];
    let mut m = machine(1, 1, &[1, 1], cast, &set);
    m.run_until(10 * ROUND).unwrap();
    let first = fair_percent(&m);
    m.run_until(100 * ROUND).unwrap();
    // The first one has not quite all of the fast core by rank.
    assert!((20..=33).contains(&first), "{first} %");
    assert_eq!(fair_percent(&m), 0);
}

/// Of six VMs that gain the same four have the fast cores in a plan, and counters that are off by 3 % say who: each has
/// two thirds of what the first have, and needs no protection, although R began with what two without any need.
#[test]
fn adaptive_r_does_not_protect_equals_who_change_places() {
    let (vcpus, mut cast) = busy(12, 1);
    for (i, script) in cast.scripts.iter_mut().enumerate() {
        script.spec.phase.stalled = if i < 6 { 136_364 } else { 843_000 };
    }
    let kinds = vec![kind("fast", 0..4, FAST), kind("slow", 4..12, 1_000_000)];
    let vms: Vec<VmSpec> = (0..).zip(vcpus).map(|(i, n)| vm(i, n)).collect();
    let set = [("adaptive", "1")];
    let mut m = machine_at(Hz::Exact, 30_000, kinds, &vms, cast, &set);
    let plans: Vec<u64> = (1..24)
        .map(|plan| {
            m.run_until((plan * 2_500 + 100) * MS).unwrap();
            fair_percent(&m)
        })
        .collect();
    println!("{plans:?}");
    let late = plans[12..].iter().sum::<u64>() / 11;
    assert!(plans[0] > 50 && late <= 10, "{plans:?}");
}

/// Water-filling: nobody has more than its grant, all of the fast time is given away if there is use for it, each has
/// its fair part.
#[test]
fn a_round_gives_away_what_there_is() {
    for seed in 0..20u64 {
        let mut state = 77 + seed;
        let mut below = |n: u64| random(&mut state) % n;
        let (fast, slow) = (1 + below(4) as u32, 1 + below(6) as u32);
        let vcpus: Vec<u32> = (0..1 + below(5)).map(|_| 1 + below(6) as u32).collect();
        let mut cast = Cast::default();
        for (vm, n) in (0..).zip(&vcpus) {
            for v in 0..*n {
                cast.vcpu(vm, v, 0, &[Action::ComputeForever]);
            }
        }
        let r = below(101);
        let mode = ["vm", "vcpu"][below(2) as usize];
        let set = [
            ("mode", mode),
            ("r", &r.to_string()),
            ("min_slot_us", "0"),
            ("interval_ms", "120"),
            ("window_ms", "90"),
            ("keep_fast", ["0", "1"][seed as usize % 2]),
        ];
        let mut m = machine(fast, slow, &vcpus, cast, &set);
        m.run_until(20 * ROUND + 1).unwrap();
        let k = m.kernel();
        let peek = Peek(k.policy.instance().unwrap());
        let round = peek.var("round_nr");
        let all: Vec<(u64, u64)> = (1..peek.var("vcpus_used") as u32)
            .filter(|v| peek.vcpu(*v, "active") == 1 && peek.vcpu(*v, "round") == round)
            .map(|v| (peek.vcpu(v, "fast"), peek.vcpu(v, "room")))
            .collect();
        let given: u64 = all.iter().map(|a| a.0).sum();
        // What is left of the grant is `room`.
        let granted: u64 = all.iter().map(|a| a.0 + a.1).sum();
        let there = u64::from(fast) * ROUND;
        let n = all.len() as u64;
        let what = format!("seed {seed}: {fast}+{slow}, {vcpus:?}, {mode}, {r} %: {all:?}");
        assert!(
            n > 0 && all.iter().all(|(f, room)| f + room <= ROUND),
            "{what}"
        );
        assert!(
            given <= there && given + 20 * n >= there.min(granted),
            "{what}"
        );
        let fair = there * r / 100 / n;
        assert!(
            all.iter().all(|(f, room)| f + 20 >= fair.min(f + room)),
            "{what}"
        );
    }
}

/// The page's table of decisions: each default is the policy's.
#[test]
fn decisions_are_parameters_with_the_defaults_given() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/amp.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| D"));
    let defaults = rows.filter_map(|row| row.split('|').nth(2));
    let mut seen = 0;
    for default in defaults.flat_map(|cell| cell.split('`')) {
        let Some((name, value)) = default.split_once('=') else {
            continue;
        };
        let param = amp().params().iter().find(|p| p.name == name);
        let param = param.unwrap_or_else(|| panic!("no parameter {name}"));
        let number = param.words.iter().position(|word| word == value);
        let number = number.map_or_else(|| value.parse().unwrap(), |word| word as i64);
        assert_eq!(param.default, number, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 22);
}

/// D12: a VM of weight 200 beside one of weight 100, two vCPUs each, on one fast core and two slow ones. Credit grants
/// 30 and 15 ms; in equal parts each vCPU has a quarter of the fast core, by weight 10 and 5 ms.
#[test]
fn fair_parts_are_equal_or_by_weight() {
    for (by, parts) in [("vcpu", [7_500, 7_500]), ("weight", [10_000, 5_000])] {
        let (vcpus, cast) = busy(2, 2);
        let kinds = vec![kind("fast", 0..1, FAST), kind("slow", 1..3, 1_000_000)];
        let set = [("mode", "fair"), ("fair_by", by), ("min_slot_us", "0")];
        let vms: Vec<VmSpec> = [200, 100]
            .into_iter()
            .zip(0..)
            .map(|(weight, i)| VmSpec {
                weight,
                ..vm(i, vcpus[i as usize])
            })
            .collect();
        let mut m = machine_with(kinds, &vms, cast, &set);
        m.run_until(20 * ROUND + 1).unwrap();
        let k = m.kernel();
        let peek = Peek(k.policy.instance().unwrap());
        let of = |slot: u64| {
            let mine = (1..peek.var("vcpus_used") as u32)
                .filter(|v| peek.vcpu(*v, "slot") == slot && peek.vcpu(*v, "active") == 1);
            mine.map(|v| peek.vcpu(v, "fast") / 1000)
                .collect::<Vec<_>>()
        };
        for (slot, part) in [(1, parts[0]), (2, parts[1])] {
            let had = of(slot);
            assert_eq!(had.len(), 2, "{by}: {had:?}");
            assert!(
                had.iter().all(|f| f.abs_diff(part) <= 1),
                "{by}: {slot}: {had:?}"
            );
        }
    }
}

/// How many kinds there are of cores of these speeds, percent, and of which each is.
fn kinds_of(speeds: [u32; 6]) -> (u64, Vec<u64>) {
    let kinds = (0..)
        .zip(speeds)
        .map(|(cpu, percent)| kind(&format!("{cpu}"), cpu..cpu + 1, percent * 10_000));
    let m = machine_of(kinds.collect(), &[1], Cast::default(), &[]);
    let k = m.kernel();
    let peek = Peek(k.policy.instance().unwrap());
    let of = (0..6).map(|cpu| peek.get("pcpus_by_cpu", cpu, "kind"));
    (peek.var("nr_kinds"), of.collect())
}

/// As `berth doctor` names them: GB10 has five capacities and two kinds, a Ryzen with a rank for each core one.
#[test]
fn favoured_cores_are_no_kind() {
    assert_eq!(
        kinds_of([154, 153, 150, 110, 108, 108]),
        (2, vec![0, 0, 0, 1, 1, 1])
    );
    assert_eq!(kinds_of([91, 100, 83, 76, 69, 63]), (1, vec![0; 6]));
}

/// Four kinds at most: the closest speeds are taken together, whatever the order in which they are met.
#[test]
fn of_more_than_four_speeds_the_closest_are_one_kind() {
    assert_eq!(
        kinds_of([200, 199, 120, 70, 60, 30]),
        (4, vec![0, 0, 1, 2, 2, 3])
    );
    assert_eq!(
        kinds_of([30, 60, 70, 120, 199, 200]),
        (4, vec![3, 2, 2, 1, 0, 0])
    );
}
