// SPDX-License-Identifier: GPL-2.0-only
//! How far the world looks ahead, see [`super::ahead`].
use crate::words::Nanos;

/// Candidates of a look.
pub const WIDE: usize = 24;

/// When to look again, and how far.
#[derive(Clone, Copy, Debug)]
pub struct Horizon {
    /// Events until then.
    pub left: u32,
    /// How far into the future, so that there are some candidates; ns.
    pub guests: Nanos,
    pub host: Nanos,
}

impl Default for Horizon {
    fn default() -> Self {
        Horizon {
            left: 0,
            guests: 1000,
            host: 1000,
        }
    }
}

/// A bit more or less far, so that most candidates of a look are found and few are not.
pub fn adapt(window: &mut Nanos, found: usize) {
    if found == WIDE {
        *window -= *window / 8;
    } else if found < WIDE / 2 {
        *window = (*window + *window / 8 + 1).min(10_000_000);
    }
}
