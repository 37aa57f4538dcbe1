// SPDX-License-Identifier: GPL-2.0-only
//! Pins by rule: the configuration says of VMs, by name, how they are pinned when they appear. What is done by hand
//! goes first: a VM that is pinned otherwise stays so, one that is unpinned is left alone, until the rules are given
//! again or the VM starts anew.
use super::Pinning;
use crate::register::VmKey;
use crate::rules::fits;
use berth_host::model::{Snapshot, Vm};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A VM is pinned when all its vCPUs are known, or after so long.
const GROWN: Duration = Duration::from_secs(2);
/// One that cannot be pinned is tried again so often, and when its vCPUs or the host's CPUs have changed.
const AGAIN: Duration = Duration::from_secs(10);

/// VMs whose names fit are pinned so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRule {
    /// `web*`
    pub name: String,
    pub pinning: Pinning,
}

/// What has become of the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ruled {
    /// The names of all rules, in their order.
    pub rules: Vec<String>,
    /// Why none of them is in force any more.
    pub aside: Option<String>,
    /// VMs that are not pinned, though a rule fits, and why.
    pub not: Vec<(String, String)>,
}

/// A VM that a rule fits and that is not pinned yet.
#[derive(Debug)]
struct Waiting {
    name: String,
    since: Instant,
    /// When it was tried, with how many vCPUs, and which CPUs were online.
    tried: Option<(Instant, u32, String)>,
    why: Option<String>,
}

/// The rules, and what was done by them.
#[derive(Debug, Default)]
pub struct Standing {
    rules: Vec<PinRule>,
    aside: Option<String>,
    /// By which rule a VM is pinned.
    holds: BTreeMap<VmKey, PinRule>,
    /// Unpinned by hand.
    by_hand: BTreeMap<VmKey, String>,
    waiting: BTreeMap<VmKey, Waiting>,
    /// The rules are new: what was done by the ones before is to be looked through.
    fresh: bool,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    pub pin: Vec<(VmKey, PinRule)>,
    /// The rule by which these are pinned is no more. Before the others.
    pub unpin: Vec<VmKey>,
}

impl Standing {
    /// These, in place of those before; all of them are in force.
    pub fn give(&mut self, rules: Vec<PinRule>) {
        self.rules = rules;
        self.aside = None;
        self.by_hand.clear();
        self.waiting.clear();
        self.fresh = true;
    }

    /// None of them is in force until they are given again.
    pub fn set_aside(&mut self, why: &str) {
        if !self.rules.is_empty() && self.aside.is_none() {
            self.aside = Some(why.into());
        }
        self.holds.clear();
        self.by_hand.clear();
        self.waiting.clear();
    }

    fn rule(&self, name: &str) -> Option<&PinRule> {
        self.rules.iter().find(|r| fits(&r.name, name))
    }

    /// What is to be done now; `pinned`: whether a VM is.
    pub fn due(
        &mut self,
        vms: &Snapshot,
        now: Instant,
        online: &str,
        pinned: &dyn Fn(VmKey) -> bool,
    ) -> Due {
        let fresh = std::mem::take(&mut self.fresh);
        if self.aside.is_some() || (self.rules.is_empty() && self.holds.is_empty()) {
            return Due::default();
        }
        self.forget_ended(vms);
        let mut due = Due::default();
        for vm in &vms.vms {
            let key = super::key(vm);
            let by = self.holds.get(&key);
            let by_hand = by.is_none() && (pinned(key) || self.by_hand.contains_key(&key));
            if by_hand || (by.is_some() && !fresh) {
                continue;
            }
            let rule = self.rule(&vm.name);
            if by.is_some() && by == rule {
                continue;
            }
            let (has_rule, rule) = (by.is_some(), rule.cloned());
            if has_rule {
                due.unpin.push(key);
            }
            if let Some(rule) = rule
                && self.is_time(key, vm, now, online)
            {
                due.pin.push((key, rule));
            }
        }
        due
    }

    fn forget_ended(&mut self, vms: &Snapshot) {
        let there: BTreeSet<VmKey> = vms.vms.iter().map(|vm| super::key(vm)).collect();
        self.holds.retain(|key, _| there.contains(key));
        self.by_hand.retain(|key, _| there.contains(key));
        self.waiting.retain(|key, _| there.contains(key));
    }

    /// Whether a VM that waits is tried now; it counts as tried then.
    fn is_time(&mut self, key: VmKey, vm: &Vm, now: Instant, online: &str) -> bool {
        let known = vm.known_vcpus();
        let wait = self.waiting.entry(key).or_insert_with(|| Waiting {
            name: vm.name.clone(),
            since: now,
            tried: None,
            why: None,
        });
        let time = match &wait.tried {
            None => (known > 0 && known >= vm.vcpus) || now - wait.since >= GROWN,
            Some((at, vcpus, cpus)) => {
                now - *at >= AGAIN || *vcpus != known || cpus.as_str() != online
            }
        };
        if time {
            wait.tried = Some((now, known, online.into()));
        }
        time
    }

    /// It is pinned by this rule.
    pub fn holds(&mut self, vm: VmKey, rule: PinRule) {
        self.waiting.remove(&vm);
        self.holds.insert(vm, rule);
    }

    /// It cannot be pinned by its rule; true: nobody has been told so yet.
    pub fn refused(&mut self, vm: VmKey, why: &str) -> bool {
        let Some(wait) = self.waiting.get_mut(&vm) else {
            return false;
        };
        let new = wait.why.as_deref() != Some(why);
        wait.why = Some(why.into());
        new
    }

    /// It is pinned by hand now.
    pub fn pinned_by_hand(&mut self, vm: VmKey) {
        self.holds.remove(&vm);
        self.waiting.remove(&vm);
        self.by_hand.remove(&vm);
    }

    /// It is unpinned by hand.
    pub fn unpinned_by_hand(&mut self, vm: VmKey, name: &str) {
        self.holds.remove(&vm);
        if self.rule(name).is_some() {
            self.by_hand.insert(vm, name.into());
        }
    }

    /// It is unpinned, since its rule is no more.
    pub fn let_go(&mut self, vm: VmKey) {
        self.holds.remove(&vm);
    }

    /// The name in the rule by which a VM is pinned.
    pub fn of(&self, vm: VmKey) -> Option<&str> {
        self.holds.get(&vm).map(|rule| rule.name.as_str())
    }

    pub fn status(&self) -> Ruled {
        let by_hand = self.by_hand.values().map(|name| {
            let why = "it was unpinned by hand; the rule is in force again when the configuration is read again";
            (name.clone(), why.to_string())
        });
        let waiting = self.waiting.values();
        let waiting = waiting.filter_map(|w| Some((w.name.clone(), w.why.clone()?)));
        let mut not: Vec<(String, String)> = waiting.chain(by_hand).collect();
        not.sort_unstable();
        Ruled {
            rules: self.rules.iter().map(|r| r.name.clone()).collect(),
            aside: self.aside.clone(),
            not,
        }
    }
}
