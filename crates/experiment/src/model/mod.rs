// SPDX-License-Identifier: GPL-2.0-only
//! Closed forms beside simulation: what a paper's model says of a case so small that it can be worked out on paper.
pub mod amp;
pub mod mrsf;
