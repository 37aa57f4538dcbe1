// SPDX-License-Identifier: GPL-2.0-only
//! When a policy that was ended is tried again, and when not any more.
use std::time::{Duration, Instant};

/// After so many ends within [`SPAN`] it is not tried again.
const MOST: usize = 3;
const SPAN: Duration = Duration::from_secs(600);
/// From an end to the next try; twice as long after each of the last ten minutes.
pub const PAUSE: Duration = Duration::from_secs(30);

/// Counts ends.
#[derive(Debug, Default)]
pub struct Breaker {
    /// The last [`MOST`], in order.
    ends: Vec<Instant>,
}

impl Breaker {
    /// The policy was ended; when it is to be tried again, if it is.
    pub fn tripped(&mut self, now: Instant) -> Option<Instant> {
        self.ends
            .retain(|end| now.saturating_duration_since(*end) < SPAN);
        self.ends.push(now);
        match self.ends.len() {
            n if n >= MOST => None,
            n => Some(now + PAUSE * (1 << (n - 1))),
        }
    }

    /// Whether it has been ended too often lately.
    pub fn is_open(&self, now: Instant) -> bool {
        let lately = |end: &&Instant| now.saturating_duration_since(**end) < SPAN;
        self.ends.iter().filter(lately).count() >= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ends_in_ten_minutes_are_enough() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut breaker = Breaker::default();
        assert_eq!(breaker.tripped(at(0)), Some(at(30)));
        assert_eq!(breaker.tripped(at(100)), Some(at(160)));
        assert!(!breaker.is_open(at(100)));
        assert_eq!(breaker.tripped(at(200)), None);
        assert!(breaker.is_open(at(200)) && breaker.is_open(at(599)));
        // The first is ten minutes ago.
        assert!(!breaker.is_open(at(601)));
        // Ends that are far apart are each the first.
        let mut breaker = Breaker::default();
        for k in 0..10 {
            assert_eq!(breaker.tripped(at(600 * k)), Some(at(600 * k + 30)));
        }
    }
}
