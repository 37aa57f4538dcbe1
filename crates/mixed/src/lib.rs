// SPDX-License-Identifier: GPL-2.0-only
//! Which processes of a mixed VM run on the vCPUs that it reserves for I/O.
//!
//! A mixed VM computes and serves I/O. Some of its vCPUs are reserved for I/O, and the hypervisor gives those short
//! slices. The processes of its users start on the other vCPUs; one that hardly computes belongs on the reserved ones,
//! where it need not wait for those that do.
//!
//! A pure library: no I/O, no clock. Observations go in ([`Observation`]: who there is and what each has used),
//! decisions come out ([`Decision`]: who changes sides, with the reason as data). Equal observations give equal
//! decisions. What decides of a process is that process alone.
//!
//! ```text
//! observe, settings   what goes in
//! sorter              what is remembered of each process; one observation after the other
//! decision, reason    what comes out
//! ```
//!
//! ```
//! use berth_mixed::{Observation, Process, Seen, Settings, Side, Sorter, Standing};
//!
//! let shell = Process { number: 4711, start: 100 };
//! let seen = |second: u64, ran_ns| Observation {
//!     at_ns: second * 1_000_000_000,
//!     processes: vec![Seen { process: shell, uid: 1000, ran_ns, standing: Standing::Free }],
//! };
//! let mut sorter = Sorter::new(Settings::default())?;
//! let first = sorter.observe(&seen(0, 0))?;
//! assert_eq!(first.changes[0].to, Some(Side::Compute));
//! sorter.observe(&seen(1, 10_000_000))?;
//! sorter.observe(&seen(2, 20_000_000))?;
//! let decision = sorter.observe(&seen(3, 25_000_000))?;
//! assert_eq!(decision.changes[0].to, Some(Side::Reserved));
//! assert_eq!(decision.changes[0].reason.to_string(), "used at most 1.0 % of a vCPU in each of 3 periods");
//! # Ok::<(), berth_mixed::Error>(())
//! ```
//!
//! Source: FLMS, section 3.1 (a mixed VM's processes start on the vCPUs that are not reserved; one of a user with very
//! low CPU use is moved). Who detects it and what is very low, the paper does not say: thresholds and hysteresis are
//! Berth's.
pub mod decision;
pub mod error;
pub mod observe;
pub mod reason;
pub mod settings;
pub mod sorter;

pub use decision::{Change, Decision, Side};
pub use error::Error;
pub use observe::{Observation, Process, Seen, Standing};
pub use reason::Reason;
pub use settings::Settings;
pub use sorter::{Row, Sorter};
