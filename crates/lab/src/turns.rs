// SPDX-License-Identifier: GPL-2.0-only
//! Turns of the emulated CPUs in virtual time: how the emulator's one thread deals instructions to them, and what is
//! done so that all get as many.
//!
//! In each round it gives every CPU one n-th of the instructions until the next virtual timer. A timer that expires
//! asks all CPUs to leave; who is asked stops the round before its turn, and the round begins anew with one n-th of
//! what is *then* left. So after each timer the first CPU has more than the second, and so on; and the first is always
//! the same one, for the few instructions that do not divide go to CPU 0, whose successor finds the timer expired,
//! leaves, and is not asked again. With a timer every 50 us two CPUs have 1.25 and 0.75 of an equal share, four 0.56,
//! 0.56, 1.56 and 1.31, as was measured. The model of it in this file's tests says what helps.
//!
//! Many timers have a price: while one of four CPUs is busy, a quarter of what is left in each round is some 30 rounds
//! until a timer that is 50 us away. A machine that boots has one busy CPU, and nobody measures it: the timers begin
//! when that is over.
use serde_json::json;
use std::time::Duration;

/// When the timers begin, in virtual microseconds since the machine was switched on. The firmware, and the kernel when
/// it unpacks itself, take one to two seconds, and the kernel as much again to boot; what is measured begins 3 s after
/// the kernel ([`settle_ms`](crate::run::LabOptions::settle_ms)), and not before this ([`begun`]).
const BEGIN_US: u32 = 3_500_000;

/// In the VM: how long it takes until they have begun. Its TSC counts the virtual nanoseconds since it was switched on;
/// without the virtual clock those of this machine, which has been on for longer.
#[cfg(target_arch = "x86_64")]
pub fn begun() -> Duration {
    // SAFETY: reads a counter.
    let since_on_us = unsafe { std::arch::x86_64::_rdtsc() } / 1_000;
    Duration::from_micros(u64::from(BEGIN_US).saturating_sub(since_on_us))
}

/// The lab's VMs are x86.
#[cfg(not(target_arch = "x86_64"))]
pub fn begun() -> Duration {
    Duration::ZERO
}

/// What the emulator is given besides the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// A timer each, in virtual microseconds. They end turns: else a CPU's would last until the next tick of any. An
    /// idle network filter has such a timer.
    pub intervals_us: &'static [u32],
    /// CPUs more than the machine has, which the kernel is told to leave alone.
    pub spare: u32,
}

/// Until the machine's own next timer.
pub const COARSE: Turns = Turns {
    intervals_us: &[],
    spare: 0,
};

/// For a machine of this many CPUs, 1 to 4.
///
/// Two CPUs and a spare one have the same turns: what the first and the second have alone, the third does not use. For
/// more it takes timers that expire by turns after rounds that come out even and rounds that do not: the intervals were
/// searched for with the model, for the least difference with none much longer than 50 us, and are as good with any
/// ticks.
pub fn even(cpus: u32) -> Turns {
    let (intervals_us, spare): (&[u32], u32) = match cpus {
        0 | 1 => (&[], 0),
        2 => (&[50], 1),
        3 => (&[52, 143], 0),
        _ => (&[48, 64], 0),
    };
    Turns {
        intervals_us,
        spare,
    }
}

impl Turns {
    /// What the emulator is started with: filters that do nothing before the machine has booted, and a monitor on its
    /// standard input, which takes [`commands`](Turns::commands). Until then the machine is off.
    pub fn arguments(&self) -> Vec<String> {
        let mut a = ["-S", "-qmp", "stdio", "-netdev", "hubport,id=turn,hubid=0"]
            .map(String::from)
            .to_vec();
        for us in self.intervals_us {
            let filter = format!("filter-buffer,id=turn{us},netdev=turn,interval={BEGIN_US}");
            a.extend(["-object".to_string(), filter]);
        }
        a
    }

    /// For the emulator's monitor, a line each. A filter goes by a new interval when the one has passed with which it
    /// began, so it does not matter when these come.
    pub fn commands(&self) -> Vec<String> {
        let begin = json!({ "execute": "qmp_capabilities" });
        let intervals = self.intervals_us.iter().map(|us| {
            json!({
                "execute": "qom-set",
                "arguments": { "path": format!("/objects/turn{us}"), "property": "interval", "value": us },
            })
        });
        let on = json!({ "execute": "cont" });
        let all = std::iter::once(begin).chain(intervals).chain([on]);
        all.map(|command| format!("{command}\n")).collect()
    }

    /// Whether the monitor has taken all of the commands, by what it has said so far.
    ///
    /// # Errors
    /// What it refused, now or later.
    pub fn taken(&self, said: &str) -> Result<bool, String> {
        if let Some(refusal) = said.lines().find(|l| l.starts_with(r#"{"error""#)) {
            return Err(format!(
                "the emulator's monitor refused a command: {refusal}"
            ));
        }
        let returned = said
            .lines()
            .filter(|l| l.starts_with(r#"{"return""#))
            .count();
        Ok(returned >= self.commands().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Instructions in a microsecond.
    const PER_US: u64 = 500;
    const ROUGHLY_A_TICK_US: u64 = 4_000;

    /// The emulator's loop over its CPUs, all of which but the spare ones are busy.
    struct Emulator {
        cpus: usize,
        now: u64,
        /// When each timer expires next, and its interval.
        timers: BTreeMap<usize, (u64, u64)>,
        asked: Vec<bool>,
        had: Vec<u64>,
    }

    impl Emulator {
        fn new(cpus: usize, turns: Turns, tick_phase_us: u64) -> Emulator {
            let intervals = turns.intervals_us.iter().map(|us| u64::from(*us));
            let turn_timers = intervals.map(|us| (us * PER_US, us * PER_US));
            let tick = |c: u64| {
                (
                    (ROUGHLY_A_TICK_US + c * tick_phase_us) * PER_US + 7 * c,
                    ROUGHLY_A_TICK_US * PER_US,
                )
            };
            let all = cpus + turns.spare as usize;
            Emulator {
                cpus,
                now: 0,
                timers: turn_timers
                    .chain((0..cpus as u64).map(tick))
                    .enumerate()
                    .collect(),
                asked: vec![false; all],
                had: vec![0; all],
            }
        }

        fn left(&self) -> u64 {
            let next = self.timers.values().map(|t| t.0).min();
            next.unwrap().saturating_sub(self.now)
        }

        /// Timers that have expired.
        fn expire(&mut self) {
            if self.left() == 0 {
                let now = self.now;
                for (at, interval) in self.timers.values_mut().filter(|t| t.0 <= now) {
                    *at = now + *interval;
                }
                self.asked.fill(true);
            }
        }

        fn turn(&mut self, cpu: usize, budget: u64) {
            let budget = budget.min(self.left());
            if budget == 0 {
                self.expire();
            }
            if cpu < self.cpus && !std::mem::take(&mut self.asked[cpu]) {
                self.had[cpu] += budget;
                self.now += budget;
            }
        }

        /// Shares of the CPUs over this time, 1 if all are equal.
        fn shares(mut self, us: u64) -> Vec<f64> {
            let all = self.asked.len();
            let mut cpu = 0;
            while self.now < us * PER_US {
                self.expire();
                let left = self.left();
                let budget = if left < all as u64 {
                    left
                } else {
                    left / all as u64
                };
                cpu %= all;
                while cpu < all && !self.asked[cpu] {
                    self.turn(cpu, budget);
                    cpu += 1;
                }
                if cpu < all {
                    self.asked[cpu] = false;
                }
            }
            let mean = self.had.iter().sum::<u64>() as f64 / self.cpus as f64;
            self.had[..self.cpus]
                .iter()
                .map(|h| *h as f64 / mean)
                .collect()
        }
    }

    fn spread(shares: &[f64]) -> f64 {
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        shares.iter().copied().fold(0.0, f64::max) / least
    }

    #[test]
    fn commands_are_lines_and_their_answers_are_counted() {
        let turns = even(4);
        let commands = turns.commands();
        assert_eq!(commands.len(), 4);
        assert!(
            commands
                .iter()
                .all(|c| c.ends_with("}\n") && c.matches('\n').count() == 1)
        );
        let filters = turns.arguments().join(" ");
        for us in turns.intervals_us {
            assert!(filters.contains(&format!("id=turn{us},")), "{filters}");
            assert!(
                commands
                    .iter()
                    .any(|c| c.contains(&format!("/objects/turn{us}\"")))
            );
        }
        let greeting = "{\"QMP\": {}}\n";
        let taken = format!(
            "{greeting}{}{{\"event\": \"RESUME\"}}\n",
            "{\"return\": {}}\n".repeat(4)
        );
        assert_eq!(turns.taken(&taken), Ok(true));
        let less = format!("{greeting}{}", "{\"return\": {}}\n".repeat(3));
        assert_eq!(turns.taken(&less), Ok(false));
        assert_eq!(turns.taken(""), Ok(false));
        let why = turns
            .taken(&format!("{less}{{\"error\": \"no\"}}\n"))
            .unwrap_err();
        assert!(why.contains("\"no\""), "{why}");
    }

    #[test]
    fn one_timer_gives_what_was_measured_in_the_lab() {
        // Turns of a guest's work loop by CPU, in thousands a millisecond, all CPUs busy in guests.
        let measured: [&[f64]; 3] = [
            &[153.754, 92.823],
            &[54.671, 54.473, 136.670],
            &[34.536, 34.308, 94.670, 79.735],
        ];
        let timer = Turns {
            intervals_us: &[50],
            spare: 0,
        };
        for of_cpu in measured {
            let mean = of_cpu.iter().sum::<f64>() / of_cpu.len() as f64;
            let shares = Emulator::new(of_cpu.len(), timer, 74).shares(1_000_000);
            for (measured, modelled) in of_cpu.iter().zip(&shares) {
                let measured = measured / mean;
                assert!((measured - modelled).abs() < 0.02, "{of_cpu:?}: {shares:?}");
            }
        }
    }

    #[test]
    fn turns_are_about_equal_whatever_the_ticks() {
        for (cpus, at_most) in [(1, 1.001), (2, 1.01), (3, 1.35), (4, 1.45)] {
            for phase in [0, 74, 333, 1_000] {
                let shares = Emulator::new(cpus, even(cpus as u32), phase).shares(1_000_000);
                assert!(
                    spread(&shares) < at_most,
                    "{cpus} CPUs, phase {phase}: {shares:?}"
                );
            }
        }
    }
}
