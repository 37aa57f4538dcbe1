// SPDX-License-Identifier: GPL-2.0-only
//! Acting without a scheduler of one's own: the optimiser decides, and CPU sets, weights and caps of VMs are set. Works
//! on any kernel.
//!
//! ```text
//! observe     what the host shows of a second, for the optimiser
//! home        where a VM's CPU set, weight and cap are set: its cgroup, or its threads
//! freezer     VMs that run for a part of each period only
//! manager     from a decision to what is set, and what has become of it
//! parameters  the optimiser's settings, as an operator writes them
//! ```
pub mod freezer;
pub mod home;
pub mod manager;
pub mod observe;
pub mod parameters;

use super::{Acting, Backend, Decided, End, Policy, Ready, Trouble, Value};
use crate::keeper::Keeper;
use crate::register::Sink;
use berth_actuator::guardian::Guarded;
use berth_actuator::ledger::{Ledger, alone, this_boot};
use berth_actuator::live::Live;
use berth_actuator::{Acting as Hands, Error, Host};
use berth_host::model::Snapshot;
use berth_host::root::Root;
use berth_optimiser::Settings;
use freezer::Write;
use manager::Manager;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The policy that this backend has.
pub const OPTIMISER: &str = "optimiser";

/// Where what was changed is remembered, and who undoes it when this process is killed.
#[derive(Clone, Debug)]
pub struct Place {
    /// A folder that is made if it is not there.
    pub state: PathBuf,
    /// The program that becomes the guardian if it is called with `guardian` and the folder; none: nobody.
    pub guardian: Option<PathBuf>,
    /// A file that one process on this host may hold, since two would fight; none: this user's own VMs only.
    pub lock: Option<PathBuf>,
}

/// Of root's agents, wherever their sockets are.
const LOCK: &str = "/run/berth-optimiser.lock";

impl Place {
    /// Beside the agent's socket; the guardian is this program.
    pub fn beside(socket: &Path) -> Place {
        Place {
            state: socket.parent().unwrap_or(Path::new("/")).join("changes"),
            guardian: std::env::current_exe().ok(),
            lock: rustix::process::geteuid().is_root().then(|| LOCK.into()),
        }
    }
}

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
        let alone = self.place.lock.as_deref().map(alone).transpose()?;
        let ledger = Ledger::open(&self.place.state, &this_boot()?)?;
        let (hands, left) = Hands::begin(Live::new(), ledger)?;
        let mut manager = Manager::new(self.root, self.settings, self.partial, hands)?;
        let host = Live::new();
        manager.freeze_by(Write(Box::new(move |knob, value| {
            !matches!(host.write(knob, value), Err(Error::Gone { .. }))
        })));
        if !left.outcomes.is_empty() {
            let n = left.outcomes.len();
            manager.warn(format!(
                "{n} changes of an earlier process that was killed have been undone"
            ));
        }
        let guardian =
            match &self.place.guardian {
                Some(program) => {
                    let mut command = Command::new(program);
                    command.arg("guardian").arg(&self.place.state);
                    let started = Guarded::start(&mut command);
                    Some(started.map_err(|e| {
                        Trouble::new(format!("the guardian cannot be started: {e}"))
                    })?)
                }
                None => None,
            };
        Ok(Box::new(Running {
            manager,
            guardian,
            _alone: alone,
        }))
    }
}

struct Running {
    // Declared, and so dropped, before the guardian: there is nothing left for it.
    manager: Manager<Live>,
    guardian: Option<Guarded>,
    _alone: Option<File>,
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

    fn change(&mut self, _: &str, _: &Value) -> Result<bool, Trouble> {
        Ok(false)
    }

    fn poll(&mut self) -> Result<Option<End>, Trouble> {
        let lost = self.guardian.as_mut().is_some_and(|g| !g.watches());
        let why = match lost {
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

    fn warnings(&self) -> &[String] {
        self.manager.warnings()
    }

    fn end(self: Box<Self>) {
        drop(self);
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::new(error)
    }
}

impl From<berth_optimiser::Error> for Trouble {
    fn from(error: berth_optimiser::Error) -> Trouble {
        Trouble::new(error)
    }
}
