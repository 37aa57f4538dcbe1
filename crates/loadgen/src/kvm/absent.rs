// SPDX-License-Identifier: GPL-2.0-only
//! Stands in for micro-VMs on machines for which there is no guest: everything else is the same there.
use crate::LoadError;
use crate::form::Form;
use crate::mailbox::{Asker, Message};
use crate::metrics::Latencies;
use crate::shared::{Shared, Slot};
use crate::sys::Clock;
use berth_scenario::model::{Nanos, Scenario};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Why there are no micro-VMs.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    #[error("micro-VMs have a guest for x86-64 only, this machine is {0}")]
    Machine(&'static str),
}

/// There is none.
#[derive(Debug)]
pub struct Echo(Infallible);

impl Echo {
    pub const HEADER_BYTES: i32 = 12;

    /// # Errors
    /// Always.
    pub fn new(_: &File, _: [u8; 6]) -> Result<Echo, KvmError> {
        Err(KvmError::Machine(std::env::consts::ARCH))
    }

    pub fn run(self) -> KvmError {
        match self.0 {}
    }
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

/// What a micro-VM's process would say.
pub(crate) enum Say {
    Answered(Asker, u64),
    Put(Option<u32>, String, Message),
}

/// There is none.
pub(crate) struct Process(Infallible);

impl Process {
    pub fn start(_: &Arc<Shared>, machine: &Arc<Machine>, _: &[Arc<Slot>]) -> io::Result<Process> {
        match machine.0 {}
    }

    pub fn is_over(&self) -> bool {
        match self.0 {}
    }

    pub fn finish(self) -> Result<BTreeMap<u32, Latencies>, LoadError> {
        match self.0 {}
    }
}

impl Shared {
    /// Nobody listens.
    pub fn tell(&self, what: &Say) {
        match what {
            Say::Answered(_, _) | Say::Put(_, _, _) => {}
        }
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

/// # Errors
/// Always.
pub fn measure_speed(_: Clock) -> Result<(), KvmError> {
    Err(KvmError::Machine(std::env::consts::ARCH))
}
