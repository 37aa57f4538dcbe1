// SPDX-License-Identifier: GPL-2.0-only
//! Time and what happens next. Knows nothing of CPUs or tasks.
pub mod hash;
pub mod queue;
