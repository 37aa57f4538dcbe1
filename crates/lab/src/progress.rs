// SPDX-License-Identifier: GPL-2.0-only
//! What the lab tells whoever waits for it.
use berth_results::schema::RunRecord;
use std::time::Duration;

/// One piece of news.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A sentence for the terminal.
    Say(String),
    /// A download, in bytes; `done == total` ends it.
    Download { what: String, done: u64, total: u64 },
    /// A VM starts; `attempt` counts from 1.
    Boot {
        arm: String,
        seed: u64,
        attempt: u32,
    },
    /// A run is complete: keep it, so that an interrupt loses nothing.
    Done {
        record: Box<RunRecord>,
        /// Wall time of its boots.
        wall: Duration,
    },
}

/// Called from several threads.
pub type Listener<'a> = dyn Fn(Progress) + Sync + 'a;
