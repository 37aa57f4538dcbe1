// SPDX-License-Identifier: GPL-2.0-only
//! Acting by sched_ext: the policy is a program in the kernel that schedules the host's threads.
mod obstacles;
pub mod partial;

use super::{Acting, Backend, End, Policy, Ready, Trouble, Value};
use crate::keeper::Keeper;
use crate::register::Sink;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_identity::{Scored, ThreadRecord, VmId, VmRecord};
use berth_scx::{LoadOptions, Loaded, Prepared, ScxError};
use partial::Partial;
use std::collections::BTreeMap;

/// sched_ext on this machine.
#[derive(Debug)]
pub struct Scx {
    root: Root,
}

impl Scx {
    pub fn new(root: Root) -> Scx {
        Scx { root }
    }
}

impl Backend for Scx {
    fn able(&self) -> Result<(), Trouble> {
        Ok(berth_scx::supported()?)
    }

    fn obstacles(&self, vms: &Snapshot, ours: bool) -> Vec<String> {
        obstacles::obstacles(&self.root, vms, ours)
    }

    fn danger(&self, vms: &Snapshot) -> Option<String> {
        obstacles::cookies(&self.root, vms)
    }

    fn load(&self, policy: &Policy) -> Result<Box<dyn Ready>, Trouble> {
        let prepared = Prepared::new(&policy.object, &options(policy))?;
        let partial = policy.partial.then(|| Partial::new(self.root.clone()));
        Ok(Box::new(Verified { prepared, partial }))
    }
}

/// How to load a policy's object.
pub fn options(policy: &Policy) -> LoadOptions {
    let values = policy.values.iter();
    LoadOptions {
        variables: values.map(|(name, v)| (name.clone(), value(v))).collect(),
        partial: policy.partial,
        ..LoadOptions::default()
    }
}

fn value(value: &Value) -> berth_scx::Value {
    match value {
        Value::Number(n) => berth_scx::Value::Number(*n),
        Value::Text(t) => berth_scx::Value::Text(t.clone()),
    }
}

/// The kernel's verifier has judged it.
struct Verified {
    prepared: Prepared,
    partial: Option<Partial>,
}

impl Ready for Verified {
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        sink(self.prepared.policy())
    }

    fn start(self: Box<Self>) -> Result<Box<dyn Acting>, Trouble> {
        Ok(Box::new(Running {
            partial: self.partial,
            loaded: self.prepared.start()?,
        }))
    }
}

struct Running {
    // Declared, and so dropped, before the policy that schedules the threads it gives back.
    partial: Option<Partial>,
    loaded: Loaded,
}

impl Acting for Running {
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        sink(&mut self.loaded)
    }

    fn look(&mut self, host: &Keeper) {
        if let Some(partial) = &mut self.partial {
            let rules = host.rules();
            let entries = host.description().entries.iter();
            let named: Vec<_> = entries.filter(|e| rules.names(&e.name)).collect();
            partial.give(&named);
        }
    }

    fn scored(&self, slot: u32) -> Option<Scored> {
        self.loaded.scored(slot)
    }

    fn is_fixed(&self, parameter: &str) -> bool {
        self.loaded.is_fixed(parameter)
    }

    fn change(&mut self, parameter: &str, new: &Value) -> Result<(), Trouble> {
        Ok(self.loaded.set_variable(parameter, &value(new))?)
    }

    fn poll(&mut self) -> Result<Option<End>, Trouble> {
        if self.loaded.poll()?.running() == Some(self.loaded.name()) {
            return Ok(None);
        }
        let record = self.loaded.final_record();
        let why = match &record {
            Ok(r) if r.ended() => r.to_string(),
            Ok(_) => "the kernel gave no reason".into(),
            Err(e) => e.to_string(),
        };
        let again = record.is_ok_and(|r| r.wants_restart());
        Ok(Some(End { why, again }))
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        // They are an extra.
        self.loaded.policy_counters().unwrap_or_default()
    }

    fn warnings(&self) -> &[String] {
        self.loaded.warnings()
    }

    fn end(self: Box<Self>) {
        drop(self.partial);
        // What its end says is of no use when it was asked for.
        let _ = self.loaded.unload();
    }
}

fn sink(loaded: &mut Loaded) -> Option<&mut dyn Sink> {
    match loaded.wants_identity() {
        true => Some(loaded),
        false => None,
    }
}

impl Sink for Loaded {
    fn set_vm(&mut self, id: VmId, vm: &VmRecord) -> Result<(), Trouble> {
        Ok(Loaded::set_vm(self, id, vm)?)
    }
    fn remove_vm(&mut self, id: VmId) -> Result<(), Trouble> {
        Ok(Loaded::remove_vm(self, id)?)
    }
    fn set_thread(&mut self, tid: u32, thread: &ThreadRecord) -> Result<(), Trouble> {
        Ok(Loaded::set_thread(self, tid, thread)?)
    }
    fn remove_thread(&mut self, tid: u32) -> Result<(), Trouble> {
        Ok(Loaded::remove_thread(self, tid)?)
    }
    fn identities_changed(&mut self) -> Result<(), Trouble> {
        Ok(Loaded::identities_changed(self)?)
    }
}

impl From<ScxError> for Trouble {
    fn from(error: ScxError) -> Trouble {
        match error.is_passing() {
            true => Trouble::passing(error),
            false => Trouble::new(error),
        }
    }
}
