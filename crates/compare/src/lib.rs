// SPDX-License-Identifier: GPL-2.0-only
//! Simulator beside real kernel: the same scenario, arm by arm and metric by metric, judged by bounds that were written
//! down before the first run.
pub mod bounds;
