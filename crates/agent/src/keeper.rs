// SPDX-License-Identifier: GPL-2.0-only
//! Keeps a policy's idea of VMs and threads right: looks at the host, describes what it finds, tells what is new.
use crate::describe::{Describer, Description, LeftOut};
use crate::register::{Changes, Register, Sink};
use crate::rules::Rules;
use berth_host::discover::Scanner;
use berth_host::model::{Snapshot, Vm};
use berth_host::root::Root;
use berth_scx::{ScxError, VmClass};
use std::io;

/// Gives the class of a VM of which the operator says nothing, if it can.
pub type Classes<'a> = dyn Fn(&Vm) -> Option<VmClass> + 'a;

/// Nobody says anything: every VM counts as batch.
pub fn no_classes(_: &Vm) -> Option<VmClass> {
    None
}

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("/proc cannot be read: {0}")]
    Look(#[from] io::Error),
    #[error("the policy cannot be told who its threads are: {0}")]
    Tell(#[from] ScxError),
}

/// Looks, describes, tells.
#[derive(Debug)]
pub struct Keeper {
    scanner: Scanner,
    describer: Describer,
    register: Register,
    snapshot: Snapshot,
    description: Description,
    rules: Rules,
}

impl Keeper {
    /// For a policy that knows nothing yet. `root` is this machine.
    pub fn new(root: Root, rules: Rules) -> Keeper {
        Keeper {
            scanner: Scanner::new(root.clone()),
            describer: Describer::new(root),
            register: Register::default(),
            snapshot: Snapshot::default(),
            description: Description::default(),
            rules,
        }
    }

    /// Looks at the host, without telling anybody.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn look(&mut self, classes: &Classes<'_>) -> io::Result<&Description> {
        self.snapshot = self.scanner.scan()?;
        self.description = self
            .describer
            .describe(&self.snapshot, &self.rules, classes);
        Ok(&self.description)
    }

    /// Tells the policy what is different from what it has been told.
    ///
    /// # Errors
    /// The policy does not take it.
    pub fn tell(&mut self, policy: &mut dyn Sink) -> Result<Changes, ScxError> {
        self.register.update(policy, &self.description.entries)
    }

    /// Looks and tells.
    ///
    /// # Errors
    /// As [`Keeper::look`] and [`Keeper::tell`].
    pub fn refresh(
        &mut self,
        policy: &mut dyn Sink,
        classes: &Classes<'_>,
    ) -> Result<Changes, KeepError> {
        self.look(classes)?;
        Ok(self.tell(policy)?)
    }

    /// Another policy has been loaded, which knows nothing.
    pub fn forget(&mut self) {
        self.register = Register::default();
    }

    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What discovery saw last.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What was made of it.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// VMs that the policy cannot be told of.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.description.left_out
    }
}
