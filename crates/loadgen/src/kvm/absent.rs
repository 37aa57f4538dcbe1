// SPDX-License-Identifier: GPL-2.0-only
//! Stands in for micro-VMs on machines for which there is no guest: everything else is the same there.
use crate::LoadError;
use crate::form::Form;
use crate::mailbox::Message;
use crate::metrics::Latencies;
use crate::shared::{Shared, Slot};
use berth_scenario::model::{Nanos, Scenario};
use std::convert::Infallible;
use std::sync::Arc;

/// Why there are no micro-VMs.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    #[error("micro-VMs have a guest for x86-64 only, this machine is {0}")]
    Machine(&'static str),
}

/// There is none.
#[derive(Debug)]
pub(crate) struct Machine(Infallible);

impl Machine {
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    pub fn work(&self, _: u32) -> Counter {
        match self.0 {}
    }

    pub fn start_at(&self, _: Nanos, _: (Nanos, Nanos)) {
        match self.0 {}
    }

    pub fn stop(&self) {
        match self.0 {}
    }

    pub fn put(&self, _: &str, _: &Message) -> bool {
        match self.0 {}
    }
}

/// Nobody counts.
#[derive(Clone, Debug)]
pub(crate) struct Counter(Infallible);

impl Counter {
    pub fn get(&self) -> u64 {
        match self.0 {}
    }
}

/// Nobody runs.
pub(crate) struct Vcpu(Infallible);

impl Vcpu {
    pub fn new(_: Arc<Shared>, machine: Arc<Machine>, _: Arc<Slot>) -> Vcpu {
        match machine.0 {}
    }

    pub fn run(self) -> Result<Latencies, LoadError> {
        match self.0 {}
    }
}

/// # Errors
/// Always.
pub(crate) fn fits(_: &Scenario) -> Result<(), LoadError> {
    Err(KvmError::Machine(std::env::consts::ARCH).into())
}

/// # Errors
/// Always.
pub(crate) fn form(_: &Scenario, _: u64) -> Result<Form, LoadError> {
    Err(KvmError::Machine(std::env::consts::ARCH).into())
}
