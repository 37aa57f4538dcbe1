// SPDX-License-Identifier: GPL-2.0-only
//! Performance counters of each CPU: instructions retired, cycles not halted, and how often memory was read, of any
//! node and of another one.
//!
//! A core of full speed has one cycle a nanosecond, one of another speed or frequency so many more or less. A second's
//! work at full speed has as many instructions whatever core does it: the task's instructions per cycle times the part
//! of its time that it does not wait, a thousandth at least. So who waits for memory has more instructions per cycle on
//! a slow core. Who waits reads memory, once for each `LATENCY_NS` that it waits at full speed with its memory where
//! it runs, so as often wherever that is; bringing back what caches have lost counts none. What switches and interrupts
//! cost counts as if the task worked; spinning counts as work, as it does on hardware.
use super::rate::{FULL, Phase};
use crate::words::{CpuId, Nanos, TaskId};

/// As long does a task keep its deviation from the mean: a measuring interval of the literature.
const SPELL: Nanos = 2_500_000_000;

/// A read of memory takes so long on its own node.
const LATENCY_NS: u64 = 100;

/// What is counted, in the order of [`berth_policy::maps::perf::EVENTS`].
const EVENTS: usize = 4;

/// What a CPU does, as far as counters see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doing {
    pub task: TaskId,
    /// Cycles in a second; 0: idle.
    cycles: u64,
    /// What is done in a second of work at this rate: instructions, reads of memory, those of another node's.
    instructions: u64,
    loads: u64,
    remote: u64,
}

impl Doing {
    /// A task in this phase, at this rate of work, on a core with this rate of cycles, with this part of its memory on
    /// another node (all three parts per million).
    pub fn new(task: TaskId, phase: Phase, rate: u32, clock: u32, away: u32) -> Doing {
        let computes = u64::from(FULL.saturating_sub(phase.stalled).max(FULL / 1000));
        // Thousandths and parts per million; 1e9 cycles a second.
        let per_second = u128::from(rate) * u128::from(phase.ipc) * u128::from(computes);
        let waits_ns = u64::from(rate) * u64::from(phase.stalled) / 1000;
        let loads = waits_ns / LATENCY_NS;
        Doing {
            task,
            cycles: u64::from(clock) * 1000,
            instructions: (per_second / 1_000_000) as u64,
            loads,
            remote: loads * u64::from(away) / u64::from(FULL),
        }
    }
}

/// The counters of one CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    doing: Doing,
    /// Up to when it is counted.
    at: Nanos,
    /// How long work goes on at half its rate, because caches are cold.
    warm: Nanos,
    /// In billionths.
    counted: [u128; EVENTS],
}

/// The performance monitoring units of a machine.
#[derive(Debug)]
pub struct Pmu {
    cpus: Vec<Counters>,
    noise_ppm: u32,
    seed: u64,
}

impl Pmu {
    pub fn new(nr_cpus: u32, noise_ppm: u32, seed: u64) -> Pmu {
        Pmu {
            cpus: vec![Counters::default(); nr_cpus as usize],
            noise_ppm,
            seed,
        }
    }

    /// From now on the CPU does this; none: nothing.
    pub fn begins(&mut self, cpu: CpuId, now: Nanos, doing: Option<Doing>, warm: Nanos) {
        self.count(cpu, now);
        let c = &mut self.cpus[cpu as usize];
        (c.doing, c.warm) = (doing.unwrap_or_default(), warm);
    }

    /// What a CPU has counted so far.
    pub fn read(&mut self, cpu: CpuId, now: Nanos) -> [u64; EVENTS] {
        self.count(cpu, now);
        let c = &self.cpus[cpu as usize];
        c.counted.map(|n| (n / 1_000_000_000) as u64)
    }

    fn count(&mut self, cpu: CpuId, now: Nanos) {
        loop {
            let c = self.cpus[cpu as usize];
            if c.at >= now {
                return;
            }
            if c.doing.cycles == 0 {
                self.cpus[cpu as usize].at = now;
                return;
            }
            let to = now.min((c.at / SPELL + 1) * SPELL);
            let span = to - c.at;
            let warm = span.min(c.warm);
            let factor = self.factor(c.doing.task, c.at / SPELL);
            let worked = u128::from(2 * span - warm);
            let c = &mut self.cpus[cpu as usize];
            c.at = to;
            c.warm -= warm;
            let done = |per_second: u64| worked * u128::from(per_second);
            c.counted[0] += done(c.doing.instructions) * factor / (2 * u128::from(FULL));
            c.counted[1] += u128::from(span) * u128::from(c.doing.cycles);
            if c.doing.loads > 0 {
                c.counted[2] += done(c.doing.loads) / 2;
                c.counted[3] += done(c.doing.remote) / 2;
            }
        }
    }

    /// A task's instructions in a spell relative to its mean, parts per million: about normal.
    fn factor(&self, task: TaskId, spell: u64) -> u128 {
        if self.noise_ppm == 0 {
            return u128::from(FULL);
        }
        // SplitMix64 of all three.
        let mut z =
            self.seed ^ u64::from(task).rotate_left(40) ^ spell.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // Four uniform numbers: a mean of 2, a variance of 1/3.
        let sum: u64 = (0..4).map(|i| (z >> (16 * i)) & 0xffff).sum();
        let sigmas_ppm = (sum as i64 - 0x2_0000) * 1_732_051 / 0x1_0000;
        let off = i64::from(self.noise_ppm) * sigmas_ppm / i64::from(FULL);
        (i64::from(FULL) + off).max(0) as u128
    }
}

#[cfg(test)]
mod tests {
    use super::super::rate::{Kind, rate};
    use super::*;

    /// Instructions per cycle of a phase on a core of this speed.
    fn ipc(phase: Phase, speed: u32) -> f64 {
        let kind = Kind::new(speed, FULL, 0, 1);
        let mut pmu = Pmu::new(1, 0, 1);
        let doing = Doing::new(7, phase, rate(&kind, phase, 1, 1_000_000), kind.alone(), 0);
        pmu.begins(0, 0, Some(doing), 0);
        pmu.begins(0, 1_000_000_000, None, 0);
        let [instructions, cycles, ..] = pmu.read(0, 9_000_000_000);
        instructions as f64 / cycles as f64
    }

    #[test]
    fn who_waits_has_fewer_instructions_per_cycle_on_a_fast_core() {
        // IPC_slow = ipc0 (1 - m); IPC_fast = IPC_slow e / 2.375.
        for (stalled, e) in [(0, 2.375), (136_000, 2.0), (552_000, 1.350)] {
            let phase = Phase {
                stalled,
                ..Phase::default()
            };
            let slow = 1.5 * (1.0 - f64::from(stalled) / 1e6);
            assert!((ipc(phase, FULL) - slow).abs() < 1e-6);
            let fast = ipc(phase, 2_375_000);
            assert!((fast - slow * e / 2.375).abs() < 2e-3, "{stalled}: {fast}");
        }
    }

    #[test]
    fn cold_caches_halve_instructions_and_not_cycles() {
        let mut pmu = Pmu::new(1, 0, 1);
        let doing = Doing::new(7, Phase::default(), FULL, FULL, 0);
        pmu.begins(0, 0, Some(doing), 1000);
        assert_eq!(pmu.read(0, 500), [375, 500, 0, 0]);
        assert_eq!(pmu.read(0, 2000), [2250, 2000, 0, 0]);
    }

    #[test]
    fn who_waits_reads_memory_as_often_wherever_it_is() {
        // Half of its time at full speed waits; a third of its memory is elsewhere, where a wait is twice as long.
        let phase = Phase {
            stalled: FULL / 2,
            ..Phase::default()
        };
        let kind = Kind::new(FULL, FULL, 0, 1);
        let wait = u64::from(FULL + 333_333);
        let slower = rate(&kind, phase, 1, wait);
        let mut pmu = Pmu::new(1, 30_000, 1);
        let doing = Doing::new(7, phase, slower, FULL, 333_333);
        pmu.begins(0, 0, Some(doing), 0);
        let [_, _, loads, remote] = pmu.read(0, 10_000_000_000);
        // 5 million a second of work.
        let work = 10.0 / (0.5 + 0.5 * 1.333_333);
        for (got, truth) in [(loads, 5e6 * work), (remote, 5e6 * work / 3.0)] {
            assert!((got as f64 / truth - 1.0).abs() < 1e-4, "{got} {truth}");
        }
    }

    #[test]
    fn noise_is_of_the_size_asked_for_and_the_same_again() {
        let count = |seed, spell: u64| {
            let mut pmu = Pmu::new(1, 30_000, seed);
            pmu.begins(
                0,
                spell * SPELL,
                Some(Doing::new(3, Phase::default(), FULL, FULL, 0)),
                0,
            );
            pmu.read(0, spell * SPELL + 1_000_000)[0] as f64 / 1.5e6 - 1.0
        };
        let all: Vec<f64> = (0..2000).map(|i| count(5, i)).collect();
        let mean = all.iter().sum::<f64>() / 2000.0;
        let deviation = (all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2000.0).sqrt();
        assert!(
            mean.abs() < 3e-3 && (deviation - 0.03).abs() < 2e-3,
            "{mean} {deviation}"
        );
        assert_eq!(count(5, 17), count(5, 17));
        assert_ne!(count(5, 17), count(6, 17));
    }
}
