// SPDX-License-Identifier: GPL-2.0-only
//! `zeng`, the reconstruction of Zeng et al.: its invariants, and that it is Credit with all of it off.
use crate::support::Cast;
use crate::world::{
    BOOST, BUSY, MS, assert_near, hogs, measured, napper, naps, on, peek, preset, runtime, vm,
};
use berth_scenario::model::Class;
use berth_sim::Simulation;
use berth_sim::machine::Shape;
use berth_sim::workload::api::{Action, Role};

const OFF: [(&str, &str); 4] = [
    ("boost_us", "0"),
    ("balance_boosts", "0"),
    ("protect", "0"),
    ("short_slices", "0"),
];

fn machine(cpus: u32, vcpus: &[u32], cast: Cast, set: &[(&str, &str)]) -> Box<Simulation<Cast>> {
    let vms = vcpus.iter().enumerate();
    let vms: Vec<_> = vms
        .map(|(i, n)| vm(i as u32, Class::Batch, 100, *n))
        .collect();
    on("zeng", Shape::flat(cpus), &vms, cast, set)
}

/// The longest time in one go that somebody ran boosted on the only CPU, us.
fn longest_boost(set: &[(&str, &str)]) -> u64 {
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 0, &BUSY);
    // A tick ends a boost, too: this one wakes at all distances from one.
    cast.vcpu(1, 0, 0, &naps(9 * MS, 23_700_000));
    let mut m = machine(1, &[1, 1], cast, set);
    let (mut now, mut longest) = (0, 0);
    for at in (5_000..100_000).map(|n| n * 20_000) {
        m.run_until(at).unwrap();
        let boosted = peek(&mut m, |p| {
            let runs = p.curr(0);
            runs != 0 && p.vcpu(runs, "pri") == BOOST
        });
        now = if boosted { now + 20 } else { 0 };
        longest = longest.max(now);
    }
    m.check().unwrap();
    longest
}

/// Invariant 1.
#[test]
fn a_boost_lasts_two_milliseconds() {
    let longest = longest_boost(&[]);
    assert!((1_900..=2_040).contains(&longest), "{longest} us");
    let longest = longest_boost(&[("boost_us", "500")]);
    assert!((480..=540).contains(&longest), "{longest} us");
    let only = longest_boost(&preset("zeng", "boost-only"));
    assert!((1_900..=2_040).contains(&only), "{only} us");
    let credit = longest_boost(&OFF);
    assert!(credit > 6_000, "until the next tick: {credit} us");
}

/// Invariant 2: two vCPUs that last ran on one CPU wake at once; the other CPUs run hogs, or are idle.
#[test]
fn who_wakes_beside_others_starts_at_once() {
    for (set, idle, together) in [
        (&[][..], false, true),
        (&[], true, true),
        (&OFF, false, false),
        (&preset("zeng", "boost-only"), false, false),
    ] {
        // The fifth vCPU comes to the CPU of the first; those between leave.
        let mut cast = Cast::default();
        let work = [
            Action::Compute { ns: MS / 2 },
            Action::SleepUntil { at: 40 * MS },
        ];
        let ends = [Action::Compute { ns: 1_000 }, Action::Exit];
        for vcpu in 0..5 {
            let stays = vcpu % 4 == 0;
            cast.vcpu(
                0,
                vcpu,
                u64::from(vcpu) * 600_000,
                if stays { &work } else { &ends },
            );
        }
        // Both sleep to the same instant from then on.
        cast.scripts[0].actions = vec![
            Action::Compute { ns: MS / 2 },
            Action::SleepUntil { at: 42_400_000 },
            Action::Compute { ns: MS / 2 },
            Action::SleepUntil { at: 1_000 * MS },
        ];
        cast.scripts[4].actions = vec![
            Action::Compute { ns: MS / 2 },
            Action::SleepUntil { at: 40 * MS },
            Action::Compute { ns: MS / 2 },
            Action::SleepUntil { at: 1_000 * MS },
        ];
        for hog in 0..if idle { 0 } else { 4 } {
            cast.vcpu(1 + hog, 0, 5 * MS + u64::from(hog) * 10_000, &BUSY);
        }
        let mut m = machine(4, &[5, 1, 1, 1, 1], cast, set);
        // 42.9 ms: the time at which both wake.
        m.run_until(42_850_000).unwrap();
        assert_eq!([0, 4].map(|i| runtime(&m, i)), [MS / 2; 2]);
        m.run_until(43_450_000).unwrap();
        let done = [0, 4].map(|i| runtime(&m, i));
        assert_eq!(done == [MS; 2], together, "{set:?} {idle}: {done:?}");
        m.check().unwrap();
    }
}

/// Invariant 3: the driver works from 20.1 to 35.1 ms, and a tick has ended its boost when somebody wakes.
#[test]
fn a_driver_at_work_is_preempted_by_no_wake_up() {
    let done = |set: &[(&str, &str)]| {
        let mut cast = Cast::default();
        cast.vcpu(0, 0, 0, &BUSY);
        cast.vcpu(0, 1, 20_100_000, &naps(15 * MS, 1_000 * MS));
        cast.scripts[1].spec.role = Role::Vhost;
        cast.vcpu(1, 0, 32 * MS, &naps(100_000, 1_000 * MS));
        let mut m = machine(1, &[1, 1], cast, set);
        m.run_until(35_150_000).unwrap();
        runtime(&m, 1)
    };
    let unlimited = ("boost_us", "0");
    assert_eq!(done(&[unlimited]), 15 * MS);
    assert!(done(&[unlimited, ("protect", "0")]) < 15 * MS);
    let mut only = preset("zeng", "boost-only");
    only.push(unlimited);
    assert!(done(&only) < 15 * MS);
}

/// Invariant 4.
#[test]
fn shares_are_those_of_credit() {
    let text = format!(
        "{}{}{}",
        hogs("cores = 1", &[200, 100, 100]),
        napper("a", "latency", "17ms", "1ms"),
        napper("b", "latency", "29ms", "5ms")
    );
    let ours = measured("zeng", &[], "20s", &text);
    let credit = measured("credit", &[], "20s", &text);
    for vm in ["v0", "v1", "v2", "a", "b"] {
        let key = format!("{vm}.cpu");
        assert_near(ours[&key], credit[&key], 0.02, vm);
    }
}

/// Invariant 5, and that nothing is left of it with all of it off.
#[test]
fn short_bursts_and_all_of_it_off_are_credit() {
    let text = |compute: &str| {
        format!(
            "{}{}{}",
            hogs("cores = 1", &[100, 100]),
            napper("a", "latency", "17ms", compute),
            napper("b", "latency", "29ms", compute)
        )
    };
    let same = |set: &[(&str, &str)], text: &str| {
        let (ours, credit) = (
            measured("zeng", set, "5s", text),
            measured("credit", &[], "5s", text),
        );
        let keys = [
            "v0.cpu",
            "v1.cpu",
            "a.cpu",
            "b.cpu",
            "a.wakeup.mean",
            "b.wakeup.max",
            "host.switches",
        ];
        keys.iter().all(|key| ours[*key] == credit[*key])
    };
    assert!(same(&OFF, &text("5ms")));
    assert!(!same(&OFF[1..], &text("5ms")));
    // What FLMS tells of it is the short boost.
    let mut only = preset("zeng", "boost-only");
    assert!(!same(&only, &text("5ms")));
    only.push(("boost_us", "0"));
    assert!(same(&only, &text("5ms")));
    // The hogs' first boosts are shorter, and all that comes has another phase.
    let text = text("1ms");
    let (ours, credit) = (
        measured("zeng", &OFF[1..], "20s", &text),
        measured("credit", &[], "20s", &text),
    );
    for key in ["a.wakeup.mean", "b.wakeup.mean"] {
        assert_near(ours[key] / credit[key], 1.0, 0.01, key);
    }
}
