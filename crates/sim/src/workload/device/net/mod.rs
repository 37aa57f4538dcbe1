// SPDX-License-Identifier: GPL-2.0-only
//! The network between clients and tasks. Stages and what is left out: `docs/network.md`.
//!
//! A request or reply travels as one parcel of one or more packets: [`link`] is the wire, [`state`] says where parcels
//! are, [`build`] makes the network of a scenario, [`path`] moves parcels on.
mod build;
mod link;
mod path;
mod state;

pub use state::{Cargo, Net};
