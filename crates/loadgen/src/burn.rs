// SPDX-License-Identifier: GPL-2.0-only
//! Burning an exact amount of CPU time.
use crate::sys;
use std::hint::black_box;

/// CPU time between two looks at the clock: fine enough to stop in time, coarse enough not to measure
/// the clock itself.
const CHUNK_NS: u64 = 20_000;
/// Less than this is not worth another look; it is carried over to the next burst.
const SLACK_NS: u64 = 300;

/// How fast this machine runs the loop, measured once per run.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Iterations per microsecond of CPU time, at least 1.
    per_us: u64,
}

fn spin(iterations: u64) {
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..iterations {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
}

impl Speed {
    /// Takes a few milliseconds. The fastest of five tries counts: a slow one was disturbed.
    pub fn measure() -> Speed {
        let mut iterations = 1_000;
        let mut best = 1;
        let mut tries = 0;
        while tries < 5 {
            let start = sys::cpu_ns();
            spin(iterations);
            let took = sys::cpu_ns().saturating_sub(start).max(1);
            if took < 500_000 {
                iterations *= 2;
                continue;
            }
            best = best.max(iterations * 1_000 / took);
            tries += 1;
        }
        Speed { per_us: best }
    }
}

/// Burns CPU time for one thread. What a burst took too much is taken off the next one.
#[derive(Debug)]
pub struct Burner {
    speed: Speed,
    overrun_ns: u64,
}

impl Burner {
    pub fn new(speed: Speed) -> Burner {
        Burner {
            speed,
            overrun_ns: 0,
        }
    }

    /// Burns `ns` of the calling thread's CPU time. After every chunk `after_chunk` gets the CPU time
    /// burnt since the last call, and ends the burst by returning false.
    pub fn burn(&mut self, ns: u64, mut after_chunk: impl FnMut(u64) -> bool) {
        let paid = self.overrun_ns.min(ns);
        self.overrun_ns -= paid;
        let start = sys::cpu_ns();
        let (mut done, want) = (0, ns - paid);
        while done + SLACK_NS < want {
            let chunk = (want - done).min(CHUNK_NS);
            spin((chunk * self.speed.per_us / 1_000).max(1));
            let total = sys::cpu_ns().saturating_sub(start);
            let go_on = after_chunk(total - done);
            done = total;
            if !go_on {
                return;
            }
        }
        self.overrun_ns += done.saturating_sub(want);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_add_up_to_what_was_asked() {
        let mut burner = Burner::new(Speed::measure());
        let (start, mut told) = (sys::cpu_ns(), 0);
        for _ in 0..200 {
            burner.burn(50_000, |ns| {
                told += ns;
                true
            });
        }
        let took = sys::cpu_ns() - start;
        assert!(told <= took, "told {told}, took {took}");
        // 10 ms asked; SLACK_NS may be missing in every burst, the overrun is paid back.
        assert!(told >= 200 * (50_000 - SLACK_NS) - CHUNK_NS, "told {told}");
    }

    #[test]
    fn a_burst_can_be_ended() {
        let mut calls = 0;
        Burner::new(Speed::measure()).burn(u64::MAX, |_| {
            calls += 1;
            calls < 3
        });
        assert_eq!(calls, 3);
    }
}
