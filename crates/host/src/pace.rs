// SPDX-License-Identifier: GPL-2.0-only
//! Work that may take a share of CPU time each time, in the mean: after a time that took more it is left out until that
//! is paid.
use std::time::Duration;

/// Work with a share, and what it owes.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    share: Option<Duration>,
    owed: Duration,
    begun: bool,
}

impl Pace {
    /// `share` of CPU time each time it could be done; `None`: it is always done.
    pub fn new(share: Option<Duration>) -> Pace {
        Pace {
            share,
            ..Pace::default()
        }
    }

    /// Does the work, unless it still owes a share or more; gives what it gave. The first time is free, since there all
    /// is new.
    pub fn step<T>(&mut self, work: impl FnOnce() -> T) -> Option<T> {
        if let Some(share) = self.share {
            self.owed = self.owed.saturating_sub(share);
            if self.owed >= share && !share.is_zero() {
                return None;
            }
        }
        let before = cpu_time();
        let done = work();
        if self.begun {
            self.owed += cpu_time().saturating_sub(before);
        }
        self.begun = true;
        Some(done)
    }
}

/// What this thread has used of a CPU.
pub fn cpu_time() -> Duration {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    Duration::new(
        u64::try_from(t.tv_sec).unwrap_or(0),
        u32::try_from(t.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn(time: Duration) {
        let end = cpu_time() + time;
        while cpu_time() < end {}
    }

    #[test]
    fn work_takes_its_share_in_the_mean() {
        let share = Duration::from_millis(1);
        let mut pace = Pace::new(Some(share));
        let mut took = Duration::ZERO;
        let mut done = 0u32;
        for i in 0..60 {
            let cost = Duration::from_micros(if i == 0 { 50_000 } else { 3000 });
            if pace.step(|| burn(cost)).is_some() && i > 0 {
                done += 1;
                took += cost;
            }
        }
        assert!((17..=22).contains(&done), "{done}");
        // Not more than it owes at the end.
        assert!(took <= 59 * share + Duration::from_millis(4), "{took:?}");
    }

    #[test]
    fn work_within_its_share_is_always_done() {
        let mut pace = Pace::new(Some(Duration::from_millis(5)));
        assert!((0..50).all(|_| pace.step(|| burn(Duration::from_micros(200))).is_some()));
        let mut pace = Pace::new(None);
        assert!((0..5).all(|_| pace.step(|| burn(Duration::from_millis(3))).is_some()));
    }
}
