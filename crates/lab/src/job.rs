// SPDX-License-Identifier: GPL-2.0-only
//! What the outside asks of a VM, and what it answers: one JSON file each way.
use berth_loadgen::Vcpus;
use berth_optimiser::Decision;
use berth_results::detail::{Distribution, Wait, WorstWait};
use berth_scenario::model::Scenario;
use berth_scx::{ExitRecord, LoadOptions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the job lies in the VM.
pub const JOB: &str = "/job.json";

/// One boot's work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Uptime in milliseconds before the work begins: the kernel's own boot work disturbs until then.
    pub settle_ms: u64,
    /// Kernel modules to load before all else, as paths inside the VM.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Loaded before the work and unloaded after it; none = the kernel's own scheduler.
    pub policy: Option<PolicyJob>,
    pub work: Work,
}

/// What schedules, by its path in the VM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PolicyJob {
    /// A policy object, and how to load it.
    Object { path: String, options: LoadOptions },
    /// A program that loads a policy of its own.
    Program { path: String },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// The scenario (already as the arm sees it) with each of these random seeds in turn, the policy loaded anew for
    /// each.
    Scenario {
        scenario: Box<Scenario>,
        seeds: Vec<u64>,
        /// What the vCPUs are.
        #[serde(default)]
        vcpus: Vcpus,
    },
    /// A real guest in this VM, which is watched under steal.
    Witness(Box<crate::witness::WitnessJob>),
    /// A program of the initramfs: its standard output is the result, its exit status must be 0.
    Program { argv: Vec<String> },
    /// A function that the program in the VM brings along ([`crate::guest::main_with`]), with its input.
    Custom {
        name: String,
        input: serde_json::Value,
    },
}

/// The VM's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// `uname -r` of the VM.
    pub kernel: String,
    /// Of a scenario, one for each seed.
    pub runs: Vec<SeedRun>,
    /// Standard output of a program.
    pub output: String,
    /// What a custom function returned.
    pub result: serde_json::Value,
    /// How the policy fared, if there was one.
    pub policy: Option<PolicyReport>,
    /// What a reader of the results must know.
    pub notes: Vec<String>,
    /// What went wrong, in one sentence; the rest is then what there was until then.
    pub error: Option<String>,
}

/// A scenario's run with one seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeedRun {
    pub seed: u64,
    /// By name.
    pub metrics: BTreeMap<String, f64>,
    /// What a reader of the results must know of this run.
    pub notes: Vec<String>,
    /// Who waited for whom, the worst wait of each group, distributions: as in a run's record.
    pub waits: Vec<Wait>,
    pub worst: Vec<WorstWait>,
    pub times: BTreeMap<String, Distribution>,
    /// What the optimiser decided, in the time of the run: as in a run's record.
    #[serde(default)]
    pub decisions: Vec<Decision>,
}

/// A policy's life in the VM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyReport {
    /// As the kernel shows it.
    pub name: String,
    /// Whether it still ran when the work was done (and was unloaded then).
    pub lasted: bool,
    /// The record its end left.
    pub exit: ExitRecord,
    /// The kernel's event counters (`SCX_EV_*`), read before it was unloaded; empty if it had ended.
    pub events: BTreeMap<String, u64>,
}
