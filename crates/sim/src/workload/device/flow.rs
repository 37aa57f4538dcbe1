// SPDX-License-Identifier: GPL-2.0-only
//! Little's law over whatever enters somewhere and leaves it again.
use crate::words::Nanos;

/// Requests in the system over time. The area under their number must equal the sum of their stays, to the
/// nanosecond: a request lost, answered twice or answered before it came breaks that.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    present: u64,
    since: Nanos,
    area: u128,
    stays: u128,
    entered: u64,
    answered: u64,
    given_up: u64,
}

impl Flow {
    fn advance(&mut self, now: Nanos) {
        self.area += u128::from(self.present) * u128::from(now - self.since);
        self.since = now;
    }

    pub fn enter(&mut self, now: Nanos) {
        self.enter_late(now, now);
    }

    /// A request that was due at `sent`.
    pub fn enter_late(&mut self, sent: Nanos, now: Nanos) {
        self.advance(now);
        self.area += u128::from(now - sent);
        self.present += 1;
        self.entered += 1;
    }

    /// A request leaves, answered or given up (its VM stopped, or the task ended without a reply).
    pub fn leave(&mut self, arrived: Nanos, now: Nanos, answered: bool) {
        self.advance(now);
        self.present = self.present.saturating_sub(1);
        self.stays += u128::from(now - arrived);
        if answered {
            self.answered += 1;
        } else {
            self.given_up += 1;
        }
    }

    /// What is wrong at `now`, if anything. `in_system`: arrival times of the requests found in queues and in
    /// hand.
    pub fn violated(&self, now: Nanos, in_system: impl Iterator<Item = Nanos>) -> Option<String> {
        let mut at_end = self.clone();
        at_end.advance(now);
        let (mut there, mut stays) = (0, at_end.stays);
        for arrived in in_system {
            there += 1;
            stays += u128::from(now - arrived);
        }
        let counted = at_end.entered - at_end.answered - at_end.given_up;
        if counted != there || at_end.present != there {
            return Some(format!(
                "{} requests came, {} were answered, {} given up, but {there} are still there",
                at_end.entered, at_end.answered, at_end.given_up
            ));
        }
        (at_end.area != stays).then(|| {
            format!(
                "Little's law does not hold for the requests: their number over time and their stays differ by \
                 {} ns",
                at_end.area.abs_diff(stays)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_equals_stays() {
        let mut flow = Flow::default();
        flow.enter(10);
        flow.enter(20);
        flow.leave(10, 50, true);
        flow.enter(60);
        flow.leave(20, 70, false);
        assert_eq!(flow.violated(100, [60].into_iter()), None);
        assert!(
            flow.violated(100, [].into_iter())
                .unwrap()
                .contains("still there")
        );
    }

    #[test]
    fn an_answer_with_the_wrong_arrival_breaks_littles_law() {
        let mut flow = Flow::default();
        flow.enter(10);
        flow.enter(20);
        flow.leave(10, 50, true);
        flow.leave(11, 60, true);
        assert!(
            flow.violated(60, [].into_iter())
                .unwrap()
                .contains("Little")
        );
    }
}
