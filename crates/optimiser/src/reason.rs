// SPDX-License-Identifier: GPL-2.0-only
//! Why: the reasons of decisions as data, each with its sentence. CPUs are CPUs, parts are of 1.
use crate::cpuset::CpuSet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a decision was due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The time between two decisions is over.
    Time,
    Started(String),
    Stopped(String),
    /// The demand of this VM made a step.
    Step(String),
    /// What this VM was promised, its vCPUs or where it is pinned is different.
    Promise(String),
    /// CPUs went offline or came back.
    Cpus,
    /// Changes wait for their VMs' last changes to be old enough.
    Held,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Time => write!(f, "it was time"),
            Trigger::Started(vm) => write!(f, "{vm} started"),
            Trigger::Stopped(vm) => write!(f, "{vm} stopped"),
            Trigger::Step(vm) => write!(f, "the demand of {vm} made a step"),
            Trigger::Promise(vm) => write!(f, "{vm} is promised something else"),
            Trigger::Cpus => write!(f, "CPUs came or went"),
            Trigger::Held => write!(f, "changes had to wait"),
        }
    }
}

/// What bounds a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// It gets all it wants.
    Demand,
    /// Its limit, or the CPUs on which it may run.
    Limit,
    /// What it is due by weight, beyond its guarantee.
    Weight,
    /// The part of its guarantee that there is room for.
    Guarantee,
    /// What every VM keeps.
    Floor,
    /// The CPUs to which it is pinned, together with others.
    Pin,
}

impl Bound {
    pub fn word(self) -> &'static str {
        match self {
            Bound::Demand => "demand",
            Bound::Limit => "limit",
            Bound::Weight => "weight",
            Bound::Guarantee => "guarantee",
            Bound::Floor => "floor",
            Bound::Pin => "pin",
        }
    }
}

/// Why a VM has the setting that it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Reason {
    /// A target with this demand, for which it has CPUs of its own.
    Dedicated { cpus: usize, demand: f64 },
    /// Its demand is too small for the CPUs it had to itself.
    Undedicated { cpus: usize, demand: f64 },
    /// CPUs of its own would break what others were promised, or there are none.
    NoneToDedicate { cpus: usize },
    /// Its share is more than the CPUs that it may have to itself.
    Outgrown { cpus: usize, share: f64 },
    /// Others have CPUs to themselves; there is enough for all on the rest.
    Pool { cpus: usize },
    /// All want more than there is: its share has these CPUs.
    Packed {
        share: f64,
        wanted: f64,
        there_is: f64,
    },
    /// Whole VMs do not fill CPUs evenly: it has so many together with others, divided by weight.
    Joined { cpus: usize },
    /// It is guaranteed something, and one of its CPUs has shares of so many CPUs on it: whole VMs do not fit better.
    Crowded { load: f64, guarantee: f64 },
    /// There is enough for all everywhere.
    Everywhere,
    /// Somebody else pinned it: its CPUs are left alone.
    Pinned { cpus: CpuSet },
    /// Somebody else pinned it to CPUs that are offline, and the kernel runs it on all: it is left alone.
    PinnedOffline { cpus: CpuSet },
    /// In want, weights hold up guarantees.
    Weighed { share: f64, guarantee: f64 },
    /// There is enough for all: its own weight.
    OwnWeight,
    /// It may not have more.
    Limited { limit: f64 },
    /// It wants more than its share, others go short, and no CPU sets can be used.
    OverShare { share: f64, demand: f64 },
    /// It has been seen to use this much when it was not frozen, and is due less of its CPUs.
    OverUse { due: f64, running: f64 },
    /// Neither caps nor freezing can be used: its limit does not hold.
    LimitNotKept { limit: f64 },
    /// The optimiser ends: all is as it was.
    Released,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Dedicated { cpus, demand } => {
                write!(
                    f,
                    "a target that wants {demand:.2} CPUs has {cpus} to itself"
                )
            }
            Reason::Undedicated { cpus, demand } => {
                write!(
                    f,
                    "it wants {demand:.2} CPUs, too little for {cpus} of its own"
                )
            }
            Reason::NoneToDedicate { cpus } => {
                write!(f, "{cpus} of its own would take what others were promised")
            }
            Reason::Outgrown { cpus, share } => {
                write!(
                    f,
                    "its share is {share:.3} CPUs, more than the {cpus} it may have to itself"
                )
            }
            Reason::Pool { cpus } => write!(f, "{cpus} are for those without CPUs of their own"),
            Reason::Packed {
                share,
                wanted,
                there_is,
            } => write!(
                f,
                "{wanted:.2} CPUs are wanted and {there_is:.2} are there: its share is {share:.3}"
            ),
            Reason::Joined { cpus } => write!(
                f,
                "whole VMs do not fill CPUs evenly: some have {cpus} together, by weight"
            ),
            Reason::Crowded { load, guarantee } => write!(
                f,
                "one of its CPUs is to do the work of {load:.3}: {guarantee:.3} guaranteed may fall short"
            ),
            Reason::Everywhere => write!(f, "there is enough for all"),
            Reason::Pinned { cpus } => write!(f, "somebody pinned it to {cpus}"),
            Reason::PinnedOffline { cpus } => {
                write!(
                    f,
                    "somebody pinned it to {cpus}, which are offline: the kernel runs it on all"
                )
            }
            Reason::Weighed { share, guarantee } => {
                write!(
                    f,
                    "its weight holds up its share, {share:.3} CPUs; {guarantee:.3} are its own when it wants them"
                )
            }
            Reason::OwnWeight => write!(f, "its own weight will do"),
            Reason::Limited { limit } => write!(f, "its limit is {limit:.3} CPUs"),
            Reason::OverShare { share, demand } => {
                write!(
                    f,
                    "it wants {demand:.2} CPUs of which {share:.3} are its share"
                )
            }
            Reason::OverUse { due, running } => {
                write!(
                    f,
                    "it takes {running:.3} CPUs when it is not frozen, and is due {due:.3}"
                )
            }
            Reason::LimitNotKept { limit } => {
                write!(
                    f,
                    "its limit of {limit:.3} CPUs is not kept: allow caps or freezing"
                )
            }
            Reason::Released => write!(f, "the optimiser ends"),
        }
    }
}
