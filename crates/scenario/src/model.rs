// SPDX-License-Identifier: GPL-2.0-only
//! A scenario after reading: every default filled in, every quantity an integer in its base unit.
//! Times are nanoseconds, sizes bytes, caps milli-CPUs, probabilities parts per million.
pub use crate::step::{Grid, Step};
pub use berth_identity::Class;
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub nodes: u32,
    /// Packages in all, spread evenly over the nodes.
    pub packages: u32,
    /// Last-level caches per package, unless kinds of cores have their own ([`CoreKind::llc_of_core`]).
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
    /// None: as the host's policy says, KVM's way unless it is Xen's.
    pub ple_yield: Option<PleYield>,
    /// CPUs going off- and online, in time order.
    pub hotplug: Vec<Hotplug>,
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

/// What becomes of a vCPU that spins for longer than its window (a pause-loop exit).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PleYield {
    /// KVM: its thread yields to a vCPU of the same VM that waits for a CPU, where the host's scheduler can do that
    /// (`ops.yield` with a second task); else it goes on.
    #[default]
    Kvm,
    /// Xen: it gives its CPU away.
    Xen,
}

impl Default for Host {
    /// Four CPUs, no costs.
    fn default() -> Host {
        Host {
            nodes: 1,
            packages: 1,
            llcs: 1,
            cores: 4,
            threads: 1,
            hz: Hz::Ticks(250),
            tasks: Vec::new(),
            kernel: "7.2".into(),
            cost: HostCost::default(),
            ple_yield: None,
            hotplug: Vec::new(),
        }
    }
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

/// What the machine takes for itself, and how fast it is. All zero: nothing, at full speed (closed forms).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct HostCost {
    /// Charged to the CPU at each switch between different tasks.
    pub switch_ns: Nanos,
    pub migrate_same_core_ns: Nanos,
    pub migrate_same_llc_ns: Nanos,
    /// To another last-level cache of the same package.
    pub migrate_same_package_ns: Nanos,
    /// To another package of the same NUMA node.
    pub migrate_same_node_ns: Nanos,
    pub migrate_other_node_ns: Nanos,
    /// From the wake-up's kick of an idle or preempted CPU until that CPU enters its scheduler.
    pub wake_ipi_ns: Nanos,
    /// From a wake-up until the CPU that it happens on enters its scheduler: interrupt, wake-up, way out. Of a profile
    /// only, like those that follow up to `call_ns`.
    pub wake_ns: Nanos,
    /// The same while a sched_ext policy schedules, its own code not included; 0: as `wake_ns`.
    pub ext_wake_ns: Nanos,
    /// What a sched_ext policy takes for each BPF instruction it executes, most kernel functions that it calls
    /// included, in picoseconds; 0: a policy's code costs nothing. What it executes in a wake-up or a tick delays the
    /// CPU's way into its scheduler, what it executes there delays the thread that is switched in.
    pub insn_ps: u64,
    /// Likewise, what a call of a kernel function takes that chooses a CPU, kicks one, or puts or moves a thread
    /// into a queue, besides. Only together with `insn_ps`.
    pub call_ns: Nanos,
    /// From a timer tick that ends a slice until the CPU enters its scheduler. Anything above 0 makes a slice that is a
    /// multiple of a tick end one tick later, as it does on real machines.
    pub tick_ns: Nanos,
    /// As `wake_ns`, in addition, if the clients' real-time thread wakes somebody for a request: so long it goes on
    /// having its CPU. 0: there is no such thread, and requests are interrupts.
    pub request_ns: Nanos,
    /// As `wake_ns`, in addition, if a thread runs there and is preempted.
    pub preempt_ns: Nanos,
    /// The same while a sched_ext policy schedules. Only together with `ext_wake_ns`.
    pub ext_preempt_ns: Nanos,
    /// CPU time that a thread spends on having slept, besides its work.
    pub sleep_ns: Nanos,
    /// How much later than that of the CPU before it a CPU's timer ticks.
    pub tick_skew_ns: Nanos,
    /// Each tick comes a little later still, by chance (the run's seed), on each CPU for itself: half of them up to
    /// this, half of the rest up to twice it, and so on ([`HostCost::latest_tick_ns`]). Without, CPUs that begin
    /// together stay in step for ever.
    pub tick_jitter_ns: Nanos,
    /// The CPUs are emulated, one after the other, on one clock, in turns of this length. What an event costs takes
    /// longer for each other busy CPU, up to a turn of one of a lower number, up to half a turn of one of a higher
    /// number (a round begins at the first), evenly by chance (the run's seed). 0: CPUs work at the same time, as
    /// hardware does.
    pub turn_ns: Nanos,
    /// Into a guest and out of it again.
    pub vm_entry_ns: Nanos,
    pub vm_exit_ns: Nanos,
    /// Speed of an SMT thread while its sibling is busy too, parts per million; 0: as alone.
    pub smt_ppm: u32,
    /// How many times as long it takes to wait for memory of another node ([`Vm::memory_ppm`]), parts per million;
    /// 0: as long as for one's own.
    #[serde(skip_serializing_if = "is_zero")]
    pub remote_ppm: u32,
    /// Cores that are not simply of full speed; a core that none of them has is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<CoreKind>,
    /// CPUs count instructions and cycles, with this much noise, parts per million; none: no performance counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pmu_noise_ppm: Option<u32>,
    /// Caches that grow cold; none: memory costs nothing (but what `migrate_*` say).
    pub cache: Option<Cache>,
}

impl HostCost {
    /// The latest that a tick comes, ns: 16 times the jitter. At most a quarter of the time between two ticks.
    pub fn latest_tick_ns(&self) -> Nanos {
        16 * self.tick_jitter_ns
    }

    /// The largest `tick_jitter_ns` of a machine with so many ticks a second.
    pub fn most_tick_jitter_ns(hz: u32) -> Nanos {
        1_000_000_000 / u64::from(hz.max(1)) / 4 / 16
    }

    /// What the machine takes under the kernel's own scheduler, whose code is in the costs of events: a policy that
    /// stands in for it has none of its own.
    pub fn own_scheduler(&mut self) {
        (self.ext_wake_ns, self.insn_ps, self.call_ns) = (0, 0, 0);
    }
}

/// `[host.kind.NAME]`: cores of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreKind {
    /// Empty: it came from `host.speed`.
    pub name: String,
    /// Numbers of its cores, ascending.
    pub cores: Vec<u32>,
    /// Work per time at the highest frequency, parts per million: its capacity.
    pub speed_ppm: u32,
    /// Part of that frequency at which it runs, parts per million.
    pub frequency_ppm: u32,
    /// Speed of an SMT thread while its sibling is busy too, parts per million; 0: as [`HostCost::smt_ppm`].
    pub smt_ppm: u32,
    /// Last-level caches that only its cores share, in all; 0: it says nothing of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub llcs: u32,
    /// Frequencies at which its cores can run, kHz, ascending; empty: `frequency_ppm` alone. The last one is the
    /// highest, at which they run unless a policy asks for less.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps_khz: Vec<u32>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl CoreKind {
    /// Last-level cache of each core of a machine with so many packages of so many cores, numbered by their lowest
    /// cores. A kind's cores, in order, are cut evenly; those of kinds that say nothing share one in each package.
    /// None: no kind says anything, and [`Host::llcs`] cuts all cores.
    pub fn llc_of_core(kinds: &[CoreKind], packages: u32, cores: u32) -> Option<Vec<u32>> {
        if kinds.iter().all(|k| k.llcs == 0) {
            return None;
        }
        let mut seen = Vec::new();
        let llc = |core: u32| {
            let own = kinds.iter().enumerate().find_map(|(i, k)| {
                let nth = k.cores.iter().position(|c| *c == core)?;
                (k.llcs > 0).then(|| (Some(i), nth * k.llcs as usize / k.cores.len()))
            });
            let which = own.unwrap_or((None, (core / cores.max(1)) as usize));
            let known = seen.iter().position(|s| *s == which);
            known.unwrap_or_else(|| {
                seen.push(which);
                seen.len() - 1
            }) as u32
        };
        Some((0..packages * cores).map(llc).collect())
    }

    /// `host.speed`: cores by number and their speeds, parts per million. Those of full speed are of no kind, unless
    /// others are faster or slower.
    pub fn by_speed(speeds: &[u32]) -> Vec<CoreKind> {
        const FULL: u32 = 1_000_000;
        if speeds.iter().all(|s| *s == FULL) {
            return Vec::new();
        }
        let mut kinds: Vec<CoreKind> = Vec::new();
        for (core, speed) in (0..).zip(speeds) {
            match kinds.iter_mut().find(|k| k.speed_ppm == *speed) {
                Some(kind) => kind.cores.push(core),
                None => kinds.push(CoreKind {
                    name: String::new(),
                    cores: vec![core],
                    speed_ppm: *speed,
                    frequency_ppm: FULL,
                    smt_ppm: 0,
                    llcs: 0,
                    steps_khz: Vec::new(),
                }),
            }
        }
        kinds
    }
}

/// Caches, and how fast a working set is brought into them. Rates in bytes per microsecond (= MB/s), not zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Private to a core (its threads share it), and shared by the cores of a last-level cache.
    pub core_bytes: u64,
    pub llc_bytes: u64,
    /// From the last-level cache into the core's.
    pub from_llc: u64,
    /// From memory or another last-level cache of the same node, and of another node.
    pub from_memory: u64,
    pub from_other_node: u64,
    /// Of tasks that say nothing.
    pub working_set: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hotplug {
    pub at_ns: Nanos,
    pub cpu: u32,
    pub online: bool,
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

/// `[net]`: how packets come from clients to tasks, and answers back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Net {
    pub path: NetPath,
    /// Of the link, bits per second, each way.
    pub link_bit_s: u64,
    /// One way, from client to NIC.
    pub latency_ns: Nanos,
    /// The NIC holds an interrupt back for so long, for more packets to share it.
    pub coalesce_ns: Nanos,
    /// Time of one interrupt on the CPU that takes it.
    pub irq_ns: Nanos,
    /// Work per packet of the host's thread on the path (vhost, emulator, driver domain).
    pub per_packet_host_ns: Nanos,
    /// Work per packet of the guest.
    pub per_packet_guest_ns: Nanos,
    /// Bytes of a packet.
    pub mtu: u32,
    /// CPUs that take the card's interrupts: the n-th VM's queue those of the n-th in turn; empty: CPU n mod CPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irq_cpus: Vec<u32>,
    /// What a packet costs stage by stage; none: `irq`, `per_packet_host` and `per_packet_guest` are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
}

impl Net {
    /// Threads of a VM that only move its packets.
    pub fn threads_per_vm(&self) -> u32 {
        u32::from(matches!(self.path, NetPath::Vhost | NetPath::Emulator))
    }
}

/// `[disk.NAME]`: a disk of the host. Each VM whose tasks name it has a file on it and a page cache of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub name: String,
    pub path: DiskPath,
    pub size_bytes: u64,
    /// Of each VM.
    pub file_bytes: u64,
    pub access: Access,
    /// Bits per second, not zero.
    pub bit_s: u64,
    /// Time of a request that does not begin where the last one ended: next to it, and at the other end of the disk.
    pub seek_near_ns: Nanos,
    pub seek_far_ns: Nanos,
    /// The largest request; a longer stretch is several. Not zero.
    pub request_bytes: u64,
    /// Page cache of each VM; 0: none.
    pub cache_bytes: u64,
    /// What is cached or not as a whole; not zero.
    pub block_bytes: u64,
    pub read_ahead_bytes: u64,
    /// Written data go to the disk after so long; 0: at once, and the task waits for it.
    pub write_back_ns: Nanos,
    /// Part of the cache that may be unwritten before who writes has to wait.
    pub dirty_ppm: u32,
    /// Work of a task: for each step, and for each KiB.
    pub syscall_ns: Nanos,
    pub copy_ns: Nanos,
    /// For each request that it waits for.
    pub submit_ns: Nanos,
    /// Work of the host's thread on the path, each way.
    pub per_request_host_ns: Nanos,
    /// The interrupt when a request is done: the host's, and the guest's of who waits for it.
    pub irq_ns: Nanos,
}

impl Disk {
    /// Threads of a VM that only move its blocks.
    pub fn threads_per_vm(&self) -> u32 {
        u32::from(matches!(self.path, DiskPath::Virtio | DiskPath::Emulated))
    }
}

/// How requests get from a guest to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskPath {
    /// Through an I/O thread of the VM.
    #[default]
    Virtio,
    /// Through the main loop of its emulator.
    Emulated,
    /// The disk is assigned to the VM.
    Direct,
    /// Through vCPUs of a driver domain.
    DriverDomain,
}

/// Where in the file the next record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    #[default]
    Sequential,
    Random,
}

/// `[net.stages]`: what the stages of a packet's way through a KVM host cost, for one packet alone. Of each,
/// `batch_ppm` is spent once for all packets that are taken together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    pub card: Card,
    /// Interrupt and driver.
    pub driver_ns: Nanos,
    pub bridge_ns: Nanos,
    /// Connection tracking.
    pub filter_ns: Nanos,
    pub tap_ns: Nanos,
    /// Into guest memory or out of it, and for each byte.
    pub copy_ns: Nanos,
    pub copy_byte_ns: Nanos,
    /// The guest's interrupt, or its exit to send.
    pub inject_ns: Nanos,
    /// Driver and stack of the guest.
    pub guest_ns: Nanos,
    /// Working sets of a thread that comes from another CPU.
    pub cold_copy_ns: Nanos,
    pub cold_inject_ns: Nanos,
    pub cold_guest_ns: Nanos,
    /// A line of 64 bytes from the cache of another CPU: below the same last-level cache, or not.
    pub near_line_ns: Nanos,
    pub far_line_ns: Nanos,
    /// Lines that a stage has of its own: they are where it ran last.
    pub own_lines: u32,
    /// A wake-up by the same CPU, by another one.
    pub wake_here_ns: Nanos,
    pub wake_other_ns: Nanos,
    pub batch_ppm: u32,
    /// Most packets that are taken together.
    pub batch: u32,
    /// Packets that a VM's queue of the card, and its tap, hold; more are dropped.
    pub ring: u32,
    pub tap_queue: u32,
    /// A packet that was dropped is sent again so much later.
    pub resend_ns: Nanos,
    /// CPUs that do bridge, filter and tap for the n-th VM in turn; empty: the CPU that took the interrupt.
    pub rps_cpus: Vec<u32>,
}

/// What the guest takes its network card for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Card {
    /// Rings shared with the back end.
    Virtio,
    /// A model of a real card: two copies, and exits for its registers.
    Emulated,
}

/// Who moves packets between NIC and guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetPath {
    /// Nobody, and no time passes: a request is an interrupt on the CPU of the thread that takes it.
    None,
    /// The vCPUs of the VM whose role is `driver`.
    DriverDomain,
    /// A vhost thread per VM.
    Vhost,
    /// The VM's emulator thread.
    Emulator,
    /// The guest itself: the NIC, or a part of it, is its own.
    Direct,
}

impl Default for Net {
    fn default() -> Net {
        Net {
            path: NetPath::None,
            link_bit_s: 10_000_000_000,
            latency_ns: 25_000,
            coalesce_ns: 0,
            irq_ns: 1_000,
            per_packet_host_ns: 1_000,
            per_packet_guest_ns: 1_000,
            mtu: 1500,
            irq_cpus: Vec::new(),
            stages: None,
        }
    }
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
