// SPDX-License-Identifier: GPL-2.0-only
//! Balancing: the eight steps, the choice of a vCPU, and the decisions about both (D9, D12, D13, D13b, D15, D15b).
use crate::support::Cast;
use crate::world::*;
use berth_scenario::model::Class;
use berth_sim::machine::Shape;
use berth_sim::workload::api::{Action, Role};

/// Two packages of two cores of two threads. Busy vCPUs bound to CPUs 0, 1, 2 and 4; on some of them one more waits
/// that may also run on CPU 0. CPU 0's own one sleeps at 1 ms, before any tick, and CPU 0 looks for work.
struct Thief {
    /// CPUs on which somebody waits.
    waiters: Vec<u32>,
    /// Difference of historyBusy between the victims and CPU 0, in 1/256 credit.
    difference: Vec<(u32, i64)>,
    params: Vec<(&'static str, &'static str)>,
    /// Somebody else waits on CPU 0 in class OVER.
    exhausted: bool,
    /// loadAvg of the waiters, in 1/256 credit.
    loads: Vec<u64>,
    /// Credits the waiters used in their lives.
    lives: Vec<u64>,
    /// With one kind there is one group: batch, LP; latency, SP.
    class: Class,
    /// IO_Boost and class of the waiters.
    boosts: Vec<(u64, u64)>,
}

impl Thief {
    fn new(waiters: &[u32]) -> Thief {
        Thief {
            waiters: waiters.to_vec(),
            difference: Vec::new(),
            params: Vec::new(),
            exhausted: false,
            loads: Vec::new(),
            lives: Vec::new(),
            class: Class::Batch,
            boosts: Vec::new(),
        }
    }

    /// Which waiter CPU 0 took, by its place in `waiters`; none: `None`.
    fn runs(&self) -> Option<usize> {
        let mut cast = Cast::default();
        let sleeper = [
            Action::Compute { ns: MS },
            Action::SleepUntil { at: 1000 * MS },
        ];
        let mut vms = Vec::new();
        let mut allowed = Vec::new();
        let mut add = |cast: &mut Cast, start, actions: &[Action], cpus: &[u32]| {
            let n = vms.len() as u32;
            cast.vcpu(n, 0, start, actions);
            vms.push(vm(n, self.class, 100, 1));
            allowed.push(cpus.to_vec());
        };
        add(&mut cast, 0, &sleeper, &[0]);
        for cpu in [1, 2, 4] {
            add(&mut cast, 0, &BUSY, &[cpu]);
        }
        let first = 4 + u32::from(self.exhausted);
        if self.exhausted {
            add(&mut cast, 100_000, &BUSY, &[0]);
        }
        for (i, cpu) in self.waiters.iter().enumerate() {
            add(&mut cast, 200_000 + i as u64 * 10_000, &BUSY, &[*cpu, 0]);
            // A helper thread of its VM waits where it was born; a vCPU would be placed.
            let s = cast.scripts.last_mut().expect("just added");
            (s.on, s.spec.role) = (*cpu, Role::Emulator);
        }
        cast.masks = allowed;
        let shape = Shape {
            nodes: 1,
            packages: 2,
            llcs: 1,
            cores: 2,
            threads: 2,
        };
        let mut m = machine(shape, &vms, cast, &self.params);
        m.run_until(MS - 1).unwrap();
        let base = 1000i64 << LOAD_BITS;
        peek(&mut m, |p| {
            p.set("pcpus_by_cpu", 0, "history_busy", base as u64);
            for cpu in 1..8 {
                p.set("pcpus_by_cpu", cpu, "history_busy", base as u64);
            }
            for (cpu, d) in &self.difference {
                p.set("pcpus_by_cpu", *cpu, "history_busy", (base + d) as u64);
            }
            if self.exhausted {
                p.set("vcpus", index_of(p, 4), "pri", OVER);
            }
            for (i, load) in self.loads.iter().enumerate() {
                p.set("vcpus", index_of(p, first + i as u32), "load_avg", *load);
            }
            for (i, life) in self.lives.iter().enumerate() {
                p.set(
                    "vcpus",
                    index_of(p, first + i as u32),
                    "history_load",
                    *life,
                );
            }
            for (i, (boost, pri)) in self.boosts.iter().enumerate() {
                let v = index_of(p, first + i as u32);
                p.set("vcpus", v, "io_boost", *boost);
                p.set("vcpus", v, "pri", *pri);
            }
            assert_eq!(p.curr(0), index_of(p, 0));
        });
        m.run_until(MS).unwrap();
        m.check().unwrap();
        peek(&mut m, |p| {
            let curr = p.curr(0);
            (0..self.waiters.len()).find(|i| index_of(p, first + *i as u32) == curr)
        })
    }
}

const A: i64 = 40 << LOAD_BITS;
const B: i64 = 80 << LOAD_BITS;

/// Section 5.4: its core first and without a threshold, then the package beyond A, then other packages beyond B.
#[test]
fn victims_are_sought_in_eight_steps() {
    let case = |waiters: &[u32], difference: &[(u32, i64)]| Thief {
        difference: difference.to_vec(),
        ..Thief::new(waiters)
    };
    assert_eq!(case(&[], &[]).runs(), None);
    // Step 2, though the others are far busier.
    let all = [(2, 9 * A), (4, 9 * B)];
    assert_eq!(case(&[4, 2, 1], &all).runs(), Some(2));
    // Steps 3 and 4: strictly more than A.
    assert_eq!(case(&[4, 2], &[(2, A + 1), (4, 9 * B)]).runs(), Some(1));
    assert_eq!(case(&[2], &[(2, A)]).runs(), None);
    // Steps 5 and 6: to the other package if this one has nothing worth it, strictly more than B.
    assert_eq!(case(&[2, 4], &[(2, A), (4, B + 1)]).runs(), Some(1));
    assert_eq!(case(&[2, 4], &[(2, A), (4, B)]).runs(), None);
    // D13: a victim with nothing to take is none, however busy.
    assert_eq!(case(&[4], &[(2, 9 * A), (4, B + 1)]).runs(), Some(0));
}

/// D13b: thresholds in per cent of a CPU are three times as many credits.
#[test]
fn thresholds_can_mean_per_cent() {
    let case = |difference| Thief {
        difference: vec![(2, difference)],
        params: vec![("percent_thresholds", "1")],
        ..Thief::new(&[2])
    };
    assert_eq!(case(3 * A).runs(), None);
    assert_eq!(case(3 * A + 1).runs(), Some(0));
}

/// Equation 9: the vCPU whose move leaves the loads nearest to each other; of equals the one that waits longest (D15).
#[test]
fn the_vcpu_that_evens_out_is_taken() {
    let case = |loads: &[u64], difference: u64| {
        let loads: Vec<u64> = loads.iter().map(|l| l << LOAD_BITS).collect();
        Thief {
            difference: vec![(2, (difference << LOAD_BITS) as i64)],
            loads,
            ..Thief::new(&[2, 2, 2])
        }
        .runs()
    };
    // 2 × 50 is 100: 40 and 70 are worse.
    assert_eq!(case(&[40, 50, 70], 100), Some(1));
    // 2 × 70 - 100 = 40 is nearer than 100 - 2 × 20 = 60.
    assert_eq!(case(&[20, 70, 0], 100), Some(1));
    assert_eq!(case(&[45, 55, 45], 100), Some(0));
    assert_eq!(case(&[200, 55, 55], 100), Some(1));
    // D15b: with an idle thief the best is taken though it overshoots.
    assert_eq!(case(&[300, 200, 250], 100), Some(1));
}

/// D12: a CPU left with an exhausted vCPU looks for a better one, unless told that only idle CPUs do. D15b: such a CPU
/// may refuse what overshoots.
#[test]
fn a_thief_with_exhausted_work_is_choosy() {
    let case = |load: u64, params: &[(&'static str, &'static str)]| Thief {
        difference: vec![(2, 100 << LOAD_BITS)],
        loads: vec![load << LOAD_BITS],
        params: params.to_vec(),
        exhausted: true,
        ..Thief::new(&[2])
    };
    assert_eq!(case(50, &[]).runs(), Some(0));
    assert_eq!(case(100, &[]).runs(), Some(0));
    assert_eq!(case(50, &[("idle_only", "1")]).runs(), None);
    assert_eq!(case(99, &[("refuse_overshoot", "1")]).runs(), Some(0));
    assert_eq!(case(100, &[("refuse_overshoot", "1")]).runs(), None);
}

/// D9: with the sum over a vCPU's life equation 9 takes whoever has used least since it was born.
#[test]
fn the_load_of_a_vcpu_may_be_that_of_its_life() {
    let case = |params: &[(&'static str, &'static str)]| Thief {
        difference: vec![(2, 100 << LOAD_BITS)],
        params: params.to_vec(),
        loads: vec![50 << LOAD_BITS, 10 << LOAD_BITS],
        lives: vec![50_000, 300],
        ..Thief::new(&[2, 2])
    };
    assert_eq!(case(&[]).runs(), Some(0));
    assert_eq!(case(&[("eq9_load", "average")]).runs(), Some(0));
    assert_eq!(case(&[("eq9_load", "literal")]).runs(), Some(1));
}

/// D13: to the letter of step 2 a sibling is the victim, whatever it has; nothing else is looked at then.
#[test]
fn step_2_may_end_at_a_sibling_without_work() {
    let case = |step2: &'static str, waiters: &[u32]| Thief {
        difference: vec![(2, 9 * A), (4, 9 * B)],
        params: vec![("step2", step2)],
        ..Thief::new(waiters)
    };
    assert_eq!(case("stealable", &[2]).runs(), Some(0));
    assert_eq!(case("literal", &[2]).runs(), None);
    assert_eq!(case("literal", &[4]).runs(), None);
    assert_eq!(case("literal", &[2, 1]).runs(), Some(1));
}

/// D13: to the letter of steps 3 and 5 the busiest CPU is the victim, whatever it has; CPUs 3 and 5 are idle. Where
/// step 4 finds the busiest of the package not worth it, step 5 follows in both readings.
#[test]
fn steps_3_and_5_may_end_at_a_cpu_without_work() {
    let case = |steps35: &'static str, waiters: &[u32], difference: &[(u32, i64)]| Thief {
        difference: difference.to_vec(),
        // The sibling is a victim to the letter of step 2 only.
        params: vec![("steps35", steps35)],
        ..Thief::new(waiters)
    };
    let package = [(2, 2 * A), (3, 3 * A)];
    assert_eq!(case("stealable", &[2], &package).runs(), Some(0));
    assert_eq!(case("literal", &[2], &package).runs(), None);
    let others = [(4, 2 * B), (5, 3 * B)];
    assert_eq!(case("stealable", &[4], &others).runs(), Some(0));
    assert_eq!(case("literal", &[4], &others).runs(), None);
    assert_eq!(case("literal", &[4], &[(2, A), (4, B + 1)]).runs(), Some(0));
}

/// D13: an idle CPU of the group for I/O takes by its queues' key, class first; by IO_Boost alone it favours the
/// exhausted.
#[test]
fn a_thief_for_io_takes_by_key_or_by_boost() {
    let case = |sp_take: &'static str, boosts: &[(u64, u64)]| Thief {
        params: vec![("sp_take", sp_take)],
        class: Class::Latency,
        boosts: boosts.to_vec(),
        ..Thief::new(&[1, 1])
    };
    // As their helper threads are of no kind, IO_Boost is what is set here: small for the exhausted one.
    let boosts = [(1000, UNDER), (10, OVER)];
    assert_eq!(case("key", &boosts).runs(), Some(0));
    assert_eq!(case("boost", &boosts).runs(), Some(1));
    let equals = [(1000, UNDER), (10, UNDER)];
    assert_eq!(case("key", &equals).runs(), Some(1));
}

/// D13b: loads are credits of a T_busy, thresholds of 30 ms.
#[test]
fn thresholds_scale_with_the_busy_period() {
    let case = |busy_ms: &'static str, difference| Thief {
        difference: vec![(2, difference)],
        params: vec![("busy_ms", busy_ms)],
        ..Thief::new(&[2])
    };
    assert_eq!(case("60", 2 * A).runs(), None);
    assert_eq!(case("60", 2 * A + 1).runs(), Some(0));
    assert_eq!(case("15", A / 2).runs(), None);
    assert_eq!(case("15", A / 2 + 1).runs(), Some(0));
}
