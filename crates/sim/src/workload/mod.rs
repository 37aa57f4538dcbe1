// SPDX-License-Identifier: GPL-2.0-only
//! What the tasks do.
pub mod api;
