// SPDX-License-Identifier: GPL-2.0-only
//! A real Linux guest as the witness of what guests do under steal.
//!
//! Three machines, one inside the other: this one; the lab's VM, which the emulator plays with a host thread for each
//! CPU (its first process starts the guest and the competitors); and in it a guest under nested KVM ([`inside`], its
//! first process, does the tasks of the scenario's VM). [`record()`] is the way in.
pub mod inside;
mod job;
mod outer;
mod record;
mod tasks;
mod watched;

pub use job::{GuestJob, WitnessAnswer, WitnessJob};
pub(crate) use outer::perform;
pub use record::{Setting, record};
pub use watched::Watched;
