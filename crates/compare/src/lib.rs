// SPDX-License-Identifier: GPL-2.0-only
//! Simulator beside real kernel: the same scenario, arm by arm and metric by metric, judged by bounds that were written
//! down before the first run.
pub mod block;
pub mod bounds;
pub mod costs;
pub mod guests;
pub mod judge;
pub mod known;
pub mod markdown;
pub mod ranking;
pub mod record;
pub mod score;
pub mod set;
pub mod table;

pub use bounds::Bounds;
pub use judge::{Comparison, Quantity, Row, Verdict, compare};
