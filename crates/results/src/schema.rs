// SPDX-License-Identifier: GPL-2.0-only
//! Results in long format: one value per place, arm, seed and metric.
//!
//! Metric names are `OBJECT.QUANTITY[.STAT]`, the object being a VM group (`web`), a VM (`web-2`) or `host`:
//!
//! | metric | unit | meaning |
//! |---|---|---|
//! | `web.response.{mean,p50,p90,p99,p999,max}` | ns | request's arrival to its reply |
//! | `web.response.count` | 1 | requests answered in the measured window |
//! | `web.response.lost` | 1 | simulator: part of those due for which there was no room (`client.at_most`) |
//! | `web.waiting.{mean,p50,p90,p99,p999,max,count}` | ns | simulator, a thread per request: response less its work |
//! | `web.begin.{mean,p50,p90,p99,p999,max,count}` | ns | the same: request's arrival until its thread first runs |
//! | `web.wakeup.{mean,p50,p90,p99,p999,max}` | ns | runnable after sleep, to running |
//! | `web.run_delay.{mean,p50,p99,max}` | ns | each stay in a run queue |
//! | `web.run_delay.share` | 1 | waiting / (waiting + running) |
//! | `web.{wakeup,run_delay}.count` | 1 | how many of them ended in the measured window |
//! | `web.switches` | 1/s | times that one of its threads was switched in |
//! | `web.cpu` | CPU | mean CPUs used |
//! | `web.least` | CPU | of a group of several VMs: the CPUs used by the one with the least |
//! | `web.jain` | 1 | of such a group: Jain's index of its VMs' CPU time, 1 where all have the same |
//! | `host.jain` | 1 | simulator: the same of all VMs but a driver domain: CPU time by the scenario's weight |
//! | `web.fast` | CPU | simulator, lab: of them, on cores of the fastest kind, where there are several |
//! | `web.work` | ns | CPU time of useful work done (costs excluded) in the measured window |
//! | `web.completion` | ns | simulator: from the VM's start to the end of its last thread; of several VMs the longest |
//! | `web.spread` | 1 | in the lab and on a host: most work of one of its vCPUs by the least of another |
//! | `web.{run,steal,halt}` | 1 | with a guest: shares of its vCPUs' time with a CPU, waiting for one, halted |
//! | `web.guest.{switches,migrations}` | 1/s | inside the guest |
//! | `web.guest.policy.NAME` | 1/s | simulator: a counter of the policy inside, in sum over the group's VMs |
//! | `web.guest.moved` | 1/s | simulator: tasks that the agent inside has moved (`vm.guest_agent`) |
//! | `web.on_kind.NAME` | 1 | simulator, lab: share of its run time on cores of this kind (`host.kind.NAME`) |
//! | `web.missed_fast` | 1 | simulator, lab: share of its run time on slower cores while one of the fastest was idle |
//! | | | or ran a VM of class batch |
//! | `web.score` | 1 | simulator, lab: so many times as fast on a fast core, as the policy reckons at last |
//! | `web.scored_by.{given,counters,utilisation,left_out}` | 1 | simulator, lab: vCPUs by source of their score |
//! | `web.migrations`, `host.switches`, `host.switches_per_cpu` | 1/s | |
//! | `host.moves.{same_core,same_llc,other_llc,other_package,other_node}` | 1/s | simulator: moves by distance |
//! | | | `same_package` is the second and third, `other_package` has other nodes in it |
//! | `host.changes` | 1/s | simulator, lab: changes of VMs by the optimiser |
//! | `host.idle` | 1 | idle share of all CPUs (the simulator: with those that are off) |
//! | `host.unused` | 1 | simulator: of it, while threads waited that may run anywhere (or were held back by a cap) |
//! | `policy.insns_per_switch` | 1 | BPF instructions executed per context switch |
//! | `policy.NAME` | 1/s | a counter of the policy (its `struct berth_stats`); in the lab over warm-up and window |
use crate::detail::{Distribution, Wait, WorstWait};
use berth_optimiser::Decision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Sim,
    Lab,
    Host,
}

/// One run: one arm with one seed in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    pub place: Place,
    pub arm: String,
    pub seed: u64,
    /// Metric name -> value, in the unit given by [`unit_of`].
    pub metrics: BTreeMap<String, f64>,
    /// Hash of everything that happened (simulator: event trace; lab: serial log); equal runs, equal hash.
    pub hash: String,
    /// Notes a reader must see (retries, degraded features).
    #[serde(default)]
    pub notes: Vec<String>,
    /// Who waited for whom; empty where it cannot be known (a note says so then).
    #[serde(default)]
    pub waits: Vec<Wait>,
    /// The worst wait of each VM group, in the scenario's order.
    #[serde(default)]
    pub worst: Vec<WorstWait>,
    /// Distributions of times: `web.response`, `web.wakeup`, `web.run_delay`.
    #[serde(default)]
    pub times: BTreeMap<String, Distribution>,
    /// Values over the measured window, in equal parts: `web.cpu`, `web.run_delay.share`.
    #[serde(default)]
    pub series: BTreeMap<String, Vec<f64>>,
    /// What the optimiser decided: its first decision, and all that changed something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

impl RunRecord {
    /// A run with its metrics and nothing else.
    pub fn new(place: Place, arm: &str, seed: u64, metrics: BTreeMap<String, f64>) -> RunRecord {
        RunRecord {
            place,
            arm: arm.to_string(),
            seed,
            metrics,
            hash: String::new(),
            notes: Vec::new(),
            waits: Vec::new(),
            worst: Vec::new(),
            times: BTreeMap::new(),
            series: BTreeMap::new(),
            decisions: Vec::new(),
        }
    }
}

/// Unit of a metric, from its name: `ns`, `CPU`, `1/s` or `1`.
pub fn unit_of(metric: &str) -> &'static str {
    let mut parts = metric.split('.').skip(1);
    match (parts.next().unwrap_or(""), parts.next().unwrap_or("")) {
        (_, "count" | "offered" | "lost" | "share" | "other_package_share") => "1",
        (
            "response" | "waiting" | "begin" | "wakeup" | "run_delay" | "work" | "completion"
            | "samples" | "disk",
            _,
        ) => "ns",
        ("cpu" | "least" | "fast" | "path_cpu", _) => "CPU",
        ("migrations" | "moves" | "changes" | "guest" | "switches" | "switches_per_cpu", _) => {
            "1/s"
        }
        ("requests" | "packets" | "dropped" | "blocks", _) => "1/s",
        ("throughput" | "read" | "written", _) => "bit/s",
        _ => "1",
    }
}
