// SPDX-License-Identifier: GPL-2.0-only
//! The network between clients and tasks. Stages and what is left out: `docs/network.md`.
//!
//! A request or reply travels as one [`parcel`] of one or more packets: [`link`] is the wire, [`state`] says where
//! parcels are, [`build`] makes the network of a scenario, [`path`] moves parcels on. With `net.stages`, [`detail`]
//! knows what each stage costs where, and [`staged`] moves parcels on in batches.
mod build;
mod detail;
mod link;
mod parcel;
mod path;
mod staged;
mod state;

pub use parcel::Cargo;
pub use state::{Net, NetStream};
