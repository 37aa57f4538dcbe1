// SPDX-License-Identifier: GPL-2.0-only
//! How much of this machine others had while something was measured.
use berth_loadgen::procfs;
use std::time::{Duration, Instant};

/// What the machine's CPUs, and this program with those it started and saw end, have used by a moment.
pub struct Clocks {
    at: Instant,
    idle_ns: u64,
    own: Duration,
}

impl Clocks {
    /// `None`: this machine's `/proc/stat` does not say.
    pub fn now() -> Option<Clocks> {
        let used = |who| {
            // SAFETY: a valid place for the answer, which all zeroes are.
            let usage = unsafe {
                let mut usage = std::mem::zeroed::<libc::rusage>();
                libc::getrusage(who, &raw mut usage);
                usage
            };
            let of = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1_000);
            of(usage.ru_utime) + of(usage.ru_stime)
        };
        Some(Clocks {
            at: Instant::now(),
            idle_ns: procfs::machine()?.idle_ns,
            own: used(libc::RUSAGE_SELF) + used(libc::RUSAGE_CHILDREN),
        })
    }

    /// CPUs that others had since: neither idle nor used by this program. Time stolen from the machine is theirs.
    pub fn others_since(self) -> Option<f64> {
        let (now, machine) = (Clocks::now()?, procfs::machine()?);
        let idle = now.idle_ns.saturating_sub(self.idle_ns) as f64 / 1e9;
        let own = now.own.saturating_sub(self.own).as_secs_f64();
        let wall = (now.at - self.at).as_secs_f64();
        Some(others_cpus(machine.cpus as f64, idle, own, wall))
    }
}

/// Of so many CPUs in so many seconds, those that were neither idle nor one's own.
fn others_cpus(cpus: f64, idle_s: f64, own_s: f64, wall_s: f64) -> f64 {
    ((cpus - (idle_s + own_s) / wall_s).max(0.0) * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_ones_own_is_others() {
        assert_eq!(others_cpus(2.0, 8.0, 11.0, 10.0), 0.1);
        assert_eq!(others_cpus(2.0, 20.0, 0.0, 10.0), 0.0);
        // Ticks of the counters can make it negative.
        assert_eq!(others_cpus(2.0, 8.9, 11.2, 10.0), 0.0);
    }

    #[test]
    fn what_this_program_uses_is_its_own() {
        let before = Clocks::now().unwrap();
        let own = || Clocks::now().unwrap().own - before.own;
        while own() < Duration::from_millis(100) {}
        let others = before.others_since().unwrap();
        let cpus = procfs::machine().unwrap().cpus as f64;
        assert!((0.0..cpus).contains(&others), "{others} of {cpus}");
    }
}
