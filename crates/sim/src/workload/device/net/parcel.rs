// SPDX-License-Identifier: GPL-2.0-only
//! What travels: a request or a reply, of one packet or more.
use crate::words::{CpuId, Nanos};

/// A client's request on its way in, or the reply on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cargo {
    /// When the client sent the request, ns.
    pub sent: Nanos,
    /// Position of the client's stream in what `Net::new` was given.
    pub stream: u32,
    /// Number of the user in its stream.
    pub user: u32,
    /// It is a reply.
    pub out: bool,
}

/// Cargo at a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parcel {
    pub cargo: Cargo,
    /// Since when it is in its present stage.
    pub since: Nanos,
    /// The CPU that brought it here.
    pub cpu: CpuId,
    /// An acknowledgement that another one stands for: it goes along for nothing.
    pub rides: bool,
}
