// SPDX-License-Identifier: GPL-2.0-only
//! Pins on this machine: where it is remembered what they set, and who undoes it when this process is killed.
use crate::backend::cgroup::Place;
use crate::keeper::Keeper;
use crate::pins::{PinError, Pinned, Pinning, Pins};
use crate::register::VmKey;
use berth_actuator::Acting as Hands;
use berth_actuator::guardian::Guarded;
use berth_actuator::ledger::{Ledger, alone, this_boot};
use berth_actuator::live::Live;
use berth_host::root::Root;
use berth_optimiser::CpuSet;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of root's agents, wherever their sockets are.
const LOCK: &str = "/run/berth-pins.lock";

/// Where pins are remembered, beside what the optimiser changes.
pub fn folder(changes: &Path) -> PathBuf {
    changes.with_file_name("pins")
}

/// The pins of this machine.
pub struct Held {
    // Declared, and so dropped, before the guardian: there is nothing left for it.
    pins: Pins<Live>,
    guardian: Option<Guarded>,
    alone: Option<File>,
    state: PathBuf,
    program: Option<PathBuf>,
    lock: Option<PathBuf>,
}

impl Held {
    /// None yet. What an earlier agent that was killed has left pinned is undone.
    pub fn new(root: Root, place: &Place) -> Held {
        let mut held = Held {
            pins: Pins::new(root),
            guardian: None,
            alone: None,
            state: folder(&place.state),
            program: place.guardian.clone(),
            lock: place.lock.as_ref().map(|_| LOCK.into()),
        };
        // Where another agent is, or its guardian at work, there is nothing to do here; the first pin says so.
        if held.state.join("changes.json").exists() && held.begin().is_ok() {
            let _ = held.close();
        }
        held
    }

    /// Opens the ledger, and starts the guardian.
    fn begin(&mut self) -> Result<(), PinError> {
        if self.pins.has_hands() {
            return Ok(());
        }
        let refused = |e: berth_actuator::Error| PinError::Refused(e.to_string());
        let alone = self
            .lock
            .as_deref()
            .map(alone)
            .transpose()
            .map_err(refused)?;
        let ledger = Ledger::open(&self.state, &this_boot()?).map_err(refused)?;
        let (hands, _) = Hands::begin(Live::new(), ledger)?;
        if let Some(program) = &self.program {
            let mut command = Command::new(program);
            command.arg("guardian").arg(&self.state);
            let started = Guarded::start(&mut command);
            let why = |e| PinError::Refused(format!("the guardian cannot be started: {e}"));
            self.guardian = Some(started.map_err(why)?);
        }
        self.pins.take_hands(hands);
        self.alone = alone;
        Ok(())
    }

    /// Undoes what is left, and lets go.
    fn close(&mut self) -> Result<Vec<String>, PinError> {
        let report = self.pins.end();
        self.guardian = None;
        self.alone = None;
        Ok(report?.complaints())
    }

    pub fn pin(&mut self, host: &Keeper, vm: VmKey, pinning: Pinning) -> Result<Pinned, PinError> {
        self.begin()?;
        let done = self.pins.pin(host, vm, pinning);
        if self.pins.is_empty() {
            self.close()?;
        }
        done
    }

    /// How many pins were undone, and what of them could not be.
    pub fn unpin(
        &mut self,
        host: &Keeper,
        vm: Option<VmKey>,
    ) -> Result<(usize, Vec<String>), PinError> {
        let before = self.pins.len();
        let complaints = match vm {
            Some(vm) => match self.pins.unpin(host, vm)? {
                Some(report) => report.complaints(),
                None => Vec::new(),
            },
            None => self.close()?,
        };
        let undone = before - self.pins.len();
        if self.pins.is_empty() {
            self.close()?;
        }
        Ok((undone, complaints))
    }

    pub fn look(&mut self, host: &Keeper) -> Result<Vec<String>, PinError> {
        if self.guardian.as_mut().is_some_and(|g| !g.watches()) {
            self.close()?;
            let said = "the guardian of the pins, which undoes them if the agent is killed, has ended: they are undone";
            return Ok(vec![said.into()]);
        }
        let said = self.pins.look(host)?;
        if self.pins.is_empty() && self.pins.has_hands() {
            self.close()?;
        }
        Ok(said)
    }

    pub fn held(&self) -> BTreeMap<VmKey, Option<CpuSet>> {
        self.pins.held()
    }

    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    pub fn status(&self) -> Vec<Pinned> {
        self.pins.status()
    }
}
