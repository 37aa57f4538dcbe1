// SPDX-License-Identifier: GPL-2.0-only
//! Acting on a host without a scheduler of one's own: CPU sets, weights and caps of VMs' cgroups, CPU affinity of their
//! threads.
//!
//! What is changed is remembered first, in a file that outlives this process ([`ledger`]); it is read back after
//! ([`Acting::set`]), and undone exactly (`restore`), by this process or by the next one. What somebody else has
//! changed meanwhile is his: it is left alone, and said.
//!
//! What is systemd's to set, it is asked to ([`systemd`]).
//!
//! [`Host`] is what can be set ([`live`] is this machine); what is to be set is decided elsewhere.
mod acting;
mod cpus;
mod error;
pub mod guardian;
mod knob;
pub mod ledger;
pub mod live;
pub mod lock;
mod restore;
pub mod systemd;
pub mod unit;

pub use acting::{Acting, Outcome, Report};
pub use cpus::{list, of_mask, read as cpus, same};
pub use error::Error;
pub use knob::{ALL, HERE, Host, Knob, MADE, NOWHERE};
pub use restore::{restore, restore_all};

#[cfg(test)]
mod testing;
