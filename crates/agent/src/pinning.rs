// SPDX-License-Identifier: GPL-2.0-only
//! Pins on this machine: where it is remembered what they set, and who undoes it when this process is killed.
use crate::keeper::Keeper;
use crate::pins::standing::{Due, PinRule, Ruled};
use crate::pins::would::Plan;
use crate::pins::{PinError, Pinned, Pinning, Pins};
use crate::place::{Hold, Place, PlaceError};
use crate::register::VmKey;
use berth_actuator::Error;
use berth_actuator::live::Live;
use berth_host::root::Root;
use berth_optimiser::CpuSet;
use std::collections::BTreeMap;

/// The pins of this machine.
pub struct Held {
    // Declared, and so dropped, before the guardian: there is nothing left for it.
    pins: Pins<Live>,
    hold: Option<Hold>,
    place: Place,
    /// What an earlier agent had left, and has not been said.
    left: Vec<String>,
}

impl Held {
    /// None yet.
    pub fn new(root: Root, place: &Place) -> Held {
        Held {
            pins: Pins::new(root),
            hold: None,
            place: place.pins(),
            left: Vec::new(),
        }
    }

    /// Opens the ledger, and starts the guardian.
    fn begin(&mut self) -> Result<(), PinError> {
        if self.pins.has_hands() {
            return Ok(());
        }
        let begun = self.place.begin().map_err(|e| match e {
            PlaceError::Actuator(e @ Error::Held { .. }) => PinError::Refused(e.to_string()),
            PlaceError::Actuator(e) => PinError::Actuator(e),
            e @ PlaceError::Guardian(_) => PinError::Refused(e.to_string()),
        })?;
        self.pins.take_hands(begun.hands);
        self.hold = Some(begun.hold);
        self.left.extend(begun.left);
        Ok(())
    }

    /// Undoes what is left, and lets go.
    fn close(&mut self) -> Result<Vec<String>, PinError> {
        let report = self.pins.end();
        self.hold = None;
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

    /// What that would do to these VMs.
    pub fn would(
        &mut self,
        host: &Keeper,
        vms: &[VmKey],
        pinning: &Pinning,
        lent: BTreeMap<String, String>,
    ) -> Plan {
        self.pins.would(host, vms, pinning, lent)
    }

    /// VMs that are pinned when they appear.
    pub fn set_rules(&mut self, rules: Vec<PinRule>) {
        self.pins.set_rules(rules);
    }

    /// What the rules want done now; and what is worth saying.
    pub fn due(
        &mut self,
        host: &Keeper,
        lent: &dyn Fn() -> BTreeMap<String, String>,
    ) -> (Due, Vec<String>) {
        self.pins.due(host, lent)
    }

    /// Does it.
    pub fn follow_rules(&mut self, host: &Keeper, due: Due) -> Result<Vec<String>, PinError> {
        if !due.pin.is_empty()
            && let Err(e) = self.begin()
        {
            return Ok(self.pins.refuse_due(host, due, &e.to_string()));
        }
        let said = self.pins.follow_rules(host, due);
        if self.pins.is_empty() {
            self.close()?;
        }
        said
    }

    pub fn ruled(&self) -> Ruled {
        self.pins.ruled()
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
            None => {
                self.pins.set_rules_aside(
                    "all pins were undone by hand; they are in force again when the configuration is read again",
                );
                self.close()?
            }
        };
        let undone = before - self.pins.len();
        if self.pins.is_empty() {
            self.close()?;
        }
        Ok((undone, complaints))
    }

    pub fn look(&mut self, host: &Keeper) -> Result<Vec<String>, PinError> {
        if self.hold.as_mut().is_some_and(Hold::is_unguarded) {
            self.pins.set_rules_aside("their guardian has ended");
            self.close()?;
            let said = "the guardian of the pins, which undoes them if the agent is killed, has ended: they are undone";
            return Ok(vec![said.into()]);
        }
        let mut said = std::mem::take(&mut self.left);
        said.extend(self.pins.look(host)?);
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
