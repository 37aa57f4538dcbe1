// SPDX-License-Identifier: GPL-2.0-only
//! `credit` against the specification of Xen's credit scheduler: the arithmetic of one accounting, through the real
//! object; the shares, latencies and bounds that follow from its rules; what sets the 3.4 rules apart.
use berth_policy::policy::Policy;
use berth_policy::presets;
use berth_scenario::{Input, read};
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy, run_one};
use berth_sim::scx::identity::VmSpec;
use berth_sim::workload::api::Action;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use support::{Cast, Peek};

mod support;

const MS: f64 = 1e6;
/// `VF_PARKED` of policies/include/berth/credit.bpf.h.
const PARKED: u64 = 1;
/// Credits of one pCPU in one period.
const PERIOD: i32 = 300;

fn credit() -> &'static Policy {
    static LOADED: OnceLock<Policy> = OnceLock::new();
    LOADED.get_or_init(|| support::policy("credit"))
}

fn preset(name: &str, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = more
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    presets::resolve(credit().presets(), Some(name), &own).unwrap()
}

/// A domain of a vector: Xen's weight of one vCPU (or of the domain under the 3.4 rules), vCPUs, cap in percent.
struct Domain(u32, u32, u32);

/// Shares per vCPU that one accounting gives to domains, all vCPUs active, listed in this order; and the cap's part.
fn shares(cpus: u32, rules: &str, domains: &[Domain], balance: i64) -> Vec<(u32, u32)> {
    let per_vcpu = rules == "xen-4.4";
    let vm = |(i, d): (usize, &Domain)| VmSpec {
        name: format!("d{i}"),
        group: i as u32,
        class: berth_scenario::model::Class::Batch,
        // The policy divides a VM's weight by its vCPUs; 256 of Xen's is 100 here.
        weight: d.0 * if per_vcpu { d.1 } else { 1 } * 100 / 256,
        cap_milli: (d.2 > 0).then_some(u64::from(d.2) * 10),
        vcpus: d.1,
    };
    let vms: Vec<VmSpec> = domains.iter().enumerate().map(vm).collect();
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(cpus)), &vms, Cast::default());
    let params = preset(rules, &[]);
    load_policy(&mut m, credit(), &params, &vms, &Options::default()).unwrap();
    m.start();
    m.run_until(1).unwrap();
    let k = m.kernel();
    let peek = Peek(k.policy.instance().unwrap());
    // The one activated last comes first.
    for (i, (d, vm)) in domains.iter().zip(&vms).enumerate().rev() {
        let slot = i as u32 + 1;
        let set = |field, value| peek.set("domains_by_vm", slot, field, value);
        set("weight", u64::from(vm.weight));
        set("vcpus", u64::from(vm.vcpus));
        set("cap_mcpu", vm.cap_milli.unwrap_or(0));
        set("active", u64::from(d.1));
        let list = peek.0.map("activated").unwrap();
        list.update(&[], &slot.to_ne_bytes(), 0).unwrap();
    }
    let members = |d: u32| {
        let first = 1 + domains[..d as usize].iter().map(|d| d.1).sum::<u32>();
        first..first + domains[d as usize].1
    };
    for d in 0..domains.len() as u32 {
        for v in members(d) {
            peek.set("vcpus", v, "pid", u64::from(1_000_000 + v));
            peek.set("vcpus", v, "slot", u64::from(d + 1));
            peek.set("vcpus", v, "active", 1);
        }
    }
    let used = 1 + domains.iter().map(|d| u64::from(d.1)).sum::<u64>();
    peek.set_var("vcpus_used", used);
    peek.set_var("balance", balance as u64);
    m.run_until(31_000_000).unwrap();
    let k = m.kernel();
    let peek = Peek(k.policy.instance().unwrap());
    let of = |d: u32| {
        let get = |field| peek.get("domains_by_vm", d + 1, field) as u32;
        for v in members(d) {
            // From 0 credits, so that all of it arrived.
            assert_eq!(peek.vcpu(v, "credit") as u32, get("share"), "vCPU {v}");
        }
        (get("share"), get("cap_share"))
    };
    (0..domains.len() as u32).map(of).collect()
}

/// Section 12 of the specification.
#[test]
fn arithmetic_of_one_accounting() {
    let only = |v: Vec<(u32, u32)>| v.into_iter().map(|s| s.0).collect::<Vec<_>>();
    for rules in ["xen-4.4", "xen-3.4"] {
        let two = [Domain(512, 1, 0), Domain(256, 1, 0)];
        assert_eq!(only(shares(1, rules, &two, 0)), [200, 100], "{rules}");
    }
    let four_one = || [Domain(256, 4, 0), Domain(256, 1, 0)];
    let one_four = || [Domain(256, 1, 0), Domain(256, 4, 0)];
    assert_eq!(only(shares(4, "xen-4.4", &four_one(), 0)), [240, 240]);
    assert_eq!(only(shares(4, "xen-3.4", &four_one(), 0)), [150, 300]);
    assert_eq!(only(shares(4, "xen-3.4", &one_four(), 0)), [300, 225]);
    let capped = [Domain(256, 2, 50), Domain(256, 2, 0)];
    assert_eq!(shares(2, "xen-4.4", &capped, 0), [(75, 75), (225, 0)]);
    let equal = [Domain(256, 1, 0), Domain(256, 1, 0)];
    assert_eq!(only(shares(1, "xen-4.4", &equal, -200)), [250, 250]);
}

fn run_with(
    time: &str,
    text: &str,
    seed: u64,
    params: &BTreeMap<String, String>,
) -> BTreeMap<String, f64> {
    let text = format!(
        "title = \"credit\"\n[run]\nwarmup = \"500ms\"\nmeasure = \"{time}\"\n[compare]\npolicies = \
         [\"credit\"]\n{text}"
    );
    let input = Input {
        name: "credit".into(),
        shown: "credit".into(),
        text,
        folder: None,
    };
    let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}\n{}", input.text));
    run_one(
        &scenario.scenario,
        "credit",
        credit(),
        params,
        seed,
        &Options::default(),
    )
    .unwrap_or_else(|e| panic!("{e}\n{}", input.text))
    .metrics
}

fn run(time: &str, text: &str) -> BTreeMap<String, f64> {
    run_with(time, text, 1, &BTreeMap::new())
}

fn vm(name: &str, vcpus: u32, weight: u32, task: &str) -> String {
    format!(
        "[vm.{name}]\nvcpus = {vcpus}\nweight = {weight}\nclass = \"batch\"\ntasks = [\"{task}\"]\n"
    )
}

const HOG: &str = "[task.hog]\nmodel = \"busy\"\n";

fn assert_near(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!(
        (got - want).abs() <= tolerance,
        "{what}: {got:.4}, expected {want:.4} within {tolerance:.4}"
    );
}

/// Invariant 1.
#[test]
fn weights_become_shares_of_one_cpu() {
    let two = format!(
        "[host]\ncores = 1\n{HOG}{}{}",
        vm("a", 1, 200, "hog"),
        vm("b", 1, 100, "hog")
    );
    let m = run("10s", &two);
    assert_near(m["a.cpu"], 2.0 / 3.0, 0.01, "512 of Xen");
    assert_near(m["b.cpu"], 1.0 / 3.0, 0.01, "256 of Xen");

    let mut three = format!("[host]\ncores = 1\n{HOG}");
    for name in ["a", "b", "c"] {
        three += &vm(name, 1, 100, "hog");
    }
    let m = run("10s", &three);
    for name in ["a", "b", "c"] {
        assert_near(m[&format!("{name}.cpu")], 1.0 / 3.0, 0.01, name);
    }
    // 30 ms a turn: 33.3 turns a second in all.
    assert_near(m["host.switches"], 33.3, 1.7, "turns a second");
    // Of 5 ms: 200, and shares are as they were.
    let m = run_with("10s", &three, 1, &preset("short-slices", &[]));
    for name in ["a", "b", "c"] {
        assert_near(m[&format!("{name}.cpu")], 1.0 / 3.0, 0.01, name);
    }
    assert_near(m["host.switches"], 200.0, 10.0, "short turns a second");
}

/// Invariant 2.
#[test]
fn caps_hold_though_the_cpu_is_free() {
    let capped = |vcpus, cap| {
        format!(
            "[host]\ncores = {vcpus}\n{HOG}{}cap = \"{cap} CPUs\"\n",
            vm("a", vcpus, 100, "hog")
        )
    };
    assert_near(run("20s", &capped(1, 0.4))["a.cpu"], 0.4, 0.01, "cap 40 %");
    assert_near(
        run("20s", &capped(2, 0.5))["a.cpu"],
        0.5,
        0.01,
        "cap 50 % of one, on two",
    );
}

/// Invariant 3.
#[test]
fn no_cpu_idles_beside_work() {
    let mut three = format!("[host]\ncores = 2\n{HOG}");
    for name in ["a", "b", "c"] {
        three += &vm(name, 1, 100, "hog");
    }
    let m = run("30s", &three);
    for name in ["a", "b", "c"] {
        assert_near(m[&format!("{name}.cpu")], 2.0 / 3.0, 0.0067, name);
    }
    let eight = format!(
        "[host]\ncores = 4\n{HOG}{}{}",
        vm("a", 4, 200, "hog"),
        vm("b", 4, 100, "hog")
    );
    let m = run("30s", &eight);
    assert_near(m["a.cpu"], 8.0 / 3.0, 0.0267, "512");
    assert_near(m["b.cpu"], 4.0 / 3.0, 0.0134, "256");
    assert_eq!(m["host.idle"], 0.0);
}

/// Invariant 4.
#[test]
fn who_sleeps_is_boosted_and_who_computes_waits() {
    let hogs = |n: u32| {
        (0..n)
            .map(|i| vm(&format!("h{i}"), 1, 100, "hog"))
            .collect::<String>()
    };
    let nap = "[task.nap]\nloop = [\"compute 300us\", \"sleep exp(10ms)\"]\n";
    let text = format!(
        "[host]\ncores = 1\n{HOG}{nap}{}{}",
        vm("nap", 1, 100, "nap"),
        hogs(3)
    );
    let m = run("10s", &text);
    assert_eq!(m["nap.wakeup.p50"], 0.0);
    assert!(
        m["nap.wakeup.p99"] <= 1.01 * MS,
        "{} ms",
        m["nap.wakeup.p99"] / MS
    );
    // The same with a thread that computes all the time: the vCPU never sleeps, is never boosted, and an event that
    // comes when it has just lost its CPU waits for the turns of the three others, 30 ms each: 90 ms if accounting
    // falls between two turns. Where it falls inside one, who runs then goes back to the end of those UNDER, before
    // whoever is OVER: waits of two and four turns alternate. The specification's private model had the first case
    // only.
    let text = format!(
        "[host]\ncores = 1\n{HOG}{}{}",
        vm("loop", 1, 100, "hog"),
        hogs(3)
    );
    let mut longest = Vec::new();
    for seed in 1..=6 {
        let m = run_with("10s", &text, seed, &BTreeMap::new());
        assert_near(m["loop.run_delay.mean"] / MS, 90.0, 1.0, "mean wait");
        longest.push((m["loop.run_delay.max"] / MS).round());
    }
    assert!(
        longest.iter().all(|ms| [90.0, 120.0].contains(ms)),
        "{longest:?}"
    );
    assert!(
        longest.contains(&90.0) && longest.contains(&120.0),
        "{longest:?}"
    );
}

/// Invariant 5: the tick of a single pCPU comes at multiples of 10 ms; the dodger sleeps across each.
#[test]
fn tick_dodging_pays_under_sampling_only() {
    let dodger = |rules: &str| {
        let mut cast = Cast::default();
        let work = [
            Action::Compute { ns: 9_000_000 },
            Action::SleepUntil { at: 1_000_000 },
        ];
        for (i, actions) in [&work[..], &[Action::ComputeForever]].iter().enumerate() {
            let start = if i == 0 { 500_000 } else { 0 };
            cast.vcpu(i as u32, 0, start, actions);
        }
        let vm = |i: u32| VmSpec {
            name: format!("v{i}"),
            group: i,
            class: berth_scenario::model::Class::Batch,
            weight: 100,
            cap_milli: None,
            vcpus: 1,
        };
        let vms = [vm(0), vm(1)];
        let mut m = Simulation::new(&MachineSpec::new(Shape::flat(1)), &vms, cast);
        load_policy(
            &mut m,
            credit(),
            &preset(rules, &[]),
            &vms,
            &Options::default(),
        )
        .unwrap();
        m.start();
        m.run_until(20_000_000_000).unwrap();
        m.check().unwrap();
        let k = m.kernel();
        k.tasks.hot[m.workload.ids[0] as usize].runtime as f64 / 20e9
    };
    assert_near(dodger("xen-3.4"), 0.9, 0.02, "sampled");
    assert_near(dodger("xen-4.4"), 0.5, 0.02, "exact");
}

/// Invariant 6, at every instant after an accounting and at every tick: credit of the active within one period, nobody
/// runs while parked, no BOOST survives a tick.
#[test]
fn credits_stay_in_bounds_and_the_parked_do_not_run() {
    let mut cast = Cast::default();
    let busy = [Action::ComputeForever];
    let nap = |work: u64, sleep: u64| {
        vec![
            Action::Compute { ns: work },
            Action::SleepUntil { at: sleep },
        ]
    };
    for i in 0..9u64 {
        let actions = match i % 3 {
            0 => busy.to_vec(),
            1 => nap(300_000 * (i + 1), 4_000_000),
            _ => nap(13_000_000, 2_000_000),
        };
        cast.vcpu(i as u32 % 3, i as u32 / 3, i * 77_000, &actions);
    }
    let vm = |i: u32| VmSpec {
        name: format!("v{i}"),
        group: i,
        class: berth_scenario::model::Class::Batch,
        weight: [100, 300, 50][i as usize],
        cap_milli: (i == 0).then_some(500),
        vcpus: 3,
    };
    let vms = [vm(0), vm(1), vm(2)];
    let mut m = Simulation::new(&MachineSpec::new(Shape::flat(2)), &vms, cast);
    load_policy(
        &mut m,
        credit(),
        &BTreeMap::new(),
        &vms,
        &Options::default(),
    )
    .unwrap();
    m.start();
    let mut parked = 0;
    for tick in 1..400u64 {
        // Ticks of CPU 0 are at multiples of 10 ms, of CPU 1 in the middle; accountings at every third of CPU 0.
        for cpu in 0..2u32 {
            let at = tick * 10_000_000 + u64::from(cpu) * 5_000_000;
            m.run_until(at - 1).unwrap();
            let k = m.kernel();
            let before = Peek(k.policy.instance().unwrap()).curr(cpu);
            m.run_until(at).unwrap();
            let k = m.kernel();
            let peek = Peek(k.policy.instance().unwrap());
            if before != 0 && peek.curr(cpu) == before {
                assert_ne!(peek.vcpu(before, "pri"), 0, "BOOST after a tick");
            }
            for index in (1..peek.var("vcpus_used") as u32).filter(|i| peek.vcpu(*i, "pid") != 0) {
                let credit = peek.vcpu(index, "credit") as i32;
                if peek.vcpu(index, "active") == 1 && cpu == 0 && tick % 3 == 0 {
                    // What the tick at the same instant has charged comes on top.
                    let bounds = -PERIOD - PERIOD / 3..=PERIOD;
                    assert!(bounds.contains(&credit), "vCPU {index}: {credit}");
                }
                if peek.vcpu(index, "flags") & PARKED != 0 {
                    parked += 1;
                    let runs = (0..2).any(|c| peek.curr(c) == index);
                    assert!(!runs, "vCPU {index} runs while parked");
                }
            }
        }
    }
    m.check().unwrap();
    assert!(parked > 50, "parked {parked} times");
}

/// Section 13: a VM of three vCPUs beside one of one, on one pCPU.
#[test]
fn weights_are_per_vcpu_since_4_1() {
    // Xen's 256 for each vCPU: 300 here for the VM of three.
    let text = |three: u32| {
        format!(
            "[host]\ncores = 1\n{HOG}{}{}",
            vm("one", 1, 100, "hog"),
            vm("three", 3, three, "hog")
        )
    };
    let old = run_with("10s", &text(100), 1, &preset("xen-3.4", &[]));
    assert_near(old["one.cpu"], 0.5, 0.01, "3.4");
    let new = run("10s", &text(300));
    assert_near(new["one.cpu"], 0.25, 0.01, "4.4");
    // The conversion: with the VM's weight left at 100, the VM counts.
    let converted = run("10s", &text(100));
    assert_near(converted["one.cpu"], 0.5, 0.01, "converted");
}

#[test]
fn unknown_presets_are_named() {
    let e = presets::resolve(credit().presets(), Some("xen-5"), &BTreeMap::new()).unwrap_err();
    assert!(e.to_string().contains("xen-4.4, xen-3.4"), "{e}");
}

/// The policy has been in charge for a while when the work begins: its timers have gone on, by its own clock.
#[test]
fn timers_run_before_the_work() {
    for (lead, before) in [(0, 0), (7, 0), (67, 2)] {
        let mut spec = MachineSpec::new(Shape::flat(1));
        spec.lead_ns = lead * 1_000_000;
        spec.uptime_ns = 10_000_000_000;
        let mut m = Simulation::new(&spec, &[], Cast::default());
        load_policy(&mut m, credit(), &BTreeMap::new(), &[], &Options::default()).unwrap();
        m.start();
        assert_eq!(m.kernel().timers.fired, before, "lead of {lead} ms");
        let first = (30 - lead % 30) * 1_000_000;
        m.run_until(first - 1).unwrap();
        assert_eq!(m.kernel().timers.fired, before, "lead of {lead} ms");
        m.run_until(first).unwrap();
        assert_eq!(m.kernel().timers.fired, before + 1, "lead of {lead} ms");
        assert_eq!(m.kernel().clock(first), 10_000_000_000 + first);
    }
}

/// Two hogs change places every 30 or every 60 ms, by where their slices lie between two accountings: no seed's start
/// is like another's.
#[test]
fn turns_depend_on_the_phase() {
    let two = format!(
        "[host]\ncores = 1\nhz = 250\n{HOG}{}{}",
        vm("a", 1, 100, "hog"),
        vm("b", 1, 100, "hog")
    );
    let waits: Vec<f64> = (1..=12)
        .map(|seed| run_with("2s", &two, seed, &BTreeMap::new())["a.run_delay.p50"] / MS)
        .collect();
    let near = |ms: f64| waits.iter().filter(|w| (*w - ms).abs() < 1.0).count();
    assert!(near(30.0) > 0 && near(60.0) > 0, "{waits:?}");
}

/// As in Xen before 4.7: who wakes marks whoever runs where it may run alone to move away, which that one may not, and
/// it is boosted by it again and again.
#[test]
fn hogs_bound_beside_a_sleeper_starve_as_in_xen() {
    let mut text = format!(
        "[host]\ncores = 2\n{HOG}[task.nap]\nloop = [\"compute 100us\", \"sleep 20ms\"]\n{}",
        vm("nap", 1, 100, "nap") + "affinity = \"0\"\n"
    );
    for name in ["a", "b", "c"] {
        text += &(vm(name, 1, 100, "hog") + "affinity = \"0\"\n");
    }
    let had = |boost: &str| {
        let set = BTreeMap::from([("boost_after_migration".to_string(), boost.to_string())]);
        let m = run_with("20s", &text, 1, &set);
        ["a.cpu", "b.cpu", "c.cpu"].map(|name| m[name])
    };
    assert_near(had("1")[0], 0.995, 0.002, "boosted");
    for part in had("0") {
        assert_near(part, 0.995 / 3.0, 0.002, "not boosted");
    }
}
