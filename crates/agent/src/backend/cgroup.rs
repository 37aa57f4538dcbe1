// SPDX-License-Identifier: GPL-2.0-only
//! Acting without a scheduler of one's own: the optimiser decides, and CPU sets, weights and caps of VMs are set. Works
//! on any kernel.
//!
//! ```text
//! observe     what the host shows of a second, for the optimiser
//! home        where a VM's CPU set, weight and cap are set: its cgroup, or its threads
//! freezer     VMs that run for a part of each period only
//! change      what of one VM is set or undone by a change
//! manager     from a decision to what is set, and what has become of it
//! parameters  the optimiser's settings, as an operator writes them
//! ```
mod change;
pub mod freezer;
pub mod home;
pub mod manager;
pub mod observe;
pub mod parameters;

use super::{Acting, Backend, Decided, End, Policy, Ready, Trouble, Value};
use crate::keeper::Keeper;
use crate::place::{Hold, Place, PlaceError};
use crate::register::Sink;
use berth_actuator::Host;
use berth_actuator::live::Live;
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_optimiser::{Decision, Settings};
use freezer::Write;
use manager::Manager;
use std::collections::BTreeMap;

/// The policy that this backend has.
pub const OPTIMISER: &str = "optimiser";

/// CPU sets, weights and caps on this machine.
#[derive(Debug)]
pub struct Cgroup {
    root: Root,
    place: Place,
}

impl Cgroup {
    pub fn new(root: Root, place: Place) -> Cgroup {
        Cgroup { root, place }
    }
}

impl Backend for Cgroup {
    fn able(&self) -> Result<(), Trouble> {
        Ok(())
    }

    fn obstacles(&self, _: &Snapshot, _: bool) -> Vec<String> {
        match self.root.is_live() {
            true => Vec::new(),
            false => vec![
                "this is a recorded host: what would be done is shown by berth optimise --dry-run"
                    .into(),
            ],
        }
    }

    fn danger(&self, _: &Snapshot) -> Option<String> {
        None
    }

    fn load(&self, policy: &Policy) -> Result<Box<dyn Ready>, Trouble> {
        Ok(Box::new(Prepared {
            settings: parameters::settings(&policy.parameters).map_err(Trouble::new)?,
            partial: policy.partial,
            root: self.root.clone(),
            place: self.place.clone(),
        }))
    }
}

struct Prepared {
    settings: Settings,
    partial: bool,
    root: Root,
    place: Place,
}

impl Ready for Prepared {
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        None
    }

    fn start(self: Box<Self>) -> Result<Box<dyn Acting>, Trouble> {
        let begun = self.place.begin()?;
        let mut manager = Manager::new(self.root, self.settings, self.partial, begun.hands)?;
        let host = Live::new();
        manager.freeze_by(Write(Box::new(move |knob, value| host.write(knob, value))));
        begun.left.into_iter().for_each(|what| manager.warn(what));
        Ok(Box::new(Running {
            manager,
            hold: begun.hold,
        }))
    }
}

struct Running {
    // Declared, and so dropped, before the guardian: there is nothing left for it.
    manager: Manager<Live>,
    hold: Hold,
}

impl Acting for Running {
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        None
    }

    fn look(&mut self, host: &Keeper) {
        self.manager.look(host);
    }

    fn decided(&self, vm: &str) -> Option<Decided> {
        self.manager.decided(vm)
    }

    fn decision(&self) -> Option<&Decision> {
        self.manager.decision()
    }

    fn is_fixed(&self, _: &str) -> bool {
        true
    }

    fn change(&mut self, parameter: &str, _: &Value) -> Result<(), Trouble> {
        Err(Trouble::new(format!("{parameter} is fixed when it begins")))
    }

    fn poll(&mut self) -> Result<Option<End>, Trouble> {
        let why = match self.hold.is_unguarded() {
            true => Some(
                "its guardian, which undoes everything if the agent is killed, has ended".into(),
            ),
            false => self.manager.over(),
        };
        Ok(why.map(|why| End { why, again: false }))
    }

    fn counters(&self) -> BTreeMap<String, u64> {
        self.manager.counters()
    }

    fn cpu_sets(&self) -> BTreeMap<String, String> {
        self.manager.cpu_sets()
    }

    fn warnings(&self) -> &[String] {
        self.manager.warnings()
    }

    fn end(self: Box<Self>) {
        drop(self);
    }
}

impl From<PlaceError> for Trouble {
    fn from(error: PlaceError) -> Trouble {
        Trouble::new(error)
    }
}

impl From<berth_optimiser::Error> for Trouble {
    fn from(error: berth_optimiser::Error) -> Trouble {
        Trouble::new(error)
    }
}
