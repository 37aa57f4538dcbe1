// SPDX-License-Identifier: GPL-2.0-only
//! `flms` against its specification: sizes of the groups and their rounding, binding, slices, the order of an I/O
//! group's queue, and the properties the team derived from the published equations, the unwelcome ones included.
use crate::support::Cast;
use crate::world::*;
use berth_scenario::model::Class;
use berth_sim::Simulation;
use berth_sim::machine::Shape;
use berth_sim::workload::api::{Action, Role};

/// SPNum after a partition with estimates in this ratio.
fn short_cpus(cpus: u32, rounding: &str, kinds: (u64, u64), estimates: (u64, u64)) -> u64 {
    let mut m = machine(
        Shape::flat(cpus),
        &[],
        Cast::default(),
        &[("rounding", rounding)],
    );
    m.run_until(1).unwrap();
    peek(&mut m, |p| {
        p.set_var("nr_io", kinds.0);
        p.set_var("nr_cpu", kinds.1);
        p.set_var("estimated_io", estimates.0 * 8_000_000);
        p.set_var("estimated_cpu", estimates.1 * 8_000_000);
    });
    m.run_until(301 * MS).unwrap();
    peek(&mut m, |p| {
        let members = (0..cpus).filter(|c| p.get("pcpus_by_cpu", *c, "short_slices") == 1);
        let n = p.var("nr_short");
        if cpus > 1 {
            assert!(members.eq(0..n as u32), "SP is not the first {n} CPUs");
        }
        n
    })
}

/// Decision D3: nearest, down, up; at least one CPU for a kind that exists, none for one that does not.
#[test]
fn group_sizes_are_rounded_as_decided() {
    let vectors = [
        // estimates of I/O and compute, on 8 CPUs: nearest, down, up
        ((5, 7), [3, 3, 4]),  // 3.33
        ((3, 13), [2, 1, 2]), // 1.5, half up
        ((1, 15), [1, 1, 1]), // 0.5
        ((1, 63), [1, 1, 1]), // 0.125: at least one
        ((63, 1), [7, 7, 7]), // 7.875: at most all but one
        ((1, 1), [4, 4, 4]),
        ((0, 0), [1, 1, 1]), // nothing ran: as before, but at least one
    ];
    for (estimates, want) in vectors {
        for (rounding, want) in ["0", "1", "2"].iter().zip(want) {
            let got = short_cpus(8, rounding, (3, 5), estimates);
            assert_eq!(got, want, "{estimates:?}, rounding {rounding}");
        }
    }
    assert_eq!(short_cpus(8, "0", (0, 5), (5, 7)), 0, "no I/O vCPU");
    assert_eq!(short_cpus(8, "0", (3, 0), (5, 7)), 8, "no compute vCPU");
}

/// Equations 1 and 2: alpha is 1/8, on the new sample.
#[test]
fn estimates_are_averages_of_run_time() {
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 0, &BUSY);
    cast.vcpu(1, 0, 0, &BUSY);
    let vms = [vm(0, Class::Latency, 100, 1), vm(1, Class::Batch, 100, 1)];
    let mut m = machine(Shape::flat(2), &vms, cast, &[]);
    m.run_until(299 * MS).unwrap();
    // D4: from the weights, half of two CPUs each.
    let before = peek(&mut m, |p| (p.var("estimated_io"), p.var("estimated_cpu")));
    assert_eq!(before, (300 * MS, 300 * MS));
    peek(&mut m, |p| {
        p.set_var("estimated_io", 80 * MS);
        p.set_var("estimated_cpu", 0);
    });
    m.run_until(301 * MS).unwrap();
    peek(&mut m, |p| {
        assert_eq!(p.var("estimated_io"), 70 * MS + 300 * MS / 8);
        assert_eq!(p.var("estimated_cpu"), 300 * MS / 8);
    });
}

/// Property 4: samples are run time, so two saturated groups keep whatever sizes they started with.
#[test]
fn saturated_groups_lock_themselves() {
    for (weight, start) in [(700, 1), (100, 4)] {
        let mut cast = Cast::default();
        for i in 0..8 {
            cast.vcpu(0, i, 0, &BUSY);
            cast.vcpu(1, i, 0, &BUSY);
        }
        let vms = [
            vm(0, Class::Latency, 100, 8),
            vm(1, Class::Batch, weight, 8),
        ];
        let mut m = machine(Shape::flat(8), &vms, cast, &[]);
        for s in 1..=8 {
            m.run_until(s * 1000 * MS).unwrap();
            assert_eq!(peek(&mut m, |p| p.var("nr_short")), start, "after {s} s");
        }
        m.check().unwrap();
    }
}

/// Unsaturated, they converge to equal utilisation from any start: demands of 5 and 7 of 16 CPUs give 7.
#[test]
fn unsaturated_groups_converge() {
    for weights in [(1, 100), (100, 1), (100, 100)] {
        let mut cast = Cast::default();
        for i in 0..14u32 {
            let start = u64::from(i) * 700_000;
            if i < 10 {
                cast.vcpu(0, i, start, &naps(5 * MS, 5 * MS));
            }
            cast.vcpu(1, i, start, &naps(5 * MS, 5 * MS));
        }
        let vms = [
            vm(0, Class::Latency, weights.0, 10),
            vm(1, Class::Batch, weights.1, 14),
        ];
        let mut m = machine(Shape::flat(16), &vms, cast, &[]);
        m.run_until(15_000 * MS).unwrap();
        m.check().unwrap();
        assert_eq!(peek(&mut m, |p| p.var("nr_short")), 7, "from {weights:?}");
    }
}

/// Binding: I/O vCPUs (of a mixed VM the reserved ones) on SP only, the others on LP only; on SP nobody is boosted.
#[test]
fn vcpus_stay_in_their_groups() {
    let mut cast = Cast::default();
    for i in 0..4u32 {
        let start = u64::from(i) * 300_000;
        cast.vcpu(0, i, start, &naps(MS, 2 * MS));
        cast.vcpu(1, i, start, &BUSY);
        cast.vcpu(2, i, start, &naps(4 * MS, 3 * MS));
    }
    for s in &mut cast.scripts {
        s.spec.io = s.spec.vm == Some(2) && s.spec.role == Role::Vcpu(3);
    }
    let vms = [
        vm(0, Class::Latency, 100, 4),
        vm(1, Class::Batch, 100, 4),
        vm(2, Class::Mixed, 100, 4),
    ];
    let mut m = machine(Shape::flat(6), &vms, cast, &[]);
    let mut seen = [0u32; 3];
    // The groups are made 0.1 ms after the last VM's last vCPU has come.
    for step in 2..1500u64 {
        m.run_until(step * 1_300_000).unwrap();
        peek(&mut m, |p| {
            for cpu in 0..6 {
                let curr = p.curr(cpu);
                if curr == 0 {
                    continue;
                }
                let kind = p.vcpu(curr, "kind");
                let short = p.get("pcpus_by_cpu", cpu, "short_slices") == 1;
                assert_eq!(kind == IO_KIND, short, "CPU {cpu} at step {step}");
                assert!(!short || p.vcpu(curr, "pri") != BOOST);
                seen[kind as usize] += 1;
            }
            for index in 1..p.var("vcpus_used") as u32 {
                let mixed = p.vcpu(index, "slot") == 3;
                let io = p.vcpu(index, "kind") == IO_KIND;
                if mixed && io {
                    seen[0] += 1;
                }
            }
        });
    }
    m.check().unwrap();
    assert!(seen[1] > 1000 && seen[2] > 1000, "{seen:?}");
    assert_eq!(seen[0], 1498, "exactly one reserved vCPU");
}

/// Slices: 5 ms on SP, 30 ms on LP, and one CPU alone has the short one for I/O vCPUs (D3).
#[test]
fn slices_are_short_and_long() {
    let two = |class| {
        let mut cast = Cast::default();
        for i in 0..2 {
            cast.vcpu(0, i, 0, &BUSY);
        }
        let mut m = machine(Shape::flat(1), &[vm(0, class, 100, 2)], cast, &[]);
        m.run_until(MS).unwrap();
        peek(&mut m, |p| {
            p.get("pcpus_by_cpu", 0, "slice_end") - p.vcpu(p.curr(0), "switched_in")
        })
    };
    assert_eq!(two(Class::Latency), 5 * MS);
    assert_eq!(two(Class::Batch), 30 * MS);
}

/// D11 and equation 5: whoever is switched in on SP has the smallest IO_Boost of those that wait in its class.
#[test]
fn the_io_group_is_served_by_io_boost() {
    let mut cast = Cast::default();
    for i in 0..4 {
        cast.vcpu(0, i, 0, &BUSY);
    }
    cast.vcpu(1, 0, 0, &BUSY);
    let vms = [vm(0, Class::Latency, 100, 4), vm(1, Class::Batch, 100, 1)];
    let mut m = machine(Shape::flat(2), &vms, cast, &[]);
    m.run_until(5 * MS).unwrap();
    let (mut last, mut checked) = (0, 0);
    for step in 0..30_000u64 {
        m.run_until(5 * MS + step * 100_000).unwrap();
        let now = 5 * MS + step * 100_000;
        let curr = peek(&mut m, |p| p.curr(0));
        // After an accounting classes are new, and the queue is sorted at the next tick, up to 10 ms later.
        if curr == last || curr == 0 || now % (30 * MS) < 10 * MS + MS / 2 {
            last = curr;
            continue;
        }
        last = curr;
        peek(&mut m, |p| {
            for other in 1..p.var("vcpus_used") as u32 {
                if other == curr || p.vcpu(other, "kind") != IO_KIND {
                    continue;
                }
                let better = p.vcpu(other, "pri") < p.vcpu(curr, "pri");
                let same = p.vcpu(other, "pri") == p.vcpu(curr, "pri");
                let first = p.vcpu(other, "io_boost") < p.vcpu(curr, "io_boost");
                assert!(!(better || same && first), "vCPU {other} was before {curr}");
                checked += 1;
            }
        });
    }
    m.check().unwrap();
    assert!(checked > 150, "{checked}");
}

/// D10: who leaves its CPU because the groups changed has not been scheduled once. Were it, those few credits would
/// count as the least I/O of all, and it would wait for good in a group whose members all have credit left.
#[test]
fn a_change_of_groups_is_no_turn() {
    let mut cast = Cast::default();
    for i in 0..10 {
        cast.vcpu(0, i, 0, &BUSY);
    }
    for i in 0..14 {
        cast.vcpu(1, i, 0, &BUSY);
    }
    let vms = [
        vm(0, Class::Latency, 1000, 10),
        vm(1, Class::Batch, 1400, 14),
    ];
    let mut m = machine(Shape::flat(8), &vms, cast, &[]);
    let boosts = |m: &mut Simulation<Cast>| {
        peek(m, |p| {
            let io = (1..25).filter(|v| p.vcpu(*v, "kind") == IO_KIND);
            io.map(|v| (p.vcpu(v, "io_boost"), p.vcpu(v, "history_load")))
                .collect::<Vec<_>>()
        })
    };
    // The groups are made 0.1 ms after the VMs came.
    m.run_until(MS).unwrap();
    assert_eq!(peek(&mut m, |p| p.var("nr_short")), 3);
    assert_eq!(boosts(&mut m), [(0, 0); 10]);
    m.run_until(600 * MS).unwrap();
    let loads = boosts(&mut m);
    assert!(loads.iter().all(|l| l.1 > 50), "{loads:?}");
}

/// What follows from equations 5 and 7 in a group whose members all have credit left: a vCPU that has used next to
/// nothing has the largest IO_Boost of all, and waits for as long as they compute. A kernel ends the policy for it.
/// Three of eight CPUs are theirs, twelve vCPUs on each: an eleventh of a CPU for the others is less than the 0.096
/// CPUs they earn.
#[test]
fn who_used_least_can_starve() {
    let mut cast = Cast::default();
    for i in 0..35 {
        cast.vcpu(0, i, 0, &BUSY);
    }
    for i in 0..14 {
        cast.vcpu(1, i, 0, &BUSY);
    }
    let late = [
        Action::SleepUntil { at: 1000 * MS },
        Action::Compute { ns: 60_000 },
        Action::SleepUntil { at: 400 * MS },
        Action::ComputeForever,
    ];
    cast.vcpu(2, 0, 0, &late);
    let vms = [
        vm(0, Class::Latency, 3500, 35),
        vm(1, Class::Batch, 4700, 14),
        vm(2, Class::Latency, 100, 1),
    ];
    let mut m = machine(Shape::flat(8), &vms, cast, &[]);
    m.run_until(20_000 * MS).unwrap();
    let last = peek(&mut m, |p| {
        let io = (1..51).filter(|v| p.vcpu(*v, "kind") == IO_KIND);
        io.map(|v| p.vcpu(v, "history_load")).min()
    });
    assert!(last < Some(20), "{last:?} credits of 0.1 ms in 20 s");
}

/// Equations 5, 6 and 7 in numbers: a lone I/O vCPU that burns 10 credits a turn.
#[test]
fn io_boost_follows_its_equations() {
    let mut cast = Cast::default();
    // The first VM's vCPU is placed on CPU 1, which will be LP, the second one's on CPU 0: nobody has to move.
    cast.vcpu(0, 0, 0, &BUSY);
    cast.vcpu(1, 0, 0, &naps(MS, 9 * MS));
    let vms = [vm(0, Class::Batch, 100, 1), vm(1, Class::Latency, 100, 1)];
    let mut m = machine(Shape::flat(2), &vms, cast, &[]);
    let boost = |m: &mut Simulation<Cast>| {
        peek(m, |p| {
            let io = (1..3).find(|v| p.vcpu(*v, "kind") == IO_KIND).unwrap();
            (p.vcpu(io, "io_boost"), p.vcpu(io, "history_load"))
        })
    };
    const ONE: u64 = 1 << 32;
    // Turns at 0, 10 and 20 ms of the first period: 10, 20 and 30 credits used so far.
    m.run_until(5 * MS).unwrap();
    assert_eq!(boost(&mut m), (ONE / 10, 0));
    m.run_until(25 * MS).unwrap();
    assert_eq!(boost(&mut m), (ONE / 10 + ONE / 20 + ONE / 30, 0));
    m.run_until(29 * MS + MS / 2 + 40 * MS).unwrap();
    // Two periods are over; in the third one turn so far.
    let per_period = ONE / 10 + ONE / 20 + ONE / 30;
    assert_eq!(boost(&mut m), (2 * per_period + ONE / 10, 60));
    // Equation 7 at the first partition: ten periods of 30 credits.
    m.run_until(300 * MS).unwrap();
    assert_eq!(boost(&mut m), (ONE / 300, 300));
}

/// Property 7: the groups do not help each other: an idle SP leaves work waiting on LP until the next partition.
#[test]
fn groups_do_not_help_each_other() {
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 0, &naps(MS, 400 * MS));
    for i in 0..4 {
        cast.vcpu(1, i, 0, &BUSY);
    }
    let vms = [vm(0, Class::Latency, 400, 1), vm(1, Class::Batch, 400, 4)];
    let mut m = machine(Shape::flat(4), &vms, cast, &[]);
    m.run_until(250 * MS).unwrap();
    peek(&mut m, |p| {
        assert_eq!(p.var("nr_short"), 2);
        assert_eq!((p.curr(0), p.curr(1)), (0, 0), "SP is idle");
        for cpu in [2, 3] {
            assert_eq!(p.vcpu(p.curr(cpu), "kind"), CPU_KIND);
        }
    });
    // Their demand then takes all but the one CPU that an I/O vCPU is promised.
    m.run_until(6000 * MS).unwrap();
    assert_eq!(peek(&mut m, |p| p.var("nr_short")), 1);
    m.check().unwrap();
}
