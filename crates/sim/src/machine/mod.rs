// SPDX-License-Identifier: GPL-2.0-only
//! The hardware and the tasks on it.

/// An interned CPU mask of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MaskId(pub u32);

impl MaskId {
    /// Every CPU of the machine.
    pub const ALL: MaskId = MaskId(0);
}
