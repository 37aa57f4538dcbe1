// SPDX-License-Identifier: GPL-2.0-only
//! The scenario vocabulary (topology, VM, class, task, client, arm) and its file format.
//!
//! [`model`] is what every place (simulator, lab, host) consumes: complete, validated, units resolved to integers
//! (nanoseconds, bytes, CPUs). The other modules turn a file into it: [`tree`] parses, [`edit`] applies changes of the
//! command line, `read` walks and checks, [`show`] prints what came out, [`support`] says what each place can do.
pub mod chunks;
pub mod claims;
pub mod cost;
pub mod diag;
pub mod dist;
pub mod edit;
pub mod help;
pub mod keys;
pub mod metrics;
pub mod model;
pub mod paper;
pub mod phrase;
pub mod placement;
pub mod profile;
pub mod quantity;
mod read;
pub mod rtapp;
pub mod section;
pub mod shipped;
pub mod show;
pub mod step;
pub mod support;
mod sync;
pub mod tree;
mod vary;

pub use diag::Error;
pub use edit::Edit;
pub use read::{Input, Loaded, place_of, place_of_value, read, value_of};
