// SPDX-License-Identifier: GPL-2.0-only
//! What the rules want is done: first planned without setting anything, since whoever else acts on a VM is to let go of
//! it only if it can be pinned.
use super::standing::{Due, PinRule, Ruled};
use super::{PinError, Pins, find, follow};
use crate::keeper::Keeper;
use crate::register::VmKey;
use berth_actuator::Host;
use std::collections::BTreeMap;

impl<H: Host> Pins<H> {
    /// VMs that are pinned when they appear, by name; the first rule that fits counts. In place of those before.
    pub fn set_rules(&mut self, rules: Vec<PinRule>) {
        self.standing.give(rules);
    }

    /// The rules are in force no more, until they are given again; what is pinned stays so until it is unpinned.
    pub fn set_rules_aside(&mut self, why: &str) {
        self.standing.set_aside(why);
    }

    /// What the rules want done now, and can be: whoever else has set something of these lets go of it first, also of
    /// the CPU sets of groups that are `lent` to it, with what these were before. Gives what is worth saying, too.
    pub fn due(
        &mut self,
        host: &Keeper,
        lent: &dyn Fn() -> BTreeMap<String, String>,
    ) -> (Due, Vec<String>) {
        let online = follow::online(&self.root);
        let pins = &self.pins;
        let mut due = self
            .standing
            .due(host.snapshot(), self.root.now(), &online, &|vm| {
                pins.contains_key(&vm)
            });
        if due.pin.is_empty() {
            return (due, Vec::new());
        }
        let asked = due.pin.iter().map(|(vm, r)| (*vm, r.pinning.clone()));
        let refused = self.rehearsed(host, asked.collect(), lent(), |_, tried| tried.refused);
        let said = self.refused_by_rule(host, &mut due, &refused);
        (due, said)
    }

    /// These cannot be pinned: they are due no more. Gives what has not been said before.
    fn refused_by_rule(
        &mut self,
        host: &Keeper,
        due: &mut Due,
        refused: &[(VmKey, String)],
    ) -> Vec<String> {
        let mut said = Vec::new();
        for (vm, why) in refused {
            let Some(at) = due.pin.iter().position(|(of, _)| of == vm) else {
                continue;
            };
            let (_, rule) = due.pin.remove(at);
            if self.standing.refused(*vm, why) {
                let name = find(host.snapshot(), *vm).map_or("", |vm| vm.name.as_str());
                said.push(format!(
                    "VM {name} is not pinned, as the rule for {} says: {why}",
                    rule.name.escape_debug()
                ));
            }
        }
        said
    }

    /// Nothing of what is due can be done.
    pub fn refuse_due(&mut self, host: &Keeper, mut due: Due, why: &str) -> Vec<String> {
        let all: Vec<_> = due.pin.iter().map(|(vm, _)| (*vm, why.into())).collect();
        self.refused_by_rule(host, &mut due, &all)
    }

    /// Does what the rules want. Gives what is worth saying.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub fn follow_rules(&mut self, host: &Keeper, mut due: Due) -> Result<Vec<String>, PinError> {
        let mut said = Vec::new();
        for vm in std::mem::take(&mut due.unpin) {
            let name = self.pins.get(&vm).map(|pin| pin.name.clone());
            self.standing.let_go(vm);
            if let (Some(report), Some(name)) = (self.undo(host, vm)?, name) {
                said.push(format!("VM {name} is unpinned: its rule is no more"));
                said.extend(report.complaints());
            }
        }
        if due.pin.is_empty() {
            return Ok(said);
        }
        let asked = due.pin.iter().map(|(vm, r)| (*vm, r.pinning.clone()));
        let refused = self.pin_all(host, asked.collect())?;
        said.extend(self.refused_by_rule(host, &mut due, &refused));
        for (vm, rule) in due.pin {
            let Some(pin) = self.pins.get(&vm) else {
                continue;
            };
            let set = self.applied.values().filter(|(_, of)| *of == vm).count();
            said.push(format!(
                "VM {} pinned ({}), as the rule for {} says: {set} values set",
                pin.name,
                pin.acts(),
                rule.name.escape_debug()
            ));
            said.extend(
                pin.complaints
                    .iter()
                    .map(|c| format!("VM {}: {c}", pin.name)),
            );
            self.standing.holds(vm, rule);
        }
        Ok(said)
    }

    /// What has become of the rules.
    pub fn ruled(&self) -> Ruled {
        self.standing.status()
    }
}
