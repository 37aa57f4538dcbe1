// SPDX-License-Identifier: GPL-2.0-only
//! What is planned, run, kept and judged. The command line above it has arguments and printing only.
//!
//! A [`request`] becomes a [`plan`]: variants of a scenario, their arms, the seeds. Free parameters are fitted first
//! ([`calibrate`]). Every run is a [`job`], a pure function that any process or machine can do ([`runner`]); what was
//! run is [`kept`] and not run twice. [`simulator`] makes a plan's jobs, [`replications`] does them, [`save`] writes
//! what came out, [`trace`] what happened in a run. [`claims`] are what papers report of a scenario, [`reproduce`] does
//! all experiments of a paper and writes its page. [`model`] puts closed forms beside simulation, [`compare`] simulator
//! and real kernel.
pub mod calibrate;
pub mod claims;
pub mod compare;
#[cfg(feature = "kernel")]
pub mod costs;
pub mod error;
pub mod estimate;
pub mod foreign;
pub mod job;
pub mod kept;
#[cfg(feature = "kernel")]
pub mod lab;
pub mod linux;
pub mod model;
pub mod plan;
pub mod policies;
pub mod replications;
pub mod reproduce;
pub mod request;
pub mod runner;
pub mod save;
pub mod simulator;
pub mod trace;
pub mod trial;

pub use error::{Done, Failure};
pub use request::Request;
