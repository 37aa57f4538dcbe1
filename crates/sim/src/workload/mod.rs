// SPDX-License-Identifier: GPL-2.0-only
//! What the tasks do.
//!
//! [`api`] is the line between work and machine; [`scenario::ScenarioWorkload`] is the work of a scenario file.
pub mod api;
mod clients;
mod completion;
mod flow;
mod mail;
mod net;
mod path;
mod program;
mod requests;
pub mod scenario;
mod sender;
mod share;
mod steps;
mod sync;
mod threads;
