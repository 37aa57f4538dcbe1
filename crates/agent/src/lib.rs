// SPDX-License-Identifier: GPL-2.0-only
//! Acting on a host: a policy schedules its VMs, and knows who they are.
//!
//! [`daemon`] is its process, [`config`] what it is told by a file, [`control`] by commands. [`keeper`] follows
//! discovery and keeps the policy's identity maps right ([`register`]); [`agent`] loads, changes, switches and unloads
//! policies by a [`backend`], the seam behind which ways of acting are, and watches that nobody is starved
//! ([`tripwire`]); [`breaker`] says when one that was ended is tried again. [`arrivals`] says when there is something
//! to see, [`automatic`] what VMs seem to be for, [`members`] who is in a cgroup, [`remarks`] what is to be said of
//! VMs in few lines; [`place`] is where it is remembered
//! what is changed, and undone after a kill. The lab tells its policies who the threads are by the same [`register`]
//! and [`keeper`].
pub mod agent;
pub mod arrivals;
pub mod automatic;
pub mod backend;
pub mod breaker;
pub mod config;
pub mod control;
pub mod daemon;
pub mod describe;
pub mod door;
pub mod keeper;
pub mod members;
pub mod pinning;
pub mod pins;
pub mod place;
pub mod register;
pub mod remarks;
pub mod rules;
pub mod signals;
pub mod tripwire;
