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
//! pins                                  what VMs have of the CPUs to which somebody else pinned them together
//! owners, dedicate                      who has CPUs of its own, and which
//! place, pack                           where the others run: one pool, or packed by their shares
//! act, due, duty                        shares as weights, caps and freezing; what VMs would have by them; when frozen
//!                                       VMs have their turns
//! plan                                  from shares to what each VM is to be set to
//! hysteresis                            which settings are worth a change
//! known, optimiser                      what is remembered of a VM; all of it, one observation after the other
//! decision, reason                      what comes out
//! ```
//!
//! ```
//! use berth_optimiser::{Cpu, Load, Observation, Optimiser, Promise, Service, Settings, VmSeen};
//!
//! let vm = |name: &str, promise| VmSeen {
//!     name: name.into(),
//!     vcpus: 1,
//!     promise,
//!     pinned: None,
//!     load: Load { ran_ns: 600_000_000, run_delay_ns: 400_000_000 },
//! };
//! let target = Promise { service: Service::Target, guarantee: 0.95, ..Promise::default() };
//! let seen = Observation {
//!     at_ns: 1_000_000_000,
//!     span_ns: 1_000_000_000,
//!     cpus: Cpu::flat(2),
//!     vms: vec![vm("web", target), vm("batch", Promise::default())],
//!     ..Observation::default()
//! };
//! let mut optimiser = Optimiser::new(Settings::default())?;
//! let decision = optimiser.observe(&seen)?.expect("VMs started");
//! let web = decision.changes.iter().find(|c| c.vm == "web").expect("it gets a CPU");
//! assert_eq!(web.to.cpus.as_ref().map(|c| c.to_string()), Some("1".into()));
//! assert_eq!(web.reasons[0].to_string(), "a target that wants 1.00 CPUs has 1 to itself");
//! # Ok::<(), berth_optimiser::Error>(())
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
pub mod due;
pub mod duty;
pub mod error;
pub mod hysteresis;
mod known;
pub mod machine;
pub mod observe;
pub mod optimiser;
pub mod owners;
pub mod pack;
pub mod pins;
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
