// SPDX-License-Identifier: GPL-2.0-only
//! What a CPU works off in a time at its task's rate ([`super::rate`]), and more slowly while caches are warmed. Exact:
//! parts of a nanosecond of work are carried along, none is lost or made.
use super::rate::{FULL, while_warming};
use crate::words::Nanos;

/// The pace of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Work per time, parts per million.
    pub rate: u32,
    /// How long the running task goes on as [`while_warming`] says, ns.
    pub warm: Nanos,
    /// Millionths of a nanosecond of work done and not yet counted.
    pub part: u32,
    /// Not simply full speed. Kept by [`Pace::look`].
    pub uneven: bool,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            rate: FULL,
            warm: 0,
            part: 0,
            uneven: false,
        }
    }
}

impl Pace {
    /// After a field was set.
    #[inline]
    pub fn look(&mut self) {
        self.uneven = self.rate != FULL || self.warm != 0 || self.part != 0;
    }

    /// Work done in `span`, whole ns, of `remaining` at most; what is left over counts later, unless the work is
    /// done with it.
    #[cold]
    pub fn work(&mut self, span: Nanos, remaining: Nanos) -> Nanos {
        let warm = span.min(self.warm);
        let (rate, half) = (u128::from(self.rate), u128::from(while_warming(self.rate)));
        let parts =
            u128::from(warm) * half + u128::from(span - warm) * rate + u128::from(self.part);
        self.warm -= warm;
        let done = (parts / u128::from(FULL)) as Nanos;
        self.part = (parts % u128::from(FULL)) as u32;
        if done >= remaining {
            self.part = 0;
        }
        self.look();
        done.min(remaining)
    }

    /// How long this much work takes: the shortest span after which [`Pace::work`] says that it is done.
    #[cold]
    pub fn span(&self, work: Nanos) -> Nanos {
        let need = u128::from(work) * u128::from(FULL);
        let need = need.saturating_sub(u128::from(self.part));
        let (rate, half) = (u128::from(self.rate), u128::from(while_warming(self.rate)));
        let slowly = u128::from(self.warm) * half;
        let span = if need <= slowly {
            need.div_ceil(half.max(1))
        } else {
            u128::from(self.warm) + (need - slowly).div_ceil(rate.max(1))
        };
        span.min(u128::from(Nanos::MAX / 4)) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_speed_is_the_clock() {
        let mut p = Pace::default();
        assert_eq!((p.span(1234), p.work(1234, 9999)), (1234, 1234));
        assert!(!p.uneven);
    }

    #[test]
    fn warming_costs_half_its_time() {
        let mut p = Pace {
            warm: 2000,
            ..Pace::default()
        };
        p.look();
        assert_eq!(p.span(5000), 6000);
        assert_eq!(p.work(999, 5000), 499);
        assert_eq!(p.span(5000 - 499), 6000 - 999);
    }

    proptest! {
        /// However often one looks, the work ends at the same instant, and all of it is counted once.
        #[test]
        fn looking_changes_nothing(
            rate in 2u32..10_000_000, warm in 0u64..3000, work in 1u64..100_000,
            cuts in proptest::collection::vec(1u64..5000, 0..20),
        ) {
            let mut p = Pace { rate, warm, ..Pace::default() };
            p.look();
            let whole = p.span(work);
            prop_assert_eq!(p.clone().work(whole, work), work);
            prop_assert!(whole == 0 || p.clone().work(whole - 1, work) < work);
            let (mut left, mut at) = (work, 0);
            for cut in cuts {
                let cut = cut.min(whole - at);
                if left == 0 {
                    break;
                }
                left -= p.work(cut, left);
                at += cut;
                if left > 0 {
                    prop_assert_eq!(at + p.span(left), whole);
                }
            }
        }
    }
}
