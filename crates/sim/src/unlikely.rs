// SPDX-License-Identifier: GPL-2.0-only
//! A hint for the compiler.

/// The condition itself. What is done if it holds is laid out apart from what nearly every event runs through, so that
/// this fits into a processor's first cache for code.
#[inline(always)]
pub fn unlikely(condition: bool) -> bool {
    if condition {
        rarely();
    }
    condition
}

#[cold]
#[inline(always)]
fn rarely() {}
