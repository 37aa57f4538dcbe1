// SPDX-License-Identifier: GPL-2.0-only
//! `iobound`, the reconstruction of I/O bounding: its invariants. Fast cores are the first ones.
use crate::support::Cast;
use crate::world::{
    BUSY, IO_KIND, MS, hogs, index_of, longest_gap, measured, napper, naps, on, peek, preset, vm,
};
use berth_scenario::model::Class;
use berth_sim::Simulation;
use berth_sim::machine::Shape;
use berth_sim::workload::api::Action;

/// VMs of one vCPU each, and what it does.
fn machine(cpus: u32, of: &[(Class, Vec<Action>)], set: &[(&str, &str)]) -> Box<Simulation<Cast>> {
    let mut cast = Cast::default();
    let mut vms = Vec::new();
    for (i, (class, actions)) in of.iter().enumerate() {
        cast.vcpu(i as u32, 0, 0, actions);
        vms.push(vm(i as u32, *class, 100, 1));
    }
    on("iobound", Shape::flat(cpus), &vms, cast, set)
}

fn fast(m: &mut Simulation<Cast>) -> u64 {
    peek(m, |p| p.var("nr_short"))
}

/// Invariant 1: no VM does I/O, or not enough events come.
#[test]
fn without_fast_cores_it_is_credit() {
    let text = |class: &str| {
        format!(
            "{}{}{}",
            hogs("cores = 2", &[200, 100, 100]),
            napper("a", class, "7ms", "1ms"),
            napper("b", class, "11ms", "3ms")
        )
    };
    for (set, class) in [(&[][..], "batch"), (&[("mode", "event")], "latency")] {
        let text = text(class);
        let ours = measured("iobound", set, "5s", &text);
        let credit = measured("credit", &[], "5s", &text);
        for key in [
            "v0.cpu",
            "v1.cpu",
            "a.cpu",
            "b.cpu",
            "a.wakeup.mean",
            "b.wakeup.max",
            "host.switches",
        ] {
            assert_eq!(ours[key], credit[key], "{key} {set:?}");
        }
    }
}

/// Invariant 2.
#[test]
fn vcpus_on_a_fast_core_take_turns_of_a_millisecond() {
    let io = || (Class::Latency, BUSY.to_vec());
    let mut of = vec![io(), io(), io()];
    of.extend((0..4).map(|_| (Class::Batch, BUSY.to_vec())));
    let mut m = machine(2, &of, &[("fast_cpus", "1")]);
    m.run_until(200 * MS).unwrap();
    let first = peek(&mut m, |p| index_of(p, 0));
    let longest = longest_gap(&mut m, 0, first, 200 * MS, 1_000 * MS, 20_000);
    assert!((1_960_000..=2_040_000).contains(&longest), "{longest} ns");
    m.check().unwrap();
}

/// Invariant 3, and how many there are: 1.5 CPUs of I/O fill two cores to less than 80 %; one core stays for others,
/// whatever I/O wants.
#[test]
fn as_many_fast_cores_as_io_needs() {
    let half = || (Class::Latency, naps(5 * MS, 5 * MS).to_vec());
    let hog = |class| (class, BUSY.to_vec());
    let mut m = machine(4, &[half(), half(), half(), hog(Class::Batch)], &[]);
    m.run_until(2_000 * MS).unwrap();
    assert_eq!(fast(&mut m), 2);
    for at in (1..5_000).map(|n| 2_000 * MS + n * 100_000) {
        m.run_until(at).unwrap();
        let kinds = peek(&mut m, |p| {
            [0, 1, 2, 3].map(|cpu| (p.curr(cpu), p.vcpu(p.curr(cpu), "kind") == IO_KIND))
        });
        for (cpu, (runs, io)) in kinds.into_iter().enumerate() {
            assert!(runs == 0 || io == (cpu < 2), "CPU {cpu} at {at}");
        }
    }
    m.check().unwrap();
    let mut of = vec![hog(Class::Batch)];
    of.extend((0..6).map(|_| hog(Class::Latency)));
    let mut m = machine(4, &of, &[]);
    m.run_until(2_000 * MS).unwrap();
    assert_eq!(fast(&mut m), 3);
}

/// Invariant 5: three vCPUs wake a thousand times a second each, for a second; 0.6 s later all cores are Credit's.
#[test]
fn fast_cores_come_and_go_with_events() {
    let mut wakes = Vec::new();
    for _ in 0..1_000 {
        wakes.extend(naps(100_000, 900_000));
    }
    wakes.push(Action::SleepUntil { at: 100_000 * MS });
    let of: Vec<_> = (0..3)
        .map(|_| (Class::Batch, wakes.clone()))
        .chain((0..4).map(|_| (Class::Batch, BUSY.to_vec())))
        .collect();
    let mut m = machine(3, &of, &[("mode", "event")]);
    m.run_until(150 * MS).unwrap();
    assert_eq!(fast(&mut m), 0, "one period");
    m.run_until(350 * MS).unwrap();
    assert_eq!(fast(&mut m), 1);
    let first = peek(&mut m, |p| index_of(p, 0));
    let mut seen = [0u32; 3];
    for at in (1..500).map(|n| 350 * MS + n * 1_010_000) {
        m.run_until(at).unwrap();
        for cpu in 0..3 {
            seen[cpu as usize] += u32::from(peek(&mut m, |p| p.curr(cpu)) == first);
        }
    }
    assert!(seen[0] > 10 && seen[1] + seen[2] == 0, "{seen:?}");
    m.run_until(1_800 * MS).unwrap();
    assert_eq!(fast(&mut m), 0);
    m.check().unwrap();
}

/// Of invariant 4 what can be seen by wake-ups: a burst that is longer than three turns of a fast core goes there when
/// it begins and leaves for a core of Credit's, two moves each. (An event for a vCPU that runs or waits is not seen.)
#[test]
fn a_long_burst_moves_twice() {
    let mut text = hogs("cores = 3", &[100, 100, 100, 100]);
    for name in ["a", "b", "c"] {
        text += &napper(name, "batch", "1ms", "100us");
    }
    text += &napper("long", "batch", "50ms", "5ms");
    let m = measured("iobound", &[("mode", "event")], "5s", &text);
    let (moves, bursts) = (m["long.migrations"], m["long.wakeup.count"] / 5.0);
    assert!(bursts > 10.0, "{bursts} bursts a second");
    assert!(
        (1.8..=2.2).contains(&(moves / bursts)),
        "{moves} moves, {bursts} bursts a second"
    );
}

fn flms_groups() -> Vec<(&'static str, &'static str)> {
    preset("iobound", "flms-groups")
}

/// The preset `flms-groups`: weights of 3 : 1 are three CPUs of four, though I/O uses next to nothing.
#[test]
fn groups_may_be_as_large_as_weights() {
    for (io, compute, size) in [(3, 1, 3), (1, 3, 1), (1, 1, 2)] {
        let idle = (0..io).map(|_| (Class::Latency, naps(MS / 10, 100 * MS).to_vec()));
        let busy = (0..compute).map(|_| (Class::Batch, BUSY.to_vec()));
        let of: Vec<_> = idle.chain(busy).collect();
        let mut m = machine(4, &of, &flms_groups());
        for at in 1..20 {
            m.run_until(at * 110 * MS).unwrap();
            assert_eq!(fast(&mut m), size, "{io} : {compute}");
        }
        m.check().unwrap();
    }
    // Who has ended has no part.
    let ends = vec![Action::Compute { ns: 200 * MS }, Action::Exit];
    let mut of = vec![(Class::Latency, ends); 2];
    of.extend(vec![
        (Class::Latency, BUSY.to_vec()),
        (Class::Batch, BUSY.to_vec()),
    ]);
    let mut m = machine(4, &of, &flms_groups());
    m.run_until(150 * MS).unwrap();
    assert_eq!(fast(&mut m), 3);
    m.run_until(800 * MS).unwrap();
    assert_eq!(fast(&mut m), 2);
}

/// On either side it is Credit: three hogs for I/O on a CPU take turns of 30 ms, and who wakes beside one waits for the
/// rate limit at most.
#[test]
fn groups_may_be_under_credit() {
    let io = || (Class::Latency, BUSY.to_vec());
    let mut of = vec![io(), io(), io()];
    of.extend((0..4).map(|_| (Class::Batch, BUSY.to_vec())));
    let mut m = machine(2, &of, &flms_groups());
    m.run_until(200 * MS).unwrap();
    assert_eq!(fast(&mut m), 1);
    let first = peek(&mut m, |p| index_of(p, 0));
    let longest = longest_gap(&mut m, 0, first, 200 * MS, 1_000 * MS, 20_000);
    // Two turns, or three where an accounting falls inside one (crates/sim/tests/credit.rs).
    assert!((59_900_000..=90_100_000).contains(&longest), "{longest} ns");
    m.check().unwrap();
    let text = format!(
        "{}[vm.io]\nclass = \"latency\"\ntasks = [\"hog\"]\n{}",
        hogs("cores = 2", &[100, 100]),
        napper("a", "latency", "17ms", "200us")
    );
    let longest = |set: &[(&str, &str)]| measured("iobound", set, "5s", &text)["a.wakeup.max"];
    let boosted = longest(&flms_groups());
    assert!(boosted <= 1_000_100.0, "{boosted} ns");
    let mut turns = flms_groups();
    turns.retain(|(key, _)| *key != "fast_order");
    assert!(
        longest(&turns) > 20e6,
        "without a boost: the rest of a slice"
    );
}

/// With VMs for I/O alone all CPUs are theirs, and it is Credit to the nanosecond.
#[test]
fn one_group_under_credit_is_credit() {
    let text = format!(
        "[host]\ncores = 2\nhz = \"exact\"\n[task.hog]\nmodel = \"busy\"\n[vm.hog]\nvcpus = 3\nclass = \"latency\"\n\
         tasks = [\"hog\"]\n{}{}",
        napper("a", "latency", "7ms", "1ms"),
        napper("b", "latency", "11ms", "3ms")
    );
    let ours = measured("iobound", &flms_groups(), "5s", &text);
    let credit = measured("credit", &[], "5s", &text);
    for key in [
        "hog.cpu",
        "a.cpu",
        "a.wakeup.mean",
        "b.wakeup.max",
        "host.switches",
    ] {
        assert_eq!(ours[key], credit[key], "{key}");
    }
}
