// SPDX-License-Identifier: GPL-2.0-only
//! Very many jobs, here or on a cluster, kept as they are finished.
//!
//! [`plan`] makes the jobs of a grid and knows which are done, [`chunk`] is some of them as bytes for another process,
//! [`part`] is what came of some as a file, [`runs`] is all of it as tables; [`columns`] are both in memory and in
//! Parquet.
pub mod chunk;
pub mod columns;
pub mod part;
pub mod plan;
pub mod runs;
