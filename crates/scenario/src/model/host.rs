// SPDX-License-Identifier: GPL-2.0-only
//! `[host]` after reading: topology, kinds of cores, costs, ticks, CPUs that come and go.
use super::Nanos;
use serde::{Deserialize, Serialize};

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
    /// How many times as long it takes to wait for memory of another node ([`super::Vm::memory_ppm`]), parts per
    /// million; 0: as long as for one's own.
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
