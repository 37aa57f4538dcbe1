// SPDX-License-Identifier: GPL-2.0-only
//! Running hash of everything that happens: equal runs have equal hashes, on every machine.

/// A 64-bit running hash over words. Not cryptographic; each step is a bijection of the state for a given
/// word, so two traces that differ in one word differ until a later difference cancels it (about 2^-64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        TraceHash(0x243f_6a88_85a3_08d3)
    }
}

impl TraceHash {
    #[inline(always)]
    pub fn add(&mut self, word: u64) {
        // Odd multiplier: a bijection; the rotation brings high bits back to the low end.
        self.0 = (self.0 ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    /// The hash so far, mixed so that all bits depend on all words.
    pub fn finish(self) -> u64 {
        let mut h = self.0;
        h ^= h >> 32;
        h = h.wrapping_mul(0xd6e8_feb8_6659_fd93);
        h ^ (h >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_value_matter() {
        let of = |words: &[u64]| {
            let mut h = TraceHash::default();
            words.iter().for_each(|w| h.add(*w));
            h.finish()
        };
        assert_eq!(of(&[1, 2, 3]), of(&[1, 2, 3]));
        assert_ne!(of(&[1, 2, 3]), of(&[1, 3, 2]));
        assert_ne!(of(&[0]), of(&[0, 0]));
    }
}
