// SPDX-License-Identifier: GPL-2.0-only
//! Truths the simulator is held against, computed without it.
//!
//! * [`closed_forms`]: engine and truth side by side, seed by seed.
//! * [`queue`]: means of queues with known formulas (M/M/1, M/M/c, M/G/1 under processor sharing, the closed
//!   processor-sharing network with hogs).
//! * [`mod@reference`]: sample paths of the same queues by recursions that share nothing with the engine.
//! * [`random`]: random scenarios, for properties and for the comparison of bytes.
//! * [`same_bytes`]: one number for very many runs.
//! * [`share`]: weighted max-min shares by water-filling, flat and nested (VMs, then their threads).
//! * [`enemies`]: VMs that mean the others no good, and what they are due.
//! * [`epochs`]: weighted threads with random demands, and the mean of their max-min shares.
//! * [`interval`]: confidence intervals from one long run (batch means), and how many of many intervals cover
//!   the truth.
pub mod closed_forms;
pub mod enemies;
pub mod epochs;
pub mod interval;
pub mod load;
pub mod queue;
pub mod random;
pub mod reference;
pub mod same_bytes;
pub mod share;
