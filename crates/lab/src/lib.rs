// SPDX-License-Identifier: GPL-2.0-only
//! The throw-away VM: kernel, initramfs, topology, boots.
//!
//! A boot's file system holds the `berth` binary itself as first process ([`guest::main`]), the policy objects and a
//! job. One boot runs one arm with one seed; [`run::run`] boots as many as a comparison needs, two at a time.
mod account;
pub mod assets;
mod cast;
mod console;
mod error;
mod firmware;
pub mod guest;
pub mod initramfs;
pub mod job;
pub mod kinds;
pub mod neighbours;
mod nested;
mod observe;
pub mod optimiser;
mod program;
mod progress;
pub mod run;
mod scenario;
mod sleep;
mod strip;
#[cfg(test)]
mod testing;
mod turns;
pub mod vm;
pub mod witness;

pub use berth_loadgen::{Vcpus, fits_micro_vms};
pub use error::LabError;
pub use progress::{Listener, Progress};
pub use scenario::{introduce, perform, perform_unobserved, teller};
