// SPDX-License-Identifier: GPL-2.0-only
//! The results schema (one for simulator, lab and host), statistics over seeds, provenance.
//!
//! [`schema`] is what a place hands over for each run, with its [`detail`]; [`experiment`] puts runs together and
//! compares arms with [`stats`]; [`blame`] is who waited for whom, for every place; [`expect`] checks bounds;
//! [`mod@write`] keeps it all on disk.
pub mod blame;
pub mod columns;
pub mod detail;
pub mod evenness;
pub mod expect;
pub mod experiment;
pub mod findings;
pub mod guest;
pub mod json;
pub mod requests;
pub mod rows;
pub mod schema;
pub mod stats;
pub mod warmup;
pub mod write;
