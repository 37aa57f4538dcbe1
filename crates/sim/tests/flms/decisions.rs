// SPDX-License-Identifier: GPL-2.0-only
//! The decisions where the paper is silent, each as the switch it is: what is published, and what the other reading
//! does. (Balancing: `balance.rs`; where woken vCPUs go: `wake.rs`.)
use crate::support::{Cast, Peek};
use crate::world::*;
use berth_scenario::model::Class;
use berth_sim::Simulation;
use berth_sim::machine::Shape;
use berth_sim::workload::api::{Action, Role};

/// One vCPU that computes for each of these VMs, started at once.
fn hogs(classes: &[Class]) -> (Cast, Vec<berth_sim::scx::identity::VmSpec>) {
    let mut cast = Cast::default();
    let mut vms = Vec::new();
    for (i, class) in classes.iter().enumerate() {
        cast.vcpu(i as u32, 0, 0, &BUSY);
        vms.push(vm(i as u32, *class, 100, 1));
    }
    (cast, vms)
}

/// D1: VMs that nobody gave a class compute, unless told otherwise; vhost threads serve I/O.
#[test]
fn who_has_no_class_computes_or_not() {
    let kinds = |params: &[(&str, &str)]| {
        let (mut cast, vms) = hogs(&[Class::None, Class::Batch]);
        cast.vcpu(1, 0, 0, &naps(MS, 9 * MS));
        cast.scripts[2].spec.role = Role::Vhost;
        let mut m = machine(Shape::flat(4), &vms, cast, params);
        m.run_until(20 * MS).unwrap();
        peek(&mut m, |p| {
            let all = 1..p.var("vcpus_used") as u32;
            let vhost = all.clone().find(|v| p.vcpu(*v, "role") == 2).unwrap();
            [index_of(p, 0), vhost].map(|v| p.vcpu(v, "kind"))
        })
    };
    const ANY: u64 = 0;
    assert_eq!(kinds(&[]), [CPU_KIND, IO_KIND]);
    assert_eq!(kinds(&[("unlabelled", "io")]), [IO_KIND, IO_KIND]);
    assert_eq!(kinds(&[("unlabelled", "unbound")]), [ANY, IO_KIND]);
    assert_eq!(kinds(&[("driver", "compute")]), [CPU_KIND, CPU_KIND]);
    assert_eq!(kinds(&[("driver", "unbound")]), [CPU_KIND, ANY]);
}

/// D2: the group for I/O grows along packages, or takes a part of each.
#[test]
fn the_io_group_is_a_prefix_or_spread() {
    let members = |order: &str, io: usize, compute: usize| {
        let mut classes = vec![Class::Latency; io];
        classes.extend(vec![Class::Batch; compute]);
        let (cast, vms) = hogs(&classes);
        let shape = Shape {
            nodes: 1,
            packages: 2,
            llcs: 1,
            cores: 2,
            threads: 2,
        };
        let mut m = machine(shape, &vms, cast, &[("sp_order", order)]);
        m.run_until(5 * MS).unwrap();
        peek(&mut m, |p| sp(p, 8))
    };
    // CPUs 0 and 1 are a core, 0 to 3 a package.
    assert_eq!(members("prefix", 4, 4), [0, 1, 2, 3]);
    assert_eq!(members("spread", 4, 4), [0, 2, 4, 6]);
    assert_eq!(members("spread", 2, 6), [0, 4]);
    assert_eq!(members("spread", 5, 3), [0, 1, 2, 4, 6]);
    assert_eq!(members("prefix", 5, 3), [0, 1, 2, 3, 4]);
}

/// D4: groups from the weights at once, or none before the first period is over.
#[test]
fn groups_start_from_weights_or_from_nothing() {
    let sizes = |start: &str| {
        let (cast, vms) = hogs(&[Class::Latency, Class::Batch, Class::Batch, Class::Latency]);
        let mut m = machine(Shape::flat(4), &vms, cast, &[("start", start)]);
        [5, 299, 301].map(|ms| {
            m.run_until(ms * MS).unwrap();
            peek(&mut m, |p| p.var("nr_short"))
        })
    };
    assert_eq!(sizes("weights"), [2, 2, 2]);
    assert_eq!(sizes("zero"), [0, 0, 2]);
}

/// D4b: run time of saturated groups says nothing of what they want; with the time that is waited sizes follow demand.
#[test]
fn demand_unlocks_saturated_groups() {
    let size = |sample: &str| {
        let mut cast = Cast::default();
        for i in 0..8 {
            cast.vcpu(0, i, 0, &BUSY);
            cast.vcpu(1, i, 0, &BUSY);
        }
        let vms = [vm(0, Class::Latency, 100, 8), vm(1, Class::Batch, 700, 8)];
        let mut m = machine(Shape::flat(8), &vms, cast, &[("sample", sample)]);
        m.run_until(8_000 * MS).unwrap();
        m.check().unwrap();
        peek(&mut m, |p| p.var("nr_short"))
    };
    assert_eq!(size("run"), 1);
    assert_eq!(size("demand"), 4);
}

/// An I/O vCPU that burns 10 credits at 0, 10, 20 ms and so on, on a CPU of its own.
fn lone_io(params: &[(&str, &str)]) -> Box<Simulation<Cast>> {
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 0, &BUSY);
    cast.vcpu(1, 0, 0, &naps(MS, 9 * MS));
    let vms = [vm(0, Class::Batch, 100, 1), vm(1, Class::Latency, 100, 1)];
    machine(Shape::flat(2), &vms, cast, params)
}

fn boost(m: &mut Simulation<Cast>) -> u64 {
    peek(m, |p| p.vcpu(index_of(p, 1), "io_boost"))
}

/// D7: which equations make IO_Boost.
#[test]
fn io_boost_has_four_modes() {
    const ONE: u64 = 1 << 32;
    let period = ONE / 10 + ONE / 20 + ONE / 30;
    let at = |mode: &str| {
        let mut m = lone_io(&[("io_boost_mode", mode)]);
        [25, 300].map(|ms| {
            m.run_until(ms * MS).unwrap();
            boost(&mut m)
        })
    };
    assert_eq!(at("paper"), [period, ONE / 300]);
    assert_eq!(at("eq7_only"), [0, ONE / 300]);
    assert_eq!(at("eq5_only"), [period, 10 * period]);
    assert_eq!(at("off"), [0, 0]);
}

/// D16: a VM of another class starts anew, with what equation 7 makes of its history; one that is labelled again as
/// what it was keeps its IO_Boost.
#[test]
fn another_class_starts_another_io_boost() {
    // Without equation 7, a new start is 0, and equation 5 adds up until then.
    let mut m = lone_io(&[("io_boost_mode", "eq5_only")]);
    m.run_until(295 * MS).unwrap();
    let before = boost(&mut m);
    let mut label = |at: u64, class: Option<u32>| {
        let vm = m.kernel().cgroups.of_vm(1);
        peek(&mut m, |p| {
            let map = p.0.map("berth_vms").unwrap();
            let key = (u64::from(vm) + 1).to_ne_bytes();
            let mut record = map.lookup(&key).unwrap();
            if let Some(class) = class {
                record[12..16].copy_from_slice(&class.to_ne_bytes());
            }
            map.update(&key, &record, 0).unwrap();
            p.set_var("berth_generation", p.var("berth_generation") + 1);
        });
        m.run_until(at).unwrap();
        boost(&mut m)
    };
    let again = label(315 * MS, None);
    assert!(0 < before && before < again, "{before}, then {again}");
    const BATCH: u32 = 2;
    assert_eq!(label(335 * MS, Some(BATCH)), 0);
}

/// D7: equation 7 at every partition, or only where the groups change; here they do once, at 600 ms.
#[test]
fn equation_7_comes_always_or_with_changes() {
    const ONE: u64 = 1 << 32;
    let at = |on: &str| {
        let mut cast = Cast::default();
        cast.vcpu(0, 0, 0, &BUSY);
        cast.vcpu(1, 0, 0, &naps(MS, 9 * MS));
        let vms = [vm(0, Class::Batch, 100, 1), vm(1, Class::Latency, 100, 1)];
        let mut m = machine(Shape::flat(4), &vms, cast, &[("eq7_on", on)]);
        let set = |m: &mut Simulation<Cast>, io: u64| {
            peek(m, |p| {
                p.set_var("estimated_io", io * 300 * MS);
                p.set_var("estimated_cpu", (4 - io) * 300 * MS);
            })
        };
        set(&mut m, 2);
        m.run_until(299 * MS).unwrap();
        let size = |m: &mut Simulation<Cast>| peek(m, |p| p.var("nr_short"));
        assert_eq!(size(&mut m), 2);
        set(&mut m, 2);
        m.run_until(300 * MS + MS / 2).unwrap();
        assert_eq!(size(&mut m), 2, "no change");
        let first = boost(&mut m);
        set(&mut m, 1);
        m.run_until(600 * MS + MS / 2).unwrap();
        assert_eq!(size(&mut m), 1, "a change");
        (first < ONE / 100, boost(&mut m) < ONE / 100)
    };
    assert_eq!(at("every"), (true, true));
    assert_eq!(at("change"), (false, true));
}

/// D10: who has to leave because the groups changed goes to the least busy CPU of its group, and counts there at once:
/// they do not all go to the same.
#[test]
fn a_change_of_groups_spreads_who_has_to_go() {
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 0, &naps(MS, 9 * MS));
    cast.vcpu(0, 1, 0, &naps(MS, 9 * MS));
    for i in 0..24 {
        cast.vcpu(1, i, 0, &BUSY);
    }
    let vms = [vm(0, Class::Latency, 100, 2), vm(1, Class::Batch, 1200, 24)];
    let mut m = machine(Shape::flat(8), &vms, cast, &[]);
    let homes = |m: &mut Simulation<Cast>| {
        peek(m, |p| {
            let mut count = [0u32; 8];
            for v in (1..27).filter(|v| p.vcpu(*v, "kind") == CPU_KIND) {
                count[p.vcpu(v, "cpu") as usize] += 1;
            }
            count
        })
    };
    m.run_until(299 * MS).unwrap();
    assert_eq!(peek(&mut m, |p| sp(p, 8)), [0]);
    // CPUs 1 to 3 become members of SP: their ten or so vCPUs have four CPUs to go to.
    peek(&mut m, |p| {
        p.set_var("estimated_io", 4 * 300 * MS);
        p.set_var("estimated_cpu", 4 * 300 * MS);
        // What they had to do so far does not tell CPUs 4 to 7 apart.
        for cpu in 4..8 {
            p.set("pcpus_by_cpu", cpu, "history_busy", 200 << LOAD_BITS);
        }
    });
    let before = homes(&mut m);
    m.run_until(300 * MS + 2 * MS).unwrap();
    let after = homes(&mut m);
    assert_eq!(after[..4], [0; 4], "{before:?} {after:?}");
    let came: Vec<u32> = (4..8).map(|c| after[c] - before[c]).collect();
    let all: u32 = came.iter().sum();
    assert!(all >= 8, "{before:?} {after:?}");
    // Equal loads counted as equal would send all to the first; counted as they come, nobody gets half.
    assert!(came.iter().all(|n| *n <= all / 2), "{before:?} {after:?}");
}

/// D10b: a size that changes for more than 0.75 CPUs only, and by one at a time.
#[test]
fn sizes_may_be_steadied() {
    // Size 3 before; estimates of I/O in 1/100 of 8 CPUs.
    let size = |hysteresis: &str, io: u64| {
        let (cast, vms) = hogs(&[Class::Latency, Class::Batch]);
        let mut m = machine(Shape::flat(8), &vms, cast, &[("hysteresis", hysteresis)]);
        m.run_until(299 * MS).unwrap();
        let steer = |m: &mut Simulation<Cast>, io: u64, size: Option<u64>| {
            peek(m, |p| {
                // What 7/8 remain of, after an eighth of what the two ran: 300 ms each.
                let all = 8_000_000 * MS;
                p.set_var("estimated_io", all / 800 * io);
                p.set_var("estimated_cpu", all - all / 800 * io);
                if let Some(size) = size {
                    p.set_var("nr_short", size);
                }
            })
        };
        steer(&mut m, io, Some(3));
        m.run_until(301 * MS).unwrap();
        peek(&mut m, |p| p.var("nr_short"))
    };
    for (io, plain, steady) in [
        (360, 4, 3),
        (374, 4, 3),
        (377, 4, 4),
        (600, 6, 4),
        (226, 2, 3),
        (223, 2, 2),
        (100, 1, 2),
    ] {
        assert_eq!((size("0", io), size("1", io)), (plain, steady), "{io} %");
    }
}

/// D11: who wakes in the group for I/O with a smaller IO_Boost waits for the slice's end, or preempts after the rate
/// limit.
#[test]
fn a_smaller_io_boost_may_preempt() {
    const STEP: u64 = MS / 20;
    let longest_wait = |key: &str| {
        let mut cast = Cast::default();
        cast.vcpu(0, 0, 0, &BUSY);
        cast.vcpu(1, 0, 0, &BUSY);
        cast.vcpu(2, 0, 0, &naps(MS / 10, 23 * MS));
        let vms = [
            vm(0, Class::Batch, 100, 1),
            vm(1, Class::Latency, 100, 1),
            vm(2, Class::Latency, 10, 1),
        ];
        // One CPU for I/O: the third's weight is small.
        let mut m = machine(Shape::flat(2), &vms, cast, &[("sp_preempt_key", key)]);
        let (mut since, mut longest, mut turns) = (None, 0, 0);
        for now in (5 * MS..400 * MS).step_by(STEP as usize) {
            m.run_until(now).unwrap();
            let queued = peek(&mut m, |p| {
                let (hog, light) = (index_of(p, 1), index_of(p, 2));
                // Both have credit; the hog is far behind in IO_Boost.
                for (v, boost) in [(hog, 1 << 20), (light, 10)] {
                    p.set("vcpus", v, "io_boost", boost);
                    p.set("vcpus", v, "pri", UNDER);
                    p.set("vcpus", v, "credit", 100);
                }
                // Counted among those that wait.
                p.vcpu(light, "flags") & 64 != 0
            });
            match (queued, since) {
                // Whoever was queued before that is there by another key until the first accounting.
                (true, None) if now > 50 * MS => since = Some(now),
                (false, Some(at)) => {
                    longest = longest.max(now - at);
                    turns += 1;
                    since = None;
                }
                _ => {}
            }
        }
        (longest, turns)
    };
    let ((waits, turns), (preempts, _)) = (longest_wait("0"), longest_wait("1"));
    assert!(turns > 5, "{turns}");
    assert!(preempts <= MS, "{preempts} ns: the rate limit is 1 ms");
    // Longer than the rate limit: only the end of a slice lets it in.
    assert!(waits > MS, "{waits} ns");
}

/// D12: a tick sends a running vCPU from a core where the other thread is busy, too, to an idle core of its group.
#[test]
fn ticks_move_running_vcpus_or_not() {
    let where_at = |moves: &str| {
        let (mut cast, vms) = hogs(&[Class::Batch, Class::Batch]);
        for (cpu, s) in cast.scripts.iter_mut().enumerate() {
            // Helper threads start where they are born; vCPUs would be placed.
            (s.on, s.spec.role) = (cpu as u32, Role::Emulator);
        }
        let shape = Shape {
            nodes: 1,
            packages: 1,
            llcs: 1,
            cores: 2,
            threads: 2,
        };
        let mut m = machine(shape, &vms, cast, &[("tick_moves", moves)]);
        let cores = |m: &mut Simulation<Cast>| {
            peek(m, |p| [0, 1].map(|v| p.vcpu(index_of(p, v), "cpu") / 2))
        };
        m.run_until(5 * MS).unwrap();
        assert_eq!(cores(&mut m), [0, 0]);
        m.run_until(300 * MS).unwrap();
        let mut at = cores(&mut m);
        at.sort_unstable();
        at
    };
    assert_eq!(where_at("1"), [0, 1]);
    assert_eq!(where_at("0"), [0, 0]);
}

/// Equation 8 and the moving average of D9, at every end of a T_busy: an eighth of what was burned in it, seven eighths
/// of what was there. A hog has 300 credits each time, nobody else any; at 150 ms it goes to sleep.
#[test]
fn loads_are_averages_of_busy_periods() {
    let mut cast = Cast::default();
    let day = [
        Action::Compute { ns: 150 * MS },
        Action::SleepUntil { at: 10_000 * MS },
    ];
    cast.vcpu(0, 0, 0, &day);
    let vms = [vm(0, Class::Batch, 100, 1)];
    let mut m = machine(Shape::flat(2), &vms, cast, &[]);
    let mut want = 0;
    for period in 1..=12u64 {
        m.run_until(period * 30 * MS + MS).unwrap();
        let burned = if period <= 5 { 300 } else { 0 };
        want = (7 * want + (burned << LOAD_BITS)) / 8;
        let loads = |p: &Peek| {
            let v = index_of(p, 0);
            let cpu = p.vcpu(v, "cpu") as u32;
            (
                p.get("pcpus_by_cpu", cpu, "history_busy"),
                p.vcpu(v, "load_avg"),
                p.get("pcpus_by_cpu", cpu ^ 1, "history_busy"),
            )
        };
        let (cpu, vcpu, other) = peek(&mut m, loads);
        // A credit or two more or less: the period begins when the policy does.
        let near = |x: u64| x.abs_diff(want) <= 2 << LOAD_BITS;
        assert!(near(cpu), "period {period}: CPU {cpu}, want {want}");
        assert!(near(vcpu), "period {period}: vCPU {vcpu}, want {want}");
        assert_eq!(other, 0);
    }
}
