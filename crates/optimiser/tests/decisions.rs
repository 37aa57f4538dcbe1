// SPDX-License-Identifier: GPL-2.0-only
//! Decisions for hosts on paper: the specification's example, steps, hotplug, and what holds for any load.
use berth_optimiser::reason::Bound;
use berth_optimiser::{
    Cpu, CpuSet, Decision, Error, Load, Means, Observation, Optimiser, Promise, Reason, Service,
    Setting, Settings, Spread, Trigger, VmSeen,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

/// A VM of one vCPU that wanted so many CPUs of the last second and had half of them.
fn vm(name: &str, wanted: f64, promise: Promise) -> VmSeen {
    let half = (wanted / 2.0 * SECOND as f64) as u64;
    VmSeen {
        name: name.into(),
        vcpus: 1,
        promise,
        pinned: None,
        load: Load {
            ran_ns: half,
            run_delay_ns: half,
        },
    }
}

fn target(guarantee: f64) -> Promise {
    Promise {
        service: Service::Target,
        guarantee,
        ..Promise::default()
    }
}

fn seen(second: u64, cpus: u32, vms: Vec<VmSeen>) -> Observation {
    Observation {
        at_ns: second * SECOND,
        span_ns: SECOND,
        cpus: Cpu::flat(cpus),
        vms,
        ..Observation::default()
    }
}

/// The example of the specification: a target and sixteen dummies that want half a CPU each.
fn example(second: u64, wanted: f64, guarantee: f64) -> Observation {
    let mut vms = vec![vm("target", wanted, target(guarantee))];
    vms.extend((0..16).map(|i| vm(&format!("dummy-{i:02}"), 0.5, Promise::default())));
    seen(second, 2, vms)
}

fn optimiser() -> Optimiser {
    Optimiser::new(Settings::default()).unwrap()
}

fn share(d: &Decision, vm: &str) -> f64 {
    d.allotments.iter().find(|a| a.vm == vm).unwrap().share
}

fn set<'a>(o: &'a Optimiser, vm: &str) -> &'a Setting {
    o.explain(vm).unwrap().0
}

fn cpus(o: &Optimiser, vm: &str) -> String {
    let cpus = &set(o, vm).cpus;
    cpus.as_ref().map_or("all".into(), CpuSet::to_string)
}

#[test]
fn worked_example() {
    let mut o = optimiser();
    let d = o.observe(&example(1, 1.0, 0.95)).unwrap().unwrap();
    assert_eq!((d.online, d.capacity, d.misfits.len()), (2, 1.9, 0));
    assert!((share(&d, "target") - 1.0).abs() < 1e-12);
    for i in 0..16 {
        let dummy = format!("dummy-{i:02}");
        assert!((share(&d, &dummy) - 0.05625).abs() < 1e-12);
        assert_eq!(cpus(&o, &dummy), "0");
    }
    assert_eq!(cpus(&o, "target"), "1");
    let change = d.changes.iter().find(|c| c.vm == "target").unwrap();
    let why = Reason::Dedicated {
        cpus: 1,
        demand: 1.0,
    };
    assert_eq!(change.reasons, [why, Reason::OwnWeight]);
    assert_eq!(d.allotments[16].bound, Bound::Demand);
    assert_eq!(d.allotments[0].bound, Bound::Weight);

    let d = optimiser().observe(&example(1, 1.0, 0.0)).unwrap().unwrap();
    assert!(
        d.allotments
            .iter()
            .all(|a| (a.share - 1.9 / 17.0).abs() < 1e-12)
    );
}

#[test]
fn what_idles_is_lent_and_comes_back_in_time() {
    let mut o = optimiser();
    let mut when = BTreeMap::new();
    for second in 1..=20 {
        let wanted = if (6..=12).contains(&second) {
            0.02
        } else {
            1.0
        };
        o.observe(&example(second, wanted, 0.95)).unwrap();
        let lent = set(&o, "dummy-00").cpus.is_none()
            || (0..16).any(|i| cpus(&o, &format!("dummy-{i:02}")) == "1");
        when.insert(second, (lent, cpus(&o, "target")));
    }
    assert_eq!(when[&5], (false, "1".into()));
    // It idles from second 6 on: lent within 5 s. It is back in second 13: its CPU is its own within 3 s.
    assert!((6..=11).any(|s| when[&s].0), "{when:?}");
    assert_eq!(when[&15].1, "1", "{when:?}");
    assert!(!when[&16].0, "{when:?}");
}

#[test]
fn steady_loads_change_nothing_after_the_start() {
    let mut o = optimiser();
    let mut changes = Vec::new();
    for second in 1..=60 {
        // Two hundredths up and down.
        let wobble = 0.02 * ((second % 3) as f64 - 1.0);
        let d = o.observe(&example(second, 0.97 + wobble, 0.95)).unwrap();
        changes.extend(
            d.into_iter()
                .flat_map(|d| d.changes)
                .map(|c| (second, c.vm)),
        );
    }
    assert_eq!(changes.len(), 17, "{changes:?}");
    assert!(changes.iter().all(|(second, _)| *second == 1));
}

#[test]
fn a_cpu_that_goes_is_left_and_one_that_comes_is_used() {
    let mut o = optimiser();
    let vms = || {
        let mut vms = vec![vm("target", 1.0, target(1.0))];
        vms.extend((0..6).map(|i| vm(&format!("dummy-{i}"), 0.9, Promise::default())));
        vms
    };
    o.observe(&seen(1, 4, vms())).unwrap();
    assert_eq!(cpus(&o, "target"), "3");
    let d = o.observe(&seen(4, 3, vms())).unwrap().unwrap();
    assert!(d.triggers.contains(&Trigger::Cpus));
    assert_eq!(cpus(&o, "target"), "2");
    let others = |o: &Optimiser| {
        (0..6)
            .map(|i| cpus(o, &format!("dummy-{i}")))
            .collect::<Vec<_>>()
    };
    assert!(
        others(&o).iter().all(|c| c == "0" || c == "1"),
        "{:?}",
        others(&o)
    );
    // It keeps its CPU; the others spread.
    o.observe(&seen(7, 4, vms())).unwrap();
    assert_eq!(cpus(&o, "target"), "2");
    assert_eq!(others(&o).iter().filter(|c| *c == "3").count(), 2);
    // With one CPU there is none to itself.
    let d = o.observe(&seen(10, 1, vms())).unwrap().unwrap();
    let change = d.changes.iter().find(|c| c.vm == "target").unwrap();
    assert_eq!(change.reasons[0], Reason::NoneToDedicate { cpus: 1 });
    assert_eq!(cpus(&o, "target"), "0");
}

#[test]
fn guarantees_above_the_machine_are_named_and_scaled() {
    let mut o = optimiser();
    let vms = vec![vm("b", 1.0, target(0.95)), vm("a", 1.0, target(1.0))];
    let d = o.observe(&seen(1, 2, vms.clone())).unwrap().unwrap();
    // The first to come has its guarantee.
    assert_eq!(d.misfits.len(), 1);
    assert_eq!(
        (d.misfits[0].vm.as_str(), d.misfits[0].guarantee),
        ("a", 1.0)
    );
    assert!((d.misfits[0].short_by - 0.05).abs() < 1e-9);
    let sum: f64 = d.allotments.iter().map(|a| a.share).sum();
    assert!((sum - 1.9).abs() < 1e-9 && d.allotments.iter().all(|a| a.bound == Bound::Guarantee));
}

#[test]
fn eight_vcpus_have_no_more_than_one() {
    let mut o = optimiser();
    let mut wide = vm("wide", 8.0, Promise::default());
    wide.vcpus = 8;
    let vms = vec![vm("narrow", 1.0, Promise::default()), wide];
    let d = o.observe(&seen(1, 2, vms)).unwrap().unwrap();
    assert!((share(&d, "wide") - 0.95).abs() < 1e-9 && (share(&d, "narrow") - 0.95).abs() < 1e-9);
    assert_ne!(cpus(&o, "wide"), cpus(&o, "narrow"));
    assert_eq!(set(&o, "wide").cpus.as_ref().unwrap().count(), 1);
}

#[test]
fn without_sets_caps_hold_shares_and_without_caps_freezing_does() {
    let means = Means {
        sets: false,
        ..Means::default()
    };
    let decide = |means| {
        let settings = Settings {
            means,
            ..Settings::default()
        };
        let mut o = Optimiser::new(settings).unwrap();
        // One goes short: frozen are others when that is seen a second time.
        for second in 1..=3 {
            let mut seen = example(second, 1.0, 0.95);
            seen.vms[16].load = Load {
                ran_ns: 0,
                run_delay_ns: SECOND / 2,
            };
            o.observe(&seen).unwrap();
            assert!(second == 3 || set(&o, "dummy-03").run_fraction.is_none());
        }
        assert_eq!(set(&o, "dummy-15").run_fraction, None);
        (set(&o, "target").clone(), set(&o, "dummy-03").clone())
    };
    let (target, dummy) = decide(means);
    // The reserve is not kept back: 2 CPUs for 1.9.
    assert!((dummy.cap.unwrap() - 0.05625 * 2.0 / 1.9).abs() < 1e-9);
    assert_eq!(
        (target.cap, dummy.cpus, dummy.run_fraction),
        (None, None, None)
    );
    let (target, dummy) = decide(Means {
        caps: false,
        freezing: true,
        ..means
    });
    // It had a quarter of a CPU.
    let fraction = dummy.run_fraction.unwrap();
    assert!((fraction - 0.05625 * 2.0 / 1.9 / 0.25).abs() < 1e-9);
    assert_eq!((target.run_fraction, dummy.cap), (None, None));
    // Weights hold up the guarantee.
    assert_eq!(dummy.weight, 100);
    assert!(target.weight > 1000);
}

/// What a VM of one vCPU shows that wants so much under its cap: what it is throttled by is no run delay.
fn throttled(o: &Optimiser, name: &str, wants: f64) -> VmSeen {
    let cap = o.explain(name).and_then(|(s, _)| s.cap).unwrap_or(0.5);
    let ran = (wants.min(cap) * SECOND as f64) as u64;
    // Without a cap it waits for the others.
    let capped = o.explain(name).is_some_and(|(s, _)| s.cap.is_some());
    let wait = ((wants - cap).max(0.0) * SECOND as f64) as u64;
    VmSeen {
        load: Load {
            ran_ns: ran,
            run_delay_ns: if capped { 1000 } else { wait },
        },
        ..vm(name, 0.0, Promise::default())
    }
}

#[test]
fn caps_stay_while_they_are_felt_and_go_when_there_is_enough() {
    let settings = Settings {
        means: Means {
            sets: false,
            ..Means::default()
        },
        ..Settings::default()
    };
    let mut o = Optimiser::new(settings).unwrap();
    let mut changes = Vec::new();
    for second in 1..=60 {
        // Four VMs on two CPUs, idle in the middle.
        let wants = if (20..40).contains(&second) { 0.1 } else { 1.0 };
        let vms = (0..4)
            .map(|i| throttled(&o, &format!("vm-{i}"), wants))
            .collect();
        let decision = o.observe(&seen(second, 2, vms)).unwrap();
        changes.extend(
            decision
                .into_iter()
                .flat_map(|d| d.changes)
                .map(|c| (second, c)),
        );
    }
    let seconds: Vec<u64> = changes
        .iter()
        .step_by(4)
        .map(|(second, _)| *second)
        .collect();
    assert_eq!(
        (changes.len(), seconds),
        (12, vec![1, 21, 40]),
        "{changes:?}"
    );
    for (second, change) in &changes {
        let cap = change.to.cap;
        assert_eq!(cap.is_some(), *second != 21);
        // A quarter of two CPUs each: the reserve is not kept back.
        assert!(cap.is_none_or(|cap| (cap - 0.5).abs() < 1e-9), "{cap:?}");
    }
}

#[test]
fn a_pool_is_held_up_by_weights_alone() {
    let settings = Settings {
        spread: Spread::Pool,
        ..Settings::default()
    };
    let mut o = Optimiser::new(settings).unwrap();
    let guaranteed = Promise {
        guarantee: 0.8,
        ..Promise::default()
    };
    let mut vms = vec![
        vm("target", 1.0, target(1.0)),
        vm("held-up", 1.0, guaranteed),
    ];
    vms.extend((0..5).map(|i| vm(&format!("dummy-{i}"), 1.0, Promise::default())));
    let d = o.observe(&seen(1, 3, vms)).unwrap().unwrap();
    assert_eq!(
        (cpus(&o, "target"), cpus(&o, "held-up")),
        ("2".into(), "0-1".into())
    );
    assert_eq!(cpus(&o, "dummy-0"), "0-1");
    // 1.85 CPUs are left: 0.8, and a sixth of 1.05 for each of the six.
    assert!(
        (share(&d, "held-up") - 0.975).abs() < 1e-9 && (share(&d, "dummy-0") - 0.175).abs() < 1e-9
    );
    let (setting, why) = o.explain("held-up").unwrap();
    assert_eq!(setting.weight, 557);
    assert!(why.iter().any(|r| matches!(r, Reason::Weighed { .. })));
    assert_eq!(set(&o, "dummy-3").weight, 100);
}

#[test]
fn a_limit_without_means_to_keep_it_is_told() {
    let limited = Promise {
        limit: Some(0.3),
        ..Promise::default()
    };
    let why = |means| {
        let settings = Settings {
            means,
            ..Settings::default()
        };
        let mut o = Optimiser::new(settings).unwrap();
        let d = o
            .observe(&seen(1, 2, vec![vm("limited", 1.0, limited)]))
            .unwrap()
            .unwrap();
        assert_eq!(
            (share(&d, "limited"), d.allotments[0].bound),
            (0.3, Bound::Limit)
        );
        let (setting, why) = o.explain("limited").unwrap();
        (setting.cap, setting.run_fraction, why.last().cloned())
    };
    let limit = 0.3;
    let all = Means::default();
    assert_eq!(why(all), (Some(0.3), None, Some(Reason::Limited { limit })));
    let none = Means { caps: false, ..all };
    assert_eq!(
        why(none),
        (None, None, Some(Reason::LimitNotKept { limit }))
    );
    let freezing = Means {
        freezing: true,
        ..none
    };
    assert_eq!(
        why(freezing),
        (None, Some(0.3), Some(Reason::Limited { limit }))
    );
}

#[test]
fn pinned_vms_are_left_alone() {
    let mut o = optimiser();
    let mut observation = example(1, 1.0, 0.95);
    observation.vms[3].pinned = CpuSet::of([1]);
    let name = observation.vms[3].name.clone();
    o.observe(&observation).unwrap();
    assert_eq!(set(&o, &name).cpus, CpuSet::of([1]));
    // The target goes around it.
    assert_eq!(cpus(&o, "target"), "0");
}

#[test]
fn somebody_pins_a_vm_and_lets_it_go() {
    let mut o = optimiser();
    o.observe(&example(1, 1.0, 0.95)).unwrap();
    let mut observation = example(4, 1.0, 0.95);
    let name = observation.vms[2].name.clone();
    observation.vms[2].pinned = CpuSet::of([1]);
    let d = o.observe(&observation).unwrap().unwrap();
    assert_eq!(d.triggers, [Trigger::Time, Trigger::Promise(name.clone())]);
    // It is where it was pinned, which is no change of ours; the target leaves it, and so do the others the target.
    assert_eq!(
        (cpus(&o, &name), cpus(&o, "target")),
        ("1".into(), "0".into())
    );
    assert!(d.changes.iter().all(|c| c.vm != name));
    // It runs everywhere until it has a place again.
    let d = o.observe(&example(7, 1.0, 0.95)).unwrap().unwrap();
    let change = d.changes.iter().find(|c| c.vm == name).unwrap();
    assert_eq!(
        (change.from.cpus.clone(), change.to.cpus.clone()),
        (None, CpuSet::of([1]))
    );
}

#[test]
fn a_pinned_vm_gets_no_more_than_its_cpus() {
    let mut wide = vm("wide", 5.0, Promise::default());
    wide.vcpus = 8;
    wide.pinned = CpuSet::of([1, 9]);
    let d = optimiser()
        .observe(&seen(1, 4, vec![wide]))
        .unwrap()
        .unwrap();
    assert_eq!(
        (share(&d, "wide"), d.allotments[0].bound),
        (1.0, Bound::Limit)
    );
}

/// Three VMs on one of two CPUs: what is free on the other one is not theirs. By hand: a third for each; with a
/// guarantee of 0.7 its VM has that and a third of the 0.3 that are left, so the weights are as 0.8 to 0.1.
#[test]
fn vms_that_are_pinned_together_divide_their_cpus() {
    let pinned = |name: &str, promise| {
        let mut vm = vm(name, 0.9, promise);
        vm.pinned = CpuSet::of([1]);
        vm
    };
    let three = |web| {
        let other = |name| pinned(name, Promise::default());
        let vms = vec![pinned("web", web), other("a"), other("b")];
        let mut o = optimiser();
        let d = o.observe(&seen(1, 2, vms)).unwrap().unwrap();
        let weights = ["web", "a", "b"].map(|vm| set(&o, vm).weight);
        (d, weights)
    };
    let (d, weights) = three(Promise::default());
    for vm in ["web", "a", "b"] {
        assert!((share(&d, vm) - 1.0 / 3.0).abs() < 1e-9, "{d:?}");
    }
    assert!(d.allotments.iter().all(|a| a.bound == Bound::Pin));
    assert_eq!(weights, [100; 3]);
    let (d, weights) = three(Promise {
        guarantee: 0.7,
        ..Promise::default()
    });
    for (vm, by_hand) in [("web", 0.8), ("a", 0.1), ("b", 0.1)] {
        assert!((share(&d, vm) - by_hand).abs() < 1e-9, "{d:?}");
    }
    assert_eq!(weights, [800, 100, 100]);
    // Both are guaranteed more than the CPU.
    let (d, _) = three(Promise {
        guarantee: 1.0,
        ..Promise::default()
    });
    assert!(d.allotments.iter().all(|a| a.share > 0.0), "{d:?}");
}

#[test]
fn a_vm_whose_cpus_all_go_runs_on_all_until_it_may_be_changed() {
    let mut o = optimiser();
    let vms = || {
        vec![
            vm("target", 1.0, target(1.0)),
            vm("other", 1.0, Promise::default()),
        ]
    };
    o.observe(&seen(1, 3, vms())).unwrap();
    assert_eq!(
        (cpus(&o, "target"), cpus(&o, "other")),
        ("2".into(), "0-1".into())
    );
    // One second after its change its CPU goes: no second change yet, and no empty set.
    let d = o.observe(&seen(2, 2, vms())).unwrap().unwrap();
    assert_eq!((d.changes.len(), cpus(&o, "target")), (0, "all".into()));
    assert_eq!(d.held, ["other", "target"]);
    let d = o.observe(&seen(3, 2, vms())).unwrap().unwrap();
    assert_eq!(d.triggers, [Trigger::Held]);
    assert_eq!(
        (cpus(&o, "target"), cpus(&o, "other")),
        ("1".into(), "0".into())
    );
}

#[test]
fn a_pin_to_cpus_that_are_offline_is_left_alone() {
    let mut o = optimiser();
    let mut observation = example(1, 1.0, 0.95);
    observation.vms[3].pinned = CpuSet::of([7, 8]);
    let name = observation.vms[3].name.clone();
    let d = o.observe(&observation).unwrap().unwrap();
    assert!(d.changes.iter().all(|c| c.vm != name));
    let why = Reason::PinnedOffline {
        cpus: CpuSet::of([7, 8]).unwrap(),
    };
    assert_eq!(o.explain(&name).unwrap().1[0], why);
    // The others are not in its way, nor it in theirs.
    assert_eq!(cpus(&o, "target"), "1");
}

/// Three guarantees of 0.6 fit into two CPUs, three whole VMs do not: they have both together, and where nobody divides
/// by weight it is said.
#[test]
fn guarantees_that_no_packing_holds_are_told() {
    let promise = |guarantee| Promise {
        guarantee,
        ..Promise::default()
    };
    let unweighted = || {
        let mut settings = Settings::default();
        settings.means.weights = false;
        Optimiser::new(settings).unwrap()
    };
    let mut vms: Vec<VmSeen> = (0..3)
        .map(|i| vm(&format!("vm-{i}"), 1.0, promise(0.6)))
        .collect();
    let mut o = optimiser();
    o.observe(&seen(1, 2, vms.clone())).unwrap();
    for vm in &vms {
        assert_eq!(cpus(&o, &vm.name), "0-1");
        let why = &o.explain(&vm.name).unwrap().1;
        assert!(why.contains(&Reason::Joined { cpus: 2 }), "{why:?}");
        let crowded = |r: &Reason| matches!(r, Reason::Crowded { .. });
        assert!(!why.iter().any(crowded), "{why:?}");
    }
    let mut o = unweighted();
    let d = o.observe(&seen(1, 2, vms.clone())).unwrap().unwrap();
    assert!(d.misfits.is_empty());
    let crowded = |o: &Optimiser, vm: &VmSeen| {
        o.explain(&vm.name)
            .unwrap()
            .1
            .iter()
            .any(|r| matches!(r, Reason::Crowded { .. }))
    };
    assert_eq!(vms.iter().filter(|vm| crowded(&o, vm)).count(), 2);
    // Who is guaranteed nothing is told nothing.
    let mut free = unweighted();
    let none: Vec<VmSeen> = (0..3)
        .map(|i| vm(&format!("vm-{i}"), 1.0, Promise::default()))
        .collect();
    free.observe(&seen(1, 2, none.clone())).unwrap();
    assert!(!none.iter().any(|vm| crowded(&free, vm)));
    // Two fit.
    vms.pop();
    vms.push(vm("small", 1.0, Promise::default()));
    let mut o = unweighted();
    vms[0].promise = promise(0.9);
    o.observe(&seen(1, 2, vms.clone())).unwrap();
    assert!(!vms.iter().any(|vm| crowded(&o, vm)), "{o:?}");
}

#[test]
fn what_starts_and_stops_is_decided_on_at_once() {
    let mut o = optimiser();
    o.observe(&example(1, 1.0, 0.95)).unwrap();
    let mut observation = example(2, 1.0, 0.95);
    observation.vms.push(vm("new", 0.5, Promise::default()));
    let d = o.observe(&observation).unwrap().unwrap();
    assert_eq!(d.triggers, [Trigger::Started("new".into())]);
    assert_eq!((d.changes.len(), cpus(&o, "new")), (1, "0".into()));
    observation.at_ns += SECOND / 2;
    observation.vms[5].promise.weight = 300;
    observation.vms.pop();
    let d = o.observe(&observation).unwrap().unwrap();
    let name = observation.vms[5].name.clone();
    assert_eq!(
        d.triggers,
        [
            Trigger::Stopped("new".into()),
            Trigger::Promise(name.clone())
        ]
    );
    assert_eq!((d.changes.len(), d.held), (0, vec![name]));
    assert!(o.explain("new").is_none());
}

#[test]
fn the_end_leaves_everything_as_it_was() {
    let mut o = optimiser();
    o.observe(&example(1, 1.0, 0.95)).unwrap();
    let changes = o.release();
    assert_eq!(changes.len(), 17);
    assert!(changes.iter().all(|c| c.to == Setting::untouched(100)));
}

#[test]
fn a_refused_observation_changes_nothing() {
    let mut o = optimiser();
    o.observe(&example(1, 1.0, 0.95)).unwrap();
    let before = format!("{o:?}");
    let mut bad = example(2, 0.0, 0.95);
    bad.vms[4].promise.weight = 0;
    assert!(matches!(
        o.observe(&bad),
        Err(Error::Weight { weight: 0, .. })
    ));
    let late = o.observe(&example(1, 1.0, 0.95));
    assert!(matches!(late, Err(Error::Order { .. })));
    assert_eq!(format!("{o:?}"), before);
}

/// One second of a random host: CPUs online, who runs, how much each wants and had.
#[derive(Clone, Debug)]
struct Step {
    cpus: Vec<u32>,
    vms: Vec<(bool, f64, f64)>,
    seconds: u64,
}

/// What each VM was promised, its vCPUs, and the CPU it is pinned to.
type Vms = Vec<(Promise, u32, Option<u32>)>;

fn steps() -> impl Strategy<Value = (Vms, Vec<Step>)> {
    let promise = (
        0..3usize,
        0.0..1.0f64,
        prop::option::of(0.01..2.0f64),
        1..=10_000u32,
        1..5u32,
    );
    let vm = (promise, prop::option::weighted(0.1, 0..3u32)).prop_map(
        |((service, guarantee, more, weight, vcpus), pin)| {
            let guarantee = if guarantee < 0.4 {
                0.0
            } else {
                guarantee * f64::from(vcpus)
            };
            let promise = Promise {
                service: Service::ALL[service],
                guarantee,
                limit: more.map(|m| guarantee + m),
                weight,
            };
            (promise, vcpus, pin)
        },
    );
    let step = |n: usize| {
        let vms = prop::collection::vec((prop::bool::weighted(0.9), 0.0..5.0f64, 0.0..1.0f64), n);
        let cpus = prop::sample::subsequence((3..12u32).collect::<Vec<_>>(), 0..=9);
        (cpus, vms, 1..3u64).prop_map(|(mut cpus, vms, seconds)| {
            // CPUs to which VMs are pinned stay.
            cpus.extend(0..3);
            Step { cpus, vms, seconds }
        })
    };
    prop::collection::vec(vm, 1..12).prop_flat_map(move |vms| {
        let n = vms.len();
        (Just(vms), prop::collection::vec(step(n), 1..25))
    })
}

fn observations(vms: &[(Promise, u32, Option<u32>)], steps: &[Step]) -> Vec<Observation> {
    let mut at_ns = 0;
    let mut out = Vec::new();
    for step in steps {
        at_ns += step.seconds * SECOND;
        let cpu = |cpu: &u32| Cpu {
            cpu: *cpu,
            core: cpu / 2,
            llc: cpu / 4,
            node: cpu / 8,
            capacity: if *cpu < 4 { 500 } else { 1024 },
        };
        let list = vms
            .iter()
            .zip(&step.vms)
            .enumerate()
            .filter(|(_, (_, (runs, ..)))| *runs);
        let vms = list.map(|(i, ((promise, vcpus, pin), (_, wanted, had)))| VmSeen {
            name: format!("vm-{i}"),
            vcpus: *vcpus,
            promise: *promise,
            pinned: pin.and_then(|cpu| CpuSet::of([cpu])),
            load: Load {
                ran_ns: (wanted * had * SECOND as f64) as u64,
                run_delay_ns: (wanted * (1.0 - had) * SECOND as f64) as u64,
            },
        });
        out.push(Observation {
            at_ns,
            span_ns: SECOND,
            cpus: step.cpus.iter().map(cpu).collect(),
            vms: vms.collect(),
            host: Load {
                ran_ns: SECOND / 10,
                run_delay_ns: 0,
            },
            pressure: Some(0.5),
        });
    }
    out
}

/// Once all changes are made: CPUs of its own are nobody else's, and everybody runs on CPUs that are there.
fn nobody_shares_what_is_anothers(o: &Optimiser, seen: &Observation) -> Result<(), TestCaseError> {
    let online = CpuSet::of(seen.cpus.iter().map(|c| c.cpu)).unwrap();
    let at = |vm: &VmSeen| set(o, &vm.name).cpus.clone().unwrap_or(online.clone());
    let owns = |vm: &&VmSeen| {
        let why = o.explain(&vm.name).unwrap().1;
        why.iter().any(|r| matches!(r, Reason::Dedicated { .. }))
    };
    for vm in &seen.vms {
        prop_assert!(at(vm).iter().all(|cpu| online.has(cpu)), "{vm:?}");
    }
    for owner in seen.vms.iter().filter(owns) {
        prop_assert_eq!(owner.promise.service, Service::Target);
        for other in seen.vms.iter().filter(|vm| vm.name != owner.name) {
            prop_assert!(!at(owner).meets(&at(other)), "{owner:?}\n{other:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the load: shares add up, guarantees hold, limits are kept, no VM is changed twice within 2 s, and
    /// nobody is sent to CPUs that are not there.
    #[test]
    fn what_always_holds((vms, steps) in steps()) {
        let mut o = optimiser();
        let mut changed: BTreeMap<String, u64> = BTreeMap::new();
        let mut decided = 0;
        for observation in observations(&vms, &steps) {
            let Some(d) = o.observe(&observation).unwrap() else {
                prop_assert!(observation.at_ns - decided < 2 * SECOND);
                continue;
            };
            decided = observation.at_ns;
            let online: Vec<u32> = observation.cpus.iter().map(|c| c.cpu).collect();
            let sum: f64 = d.allotments.iter().map(|a| a.share).sum::<f64>() + d.host;
            prop_assert!(sum <= d.capacity + 1e-9, "{sum} {}", d.capacity);
            let scaled = d.allotments.iter().any(|a| a.bound == Bound::Guarantee);
            for (a, vm) in d.allotments.iter().map(|a| (a, observation.vms.iter().find(|v| v.name == a.vm).unwrap())) {
                let floor = 0.01f64.min(d.capacity / 2.0 / d.allotments.len() as f64);
                let reach = vm.pinned.as_ref().map_or(1e9, |p| p.count() as f64);
                prop_assert!(a.share >= floor - 1e-9);
                prop_assert!(a.share <= a.demand.max(floor) + 1e-9);
                prop_assert!(a.share <= vm.promise.limit.unwrap_or(1e9) + 1e-9);
                prop_assert!(scaled || a.share >= a.demand.min(vm.promise.guarantee).min(reach) - 1e-9, "{a:?} {vm:?}");
            }
            let mut pinned: BTreeMap<&CpuSet, f64> = BTreeMap::new();
            for (a, vm) in d.allotments.iter().map(|a| (a, observation.vms.iter().find(|v| v.name == a.vm).unwrap())) {
                if let Some(pin) = vm.pinned.as_ref().filter(|p| p.iter().any(|cpu| online.contains(&cpu))) {
                    *pinned.entry(pin).or_default() += a.share;
                }
            }
            for (pin, sum) in pinned {
                let there_is = pin.iter().filter(|cpu| online.contains(cpu)).count() as f64;
                prop_assert!(sum <= there_is + 1e-9, "{pin}: {sum}");
            }
            let guaranteed: f64 = observation.vms.iter().map(|v| v.promise.guarantee).sum();
            prop_assert_eq!(d.misfits.is_empty(), guaranteed <= d.capacity + 1e-9);
            for c in &d.changes {
                let last = changed.insert(c.vm.clone(), d.at_ns);
                let started = d.triggers.contains(&Trigger::Started(c.vm.clone()));
                prop_assert!(started || last.is_none_or(|at| d.at_ns - at >= 2 * SECOND));
                prop_assert!(!c.reasons.is_empty() && c.from != c.to, "{c:?}");
                prop_assert_eq!(set(&o, &c.vm), &c.to);
                prop_assert!((1..=10_000).contains(&c.to.weight));
                prop_assert!(c.to.cap.is_none_or(|cap| cap >= 0.01));
                if let Some(set) = &c.to.cpus {
                    prop_assert!(set.count() > 0 && set.iter().all(|cpu| online.contains(&cpu)));
                }
            }
            if d.held.is_empty() {
                nobody_shares_what_is_anothers(&o, &observation)?;
            }
        }
    }

    /// Equal observations, equal decisions, also from a recording.
    #[test]
    fn a_recording_gives_the_same_decisions((vms, steps) in steps()) {
        let (mut live, mut replayed) = (optimiser(), optimiser());
        for observation in observations(&vms, &steps) {
            let text = serde_json::to_string(&observation).unwrap();
            let read: Observation = serde_json::from_str(&text).unwrap();
            let (a, b) = (live.observe(&observation).unwrap(), replayed.observe(&read).unwrap());
            let again: Option<Decision> = serde_json::from_str(&serde_json::to_string(&a).unwrap()).unwrap();
            prop_assert_eq!(&a, &b);
            prop_assert_eq!(a, again);
        }
    }
}
