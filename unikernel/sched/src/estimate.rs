// SPDX-License-Identifier: GPL-2.0-only
//! Estimates that are learned: by class, an exponential moving average of what its tasks ran.

/// Classes that are told apart; others are the class modulo this.
pub const CLASSES: usize = 16;

/// Weight of the newest task is one in this many (alpha 0.2).
const PART: i64 = 5;

/// How long tasks of each class are thought to run.
#[derive(Clone, Debug)]
pub struct Learned {
    mean_ns: [i64; CLASSES],
}

impl Learned {
    /// Of all classes is thought `initial_ns`.
    pub fn new(initial_ns: u64) -> Learned {
        Learned {
            mean_ns: [i64::try_from(initial_ns).unwrap_or(i64::MAX); CLASSES],
        }
    }

    /// How long a task of `class` will run.
    pub fn estimate_ns(&self, class: u8) -> u64 {
        self.mean_ns[usize::from(class) % CLASSES].unsigned_abs()
    }

    /// A task of `class` ran for `ran_ns` in all.
    pub fn learn(&mut self, class: u8, ran_ns: u64) {
        let mean_ns = &mut self.mean_ns[usize::from(class) % CLASSES];
        *mean_ns += (i64::try_from(ran_ns).unwrap_or(i64::MAX) - *mean_ns) / PART;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a constant the error falls by 0.8 with each task: 0.8^20 = 0.0115.
    #[test]
    fn a_constant_is_learned_by_its_closed_form() {
        let mut learned = Learned::new(1_000_000_000);
        (0..20).for_each(|_| learned.learn(3, 0));
        let expected = 1e9 * 0.8f64.powi(20);
        assert!(
            (learned.estimate_ns(3) as f64 - expected).abs() < 10.0,
            "{}",
            learned.estimate_ns(3)
        );
        assert_eq!(learned.estimate_ns(2), 1_000_000_000);
        learned.learn(255, u64::MAX);
        assert!(learned.estimate_ns(15) > 1_000_000_000);
    }
}
