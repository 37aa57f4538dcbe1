// SPDX-License-Identifier: GPL-2.0-only
//! A scenario after reading: every default filled in, every quantity an integer in its base unit.
//! Times are nanoseconds, sizes bytes, caps milli-CPUs, probabilities parts per million.
mod devices;
mod host;

pub use crate::step::{Grid, Step};
pub use berth_identity::Class;
pub use devices::{Access, Card, Disk, DiskPath, Net, NetPath, Stages};
pub use host::{Cache, CoreKind, Host, HostCost, Hotplug, Hz, PleYield};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub type Nanos = u64;

/// One scenario file, complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// File stem, e.g. `noisy-neighbour`; names the output folder.
    pub name: String,
    pub title: String,
    pub run: Run,
    pub host: Host,
    pub vms: Vec<Vm>,
    pub tasks: BTreeMap<String, Task>,
    pub clients: Vec<Client>,
    pub net: Net,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// Who sets CPUs, weights and caps of VMs while they run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimiser: Option<Optimiser>,
    pub arms: Vec<Arm>,
    /// Name of the arm that the others are compared with.
    pub baseline: Option<String>,
    pub expects: Vec<Expect>,
    /// Free parameters, fitted on one arm before any other runs.
    pub calibrate: Option<Calibrate>,
    /// The experiment of a paper that this scenario is.
    pub reproduces: Option<Reproduces>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub warmup_ns: Nanos,
    pub measure_ns: Nanos,
    /// Number of replications; seeds are `1..=seeds`.
    pub seeds: u32,
}

impl Default for Run {
    fn default() -> Run {
        Run {
            warmup_ns: 2_000_000_000,
            measure_ns: 10_000_000_000,
            seeds: 10,
        }
    }
}

/// `[vm.NAME]`: `count` equal VMs, named NAME if one, else NAME-1, NAME-2, ...
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    pub name: String,
    pub count: u32,
    pub vcpus: u32,
    pub class: Class,
    /// Only for class `mixed`: how many vCPUs, the last ones, do I/O ([`Vm::is_reserved`]).
    pub reserved_vcpus: u32,
    /// cgroup cpu.weight of the whole VM, 1..=10000.
    pub weight: u32,
    /// In milli-CPUs; none = no cap.
    pub cap_milli: Option<u64>,
    /// Host CPUs the VM's vCPUs may use; empty = all.
    pub affinity: Vec<u32>,
    /// Host CPUs of the thread that moves its packets (`net.path`); empty = as `affinity`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_affinity: Vec<u32>,
    /// Part of its threads that `affinity` holds, parts per million, see [`Vm::bound`]; none = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage_ppm: Option<u32>,
    /// Nice of its threads, -20..=19.
    pub nice: i32,
    /// Slice that the kernel's own scheduler is asked for (`sched_setattr`); none = its usual one.
    #[serde(default)]
    pub slice_ns: Option<Nanos>,
    /// cgroup that it shares with every other VM that names it; none = one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// How many times as fast a vCPU is said to be on the fastest kind of cores as on the slowest, in thousandths: of
    /// each vCPU, or one for all; empty = nothing is said, a policy that asks measures it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores_milli: Vec<u32>,
    /// Part of its memory on each node, parts per million, in all a million; empty = not said: it is wherever the VM
    /// runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_ppm: Vec<u32>,
    /// Names of the tasks that run in it.
    pub tasks: Vec<String>,
    /// When it starts, after the run's start, and when it stops, if it does.
    pub start_ns: Nanos,
    pub stop_ns: Option<Nanos>,
    /// The machine inside.
    pub guest: Guest,
    pub role: VmRole,
    /// Extra vCPUs that only take interrupts (vTurbo); 0 almost everywhere.
    pub turbo_vcpus: u32,
    /// Only for class `mixed`: an agent inside moves light tasks of users to the reserved vCPUs, and back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guest_agent: bool,
}

impl Vm {
    /// Does this vCPU do the I/O? Turbo vCPUs, if there are some; else the last `reserved_vcpus` of a mixed VM.
    pub fn is_reserved(&self, vcpu: u32) -> bool {
        if self.turbo_vcpus > 0 {
            return (self.vcpus..self.all_vcpus()).contains(&vcpu);
        }
        self.class == Class::Mixed && vcpu < self.vcpus && vcpu >= self.compute_vcpus()
    }

    /// Its vCPUs, and after them its turbo vCPUs.
    pub fn all_vcpus(&self) -> u32 {
        self.vcpus + self.turbo_vcpus
    }

    /// How many of so many threads `affinity` holds: `coverage` of them, to the nearest, half a thread upwards. In this
    /// order: the thread that moves packets, if the VM has one, then the vCPUs.
    pub fn bound(&self, threads: u32) -> u32 {
        let ppm = u64::from(self.coverage_ppm.unwrap_or(1_000_000));
        ((u64::from(threads) * ppm + 500_000) / 1_000_000) as u32
    }

    /// What this vCPU is said to gain from fast cores, in thousandths.
    pub fn score_milli(&self, vcpu: u32) -> Option<u32> {
        match self.scores_milli[..] {
            [all] => Some(all),
            _ => self.scores_milli.get(vcpu as usize).copied(),
        }
    }

    /// Its vCPUs that are not reserved for I/O: 0 up to this number.
    pub fn compute_vcpus(&self) -> u32 {
        match self.class {
            Class::Mixed => self.vcpus.saturating_sub(self.reserved_vcpus),
            _ => self.vcpus,
        }
    }
}

impl Default for Vm {
    fn default() -> Vm {
        Vm {
            name: String::new(),
            count: 1,
            vcpus: 1,
            class: Class::default(),
            reserved_vcpus: 0,
            weight: 100,
            cap_milli: None,
            affinity: Vec::new(),
            backend_affinity: Vec::new(),
            coverage_ppm: None,
            nice: 0,
            slice_ns: None,
            cgroup: None,
            scores_milli: Vec::new(),
            memory_ppm: Vec::new(),
            tasks: Vec::new(),
            start_ns: 0,
            stop_ns: None,
            guest: Guest::default(),
            role: VmRole::default(),
            turbo_vcpus: 0,
            guest_agent: false,
        }
    }
}

/// What a VM is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VmRole {
    /// It runs its tasks.
    #[default]
    Guest,
    /// The driver domain: with `net.path = "driver-domain"`, every packet passes through its vCPUs.
    Driver,
}

/// `vm.NAME.guest`: the machine that a VM is for its tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// `linux`, `none`, a shipped policy's name, or a path to a `.bpf.c` or `.bpf.o`. `none`: there is no scheduler
    /// inside; tasks are folded onto vCPU threads ([`crate::placement`]).
    pub policy: String,
    pub preset: Option<String>,
    /// Policy parameters, by name.
    pub params: BTreeMap<String, String>,
    pub hz: Hz,
    /// Linux's own scheduler ends slices by a timer, too, not only at ticks (HRTICK, used from 7.2 on); of `linux`
    /// only.
    pub hrtick: bool,
    /// The guest's kernel accounts for steal (CONFIG_PARAVIRT_TIME_ACCOUNTING): time for which a vCPU has no physical
    /// CPU is charged to nobody. Else it is charged to the task that runs there.
    pub steal_accounting: bool,
    /// Pause-loop exiting: a vCPU that spins longer than `ple_window_ns` exits, and the host hears of it.
    pub ple: bool,
    pub ple_window_ns: Nanos,
    /// How long an idle vCPU polls before it halts.
    pub halt_poll_ns: Nanos,
}

impl Guest {
    /// Tasks are folded onto vCPU threads: nothing schedules inside.
    pub fn is_none(&self) -> bool {
        self.policy == "none"
    }
}

impl Default for Guest {
    fn default() -> Guest {
        Guest {
            policy: "linux".into(),
            preset: None,
            params: BTreeMap::new(),
            hz: Hz::Ticks(250),
            hrtick: false,
            steal_accounting: true,
            ple: true,
            ple_window_ns: 2_000,
            halt_poll_ns: 0,
        }
    }
}

/// `[task.NAME]`: what one thread does, over and over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Executed once, before `steps`.
    pub first: Vec<Step>,
    /// Bytes it works on over and over: what a migration has to bring along. None: the host's default.
    pub working_set: Option<u64>,
    /// Part of its time at full speed that it waits for memory, which no core makes faster; parts per million.
    pub stall_ppm: u32,
    /// Thousandths of instructions per cycle while it does not wait for memory; none: 1500.
    pub ipc_milli: Option<u32>,
    /// It ends after so many rounds of `steps`; none: never, but by `Exit`.
    pub rounds: Option<u64>,
    /// Each request to it starts a thread of its own, which ends with its loop; none are there from the start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_request: bool,
    /// What policies are told of how long a request, or one of its threads, computes; none: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// Number of the user whose it is in its guest; 0 = the system's.
    #[serde(default, skip_serializing_if = "is_system")]
    pub uid: u32,
    /// The model it came from, for the printed scenario.
    pub model: Option<String>,
}

fn is_system(uid: &u32) -> bool {
    *uid == 0
}

/// How well a policy is told of the size of what a thread is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Estimate {
    /// Its very size.
    Oracle,
    /// The size times exp(sigma N), N being standard normal.
    Lognormal(f64),
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
    /// Values in their order, over and over; of a task with a thread for each request, one for each request.
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
    /// A stream (`window 256KiB`): it sends requests without pause as long as no more than this many bytes are
    /// unanswered. `sends` then is the closed loop of as many users, without thinking, as requests fit the window.
    pub window_bytes: Option<u64>,
    /// Requests of it in a VM that are not answered, at most: one more is lost. None: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u32>,
}

/// `[optimiser]`: it watches the host and sets what VMs may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimiser {
    pub settings: berth_optimiser::Settings,
    /// What groups of VMs were promised, by group; all others: nothing, with the weight they have.
    pub promises: BTreeMap<String, berth_optimiser::Promise>,
}

impl Optimiser {
    /// What each VM of a group was promised.
    pub fn promise(&self, vm: &Vm) -> berth_optimiser::Promise {
        let nothing = berth_optimiser::Promise {
            weight: vm.weight,
            ..Default::default()
        };
        self.promises.get(&vm.name).copied().unwrap_or(nothing)
    }
}

/// `[calibrate]`: free parameters fitted on one arm, which is not under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrate {
    /// The baseline.
    pub arm: String,
    /// Claim of a paper whose value is to be met, in the file `claims.toml` beside the scenario.
    pub claim: Option<String>,
    /// What is measured; of a claim, that of [`Reproduces::metric`].
    pub metric: String,
    /// The value to be met, in the metric's unit.
    pub target: f64,
    /// Address -> values to try, as in the file. All combinations are tried, the last address varying fastest.
    pub search: BTreeMap<String, Vec<String>>,
}

/// `[reproduces]`: which experiment of which paper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reproduces {
    pub paper: String,
    pub experiment: String,
    /// The metric that the paper reports.
    pub metric: String,
    /// Claims, `*` standing for any end of a name.
    pub claims: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sends {
    /// Open loop: gaps between requests, whatever the answers do.
    Open { gap: Dist },
    /// `every 100ms +- 50%`.
    Every { period_ns: Nanos, jitter_ppm: u32 },
    /// So many requests at the start, and no more.
    Batch { count: u32 },
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
    /// What the scheduler's own loader would set; of a policy that is a file.
    #[serde(default, skip_serializing_if = "Loader::is_default")]
    pub loader: Loader,
    /// Other changes of the scenario in this arm (address -> value as in the file); already applied
    /// when the arm's scenario is asked for with [`Scenario::for_arm`].
    pub set: BTreeMap<String, String>,
    /// The scenario of this arm where `set` changes something besides the policy.
    pub scenario: Option<Box<Scenario>>,
}

/// How a scheduler of somebody else is compiled, and what its own loader would do before a kernel gets the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loader {
    /// Values of global variables, by `NAME`, `NAME.field` or `NAME[3]`.
    pub rodata: BTreeMap<String, String>,
    /// All flags of the scheduler; none: as its loader, if it is known, else as compiled.
    pub ops_flags: Option<Vec<String>>,
    /// Elements of arrays in sections of their own.
    pub resize: BTreeMap<String, u32>,
    /// Folders with headers, before Berth's own.
    pub include: Vec<String>,
    /// Version of the scx project's headers; none: those that Berth carries.
    pub headers: Option<String>,
}

impl Loader {
    fn is_default(&self) -> bool {
        *self == Loader::default()
    }
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
