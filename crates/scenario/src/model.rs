// SPDX-License-Identifier: GPL-2.0-only
//! A scenario after reading: every default filled in, every quantity an integer in its base unit.
//! Times are nanoseconds, sizes bytes, caps milli-CPUs, probabilities parts per million.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub type Nanos = u64;

/// One scenario file, complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// File stem, e.g. `noisy-neighbour`; names the output folder.
    pub name: String,
    pub title: String,
    pub run: Run,
    pub host: Host,
    pub vms: Vec<Vm>,
    pub tasks: BTreeMap<String, Task>,
    pub clients: Vec<Client>,
    pub arms: Vec<Arm>,
    /// Name of the arm that the others are compared with.
    pub baseline: Option<String>,
    pub expects: Vec<Expect>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub warmup_ns: Nanos,
    pub measure_ns: Nanos,
    /// Number of replications; seeds are `1..=seeds`.
    pub seeds: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub nodes: u32,
    /// Packages in all, spread evenly over the nodes.
    pub packages: u32,
    /// Last-level caches per package.
    pub llcs: u32,
    /// Cores per package.
    pub cores: u32,
    /// SMT threads per core.
    pub threads: u32,
    pub hz: Hz,
    /// Host threads outside any VM, by task name (unlabelled: role `other`).
    pub tasks: Vec<String>,
    /// sched_ext watchdog and kernel profile of the simulated host, e.g. `7.2`.
    pub kernel: String,
    pub cost: HostCost,
    /// CPUs going off- and online, in time order.
    pub hotplug: Vec<Hotplug>,
}

impl Host {
    pub fn nr_cpus(&self) -> u32 {
        self.packages * self.cores * self.threads
    }
}

/// Tick rate: a number of ticks a second, or slices that end exactly (worked examples only).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hz {
    Ticks(u32),
    Exact,
}

/// Fixed costs of the machine. Zero costs are legal (closed forms).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct HostCost {
    /// Charged to the CPU at each switch between different tasks.
    pub switch_ns: Nanos,
    pub migrate_same_core_ns: Nanos,
    pub migrate_same_llc_ns: Nanos,
    pub migrate_same_node_ns: Nanos,
    pub migrate_other_node_ns: Nanos,
    /// From the wake-up's kick of an idle or preempted CPU until that CPU enters its scheduler.
    pub wake_ipi_ns: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hotplug {
    pub at_ns: Nanos,
    pub cpu: u32,
    pub online: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Latency,
    Batch,
    Mixed,
}

/// `[vm.NAME]`: `count` equal VMs, named NAME if one, else NAME-1, NAME-2, ...
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    pub name: String,
    pub count: u32,
    pub vcpus: u32,
    pub class: Class,
    /// Only for class `mixed`: the vCPUs that do I/O.
    pub reserved_vcpus: u32,
    /// cgroup cpu.weight of the whole VM, 1..=10000.
    pub weight: u32,
    /// In milli-CPUs; none = no cap.
    pub cap_milli: Option<u64>,
    /// Host CPUs the VM's vCPUs may use; empty = all.
    pub affinity: Vec<u32>,
    /// Nice of its threads, -20..=19.
    pub nice: i32,
    /// Names of the tasks that run in it.
    pub tasks: Vec<String>,
    /// When it starts, after the run's start, and when it stops, if it does.
    pub start_ns: Nanos,
    pub stop_ns: Option<Nanos>,
}

/// `[task.NAME]`: what one thread does, over and over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub name: String,
    /// Threads per VM; none = one per vCPU.
    pub threads: Option<u32>,
    pub nice: i32,
    /// Host CPUs this task's threads may use; empty = the VM's.
    pub affinity: Vec<u32>,
    /// Executed in order, then again from the start, until the run ends (or `Exit`).
    /// A named model (`busy`, `lookbusy`, ...) is expanded into steps when the file is read.
    pub steps: Vec<Step>,
    /// The model it came from, for the printed scenario.
    pub model: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Burn CPU time.
    Compute(Dist),
    /// Burn CPU without end.
    Busy,
    /// Relative sleep, from when the step is reached.
    Sleep(Dist),
    /// Sleep until the next point of a grid of this period (absolute timer), with a random phase per thread.
    Timer {
        period_ns: Nanos,
    },
    /// Wait for a request of a client, or for a `Send` by another task, on this queue.
    Receive(String),
    /// Answer the request in hand: its response time ends here.
    Reply,
    /// Put a message into a task's queue, waking a waiter.
    Send {
        to: String,
        bytes: u64,
    },
    Yield,
    SetNice(i32),
    /// Empty = all CPUs.
    SetAffinity(Vec<u32>),
    /// Start one more thread of the named task, in the same VM.
    Fork(String),
    Exit,
}

/// A distribution of durations in nanoseconds, or of gaps between arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Dist {
    Const(Nanos),
    Exp {
        mean_ns: f64,
    },
    Uniform {
        lo_ns: Nanos,
        hi_ns: Nanos,
    },
    /// Parameters: median in nanoseconds, sigma of the logarithm.
    Lognormal {
        median_ns: f64,
        sigma: f64,
    },
    /// Parameters: minimum in nanoseconds, shape alpha.
    Pareto {
        min_ns: f64,
        alpha: f64,
    },
    /// Two-phase hyperexponential with balanced means.
    Hyperexp {
        mean_ns: f64,
        cv2: f64,
    },
    /// Values in file order, over and over.
    Values(Vec<Nanos>),
}

/// `[client.NAME]`: requests from outside the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Client {
    pub name: String,
    /// VM group (each of its VMs gets its own stream).
    pub to: String,
    pub sends: Sends,
    pub request_bytes: u64,
    pub reply_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sends {
    /// Open loop: gaps between requests, whatever the answers do.
    Open { gap: Dist },
    /// `every 100ms +- 50%`.
    Every { period_ns: Nanos, jitter_ppm: u32 },
    /// Closed loop: `users` users, each thinks, asks, waits for the answer.
    Closed { users: u32, think: Dist },
}

/// `[arm.NAME]`: what is compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    pub name: String,
    /// `linux`, a shipped policy's name, or a path to a `.bpf.c` or `.bpf.o`.
    pub policy: String,
    pub preset: Option<String>,
    /// Policy parameters (`policy.slice_us = ...`), by name, unit resolved to the parameter's own.
    pub params: BTreeMap<String, String>,
    /// Other changes of the scenario in this arm (address -> value as in the file); already applied
    /// when the arm's scenario is asked for with [`Scenario::for_arm`].
    pub set: BTreeMap<String, String>,
    /// The scenario of this arm where `set` changes something besides the policy.
    pub scenario: Option<Box<Scenario>>,
}

impl Scenario {
    /// The scenario as this arm sees it.
    pub fn for_arm<'a>(&'a self, arm: &'a Arm) -> &'a Scenario {
        arm.scenario.as_deref().unwrap_or(self)
    }
}

/// `[[expect]]`: a bound on a metric of one arm; broken = exit status 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expect {
    /// e.g. `web.response.p99`
    pub metric: String,
    pub arm: String,
    pub at_most: Option<Bound>,
    pub at_least: Option<Bound>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Bound {
    /// In the metric's unit (ns, 1, 1/s).
    Absolute(f64),
    /// Times the baseline arm's value.
    TimesBaseline(f64),
}
