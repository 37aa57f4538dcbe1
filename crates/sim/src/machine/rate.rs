// SPDX-License-Identifier: GPL-2.0-only
//! The rate at which a task works: a function of the kind of core, the task's phase, its caches and the core's other
//! threads. The only place that says so: [`super::pace`] does the arithmetic of time and work, and
//! `scx/hardware` knows who runs where.
pub use crate::words::Phase;
use berth_scenario::model::CoreKind;

/// Full speed in parts per million.
pub const FULL: u32 = 1_000_000;
/// The least rate that makes work end.
const LEAST: u32 = 2;
/// Capacity of the fastest cores of a machine, and the highest frequency of each (`SCHED_CAPACITY_SCALE`).
pub const CAPACITY: u32 = 1024;

/// One kind of core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Work per time at its highest frequency, parts per million.
    speed: u32,
    /// Part of that frequency at which it runs, parts per million.
    frequency: u32,
    /// What is left for each of n + 1 busy threads of a core; empty: all of it.
    shared: Vec<u32>,
}

impl Kind {
    /// Cores with so many threads; `pair` is the speed of each of two busy ones, 0: as alone.
    pub fn new(speed: u32, frequency: u32, pair: u32, threads: u32) -> Kind {
        let shares = threads > 1 && pair != 0 && pair != FULL;
        Kind {
            speed,
            frequency,
            shared: if shares {
                shared(pair, threads)
            } else {
                Vec::new()
            },
        }
    }

    /// Of a scenario; `pair` unless the kind has its own.
    pub fn of(kind: &CoreKind, pair: u32, threads: u32) -> Kind {
        let pair = if kind.smt_ppm == 0 {
            pair
        } else {
            kind.smt_ppm
        };
        Kind::new(kind.speed_ppm, kind.frequency_ppm, pair, threads)
    }

    /// Always at full speed.
    pub fn is_plain(&self) -> bool {
        self.shared.is_empty() && self.alone() == FULL
    }

    /// Do busy siblings take anything from each other?
    pub fn shares(&self) -> bool {
        !self.shared.is_empty()
    }

    /// Alone on its core, computing; the rate of its cycles, too, of which a core of full speed has one a nanosecond.
    pub fn alone(&self) -> u32 {
        (u64::from(self.speed) * u64::from(self.frequency) / u64::from(FULL)).max(u64::from(LEAST))
            as u32
    }

    /// What the kernel calls the capacity of such a core: 1 to [`CAPACITY`], that of the fastest kind of the machine.
    pub fn capacity(&self, all: &[Kind]) -> u32 {
        let fastest = all
            .iter()
            .map(|k| k.speed)
            .max()
            .unwrap_or(self.speed)
            .max(1);
        (u64::from(self.speed) * u64::from(CAPACITY) / u64::from(fastest)).max(1) as u32
    }

    /// Its frequency, 1 to [`CAPACITY`], its own highest.
    pub fn frequency(&self) -> u32 {
        (u64::from(self.frequency) * u64::from(CAPACITY) / u64::from(FULL)).max(1) as u32
    }
}

/// The frequencies of cores that have several, and the performance that policies ask of their CPUs.
#[derive(Debug)]
pub struct Steps {
    /// By kind: each frequency, parts per million of the highest, ascending, and the [`Kind`] at it. Empty: it has one.
    of_kind: Vec<Vec<(u32, u32)>>,
    /// By core: into `of_kind`; beyond it: of no kind.
    kind_of_core: Vec<u32>,
    /// By CPU, 1024: all that the fastest CPU can.
    pub asked: Vec<u32>,
}

impl Steps {
    /// None: no kind has any. `all`, of the same kinds and in their order, gets one more for each lower frequency.
    pub fn new(
        kinds: &[CoreKind],
        all: &mut Vec<Kind>,
        kind_of_core: &[u32],
        nr_cpus: u32,
    ) -> Option<Box<Steps>> {
        if kinds.iter().all(|k| k.steps_khz.is_empty()) {
            return None;
        }
        let mut of_kind = Vec::new();
        for (i, kind) in kinds.iter().enumerate() {
            let highest = u64::from(kind.steps_khz.last().copied().unwrap_or(1));
            let mut steps = Vec::new();
            for khz in &kind.steps_khz {
                let frequency = (u64::from(*khz) * u64::from(FULL) / highest) as u32;
                if frequency == FULL {
                    steps.push((FULL, i as u32));
                    continue;
                }
                steps.push((frequency, all.len() as u32));
                all.push(Kind {
                    frequency,
                    ..all[i].clone()
                });
            }
            of_kind.push(steps);
        }
        Some(Box::new(Steps {
            of_kind,
            kind_of_core: kind_of_core.to_vec(),
            asked: vec![CAPACITY; nr_cpus as usize],
        }))
    }

    /// The kind as which a core of such capacity runs when this is asked of it: at the lowest frequency that gives it
    /// and a quarter more, as Linux's governor (schedutil) does it. None: it has one frequency.
    pub fn kind(&self, core: u32, asked: u32, capacity: u32) -> Option<u32> {
        let kind = self.kind_of_core[core as usize] as usize;
        let steps = self.of_kind.get(kind)?;
        let wanted = u64::from(asked + asked / 4) * u64::from(FULL);
        let gives = |(ppm, _): &&(u32, u32)| u64::from(*ppm) * u64::from(capacity) >= wanted;
        let step = steps.iter().find(gives).or(steps.last())?;
        Some(step.1)
    }
}

/// Work per time, parts per million: of a task in this phase on a core of this kind of which `busy` threads run;
/// `wait`: how long it waits for memory, parts per million of a wait for its own node's. While its caches are cold, it
/// is [`while_warming`] of that.
pub fn rate(kind: &Kind, phase: Phase, busy: u32, wait: u64) -> u32 {
    let mut rate = u64::from(kind.alone());
    if phase.stalled > 0 {
        // A second's work takes `stalled` seconds of waiting, or longer, and the rest at the core's speed.
        let full = u64::from(FULL);
        let stalled = u64::from(phase.stalled).min(full);
        let waits = stalled * wait / full;
        rate = rate * full / (full - stalled + waits * rate / full).max(1);
    }
    match kind.shared.get(busy.max(1) as usize - 1) {
        Some(share) => (rate * u64::from(*share) / u64::from(FULL)).max(u64::from(LEAST)) as u32,
        None => rate.max(u64::from(LEAST)) as u32,
    }
}

/// What is left of a rate while a task brings back what its caches have lost.
#[inline]
pub fn while_warming(rate: u32) -> u32 {
    rate / 2
}

/// Speed of each of n busy threads of a core, if two have `pair` each: a core with two does 2 `pair` of the work of
/// one, each further thread adds half of what the one before added.
fn shared(pair: u32, threads: u32) -> Vec<u32> {
    let mut gain = 2 * i64::from(pair) - i64::from(FULL);
    let mut total = i64::from(FULL);
    (1..=i64::from(threads))
        .map(|n| {
            let each = total / n;
            total += gain;
            gain /= 2;
            each.max(1) as u32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u64 = FULL as u64;

    #[test]
    fn threads_share_a_core() {
        assert_eq!(shared(600_000, 2), [FULL, 600_000]);
        // 1, 1.2, 1.3, 1.35 of one thread's work.
        assert_eq!(shared(600_000, 4), [FULL, 600_000, 433_333, 337_500]);
        // Siblings that only get in each other's way.
        assert_eq!(shared(500_000, 2), [FULL, 500_000]);
        assert_eq!(shared(400_000, 3)[2], 233_333);
        let half = Kind::new(500_000, FULL, 600_000, 2);
        assert_eq!(rate(&half, Phase::default(), 1, HERE), 500_000);
        assert_eq!(rate(&half, Phase::default(), 2, HERE), 300_000);
    }

    #[test]
    fn who_waits_for_memory_gains_less_from_a_fast_core() {
        // Time for a second's work: stalled + (1 - stalled) / speed.
        let fast = Kind::new(2_375_000, FULL, 0, 1);
        for (stalled, speedup) in [(0, 2.375), (136_000, 2.0), (552_000, 1.350), (FULL, 1.0)] {
            let got = f64::from(rate(
                &fast,
                Phase {
                    stalled,
                    ..Phase::default()
                },
                1,
                HERE,
            )) / 1e6;
            assert!(
                (got - speedup).abs() < 2e-3,
                "{stalled}: {got}, not {speedup}"
            );
        }
    }

    #[test]
    fn memory_of_another_node_makes_waits_longer() {
        // Time for a second's work: stalled wait + (1 - stalled) / speed.
        for (speed, stalled, wait) in [(1.0, 0.5, 1.5), (1.0, 0.9, 100.0), (2.375, 0.552, 1.3)] {
            let kind = Kind::new((speed * 1e6) as u32, FULL, 0, 1);
            let phase = Phase {
                stalled: (stalled * 1e6) as u32,
                ..Phase::default()
            };
            let got = f64::from(rate(&kind, phase, 1, (wait * 1e6) as u64)) / 1e6;
            let truth = 1.0 / (stalled * wait + (1.0 - stalled) / speed);
            assert!(
                (got - truth).abs() < 3e-6,
                "{stalled} {wait}: {got} {truth}"
            );
        }
    }

    #[test]
    fn capacity_is_what_a_core_can_and_frequency_what_it_does() {
        let all = [
            Kind::new(2 * FULL, FULL, 0, 1),
            Kind::new(FULL, FULL, 0, 1),
            Kind::new(2 * FULL, 250_000, 0, 1),
        ];
        let told: Vec<_> = all
            .iter()
            .map(|k| (k.capacity(&all), k.frequency()))
            .collect();
        assert_eq!(told, [(1024, 1024), (512, 1024), (1024, 256)]);
        assert_eq!(rate(&all[2], Phase::default(), 1, HERE), 500_000);
        assert!(Kind::new(FULL, FULL, FULL, 2).is_plain() && !all[2].is_plain());
    }
}
