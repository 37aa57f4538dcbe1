// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario's vCPUs are in a run: threads that do the work themselves, or vCPUs of micro-VMs.
use crate::LoadError;
use crate::kvm::{self, Machine};
use berth_scenario::model::Scenario;
use berth_scenario::placement::{self, HostThread};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the vCPUs of a scenario's VMs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vcpus {
    /// A thread each, which does the work itself: everywhere.
    #[default]
    Threads,
    /// vCPUs of real KVM micro-VMs; an error where that cannot be.
    Kvm,
    /// Micro-VMs if they can be, else threads and a note that says why.
    Auto,
}

impl Vcpus {
    /// From the command line: `threads`, `kvm` or `auto`.
    ///
    /// # Errors
    /// Another word; the text says which there are.
    pub fn parse(text: &str) -> Result<Vcpus, String> {
        match text {
            "threads" => Ok(Vcpus::Threads),
            "kvm" => Ok(Vcpus::Kvm),
            "auto" => Ok(Vcpus::Auto),
            other => Err(format!(
                "`{other}`: vCPUs are `threads`, `kvm` (micro-VMs), or `auto` (micro-VMs where they can be)"
            )),
        }
    }

    /// As the command line says it.
    pub fn word(self) -> &'static str {
        match self {
            Vcpus::Threads => "threads",
            Vcpus::Kvm => "kvm",
            Vcpus::Auto => "auto",
        }
    }
}

/// The threads of a run, and the micro-VMs they belong to.
pub(crate) struct Form {
    pub threads: Vec<HostThread>,
    /// By VM ordinal; none in the form of threads.
    pub machines: BTreeMap<u32, Arc<Machine>>,
    pub notes: Vec<String>,
}

pub(crate) fn choose(scenario: &Scenario, seed: u64, vcpus: Vcpus) -> Result<Form, LoadError> {
    let threads = |notes| -> Result<Form, LoadError> {
        Ok(Form {
            threads: placement::threads(scenario)?,
            machines: BTreeMap::new(),
            notes,
        })
    };
    match (vcpus, scenario.vms.is_empty()) {
        (Vcpus::Threads, _) | (_, true) => threads(Vec::new()),
        (Vcpus::Kvm, false) => kvm::form(scenario, seed),
        (Vcpus::Auto, false) => match kvm::form(scenario, seed) {
            Ok(form) => Ok(form),
            Err(LoadError::Kvm(e)) => threads(vec![format!(
                "vCPUs are plain threads, not those of real VMs: {e}"
            )]),
            Err(e) => Err(e),
        },
    }
}
