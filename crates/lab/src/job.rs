// SPDX-License-Identifier: GPL-2.0-only
//! What the outside asks of a VM, and what it answers: one JSON file each way.
use berth_scenario::model::Scenario;
use berth_scx::LoadOptions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the job lies in the VM.
pub const JOB: &str = "/job.json";

/// One boot's work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Uptime in milliseconds before the work begins: the kernel's own boot work disturbs until then.
    pub settle_ms: u64,
    /// Loaded before the work and unloaded after it; none = the kernel's own scheduler.
    pub policy: Option<PolicyJob>,
    pub work: Work,
}

/// A policy object in the VM's file system, and how to load it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyJob {
    /// Path of the object inside the VM.
    pub object: String,
    pub options: LoadOptions,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// The scenario (already as the arm sees it) with this random seed.
    Scenario { scenario: Box<Scenario>, seed: u64 },
    /// A program of the initramfs: its standard output is the result, its exit status must be 0.
    Program { argv: Vec<String> },
    /// Nothing: for a policy that does its work when it is loaded.
    Idle { ms: u64 },
}

/// The VM's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// `uname -r` of the VM.
    pub kernel: String,
    /// Metrics of a scenario, by name.
    pub metrics: BTreeMap<String, f64>,
    /// Standard output of a program.
    pub output: String,
    /// What a reader of the results must know.
    pub notes: Vec<String>,
    /// What went wrong, in one sentence; the rest is then what there was until then.
    pub error: Option<String>,
}
