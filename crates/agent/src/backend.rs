// SPDX-License-Identifier: GPL-2.0-only
//! The seam behind which there are ways of acting on a host. The agent is the same for all of them: it finds VMs, says
//! who they are ([`Sink`]), and takes back what it did. What it asks a [`Way`] itself is little: whether starved VMs
//! have to be watched for, who a VM's rules are told to, and what follows when one has failed.
//!
//! A new one is a file below `backend/` that implements [`Backend`], [`Ready`] and [`Acting`], a [`Way`], and its place
//! in [`Ways`].
use crate::keeper::Keeper;
use crate::register::Sink;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_identity::Scored;
use berth_optimiser::{Decision, Optimiser, Setting};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;

pub mod cgroup;
pub mod scx;

/// By what is acted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A policy in the kernel schedules threads.
    #[default]
    Scx,
    /// The optimiser sets CPU sets, weights and caps of VMs; any kernel will do.
    Cgroup,
    /// The first where it can act, the second where it cannot, or where it ended.
    Auto,
}

impl Way {
    /// As configurations have it.
    pub fn of(word: &str) -> Option<Way> {
        match word {
            "scx" => Some(Way::Scx),
            "cgroup" => Some(Way::Cgroup),
            "auto" => Some(Way::Auto),
            _ => None,
        }
    }
}

/// All ways of acting on a host.
pub struct Ways {
    pub scx: Box<dyn Backend>,
    pub cgroup: Box<dyn Backend>,
}

impl Ways {
    /// Those of this host.
    pub fn here(root: &Root, cgroup: crate::place::Place) -> Ways {
        Ways {
            scx: Box::new(scx::Scx::new(root.clone())),
            cgroup: Box::new(cgroup::Cgroup::new(root.clone(), cgroup)),
        }
    }
}

/// A way of acting on a host, while it does nothing.
pub trait Backend {
    /// Whether this kernel has what it takes.
    ///
    /// # Errors
    /// It has not, and which has.
    fn able(&self) -> Result<(), Trouble>;

    /// What keeps it from acting here, each in one sentence with what to do; none: it can. `ours`: a policy of this
    /// agent is acting, and does not count.
    fn obstacles(&self, vms: &Snapshot, ours: bool) -> Vec<String>;

    /// Why acting on these VMs must end at once, in a clause.
    fn danger(&self, vms: &Snapshot) -> Option<String>;

    /// Judges a policy and makes it ready, while another may still be acting.
    ///
    /// # Errors
    /// It cannot act here; nothing is left of it.
    fn load(&self, policy: &Policy) -> Result<Box<dyn Ready>, Trouble>;
}

/// A policy that has been found good and does not act yet. Dropped, nothing is left of it.
pub trait Ready {
    /// Who is told of VMs and threads; `None`: this policy has no use for that.
    fn sink(&mut self) -> Option<&mut dyn Sink>;

    /// Begins to act. No other policy of this agent does.
    ///
    /// # Errors
    /// It does not begin; nothing is left of it.
    fn start(self: Box<Self>) -> Result<Box<dyn Acting>, Trouble>;
}

/// A policy that acts. Dropped, everything that it did to the host is undone.
pub trait Acting {
    /// Who is told of VMs and threads; `None`: this policy has no use for that.
    fn sink(&mut self) -> Option<&mut dyn Sink>;

    /// The host has been looked at.
    fn look(&mut self, host: &Keeper);

    /// What was decided for a VM of this name, where that is decided VM by VM.
    fn decided(&self, _vm: &str) -> Option<Decided> {
        None
    }

    /// Groups whose CPU set it has set, with the list that they had before.
    fn cpu_sets(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// The last decision, where that is decided VM by VM.
    fn decision(&self) -> Option<&Decision> {
        None
    }

    /// By what the policy scores the VM of this slot, where it asks what VMs gain from fast cores.
    fn scored(&self, _slot: u32) -> Option<Scored> {
        None
    }

    /// Whether it has a parameter of this name that takes loading it anew.
    fn is_fixed(&self, parameter: &str) -> bool;

    /// Sets a parameter while it acts.
    ///
    /// # Errors
    /// There is no such parameter, it is fixed, or the value does not fit; the old one stays.
    fn change(&mut self, parameter: &str, value: &Value) -> Result<(), Trouble>;

    /// Why it acts no more, if it does not.
    ///
    /// # Errors
    /// That cannot be found out.
    fn poll(&mut self) -> Result<Option<End>, Trouble>;

    /// The policy's own counters since it began, by name; empty if they cannot be read.
    fn counters(&self) -> BTreeMap<String, u64>;

    /// What of the policy this host cannot do, each in one sentence.
    fn warnings(&self) -> &[String];

    /// Undoes everything, and returns when it is undone.
    fn end(self: Box<Self>);
}

/// How a policy ended that nobody had asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub why: String,
    /// Its CPUs came or went: it wants to be loaded again.
    pub again: bool,
}

/// What was decided for one VM, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// What it is set to.
    pub setting: Setting,
    /// CPUs it would use, and its share of the host.
    pub demand: f64,
    pub share: f64,
    /// One sentence each.
    pub reasons: Vec<String>,
}

impl Decided {
    /// Of a VM that was there at the optimiser's last decision.
    pub fn of(optimiser: &Optimiser, last: &Decision, vm: &str) -> Option<Decided> {
        let (setting, reasons) = optimiser.explain(vm)?;
        let allotment = last.allotments.iter().find(|a| a.vm == vm)?;
        Some(Decided {
            setting: setting.clone(),
            demand: allotment.demand,
            share: allotment.share,
            reasons: reasons.iter().map(ToString::to_string).collect(),
        })
    }
}

/// A policy to load, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// As the operator calls it.
    pub name: String,
    /// The object's, for reports.
    pub hash: String,
    /// Parameters that were set, as written.
    pub parameters: BTreeMap<String, String>,
    /// The same, checked and in the policy's own names.
    pub values: BTreeMap<String, Value>,
    /// Acts on the VMs that are named, and not on the whole host.
    #[serde(default)]
    pub partial: bool,
    #[serde(default)]
    pub backend: Way,
    /// The bytes of its file.
    #[serde(skip)]
    pub object: Vec<u8>,
}

impl Policy {
    /// What the second backend has, with its settings as they are by default.
    pub fn optimiser(partial: bool) -> Policy {
        Policy {
            name: cgroup::OPTIMISER.into(),
            hash: String::new(),
            parameters: BTreeMap::new(),
            values: BTreeMap::new(),
            partial,
            backend: Way::Cgroup,
            object: Vec::new(),
        }
    }
}

/// Of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    Number(i128),
    Text(String),
}

/// What a backend could not do, in a sentence of its own.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Trouble {
    why: Box<dyn Error + Send + Sync>,
    passing: bool,
}

impl Trouble {
    pub fn new(why: impl Into<Box<dyn Error + Send + Sync>>) -> Trouble {
        Trouble {
            why: why.into(),
            passing: false,
        }
    }

    /// The same may succeed in a moment.
    pub fn passing(why: impl Into<Box<dyn Error + Send + Sync>>) -> Trouble {
        Trouble {
            passing: true,
            ..Trouble::new(why)
        }
    }

    pub fn is_passing(&self) -> bool {
        self.passing
    }

    /// With another sentence.
    #[must_use]
    pub fn and(self, what: &str) -> Trouble {
        Trouble {
            why: format!("{}\n{what}", self.why).into(),
            passing: self.passing,
        }
    }
}
