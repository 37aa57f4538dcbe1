// SPDX-License-Identifier: GPL-2.0-only
//! The time of a host: that of this machine, or one that a test plays.
use crate::pace::cpu_time;
use std::fmt::{self, Debug, Formatter};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What rates are taken over, and what is waited by.
pub trait Time: Debug + Send + Sync {
    fn now(&self) -> Instant;
    /// CPU time that the calling thread has used.
    fn spent(&self) -> Duration;
    /// Returns when so much has passed.
    fn sleep(&self, time: Duration);
}

/// This machine's.
#[derive(Clone, Copy, Debug)]
pub struct Wall;

impl Time for Wall {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn spent(&self) -> Duration {
        cpu_time()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A time that passes only in sleeps, each as long as asked for; what happens meanwhile is done at its end.
pub struct Played<F> {
    begin: Instant,
    passed: Mutex<Duration>,
    meanwhile: F,
}

impl<F: Fn(Duration) + Send + Sync> Played<F> {
    /// `meanwhile` is given what has passed since the beginning.
    pub fn new(meanwhile: F) -> Played<F> {
        Played {
            begin: Instant::now(),
            passed: Mutex::default(),
            meanwhile,
        }
    }

    fn passed(&self) -> MutexGuard<'_, Duration> {
        self.passed.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl<F> Debug for Played<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Played").field(&self.passed).finish()
    }
}

impl<F: Fn(Duration) + Send + Sync> Time for Played<F> {
    fn now(&self) -> Instant {
        self.begin + *self.passed()
    }

    /// Nothing: it passes only in sleeps.
    fn spent(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, time: Duration) {
        let passed = {
            let mut passed = self.passed();
            *passed += time;
            *passed
        };
        (self.meanwhile)(passed);
    }
}
