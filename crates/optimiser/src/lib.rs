// SPDX-License-Identifier: GPL-2.0-only
//! Keeps each VM of a host at what it was promised, whatever the kernel's scheduler and however many VMs there are.
//!
//! A pure library: no I/O, no clock. Observations go in ([`Observation`]: what a host shows of a second), decisions
//! come out ([`Decision`]: what to set for whom, with the reasons as data). Equal observations give equal decisions,
//! so a recording is enough to repeat them.
//!
//! ```text
//! observe, machine, promise, settings   what goes in
//! demand                                how much a VM would use, from run time and run delay
//! admission                             whose guarantee does not fit, and what would
//! share                                 how much of the machine each gets: weighted water-filling
//! owners, dedicate                      who has CPUs of its own, and which
//! place, pack                           where the others run: one pool, or packed by their shares
//! act                                   shares as weights, caps and freezing
//! plan                                  from shares to what each VM is to be set to
//! hysteresis                            which settings are worth a change
//! known, optimiser                      what is remembered of a VM; all of it, one observation after the other
//! decision, reason                      what comes out
//! ```
//!
//! Source: K. Higashi's study of Linux schedulers under KVM proposes a load monitor and resource optimiser that does
//! not depend on the process scheduler; the rules here are Berth's own (`docs/optimiser.md`).
pub mod act;
pub mod admission;
pub mod cpuset;
pub mod decision;
pub mod dedicate;
pub mod demand;
pub mod error;
pub mod hysteresis;
mod known;
pub mod machine;
pub mod observe;
pub mod optimiser;
pub mod owners;
pub mod pack;
pub mod place;
pub mod plan;
pub mod promise;
pub mod reason;
pub mod settings;
pub mod share;

pub use act::Setting;
pub use cpuset::CpuSet;
pub use decision::{Allotment, Change, Decision};
pub use error::Error;
pub use machine::{Cpu, Machine};
pub use observe::{Load, Observation, VmSeen};
pub use optimiser::Optimiser;
pub use promise::{Promise, Service};
pub use reason::{Reason, Trigger};
pub use settings::{Means, Settings, Spread};
