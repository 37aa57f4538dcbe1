// SPDX-License-Identifier: GPL-2.0-only
//! `credit2` against the specification of Xen's second credit scheduler: its invariants, and who it asks to give way.
use crate::support::Cast;
use crate::world::{
    BUSY, HOG, MS, assert_near, hogs, measured, napper, naps, on, peek, runtime, vm,
};
use berth_scenario::model::Class;
use berth_sim::Simulation;
use berth_sim::machine::Shape;
use berth_sim::workload::api::Action;

/// What a refill gives, the lowest credit, what may be carried over and what one is given for moving, ns.
const REFILL: i64 = 10_000_000;
const CARRIED: i64 = 500_000;
const MOVED: i64 = 50_000;
const RATE_LIMIT: u64 = 1_000_000;

fn machine(shape: Shape, vms: u32, weight: u32, cast: Cast) -> Box<Simulation<Cast>> {
    let vms: Vec<_> = (0..vms).map(|i| vm(i, Class::Batch, weight, 1)).collect();
    on("credit2", shape, &vms, cast, &[])
}

/// Invariant 1.
#[test]
fn weights_become_shares_of_one_cpu() {
    let m = measured("credit2", &[], "10s", &hogs("cores = 1", &[200, 100]));
    assert_near(m["v0.cpu"] / m["v1.cpu"], 2.0, 0.02, "512 : 256");
    let m = measured("credit2", &[], "10s", &hogs("cores = 1", &[100, 100, 100]));
    for name in ["v0.cpu", "v1.cpu", "v2.cpu"] {
        assert_near(m[name], 1.0 / 3.0, 0.005 / 3.0, name);
    }
}

/// Invariant 2: there is no boost; who slept has more credit left. Three hogs with equal credits have turns of the rate
/// limit, a millisecond; who wakes in the first 0.95 ms of one waits for its end: half a millisecond on average, one at
/// most. (The specification has 0.25 ms for the median, which its own rate limit does not allow.)
#[test]
fn who_sleeps_has_credit_and_preempts() {
    let text = format!(
        "{}{}",
        hogs("cores = 1", &[100, 100, 100]),
        napper("web", "latency", "20ms", "200us")
    );
    let m = measured("credit2", &[], "20s", &text);
    assert_near(m["web.wakeup.p50"] / 1e6, 0.5, 0.15, "median, ms");
    assert!(m["web.wakeup.p99"] <= 1.2e6, "{}", m["web.wakeup.p99"]);
    assert!(m["web.wakeup.max"] <= 10e6, "{}", m["web.wakeup.max"]);
}

/// Invariants 3 and 4: credits of those that run, and how long who would go on has its CPU at least.
#[test]
fn credits_stay_in_bounds_and_nobody_is_cut_short() {
    let mut cast = Cast::default();
    for i in 0..5 {
        cast.vcpu(i, 0, u64::from(i) * 77_000, &BUSY);
    }
    for i in 5..8 {
        cast.vcpu(i, 0, 0, &naps(200_000, 3 * MS + u64::from(i) * 170_000));
    }
    let mut m = machine(Shape::flat(2), 8, 100, cast);
    let mut last = [(0, 0); 2];
    let mut refills = 0;
    m.run_until(MS).unwrap();
    let of_hogs = m.workload.ids[..5].to_vec();
    let pids = &m.kernel().population.pids;
    let hogs = pids.iter().filter(|(_, task)| of_hogs.contains(task));
    let hogs: Vec<u64> = hogs.map(|(pid, _)| *pid as u64).collect();
    assert_eq!(hogs.len(), 5);
    for at in (1..20_000).map(|n| MS + n * 50_000) {
        m.run_until(at).unwrap();
        let (runs, base) = peek(&mut m, |p| {
            let of = |cpu| {
                let get = |field| p.get("pcpus_by_cpu", cpu, field);
                (get("busy") == 1).then(|| (get("pid") as u32 as u64, get("since"), get("mark")))
            };
            ([of(0), of(1)], p.get("queues_by_cpu", 0, "base"))
        });
        for (cpu, now) in runs.iter().enumerate() {
            let (pid, since) = last[cpu];
            let now = now.unwrap_or_default();
            if hogs.contains(&pid) && (now.0, now.1) != (pid, since) {
                assert!(
                    at - since >= RATE_LIMIT,
                    "CPU {cpu} was taken from {pid} after {} ns",
                    at - since
                );
            }
            last[cpu] = (now.0, now.1);
            if now.0 != 0 {
                let credit = base.wrapping_sub(now.2) as i64;
                // As of its last charge; a refill since has not been cut yet.
                assert!(
                    (-REFILL..=2 * REFILL + CARRIED + MOVED).contains(&credit),
                    "{credit}"
                );
            }
        }
        refills = base;
    }
    // Ten milliseconds for each of five hogs and three that use little, on two CPUs, in a second.
    let epochs = refills.wrapping_sub(1 << 40) as f64 / REFILL as f64;
    assert_near(epochs, 40.0, 4.0, "refills");
    m.check().unwrap();
}

/// How many run or wait in each of two queues.
fn in_queues(m: &mut Simulation<Cast>) -> [u64; 2] {
    peek(m, |p| [0, 1].map(|q| p.get("queues_by_cpu", q, "runnable")))
}

/// Invariant 5.
#[test]
fn loads_of_queues_are_made_alike_and_left_so() {
    let two = || Shape {
        llcs: 2,
        ..Shape::flat(8)
    };
    // Every other one goes to the second queue; four of six there end.
    let mut cast = Cast::default();
    for i in 0..12 {
        let ends = [Action::Compute { ns: 300 * MS }, Action::Exit];
        let stays = i % 2 == 0 || i < 4;
        cast.vcpu(
            i,
            0,
            u64::from(i) * 10_000,
            if stays { &BUSY } else { &ends },
        );
    }
    let mut m = machine(two(), 12, 100, cast);
    m.run_until(200 * MS).unwrap();
    assert_eq!(in_queues(&mut m), [6, 6]);
    m.run_until(900 * MS).unwrap();
    assert_eq!(in_queues(&mut m).iter().sum::<u64>(), 8);
    m.run_until(5_000 * MS).unwrap();
    assert_eq!(in_queues(&mut m), [4, 4]);
    // Five and four: another move would make it four and five.
    let mut cast = Cast::default();
    for i in 0..9 {
        cast.vcpu(i, 0, u64::from(i) * 10_000, &BUSY);
    }
    let mut m = machine(two(), 9, 100, cast);
    let mut seen = Vec::new();
    for second in 3..8 {
        m.run_until(second * 1_000 * MS).unwrap();
        seen.push(in_queues(&mut m));
    }
    assert!(
        seen.iter()
            .all(|s| *s == seen[0] && s.iter().sum::<u64>() == 9),
        "{seen:?}"
    );
    assert_eq!(seen[0].iter().max(), Some(&5), "{seen:?}");
}

/// Section 2: queues of at most sixteen CPUs, as alike as they can be, siblings together, however a host numbers them.
#[test]
fn a_cache_of_many_cpus_has_several_queues() {
    let of = |shape: Shape, set: &[(&str, &str)]| {
        let cpus = shape.packages * shape.cores * shape.threads;
        let mut m = on("credit2", shape, &[], Cast::default(), set);
        m.run_until(MS).unwrap();
        let queues = peek(&mut m, |p| {
            let all = 0..cpus;
            all.map(|cpu| p.get("pcpus_by_cpu", cpu, "queue") as usize)
                .collect::<Vec<_>>()
        });
        let topology = |cpu: u32| {
            let k = m.kernel();
            k.topo.siblings(cpu).iter().collect::<Vec<u32>>()
        };
        for cpu in 0..cpus {
            for sibling in topology(cpu) {
                assert!(
                    set.contains(&("scope", "cpu"))
                        || queues[cpu as usize] == queues[sibling as usize]
                );
            }
        }
        let mut sizes = vec![0; queues.iter().max().unwrap() + 1];
        queues.iter().for_each(|q| sizes[*q] += 1);
        sizes
    };
    let two = |cores, threads| Shape {
        llcs: 2,
        threads,
        ..Shape::flat(cores)
    };
    assert_eq!(of(two(48, 2), &[]), [16; 6]);
    assert_eq!(of(two(10, 1), &[("most_cpus", "2")]), [1; 10]);
    assert_eq!(of(two(64, 1), &[("scope", "cpu")]), [1; 64]);
    assert_eq!(of(two(16, 2), &[("scope", "all")]), [16, 16]);
}

/// Invariant 6.
#[test]
fn a_cap_holds_though_the_cpu_is_free() {
    for (vcpus, cap) in [(1, 0.5), (2, 0.4)] {
        let text = format!(
            "[host]\ncores = {vcpus}\nhz = \"exact\"\n{HOG}[vm.a]\nvcpus = {vcpus}\ncap = \"{cap} CPUs\"\n\
             class = \"batch\"\ntasks = [\"hog\"]\n"
        );
        let m = measured("credit2", &[], "10s", &text);
        assert_near(m["a.cpu"], cap, 0.01, "cap");
    }
}

/// Section 5: a wake-up in the first 0.95 ms of the only one that runs asks nobody, and waits for the end of its turn;
/// until 1 ms the rate limit lets it go on for the shortest turn; later it gives way at once. Of two CPUs the one is
/// asked whose vCPU has least credit.
#[test]
fn a_wake_up_asks_the_one_with_least_credit_once_it_has_run() {
    for (at, begins) in [
        (600_000, 10 * MS),
        (960_000, 1_460_000),
        (1_010_000, 1_010_000),
        (5 * MS, 5 * MS),
    ] {
        let mut cast = Cast::default();
        cast.vcpu(0, 0, 0, &BUSY);
        cast.vcpu(
            1,
            0,
            at,
            &[
                Action::Compute { ns: 100_000 },
                Action::SleepUntil { at: 1_000 * MS },
            ],
        );
        let mut m = machine(Shape::flat(1), 2, 100, cast);
        let done = |m: &Simulation<Cast>| runtime(m, 1);
        m.run_until(begins - 20_000).unwrap();
        assert_eq!(done(&m), 0, "woken at {at}");
        m.run_until(begins + 120_000).unwrap();
        assert_eq!(done(&m), 100_000, "woken at {at}");
    }
    let mut cast = Cast::default();
    cast.vcpu(0, 0, 0, &BUSY);
    cast.vcpu(1, 0, 2 * MS, &BUSY);
    cast.vcpu(2, 0, 5 * MS, &[Action::ComputeForever]);
    let mut m = machine(Shape::flat(2), 3, 100, cast);
    m.run_until(5 * MS + 100_000).unwrap();
    // The first had run five milliseconds, the second three.
    let ids = m.workload.ids.clone();
    let pids = m.kernel().population.pids.clone();
    let on = [0, 1].map(|cpu| peek(&mut m, |p| p.get("pcpus_by_cpu", cpu, "pid") as i32));
    assert_eq!(on.map(|pid| pids[&pid]), [ids[2], ids[1]]);
}
