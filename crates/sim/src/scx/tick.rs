// SPDX-License-Identifier: GPL-2.0-only
//! Charging of slices and the timer tick (rows 9 to 11). A slice is examined only at ticks and scheduling
//! points. While nobody needs every tick, only the tick at which the slice is found used up is simulated;
//! it is on the same grid.
use super::consts::*;
use super::kernel::Handle;
use super::mutation::Mutation;
use crate::engine::queue::NEVER;
use crate::machine::task::NONE;
use crate::unlikely::unlikely;
use crate::words::{CpuId, Nanos, SchedClass};
use berth_policy::abi::Op;
use berth_scenario::model::Hz;

/// How long a task of the fair class runs while others of it wait, ns.
const FAIR_SLICE: Nanos = 2_800_000;

/// Ticks on a grid that begins at 0, or a little later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    hz: u32,
    /// ns between ticks if that is a whole number, else 0.
    period: Nanos,
    /// The first one.
    begin: Nanos,
}

impl Grid {
    /// `hz` ticks a second, at least 1.
    pub fn new(hz: u32) -> Self {
        let hz = hz.max(1);
        let whole = 1_000_000_000 % hz == 0;
        Grid {
            hz,
            period: if whole { 1_000_000_000 / hz as u64 } else { 0 },
            begin: 0,
        }
    }

    /// The same grid, later.
    pub fn beginning_at(self, begin: Nanos) -> Self {
        Grid { begin, ..self }
    }

    /// First tick at or after `t`.
    #[inline]
    pub fn at_or_after(self, t: Nanos) -> Nanos {
        let since = t.saturating_sub(self.begin);
        let tick = match self.period {
            0 => uneven(since, self.hz),
            period => since.div_ceil(period).saturating_mul(period),
        };
        tick.saturating_add(self.begin)
    }
}

/// First tick at or after `t` where a second has no whole number of ns per tick.
fn uneven(t: Nanos, hz: u32) -> Nanos {
    let hz = hz as u64;
    // Tick n is at floor(n / hz).
    let n = (t as u128 * hz as u128).div_ceil(1_000_000_000);
    let at = |n: u128| (n * 1_000_000_000 / hz as u128) as Nanos;
    let first = at(n);
    if first >= t { first } else { at(n + 1) }
}

/// One of 2^64 numbers, by a seed and a time (the finalizer of splitmix64).
fn chance(seed: u64, at: Nanos) -> u64 {
    let mut x = seed ^ at.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Out of evenly distributed numbers: up to `half` for half of them, up to twice that for half of the rest, and so on:
/// nearly an exponential distribution, whose mean is 1.5 times `half`.
fn lateness(number: u64, half: Nanos) -> Nanos {
    let (more, within) = (number | 1 << 15, number >> 32);
    Nanos::from(more.trailing_zeros()) * half + ((within * half) >> 32)
}

impl Handle {
    /// Charge the running task up to now.
    #[inline]
    pub fn update_curr(mut self, cpu: CpuId) {
        let mut c = self.cpu(cpu);
        let k = &mut *self;
        let now = k.now;
        let delta = now.saturating_sub(c.exec_start);
        if delta == 0 || c.is_idle() {
            return;
        }
        c.exec_start = now;
        let curr = c.curr;
        let ts = k.tasks.ts(curr);
        ts.se.exec_start = now + k.start.uptime_ns
            - if k.guest.steal_accounting {
                c.stolen_ns
            } else {
                0
            };
        ts.se.sum_exec_runtime += delta;
        if let Some(rest) = k.tasks.rest(curr) {
            rest.utime += delta;
        }
        if ts.scx.slice != SLICE_INF && k.tasks.hot[curr as usize].class == SchedClass::Ext {
            ts.scx.slice = ts.scx.slice.saturating_sub(delta);
        }
    }

    /// When does this CPU need its next tick?
    #[inline]
    pub fn refresh_tick(self, cpu: CpuId) {
        let at = self.next_tick(cpu);
        self.cpu(cpu).tick_at = at;
    }

    #[inline(always)]
    fn next_tick(self, cpu: CpuId) -> Nanos {
        let Some(class) = self.class_on(cpu) else {
            return NEVER;
        };
        let c = self.cpu(cpu);
        let exact =
            self.hz == Hz::Exact || self.flags.slice_timer || self.wrong(Mutation::ExactSlices);
        if exact && class == SchedClass::Ext {
            let slice = self.tasks.ts(c.curr).scx.slice;
            // Used up, and the scheduler is on its way: nothing to find out until it is there.
            if slice == 0 && c.resched_at > self.now && c.resched_at != NEVER {
                return c.resched_at;
            }
            let end = c.exec_start.saturating_add(slice).max(self.now);
            return if self.flags.slice_timer {
                self.by_timer(cpu, end)
            } else {
                end
            };
        }
        if self.wrong(Mutation::TickRelative) {
            let period = 1_000_000_000 / self.grid.hz as u64;
            return c.since + ((self.now - c.since) / period + 1) * period;
        }
        if self.flags.real_ticks || class != SchedClass::Ext || self.flags.bypass {
            return self.tick_after(cpu, self.now + 1);
        }
        match self.tasks.ts(c.curr).scx.slice {
            SLICE_INF => NEVER,
            slice => self.tick_after(cpu, c.exec_start.saturating_add(slice).max(self.now + 1)),
        }
    }

    /// When a timer that is due at `end` is worked on: not while a tick is.
    fn by_timer(self, cpu: CpuId, end: Nanos) -> Nanos {
        if end == NEVER {
            return end;
        }
        let tick = self.tick_after(cpu, end.saturating_sub(self.cost.tick_ns) + 1);
        if tick < end {
            tick + self.cost.tick_ns
        } else {
            end
        }
    }

    /// First tick of CPU 0 by the clock that policies read, ns.
    pub fn tick_phase(self) -> Nanos {
        self.grid.begin + self.start.uptime_ns
    }

    /// The CPU's first tick at or after `t`.
    #[inline]
    fn tick_after(self, cpu: CpuId, t: Nanos) -> Nanos {
        let later = self.cost.tick_skew_ns * u64::from(cpu);
        let latest = later + self.cost.latest_tick_ns();
        let mut tick = self.grid.at_or_after(t.saturating_sub(latest));
        loop {
            let at = tick.saturating_add(later + self.late(cpu, tick));
            if at >= t {
                return at;
            }
            tick = self.grid.at_or_after(tick + 1);
        }
    }

    /// How late this tick of a CPU is.
    #[inline]
    fn late(self, cpu: CpuId, tick: Nanos) -> Nanos {
        match self.cost.tick_jitter_ns {
            0 => 0,
            half => {
                let seed = self.seed ^ (u64::from(self.id) << 32) ^ (u64::from(cpu) << 48);
                lateness(chance(seed, tick), half)
            }
        }
    }

    /// How long it takes a CPU to do what takes this long where CPUs work at the same time.
    #[inline]
    pub fn in_turns(self, cpu: CpuId, ns: Nanos) -> Nanos {
        match self.cost.turn_ns {
            0 => ns,
            turn => self.taking_turns(cpu, ns, turn),
        }
    }

    #[cold]
    fn taking_turns(self, cpu: CpuId, ns: Nanos, turn: Nanos) -> Nanos {
        if ns == 0 {
            return 0;
        }
        let seed = self.seed ^ (u64::from(cpu) << 48) ^ 0x7475_726e;
        let mut takes = ns;
        for other in 0..self.cpus.len() as u32 {
            if other == cpu || self.cpus[other as usize].is_idle() {
                continue;
            }
            let most = if other < cpu { turn } else { turn / 2 };
            takes += chance(seed ^ (u64::from(other) << 56), self.now) % (most + 1);
        }
        takes
    }

    /// The timer interrupt.
    #[inline(always)]
    pub fn tick(mut self, cpu: CpuId) {
        let Some(class) = self.class_on(cpu) else {
            self.cpu(cpu).tick_at = NEVER;
            return;
        };
        self.update_curr(cpu);
        self.code.waking_ns = self.cost.tick_ns;
        if unlikely(self.cost.insn_ps > 0) {
            self.code.code_mark = self.executed();
        }
        let curr = self.cpus[cpu as usize].curr;
        match class {
            SchedClass::Ext => {
                if unlikely(self.flags.bypass) {
                    self.tasks.ts(curr).scx.slice = 0;
                } else if matches!(self.hz, Hz::Ticks(_)) {
                    self.op_task(Op::Tick, curr, 0);
                }
                if unlikely(self.flags.slice_timer) {
                    // A timer by the clock on the wall: of a guest, whose slice has stood still, too.
                    self.tasks.ts(curr).scx.slice = 0;
                }
                if self.tasks.ts(curr).scx.slice == 0 {
                    self.resched(cpu);
                }
            }
            SchedClass::Fair => {
                let rare = self.cpus[cpu as usize].rare_mut();
                let (since, waiting) = (rare.fair_since, rare.higher[0].head != NONE);
                if self.now - since >= FAIR_SLICE && waiting {
                    self.resched(cpu);
                }
            }
            SchedClass::Rt | SchedClass::Stop => (),
        }
        self.refresh_tick(cpu);
        self.irq_work();
        self.code.waking_ns = 0;
    }

    /// Bring what a policy can read of a running task up to the CPU's last tick (or scheduling point): needed
    /// where ticks are not simulated one by one.
    pub fn sync_to_last_tick(mut self, cpu: CpuId) {
        let Hz::Ticks(hz) = self.hz else {
            return;
        };
        if self.flags.real_ticks || self.cpus[cpu as usize].is_idle() {
            return;
        }
        let next = self.tick_after(cpu, self.now + 1);
        let back = 1_000_000_000 / hz as u64 + 1 + self.cost.latest_tick_ns();
        let last = next.saturating_sub(back);
        let last = self.tick_after(cpu, last).min(self.now);
        let c = &self.cpus[cpu as usize];
        if last > c.exec_start && last < self.now {
            let now = self.now;
            self.now = last;
            self.update_curr(cpu);
            self.now = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_ticks_are_very_late() {
        let all: Vec<Nanos> = (0..100_000)
            .map(|tick| lateness(chance(7, tick * 4_000_000), 200))
            .collect();
        let up_to = |ns: Nanos| all.iter().filter(|l| **l < ns).count();
        for (ns, share) in [(100, 25_000), (200, 50_000), (400, 75_000), (600, 87_500)] {
            assert!(up_to(ns).abs_diff(share) < 600, "{} below {ns}", up_to(ns));
        }
        assert!(all.iter().all(|l| *l <= 3_200));
        let mean = all.iter().sum::<Nanos>() / 100_000;
        assert!((295..305).contains(&mean), "{mean}");
    }

    #[test]
    fn grids() {
        assert_eq!(Grid::new(250).at_or_after(0), 0);
        assert_eq!(Grid::new(250).at_or_after(1), 4_000_000);
        assert_eq!(Grid::new(250).at_or_after(4_000_000), 4_000_000);
        let later = Grid::new(250).beginning_at(1_500_000);
        assert_eq!(later.at_or_after(0), 1_500_000);
        assert_eq!(later.at_or_after(1_500_000), 1_500_000);
        assert_eq!(later.at_or_after(1_500_001), 5_500_000);
        // 300 Hz: 0, 3333333, 6666666, 10000000.
        assert_eq!(Grid::new(300).at_or_after(1), 3_333_333);
        assert_eq!(Grid::new(300).at_or_after(3_333_333), 3_333_333);
        assert_eq!(Grid::new(300).at_or_after(3_333_334), 6_666_666);
        assert_eq!(Grid::new(300).at_or_after(6_666_667), 10_000_000);
        assert_eq!(Grid::new(300).at_or_after(10_000_000), 10_000_000);
    }
}
