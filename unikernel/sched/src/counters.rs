// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler counts.

/// Events since the scheduler was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Tasks that came.
    pub admitted: u64,
    /// Times that a task was chosen.
    pub decisions: u64,
    /// Slices that ended before their task did.
    pub expired: u64,
    /// Of these, those by which a task went a level down.
    pub demoted: u64,
    /// Tasks that ended, by the level they ended on.
    pub finished: [u64; Counters::LEVELS],
    /// Most tasks that waited at one time.
    pub queued_max: u64,
}

impl Counters {
    /// Levels of M-RSF; the others have only the first.
    pub const LEVELS: usize = 3;
}
