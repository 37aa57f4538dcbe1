// SPDX-License-Identifier: GPL-2.0-only
//! Simulated guests beside real ones: cases, kept records of real Linux guests under steal, bounds, verdicts, page.
pub mod bounds;
pub mod cases;
pub mod judge;
pub mod page;
pub mod record;

pub use bounds::GuestBounds;
pub use cases::{Case, Cases};
pub use judge::{Beside, Row, judge};
pub use record::GuestRecord;
