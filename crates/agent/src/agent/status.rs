// SPDX-License-Identifier: GPL-2.0-only
//! What an agent says of itself and its VMs.
use super::Agent;
use crate::backend::{Decided, Way};
use crate::describe::Remark;
use crate::pinning::Held;
use crate::pins::Pinned;
use crate::pins::standing::Ruled;
use crate::register::Entry;
use berth_identity::Scored;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who said of which class a VM is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassFrom {
    /// The operator.
    Configuration,
    /// What the VM does.
    Automatic,
    /// Nobody yet: batch. Or it is not among those named: none.
    Default,
}

impl ClassFrom {
    /// For tables.
    pub fn word(self) -> &'static str {
        match self {
            ClassFrom::Configuration => "said",
            ClassFrom::Automatic => "seen",
            ClassFrom::Default => "-",
        }
    }
}

/// One VM in a status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmStatus {
    pub name: String,
    pub class: String,
    pub class_from: ClassFrom,
    /// The class that it seems to be of by what it does, and the evidence; none before it has been watched for a while.
    pub seems: Option<(String, String)>,
    pub weight: u32,
    /// In CPUs.
    pub cap: Option<f64>,
    pub vcpus: u32,
    pub threads: usize,
    /// Milliseconds from the start of its process until the policy knew all its vCPUs; none if it was there before the
    /// policy.
    pub known_after_ms: Option<u64>,
    /// Among those that the policy acts on by name.
    pub named: bool,
    /// What was decided for it, where that is decided VM by VM.
    #[serde(default)]
    pub decided: Option<Decided>,
    /// What the policy reckons that it gains from fast cores, and whence it knows.
    #[serde(default)]
    pub scored: Option<Scored>,
}

/// The policy in a status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyStatus {
    pub name: String,
    pub hash: String,
    pub parameters: BTreeMap<String, String>,
    pub partial: bool,
    /// By what it acts.
    #[serde(default)]
    pub backend: Way,
    /// The policy in whose place this one acts, and why.
    #[serde(default)]
    pub instead_of: Option<(String, String)>,
    pub seconds: f64,
    /// The policy's own counters since it was loaded.
    pub counters: BTreeMap<String, u64>,
    pub warnings: Vec<String>,
}

/// What the agent does now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// None: it only watches.
    pub policy: Option<PolicyStatus>,
    pub vms: Vec<VmStatus>,
    /// VMs that are known by their process only, and why.
    pub by_process: Vec<(String, String)>,
    /// VMs that no policy can be told of, and why.
    pub left_out: Vec<(String, String)>,
    pub only: Vec<String>,
    /// Why the last policy ended, if it did not end by request.
    pub trouble: Option<String>,
    /// VMs that the operator has pinned.
    #[serde(default)]
    pub pins: Vec<Pinned>,
    /// What has become of the configuration's pins.
    #[serde(default)]
    pub ruled: Ruled,
}

impl Agent {
    /// What it does now.
    pub fn status(&self) -> Status {
        let rules = self.keeper.rules();
        let class_from = |e: &Entry| match (rules.names(&e.name), rules.class(&e.name)) {
            (false, _) => ClassFrom::Default,
            (true, Some(_)) => ClassFrom::Configuration,
            (true, None) if self.keeper.guess(e.key).is_some() => ClassFrom::Automatic,
            (true, None) => ClassFrom::Default,
        };
        let vm = |e: &Entry| VmStatus {
            name: e.name.clone(),
            class: e.class.word().into(),
            class_from: class_from(e),
            known_after_ms: self.keeper.known_after(e.key).map(|d| d.as_millis() as u64),
            seems: self
                .keeper
                .guess(e.key)
                .map(|g| (g.class.word().into(), g.why.clone())),
            weight: e.weight,
            cap: e.cap_milli.map(|c| f64::from(c) / 1000.0),
            vcpus: e.vcpus,
            threads: e.threads.len(),
            named: rules.names(&e.name),
            decided: self
                .running
                .as_ref()
                .and_then(|r| r.acting.decided(&e.name)),
            scored: self.running.as_ref().and_then(|r| {
                let slot = self.keeper.slot(e.key)?;
                r.acting.scored(slot)
            }),
        };
        let policy = self.running.as_ref().map(|a| PolicyStatus {
            name: a.policy.name.clone(),
            hash: a.policy.hash.clone(),
            parameters: a.policy.parameters.clone(),
            partial: a.policy.partial,
            backend: match a.policy.backend {
                Way::Cgroup => Way::Cgroup,
                Way::Scx | Way::Auto => Way::Scx,
            },
            instead_of: self
                .instead
                .as_ref()
                .map(|i| (i.policy.name.clone(), i.why.clone())),
            seconds: (self.root.now() - a.since).as_secs_f64(),
            counters: a.acting.counters(),
            warnings: a
                .before_it
                .iter()
                .chain(a.acting.warnings())
                .cloned()
                .collect(),
        });
        let found = self.keeper.description();
        let pairs = |of: &[Remark]| of.iter().map(|r| (r.vm.clone(), r.why.clone())).collect();
        Status {
            policy,
            vms: found.entries.iter().map(vm).collect(),
            by_process: pairs(&found.by_process),
            left_out: pairs(&found.left_out),
            only: rules.only.clone(),
            trouble: self.trouble.clone(),
            pins: self.pins.as_ref().map_or(Vec::new(), Held::status),
            ruled: self.pins.as_ref().map_or(Ruled::default(), Held::ruled),
        }
    }
}
