// SPDX-License-Identifier: GPL-2.0-only
//! What each place can do with a scenario, in one table.
//!
//! The file format is the same everywhere; a simulator, a lab VM and a host differ in what they can make of it. A place
//! that gains a feature flips its cell in [`TABLE`]; nothing else has to change: [`check`] refuses by it, and
//! `berth scenario help places` prints it.
use crate::diag::{At, Error, Result};
use crate::model::{CoreKind, Guest, Hz, NetPath, Scenario, VmRole};
use crate::placement::{self, PlacementError};
use crate::read::PATHS;
use berth_optimiser::Settings;

/// How packets travel in a scenario that does not say (`net.path`).
pub const DEFAULT_NET_PATH: &str = "none";

/// Policies of the literature that files may name whether this release has them or not: without, the arm has no runs,
/// and the table says why. A policy that has arrived may stay in the list: what is shipped runs.
pub static LATER_POLICIES: [(&str, &str); 19] = [
    ("amp", "AMP schedulers"),
    ("brm", "bias random vCPU migration"),
    ("cfs", "Linux's scheduler until 6.5"),
    ("credit", "Xen's Credit"),
    ("credit2", "Xen's Credit2"),
    ("ecredit", "ECredit"),
    ("fcfs", "first come, first served"),
    ("flms", "FLMS"),
    ("iobound", "I/O bounding"),
    ("mlfq", "multi-level feedback queues"),
    ("mqms", "MQMS"),
    ("mrsf", "M-RSF"),
    ("o1", "Linux's O(1) scheduler"),
    ("osv", "OSv's scheduler"),
    ("rr", "round robin"),
    ("sjf", "shortest job first"),
    ("srtf", "shortest remaining time first"),
    ("vslicer", "vSlicer"),
    ("vturbo", "vTurbo"),
];

/// Why an arm with this policy has no runs; none for any other name.
pub fn later_policy(name: &str) -> Option<String> {
    let (_, what) = LATER_POLICIES.iter().find(|(policy, _)| *policy == name)?;
    Some(format!("policy {name} ({what}) comes with a later release"))
}

/// A scheduler that is a program of its own, as those of the scx project: it loads its policy itself.
pub fn is_program(policy: &str) -> bool {
    policy.starts_with("scx_") && !policy.contains(['/', '.'])
}

/// Why an arm with such a scheduler has no runs elsewhere.
pub fn only_in_the_lab(program: &str) -> String {
    format!("{program} is a program that loads its policy itself: `berth lab` runs it")
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Sim,
    Lab,
    Host,
}

impl Place {
    /// In the middle of a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Place::Sim => "the simulator",
            Place::Lab => "the lab",
            Place::Host => "a host",
        }
    }
}

/// What a place makes of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    Yes,
    /// Refused by name wherever a scenario uses it.
    No,
    /// Has something else, said here. Refused only where the scenario asks for the feature by name; where it is merely
    /// a default, the other thing is done.
    Instead(&'static str),
    /// Does it in its own way, said here; never refused.
    Own(&'static str),
}

/// What a scenario can ask for that not every place has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    Guests,
    DriverDomain,
    Packets,
    PacketStages,
    Interrupts,
    PartAffinity,
    TurboVcpus,
    GuestAgents,
    Locks,
    Spinning,
    Barriers,
    Events,
    Stealing,
    Disks,
    CustomSlices,
    SharedCgroups,
    FirstSteps,
    WorkingSets,
    Phases,
    Rounds,
    ThreadPerRequest,
    LostRequests,
    Estimates,
    Counters,
    Memory,
    Speeds,
    CoreKinds,
    CachesOfKinds,
    FrequencySteps,
    Hotplug,
    Optimiser,
    OptimisersOwn,
    ExactSlices,
    Costs,
    KernelModel,
    Fitting,
}

/// One feature and who has it.
#[derive(Debug)]
pub struct Row {
    pub feature: Feature,
    /// In the middle of a sentence: "the lab has no ...".
    pub what: &'static str,
    /// Keys and steps that ask for it.
    pub keys: &'static str,
    pub sim: Has,
    pub lab: Has,
    pub host: Has,
}

impl Row {
    pub fn has(&self, place: Place) -> Has {
        match place {
            Place::Sim => self.sim,
            Place::Lab => self.lab,
            Place::Host => self.host,
        }
    }
}

/// A host does what the lab does: the same load generator on another kernel.
const fn row(feature: Feature, what: &'static str, keys: &'static str, sim: Has, lab: Has) -> Row {
    Row {
        feature,
        what,
        keys,
        sim,
        lab,
        host: lab,
    }
}

const FOLDED: Has = Has::Instead("tasks are folded onto vCPU threads");

const BRAKED: &str = "slower ones are braked, for all programs alike";

/// Who has what. A place that learns something changes its cell here: `No` or `Instead` becomes `Yes`.
pub static TABLE: [Row; 36] = {
    use Feature::*;
    use Has::{Instead, No, Own, Yes};
    [
        //   feature       "... has no"                 keys                           simulator  lab
        row(Guests, "guest level", "vm.guest", Yes, FOLDED),
        row(DriverDomain, "driver domain", "vm.role", Yes, No),
        row(
            Packets,
            "network",
            "net.path",
            Yes,
            Instead("a real-time thread sends the requests"),
        ),
        row(
            PacketStages,
            "stages of a packet's way",
            "net.stages",
            Yes,
            No,
        ),
        row(
            Interrupts,
            "choice of CPUs for a card's interrupts",
            "net.irq_cpus",
            Yes,
            No,
        ),
        row(
            PartAffinity,
            "affinity of some of a VM's threads",
            "vm.coverage, vm.backend_affinity",
            Yes,
            No,
        ),
        row(TurboVcpus, "turbo vCPUs", "vm.turbo_vcpus", Yes, No),
        row(
            GuestAgents,
            "agents inside guests",
            "vm.guest_agent",
            Yes,
            No,
        ),
        row(Locks, "locks", "steps lock, unlock", Yes, Yes),
        row(Spinning, "spin locks", "step spin", Yes, Yes),
        row(Barriers, "barriers", "step barrier", Yes, Yes),
        row(
            Events,
            "events to wait for",
            "steps wait, signal, broadcast",
            Yes,
            Yes,
        ),
        row(
            Stealing,
            "work stealing",
            "step chunks, model parallel",
            Yes,
            Yes,
        ),
        row(Disks, "disks", "steps read, write", Yes, No),
        row(CustomSlices, "slices of a VM's own", "vm.slice", No, Yes),
        row(
            SharedCgroups,
            "cgroups that VMs with guests share",
            "vm.cgroup, with guests",
            No,
            Yes,
        ),
        row(FirstSteps, "steps before a loop", "task.first", Yes, Yes),
        row(
            WorkingSets,
            "cache warmth",
            "task.working_set",
            Yes,
            Own("the machine's own caches"),
        ),
        row(
            Phases,
            "phases of tasks",
            "task.stall, task.ipc, step stall",
            Yes,
            Own("its tasks compute"),
        ),
        row(Rounds, "tasks that end", "task.rounds", Yes, No),
        row(
            ThreadPerRequest,
            "threads for each request",
            "task.per_request",
            Yes,
            Yes,
        ),
        row(
            LostRequests,
            "requests without room",
            "client.at_most",
            Yes,
            No,
        ),
        row(
            Estimates,
            "sizes told to policies",
            "task.estimate",
            Yes,
            Yes,
        ),
        row(
            Counters,
            "performance counters",
            "host.pmu",
            Yes,
            Own("the machine's own, where it has some"),
        ),
        row(
            Memory,
            "choice of where VMs' memory is",
            "vm.memory, host.remote_memory",
            Yes,
            Own("it is where the kernel puts it"),
        ),
        Row {
            feature: Speeds,
            what: "cores of other speeds",
            keys: "host.speed",
            sim: Yes,
            lab: Own(BRAKED),
            host: No,
        },
        Row {
            feature: CoreKinds,
            what: "choice of kinds of cores",
            keys: "host.kind",
            sim: Yes,
            lab: Own(BRAKED),
            host: No,
        },
        row(
            CachesOfKinds,
            "last-level caches of a kind's own",
            "host.kind.NAME.llcs",
            Yes,
            No,
        ),
        row(
            FrequencySteps,
            "frequency steps",
            "host.kind.NAME.steps",
            Yes,
            No,
        ),
        row(Hotplug, "CPUs that come and go", "host.hotplug", Yes, No),
        row(
            ExactSlices,
            "slices without ticks",
            "host.hz = \"exact\"",
            Yes,
            No,
        ),
        Row {
            feature: Optimiser,
            what: "optimiser",
            keys: "optimiser",
            sim: Yes,
            lab: Own("beside micro-VMs (--vcpus kvm)"),
            host: No,
        },
        // What an operator cannot say to the agent either.
        row(
            OptimisersOwn,
            "choice of when the optimiser looks, or of weights for it",
            "optimiser.{period,decide,gap}",
            Yes,
            No,
        ),
        row(
            Costs,
            "costs of its own",
            "host.cost",
            Yes,
            Own("the kernel's own costs"),
        ),
        Row {
            feature: KernelModel,
            what: "choice of kernel here",
            keys: "host.kernel",
            sim: Yes,
            lab: Own("by --kernel"),
            host: Own("the kernel that runs"),
        },
        row(
            Fitting,
            "calibration",
            "calibrate",
            Yes,
            Own("not fitted: the file's values"),
        ),
    ]
};

/// The row of a feature.
pub fn row_of(feature: Feature) -> &'static Row {
    TABLE
        .iter()
        .find(|r| r.feature == feature)
        .unwrap_or(&TABLE[0])
}

/// Whether the place has a guest level: if not, tasks are folded onto vCPU threads.
pub fn has_guests(place: Place) -> bool {
    row_of(Feature::Guests).has(place) == Has::Yes
}

/// A feature that a scenario uses, and the address of what uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub feature: Feature,
    pub address: String,
    /// What stands there is what would be there anyway.
    pub default: bool,
}

fn path_name(path: NetPath) -> &'static str {
    PATHS
        .iter()
        .find(|(_, p)| *p == path)
        .map_or("", |(name, _)| name)
}

/// Everything in a scenario that not every place has.
pub fn uses(scenario: &Scenario) -> Vec<Use> {
    let mut all = Vec::new();
    let default = Guest::default();
    for vm in scenario
        .vms
        .iter()
        .filter(|vm| vm.count > 0 && !vm.guest.is_none())
    {
        all.push(Use {
            feature: Feature::Guests,
            address: format!("vm.{}.guest", vm.name),
            default: vm.guest == default,
        });
    }
    if scenario.net.path != NetPath::None && !scenario.clients.is_empty() {
        all.push(Use {
            feature: Feature::Packets,
            address: "net.path".into(),
            default: path_name(scenario.net.path) == DEFAULT_NET_PATH,
        });
    }
    let carries = scenario.net.path != NetPath::None;
    let mut add = |feature, address: String| {
        all.push(Use {
            feature,
            address,
            default: false,
        });
    };
    if scenario.host.hz == Hz::Exact {
        add(Feature::ExactSlices, "host.hz".into());
    }
    match scenario.host.cost.kinds.first() {
        None => {}
        Some(kind) if kind.name.is_empty() => add(Feature::Speeds, "host.speed".into()),
        Some(kind) => add(Feature::CoreKinds, format!("host.kind.{}", kind.name)),
    }
    if let Some(kind) = scenario.host.cost.kinds.iter().find(|k| k.llcs > 0) {
        add(
            Feature::CachesOfKinds,
            format!("host.kind.{}.llcs", kind.name),
        );
    }
    let steps = |k: &&CoreKind| !k.steps_khz.is_empty();
    if let Some(kind) = scenario.host.cost.kinds.iter().find(steps) {
        add(
            Feature::FrequencySteps,
            format!("host.kind.{}.steps", kind.name),
        );
    }
    if scenario.host.cost.pmu_noise_ppm.is_some() {
        add(Feature::Counters, "host.pmu".into());
    }
    if scenario.host.cost.remote_ppm != 0 {
        add(Feature::Memory, "host.remote_memory".into());
    }
    if !scenario.host.hotplug.is_empty() {
        add(Feature::Hotplug, "host.hotplug".into());
    }
    if let Some(optimiser) = &scenario.optimiser {
        add(Feature::Optimiser, "optimiser".into());
        let (set, usual) = (&optimiser.settings, Settings::default());
        for (key, ns, usual) in [
            ("period", set.period_ns, usual.period_ns),
            ("decide", set.decide_ns, usual.decide_ns),
            ("gap", set.gap_ns, usual.gap_ns),
        ] {
            if ns != usual {
                add(Feature::OptimisersOwn, format!("optimiser.{key}"));
            }
        }
        for vm in &scenario.vms {
            if optimiser.promise(vm).weight != vm.weight {
                let address = format!("optimiser.vm.{}.weight", vm.name);
                add(Feature::OptimisersOwn, address);
            }
        }
    }
    if carries && scenario.net.stages.is_some() {
        add(Feature::PacketStages, "net.stages".into());
    }
    if carries && !scenario.net.irq_cpus.is_empty() {
        add(Feature::Interrupts, "net.irq_cpus".into());
    }
    for vm in scenario.vms.iter().filter(|vm| vm.count > 0) {
        let at = |key: &str| format!("vm.{}.{key}", vm.name);
        if vm.coverage_ppm.is_some() {
            add(Feature::PartAffinity, at("coverage"));
        }
        if !vm.backend_affinity.is_empty() {
            add(Feature::PartAffinity, at("backend_affinity"));
        }
        if vm.role == VmRole::Driver {
            add(Feature::DriverDomain, at("role"));
        }
        if !vm.memory_ppm.is_empty() {
            add(Feature::Memory, at("memory"));
        }
        if vm.slice_ns.is_some() {
            add(Feature::CustomSlices, at("slice"));
        }
        if vm.cgroup.is_some() && !vm.guest.is_none() {
            add(Feature::SharedCgroups, at("cgroup"));
        }
        if vm.turbo_vcpus > 0 {
            add(Feature::TurboVcpus, at("turbo_vcpus"));
        }
        if vm.guest_agent {
            add(Feature::GuestAgents, at("guest_agent"));
        }
    }
    for client in scenario.clients.iter().filter(|c| c.at_most.is_some()) {
        add(
            Feature::LostRequests,
            format!("client.{}.at_most", client.name),
        );
    }
    for task in scenario.tasks.values() {
        let at = |key: &str| format!("task.{}.{key}", task.name);
        let key = if task.model.is_some() {
            "model"
        } else {
            "loop"
        };
        if !task.first.is_empty() {
            add(Feature::FirstSteps, at("first"));
        }
        if task.working_set.is_some() {
            add(Feature::WorkingSets, at("working_set"));
        }
        if task.stall_ppm > 0 {
            add(Feature::Phases, at("stall"));
        }
        if task.rounds.is_some() {
            add(Feature::Rounds, at("rounds"));
        }
        if task.per_request {
            add(Feature::ThreadPerRequest, at("per_request"));
        }
        if task.estimate.is_some() {
            add(Feature::Estimates, at("estimate"));
        }
        for (key, step) in
            (task.first.iter().map(|s| ("first", s))).chain(task.steps.iter().map(|s| (key, s)))
        {
            if let Some(feature) = step.needs() {
                add(feature, at(key));
            }
        }
    }
    all
}

/// Refuses what a place cannot do, by name and line. `at`: where the file, the command line or an arm says what stands
/// at an address; `None` if it is a default.
///
/// # Errors
/// The first thing that the place does not have.
pub fn check(scenario: &Scenario, place: Place, at: &dyn Fn(&str) -> Option<At>) -> Result<()> {
    check_features(scenario, place, at)?;
    if has_guests(place) {
        return Ok(());
    }
    if scenario.optimiser.is_some() {
        let why = format!(
            "{} has an optimiser for VMs only, and threads that stand in for vCPUs are none",
            place.name()
        );
        let error = match at("optimiser") {
            Some(at) => Error::at(&at, why),
            None => Error::new(why),
        };
        return Err(error.label("take micro-VMs: --vcpus kvm"));
    }
    placement::threads(scenario).map(|_| ()).map_err(|error| {
        let message = format!("{} folds tasks onto vCPU threads: {error}", place.name());
        match error.address().and_then(|address| at(&address)) {
            Some(at) => Error::at(&at, message),
            None => Error::new(message),
        }
    })
}

/// As [`check`], where tasks need not fold onto vCPU threads: micro-VMs have a small scheduler of their own.
///
/// # Errors
/// The first thing that the place does not have.
pub fn check_features(
    scenario: &Scenario,
    place: Place,
    at: &dyn Fn(&str) -> Option<At>,
) -> Result<()> {
    for Use {
        feature,
        address,
        default,
    } in uses(scenario)
    {
        let row = row_of(feature);
        // Looking for the address takes long in a large scenario.
        let instead = match row.has(place) {
            Has::Yes | Has::Own(_) => continue,
            Has::Instead(_) if default => continue,
            Has::Instead(words) => Some(words),
            Has::No => None,
        };
        let asked = at(&address);
        if instead.is_some() && asked.is_none() {
            continue;
        }
        return Err(refusal(place, row, &address, asked, instead));
    }
    Ok(())
}

fn refusal(
    place: Place,
    row: &Row,
    address: &str,
    asked: Option<At>,
    instead: Option<&str>,
) -> Error {
    let others: Vec<&str> = [Place::Sim, Place::Lab]
        .into_iter()
        .filter(|other| row.has(*other) == Has::Yes)
        .map(Place::name)
        .collect();
    let message = match &asked {
        Some(at) => format!(
            "{} has no {}: {address}, {}",
            place.name(),
            row.what,
            at.short()
        ),
        None => format!("{} has no {}: {address}", place.name(), row.what),
    };
    let mut error = match &asked {
        Some(at) => Error::at(at, message),
        None => Error::new(message),
    };
    if let Some(words) = instead {
        error = error.label(format!("here {words}"));
    }
    match &others[..] {
        [] => error,
        others => error.note(format!("It runs in {}", others.join(" and "))),
    }
}

impl PlacementError {
    /// The address of what cannot be placed.
    pub fn address(&self) -> Option<String> {
        match self {
            PlacementError::TooManyThreads { vm, .. }
            | PlacementError::NoVcpuForPool { vm, .. }
            | PlacementError::SleepingPool { vm, .. }
            | PlacementError::MixedPools { vm, .. } => Some(format!("vm.{vm}.tasks")),
            PlacementError::ReceiveInside { task }
            | PlacementError::NoSuchDisk { task, .. }
            | PlacementError::Sync { task, .. }
            | PlacementError::NobodyReceives { from: task, .. } => {
                Some(format!("task.{task}.loop"))
            }
            PlacementError::FirstOfPool { task } => Some(format!("task.{task}.first")),
            PlacementError::ClientUnheard { client, .. } => Some(format!("client.{client}.to")),
            PlacementError::Network(_) => Some("net.path".into()),
            PlacementError::Disk(_) => Some("disk".into()),
            PlacementError::UnknownTask { .. } => None,
        }
    }
}

/// The table as text.
pub fn page() -> String {
    let mut out = String::from(
        "What each place can do. What it cannot do is refused by name before anything starts; where it has something\n\
         else, that is done unless the scenario asks for the thing by name. A host does what the lab does, but for\n\
         kinds of cores: it has its own.\n\n",
    );
    let cell = |has: Has| match has {
        Has::Yes => "yes".to_string(),
        Has::No => "-".to_string(),
        Has::Instead(words) | Has::Own(words) => words.to_string(),
    };
    let widest = TABLE.iter().map(|row| row.keys.len()).max().unwrap_or(0);
    out.push_str(&format!(
        "  {:<widest$}  {:<37} {}\n",
        "", "simulator", "lab"
    ));
    for row in &TABLE {
        out.push_str(&format!(
            "  {:<widest$}  {:<37} {}\n",
            row.keys,
            cell(row.sim),
            cell(row.lab)
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_one_row() {
        for (i, row) in TABLE.iter().enumerate() {
            assert!(
                TABLE[i + 1..]
                    .iter()
                    .all(|other| other.feature != row.feature),
                "{:?} twice",
                row.feature
            );
            assert!(page().contains(row.keys));
        }
    }

    #[test]
    fn what_is_asked_for_is_refused_and_defaults_are_not() {
        let mut scenario = Scenario::default();
        scenario.vms.push(crate::model::Vm {
            name: "dom0".into(),
            role: VmRole::Driver,
            ..Default::default()
        });
        if row_of(Feature::DriverDomain).lab == Has::No {
            let said = check(&scenario, Place::Lab, &|_| None)
                .unwrap_err()
                .to_string();
            assert!(
                said.starts_with("the lab has no driver domain: vm.dom0.role"),
                "{said}"
            );
        }
        scenario.vms[0].role = VmRole::Guest;
        check(&scenario, Place::Lab, &|_| None).unwrap();
        scenario.vms[0].guest_agent = true;
        check(&scenario, Place::Sim, &|_| None).unwrap();
        for place in [Place::Lab, Place::Host] {
            let said = check(&scenario, place, &|_| None).unwrap_err().to_string();
            let begins = format!(
                "{} has no agents inside guests: vm.dom0.guest_agent",
                place.name()
            );
            assert!(said.starts_with(&begins), "{said}");
        }
    }

    #[test]
    fn the_labs_optimiser_is_the_agents_and_acts_on_micro_vms() {
        let mut scenario = Scenario::default();
        scenario.vms.push(crate::model::Vm {
            name: "web".into(),
            ..Default::default()
        });
        let with = |settings, promises| {
            let mut scenario = scenario.clone();
            scenario.optimiser = Some(crate::model::Optimiser { settings, promises });
            scenario
        };
        let usual = with(Settings::default(), Default::default());
        let none = |_: &str| None;
        check(&usual, Place::Sim, &none).unwrap();
        check_features(&usual, Place::Lab, &none).unwrap();
        let said = |scenario: &Scenario, place| {
            let refused = check(scenario, place, &none).unwrap_err();
            refused.to_string()
        };
        let threads = said(&usual, Place::Lab);
        assert!(threads.contains("--vcpus kvm"), "{threads}");
        let host = said(&usual, Place::Host);
        assert!(host.starts_with("a host has no optimiser"), "{host}");
        let quick = Settings {
            gap_ns: 1_000_000,
            ..Settings::default()
        };
        let heavy = berth_optimiser::Promise {
            weight: 200,
            ..Default::default()
        };
        for (scenario, address) in [
            (with(quick, Default::default()), "optimiser.gap"),
            (
                with(Settings::default(), [("web".into(), heavy)].into()),
                "optimiser.vm.web.weight",
            ),
        ] {
            check(&scenario, Place::Sim, &none).unwrap();
            let refused = check_features(&scenario, Place::Lab, &none).unwrap_err();
            let said = refused.to_string();
            assert!(
                said.contains(&format!("weights for it: {address}")),
                "{said}"
            );
        }
    }
}
