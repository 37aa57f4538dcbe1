// SPDX-License-Identifier: GPL-2.0-only
//! What comes out: who gets how much and why, and what to change.
use crate::act::Setting;
use crate::admission::Misfit;
use crate::reason::{Bound, Reason, Trigger};
use serde::{Deserialize, Serialize};

/// One decision. With `changes` empty everything stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Time of the observation, ns.
    pub at_ns: u64,
    pub triggers: Vec<Trigger>,
    /// CPUs online, and those to be divided: without the reserve.
    pub online: usize,
    pub capacity: f64,
    /// As observed.
    pub pressure: Option<f64>,
    /// By name.
    pub allotments: Vec<Allotment>,
    /// CPUs for what is no VM, beyond the reserve.
    pub host: f64,
    /// Guarantees for which there is no room, in the order in which their VMs came.
    pub misfits: Vec<Misfit>,
    /// By name, at most one for each VM.
    pub changes: Vec<Change>,
    /// VMs whose last change is too young for another one, by name.
    pub held: Vec<String>,
}

/// What one VM gets, CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allotment {
    pub vm: String,
    /// What it would use.
    pub demand: f64,
    pub share: f64,
    pub bound: Bound,
}

/// One VM is to be set otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub vm: String,
    pub from: Setting,
    pub to: Setting,
    pub reasons: Vec<Reason>,
}
