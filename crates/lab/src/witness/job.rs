// SPDX-License-Identifier: GPL-2.0-only
//! What the machines of a recording tell each other, as JSON.
use berth_results::guest::{Answer, Seen};
use berth_scenario::model::{Nanos, Scenario};
use serde::{Deserialize, Serialize};

/// Where a guest's job lies in its file system.
pub const GUEST_JOB: &str = "/guest.json";

/// Lines on the guest's console, for the VM around it.
pub const READY: &str = "BERTH-GUEST ready";
pub const FLOOR_DONE: &str = "BERTH-GUEST floor-done";
pub const BEGIN: &str = "BERTH-GUEST begin";
pub const END: &str = "BERTH-GUEST end";
pub const ERROR: &str = "BERTH-GUEST error";

/// For the guest: its tasks are those of the VM that the scenario's client sends to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestJob {
    pub scenario: Scenario,
    /// Of the times at which the client's requests are due.
    pub seed: u64,
    /// Whether slices end by a timer besides the ticks (the kernel's feature HRTICK).
    pub hrtick: bool,
    /// How long it answers before there are competitors.
    pub floor_ns: Nanos,
    /// Before each of the two windows.
    pub settle_ns: Nanos,
}

/// For the VM around it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WitnessJob {
    pub guest: GuestJob,
    /// HRTICK of the VM's own kernel.
    pub hrtick: bool,
    /// Paths in the VM.
    pub program: String,
    pub firmware: String,
    pub kernel: String,
    pub initrd: String,
    /// The guest must be ready after so long.
    pub boot_ns: Nanos,
}

/// What the guest saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GuestAnswer {
    /// `uname -r`.
    pub kernel: String,
    pub cpus: u32,
    /// Slice of its scheduler, if it says so.
    pub slice_ns: Option<u64>,
    /// Answers before there were competitors.
    pub floor: Vec<Answer>,
    pub seen: Seen,
    /// Steal as the guest's own kernel counts it, of the window.
    pub counted_steal: f64,
    pub error: Option<String>,
}

/// What the VM around it saw besides.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WitnessAnswer {
    pub guest: GuestAnswer,
    /// The VM's own kernel.
    pub kernel: String,
    /// Turns that the guest's vCPUs had in the window, and their length.
    pub turns: u64,
    pub turn_ns: u64,
}
