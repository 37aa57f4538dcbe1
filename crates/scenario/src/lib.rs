// SPDX-License-Identifier: GPL-2.0-only
//! The scenario vocabulary (topology, VM, class, task, client, arm) and its file format.
//!
//! [`model`] is what every place (simulator, lab, host) consumes: complete, validated, units resolved to
//! integers (nanoseconds, bytes, CPUs). The other modules turn a file into it.
pub mod dist;
pub mod model;
pub mod placement;
